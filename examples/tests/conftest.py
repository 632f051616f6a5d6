"""Examples are files, not a package: load them as `steersman run` does. And shorter names for Steersman's fixtures."""

import pytest
from prometheus_client import CollectorRegistry

import steersman as sm
from steersman.cli.python_files import hooks_in, kinds_in, load_python
from steersman.crd import crd_manifest
from steersman.runtime.webhook.certificate_source import CONFIGURATIONS
from steersman.testing import eventually, running


@pytest.fixture
def example(request):
    """The example a test is about, from its own name: test_webapp.py tests webapp.py."""
    path = request.path
    return load_python(str(path.parent.parent / path.name.removeprefix("test_")))


@pytest.fixture
def cluster(steersman_cluster):
    return steersman_cluster


@pytest.fixture
def client(steersman_client):
    return steersman_client


@pytest.fixture
def namespace(steersman_namespace):
    return steersman_namespace


@pytest.fixture
async def installed(example, client):
    """The example's kinds, known to the server."""
    for kind in kinds_in(example):
        await client.apply(crd_manifest(kind))
    return example


@pytest.fixture
async def review(installed, client, namespace):
    """What the server says about an object when it has asked the example's webhooks: why it is refused, else ""."""
    hooks, registry = hooks_in([installed]), CollectorRegistry()
    certificates = sm.ManagedCertificates(
        client, namespace=namespace, secret="webhooks", names=["127.0.0.1"], configuration=namespace
    )
    server = sm.WebhookServer(hooks, certificates, host="127.0.0.1", port=0, registry=registry)

    def requests() -> float:
        name = "controller_runtime_webhook_requests_total"
        return sum(registry.get_sample_value(name, {"webhook": hook.path, "code": "200"}) for hook in hooks)

    async def ask(obj) -> str:
        before, answer = requests(), ""

        async def answered() -> bool:
            nonlocal answer
            try:
                await client.create(obj, dry_run=True)
                answer = ""
            except sm.KubeError as error:
                answer = str(error)
            return requests() > before

        await eventually(answered)
        return answer

    async with running(client, webhooks=server):
        for manifest in sm.webhook_configurations(
            hooks, name=namespace, client_config=lambda path: {"url": f"https://127.0.0.1:{server.port}{path}"}
        ):
            for webhook in manifest["webhooks"]:  # other tests make objects too
                webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            await client.create(manifest)
        await certificates.load()  # the server does so every half minute: the configurations get the authority
        yield ask
    for kind in CONFIGURATIONS:
        try:
            await client.delete(kind, namespace)
        except sm.NotFound:
            continue
