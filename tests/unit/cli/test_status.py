"""`steersman status`: what needs a person is said, and is exit code 3."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from steersman.cli.main import _run
from steersman.web.model import Leadership, Scene, Vitals
from steersman.web.views import status_of

AT = datetime(2026, 11, 16, 12, tzinfo=UTC)
TROUBLE = "controller app: shop/web has failed 12 times: KeyError: [image]"


@pytest.fixture
def process():
    """A process that answers with these warnings; called, it says where."""
    servers = []

    def answering(*warnings: str) -> str:
        who = Leadership(elected=False, leading=True)
        vitals = Vitals(version="1", started=AT, leadership=who, warnings=list(warnings))
        body = msgspec.json.encode(status_of(Scene(), vitals, {}, AT))

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


def test_keys_in_trouble_are_shown_and_need_a_person(process, capsys):
    assert _run(["status", "--url", process(TROUBLE)]) == 3
    assert f", ready\n  {TROUBLE}\n" in capsys.readouterr().out


def test_when_all_is_well_the_code_is_0(process, capsys):
    assert _run(["status", "--url", process()]) == 0
    assert capsys.readouterr().out.endswith(", ready\n")
