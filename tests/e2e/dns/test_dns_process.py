"""The commands of the dns operator, beside the operator as a process on the real control plane."""

from __future__ import annotations

import json

import pytest

from steersman.testing import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


async def test_the_commands_find_what_differs_say_why_and_bring_a_zone_along(site, steersman, tmp_path):
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
    await site.record("CNAME", "alias", owner="www", target="x.example.net.")
    here = ("-n", site.namespace)
    code, out = await steersman.ask("dns", "plan", *here, "--zone", "example.org", "-o", "json")
    assert code == 3
    assert {(row["action"], row["name"]) for row in json.loads(out)} >= {("create", "example.org")}
    await steersman.start()
    await eventually(lambda: site.is_ready("A", "www"), timeout=180)
    await eventually(lambda: site.is_ready("CNAME", "alias", "CNAMEConflict"), timeout=180)
    await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=180)
    code, out = await steersman.ask("dns", "why", *here, "www.example.org", "-o", "json")
    assert code == 0
    states = {row["type"]: (row["state"], row["served"].get("primary-0/0")) for row in json.loads(out)}
    assert states == {"A": ("published", ["192.0.2.1"]), "CNAME": ("CNAMEConflict", [])}

    async def only_held():
        code, out = await steersman.ask("dns", "check", *here, "example.org", "-o", "json")
        return code == 3 and {row["check"] for row in json.loads(out)} == {"held"}

    await eventually(only_held, "nothing but what is held back", timeout=240)
    one = site.primaries[0]
    key = f'key "{one.key_name}" {{ algorithm hmac-sha256; secret "{one.secret}"; }};'
    (tmp_path / "transfer.key").write_text(key)
    place = f"example.org@127.0.0.1:{one.dns_port}"
    code, out = await steersman.ask("dns", "import", place, "--key-file", str(tmp_path / "transfer.key"))
    assert code == 0
    import yaml

    kinds = [(row["kind"], row["spec"].get("name")) for row in yaml.safe_load_all(out)]
    assert kinds == [("DNSZone", None), ("ARecord", "www")]
