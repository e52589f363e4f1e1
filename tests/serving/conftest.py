import pytest

import eagerflow as ef
from tests.serving.models import Client, put_version


@pytest.fixture
def folder(tmp_path):
    """A folder of models, with one model of one version."""
    put_version(tmp_path / "models" / "scale", 1)
    return tmp_path / "models"


@pytest.fixture
def server(folder):
    with ef.serving.Server(folder, port=0, grpc_port=0, poll=0.02) as made:
        yield made


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    """One for all tests of a module, which leave its model as it is."""
    models = tmp_path_factory.mktemp("models")
    put_version(models / "scale", 1)
    with ef.serving.Server(models, port=0, grpc_port=0) as made:
        yield made


@pytest.fixture
def client(server):
    with Client(server) as made:
        yield made
