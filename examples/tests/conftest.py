"""Examples are files, not a package: load them as `steersman run` does. And shorter names for Steersman's fixtures."""

import pytest

from steersman.cli.python_files import kinds_in, load_python
from steersman.crd import crd_manifest


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
