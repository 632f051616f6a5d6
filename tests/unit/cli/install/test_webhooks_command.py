"""Webhooks on the command line: what is printed and what is served fit each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from steersman.cli.config import RunSettings
from steersman.cli.install.webhooks import client_config, default_name, serving
from steersman.cli.main import cli
from steersman.cli.python_files import hooks_in, load_python
from steersman.errors import ConfigError
from steersman.runtime.webhook.certificate_source import ManagedCertificates, MountedCertificates

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.fixture(scope="module")
def hooks() -> list[Any]:
    return hooks_in([load_python(str(EXAMPLES / "database.py"))])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("db.ops.svc", {"service": {"namespace": "ops", "name": "db", "path": "/p", "port": 443}}),
        ("db.ops.svc:8443", {"service": {"namespace": "ops", "name": "db", "path": "/p", "port": 8443}}),
        ("127.0.0.1", {"url": "https://127.0.0.1:9443/p"}),
        ("hooks.example.org:443", {"url": "https://hooks.example.org:443/p"}),
    ],
)
def test_a_host_is_a_service_or_an_address(host, expected):
    assert client_config(host)("/p") == expected


@pytest.mark.parametrize(
    ("files", "name"), [(["examples/my_db.py", "b.py"], "my-db"), (["company.operators.database"], "database")]
)
def test_webhooks_are_called_after_the_first_file(files, name):
    assert default_name(files) == name


def test_configurations_are_printed_for_the_service_of_that_name():
    arguments = ["webhooks", str(EXAMPLES / "database.py"), "-n", "ops", "-o", "json"]
    (item,) = json.loads(CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout)["items"]
    assert (item["kind"], item["metadata"]) == ("ValidatingWebhookConfiguration", {"name": "database"})
    (webhook,) = item["webhooks"]
    assert webhook["clientConfig"]["service"]["name"] == "database"
    assert webhook["failurePolicy"] == "Fail"


def test_a_file_without_webhooks_is_an_error():
    with pytest.raises(ConfigError, match="defines no webhook"):
        CliRunner().invoke(cli, ["webhooks", str(EXAMPLES / "webapp.py")], catch_exceptions=False)


def made(hooks: list[Any], **settings: Any) -> Any:
    in_cluster = settings.pop("in_cluster", False)
    make = serving(hooks, RunSettings(**settings), name="database", own_namespace="ops", in_cluster=in_cluster)
    client: Any = None
    return make(client) if make is not None else None


@pytest.mark.parametrize(
    ("settings", "address", "names"),
    [
        ({"webhooks": True}, ("127.0.0.1", 9443), ["127.0.0.1"]),
        ({"webhooks": True, "in_cluster": True}, ("0.0.0.0", 9443), ["database.ops.svc"]),
        ({"webhook_listen": "8443"}, ("127.0.0.1", 8443), ["127.0.0.1"]),
        ({"webhook_listen": ":8443"}, ("0.0.0.0", 8443), ["127.0.0.1"]),
        ({"webhook_listen": "127.0.0.1:0", "webhook_host": "db.x.svc:8443"}, ("127.0.0.1", 0), ["db.x.svc"]),
    ],
)
def test_the_certificate_is_for_what_the_api_server_calls(hooks, settings, address, names):
    server = made(hooks, **settings)
    assert (server._host, server._port) == address
    assert isinstance(server._certificates._source, ManagedCertificates)
    assert server._certificates._source._names == names


def test_mounted_certificates_are_used_when_there_is_a_folder(hooks, tmp_path):
    assert isinstance(made(hooks, webhook_certs=str(tmp_path))._certificates._source, MountedCertificates)


@pytest.mark.parametrize(
    "settings",
    [{}, {"webhooks": False}, {"webhooks": True, "dry_run": True}, {"webhooks": True, "shadow": True}],
    ids=repr,
)
def test_webhooks_that_are_not_served_are_named(hooks, settings):
    with capture_logs() as lines:
        assert made(hooks, **settings) is None
    assert lines[0]["hooks"] == ["volumes-never-shrink.databases.example.org"]


@pytest.mark.parametrize("host", ["https://h:1", "a.b.svc:x", ":9443", "h/path"])
def test_a_host_that_is_none_is_refused_with_the_way_out(host):
    with pytest.raises(ConfigError, match=r"try 127\.0\.0\.1:9443"):
        client_config(host)


def test_an_address_to_listen_at_that_is_none_names_its_setting(hooks):
    with pytest.raises(ConfigError, match="webhookListen"):
        made(hooks, webhook_listen="nowhere")


def test_without_webhooks_there_is_nothing_to_say():
    with capture_logs() as lines:
        assert made([]) is None
    assert lines == []


def test_two_webhooks_of_one_path_are_the_mistake_of_a_file_and_of_no_flag(hooks):
    with pytest.raises(ConfigError, match="there are two webhooks at") as caught:
        made([*hooks, *hooks], webhooks=True)
    assert caught.value.field is None


@pytest.mark.parametrize("settings", [{"webhooks": True}, {"webhook_certs": "certs"}], ids=repr)
def test_webhooks_that_are_asked_for_and_are_not_there_are_an_error(settings):
    with pytest.raises(ConfigError, match="what runs here defines no webhook") as caught:
        made([], **settings)
    assert caught.value.field == next(iter(settings))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shard", "--leader-elect", str(EXAMPLES / "webapp.py")], "exclude each other"),
        (["--shard", "--operators", "reload"], "works for your own controllers only"),
    ],
)
def test_sharing_that_cannot_be_is_refused_before_anything_starts(arguments, message):
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(cli, ["run", *arguments], catch_exceptions=False)


VERSIONS = """
import steersman as sm

