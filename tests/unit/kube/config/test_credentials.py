from __future__ import annotations

import base64
import datetime as dt
import json

import pytest
import trustme

from steersman.kube.api.errors import CredentialsFailed
from steersman.kube.config.config import AuthInfo, Config, ExecConfig
from steersman.kube.config.credentials import Anonymous, credentials_for, jwt_expiry
from steersman.kube.config.exec_plugin import ExecCredentials

SECRET = "s3cr3t-value"
PLUGIN = ExecConfig(api_version="client.authentication.k8s.io/v1", command="login")


def jwt(**claims):
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({}, claims)]
    return ".".join([*parts, SECRET])


def credentials(clock, **user):
    return credentials_for(Config(server="https://x", auth=AuthInfo(**user), source="my.kubeconfig"), clock=clock)


async def test_no_receiver_gets_no_message(clock):
    found = credentials(clock)
    assert (await found.headers(), await found.certificate(), found.invalidate({})) == ({}, None, False)
    assert found.hint() == "no credentials were sent: give the context a user"


async def test_a_token_is_sent_as_it_is(clock):
    assert await credentials(clock, token=SECRET).headers() == {"Authorization": f"Bearer {SECRET}"}


async def test_name_and_password_are_sent_encoded(clock):
    expected = base64.b64encode(b"jane:pa:ss").decode()
    assert await credentials(clock, username="jane", password="pa:ss").headers() == {
        "Authorization": f"Basic {expected}"
    }


async def test_a_token_file_is_sent_without_its_newline_and_followed(clock, tmp_path):
    (tmp_path / "t").write_text("one\n")
    found = credentials(clock, token_file=tmp_path / "t")
    assert await found.headers() == {"Authorization": "Bearer one"}
    assert await found.headers() is await found.headers()
    (tmp_path / "t").write_text("two\n")
    await clock.advance(1)
    assert await found.headers() == {"Authorization": "Bearer two"}


async def test_a_token_file_beats_the_token_beside_it_once_it_can_be_read(clock, tmp_path):
    found = credentials(clock, token="inline", token_file=tmp_path / "t")
    assert await found.headers() == {"Authorization": "Bearer inline"}
    (tmp_path / "t").write_text("file")
    await clock.advance(1)
    assert await found.headers() == {"Authorization": "Bearer file"}


async def test_an_empty_token_file_is_named(clock, tmp_path):
    (tmp_path / "t").write_text(" \n")
    with pytest.raises(CredentialsFailed, match=f"{tmp_path / 't'} holds no token"):
        await credentials(clock, token_file=tmp_path / "t").headers()


@pytest.mark.parametrize("token", ["a\nb", "a\rX-Admin: 1", "tökén"])
async def test_a_token_that_would_break_the_header_is_refused(clock, tmp_path, token):
    (tmp_path / "t").write_bytes(token.encode())
    with pytest.raises(CredentialsFailed, match="characters that a token cannot have"):
        await credentials(clock, token_file=tmp_path / "t").headers()


async def test_a_token_beats_a_plugin_as_with_kubectl(clock):
    assert not isinstance(credentials(clock, token="t", exec_plugin=PLUGIN), ExecCredentials)
    assert isinstance(credentials(clock, exec_plugin=PLUGIN), ExecCredentials)


async def test_a_certificate_and_a_token_are_both_shown(clock):
    found = credentials(clock, token="t", client_certificate=b"c", client_key=b"k")
    assert await found.headers() == {"Authorization": "Bearer t"}
    assert await found.certificate() == (b"c", b"k")


async def test_the_same_certificate_is_the_same_object(clock):
    found = credentials(clock, client_certificate=b"c", client_key=b"k")
    assert await found.certificate() is await found.certificate()


@pytest.mark.parametrize(
    ("user", "again"),
    [
        ({"token": "t"}, False),
        ({"username": "u", "password": "p"}, False),
        ({"client_certificate": b"c", "client_key": b"k"}, False),
        ({"exec_plugin": PLUGIN}, True),
    ],
)
async def test_only_credentials_that_can_change_are_worth_another_try(clock, user, again):
    assert credentials(clock, **user).invalidate({}) is again


class TestWaysOut:
    def test_an_expired_token_says_since_when(self, clock):
        expired = jwt(exp=clock.time() - 7200)
        assert "the token expired 2 hours ago: get a new one" in credentials(clock, token=expired).hint()

    def test_a_token_of_unknown_age_claims_nothing(self, clock):
        assert "is wrong or has expired" in credentials(clock, token="opaque").hint()

    async def test_a_certificate_says_how_long_it_is_valid(self, clock):
        end = dt.datetime(2020, 1, 2, 3, 4, tzinfo=dt.UTC)
        issued = trustme.CA().issue_cert("jane.example", not_after=end)
        found = credentials(clock, client_certificate=issued.cert_chain_pems[0].bytes(), client_key=b"k")
        await found.certificate()
        assert "it is valid until 2020-01-02 03:04 UTC" in found.hint()

    def test_a_plugin_is_to_be_run_by_hand(self, clock):
        assert credentials(clock, exec_plugin=PLUGIN).hint().startswith("what login gave was refused: run it by hand")

    @pytest.mark.parametrize(
        "user", [{"token": jwt(exp=1)}, {"username": "u", "password": SECRET}, {"token": SECRET}, {}]
    )
    def test_no_way_out_shows_a_secret(self, clock, user):
        assert SECRET not in credentials(clock, **user).hint()


@pytest.mark.parametrize(
    ("token", "expiry"),
    [
        (jwt(exp=12), 12.0),
        (jwt(exp=12.5), 12.5),
        (jwt(), None),
        (jwt(exp="x"), None),
        ("a.b", None),
        ("a.!!!.c", None),
        ("a.bm9wZQ.c", None),
        ("", None),
    ],
)
def test_the_end_of_a_token_is_read_if_it_has_one(token, expiry):
    assert jwt_expiry(token) == expiry


def test_anonymous_is_what_an_empty_user_is(clock):
    assert type(credentials(clock)) is Anonymous
