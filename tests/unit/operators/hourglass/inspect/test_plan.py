"""The plan for manifests of executors and performers, and the command `plan`."""

from __future__ import annotations

import msgspec
import yaml

from steersman.cli.main import _run
from tests.support.hourglass import executor as executor_manifest
from tests.support.hourglass import performer as performer_manifest


def write(tmp_path, *manifests):
    path = tmp_path / "manifests.yaml"
    path.write_text("---\n".join(yaml.safe_dump(manifest) for manifest in manifests))
    return str(path)


def test_a_plan_names_every_object_and_no_key(tmp_path, capsys):
    scheduling = {"nodeSelector": {"pool": "avs"}}
    config = {"kubernetes": {"namespace": "ns", "defaultScheduling": scheduling}}
    path = write(
        tmp_path,
        executor_manifest("e", "ns", replicas=2, config=config),
        performer_manifest("p", "ns", executorRef="e", replicas=2, networkPolicy="ExecutorOnly"),
    )
    assert _run(["hourglass", "plan", "-f", path, "-o", "name"]) == 3
    assert "configmap/e-config" in capsys.readouterr().out.splitlines()
    assert _run(["hourglass", "plan", "-f", path]) == 3
    said = capsys.readouterr().out
    for name in (
        "ConfigMap/e-config",
        "Secret/e-keys",
        "Deployment/e",
        "Pod/performer-p-1",
        "NetworkPolicy/performer-p",
    ):
        assert name in said
    assert "on a node with pool=avs" in said
    assert "key-material" not in said


def test_a_plan_of_some_labels_leaves_the_others_out_and_still_knows_their_executor(tmp_path, capsys):
    chosen = performer_manifest("p", "ns", executorRef="e")
    chosen["metadata"]["labels"] = {"tier": "gpu"}
    path = write(tmp_path, executor_manifest("e", "ns"), chosen, performer_manifest("q", "ns", executorRef="e"))
    assert _run(["hourglass", "plan", "-f", path, "-l", "tier=gpu", "-o", "name"]) == 3
    names = capsys.readouterr().out.split()
    assert names
    assert all("performer-p" in name for name in names)


def test_a_plan_of_something_invalid_names_the_field_and_fails(tmp_path, capsys):
    path = write(tmp_path, performer_manifest("p", "ns", config={"grpcPort": 0}))
    assert _run(["hourglass", "plan", "-f", path]) == 1
    assert "spec.config.grpcPort" in capsys.readouterr().out


def test_a_plan_compared_with_the_cluster_keeps_what_is_as_it_should_be():
    from steersman.kube.api.types import Deployment
    from steersman.operators.hourglass.api.config import HourglassOptions
    from steersman.operators.hourglass.api.types import StoredExecutor
    from steersman.operators.hourglass.api.validation import read_executor
    from steersman.operators.hourglass.children.executor_children import children_of
    from steersman.operators.hourglass.inspect.plan import plan_manifests

    manifest = executor_manifest("e", "ns", config={"operatorKeysSecretRef": {"name": "vault"}})
    del manifest["spec"]["config"]["operatorKeys"]
    stored = msgspec.convert(manifest, StoredExecutor)
    deployment = children_of(stored, read_executor(stored)[0], keys="digest of the Secret").deployment
    live = {
        ("HourglassExecutor", "ns", "e"): stored,
        ("Deployment", "ns", "e"): msgspec.convert({k: deployment[k] for k in ("metadata", "spec")}, Deployment),
    }
    options = HourglassOptions(create_service_accounts=False)
    lines = {line.object: line.action for line in plan_manifests([manifest], options, live=live)}
    assert lines == {"ConfigMap/e-config": "create", "Deployment/e": "keep"}
    changed = {**manifest, "spec": {**manifest["spec"], "image": "executor:2"}}
    lines = {line.object: line.action for line in plan_manifests([changed], options, live=live)}
    assert lines["Deployment/e"] == "update"


def test_a_plan_says_what_is_adopted_from_another_version_and_what_is_replaced():
    from steersman.kube.api.types import Deployment, Pod
    from steersman.operators.hourglass.api.config import HourglassOptions
    from steersman.operators.hourglass.inspect.plan import plan_manifests

    owner = {"apiVersion": "x/v1", "kind": "Performer", "name": "p", "uid": "u", "controller": True}
    container = {"name": "main", "image": "avs:1"}
    pod = {"metadata": {"name": "performer-p", "namespace": "ns", "ownerReferences": [owner]}}
    made = {"spec": {"template": {"spec": {"containers": [{"name": "executor", "image": "executor:1"}]}}}}
    live = {
        ("Pod", "ns", "performer-p"): msgspec.convert({**pod, "spec": {"containers": [container]}}, Pod),
        ("Deployment", "ns", "e"): msgspec.convert({"metadata": {"name": "e", "namespace": "ns"}, **made}, Deployment),
    }
    options = HourglassOptions(create_service_accounts=False)

    def actions(performer_image, executor_image):
        manifests = [
            performer_manifest("p", "ns", image=performer_image),
            executor_manifest("e", "ns", image=executor_image),
        ]
        lines = {line.object: line.action for line in plan_manifests(manifests, options, live=live)}
        return lines["Pod/performer-p"], lines["Deployment/e"]

    assert actions("avs:1", "executor:1") == ("keep", "keep")
    assert actions("avs:2", "executor:2") == ("replace", "update")
