from __future__ import annotations

import base64
import dataclasses
import json
import os
from pathlib import Path

import pytest
import yaml

from steersman.errors import ConfigError
from steersman.kube.config import kubeconfig
from steersman.kube.config.config import AuthInfo, ExecConfig, OIDCProvider
from steersman.kube.config.kubeconfig import load_config

SECRET = "s3cr3t-value"


def document(**parts):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": "https://one:6443"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        **parts,
    }


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value, sort_keys=False))
    return path


def user(**fields):
    return document(users=[{"name": "u", "user": fields}])


def cluster(**fields):
    return document(clusters=[{"name": "c", "cluster": {"server": "https://one:6443", **fields}}])


def load(tmp_path, value, **options):
    return load_config(write(tmp_path / "config", value), env={}, **options)


def test_the_current_context_names_cluster_user_and_namespace(tmp_path):
    config = load(tmp_path, document())
    assert (config.server, config.namespace, config.context) == ("https://one:6443", "shop", "main")
    assert (config.auth.token, config.source) == (SECRET, str(tmp_path / "config"))


def test_another_context_can_be_chosen(tmp_path):
    both = document(
        contexts=[
            {"name": "main", "context": {"cluster": "gone", "user": "gone"}},
            {"name": "other", "context": {"cluster": "c", "user": "u"}},
        ]
    )
    config = load(tmp_path, both, context="other")
    assert (config.context, config.namespace) == ("other", "default")


def test_json_is_a_kubeconfig_too(tmp_path):
    text = json.dumps(document())
    assert load(tmp_path, text).server == "https://one:6443"


def test_a_context_without_a_user_is_anonymous(tmp_path):
    assert load(tmp_path, document(contexts=[{"name": "main", "context": {"cluster": "c"}}])).auth == AuthInfo()


class TestMerging:
    def merged(self, tmp_path, *documents, missing=()):
        files = [write(tmp_path / str(n) / "config", value) for n, value in enumerate(documents)]
        listed = [str(path) for path in [*missing, *files]]
        return load_config(env={"KUBECONFIG": os.pathsep.join(listed)})

    def test_the_first_file_that_has_an_entry_wins_as_a_whole(self, tmp_path):
        first = document(clusters=[{"name": "c", "cluster": {"server": "https://first"}}])
        second = document(clusters=[{"name": "c", "cluster": {"server": "https://second", "tls-server-name": "x"}}])
        config = self.merged(tmp_path, first, second)
        assert (config.server, config.tls_server_name) == ("https://first", None)

    def test_the_first_current_context_wins_even_when_another_file_defines_it(self, tmp_path):
        first = {"current-context": "main"}
        second = document(**{"current-context": "other"})
        assert self.merged(tmp_path, first, second).context == "main"

    def test_entries_of_all_files_are_known(self, tmp_path):
        contexts = {"current-context": "main", "contexts": document()["contexts"]}
        clusters = {"clusters": document()["clusters"]}
        users = {"users": document()["users"]}
        config = self.merged(tmp_path, contexts, users, clusters)
        assert (config.server, config.auth.token) == ("https://one:6443", SECRET)

    def test_files_that_do_not_exist_are_skipped(self, tmp_path):
        assert self.merged(tmp_path, document(), missing=[tmp_path / "gone", ""]).server == "https://one:6443"

    def test_an_empty_file_says_nothing(self, tmp_path):
        assert self.merged(tmp_path, "", document()).server == "https://one:6443"

    def test_paths_are_relative_to_the_file_that_holds_them(self, tmp_path):
        first = {"current-context": "main", "contexts": document()["contexts"], "users": user(tokenFile="t")["users"]}
        second = {"clusters": cluster(**{"certificate-authority": "ca/ca.crt"})["clusters"]}
        config = self.merged(tmp_path, first, second)
        assert config.ca == tmp_path / "1" / "ca/ca.crt"
        assert config.auth.token_file == tmp_path / "0" / "t"

    def test_errors_name_the_file_that_the_cluster_is_from(self, tmp_path):
        first = {"current-context": "main", "contexts": document()["contexts"]}
        config = self.merged(tmp_path, first, {"clusters": document()["clusters"], "users": document()["users"]})
        assert config.source == str(tmp_path / "1" / "config")


