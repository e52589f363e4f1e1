"""The examples of TensorFlow Serving's page about its REST API, by the clients that people use.

Source: tensorflow.org/tfx/serving/api_rest. Its model half_plus_three is 0.5 x + 3, version 123.
Texts as values are not part of our dtypes: they have a test of their refusal.
"""

import json
import math
import shutil
import subprocess

import pytest

import eagerflow as ef
from tests.serving.models import put_version


def with_curl(url, body=None):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["curl", "-s", "-m", "20", "-w", "\n%{http_code} %{content_type}", url]
    command += [] if body is None else ["-d", body, "-X", "POST"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text, _, last = told.rpartition("\n")
    status, _, kind = last.partition(" ")
    return int(status), kind, text


def with_package(name):
    def call(url, body=None):
        package = pytest.importorskip(name, reason=f"{name} is not installed")
        data = {"data": body} if name == "requests" else {"content": body}
        answer = package.get(url) if body is None else package.post(url, timeout=20, **data)
        return answer.status_code, answer.headers["content-type"], answer.text

    return call


CLIENTS = {"curl": with_curl, "httpx": with_package("httpx"), "requests": with_package("requests")}
FLOATS = ef.TensorSpec(("batch",), "float32")
REGRESS = "tensorflow/serving/regress"


def half_plus(number):
    return ef.capture.trace(lambda x: {"y": x * 0.5 + float(number)}, FLOATS)


def sensors(tag, signal, sensor):
    return {"tags": tag, "sums": ef.sum(signal, axis=1) + ef.sum(sensor, axis=(1, 2))}


def classes(image, caption):
    return ef.stack([ef.sum(ef.astype(image, "float32"), axis=1), caption], axis=1)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    graph = half_plus(3)
    put_version(folder / "half_plus_three", 123, graph)
    path = folder / "half_plus_three" / "123" / "model.ef"
    graph.save(path, signatures={REGRESS: ["y"]})
    put_version(folder / "half_plus_two", 1, half_plus(2))
    pairs = ef.TensorSpec(("batch", 1, 2), "float32")
    ef.capture.trace(lambda x: x + 1.0, pairs).save(folder / "pairs.ef")
    specs = [(("batch",), "int64"), (("batch", 5), "float32"), (("batch", 2, 2), "float32")]
    traced = ef.capture.trace(sensors, *[ef.TensorSpec(*spec) for spec in specs])
    traced.save(folder / "sensors.ef")
    specs = [ef.TensorSpec((name,), "float32") for name in ("rows", "others")]
    traced = ef.capture.trace(lambda a, b: {"a": a * 2.0, "b": b * 3.0}, *specs)
    traced.save(folder / "uneven.ef")
    traced = ef.capture.trace(classes, ef.TensorSpec(("batch", 11), "uint8"), FLOATS)
    traced.save(folder / "objects.ef", signatures={"classify_objects": traced.outputs.names})
    with ef.serving.Server(folder, port=0) as server:
        yield f"{server.url}/v1/models/"


@pytest.fixture(params=CLIENTS)
def call(request, url):
    """A function that asks the server with one of the clients: the JSON of an answer."""

    def asked(path, body=None, status=200):
        body = body if isinstance(body, str | None) else json.dumps(body)
        found, kind, text = CLIENTS[request.param](url + path, body)
        assert (found, kind) == (status, "application/json"), text
        return json.loads(text)

    return asked


def test_status(call):
    good = {"error_code": "OK", "error_message": ""}
    wanted = {"version": "123", "state": "AVAILABLE", "status": good}
    assert call("half_plus_three") == {"model_version_status": [wanted]}
    assert call("half_plus_three/versions/123") == {"model_version_status": [wanted]}


def test_metadata(call):
    told = call("half_plus_three/versions/123/metadata")
    assert told["model_spec"] == {"name": "half_plus_three", "signature_name": "", "version": "123"}
    signatures = told["metadata"]["signature_def"]["signature_def"]
    assert set(signatures) == {"serving_default", REGRESS}
    (x,) = signatures[REGRESS]["inputs"].values()
    assert x["dtype"] == "DT_FLOAT" and x["tensor_shape"]["dim"][0]["size"] == "-1"


def test_the_examples_at_the_end_of_the_page(call):
    asked = '{"instances": [1.0,2.0,5.0]}'
    assert call("half_plus_three:predict", asked) == {"predictions": [3.5, 4.0, 5.5]}
    assert call("half_plus_two:predict", asked) == {"predictions": [2.5, 3.0, 4.5]}
    asked = f'{{"signature_name": "{REGRESS}", "examples": [{{"x": 1.0}}, {{"x": 2.0}}]}}'
    assert call("half_plus_three:regress", asked) == {"results": [3.5, 4.0]}
    told = call("half:predict", '{"instances": [1.0,5.0]}', 404)
    assert list(told) == ["error"] and "no model 'half'" in told["error"]


def test_rows(call):
    asked = '{"instances": [ [[1, 2]], [[3, 4]] ]}'
    assert call("pairs:predict", asked) == {"predictions": [[[2.0, 3.0]], [[4.0, 5.0]]]}
    rows = [
        {"tag": 1, "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
        {"tag": 2, "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]},
    ]
    assert call("sensors:predict", {"instances": rows}) == {
        "predictions": [{"tags": 1, "sums": 25.0}, {"tags": 2, "sums": 38.0}]
    }


def test_columns(call):
    asked = {
        "tag": [1, 2],
        "signal": [[1, 2, 3, 4, 5], [3, 4, 1, 2, 5]],
        "sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]],
    }
    assert call("sensors:predict", {"inputs": asked}) == {
        "outputs": {"tags": [1, 2], "sums": [25.0, 38.0]}
    }
    assert call("half_plus_two:predict", {"inputs": [1.0, 2.0]}) == {"outputs": [2.5, 3.0]}
    assert call("half_plus_two:predict", {"inputs": {"x": [1.0]}}) == {"outputs": [2.5]}
    uneven = {"inputs": {"a": [1.0, 2.0, 3.0], "b": [1.0]}}
    assert call("uneven:predict", uneven) == {"outputs": {"a": [2.0, 4.0, 6.0], "b": [3.0]}}


def test_bytes(call):
    images = ["aW1hZ2UgYnl0ZXM=", "aW1hZ2UgYnl0ZXQ="]
    rows = [{"image": {"b64": text}, "caption": n} for n, text in enumerate(images)]
    found = call("objects:classify", {"signature_name": "classify_objects", "examples": rows})
    sums = [sum(b"image bytes"), sum(b"image bytet")]
    assert found == {"results": [[["0", sums[0]], ["1", 0.0]], [["0", sums[1]], ["1", 1.0]]]}
    shared = {"context": {"caption": 7.0}, "examples": [{"image": {"b64": images[0]}}]}
    assert call("objects:classify", shared)["results"][0][1] == ["1", 7.0]


def test_numbers_that_json_does_not_know(call):
    found = call("half_plus_two:predict", '{"instances": [ 1.0, NaN, Infinity, -Infinity ]}')
    first, nan, *others = found["predictions"]
    assert first == 2.5 and math.isnan(nan) and others == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("half_plus_two:predict", '{"instances": ["foo", "bar", "baz"]}', "not numbers"),
        ("half_plus_two:predict", '{"instances": [1.0], "inputs": [1.0]}', "either 'instances'"),
        ("half_plus_two:predict", '{"signature_name": "none", "instances": [1.0]}', "none"),
        ("half_plus_two:regress", '{"examples": [{"z": 1.0}]}', "'x' is missing"),
        ("half_plus_two:predict", "{instances", "not JSON"),
    ],
)
def test_invalid_requests_get_an_error_message(call, path, body, words):
    told = call(path, body, 400)
    assert list(told) == ["error"] and words in told["error"], told
