from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from steersman.certificates import Authority, Signed, load_pair, new_key


@pytest.fixture(scope="module")
def authority():
    return Authority("test")


async def handshake(tmp_path, authority, server: Signed, *, name: str, client: Signed | None = None) -> tuple:
    """Connect once; return the subject of the client's certificate as the server saw it."""

    def load(context: ssl.SSLContext, signed: Signed, file: str) -> None:
        path = tmp_path / file
        path.write_bytes(signed.certificate + signed.key)
        context.load_cert_chain(path)

    listening = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem.decode())
    listening.verify_mode = ssl.CERT_OPTIONAL
    load(listening, server, "server.pem")
    calling = ssl.create_default_context(cadata=authority.pem.decode())
    if client is not None:
        load(calling, client, "client.pem")
    seen = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        seen.set_result(writer.get_extra_info("peercert"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=listening) as listener:
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=calling, server_hostname=name)
        await reader.read()
        writer.close()
    return (await seen or {}).get("subject", ())


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_server_is_trusted_under_each_of_its_names(authority, tmp_path, name):
    await handshake(tmp_path, authority, authority.server("127.0.0.1", "localhost"), name=name)


async def test_a_server_is_not_trusted_under_another_name(authority, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await handshake(tmp_path, authority, authority.server("localhost"), name="example.org")


async def test_a_server_of_another_authority_is_not_trusted(authority, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        await handshake(tmp_path, authority, Authority("other").server("localhost"), name="localhost")


async def test_a_client_is_known_by_user_and_groups(authority, tmp_path):
    client = authority.client("alice", ["system:masters", "team-a"])
    subject = await handshake(tmp_path, authority, authority.server("localhost"), name="localhost", client=client)
    assert [pair for (pair,) in subject] == [
        ("organizationName", "system:masters"),
        ("organizationName", "team-a"),
        ("commonName", "alice"),
    ]


def test_a_certificate_holds_from_a_little_before_now_for_as_long_as_was_asked():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    signed = Authority("test", now=now).client("alice", now=now, life=timedelta(days=7))
    certificate = x509.load_pem_x509_certificate(signed.certificate)
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc == now + timedelta(days=7)
    assert certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "test"


def test_two_keys_are_never_the_same():
    assert new_key() != new_key()
    load_pem_private_key(new_key(), None)


async def test_an_authority_that_was_put_away_signs_as_before(authority, tmp_path):
    again = Authority.load(authority.pem, authority.key)
    await handshake(tmp_path, authority, again.server("localhost"), name="localhost")


def test_what_is_signed_never_shows_its_key(authority):
    assert "PRIVATE" not in repr(authority.server("localhost"))


def meet(server: ssl.SSLContext, authority: Authority) -> str | None:
    """Shake hands with what `server` serves; which TLS came of it."""
    client = ssl.create_default_context(cadata=authority.pem.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].version()


def test_a_pair_that_does_not_fit_leaves_the_one_in_use_alone(authority):
    one, other = authority.server("localhost"), authority.server("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, one)
    with pytest.raises(ssl.SSLError):
        load_pair(context, Signed(certificate=other.certificate, key=one.key))
    assert meet(context, authority) == "TLSv1.3"
    load_pair(context, other)
    assert meet(context, authority) == "TLSv1.3"
