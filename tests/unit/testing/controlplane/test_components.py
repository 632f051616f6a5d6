from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from steersman.testing.controlplane import components
from steersman.testing.controlplane.identities import kubeconfig
from steersman.testing.controlplane.processes import ReservedPort


@pytest.fixture
def port():
    with ReservedPort() as port:
        yield port


def flags_of(command: list[str]) -> dict[str, str]:
    return dict(flag.removeprefix("--").split("=", 1) for flag in command)


def test_every_server_listens_on_loopback_only(port):
    folder, config = Path("/run"), Path("/config")
    for command in (
        components.apiserver(folder, port, port, service_accounts=True),
        components.controller_manager(folder, port, config, ["*"]),
        components.scheduler(folder, port, config),
    ):
        flags = flags_of(command)
        assert flags["bind-address"] == "127.0.0.1"
        assert flags["secure-port"] == str(port.number)
        assert flags["permit-port-sharing"] == "true"
    assert flags_of(components.etcd(folder, port, port))["listen-client-urls"] == f"http://127.0.0.1:{port.number}"
    assert flags_of(components.kwok(port, config))["server-address"] == f"127.0.0.1:{port.number}"


@pytest.mark.parametrize(("service_accounts", "plugin_is_off"), [(True, False), (False, True)])
def test_pods_need_an_account_only_where_accounts_are_created(port, service_accounts, plugin_is_off):
    flags = flags_of(components.apiserver(Path("/run"), port, port, service_accounts=service_accounts))
    assert ("ServiceAccount" in flags["disable-admission-plugins"].split(",")) is plugin_is_off


def test_access_is_by_rbac_and_is_audited(port):
    flags = flags_of(components.apiserver(Path("/run"), port, port, service_accounts=True))
    assert flags["authorization-mode"] == "RBAC"
    assert flags["audit-log-path"] == "/run/audit.log"
    assert "anonymous-auth" not in flags


def test_kwok_takes_only_nodes_that_say_so_and_knows_every_stage(port):
    flags = flags_of(components.kwok(port, Path("/config")))
    assert flags["manage-nodes-with-annotation-selector"] == components.SIMULATED
    stages = list(yaml.safe_load_all(Path(flags["config"]).read_text()))
    assert [stage["metadata"]["name"] for stage in stages] == [
        "node-ready",
        "pod-running",
        "job-pod-succeeded",
        "pod-gone",
    ]


def test_a_kubeconfig_names_one_cluster_one_user_and_a_namespace():
    document = yaml.safe_load(kubeconfig("https://x", "PEM", name="bob", user={"token": "t"}, namespace="shop"))
    assert document["contexts"][0]["context"] == {"cluster": "steersman", "user": "bob", "namespace": "shop"}
    assert document["current-context"] == "steersman"
    assert document["users"] == [{"name": "bob", "user": {"token": "t"}}]
    assert document["clusters"][0]["cluster"] == {"server": "https://x", "certificate-authority-data": "UEVN"}
