"""Servers with tokens refuse all other requests; TLS presents the configured certificate."""

import base64
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.serving import Access
from eagerflow.serving.access import tokens_of
from eagerflow.serving.protocols.messages import messages
from eagerflow.serving.protocols.rpc import SERVICE
from tests.serving.models import Client, put_version

grpc = pytest.importorskip("grpc")
SECRET = "0123456789abcdef"
OTHER = "fedcba9876543210"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    models, access = tmp_path_factory.mktemp("models"), Access((OTHER, SECRET))
    put_version(models / "scale", 1)
    with ef.serving.Server(models, port=0, grpc_port=0, access=access) as made:
        yield made


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("", 401),
        (SECRET, 401),
        (f"Bearer {SECRET}x", 401),
        (f"Bearer {SECRET[:-1]}", 401),
        (f"Basic {SECRET}", 401),
        ("Bearer ", 401),
        (f"Bearer {SECRET}", 200),
        (f"bearer {OTHER}", 200),
        (f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}", 200),
        (f"Basic {base64.b64encode(b'me:no').decode()}", 401),
        (f"Basic {base64.b64encode(bytes([255, 254])).decode()}", 401),
    ],
)
def test_rest(guarded, header, status):
    client = Client(guarded)
    headers = {} if header is None else {"Authorization": header}
    for path in ("/v1/models/scale", "/v2/models/scale", "/metrics", "/v2"):
        found, told, body = client.call(path, headers=headers)
        assert found == status, (path, body)
        assert SECRET.encode() not in body
        assert ("www-authenticate" in told) == (status == 401)
    assert client.call("/v2/health/ready")[0] == 200
    client.close()


@pytest.mark.parametrize(("header", "ok"), [(None, False), (f"Bearer {SECRET}", True)])
def test_rpc(guarded, header, ok):
    known = messages()
    metadata = () if header is None else (("authorization", header),)
    with grpc.insecure_channel(f"{guarded.host}:{guarded.grpc_port}") as channel:
        answers = []
        one = channel.unary_unary(
            f"/{SERVICE}/ServerLive", None, known["ServerLiveResponse"].FromString
        )
        many = channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", None, known["ModelStreamInferResponse"].FromString
        )
        for call in (
            lambda: one(b"", 20, metadata).live,
            lambda: list(many(iter(()), 20, metadata)),
        ):
            try:
                call()
                answers.append(None)
            except grpc.RpcError as error:
                answers.append(error.code().name)
    assert answers == ([None] * 2 if ok else ["UNAUTHENTICATED"] * 2)


def with_certificate(folder):
    """Access by TLS, with a new key and certificate in a folder."""
    paths = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -batch -subj /CN=localhost"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out certificate.pem"
    if subprocess.run(command.split(), capture_output=True, cwd=folder).returncode:
        pytest.skip("openssl cannot make a certificate here")
    return Access((), paths[1], paths[0])


def test_tls(folder, tmp_path):
    access = with_certificate(tmp_path)
    paths = access.key, access.certificate
    with ef.serving.Server(folder, port=0, grpc_port=0, access=access) as server:
        trusted = ssl.create_default_context(cafile=str(paths[1]))
        url = f"{server.url}/v2/health/live"
        assert url.startswith("https")
        assert urllib.request.urlopen(url, timeout=20, context=trusted).status == 200
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(url, timeout=20, context=ssl.create_default_context())
        secrets = grpc.ssl_channel_credentials(paths[1].read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", secrets) as channel:
            one = channel.unary_unary(
                f"/{SERVICE}/ServerLive", None, messages()["ServerLiveResponse"].FromString
            )
            assert one(b"", 20).live


def test_settings_that_protect_nothing(tmp_path):
    with pytest.raises(ArgumentError, match="too short"):
        Access(("secret",)).checked()
    with pytest.raises(ArgumentError, match="together"):
        Access((), tmp_path / "a").checked()
    with pytest.raises(FileFormatError, match="no such file"):
        Access((), tmp_path / "a", tmp_path / "b").checked()


def test_files_of_tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# of the first user\n{SECRET}\n\n{OTHER}\n")
    assert tokens_of(path) == (SECRET, OTHER)
    path.write_text("# none\n")
    with pytest.raises(FileFormatError, match="no tokens"):
        tokens_of(path)
    with pytest.raises(FileFormatError, match="cannot be read"):
        tokens_of(tmp_path / "none")
