"""Which Services are tools, and which only look like one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steersman.errors import ConfigError
from steersman.operators.toolset.api.config import Credential, ToolsetSection, TypeConfig
from steersman.operators.toolset.discovery.detectors import CustomDetector
from steersman.operators.toolset.discovery.matching import Confidence, deduplicate, detect
from tests.support.toolset.services import parsed, service

SETTINGS = ToolsetSection().settings()
NAME = "app.kubernetes.io/name"


def verdict(name, settings=SETTINGS, **options):
    return detect(parsed(service(name, **options)), settings)


def found(name, **options):
    candidate = verdict(name, **options).candidate
    return candidate and (candidate.type, candidate.confidence, candidate.url)


@pytest.mark.parametrize(
    ("labels", "ports", "kind", "url"),
    [
        ({"app": "prometheus"}, [("web", 9090)], "prometheus", ":9090"),
        ({NAME: "prometheus"}, [("http-web", 9091)], "prometheus", ":9091"),
        ({"app": "prometheus", "component": "server"}, [("http", 80)], "prometheus", ":80"),
        (
            {"app": "kube-prometheus-stack-prometheus"},
            [("http-web", 9090), ("reloader-web", 8080)],
            "prometheus",
            ":9090",
        ),
        ({NAME: "thanos-query"}, [("http", 10902)], "thanos", ":10902"),
        ({NAME: "thanos", "app.kubernetes.io/component": "query"}, [10902], "thanos", ":10902"),
        ({NAME: "vmsingle"}, [("http", 8429)], "victoriametrics", ":8429"),
        ({NAME: "victoria-metrics-single"}, [8428], "victoriametrics", ":8428"),
        ({NAME: "vmselect"}, [8481], "victoriametrics-cluster", ":8481/select/0/prometheus"),
        ({"app": "grafana"}, [("service", 80)], "grafana", ":80"),
        ({NAME: "grafana"}, [3000], "grafana", ":3000"),
        ({"app": "jaeger", "app.kubernetes.io/component": "query"}, [("http-query", 16686)], "jaeger", ":16686"),
        ({"app": "elasticsearch"}, [("http", 9200)], "elasticsearch", ":9200"),
        ({"common.k8s.elastic.co/type": "elasticsearch"}, [("https", 9200)], "elasticsearch", ":9200"),
        ({NAME: "opensearch"}, [9200, 9300], "opensearch", ":9200"),
        ({NAME: "loki"}, [("http-metrics", 3100), ("grpc", 9095)], "loki", ":3100"),
        ({NAME: "loki", "app.kubernetes.io/component": "gateway"}, [("http-metrics", 80)], "loki", ":80"),
        ({NAME: "tempo"}, [("tempo-prom-metrics", 3200)], "tempo", ":3200"),
        ({NAME: "victoria-logs-single"}, [("http", 9428)], "victorialogs", ":9428"),
        ({NAME: "alertmanager"}, [("http-web", 9093)], "alertmanager", ":9093"),
        ({NAME: "pyroscope"}, [("http2", 4040)], "pyroscope", ":4040"),
    ],
)
def test_a_label_is_proof(labels, ports, kind, url):
    candidate = verdict("x", labels=labels, ports=ports).candidate
    assert (candidate.type, candidate.confidence) == (kind, Confidence.LABEL)
    assert candidate.url.partition("://")[2] == f"x.monitoring.svc.cluster.local{url}"


@pytest.mark.parametrize("name", ["prometheus", "my-prometheus-server", "grafana", "loki", "elasticsearch-master"])
def test_a_name_is_a_guess_that_must_be_checked(name):
    candidate = verdict(name, ports=[1234]).candidate
    assert candidate.confidence is Confidence.NAME
    assert candidate.needs_identity


def test_a_number_alone_is_a_weaker_guess_and_a_port_name_alone_is_none():
    assert found("shop", ports=[9090])[:2] == ("prometheus", Confidence.PORT)
    assert found("shop", ports=[("web", 8000)]) is None
    assert found("shop", ports=[("service", 8000), ("query", 8001)]) is None
    assert found("shop", ports=[80, 8080, 443]) is None


@pytest.mark.parametrize(
    ("name", "labels", "ports"),
    [
        ("prometheus-operator", {NAME: "prometheus-operator"}, [8080]),
        ("prometheus-node-exporter", {NAME: "prometheus-node-exporter"}, [("metrics", 9100)]),
        ("prometheus-node-exporter", {"app": "prometheus", "component": "node-exporter"}, [9100]),
        ("prometheus-kube-state-metrics", {}, [8080]),
        ("prometheus-pushgateway", {}, [9091]),
        ("prometheus-blackbox-exporter", {}, [9115]),
        ("prometheus-adapter", {}, [443]),
        ("prometheus-webhook", {}, [443]),
        ("grafana-image-renderer", {}, [8081]),
        ("grafana-agent", {}, [80]),
        ("loki-canary", {}, [3500]),
        ("loki-memberlist", {}, [7946]),
        ("loki-distributor", {NAME: "loki", "app.kubernetes.io/component": "distributor"}, [3100]),
        ("elasticsearch-es-transport", {"common.k8s.elastic.co/type": "elasticsearch"}, [9300]),
        ("jaeger-collector", {"app": "jaeger"}, [("http", 14268)]),
        ("jaeger-agent", {"app": "jaeger"}, [16686]),
        ("elasticsearch-exporter", {}, [9108]),
    ],
)
def test_companions_are_left_out_with_a_reason(name, labels, ports):
    left_out = verdict(name, labels=labels, ports=ports)
    assert left_out.candidate is None
    assert left_out.reason in {"Excluded", "NoMatch"}


def test_an_opentelemetry_collector_is_not_a_prometheus():
    judged = verdict("otel-collector", labels={NAME: "opentelemetry-collector"}, ports=[("prometheus", 9090)])
    assert judged.candidate is None
    assert "opentelemetry-collector" in judged.message
    assert found("my-opentelemetry-collector-prometheus", ports=[9090]) is None


def test_an_alertmanager_beside_a_prometheus_is_an_alertmanager():
    judged = verdict("prometheus-alertmanager", labels={"app": "prometheus", "component": "alertmanager"}, ports=[9093])
    assert judged.candidate.type == "alertmanager"


def test_jaeger_needs_one_of_its_ports():
    assert found("jaeger", labels={"app": "jaeger"}, ports=[80]) is None
    assert found("jaeger", labels={"app": "jaeger"}, ports=[("ui", 80)])[0] == "jaeger"


def test_what_its_author_wrote_comes_before_every_detector():
    asked = {"toolset": "true", "toolset-type": "inventory"}
    candidate = verdict("my-prometheus", labels={"app": "prometheus"}, annotations=asked, ports=[9090]).candidate
    assert (candidate.type, candidate.confidence) == ("inventory", Confidence.ANNOTATION)


@pytest.mark.parametrize("value", ["false", "disabled", "False"])
def test_opting_out_wins_over_every_detector(value):
    judged = verdict("prometheus", labels={"app": "prometheus"}, annotations={"toolset": value}, ports=[9090])
    assert judged.reason == "OptedOut"


@pytest.mark.parametrize(
    "annotations",
    [
        {"toolset": "enabled", "toolset-type": "jaeger"},
        {"discoverable": "true", "tool-type": "jaeger"},
        {"toolset": "jaeger"},
    ],
)
def test_every_vocabulary_means_the_same(annotations):
    assert found("traces", annotations=annotations, ports=[("http", 8080)])[0] == "jaeger"


def test_fine_tuning_by_annotation():
    candidate = verdict(
        "x",
        annotations={
            "toolset": "true",
            "toolset-type": "loki",
            "toolset-name": "logs",
            "toolset-port": "alt",
            "toolset-scheme": "https",
            "toolset-path": "/loki",
            "toolset-priority": "99",
            "toolset-tenant": "shop",
            "toolset-verify-tls": "false",
            "health-check": "/ok",
        },
        ports=[("http", 80), ("alt", 8081)],
    ).candidate
    assert candidate.url == "https://x.monitoring.svc.cluster.local:8081/loki"
    assert candidate.health_url == "https://x.monitoring.svc.cluster.local:8081/ok"
    assert (candidate.name, candidate.priority, candidate.tenant) == ("logs", 99, "shop")
    assert candidate.verify_tls is False


def test_a_list_of_endpoints_means_its_first_port():
    annotations = {"toolset": "true", "toolset-type": "x", "endpoints": "metrics:8080,logs:3100"}
    assert verdict("x", annotations=annotations, ports=[3100, 8080]).candidate.url.endswith(":8080")


@pytest.mark.parametrize(
    "annotations",
    [
        {"toolset-type": "x"},  # no opting in
        {"toolset": "true"},  # no type
        {"toolset": "true", "toolset-type": "x"},  # no port
    ],
)
def test_what_is_not_asked_for_completely_is_not_found(annotations):
    assert verdict("x", annotations=annotations).candidate is None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("toolset-endpoint", "http://evil/{{ env.OPENAI_API_KEY }}"),
        ("toolset-endpoint", "http://evil/${SECRET}"),
        ("toolset-endpoint", "http://user:pass@x.monitoring:9090"),
        ("toolset-endpoint", "http://x.monitoring:9090/#frag"),
        ("toolset-endpoint", "http://x.monitoring:9090/?q=1"),
        ("toolset-endpoint", "ftp://x.monitoring"),
        ("toolset-endpoint", "http://x.monitoring:99999"),
        ("toolset-endpoint", "file:///etc/passwd"),
        ("toolset-name", "a\nb"),
        ("toolset-name", "{{ env.X }}"),
        ("toolset-type", "{{x}}"),
        ("toolset-type", "Not A Type"),
        ("toolset-type", "kubernetes"),
        ("toolset-tenant", "a{{b"),
        ("toolset-health-path", "no-slash"),
        ("toolset-health-path", "//evil.example/x"),
        ("toolset-path", "/a#b"),
        ("toolset-port", "70000"),
        ("toolset-port", f"00000{9090 * 10**9}"),
        ("toolset-priority", f"000000001{'9' * 100}"),
        ("toolset-priority", "many"),
        ("toolset-verify-tls", "perhaps"),
        ("toolset-auth-env", "A-B"),
        ("toolset-scheme", "gopher"),
        ("endpoints", "nonsense"),
    ],
)
def test_an_invalid_annotation_leaves_its_service_out_and_names_itself(annotation, value):
    annotations = {"toolset": "true", "toolset-type": "prometheus", annotation: value}
    judged = verdict("x", annotations=annotations, ports=[9090])
    assert judged.candidate is None
    assert f"kubernaut.io/{annotation}" in judged.problems[0]
    assert "OPENAI" not in judged.message


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "other.monitoring",
        "169.254.169.254",
        "127.0.0.1",
        "localhost",
        "[::1]",
        "metadata.google.internal",
    ],
)
def test_an_endpoint_elsewhere_needs_trust(host):
    annotations = {"toolset": "true", "toolset-type": "prometheus", "toolset-endpoint": f"http://{host}:9090"}
    assert verdict("x", annotations=annotations).reason == "UntrustedEndpoint"


def test_an_endpoint_of_the_service_itself_needs_none():
    for host in ("x.monitoring", "x.monitoring.svc", "x.monitoring.svc.cluster.local"):
        annotations = {"toolset": "true", "toolset-type": "prometheus", "toolset-endpoint": f"http://{host}:9090/p"}
        assert verdict("x", annotations=annotations).candidate.url == f"http://{host}:9090/p"


def test_a_trusted_namespace_or_an_allowed_host_may_be_elsewhere_but_never_a_metadata_service():
    def asked(host, **section):
        annotations = {"toolset": "true", "toolset-type": "prometheus", "toolset-endpoint": f"http://{host}:9090"}
        return verdict("x", ToolsetSection(**section).settings(), annotations=annotations).candidate

    assert asked("prom.example", trusted_namespaces=["monitoring"])
    assert asked("127.0.0.1", trusted_namespaces=["monitoring"])
    assert asked("prom.example", allowed_endpoints=["prom.example"])
    assert asked("prom.example", allowed_endpoints=["prom.example:9090"])
    assert not asked("prom.example", allowed_endpoints=["prom.example:1"])
    assert not asked("169.254.169.254", trusted_namespaces=["monitoring"])


def test_credentials_go_to_trusted_namespaces_only():
    settings = ToolsetSection(
        credentials={"grafana": Credential(env="GRAFANA_API_KEY")}, trusted_namespaces=["monitoring"]
    ).settings()
    trusted = detect(parsed(service("grafana", labels={"app": "grafana"}, ports=[3000])), settings).candidate
    rogue = detect(
        parsed(service("grafana", namespace="evil", labels={"app": "grafana"}, ports=[3000])), settings
    ).candidate
    assert trusted.auth_env == "GRAFANA_API_KEY"
    assert rogue.auth_env == ""


def test_types_can_be_switched_off_and_narrowed():
    rows = {
        "grafana": TypeConfig(enabled=False),
        "prometheus": TypeConfig(labels="team=sre"),
        "loki": TypeConfig(namespaces=["logging"]),
        "tempo": TypeConfig(annotations={"discover": "yes"}),
    }
    settings = replace(SETTINGS, types=rows)
    assert verdict("x", settings, labels={"app": "grafana"}, ports=[3000]).reason == "Excluded"
    assert verdict("x", settings, labels={"app": "prometheus"}, ports=[9090]).reason == "Excluded"
    assert verdict("x", settings, labels={"app": "prometheus", "team": "sre"}, ports=[9090]).candidate
    assert verdict("x", settings, labels={"app": "loki"}, ports=[3100]).reason == "Excluded"
    assert verdict("x", settings, namespace="logging", labels={"app": "loki"}, ports=[3100]).candidate
    assert verdict("x", settings, labels={"app": "tempo"}, ports=[3200]).reason == "Excluded"
    assert (
        verdict(
            "x", settings, labels={"app": "tempo"}, annotations={"a/b": "c", "x/discover": "yes"}, ports=[3200]
        ).reason
        == "Excluded"
    )


def test_namespaces_in_and_out_of_scope():
    settings = ToolsetSection(namespaces=["a", "b"], exclude_namespaces=["b"]).settings()
    judged = {ns: verdict("x", settings, namespace=ns, labels={"app": "loki"}, ports=[3100]).reason for ns in "abc"}
    assert judged == {"a": "Matched", "b": "OutOfScope", "c": "OutOfScope"}


def test_https_is_seen_at_the_port():
    for port in (
        {"port": 9200, "name": "https"},
        {"port": 9200, "name": "https-api"},
        {"port": 8443},
        {"port": 9200, "appProtocol": "https"},
    ):
        assert verdict("x", labels={"app": "elasticsearch"}, ports=[port]).candidate.url.startswith("https://")
    assert verdict("x", labels={"app": "elasticsearch"}, ports=[9200]).candidate.url.startswith("http://")


def test_the_short_style_and_another_domain():
    short = ToolsetSection(endpoint_style="short").settings()
    assert verdict("p", short, labels={"app": "prometheus"}, ports=[9090]).candidate.url == "http://p.monitoring:9090"
    other = ToolsetSection(cluster_domain="corp").settings()
    assert ".svc.corp:" in verdict("p", other, labels={"app": "prometheus"}, ports=[9090]).candidate.url


def test_an_external_name_needs_annotations():
    options = {"labels": {"app": "prometheus"}, "type": "ExternalName", "externalName": "prom.example"}
    assert verdict("x", ports=[9090], **options).reason == "ExternalName"


def test_of_several_services_for_the_same_pods_the_one_with_an_address_stays():
    rows = [
        service("loki-headless", labels={"app": "loki"}, ports=[3100], clusterIP="None", selector={"app": "loki"}),
        service("loki", labels={"app": "loki"}, ports=[3100], clusterIP="10.0.0.1", selector={"app": "loki"}),
        service(
            "prometheus-operated", labels={"app": "prometheus"}, ports=[9090], clusterIP="None", selector={"a": "b"}
        ),
    ]
    chosen = deduplicate([detect(parsed(row), SETTINGS).candidate for row in rows])
    assert [one.service for one in chosen] == ["prometheus-operated", "loki"]


def test_a_user_adds_a_detector_by_configuration():
    row = CustomDetector(type="inventory", labels=["app=inventory"], ports=[7000], identity_path="/who", renders_as="")
    settings = ToolsetSection(detectors=[row]).settings()
    assert verdict("x", settings, labels={"app": "inventory"}, ports=[7000]).candidate.type == "inventory"
    assert verdict("x", settings, ports=[7000]).candidate.identity_url.endswith(":7000/who")


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (CustomDetector(type="Bad Type", names=["x"]), "type"),
        (CustomDetector(type="x"), "detectors[0]"),
        (CustomDetector(type="x", labels=["a in ("]), "labels"),
        (CustomDetector(type="x", ports=[0]), "ports"),
        (CustomDetector(type="x", ports=[1], health_path="no"), "healthPath"),
        (CustomDetector(type="x", ports=[1], renders_as="nobody"), "rendersAs"),
    ],
)
def test_a_detector_that_cannot_work_is_refused_with_its_field(row, field):
    with pytest.raises(ConfigError, match=field.replace("[", r"\[").replace("]", r"\]")):
        ToolsetSection(detectors=[row]).settings()


def test_of_two_services_with_addresses_for_the_same_pods_one_stays():
    rows = [
        service(name, labels={"app": "loki"}, ports=[3100], clusterIP=address, selector={"app": "loki"})
        for name, address in (("loki", "10.0.0.1"), ("loki-internal", "10.0.0.2"))
    ]
    other = service("loki-lab", labels={"app": "loki"}, ports=[3100], clusterIP="10.0.0.3", selector={"app": "lab"})
    chosen = deduplicate([detect(parsed(row), SETTINGS).candidate for row in (*rows, other)])
    assert [candidate.service for candidate in chosen] == ["loki", "loki-lab"]
