"""Certificates renew in time, and trust never has a gap."""

from __future__ import annotations

import datetime as dt
import ssl

import msgspec
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from steersman.runtime.webhook.certificates import AUTHORITY_LIFE, SERVING_LIFE, Renewal, issue, plan_renewal, renew

NAMES = ["hook.shop.svc", "127.0.0.1"]
START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture(scope="module")
def bundle():
    return issue(NAMES, START)


def trusts(trust: bytes, serving: bytes) -> bool:
    leaf = x509.load_pem_x509_certificate(serving)
    for authority in x509.load_pem_x509_certificates(trust):
        try:
            leaf.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def test_a_new_bundle_is_kept(bundle):
    assert plan_renewal(bundle, NAMES, START) is Renewal.KEEP


def test_nothing_at_all_is_made(bundle):
    assert plan_renewal(None, NAMES, START) is Renewal.ALL


def test_a_serving_certificate_is_renewed_when_two_thirds_of_its_life_are_over(bundle):
    assert plan_renewal(bundle, NAMES, START + SERVING_LIFE * 2 / 3 - DAY) is Renewal.KEEP
    assert plan_renewal(bundle, NAMES, START + SERVING_LIFE * 2 / 3 + DAY) is Renewal.SERVING


def test_other_names_need_another_certificate(bundle):
    assert plan_renewal(bundle, ["elsewhere.svc"], START) is Renewal.SERVING


def test_a_worn_authority_is_replaced(bundle):
    assert plan_renewal(bundle, NAMES, START + AUTHORITY_LIFE * 2 / 3 + DAY) is Renewal.ALL


@pytest.mark.parametrize("field", ["authority", "authority_key", "serving", "serving_key"])
def test_material_that_cannot_be_read_is_replaced(bundle, field):
    broken = msgspec.structs.replace(bundle, **{field: b"junk"})
    assert plan_renewal(broken, NAMES, START) is Renewal.ALL


def test_a_key_that_does_not_belong_to_the_certificate_is_noticed(bundle):
    other = issue(NAMES, START)
    mixed = msgspec.structs.replace(bundle, serving_key=other.serving_key)
    assert plan_renewal(mixed, NAMES, START) is Renewal.SERVING


def test_renewing_the_serving_certificate_keeps_what_clients_trust(bundle):
    later = START + SERVING_LIFE * 2 / 3 + DAY
    renewed = renew(bundle, Renewal.SERVING, NAMES, later)
    assert renewed.serving != bundle.serving
    assert trusts(bundle.trust, renewed.serving)
    assert plan_renewal(renewed, NAMES, later) is Renewal.KEEP


def test_old_and_new_authority_are_trusted_together(bundle):
    later = START + AUTHORITY_LIFE * 2 / 3 + DAY
    renewed = renew(bundle, Renewal.ALL, NAMES, later)
    assert trusts(renewed.trust, renewed.serving)
    assert trusts(renewed.trust, bundle.serving)
    assert not trusts(bundle.trust, renewed.serving)


def test_an_authority_that_has_ended_is_no_longer_trusted(bundle):
    second = renew(bundle, Renewal.ALL, NAMES, START + AUTHORITY_LIFE * 2 / 3 + DAY)
    third = renew(second, Renewal.SERVING, NAMES, START + AUTHORITY_LIFE + DAY)
    assert not trusts(third.trust, bundle.serving)
    assert trusts(third.trust, third.serving)


def test_a_bundle_never_shows_its_keys(bundle):
    assert "PRIVATE" not in repr(bundle)
    assert "PRIVATE" not in f"{bundle}"


def test_python_serves_with_it(bundle, tmp_path):
    (tmp_path / "crt").write_bytes(bundle.serving)
    (tmp_path / "key").write_bytes(bundle.serving_key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "crt", tmp_path / "key")
