"""Exit codes: 0 fine, 1 error, 2 usage, 3 found something. Scripts and pipelines branch on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman.cli.main import _run

WEBAPP = str(Path(__file__).parents[3] / "examples" / "webapp.py")
SOURCE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app, namespace: shop}\ndata: {mode: a}\n"
RESTARTS = f"""\
{SOURCE}---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop, annotations: {{steersman.dev/reload: auto}}}}
spec: {{template: {{spec: {{containers: [{{name: main, envFrom: [{{configMapRef: {{name: app}}}}]}}]}}}}}}
"""
PERFORMER = """\
apiVersion: hourglass.eigenlayer.io/v1alpha1
kind: Performer
metadata: {name: p, namespace: ns}
spec: {avsAddress: "0x1", image: "avs:1", config: {grpcPort: %d}}
"""
FILES = {
    "quiet.yaml": SOURCE,
    "restarts.yaml": RESTARTS,
    "broken.yaml": "- a",
    "performer.yaml": PERFORMER % 9090,
    "wrong-performer.yaml": PERFORMER % 0,
    "overrides.yaml": "{}",
    "wrong-overrides.yaml": "[1]",
    "steersman.yaml": "listen: [1]",
}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A folder with these files, and no kubeconfig of the person who runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("crds --operators reload,toolset,hourglass,dns", 0),
        ("rbac --operators reload", 0),
        ("manifests --operators reload", 0),
        (f"crds {WEBAPP}", 0),
        ("plan -f quiet.yaml", 0),
        ("toolset validate overrides.yaml", 0),
        ("plan -f broken.yaml", 1),
        ("plan -f none.yaml", 1),
        ("crds none.py", 1),
        ("hourglass plan -f wrong-performer.yaml", 1),
        (f"run {WEBAPP} --config steersman.yaml", 1),
        ("why deploy/web", 1),
        ("status --url http://127.0.0.1:1", 1),
        ("migrate-storage sites.example.org", 1),
        ("migrate-storage", 2),
        ("migrate-storage sites.example.org -n shop", 2),
        ("pln", 2),
        ("plan --nothing", 2),
        ("plan -f quiet.yaml -o xml", 2),
        ("run", 2),
        ("demo --quiet-period soon", 2),
        ("plan -f restarts.yaml", 3),
        ("hourglass plan -f performer.yaml", 3),
        ("toolset validate wrong-overrides.yaml", 3),
    ],
)
def test_a_command_ends_with_the_code_that_the_documentation_names(command, code):
    assert _run(command.split()) == code
