from __future__ import annotations

import pytest

from steersman.kube.config.proxy import check_proxy, proxy_from_environment

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        ("https://api.example.org", "", False),
        ("https://api.example.org", "example.org", True),
        ("https://api.example.org", ".example.org", True),
        ("https://api.example.org", "*.example.org", True),
        ("https://example.org", "example.org", True),
        ("https://example.org", ".example.org", False),
        ("https://notexample.org", "example.org", False),
        ("https://api.example.org:6443", "example.org:6443", True),
        ("https://api.example.org:6443", "example.org:443", False),
        ("https://api.example.org", "other, API.example.org", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "11.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://10.1.2.3:6443", "nonsense/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://10.1.2.3:6443", "*", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://localhost:6443", "", True),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(server, no_proxy, direct):
    found = proxy_from_environment(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy})
    assert found == (None if direct else PROXY)


@pytest.mark.parametrize(
    ("env", "proxy"),
    [
        ({}, None),
        ({"https_proxy": PROXY}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": "proxy:3128"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "api"}, None),
        ({"HTTPS_PROXY": "socks5://proxy:1"}, None),
    ],
)
def test_the_variable_of_the_servers_scheme_counts(env, proxy):
    assert proxy_from_environment("https://api", env) == proxy


@pytest.mark.parametrize("url", ["http://p", "https://me:secret@p:1", "http://[::1]:3128"])
def test_http_proxies_can_be_used(url):
    assert check_proxy(url) is None


@pytest.mark.parametrize("url", ["ftp://p", "p:1", "http://", "http://p:port", "http://[::1", "socks5://p:1"])
def test_other_proxies_are_refused(url):
    assert check_proxy(url)
