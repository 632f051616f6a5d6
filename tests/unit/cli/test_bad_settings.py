"""A setting that could never mean anything is refused at the start, with its field and the way out."""

from __future__ import annotations

import pytest

from steersman.cli.config import load_settings
from steersman.errors import ConfigError


def checked(tmp_path, text):
    file = tmp_path / "steersman.yaml"
    file.write_text(text)
    return load_settings(file).sections[text.partition(":")[0]]


@pytest.mark.parametrize(
    ("text", "field", "way_out"),
    [
        ("reload: {orderWith: [Shop]}", "reload.orderWith[0]", "try shop, or *"),
        ('dns: {allowedImages: ["bind9:9.20"]}', "dns.allowedImages[0]", "leave out tag and digest"),
        ('dns: {allowedImages: [bind9, "bind9@sha256:00"]}', "dns.allowedImages[1]", "leave out tag and digest"),
        ('dns: {allowedImages: ["team*"]}', "dns.allowedImages[0]", "end with /* for all images below"),
        ('dns: {allowedImages: [""]}', "dns.allowedImages[0]", "leave out tag and digest"),
        ("dns: {trustedNamespaces: [Team_A]}", "dns.trustedNamespaces[0]", "try dns, or * for all"),
        ('dns: {trustedNamespaces: ["team-*"]}', "dns.trustedNamespaces[0]", "try dns, or * for all"),
        ("dns: {serverNamespaces: [a/b]}", "dns.serverNamespaces[0]", "try dns, or * for all"),
        ('dns: {bindcarTokenNamespaces: ["a b"]}', "dns.bindcarTokenNamespaces[0]", "try dns, or * for all"),
        ("toolset: {configMaps: [Tools_A]}", "toolset.configMaps[0]", "try tools, or * for all"),
        ("toolset: {maxParts: 0}", "toolset.maxParts", "between 1 and 100"),
        ('toolset: {trustedNamespaces: ["*"]}', "toolset.trustedNamespaces[0]", "name each of them"),
        ("hourglass: {serviceAccounts: [a/b/c]}", "hourglass.serviceAccounts[0]", "try hourglass-*"),
        ("hourglass: {serviceAccounts: [Runner]}", "hourglass.serviceAccounts[0]", "try hourglass-*"),
    ],
)
def test_a_setting_that_can_match_nothing_is_refused_with_its_field_and_the_way_out(tmp_path, text, field, way_out):
    with pytest.raises(ConfigError) as caught:
        checked(tmp_path, text)
    told = str(caught.value)
    assert field in told
    assert way_out in told
    assert "\n" not in told


@pytest.mark.parametrize(
    "text",
    [
        'dns: {allowedImages: ["*", bind9, team/*, "registry.example:5000/team/*", "registry.example:5000/bind9"]}',
        'dns: {trustedNamespaces: ["*", team], serverNamespaces: [], bindcarTokenNamespaces: [dns]}',
        'toolset: {configMaps: ["*", tools.v2], trustedNamespaces: [monitoring]}',
        'hourglass: {serviceAccounts: ["*", "team-?/run[ab]-*", ops/runner.v2]}',
    ],
)
def test_a_setting_that_the_documentation_names_is_taken(tmp_path, text):
    assert checked(tmp_path, text)


@pytest.mark.parametrize("text", ["", "# nothing is set\n", "---\n", "reload:\n# quietPeriod: 5s\n", "listen:\ndns:\n"])
def test_a_file_or_section_without_settings_has_the_defaults(tmp_path, text):
    file = tmp_path / "steersman.yaml"
    file.write_text(text)
    found, default = load_settings(file), load_settings(None)
    assert (found.listen, found.operators) == (default.listen, default.operators)
    assert found.sections["reload"] == default.sections["reload"]


@pytest.mark.parametrize("text", ["- reload", "reload", "[]", "0"])
def test_a_file_that_is_not_a_mapping_is_refused_with_an_example(tmp_path, text):
    file = tmp_path / "steersman.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="must be a mapping of settings"):
        load_settings(file)
