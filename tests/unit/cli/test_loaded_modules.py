"""What `steersman run` loads: memory that an operator holds for as long as it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Everything that `run` does up to the first request: settings, controllers, the manager with its listener and page.
_RUN = """
import sys
from steersman.cli import run

attach = run._with_page

def attach_and_stop(mode, manager):
    attach(mode, manager)
    print(*sorted({name.partition(".")[0] for name in sys.modules}))
    raise SystemExit

run._with_page = attach_and_stop
from steersman.cli.entry import main
main()
"""


@pytest.mark.parametrize("unused", ["cryptography", "rich", "opentelemetry"])
def test_an_operator_without_tls_on_a_log_for_machines_loads_nothing_it_does_not_use(unused, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}], "
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    options = ["run", "--operators", "reload", "--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0"]
    done = subprocess.run([sys.executable, "-c", _RUN, *options], capture_output=True, text=True, check=False)
    assert "aiohttp" in done.stdout.split(), done.stderr
    assert unused not in done.stdout.split()
