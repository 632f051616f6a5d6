"""Where this program talks to others and listens: every place is known, with what guards it.

A new one fails here. It either goes through the guard (`runtime.http.outbound`, `Client`, `ask_guard`) and the hardened
server (`runtime.http.server`), or it changes nothing and carries no credential, and its line says so.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steersman

SOURCE = Path(steersman.__file__).parent
ELSEWHERE = ("apiserver/", "testing/", "simulate/", "cli/")  # servers for tests, and commands that a person runs

CONNECTING = {
    "kube/transport/transport.py": "the API server; writes pass GuardedTransport",
    "kube/config/oidc.py": "the issuer of the kubeconfig",
    "runtime/http/outbound.py": "asks the guard before every attempt",
    "operators/dns/bind/http_driver.py": "asks the guard for everything but GET",
    "operators/dns/bind/rndc_driver.py": "a datagram socket that sends nothing, to learn the own address",
    "operators/dns/sidecar/local_named.py": "reads named's statistics on this machine",
    "operators/dns/wire/client.py": "asks the guard before every update",
    "operators/dns/wire/rndc.py": "asks the guard for everything but questions",
    "operators/toolset/discovery/probe.py": "GET without credentials",
}
LISTENING = {
    "kube/client/pod_streams.py": "a port of 127.0.0.1 while a caller forwards it; every message asks the guard",
    "runtime/http/server.py": "the hardened server",
    "operators/dns/wire/axfr_server.py": "signed DNS queries, bounded connections, closed with its zone",
}
RUNNING = {"kube/config/exec_plugin.py": "the credential plugin of the kubeconfig"}


@pytest.mark.parametrize(
    ("means", "known"),
    [
        (r"ClientSession\(|open_connection\(|create_connection\(|urlopen\(|socket\.SOCK_DGRAM\)", CONNECTING),
        (
            r"AppRunner\(|TCPSite\(|UnixSite\(|run_app\(|start_server\(|create_server\(|connect_accepted_socket\(",
            LISTENING,
        ),
        (r"create_subprocess|subprocess\.(run|Popen|check|call)|os\.(system|exec|spawn|popen)", RUNNING),
    ],
    ids=["connects", "listens", "runs programs"],
)
def test_every_way_out_and_in_is_known_with_what_guards_it(means, known):
    found = {
        name
        for path in SOURCE.rglob("*.py")
        if not (name := path.relative_to(SOURCE).as_posix()).startswith(ELSEWHERE)
        and re.search(means, _code(path.read_text()))
    }
    assert found == known.keys()


def _code(text: str) -> str:
    """Without docstrings, whose samples are not run, and without what is said in backquotes."""
    return re.sub(r'"""(?:.|\n)*?"""|`[^`\n]*`', "", text)
