"""Sequences by the protocols: REST, gRPC and its streams, through swaps of versions."""

import json

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.graph.state import declared
from tests.serving.models import Client, put_version, remove_version
from tests.serving.test_generation import GRAPHS
from tests.serving.test_generation_requests import wait_for
from tests.serving.test_rpc import KNOWN, call  # noqa: F401 (a fixture)


def adding(number):
    """The graph of a running sum, times the number of its version."""

    def step(x, total):
        total = total + x
        return {"y": total * float(number), "total_next": total}

    rows = ef.TensorSpec(("batch",), "float32")
    graph = ef.capture.trace(step, rows, rows)
    graph.state = declared(graph, {"total": "total_next"})
    return graph


@pytest.fixture
def folder(tmp_path):
    put_version(tmp_path / "models" / "sum", 1, adding(1))
    return tmp_path / "models"


def ask(client, x, place="", status=200, **parameters):
    asked = {"name": "x", "shape": [1], "datatype": "FP32", "data": [x]}
    body = {"inputs": [asked], "parameters": parameters}
    told = client.json(f"/v2/models/sum{place}/infer", body, status)
    return told if status != 200 else (told["model_version"], told["outputs"][0]["data"][0])


def test_a_sum_over_requests(client):
    assert ask(client, 2.0, sequence_id="a", sequence_start=True) == ("1", 2.0)
    assert ask(client, 5.0, sequence_id=8, sequence_start=True) == ("1", 5.0)
    assert ask(client, 1.5, sequence_id="a") == ("1", 3.5)
    assert ask(client, 1.0, sequence_id=8, sequence_end=True) == ("1", 6.0)
    assert "has ended" in ask(client, 1.0, status=404, sequence_id=8)["error"]
    assert "no sequence 'b'" in ask(client, 1.0, status=404, sequence_id="b")["error"]
    assert "sequence_id" in ask(client, 1.0, status=400)["error"]
    told = client.json("/v2/models/sum")
    assert [x["name"] for x in told["inputs"]] == ["x"]
    assert [x["name"] for x in told["outputs"]] == ["y"]
    assert "sequence" in client.json("/v2")["extensions"]
    refused = client.json("/v1/models/sum:predict", {"instances": [1.0]}, 400)
    assert "sequence_id" in refused["error"]


def test_models_without_state_have_no_sequences(folder, client, server):
    put_version(folder / "plain", 1, ef.capture.trace(lambda x: x, ef.TensorSpec((1,), "float32")))
    wait_for(lambda: "plain" in server.repository.models and server.repository.is_ready)
    asked = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    body = {"inputs": [asked], "parameters": {"sequence_id": 3}}
    assert "no state" in client.json("/v2/models/plain/infer", body, 400)["error"]


def test_a_sequence_stays_on_its_version(folder, client, server):
    model = server.repository.model("sum")
    ask(client, 2.0, sequence_id="old", sequence_start=True)
    put_version(folder / "sum", 2, adding(10))
    wait_for(lambda: list(model.ready) == [2])
    assert ask(client, 1.0, sequence_id="new", sequence_start=True) == ("2", 10.0)
    assert ask(client, 1.0, sequence_id="old") == ("1", 3.0)
    assert ask(client, 1.0, "/versions/1", sequence_id="old") == ("1", 4.0)
    other = ask(client, 1.0, "/versions/2", 404, sequence_id="old")
    assert "another version" in other["error"]
    refused = ask(client, 1.0, "/versions/1", 503, sequence_id="more", sequence_start=True)
    assert "shutting down" in refused["error"]
    assert ask(client, 1.0, sequence_id="old", sequence_end=True) == ("1", 5.0)
    wait_for(lambda: not model.leaving)
    assert "has ended" in ask(client, 1.0, status=404, sequence_id="old")["error"]
    assert ask(client, 1.0, sequence_id="new") == ("2", 20.0)


def test_a_version_that_cannot_wait_says_so(folder):
    limits = ef.serving.SequenceLimits(leaving_seconds=0.05)
    with ef.serving.Server(folder, port=0, poll=0.02, sequences=limits) as server:
        client, model = Client(server), server.repository.model("sum")
        ask(client, 2.0, sequence_id="old", sequence_start=True)
        put_version(folder / "sum", 2, adding(10))
        wait_for(lambda: list(model.ready) == [2] and not model.leaving)
        refused = ask(client, 1.0, status=404, sequence_id="old")
        assert "version 1 has left" in refused["error"]
        assert ask(client, 1.0, sequence_id="old", sequence_start=True) == ("2", 10.0)
        client.close()


def test_a_generation_goes_on_through_a_swap(folder, server):
    put_version(folder / "words", 1, GRAPHS[False])
    wait_for(lambda: "words" in server.repository.models and server.repository.is_ready)
    model, client = server.repository.model("words"), Client(server)
    first = model.batcher()
    first.version.seconds = 1.0  # in a thread, so that the server looks at its files
    body = {"tokens": [1], "max_tokens": 400, "temperature": 0}
    client.connection.request("POST", "/v2/models/words/generate_stream", json.dumps(body))
    answer = client.connection.getresponse()
    answer.readline()
    put_version(folder / "words", 2, GRAPHS[False])
    remove_version(folder / "words", 1)
    wait_for(lambda: list(model.ready) == [2])
    rest = answer.read()
    assert rest.endswith(b'"finish_reason":"length","count":400}\n\n')
    assert b'"model_version":"2"' not in rest
    client.close()


def request(x, **parameters):
    made = KNOWN["ModelInferRequest"](model_name="sum")
    made.inputs.add(name="x", datatype="FP32", shape=[1])
    made.raw_input_contents.append(np.asarray([x], "float32").tobytes())
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param"}
    for name, value in parameters.items():
        setattr(made.parameters[name], kinds[type(value)], value)
    return made


def test_a_stream_of_sequences(call):  # noqa: F811
    asked = [
        request(1.0, sequence_id=5, sequence_start=True),
        request(7.0, sequence_id="x", sequence_start=True),
        request(2.0, sequence_id=5),
        request(1.0, sequence_id="none"),
        request(1.0, sequence_id="x", sequence_end=True),
        request(3.0, sequence_id=5, sequence_end=True),
    ]
    answers = call("ModelStreamInfer", stream=True, requests=asked)
    found = [
        np.frombuffer(answer.infer_response.raw_output_contents[0], "float32")[0]
        if not answer.error_message
        else answer.error_message.split("\n")[0]
        for answer in answers
    ]
    assert found == [1.0, 7.0, 3.0, "there is no sequence 'none'", 8.0, 6.0]
