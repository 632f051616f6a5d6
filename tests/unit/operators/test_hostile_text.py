"""Any text in any annotation and any string of a spec: a plan or a named problem, never an exception, never a command.

Whoever may write an object chooses its strings. Each operator is given whole objects with hostile ones in the place of
what belongs there, through the same code that plans and renders in a cluster; what comes out is read back, and must say
no more than was meant. Pages and logs, which show all of this, are asked the same.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr

import msgspec
import pytest
import structlog
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from steersman.cli.log_format import configure_logging
from steersman.cli.output import console, harmless, print_fields, print_table
from steersman.errors import FormatError, PlanError
from steersman.kube.api.errors import BadResponse
from steersman.kube.client.codec import codec_for
from steersman.operators.dns.api import records, servers
from steersman.operators.dns.bind.statements import read_statements
from steersman.operators.dns.deploy.manifests import children_of
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import contribution_of
from steersman.operators.hourglass.api.config import HourglassOptions
from steersman.operators.hourglass.inspect.plan import plan_manifests
from steersman.operators.reload.api import annotations as reload_types
from steersman.operators.reload.api.config import ReloadOptions
from steersman.operators.reload.inspect.offline import OfflineInspection
from steersman.operators.reload.planning.plan import WorkloadPlan
from steersman.operators.reload.workloads.kinds import BUILT_IN
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection
from tests.support.hourglass import executor, performer
from tests.support.toolset.services import desired_from, parsed, service

NASTY = (
    "",
    " ",
    "\n",
    "a\nb: c",
    "\r\nlevel=error",
    "\x00",
    "\x1b[2J\x1b]0;x\x07",
    "\u202elive",
    "\ud7ff\uffff",
    "</script><script>alert(1)</script>",
    "'\" onload=x",
    '"; }; include "/etc/passwd"; zone "x" { //',
    "*/ # ; ${HOME} {{ .Values }} $(id) `id` %s %n",
    "../../../etc/passwd",
    "- !!python/object/apply:os.system [id]",
    "*anchor &anchor [",
    "9" * 400,
    "-1",
    "1e999",
    "NaN",
    "a," * 300,
    "configmap/" * 50,
    "* * * * * for 1h in Nowhere/None",
    "999999h",
    "x" * 5000,
)
TEXT = st.one_of(
    st.sampled_from(NASTY), st.text(max_size=60), st.text(alphabet="ab:/#,=;*{}\"'\n\\-0159hms%$ ", max_size=60)
)


def places(value, path=()):
    """Where an object has strings."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from places(part, (*path, number))
    elif isinstance(value, str):
        yield path


def replaced(value, path, text):
    """The object with another string in one place."""
    if not path:
        return text
    made = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = replaced(value[path[0]], path[1:], text)
    return made


@st.composite
def spoiled(draw, manifest, below=("spec",)):
    """An object with hostile strings in up to three places of its spec."""
    possible = [path for path in places(manifest) if path[: len(below)] == below]
    for path in draw(st.lists(st.sampled_from(possible), min_size=1, max_size=3, unique=True)):
        manifest = replaced(manifest, path, draw(TEXT))
    return manifest


# -------------------------------------------------------------------------------------------------------------- reload

MARKS = sorted(
    {value for value in vars(reload_types).values() if isinstance(value, str) and value.startswith("steersman.dev/")}
    | {
        "reloader.stakater.com/auto",
        "reloader.stakater.com/search",
        "configmap.reloader.stakater.com/reload",
        "secret.reloader.stakater.com/reload",
        "deployment.reloader.stakater.com/pause-period",
        "wave.pusher.com/update-on-config-change",
        "wave.pusher.com/extra-configmaps",
        "com.xing.deployment-restart",
        "com.xing.deployment-restart.applied-config-checksums",
        "shipshape.io/config-hash-app",
    }
)
ANNOTATIONS = st.dictionaries(st.sampled_from(MARKS), TEXT, max_size=5)


@given(ANNOTATIONS, ANNOTATIONS, ANNOTATIONS, st.lists(TEXT, min_size=3, max_size=3))
@example({"steersman.dev/reload": "auto", "steersman.dev/applied": "["}, {}, {}, ["", "", ""])
def test_reload_plans_whatever_annotations_say(workload, source, namespace, texts):
    inspection = OfflineInspection(ReloadOptions(), served=[rule.kind for rule in BUILT_IN])
    container = {
        "name": "main",
        "image": texts[0],
        "env": [{"name": texts[1], "value": texts[2]}],
        "envFrom": [{"configMapRef": {"name": "app"}}],
    }
    inspection.add({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "annotations": namespace}})
    meta = {"name": "app", "namespace": "ns", "annotations": source}
    inspection.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": texts[0]}})
    template = {"metadata": {"annotations": workload}, "spec": {"containers": [container]}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "annotations": {"steersman.dev/reload": "auto", **workload}},
        "spec": {"template": template},
    }
    inspection.add(body)
    for rule, found in inspection.workloads():
        plan = inspection.evaluate(rule, found, 1_800_000_000.0).plan
        assert isinstance(plan, WorkloadPlan)
        assert str(plan)


# ----------------------------------------------------------------------------------------------------------- hourglass

SCHEDULING = {
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "high",
    "runtimeClass": "gvisor",
}
PERFORMER = performer(
    "p",
    "ns",
    version="v1",
    executorRef="e",
    config={"environment": {"A": "b"}, "args": ["--x"], "command": ["run"]},
    resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    scheduling=SCHEDULING,
    imagePullSecrets=[{"name": "pull"}],
)
EXECUTOR = executor("e", "ns", config={"logLevel": "info"}, resources={"requests": {"cpu": "1"}})