class Rope(sm.Resource, group="example.org", version="v2"):
    spec: dict[str, int]

class RopeV1(sm.Resource, group="example.org", version="v1", kind="Rope", hub=Rope):
    spec: dict[str, int]

    def convert_to(self):
        return Rope(spec=self.spec)

    @classmethod
    def convert_from(cls, hub):
        return cls(spec=hub.spec)
"""


CONVERT = "/convert/example.org/ropes"


@pytest.fixture
def versions(tmp_path) -> str:
    path = tmp_path / "rope.py"
    path.write_text(VERSIONS)
    return str(path)


def items(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*arguments, "-o", "json"], catch_exceptions=False)
    return json.loads(result.stdout)["items"]


@pytest.mark.parametrize(
    ("options", "client"),
    [
        (
            ["-n", "ops"],
            {"service": {"namespace": "ops", "name": "rope", "path": "/convert/example.org/ropes", "port": 443}},
        ),
        (["--host", "127.0.0.1:9443"], {"url": "https://127.0.0.1:9443/convert/example.org/ropes"}),
    ],
)
def test_a_definition_with_a_hub_is_printed_with_the_address_of_its_conversion(versions, options, client):
    (definition,) = items("crds", versions, *options)
    assert definition["spec"]["conversion"]["webhook"]["clientConfig"] == client


def test_the_conversion_of_a_file_is_served_with_a_certificate_for_its_definition(versions):
    server = made(hooks_in([load_python(versions)]), webhooks=True)
    assert list(server._hooks) == [CONVERT]
    assert [name for _, name in server._certificates._source._injected][2:] == ["ropes.example.org"]


def test_the_rights_of_a_conversion_are_printed(versions):
    rules = [rule for item in items("webhooks", versions, "-n", "ops", "--rights") for rule in item.get("rules", ())]
    assert {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "resourceNames": ["ropes.example.org"],
        "verbs": ["get", "patch"],
    } in rules
    with pytest.raises(ConfigError, match="defines conversions only: steersman crds prints their address"):
        CliRunner().invoke(cli, ["webhooks", versions], catch_exceptions=False)
