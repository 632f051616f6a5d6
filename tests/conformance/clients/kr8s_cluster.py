"""A pytest plugin with the fixtures that kr8s' published tests want and do not bring: a cluster, and a tidy memory.

Their cluster is one of kind, where pods run in kube-system from the start.
"""

from __future__ import annotations

import gc
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cluster:
    """The server of KUBECONFIG."""

    kubeconfig_path = Path(os.environ["KUBECONFIG"])
    kubectl_path = Path(os.environ["KUBECTL"])

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints."""
        return subprocess.check_output([self.kubectl_path, *arguments], text=True)


@pytest.fixture(scope="session")
def k8s_cluster() -> Cluster:
    cluster = Cluster()
    cluster.kubectl("run", "coredns", "--namespace=kube-system", "--image=coredns", "--labels=k8s-app=kube-dns")
    cluster.kubectl("wait", "pod/coredns", "--namespace=kube-system", "--for=condition=Ready", "--timeout=60s")
    return cluster


@pytest.fixture
def ensure_gc() -> Iterator[None]:
    yield
    gc.collect()