@given(st.one_of(spoiled(PERFORMER), spoiled(EXECUTOR)))
def test_hourglass_plans_whatever_a_spec_says(manifest):
    for line in plan_manifests([manifest], HourglassOptions()):
        assert line.action in {"create", "invalid"}


# ----------------------------------------------------------------------------------------------------------------- dns

RECORDS = {
    records.ARecord: {"name": "www", "ipv4Addresses": ["192.0.2.1"]},
    records.AAAARecord: {"name": "www", "ipv6Addresses": ["2001:db8::1"]},
    records.CNAMERecord: {"name": "www", "target": "a.example."},
    records.TXTRecord: {"name": "www", "text": ["x", "y"]},
    records.MXRecord: {"name": "@", "priority": 1, "mailServer": "m.example."},
    records.NSRecord: {"name": "sub", "nameserver": "ns.example."},
    records.SRVRecord: {"name": "_x._tcp", "priority": 1, "weight": 1, "port": 1, "target": "a.example."},
    records.CAARecord: {"name": "@", "flags": 0, "tag": "issue", "value": "ca.example"},
}
CONFIG = {
    "allowQuery": ["any", "!192.0.2.1"],
    "allowTransfer": ["10.0.0.0/8"],
    "forwarders": ["192.0.2.9"],
    "listenOn": ["any"],
}
CLUSTER = {"spec": {"acls": {"inside": ["192.0.2.0/24"]}, "global": CONFIG, "version": "9.18"}}
INSTANCE = {"spec": {"clusterRef": "c", "role": "primary", "config": CONFIG, "version": "9.20"}}


@given(st.data(), st.sampled_from(sorted(RECORDS, key=lambda kind: kind.__name__)))
def test_dns_takes_whatever_a_record_says(data, kind):
    body = {"metadata": {"name": "r", "namespace": "ns"}, "spec": RECORDS[kind]}
    wire = msgspec.json.encode(data.draw(spoiled(body)))
    try:
        record = codec_for(kind).object(wire)
    except BadResponse:
        return  # our own schema refuses it, should it be stored at all: it is told, and left alone
    try:
        made = contribution_of(record, "record/r", name_of("example.org"))
    except PlanError:
        return  # which becomes a condition of the record
    assert made.source == "record/r"


@given(st.data())
def test_no_string_of_a_server_adds_a_statement_to_its_configuration(data):
    def made(instance, cluster):
        head = {"name": "i", "namespace": "ns", "uid": "u"}
        one = codec_for(servers.Bind9Instance).object(msgspec.json.encode({"metadata": head, **instance}))
        other = codec_for(servers.Bind9Cluster).object(
            msgspec.json.encode({"metadata": {**head, "name": "c"}, **cluster})
        )
        files = next(child for child in children_of(one, other) if child["kind"] == "ConfigMap")["data"]
        return {
            name: sorted({str(row[0]) for row in read_statements(text)})
            for name, text in files.items()
            if "conf" in name
        }

    instance, cluster = data.draw(spoiled(INSTANCE)), data.draw(spoiled(CLUSTER))
    try:
        found = made(instance, cluster)
    except (BadResponse, PlanError, FormatError):
        return
    assert found == made(INSTANCE, CLUSTER)


# ------------------------------------------------------------------------------------------------------------- toolset

ASKED = [
    "toolset",
    "toolset-type",
    "toolset-name",
    "toolset-endpoint",
    "toolset-port",
    "toolset-scheme",
    "toolset-path",
    "toolset-health-path",
    "toolset-health",
    "toolset-priority",
    "toolset-tenant",
    "toolset-verify-tls",
    "toolset-auth-env",
    "endpoints",
    "capabilities",
]
SETTINGS = ToolsetSection(health_check=HealthConfig(enabled=False), trusted_namespaces=["monitoring"]).settings()


@given(st.dictionaries(st.sampled_from(ASKED), TEXT, max_size=6), st.dictionaries(st.sampled_from(["app", "x"]), TEXT))
def test_toolset_renders_only_what_loads_and_only_under_its_own_keys(annotations, labels):
    asked = {"toolset": "true", "toolset-type": "prometheus", **annotations}
    found = desired_from([parsed(service("s", labels=labels, annotations=asked, ports=[9090]))], SETTINGS)
    for key, text in found.layout.base.items():
        loaded = yaml.safe_load(text)
        assert isinstance(loaded, dict), key
        if key == "custom_toolset.yaml":
            assert set(loaded) <= {"toolsets", "mcp_servers"}
        elif key != "index.yaml":
            assert set(loaded) <= {"toolset", "enabled", "config", "name"}


# ----------------------------------------------------------------------------------------------------- logs, terminals


@pytest.mark.parametrize("form", ["json", "text", "shipshape"])
@given(st.text(max_size=50) | st.sampled_from(NASTY))
def test_a_line_of_the_log_stays_one_line_and_commands_no_terminal(form, text):
    stream = io.StringIO()
    with redirect_stderr(stream):
        configure_logging(form=form)
        try:
            structlog.get_logger("x").info("told", message=text, name=text)
        finally:
            structlog.reset_defaults()
    written = stream.getvalue()
    assert written.endswith("\n")
    assert len(written[:-1].split("\n")) == 1
    assert "\x1b" not in written
    if form != "text":
        assert isinstance(json.loads(written), dict)


@given(st.text(max_size=50) | st.sampled_from(NASTY))
def test_a_table_shows_what_others_wrote_and_does_not_obey_it(text):
    stream = io.StringIO()
    to = console()
    to.file = stream
    print_table(to, ("name", "why"), [(text, text)])
    print_fields(to, [("why", text)])
    to.print(text)
    assert not set(stream.getvalue()) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E)}
    assert harmless(harmless(text)) == harmless(text)
