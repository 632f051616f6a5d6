from __future__ import annotations

import datetime as dt
import ssl

import pytest
import trustme

from steersman.errors import ConfigError
from steersman.kube.api.errors import ConnectionFailed, CredentialsFailed
from steersman.kube.config.config import AuthInfo, Config
from steersman.kube.transport.stream import _BulkReceiver
from tests.support.wire_server import END, STREAM, chunk, reply

OK = reply(200, {})


def pem(authority):
    return authority.cert_pem.bytes()


def server_context(authority, *names, client_ca=None, **options):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or ("127.0.0.1",)), **options).configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def config(server, **options):
    return Config(server=server.url, cluster="prod", source="my.kubeconfig", **options)


async def test_a_server_with_the_right_ca_is_trusted(wire, transport, authority):
    server = await wire(OK, tls=server_context(authority))
    answer = await transport(server, config=config(server, ca=pem(authority))).request("GET", "/")
    assert answer.status == 200


async def test_a_stream_of_megabytes_comes_whole_and_in_order(wire, transport, authority, monkeypatch):
    reads: list[int] = []
    received = _BulkReceiver.buffer_updated
    monkeypatch.setattr(
        _BulkReceiver, "buffer_updated", lambda self, nbytes: (reads.append(nbytes), received(self, nbytes))[1]
    )
    lines = [b"%07d " % number + b"x" * 1500 for number in range(2_000)]
    events = b"".join(chunk(line + b"\n") for line in lines)
    server = await wire(STREAM + events + END, tls=server_context(authority))
    link = transport(server, config=config(server, ca=pem(authority)))
    async with link.stream("/watch") as stream:
        assert [line async for line in stream] == lines
    assert max(reads) > 2**14  # more than one TLS record at once


async def test_a_wrong_ca_is_named_and_the_kubeconfig_is_named(wire, transport, authority, hasty):
    server = await wire(OK, tls=server_context(trustme.CA()))
    with pytest.raises(ConnectionFailed) as raised:
        await transport(server, config=config(server, ca=pem(authority))).request("GET", "/x")
    text = str(raised.value)
    assert f"the certificate of {server.url} does not match the CA in cluster 'prod' of my.kubeconfig" in text
    assert "update certificate-authority" in text
    assert text.endswith(f"(GET {server.url}/x)")
    assert hasty.slept == []  # waiting does not help


async def test_without_a_ca_the_systems_are_used(wire, transport, authority):
    server = await wire(OK, tls=server_context(authority))
    with pytest.raises(ConnectionFailed, match="does not match the system's CAs in cluster"):
        await transport(server, config=config(server)).request("GET", "/")


async def test_a_certificate_for_another_name_says_how_to_name_it(wire, transport, authority):
    server = await wire(OK, tls=server_context(authority, "kubernetes.default"))
    with pytest.raises(ConnectionFailed, match="is for another name: correct server or set tls-server-name"):
        await transport(server, config=config(server, ca=pem(authority))).request("GET", "/")


async def test_tls_server_name_is_what_the_certificate_must_be_for(wire, transport, authority):
    server = await wire(OK, tls=server_context(authority, "kubernetes.default"))
    link = transport(server, config=config(server, ca=pem(authority), tls_server_name="kubernetes.default"))
    assert (await link.request("GET", "/")).status == 200


async def test_an_expired_certificate_is_named(wire, transport, authority):
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    server = await wire(OK, tls=server_context(authority, not_after=past))
    with pytest.raises(ConnectionFailed, match=r"is not valid now \(certificate has expired\)"):
        await transport(server, config=config(server, ca=pem(authority))).request("GET", "/")


async def test_a_certificate_is_not_verified_when_configured_so(wire, transport):
    server = await wire(OK, tls=server_context(trustme.CA(), "elsewhere"))
    link = transport(server, config=config(server, insecure_skip_tls_verify=True))
    assert (await link.request("GET", "/")).status == 200


async def test_a_server_that_has_no_tls_is_reported_as_plain(wire, transport, authority):
    server = await wire(OK)
    plain = Config(server=server.url.replace("http:", "https:"), ca=pem(authority), source="my.kubeconfig")
    with pytest.raises(ConnectionFailed, match=r"does not speak TLS: is it http:// and not https:// in my.kubeconfig"):
        await transport(server, config=plain).request("GET", "/", retry=False)


