"""`steersman rbac`: the rights of the operators that are asked for, and of no other."""

from __future__ import annotations

import pytest
import yaml

from steersman.cli.main import _run
from steersman.operators import OPERATORS


def groups(capsys, *arguments):
    """The API groups that some rule names."""
    assert _run(["rbac", *arguments]) == 0
    objects = [obj for obj in yaml.safe_load_all(capsys.readouterr().out) if obj]
    return {group for obj in objects for rule in obj.get("rules") or () for group in rule.get("apiGroups") or ()}


def test_only_the_operators_that_are_named_get_rights_and_without_names_all_do(capsys):
    every = groups(capsys)
    assert {"bindy.firestoned.io", "hourglass.eigenlayer.io"} <= every
    chosen = groups(capsys, "--operators", "dns")
    assert "bindy.firestoned.io" in chosen
    assert "hourglass.eigenlayer.io" not in chosen


def test_the_file_names_the_operators_where_the_command_does_not(capsys, tmp_path):
    settings = tmp_path / "steersman.yaml"
    settings.write_text("operators: [dns]\n")
    assert "hourglass.eigenlayer.io" not in groups(capsys, "--config", str(settings))
    assert "hourglass.eigenlayer.io" in groups(capsys, "--config", str(settings), "--operators", "hourglass")


@pytest.mark.parametrize("command", ["crds", "rbac", "manifests"])
def test_every_command_prints_for_all_operators_where_none_is_named(command, capsys):
    def printed(*arguments):
        assert _run([command, *arguments]) == 0
        return capsys.readouterr().out

    assert printed() == printed("--operators", ",".join(sorted(OPERATORS))) != printed("--operators", "reload")


OPERATOR = """
import steersman as sm

class Shop(sm.Resource, group="example.org", version="v1"):
    pass

@sm.controller(Shop, owns=[sm.Secret])
async def shop_controller(ctx, shop):
    await ctx.client.get(shop.anything, "x")
"""


def documents(capsys, *arguments):
    assert _run(["rbac", *arguments]) == 0
    said = capsys.readouterr()
    return said, {(obj["kind"], obj["metadata"]["name"]): obj for obj in yaml.safe_load_all(said.out) if obj}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shop.py"
    path.write_text(OPERATOR)
    return str(path)


def test_a_file_gets_the_rights_of_its_controllers_under_its_own_name_and_lease(capsys, file):
    said, found = documents(capsys, file, "-n", "ops")
    assert list(found) == [
        ("ServiceAccount", "shop"),
        ("Role", "shop-lease"),
        ("RoleBinding", "shop-lease"),
        ("ClusterRole", "ops-shop"),
        ("ClusterRoleBinding", "ops-shop"),
    ]
    assert found["Role", "shop-lease"]["rules"][1]["resourceNames"] == ["shop"]
    resources = [resource for row in found["ClusterRole", "ops-shop"]["rules"] for resource in row["resources"]]
    assert resources == ["events", "secrets", "shops", "shops/finalizers"]
    unread = f"# {file}:9: cannot tell what ctx.client.get(shop.anything, 'x') needs; declare it: "
    assert said.out.splitlines()[0] == f'{unread}Controller.needs(rule(…, "get"))'


def test_rights_of_a_file_in_single_namespaces_for_shards_and_webhooks(capsys, file):
    _, found = documents(capsys, file, "--namespaces", "shop,stock", "--shard")
    assert ("Role", "shop-lease") not in found
    (leases,) = found["Role", "shop-own"]["rules"]
    assert leases["verbs"] == ["get", "list", "create", "patch", "delete"]
    assert not any(kind == "ClusterRole" for kind, _ in found)
    _, found = documents(capsys, "examples/database.py", "--lease", "")
    assert found["Role", "database-own"]["rules"][1]["resourceNames"] == ["database-webhooks"]
    assert ("Role", "database-lease") not in found


def test_rights_of_a_file_in_another_cluster(capsys):
    _, found = documents(capsys, "examples/mirror.py", "--cluster", "there")
    assert found["ClusterRole", "default-mirror"]["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create", "patch", "delete"]}
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["examples/webapp.py", "--operators", "dns"], 2, "name files, or operators with --operators, not both"),
        (["--shard"], 2, "--shard and --cluster are for the controllers of a file"),
        (["tools/dashboard.py"], 1, "defines neither a controller nor a webhook"),
    ],
)
def test_requests_that_exclude_each_other_are_refused(capsys, arguments, code, said):
    assert _run(["rbac", *arguments]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("settings", "reviews"), [("{}", False), ("page: token", True), ("metrics: token", True)])
def test_tokens_are_reviewed_only_where_a_setting_asks_for_them(capsys, tmp_path, settings, reviews):
    path = tmp_path / "steersman.yaml"
    path.write_text(settings)
    asked = groups(capsys, "--operators", "reload", "--config", str(path))
    assert ({"authentication.k8s.io", "authorization.k8s.io"} <= asked) is reviews
