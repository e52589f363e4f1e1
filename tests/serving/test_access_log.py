"""The log of requests: a line for each, with an id, times and sizes, and no secrets."""

import json
import logging
import subprocess
import sys

import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, MissingExtraError
from eagerflow.serving import Access, Server
from eagerflow.serving.access_log import Journal
from tests.serving.models import Client
from tests.serving.test_server import PREDICT, ROW

SECRET = "a secret that is long enough"
FIELDS = "time level id method path model version status rows queue compute bytes seconds".split()


def lines(capsys):
    """The lines of JSON that a server wrote, and what else there was."""
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_line_for_each_request(folder, capsys, workers):
    access = Access((SECRET,))
    with Server(folder, port=0, log="json", access=access, workers=workers) as server:
        client = Client(server)
        headers = {"authorization": f"Bearer {SECRET}"}
        many = {"instances": [[1.0, 2.0, 3.0]] * 40}
        found = client.call(PREDICT + "?key=word", many, headers | {"x-request-id": "my-1"})
        assert found[0] == 200 and found[1]["x-request-id"] == "my-1"
        for id in ("a b", "x" * 129, "é", ""):
            made = client.call(PREDICT, {}, headers | {"x-request-id": id.encode()})
            assert made[0] == 400 and len(made[1]["x-request-id"]) == 32
        assert client.call("/v1/models/none", None, headers)[0] == 404
        assert client.call(PREDICT, ROW)[0] == 401
        client.close()
    text = capsys.readouterr().err
    told = [json.loads(line) for line in text.splitlines()]
    first = told[0]
    assert list(first) == FIELDS
    assert (first["id"], first["path"], first["method"]) == ("my-1", PREDICT, "POST")
    assert (first["model"], first["version"], first["rows"]) == ("scale", 1, 40)
    assert 0 < first["compute"] <= first["seconds"] and 0 <= first["queue"] <= first["seconds"]
    assert first["bytes"] == len(found[2])
    assert [line["status"] for line in told] == [200, 400, 400, 400, 400, 404, 401]
    assert SECRET not in text and "word" not in text and "instances" not in text


def test_handlers_of_the_program_stay_open(folder):
    closed = []

    class Handler(logging.StreamHandler):
        def close(self):
            closed.append(self)
            super().close()

    handler = Handler()
    with Server(folder, port=0, log="json"):
        pass
    assert closed == []
    handler.close()


def test_errors_of_the_server_carry_the_id(folder, capsys):
    with Server(folder, port=0, log="json") as server:
        server.repository.model("scale").batcher().version.compute = lambda *args: 1 / 0
        client = Client(server)
        assert client.call(PREDICT, ROW, {"x-request-id": "odd"})[0] == 500
        client.close()
    failed, request = lines(capsys)
    assert failed["id"] == request["id"] == "odd"
    assert "ZeroDivisionError" in failed["message"] and request["status"] == 500


def test_text_and_handlers_of_ones_own(folder, capsys, caplog):
    for form in ("text", "logging", "off"):
        caplog.clear()
        with caplog.at_level(logging.INFO), Server(folder, port=0, log=form) as server:
            client = Client(server)
            headers = client.call(PREDICT, ROW)[1]
            client.close()
        assert ("x-request-id" in headers) == (form != "off")
        assert (f"POST {PREDICT} 200 id=" in capsys.readouterr().err) == (form == "text")
        assert (f"POST {PREDICT} 200" in caplog.text) == (form == "logging")
    with pytest.raises(ArgumentError, match="json"):
        Server(folder, port=0, log="xml").start()


def test_calls_of_grpc_are_noted(folder, capsys):
    grpc = pytest.importorskip("grpc")
    from eagerflow.serving.protocols.messages import messages

    with (
        Server(folder, port=0, grpc_port=0, log="json") as server,
        grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel,
    ):
        known = messages()
        ask = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=known["ModelInferResponse"].FromString,
        )
        request = known["ModelInferRequest"](model_name="scale")
        request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
        request.raw_input_contents.append(bytes(12))
        call = ask.with_call(request, metadata=[("x-request-id", "g-1")], timeout=20)[1]
        assert dict(call.trailing_metadata())["x-request-id"] == "g-1"
        request.model_name = "none"
        with pytest.raises(grpc.RpcError):
            ask(request, timeout=20)
    good, bad = lines(capsys)
    assert (good["method"], good["id"], good["status"], good["rows"]) == ("gRPC", "g-1", 200, 1)
    assert bad["status"] == 404


TRACED = """
import sys, urllib.request
import eagerflow as ef
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
with ef.serving.Server(sys.argv[1], port=0, trace=True) as server:
    body = b'{"instances": [[1.0, 2.0, 3.0]]}'
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    url = server.url + "/v1/models/scale:predict"
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
for s in kept.get_finished_spans():
    inside = f"{s.parent.span_id:x}" if s.parent else None
    print(s.name, f"{s.context.trace_id:x}", inside, s.start_time <= s.end_time, sep="|")
"""


def test_spans_are_within_the_trace_of_the_client(folder):
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    done = subprocess.run(
        [sys.executable, "-c", TRACED, str(folder)], capture_output=True, text=True, timeout=120
    )
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["queue", "compute", f"POST {PREDICT}"], done.stderr
    assert {row[1] for row in rows} == {"af7651916cd43dd8448eb211c80319c"}
    assert rows[2][2] == "b7ad6b7169203331" and rows[0][2] == rows[1][2]
    assert all(row[3] == "True" for row in rows)


def test_tracing_without_its_package(monkeypatch):
    monkeypatch.setattr(ef.extras, "load_if_there", lambda module: None)
    with pytest.raises(MissingExtraError, match=r"eagerflow\[otel\]"):
        Journal(trace=True)