async def test_a_ca_file_that_is_replaced_is_read_again_before_giving_up(wire, transport, authority, tmp_path):
    path = tmp_path / "ca.crt"
    path.write_bytes(pem(trustme.CA()))
    server = await wire(OK, tls=server_context(authority))
    link = transport(server, config=config(server, ca=path))
    path.write_bytes(pem(authority))
    assert (await link.request("POST", "/")).status == 200  # the clock has not moved, so the old one was tried first


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe"])
def test_a_ca_that_is_not_a_certificate_is_reported_at_once(transport, content):
    wrong = Config(server="https://x", ca=content, cluster="prod", source="my.kubeconfig")
    with pytest.raises(ConfigError, match=r"my.kubeconfig: clusters.prod.certificate-authority: holds no PEM cert"):
        transport("", config=wrong)


class TestClientCertificates:
    @pytest.fixture
    def seen(self):
        return []

    @pytest.fixture
    def answer(self, seen):
        async def answer(received, writer):
            certificate = writer.get_extra_info("peercert")
            seen.append(certificate["subject"][1][0][1] if certificate else None)
            return OK

        return answer

    @pytest.fixture
    def clients(self):
        return trustme.CA()

    def issue(self, clients, name):
        issued = clients.issue_cert(f"{name}.example", organization_name="people", organization_unit_name=name)
        return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()

    async def test_an_inline_certificate_is_shown(self, wire, transport, authority, clients, answer, seen):
        certificate, key = self.issue(clients, "jane")
        server = await wire(answer, tls=server_context(authority, client_ca=clients))
        user = AuthInfo(client_certificate=certificate, client_key=key)
        await transport(server, config=config(server, ca=pem(authority), auth=user)).request("GET", "/")
        assert seen == ["jane"]

    async def test_certificate_files_that_are_replaced_are_shown_from_then_on(
        self, wire, transport, authority, clients, answer, seen, tmp_path, clock
    ):
        def store(name):
            certificate, key = self.issue(clients, name)
            (tmp_path / "crt").write_bytes(certificate)
            (tmp_path / "key").write_bytes(key)

        store("jane")
        server = await wire(answer, tls=server_context(authority, client_ca=clients))
        user = AuthInfo(client_certificate=tmp_path / "crt", client_key=tmp_path / "key")
        link = transport(server, config=config(server, ca=pem(authority), auth=user), clock=clock)
        await link.request("GET", "/")
        store("joan")
        await clock.advance(1)
        await link.request("GET", "/")
        assert seen == ["jane", "joan"]

    async def test_a_half_replaced_pair_leaves_the_old_one_in_use(
        self, wire, transport, authority, clients, answer, seen, tmp_path, clock
    ):
        certificate, key = self.issue(clients, "jane")
        (tmp_path / "crt").write_bytes(certificate)
        (tmp_path / "key").write_bytes(key)
        server = await wire(answer, tls=server_context(authority, client_ca=clients))
        user = AuthInfo(client_certificate=tmp_path / "crt", client_key=tmp_path / "key")
        link = transport(server, config=config(server, ca=pem(authority), auth=user), clock=clock)
        await link.request("GET", "/")
        (tmp_path / "crt").write_bytes(self.issue(clients, "joan")[0])
        await clock.advance(1)
        await link.request("GET", "/")
        assert seen == ["jane"] * 2

    async def test_a_pair_that_does_not_belong_together_is_named(self, wire, transport, authority, clients):
        server = await wire(OK, tls=server_context(authority))
        user = AuthInfo(
            name="jane", client_certificate=self.issue(clients, "jane")[0], client_key=self.issue(clients, "joan")[1]
        )
        link = transport(server, config=config(server, ca=pem(authority), auth=user))
        with pytest.raises(
            CredentialsFailed, match=r"my.kubeconfig: users.jane.client-certificate: .* belong together"
        ):
            await link.request("GET", "/")

    async def test_an_encrypted_key_is_refused_and_no_password_is_asked(self, wire, transport, authority, clients):
        from cryptography.hazmat.primitives import serialization as s

        certificate, key = self.issue(clients, "jane")
        locked = s.load_pem_private_key(key, None).private_bytes(
            s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"pw")
        )
        server = await wire(OK, tls=server_context(authority))
        user = AuthInfo(name="jane", client_certificate=certificate, client_key=locked)
        with pytest.raises(CredentialsFailed, match=r"users.jane.client-certificate"):
            await transport(server, config=config(server, ca=pem(authority), auth=user)).request("GET", "/")


def test_a_ca_file_that_is_not_there_is_reported_at_once(tmp_path, transport):
    missing = Config(server="https://x", ca=tmp_path / "gone", cluster="prod", source="my.kubeconfig")
    with pytest.raises(ConfigError, match=r"my.kubeconfig: clusters.prod.certificate-authority: cannot read .*gone"):
        transport("", config=missing)
