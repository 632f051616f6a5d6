"""Bad luck: Ctrl-C at any moment, a pipe that is closed early, a broken document among good ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow  # every test starts processes

# presses Ctrl-C when the n-th module is about to be loaded: every moment of a start is the same every time
AT_AN_IMPORT = """
import os, signal, sys
from steersman.cli.entry import main
left = int(sys.argv[1])
class Count:
    def find_spec(self, name, path, target=None):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Count())
main(sys.argv[2:])
"""


SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: prometheus, namespace: monitoring, labels: {app: prometheus}}
spec: {ports: [{port: 9090}]}
"""


def interrupted(moment, *arguments, cwd):
    command = [sys.executable, "-c", AT_AN_IMPORT, str(moment), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("moment", [1, 10, 40, 90, 150, 220])
@pytest.mark.parametrize(
    "arguments",
    [
        ("crds", "--operators", "dns"),
        ("plan", "-f", str(ROOT / "examples" / "hourglass.yaml")),
        ("apiserver", "--kubeconfig-out", "written"),
    ],
    ids=lambda words: words[0],
)
def test_ctrl_c_while_a_command_starts_ends_it_in_silence(arguments, moment, tmp_path):
    ended = interrupted(moment, *arguments, cwd=tmp_path)
    assert ended.stderr.strip() == ""
    assert ended.returncode in {130, -signal.SIGINT}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", range(1, 40, 6))
def test_an_interrupted_init_leaves_a_whole_project_or_none(moment, tmp_path):
    ended = interrupted(150 + moment, "init", "shop", cwd=tmp_path)
    assert "Traceback" not in ended.stderr
    if (tmp_path / "shop").exists():
        assert ended.returncode == 0, "half a project"
    assert [path.name for path in tmp_path.iterdir()] in ([], ["shop"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("crds", "--operators", "dns"),
        ("manifests", "--image", "example.org/steersman:1"),
        ("rbac", "--operators", "reload,dns,hourglass,toolset"),
        ("migrate", "from", "reloader", "--help"),
        ("completion", "bash"),
        ("graph", "-f", str(ROOT / "tests/e2e/docs/given/docs-gitops"), "-o", "svg"),
        ("toolset", "render", "-f", "services.yaml"),
    ],
    ids=lambda words: words[0],
)
def test_a_closed_pipe_is_not_an_error(arguments, tmp_path):
    (tmp_path / "services.yaml").write_text(SERVICE)
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-m", "steersman", *arguments]
    ended = subprocess.run(
        program,
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "HOME": ""},
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (0, "")


NOWHERE = """\
apiVersion: v1
kind: Config
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
users: [{name: nobody, user: {}}]
current-context: nowhere
"""


def test_a_process_whose_log_is_not_read_still_ends_when_asked_to(tmp_path):
    """The reader of its log goes away first: not a word of it can be said any more."""
    (tmp_path / "kubeconfig").write_text(NOWHERE)
    arguments = ["run", str(ROOT / "examples/webapp.py"), "--kubeconfig", "kubeconfig", "--listen", "127.0.0.1:0"]
    program = [sys.executable, "-m", "steersman", *arguments]
    with subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
        try:
            assert b"listening" in running.stderr.readline()
            running.stderr.close()
            running.send_signal(signal.SIGTERM)
            assert running.wait(timeout=30) == 0
        finally:
            running.kill()


def test_of_several_documents_the_broken_one_is_named_with_its_line_and_the_others_count(tmp_path):
    good = (ROOT / "tests/e2e/docs/given/docs-gitops/deploy/web.yaml").read_text()
    (tmp_path / "all.yaml").write_text(f"{good}---\nkind: [\n---\nkind: Deployment\nmetadata: {{name: half}}\n")
    program = [sys.executable, "-m", "steersman", "plan", "-f", "all.yaml"]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    at = len(good.splitlines()) + 3  # where a parser sees that the list has no end
    assert [line.rpartition(" (")[0] or line for line in ended.stderr.splitlines()] == [
        f"error: all.yaml:{at}: is not valid YAML",
        f"error: all.yaml:{at + 1}: apiVersion: is missing",
    ]
    assert "deployment/web" in ended.stdout
    assert ended.returncode == 3
