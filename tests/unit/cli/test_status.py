"""`steersman status`: what needs a person is said, and is exit code 3."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from steersman.cli.main import _run
from steersman.web.model import Check, Leadership, PageSnapshot, Vitals
from steersman.web.views import status_of

AT = datetime(2026, 11, 16, 12, tzinfo=UTC)
TROUBLE = "controller app: shop/web has failed 12 times: KeyError: [image]"


@pytest.fixture
def process():
    """A process that answers with these warnings; called, it says where."""
    servers = []

    def answering(*warnings: str, checks: tuple[Check, ...] = ()) -> str:
        who = Leadership(elected=False, leading=True)
        vitals = Vitals(version="1", started=AT, leadership=who, warnings=list(warnings), checks=list(checks))
        body = msgspec.json.encode(status_of(PageSnapshot(), vitals, [], AT))

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
    out = capsys.readouterr().out
    assert ", ready\nFailing: controller app\n  shop/web has failed 12 times: KeyError: [image]\n" in out
    assert "  runbook: /runbooks/SteersmanReconcileStuck on the page\n" in out


def test_a_process_that_is_not_ready_needs_a_person(process, capsys):
    where = process(checks=(Check(name="caches", problem="not synced"),))
    assert _run(["status", "--url", where]) == 3
    assert ", NOT READY\nNot ready: caches\n  not synced\n" in capsys.readouterr().out


def test_when_all_is_well_the_code_is_0(process, capsys):
    assert _run(["status", "--url", process()]) == 0
    assert capsys.readouterr().out.endswith(", ready\n")


def test_a_redirect_is_not_followed_and_the_token_stays_with_the_server_that_was_asked(process, capsys):
    seen = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.server.server_address[1], self.headers["Authorization"]))
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{elsewhere.server_port}/")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    asked, elsewhere = (HTTPServer(("127.0.0.1", 0), Redirecting) for _ in range(2))
    for server in (asked, elsewhere):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        assert _run(["status", "--url", f"http://127.0.0.1:{asked.server_port}", "--token", "t"]) == 1
        assert "answers 302" in capsys.readouterr().err
        assert seen == [(asked.server_port, "Bearer t")]
    finally:
        for server in (asked, elsewhere):
            server.shutdown()
            server.server_close()
