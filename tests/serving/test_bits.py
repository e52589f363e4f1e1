"""Answers have the bits of the graph, alone and in batches."""

import json
import threading

import numpy as np
import pytest

import eagerflow as ef
from tests.serving.models import Client

ROWS = np.random.default_rng(0).standard_normal((24, 16)).astype("float32")


def by_rows(x):
    """Ops that work row by row."""
    h = ef.gelu(ef.layer_norm(x, ef.ones((16,)), ef.zeros((16,))))
    return ef.softmax(h * 3.0 + ef.tanh(x))


def products(x):
    w = ef.tensor(np.random.default_rng(1).standard_normal((16, 16)).astype("float32"))
    return ef.softmax(by_rows(x) @ w)


def traced(f):
    return ef.capture.trace(f, ef.TensorSpec(("batch", 16), "float32"))


def answers(server, rows):
    """What a server answers for rows in binary form, one request each, many at once."""
    found = [None] * len(rows)

    def ask(indices):
        client = Client(server)
        for i in indices:
            tensor = {
                "name": "x",
                "shape": list(rows[i].shape),
                "datatype": "FP32",
                "parameters": {"binary_data_size": rows[i].nbytes},
            }
            text = json.dumps(
                {"inputs": [tensor], "parameters": {"binary_data_output": True}}
            ).encode()
            headers = {"Inference-Header-Content-Length": str(len(text))}
            path = "/v2/models/graph/infer"
            status, told, body = client.call(path, text + rows[i].tobytes(), headers)
            assert status == 200, body
            length = int(told["inference-header-content-length"])
            found[i] = np.frombuffer(body[length:], "float32").reshape(rows[i].shape)
        client.close()

    threads = [threading.Thread(target=ask, args=(range(k, len(rows), 6),)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("wait", [0.0, 0.02])
def test_rows_equal_the_graph_bitwise(tmp_path, workers, wait):
    graph = traced(by_rows)
    graph.save(tmp_path / "graph.ef")
    with ef.capture.Session(graph, numerics="exact") as session:
        name = graph.outputs.names[0]
        wanted = [session.run(name, {"x": row[None]}).numpy() for row in ROWS]
        whole = session.run(name, {"x": ROWS}).numpy()
    assert np.concatenate(wanted).tobytes() == whole.tobytes()
    batching = ef.serving.Batching(8, max_wait=wait)
    options = {"batching": batching, "workers": workers, "numerics": "exact"}
    with ef.serving.Server(tmp_path / "graph.ef", port=0, **options) as server:
        alone = answers(server, [row[None] for row in ROWS])
        several = answers(server, [ROWS[i : i + 3] for i in range(0, 24, 3)])
        batches = server.repository.models["graph"].batcher().statistics().batches
    assert np.concatenate(alone).tobytes() == whole.tobytes()
    assert np.concatenate(several).tobytes() == whole.tobytes()
    if wait:
        assert batches < len(alone) + len(several)  # some were joined


def test_products_differ_by_units_of_the_last_place(tmp_path):
    graph = traced(products)
    graph.save(tmp_path / "graph.ef")
    wanted = graph(ef.tensor(ROWS)).numpy()
    with ef.serving.Server(tmp_path / "graph.ef", port=0) as server:
        found = np.concatenate(answers(server, [row[None] for row in ROWS]))
    np.testing.assert_array_max_ulp(found, wanted, 32)


def test_another_word_is_refused(tmp_path):
    traced(by_rows).save(tmp_path / "graph.ef")
    with pytest.raises(ef.errors.ArgumentError, match="is not a valid value"):
        ef.serving.Server(tmp_path / "graph.ef", numerics="nearly")


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float16", "bfloat16"])
def test_single_numbers(dtype, tmp_path):
    def f(x):
        return {"one": ef.astype(ef.max(x), dtype), "all": x}

    ef.capture.trace(f, ef.TensorSpec((2, 3), "float32")).save(tmp_path / "graph.ef")
    with ef.serving.Server(tmp_path / "graph.ef", port=0) as server, Client(server) as client:
        rows = np.arange(6.0).reshape(2, 3).tolist()
        told = client.json("/v1/models/graph:predict", {"inputs": {"x": rows}})
    assert told["outputs"] == {"one": True if dtype == "bool" else 5, "all": rows}
