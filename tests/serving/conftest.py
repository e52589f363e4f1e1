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


@pytest.fixture
def client(server):
    made = Client(server)
    yield made
    made.close()
