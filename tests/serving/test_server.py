"""A server as clients see it: routes, errors, limits, swaps under load, and its end."""

import json
import re
import socket
import threading
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.serving import Limits
from tests.serving.models import Client, put_broken, put_version, remove_version, scaling

ROW = {"instances": [[1.0, 2.0, 3.0]]}
PREDICT = "/v1/models/scale:predict"
INFER = "/v2/models/scale/infer"


def until(true, seconds=20):
    """Wait until something is true; fails if it does not become so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_predictions_of_both_protocols_are_those_of_the_graph(client):
    x = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
    wanted = scaling(1)(x)
    found = client.json(PREDICT, {"inputs": x.tolist()})["outputs"]
    np.testing.assert_array_equal(np.float32(found["y"]), wanted["y"].numpy())
    np.testing.assert_array_equal(np.float32(found["total"]), wanted["total"].numpy())
    text = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "shape": [5, 3],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 60},
                }
            ],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    status, answered, body = client.call(INFER, text + x.tobytes(), headers)
    length = int(answered["inference-header-content-length"])
    assert status == 200 and [o["name"] for o in json.loads(body[:length])["outputs"]] == ["y"]
    found = np.frombuffer(body[length:], "float32").reshape(5, 3)
    np.testing.assert_array_equal(found, wanted["y"].numpy())


def test_model_metadata_endpoints(client):
    state = client.json("/v1/models/scale")["model_version_status"]
    assert [(s["version"], s["state"]) for s in state] == [("1", "AVAILABLE")]
    told = client.json("/v1/models/scale/versions/1/metadata")["metadata"]["signature_def"]
    described = told["signature_def"]["serving_default"]["inputs"]["x"]
    assert described["dtype"] == "DT_FLOAT"
    assert [d["size"] for d in described["tensor_shape"]["dim"]] == ["-1", "3"]
    told = client.json("/v2/models/scale")
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert told["versions"] == ["1"]
    assert client.json("/v2/models/scale/versions/1/ready")["ready"] is True
    assert client.json("/v2/health/live")["live"] and client.json("/v2/health/ready")["ready"]
    assert "binary_tensor_data" in client.json("/v2")["extensions"]
    index = client.json("/v2/repository/index", {})
    assert index == [{"name": "scale", "version": "1", "state": "READY", "reason": ""}]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/models/none:predict", ROW, 404, "no model 'none'"),
        ("/v1/models/scale/versions/9:predict", ROW, 404, "no version 9"),
        ("/v1/models/scale/versions/x:predict", ROW, 400, "number of the version"),
        ("/v1/models/scale/labels/x:predict", ROW, 404, "no label 'x'"),
        ("/v1/models/..%2f..%2fetc:predict", ROW, 404, "Not Found"),
        ("/v1/models/..:predict", ROW, 404, "no model"),
        ("/v3", ROW, 404, "POST /v3: Not Found"),
        (INFER, None, 405, "Not Allowed"),
        (PREDICT, "{", 400, "not JSON"),
        (PREDICT, {"instances": [[1.0, 2.0]]}, 400, r"x: shape mismatch.*\(batch, 3\)"),
        (PREDICT, {"instances": [["a", "b", "c"]]}, 400, "x: the values are not numbers"),
        (PREDICT, {"inputs": {"y": [[1, 2, 3]]}}, 400, "'x' is missing"),
        (PREDICT, {"inputs": {"x": [[1, 2, 3]], "y": 1}}, 400, "no input 'y'"),
        (INFER, {"inputs": []}, 400, "'x' is missing"),
    ],
)
def test_errors_describe_the_problem(client, path, body, status, words):
    told = client.json(path, body, status)["error"]
    assert not "".join(told.splitlines()).startswith("Traceback")
    assert re.search(words, told, re.DOTALL), told


def test_models_are_unloaded_and_loaded_by_request(client):
    client.json("/v2/repository/models/scale/unload", {})
    assert "no version" in client.json(PREDICT, ROW, 503)["error"]
    client.json("/v2/repository/models/scale/load", {})
    assert client.json(PREDICT, ROW)["predictions"][0]["total"] == 6
    assert "no model" in client.json("/v2/repository/models/none/load", {}, 404)["error"]


def test_bodies_beyond_the_limit(folder):
    with ef.serving.Server(folder, port=0, limits=Limits(1000, 0.3)) as server:
        client = Client(server)
        assert "1,000 bytes" in client.json(PREDICT, " " * 2000, 413)["error"]
        client.close()
        with socket.create_connection((server.host, server.port), 10) as slow:
            slow.sendall(
                f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n".encode()
            )
            assert b"504" in slow.recv(1000).splitlines()[0]
        with socket.create_connection((server.host, server.port), 10) as large:
            large.sendall(
                f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                + b"7d0\r\n"
                + b" " * 2000
                + b"\r\n"
            )
            assert b"413" in large.recv(1000).splitlines()[0]


def test_connections_without_a_request_are_ended(folder):
    with ef.serving.Server(folder, port=0, limits=Limits(body_seconds=0.2)) as server:
        address = server.host, server.port
        with (
            socket.create_connection(address, 10) as silent,
            socket.create_connection(address, 10) as slow,
        ):
            begin = time.monotonic()
            slow.sendall(f"POST {PREDICT} HTTP/1.1\r\nHo".encode())
            assert slow.recv(1) == silent.recv(1) == b""
            assert 0.1 < time.monotonic() - begin < 9
        client = Client(server)
        client.json(PREDICT, ROW)
        kept = client.connection.sock
        time.sleep(1.0)  # uvicorn keeps it for five seconds
        assert client.json(PREDICT, ROW)["predictions"][0]["total"] == 6
        assert client.connection.sock is kept
        client.close()


def test_numbers_are_counted(client):
    for _ in range(3):
        client.json(PREDICT, ROW)
    client.json("/v1/models/none:predict", ROW, 404)
    client.json(PREDICT, {"instances": []}, 400)
    text = client.call("/metrics")[2].decode()
    assert 'eagerflow_request_seconds_count{model="scale",version="1"} 3.0' in text
    assert 'eagerflow_refused_requests_total{model="",status="404"} 1.0' in text
    assert 'eagerflow_refused_requests_total{model="scale",status="400"} 1.0' in text
    assert 'eagerflow_waiting_requests{model="scale",version="1"} 0.0' in text


def swaps_under_load(server, folder, swaps, threads=3, between=lambda: None):
    """Requests all the while as versions come and go; gives how many were answered.

    ``between`` is called before each change.
    """
    answered, wrong, stop = [], [], threading.Event()
    inputs = [[1.0, 0.0, 2.0]]

    def ask():
        client = Client(server)
        try:
            while not stop.is_set():
                told = client.json(PREDICT, {"inputs": inputs})["outputs"]
                version = told["y"][0][0]
                if told["y"] != [[version, 0.0, 2 * version]] or told["total"] != [3 * version]:
                    wrong.append(told)
                answered.append(version)
        except Exception as error:
            wrong.append(error)
        finally:
            client.close()

    workers = [threading.Thread(target=ask) for _ in range(threads)]
    for worker in workers:
        worker.start()
    model = server.repository.model("scale")
    for number in range(2, 2 + swaps):
        between()
        if number % 4 == 0:
            put_broken(folder, number)
            until(lambda n=number: n in model.broken)
        else:
            put_version(folder, number)
            until(lambda n=number: model.current == n)
            old = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
            for n in sorted(old)[:-2]:
                remove_version(folder, n)
    stop.set()
    for worker in workers:
        worker.join()
    assert not wrong, wrong[:3]
    assert len(set(answered)) > swaps // 3
    return len(answered)


def test_swaps_lose_and_mix_nothing(server, folder):
    assert swaps_under_load(server, folder / "scale", 12) > 50


@pytest.mark.soak
def test_many_swaps_lose_and_mix_nothing(server, folder):
    swaps_under_load(server, folder / "scale", 120)


def test_received_requests_are_answered_before_shutdown(folder):
    server = ef.serving.Server(folder, port=0).start()
    client = Client(server)
    batcher = server.repository.model("scale").batcher()
    entered, go = threading.Event(), threading.Event()
    compute = batcher.version.compute

    def slow(*args):
        entered.set()
        go.wait(10)
        return compute(*args)

    batcher.version.compute, batcher.version.seconds = slow, 1.0
    found = []
    asking = threading.Thread(target=lambda: found.append(client.json(PREDICT, ROW)))
    asking.start()
    entered.wait(10)
    ending = threading.Thread(target=server.stop)
    ending.start()
    time.sleep(0.05)
    go.set()
    asking.join(20)
    ending.join(20)
    assert found[0]["predictions"][0]["total"] == 6
    with pytest.raises(OSError):
        socket.create_connection((server.host, server.port), 1)


def test_a_port_that_is_taken(server, folder):
    with pytest.raises(EagerflowError, match=r"cannot be listened on"):
        ef.serving.Server(folder, port=server.port).start()


def test_models_that_are_not_there(tmp_path):
    with pytest.raises(ArgumentError, match="no file or folder"):
        ef.serving.Server(tmp_path / "none", port=0).start()