class TestWhere:
    def test_an_explicit_path_beats_the_environment(self, tmp_path):
        path = write(tmp_path / "a", document())
        other = write(tmp_path / "b", cluster(server="https://other"))
        assert load_config(path, env={"KUBECONFIG": str(other)}).server == "https://one:6443"

    def test_the_home_folder_is_the_default(self, tmp_path):
        write(tmp_path / ".kube" / "config", document())
        assert load_config(env={"HOME": str(tmp_path)}).server == "https://one:6443"

    def test_an_explicit_path_that_does_not_exist_is_an_error(self, tmp_path):
        with pytest.raises(ConfigError, match=r"gone: this kubeconfig does not exist: check --kubeconfig"):
            load_config(tmp_path / "gone", env={})

    def test_with_nothing_anywhere_the_error_says_where_it_looked(self, tmp_path):
        with pytest.raises(ConfigError, match=r"tried .*/\.kube/config\): set KUBECONFIG"):
            load_config(env={"HOME": str(tmp_path)})

    @pytest.fixture
    def pod(self, tmp_path, monkeypatch):
        folder = tmp_path / "serviceaccount"
        write(folder / "token", "abc")
        write(folder / "namespace", "tools\n")
        monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", folder)
        return {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    def test_a_pod_without_kubeconfig_uses_its_service_account(self, pod, tmp_path):
        config = load_config(env=pod)
        assert (config.server, config.namespace, config.source) == ("https://10.0.0.1:443", "tools", "in-cluster")
        assert config.auth.token_file == tmp_path / "serviceaccount" / "token"
        assert config.ca == tmp_path / "serviceaccount" / "ca.crt"

    def test_an_ipv6_service_address_is_bracketed(self, pod):
        assert load_config(env={**pod, "KUBERNETES_SERVICE_HOST": "fd00::1"}).server == "https://[fd00::1]:443"

    def test_pod_namespace_beats_the_service_accounts(self, pod):
        assert load_config(env={**pod, "POD_NAMESPACE": "mine"}).namespace == "mine"

    def test_a_kubeconfig_beats_the_pod(self, pod, tmp_path):
        write(tmp_path / ".kube" / "config", document())
        assert load_config(env=pod).server == "https://one:6443"


class TestUsers:
    def test_inline_material_beats_files(self, tmp_path):
        data = base64.b64encode(b"PEM").decode()
        value = user(**{"client-certificate": "c", "client-certificate-data": data, "client-key": "k"})
        auth = load(tmp_path, value).auth
        assert (auth.client_certificate, auth.client_key) == (b"PEM", tmp_path / "k")

    def test_a_plugin_is_taken_as_it_is_written(self, tmp_path):
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
        value = cluster(extensions=[{"name": "else", "extension": 1}, extension])
        value["users"] = user(
            exec={
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "./bin/login",
                "args": ["--a"],
                "env": [{"name": "A", "value": "1"}],
                "installHint": "\x1b[31mget it\x1b[0m",
                "interactiveMode": "Never",
                "provideClusterInfo": True,
            }
        )["users"]
        assert load(tmp_path, value).auth.exec_plugin == ExecConfig(
            api_version="client.authentication.k8s.io/v1",
            command=str(tmp_path / "bin/login"),
            args=("--a",),
            env=(("A", "1"),),
            install_hint="get it",
            provide_cluster_info=True,
            interactive_mode="Never",
            cluster_extension={"audience": "x"},
        )

    def test_a_bare_command_is_left_to_the_search_path(self, tmp_path):
        value = user(exec={"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "login"})
        plugin = load(tmp_path, value).auth.exec_plugin
        assert (plugin.command, plugin.interactive_mode) == ("login", "IfAvailable")

    def test_an_oidc_provider_is_taken_as_it_is_written(self, tmp_path):
        settings = {
            "idp-issuer-url": "https://idp",
            "client-id": "me",
            "client-secret": "s",
            "id-token": "i",
            "refresh-token": "r",
            "idp-certificate-authority": "idp.crt",
        }
        value = user(**{"auth-provider": {"name": "oidc", "config": settings}})
        assert load(tmp_path, value).auth.oidc == OIDCProvider(
            issuer="https://idp",
            client_id="me",
            client_secret="s",
            id_token="i",
            refresh_token="r",
            ca=tmp_path / "idp.crt",
        )

    def test_impersonation_becomes_headers(self, tmp_path):
        value = user(**{"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scope": ["x"]}})
        assert load(tmp_path, value).auth.impersonate == (
            ("Impersonate-User", "jane"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-scope", "x"),
        )


class TestClusters:
    def test_all_of_a_clusters_options_are_taken(self, tmp_path):
        value = cluster(
            **{
                "server": "https://h:1/prefix/",
                "tls-server-name": "kubernetes",
                "insecure-skip-tls-verify": True,
                "proxy-url": "http://proxy:3128",
                "disable-compression": True,
            }
        )
        config = load(tmp_path, value)
        assert config.server == "https://h:1/prefix"
        assert config.tls_server_name == "kubernetes"
        assert config.insecure_skip_tls_verify
        assert config.proxy_url == "http://proxy:3128"
        assert config.disable_compression

    def test_the_environments_proxy_is_used_when_the_cluster_names_none(self, tmp_path):
        path = write(tmp_path / "config", document())
        assert load_config(path, env={"HTTPS_PROXY": "http://p:1"}).proxy_url == "http://p:1"
        assert load_config(path, env={"HTTPS_PROXY": "http://p:1", "NO_PROXY": "one"}).proxy_url is None

    @pytest.mark.parametrize(
        ("server", "ca", "url"), [("h:8080", {}, "http://h:8080"), ("h", {"certificate-authority": "x"}, "https://h")]
    )
    def test_a_server_without_scheme_gets_one_as_kubectl_does_it(self, tmp_path, server, ca, url):
        assert load(tmp_path, cluster(server=server, **ca)).server == url


WRONG = {
    "not yaml": ("clusters: [\n  - {", r"config:2: is not valid YAML \("),
    "a tab": ("clusters:\n\t- name: x", r"config:2: is not valid YAML"),
    "a list": ("- a\n", r"config: is not a kubeconfig: expected a mapping"),
    "text": ("hello", r"config: is not a kubeconfig"),
    "clusters as a mapping": (
        "clusters:\n  a: 1\n",
        r"config:1: clusters: expected `array \| null`, got `object`",
    ),
    "a number for a name": (
        "clusters:\n- name: 1\n",
        r"config:2: clusters\[0\].name: expected `str`, got `int`",
    ),
    "data that is not base64": (
        "users:\n- name: u\n  user:\n    client-key-data: s3cr3t-value!\n",
        r"config:4: users\[0\].user.client-key-data: invalid base64 encoded string",
    ),
    "a token that is a number": (
        "users:\n- name: u\n  user:\n    token: 12345\n",
        r"config:4: users\[0\].user.token: expected `str \| null`, got `int`",
    ),
    "a name twice": (
        "users:\n- name: u\n- name: u\n",
        r"config:3: users\[1\].name: the name 'u' is there twice: rename or remove one",
    ),
    "an unknown interactiveMode": (
        user(exec={"command": "x", "interactiveMode": "Maybe"}),
        r"users\[0\].user.exec.interactiveMode: invalid enum value 'Maybe'",
    ),
    "no interactiveMode in v1": (
        user(exec={"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}),
        r"users\[0\].user.exec.interactiveMode: is required: Never, IfAvailable or Always",
    ),
    "an old plugin version": (
        user(exec={"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}),
        r"exec.apiVersion: must be one of client.authentication.k8s.io/v1, client",
    ),
    "an auth provider that is gone": (
        user(**{"auth-provider": {"name": "gcp"}}),
        r"users\[0\].user.auth-provider.name: the auth provider 'gcp' no longer exists: use an exec plugin",
    ),
    "oidc without an issuer": (
        user(**{"auth-provider": {"name": "oidc", "config": {"client-id": "x"}}}),
        r"users\[0\].user.auth-provider.config: idp-issuer-url is missing",
    ),
    "a certificate without a key": (
        user(**{"client-certificate": "x"}),
        r"users\[0\].user: client-certificate needs client-key: add it, as a path or as client-key-data",
    ),
    "two ways at once": (user(username="a", token="b"), r"users\[0\].user.username: excludes token"),
    "groups without a user": (user(**{"as-groups": ["a"]}), r"users\[0\].user.*as-groups"),
    "no server": (cluster(server=""), r"config:\d+: clusters\[0\].cluster.server: is empty: set it to the address"),
    "a server that is no address": (cluster(server="ftp://x"), r"cluster.server: is not the address of an API server"),
    "a password in the server": (
        cluster(server=f"https://me:{SECRET}@host"),
        r"cluster.server: is not the address of an API server \(expected https://HOST:PORT, without a user\)",
    ),
    "a CA that is not to be checked": (
        cluster(**{"insecure-skip-tls-verify": True, "certificate-authority": "x"}),
        r"cluster.insecure-skip-tls-verify: excludes certificate-authority",
    ),
    "a SOCKS proxy": (
        cluster(**{"proxy-url": f"socks5://me:{SECRET}@p:1"}),
        r"cluster.proxy-url: SOCKS proxies are not supported: use an HTTP proxy",
    ),
    "a proxy that is no URL": (cluster(**{"proxy-url": "nonsense"}), r"cluster.proxy-url: is not the URL of a proxy"),
    "no current context": (document(**{"current-context": ""}), r"no context is chosen.* \(known: main\)"),
    "an unknown context": (document(**{"current-context": "x"}), r"unknown context 'x' \(known: main\)"),
    "an unknown cluster": (
        document(contexts=[{"name": "main", "context": {"cluster": "x"}}]),
        r"config:\d+: contexts\[0\].context.cluster: unknown cluster 'x' \(known: c\)",
    ),
    "an unknown user": (
        document(contexts=[{"name": "main", "context": {"cluster": "c", "user": "x"}}]),
        r"config:\d+: contexts\[0\].context.user: unknown user 'x' \(known: u\)",
    ),
}


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_reported_with_file_line_field_and_the_way_out(tmp_path, content, message):
    with pytest.raises(ConfigError, match=message) as raised:
        load(tmp_path, content)
    assert SECRET not in str(raised.value) + repr(raised.value) + repr(raised.value.args)


def test_a_binary_file_is_an_error(tmp_path):
    (tmp_path / "config").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="config: is not a text file in UTF-8"):
        load_config(tmp_path / "config", env={})


def test_a_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path, env={})


def test_no_repr_shows_a_secret(tmp_path):
    value = user(
        token=SECRET,
        password=SECRET,
        **{
            "client-certificate-data": base64.b64encode(SECRET.encode()).decode(),
            "client-key-data": base64.b64encode(SECRET.encode()).decode(),
            "exec": {
                "command": "x",
                "args": [SECRET],
                "env": [{"name": "A", "value": SECRET}],
                "apiVersion": "client.authentication.k8s.io/v1beta1",
            },
            "auth-provider": {
                "name": "oidc",
                "config": {
                    "idp-issuer-url": "https://idp",
                    "client-id": "me",
                    "client-secret": SECRET,
                    "id-token": SECRET,
                    "refresh-token": SECRET,
                },
            },
        },
    )
    value["clusters"] = cluster(**{"proxy-url": f"http://me:{SECRET}@p:1"})["clusters"]
    config = load(tmp_path, value)
    assert SECRET in repr(dataclasses.asdict(config))  # it is there…
    assert SECRET not in repr(config) + str(config)  # …and not shown


def test_the_user_of_a_missing_file_sees_the_full_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "config", "clusters: 1")
    with pytest.raises(ConfigError, match=str(tmp_path)):
        load_config(Path("config"), env={})
