"""Signatures of a file: asked for by name in both protocols, and batched each for itself."""

import json

import numpy as np
import pytest

import eagerflow as ef
from tests.serving.models import Client, put_version

X = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")


@pytest.fixture
def two(tmp_path):
    """A client of a model with two signatures, of which one takes fewer inputs."""
    kernel = ef.Variable(np.full((3, 2), 0.5, "float32"), name="kernel")

    def network(x, scale):
        features = ef.tanh(x @ kernel)
        return {"y": features * scale, "features": features}

    specs = [ef.TensorSpec(("batch", n), "float32", name=m) for n, m in ((3, "x"), (1, "scale"))]
    graph = ef.capture.trace(network, *specs)
    made = tmp_path / "made.ef"
    graph.save(made, signatures={"embed": ["features"], "scale": {"scaled": "y"}})
    put_version(tmp_path / "models" / "two", 1, ef.capture.load(made))
    with ef.serving.Server(tmp_path / "models", port=0) as server, Client(server) as client:
        yield client, server


WANTED = np.tanh(X @ np.full((3, 2), 0.5, "float32"))


def test_both_protocols(two):
    client, server = two
    asked = {"signature_name": "embed", "instances": X.tolist()}
    told = client.json("/v1/models/two:predict", asked)
    np.testing.assert_allclose(told["predictions"], WANTED, rtol=1e-6)
    x = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": X.reshape(-1).tolist()}
    asked = {"inputs": [x], "parameters": {"signature_name": "embed"}}
    told = client.json("/v2/models/two/infer", asked)
    (output,) = told["outputs"]
    assert output["name"] == "features" and told["model_version"] == "1"
    asked["parameters"]["binary_data_output"] = True
    _, headers, body = client.call("/v2/models/two/infer", asked)
    size = int(headers["inference-header-content-length"])
    found = np.frombuffer(body[size:], "float32").reshape(2, 2)
    np.testing.assert_allclose(found, WANTED, rtol=1e-6)
    assert [row["answered"] for row in client.json("/figures")["models"][0]["rows"]] == ["3"]
    batcher = server.repository.model("two").batcher()
    assert [(n, part.answered) for n, part in batcher.signatures.items()] == [
        ("embed", 3),
        ("scale", 0),
    ]
    names = {id(v) for part in batcher.parts() for v in part.version.graph.variables.values()}
    assert len(names) == 1  # the weights are shared


def test_signatures_are_listed_in_metadata(two):
    client, _ = two
    told = client.json("/v1/models/two/metadata")["metadata"]["signature_def"]["signature_def"]
    assert {name: (list(s["inputs"]), list(s["outputs"])) for name, s in told.items()} == {
        "serving_default": (["x", "scale"], ["y", "features"]),
        "embed": (["x"], ["features"]),
        "scale": (["x", "scale"], ["scaled"]),
    }
    assert "signature embed" in client.call("/")[2].decode()


@pytest.mark.parametrize("name", ["other", 3, ["embed"], {}])
def test_wrong_names(two, name):
    client, _ = two
    for path, asked in (
        ("/v1/models/two:predict", {"signature_name": name, "instances": X.tolist()}),
        ("/v2/models/two/infer", {"inputs": [], "parameters": {"signature_name": name}}),
    ):
        told = client.json(path, asked, 400)["error"]
        assert "no signature" in told and "serving_default, embed, scale" in told
    asked = {"signature_name": "embed", "inputs": {"x": X.tolist(), "scale": [[1], [1]]}}
    assert "no input 'scale'" in client.json("/v1/models/two:predict", asked, 400)["error"]


@pytest.mark.parametrize("name", ["", None, "serving_default"])
def test_the_whole_graph_is_the_default(two, name):
    client, _ = two
    asked = {"signature_name": name, "inputs": {"x": X.tolist(), "scale": [[1.0], [2.0]]}}
    assert list(client.json("/v1/models/two:predict", asked)["outputs"]) == ["y", "features"]


def test_a_shadow_computes_the_same_signature(two):
    client, server = two
    graph = server.repository.model("two").batcher().version.graph
    put_version(server.repository.model("two").path, 2, graph)
    admin = "/v2/repository/models/two/traffic"
    client.json(admin, {"pinned": 1, "shadow": {"version": 2}})
    client.json("/v1/models/two:predict", {"signature_name": "embed", "instances": X.tolist()})
    for _ in range(2000):
        counts = client.json(admin)["found"]["answers"]
        if counts["equal"]:
            break
    assert counts["equal"] == 1, json.dumps(counts)
