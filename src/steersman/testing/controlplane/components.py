"""The command lines of the programs of a control plane. Pure: folders and ports in, flags out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from steersman.testing.controlplane.processes import LOOPBACK, ReservedPort

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SIMULATED", "apiserver", "controller_manager", "etcd", "kwok", "scheduler"]

SIMULATED = "kwok.x-k8s.io/node=fake"
"""The annotation of a node that KWOK takes care of."""


def etcd(folder: Path, client: ReservedPort, peer: ReservedPort) -> list[str]:
    """A store for one run: durability would only cost time."""
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://{client.address}",
        f"--advertise-client-urls=http://{client.address}",
        f"--listen-peer-urls=http://{peer.address}",
        f"--initial-advertise-peer-urls=http://{peer.address}",
        f"--initial-cluster=default=http://{peer.address}",
        "--socket-reuse-port=true",
        "--unsafe-no-fsync=true",
        "--log-level=warn",
    ]


def apiserver(folder: Path, store: ReservedPort, port: ReservedPort, *, service_accounts: bool) -> list[str]:
    """RBAC and an audit log, as in production; the admin comes by token so that a plain HTTP client can be one."""
    pki = folder / "pki"
    unserved = ["TaintNodesByCondition"]  # without a node controller the taints would stay
    if not service_accounts:
        unserved += ["ServiceAccount"]  # refuses every pod where no controller makes the account `default`
    return [
        f"--etcd-servers=http://{store.address}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",  # pods cannot reach the loopback address
        f"--secure-port={port.number}",
        "--permit-port-sharing=true",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-accounts.key'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        f"--audit-policy-file={folder / 'audit-policy.json'}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-maxsize=8192",  # MB: a log that is turned over in the middle of a test has lost its beginning
        f"--disable-admission-plugins={','.join(unserved)}",
        "--profiling=false",
    ]


def controller_manager(folder: Path, port: ReservedPort, config: Path, controllers: Sequence[str]) -> list[str]:
    """Each controller acts as its own service account, with the rights it has in a real cluster."""
    return [
        *_client(folder / "controller-manager", port, config),
        f"--controllers={','.join(controllers)}",
        f"--service-account-private-key-file={folder / 'pki' / 'service-accounts.key'}",
        f"--root-ca-file={folder / 'pki' / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def scheduler(folder: Path, port: ReservedPort, config: Path) -> list[str]:
    """The default scheduler."""
    return _client(folder / "scheduler", port, config)


def kwok(port: ReservedPort, config: Path) -> list[str]:
    """Nodes with KWOK's annotation are simulated, and so are the pods bound to them; others stay as they are."""
    return [
        f"--kubeconfig={config}",
        f"--config={Path(__file__).with_name('kwok.yaml')}",
        f"--manage-nodes-with-annotation-selector={SIMULATED}",
        "--node-ip=192.0.2.1",  # an address that is never used
        f"--server-address={port.address}",
    ]


def _client(folder: Path, port: ReservedPort, config: Path) -> list[str]:
    return [
        f"--kubeconfig={config}",
        "--leader-elect=false",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port.number}",
        "--permit-port-sharing=true",
        f"--cert-dir={folder}",
        "--profiling=false",
    ]
