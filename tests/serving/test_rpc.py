"""gRPC: the protocol's service, called with the wire format by a client of gRPC's own."""

import numpy as np
import pytest

from eagerflow.serving.protocols.messages import messages
from eagerflow.serving.protocols.rpc import SERVICE
from tests.serving.models import scaling

grpc = pytest.importorskip("grpc")
X = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
KNOWN = messages()


@pytest.fixture(scope="module")
def server(shared_server):
    return shared_server


@pytest.fixture
def call(server):
    with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:

        def make(method, stream=False, timeout=20, **fields):
            name = "ModelInferRequest" if stream else f"{method}Request"
            answer = KNOWN[f"{method}Response"].FromString
            kind = channel.stream_stream if stream else channel.unary_unary
            made = kind(f"/{SERVICE}/{method}", lambda message: message.SerializeToString(), answer)
            if stream:
                return list(made(iter(fields["requests"]), timeout=timeout))
            return made(KNOWN[name](**fields), timeout=timeout)

        yield make


def request(array=X, raw=True, name="x", **more):
    made = KNOWN["ModelInferRequest"](model_name="scale", **more)
    given = made.inputs.add(name=name, datatype="FP32", shape=array.shape)
    if raw:
        made.raw_input_contents.append(array.tobytes())
    else:
        given.contents.fp32_contents.extend(array.reshape(-1).tolist())
    return made


def fields_of(message):
    return {field.name: value for field, value in message.ListFields()}


def output(answer, place=0):
    told = answer.outputs[place]
    return np.frombuffer(answer.raw_output_contents[place], "float32").reshape(list(told.shape))


@pytest.mark.parametrize("raw", [True, False])
def test_inference(call, raw):
    answer = call("ModelInfer", **fields_of(request(raw=raw, id="7")))
    assert (answer.model_name, answer.model_version, answer.id) == ("scale", "1", "7")
    wanted = scaling(1)(X)
    np.testing.assert_array_equal(output(answer), wanted["y"].numpy())
    np.testing.assert_array_equal(output(answer, 1), wanted["total"].numpy())


def test_outputs_by_name(call):
    asked = request()
    asked.outputs.add(name="total")
    answer = call("ModelInfer", **fields_of(asked))
    assert [o.name for o in answer.outputs] == ["total"]


def test_health_metadata_and_repository(call):
    assert call("ServerLive").live and call("ServerReady").ready
    assert call("ModelReady", name="scale").ready
    assert not call("ModelReady", name="none").ready
    assert not call("ModelReady", name="scale", version="9").ready
    assert call("ServerMetadata").name == "eagerflow"
    told = call("ModelMetadata", name="scale")
    assert [(i.name, i.datatype, list(i.shape)) for i in told.inputs] == [("x", "FP32", [-1, 3])]
    assert [(m.name, m.state) for m in call("RepositoryIndex").models] == [("scale", "READY")]
    call("RepositoryModelUnload", model_name="scale")
    assert not call("ModelReady", name="scale").ready
    call("RepositoryModelLoad", model_name="scale")
    assert call("ModelReady", name="scale").ready


def test_a_stream_goes_on_after_an_error(call):
    asked = [request(id="a"), request(X[:, :2], id="b"), request(id="c")]
    answers = call("ModelStreamInfer", stream=True, requests=asked)
    assert [a.infer_response.id for a in answers] == ["a", "b", "c"]
    assert [bool(a.error_message) for a in answers] == [False, True, False]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"model_name": "none"}, "NOT_FOUND", "no model"),
        ({"model_version": "9"}, "NOT_FOUND", "no version"),
        ({"model_version": "x"}, "INVALID_ARGUMENT", "number"),
        ({"inputs": []}, "INVALID_ARGUMENT", "inputs"),
        ({"raw_input_contents": [b"123"]}, "INVALID_ARGUMENT", "bytes"),
    ],
)
def test_errors_have_codes(call, fields, code, words):
    with pytest.raises(grpc.RpcError) as caught:
        call("ModelInfer", **{**fields_of(request()), **fields})
    assert caught.value.code().name == code
    assert words in caught.value.details()


def test_bytes_that_are_no_message_are_refused(server):
    with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer", lambda x: x, lambda x: x)
        with pytest.raises(grpc.RpcError) as raised:
            call(b"\xff", timeout=20)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "not a message of this method" in raised.value.details()
        stream = channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            lambda x: x,
            KNOWN["ModelStreamInferResponse"].FromString,
        )
        asked = [b"\xff", request(id="2").SerializeToString()]
        wrong, right = stream(iter(asked), timeout=20)
        assert "not a message of this method" in wrong.error_message
        assert right.infer_response.id == "2"
