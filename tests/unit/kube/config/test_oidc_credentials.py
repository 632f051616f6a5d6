from __future__ import annotations

import asyncio
import base64
import json
import ssl
from urllib.parse import parse_qs

import pytest

from steersman.kube.api.errors import CredentialsFailed
from steersman.kube.config.config import Config, OIDCProvider
from steersman.kube.config.oidc import OIDCCredentials
from tests.support.wire_server import HANG_UP, reply

SECRET = "s3cr3t-value"


def jwt(expiry):
    payload = base64.urlsafe_b64encode(json.dumps({"exp": expiry}).encode()).rstrip(b"=").decode()
    return f"h.{payload}.{SECRET}"


class Issuer:
    """Answers discovery and refreshes; `tokens` are what refreshes give."""

    def __init__(self, tokens, *, accepts="header"):
        self.tokens = tokens
        self.accepts = accepts
        self.forms = []
        self.url = ""

    async def __call__(self, received, writer):
        if received.path == "/.well-known/openid-configuration":
            return reply(200, {"token_endpoint": f"{self.url}/token"})
        form = {key: value[0] for key, value in parse_qs(received.body.decode()).items()}
        if ("authorization" in received.headers) != (self.accepts == "header"):
            return reply(401, {"error": "invalid_client", "secret": SECRET})
        self.forms.append(form)
        answer = self.tokens.pop(0)
        return answer if isinstance(answer, bytes) else reply(200, answer)


@pytest.fixture
def provider(wire, clock):
    async def make(answer, *, tls=None, **options):
        server = await wire(answer, tls=tls)
        if isinstance(answer, Issuer):
            answer.url = server.url
        settings = {"issuer": server.url, "client_id": "me", "client_secret": SECRET, "refresh_token": "r1", **options}
        config = Config(server="https://api", source="my.kubeconfig")
        return OIDCCredentials(OIDCProvider(**settings), config, clock=clock)

    return make


async def test_a_valid_token_is_used_without_asking_anybody(provider, clock):
    token = jwt(clock.time() + 60)
    found = await provider(HANG_UP, id_token=token)
    assert await found.headers() == {"Authorization": f"Bearer {token}"}
    assert await found.certificate() is None


async def test_a_token_about_to_expire_is_replaced(provider, clock):
    fresh = jwt(clock.time() + 3600)
    issuer = Issuer([{"id_token": fresh}])
    found = await provider(issuer, id_token=jwt(clock.time() + 9))
    assert await found.headers() == {"Authorization": f"Bearer {fresh}"}
    assert issuer.forms == [{"grant_type": "refresh_token", "refresh_token": "r1"}]


async def test_those_who_wait_together_share_one_refresh(provider, clock):
    issuer = Issuer([{"id_token": jwt(clock.time() + 3600)}])
    found = await provider(issuer)
    await asyncio.gather(*(found.headers() for _ in range(5)))
    assert len(issuer.forms) == 1


async def test_a_new_refresh_token_takes_the_place_of_the_old(provider, clock):
    issuer = Issuer(
        [{"id_token": jwt(clock.time() + 60), "refresh_token": "r2"}, {"id_token": jwt(clock.time() + 600)}]
    )
    found = await provider(issuer)
    await found.headers()
    await clock.advance(55)
    await found.headers()
    assert [form["refresh_token"] for form in issuer.forms] == ["r1", "r2"]


async def test_a_refused_token_is_replaced(provider, clock):
    fresh = jwt(clock.time() + 600)
    found = await provider(Issuer([{"id_token": fresh}]), id_token=jwt(clock.time() + 3600))
    used = await found.headers()
    assert found.invalidate(used)
    assert await found.headers() == {"Authorization": f"Bearer {fresh}"}


async def test_an_issuer_that_wants_the_client_in_the_form_gets_it_there(provider, clock):
    issuer = Issuer([{"id_token": jwt(clock.time() + 600)}], accepts="form")
    await (await provider(issuer)).headers()
    assert issuer.forms[0]["client_id"] == "me"


async def test_the_issuers_own_ca_is_trusted(provider, clock, authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    issuer = Issuer([{"id_token": jwt(clock.time() + 600)}])
    found = await provider(issuer, tls=context, ca=authority.cert_pem.bytes())
    await found.headers()
    distrusting = await provider(Issuer([]), tls=context)
    with pytest.raises(CredentialsFailed, match=r"cannot be reached \(ClientConnectorCertificateError\)"):
        await distrusting.headers()


BROKEN = {
    "discovery fails": (reply(500), "discovery answered with HTTP status 500"),
    "discovery is HTML": (reply(200, b"<html>"), "answered something that is not JSON"),
    "discovery has no endpoint": (reply(200, {}), "no token_endpoint that a refresh token may be sent to"),
    "discovery leads elsewhere": (reply(200, {"token_endpoint": "ftp://x"}), "no token_endpoint that a refresh"),
    "it hangs up": (HANG_UP, "the issuer cannot be reached"),
    "it refuses": (Issuer([reply(400, {"error": SECRET})]), r"refused the refresh token \(HTTP status 400, then 401\)"),
    "it gives no id token": (Issuer([{"access_token": SECRET}]), "gave no id_token: was the scope openid asked for"),
    "it gives a strange token": (Issuer([{"id_token": SECRET}]), "not a JSON Web Token with an expiry"),
    "it answers junk": (Issuer([reply(200, SECRET.encode())]), "answered something that is not JSON"),
}


@pytest.mark.parametrize(("answer", "message"), BROKEN.values(), ids=BROKEN)
async def test_an_issuer_that_is_broken_is_named_and_no_token_is_shown(provider, answer, message):
    found = await provider(answer)
    with pytest.raises(CredentialsFailed, match=message) as raised:
        await found.headers()
    text = str(raised.value)
    assert text.startswith("OpenID Connect login at http://127.0.0.1:")
    assert text.endswith("log in again (my.kubeconfig)")
    assert SECRET not in text + repr(raised.value) + repr(raised.value.args)


async def test_an_expired_token_without_a_refresh_token_says_so(provider, clock):
    found = await provider(HANG_UP, id_token=jwt(clock.time() - 1), refresh_token="")
    with pytest.raises(CredentialsFailed, match="has expired and the user has no refresh-token; log in again"):
        await found.headers()


async def test_an_issuer_that_hangs_is_given_up(wire, clock):
    async def never(received, writer):
        await asyncio.Event().wait()
        return HANG_UP

    server = await wire(never)
    provider = OIDCProvider(issuer=server.url, client_id="me", refresh_token="r")
    found = OIDCCredentials(provider, Config(server="https://api"), clock=clock)
    task = asyncio.create_task(found.headers())
    await server.arrived.wait()
    await clock.advance(30)
    with pytest.raises(CredentialsFailed, match="no answer within 30 seconds"):
        await task
