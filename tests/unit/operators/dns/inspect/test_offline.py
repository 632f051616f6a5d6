"""What the commands of the dns operator say about zones."""

from __future__ import annotations

import pytest
import yaml

from steersman.errors import ConfigError
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.inspect.offline import ZoneInspection, lagging, lay_over

WITHOUT_KEY = """
apiVersion: bindy.firestoned.io/v1beta1
kind: Bind9Instance
metadata: {name: ns1, labels: {dns: primary}}
spec:
  clusterRef: ""
  role: primary
  endpoints: [{address: 192.0.2.53, dnsPort: 53, rndcPort: 953}]
  rndcKey: {secretRef: {name: ns1-key}}
---
apiVersion: bindy.firestoned.io/v1beta1
kind: DNSZone
metadata: {name: example-org}
spec:
  zoneName: example.org
  ttl: 300
  soaRecord:
    {primaryNs: ns1.example.org., adminEmail: a@example.org, refresh: 60, retry: 60, expire: 60, negativeTtl: 60}
  nameServers: [{hostname: ns1.example.org., ipv4Address: 192.0.2.53}]
  recordsFrom: [{selector: {matchLabels: {zone: example-org}}}]
  bind9InstancesFrom: [{selector: {matchLabels: {dns: primary}}}]
---
apiVersion: bindy.firestoned.io/v1beta1
kind: ARecord
metadata: {name: www, labels: {zone: example-org}}
spec: {name: www, ipv4Addresses: [192.0.2.80]}
"""


async def test_a_name_in_a_zone_that_cannot_be_planned_is_reported_with_its_reason():
    objects = {}
    assert lay_over(objects, yaml.safe_load_all(WITHOUT_KEY), "dns") == []
    survey = ZoneInspection(objects)
    try:
        (reason,) = await survey.reasons("www.example.org")
        elsewhere = await survey.reasons("www.example.net")
    finally:
        survey.close()
    assert reason.source == "example-org"
    assert "ns1-key" in reason.message
    assert elsewhere == []


def test_a_serial_that_went_round_is_newer_than_one_that_did_not():
    assert [server for server, _ in lagging({"a": 2**32 - 2, "b": 3, "c": 3})] == ["a"]
    assert [server for server, _ in lagging({"a": 7, "b": 3})] == ["b"]
    assert lagging({"a": 2**32 - 2}) == lagging({}) == []


async def test_a_zone_that_does_not_exist_is_an_error_and_not_a_healthy_zone():
    objects = {}
    lay_over(objects, yaml.safe_load_all(WITHOUT_KEY), "dns")
    survey = ZoneInspection(objects)
    try:
        assert [zone.name for zone in survey.zones(["Example.ORG."])] == ["example-org"]
        with pytest.raises(ConfigError, match=r'no DNSZone is called "exmple.org" \(did you mean "example.org"'):
            survey.zones(["exmple.org", "example.org"])
    finally:
        survey.close()


async def test_zones_are_chosen_by_their_labels():
    objects = {}
    lay_over(objects, yaml.safe_load_all(WITHOUT_KEY), "dns")
    for zone in objects[DNSZone]:
        zone.metadata.labels = {"tier": "public"}
    survey = ZoneInspection(objects)
    try:
        assert [zone.name for zone in survey.zones(selector="tier in (public)")] == ["example-org"]
        assert survey.zones(["example.org"], "tier!=public") == []
    finally:
        survey.close()


KEY = """
apiVersion: v1
kind: Secret
metadata: {name: ns1-key}
stringData: {key-name: operator, algorithm: hmac-sha256, secret: c2VjcmV0c2VjcmV0c2VjcmV0}
"""
DRIFTED = {"type": "Drift", "status": "True", "reason": "NotRepaired", "message": "ns1/0 has x.example.org"}


async def test_drift_that_is_known_and_not_repaired_is_a_reason_for_names_of_the_zone():
    manifests = [*yaml.safe_load_all(WITHOUT_KEY), yaml.safe_load(KEY)]
    manifests[1]["status"] = {"conditions": [DRIFTED]}
    objects = {}
    assert lay_over(objects, manifests, "dns") == []
    survey = ZoneInspection(objects)
    try:
        (reason,) = await survey.reasons("x.example.org")
    finally:
        survey.close()
    assert (reason.state, reason.message) == ("Drift", "ns1/0 has x.example.org")
