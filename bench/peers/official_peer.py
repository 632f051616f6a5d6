"""The official client's SharedInformer. See bench/contenders.py."""

from __future__ import annotations

import json
import sys
import threading
import time

from kubernetes import client, config
from kubernetes.informer import SharedInformer


def sync(count: int) -> None:
    """Its cache of ConfigMaps, asked from time to time whether it is complete: it does not say so itself."""
    config.load_kube_config()
    informer = SharedInformer(client.CoreV1Api().list_namespaced_config_map, namespace="bench")
    informer.start()
    while len(informer.cache.list()) < count:
        time.sleep(0.25)
    print(json.dumps({"synced": count}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    sync(int(sys.argv[2]))
