"""Requests of both REST protocols: right ones are understood, wrong ones refused by name."""

import base64
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import eagerflow as ef
from eagerflow.errors import EagerflowError
from eagerflow.serving import ModelVersion
from eagerflow.serving.json_bodies import dumps, loads
from eagerflow.serving.protocols import inference, tensorflow
from tests.serving.models import scaling

SIGNATURE = ModelVersion("scale", 1, scaling(2)).signature
TWO = ModelVersion(
    "two",
    1,
    ef.capture.trace(
        lambda a, b: a * b, *[ef.TensorSpec(("batch", 2), "float32", name=n) for n in "ab"]
    ),
)
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()


# TensorFlow Serving -------------------------------------------------------------------------------


def test_rows_and_columns():
    asked = tensorflow.predict({"instances": [[1, 2, 3], [4, 5, 6]]}, SIGNATURE)
    assert asked == ({"x": [[1, 2, 3], [4, 5, 6]]}, True)
    asked = tensorflow.predict({"instances": [{"a": [1, 2], "b": [3, 4]}]}, TWO.signature)
    assert asked == ({"a": [[1, 2]], "b": [[3, 4]]}, True)
    asked = tensorflow.predict({"inputs": {"a": [[1, 2]], "b": [[3, 4]]}}, TWO.signature)
    assert asked == ({"a": [[1, 2]], "b": [[3, 4]]}, False)
    body = {"signature_name": "serving_default", "inputs": [[1, 2, 3]]}
    asked = tensorflow.predict(body, SIGNATURE)
    assert asked == ({"x": [[1, 2, 3]]}, False)


def test_answers_have_the_form_of_the_request():
    y, total = np.array([[1.0], [2.0]], "float32"), np.array([1.0, 2.0], "float32")
    assert tensorflow.prediction({"y": y}, True) == {"predictions": y}
    rows = tensorflow.prediction({"y": y, "total": total}, True)
    assert json.loads(dumps(rows, [y, total])) == {
        "predictions": [{"y": [1.0], "total": 1.0}, {"y": [2.0], "total": 2.0}]
    }
    assert tensorflow.prediction({"y": y, "total": total}, False) == {
        "outputs": {"y": y, "total": total}
    }


def test_bytes():
    text = base64.b64encode(bytes([0, 7, 255])).decode()
    asked = tensorflow.predict({"instances": [{"b64": text}]}, SIGNATURE)
    assert asked.inputs["x"][0].tolist() == [0, 7, 255]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "object"),
        ({}, "either"),
        ({"instances": [[1]], "inputs": [[1]]}, "either"),
        ({"instances": []}, "one row"),
        ({"instances": 3}, "one row"),
        ({"instances": [{"x": 1}, {"y": 1}]}, "row 1"),
        ({"instances": [{"x": 1}, 1]}, "row 1"),
        ({"instances": [{"b64": "!"}]}, "base64"),
        ({"instances": [{"b64": "\u00e9\ud800"}]}, "base64"),
        ({"instances": [{"b64": 3}]}, "b64"),
    ],
)
def test_wrong_bodies(body, words):
    with pytest.raises(EagerflowError, match=words):
        tensorflow.predict(body, SIGNATURE)


def test_values_without_names_need_one_input():
    with pytest.raises(EagerflowError, match=r"one input.*2"):
        tensorflow.predict({"instances": [[1, 2]]}, TWO.signature)


def test_classify_and_regress():
    asked = tensorflow.examples({"context": {"a": [1, 2]}, "examples": [{"b": [3, 4]}]}, SIGNATURE)
    assert asked.inputs == {"a": [[1, 2]], "b": [[3, 4]]}
    scores = np.array([[0.25, 0.75]], "float32")
    answer = tensorflow.example_answer({"scores": scores}, "classify")
    assert answer == {"results": [[["0", 0.25], ["1", 0.75]]]}
    answer = tensorflow.example_answer({"y": np.array([[1.5], [2.5]])}, "regress")
    assert answer["results"].tolist() == [1.5, 2.5]
    with pytest.raises(EagerflowError, match="score for each class"):
        tensorflow.example_answer({"y": np.zeros(3)}, "classify")
    with pytest.raises(EagerflowError, match="one number"):
        tensorflow.example_answer({"y": np.zeros((3, 2))}, "regress")


# The Open Inference Protocol ----------------------------------------------------------------------


def body_of(array, binary, name="x", **more):
    """A body with one input, and the length of its JSON part."""
    given = {"name": name, "shape": list(array.shape), "datatype": inference.datatype(array.dtype)}
    if binary:
        given["parameters"] = {"binary_data_size": array.nbytes}
    else:
        given["data"] = array.reshape(-1).tolist()
    text = json.dumps({"inputs": [given], **more}).encode()
    return text + (array.tobytes() if binary else b""), str(len(text)) if binary else None


@settings(max_examples=60)
@given(
    st.sampled_from(DTYPES).flatmap(
        lambda t: arrays.arrays(
            t,
            arrays.array_shapes(min_dims=0, max_side=4, min_side=0),
            elements={"allow_nan": False, "allow_infinity": False} if t[0] == "f" else None,
        )
    ),
    st.booleans(),
    st.booleans(),
)
def test_arrays_keep_their_bits_both_ways(array, binary, binary_answer):
    body, size = body_of(array, binary, id="7", parameters={"binary_data_output": binary_answer})
    asked = inference.request(body, size)
    np.testing.assert_array_equal(asked.inputs["x"], array)
    assert asked.inputs["x"].dtype == array.dtype and asked.id == "7"
    asked = asked._replace(binary=frozenset({"y"} if binary_answer else ()))
    text, length = inference.answer(asked, "scale", 1, {"y": array})
    told = loads(text[:length])
    (output,) = told["outputs"]
    assert output["datatype"] == inference.datatype(array.dtype) and told["id"] == "7"
    if binary_answer:
        found = np.frombuffer(text[length:], array.dtype)
    else:
        found = np.asarray(output["data"]).astype(array.dtype)
    np.testing.assert_array_equal(found.reshape(output["shape"]), array)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_that_json_lacks(dtype):
    array = np.array([np.nan, np.inf, -np.inf, 0.1], dtype)
    found = np.asarray(loads(dumps({"y": array}, [array]))["y"]).astype(dtype)
    np.testing.assert_array_equal(found, array)


def test_small_floats():
    array = ef.tensor([1.0, 3.14], "bfloat16").numpy()
    body, size = body_of(array, True)
    assert inference.request(body, size).inputs["x"].tolist() == array.tolist()
    assert loads(dumps({"y": array}, [array])) == {"y": array.astype("float32").tolist()}


X = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
WRONG = [
    ({}, "inputs"),
    ({"inputs": 3}, "inputs"),
    ({"inputs": [3]}, "inputs"),
    ({"inputs": [X | {"name": 3}]}, "name"),
    ({"inputs": [X, X]}, "twice"),
    ({"inputs": [X | {"datatype": "FP31"}]}, "datatype"),
    ({"inputs": [X | {"datatype": "BYTES"}]}, "datatype"),
    ({"inputs": [X | {"shape": [-1, 3]}]}, "shape"),
    ({"inputs": [X | {"shape": [1 << 60]}]}, "shape"),
    ({"inputs": [X | {"shape": [True]}]}, "shape"),
    ({"inputs": [X | {"shape": [1] * 100}]}, "shape"),
    ({"inputs": [X | {"shape": [1 << 40, 1 << 40]}]}, "numbers"),
    ({"inputs": [X | {"data": [1, 2]}]}, "numbers"),
    ({"inputs": [X | {"data": "abc"}]}, "data"),
    ({"inputs": [X | {"data": ["a", "b", "c"]}]}, "numbers"),
    ({"inputs": [X | {"data": [[1], [2, 3]]}]}, "numbers"),
    ({"inputs": [X | {"datatype": "UINT8", "data": [1, 2, 256]}]}, "fit"),
    ({"inputs": [X | {"datatype": "INT64", "data": [1, 2, 0.5]}]}, "fit"),
    ({"inputs": [X | {"parameters": {"binary_data_size": 12}}]}, "binary_data_size"),
    ({"inputs": [X | {"parameters": {"binary_data_size": -1}}]}, "binary_data_size"),
    ({"inputs": [X | {"parameters": 3}]}, "parameters"),
    ({"inputs": [X], "outputs": {}}, "outputs"),
    ({"inputs": [X], "parameters": []}, "parameters"),
    ([], "object"),
]


@pytest.mark.parametrize(("body", "words"), WRONG)
def test_wrong_requests(body, words):
    with pytest.raises(EagerflowError, match=words):
        inference.request(json.dumps(body).encode(), None)


@pytest.mark.parametrize("size", ["-1", "x", "1e3", "99999", "9" * 30, "", "²"])
def test_wrong_lengths(size):
    body, _ = body_of(np.zeros((1, 3), "float32"), True)
    with pytest.raises(EagerflowError):
        inference.request(body, size)


def test_bytes_that_belong_to_nothing():
    body, size = body_of(np.zeros((1, 3), "float32"), True)
    with pytest.raises(EagerflowError, match="belong to none"):
        inference.request(body + b"more", size)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff", b"[" * 200_000, b'{"a": 1e999999}', b"9" * 9999]
)
def test_texts_that_are_no_json(text):
    with pytest.raises(EagerflowError):
        tensorflow.predict(loads(text), SIGNATURE)


# Whatever comes -----------------------------------------------------------------------------------


def mutants(count, seed=0):
    """Bodies of both protocols with some bytes changed, cut out, doubled, or cut off."""
    rng = random.Random(seed)
    array = np.arange(6, dtype="float32").reshape(2, 3)
    seeds = [
        (json.dumps({"instances": array.tolist()}).encode(), None),
        (json.dumps({"inputs": {"x": array.tolist()}}).encode(), None),
        (json.dumps({"instances": [{"x": {"b64": "AAEC"}}, {"x": [1, 2, 3]}]}).encode(), None),
        body_of(array, False, id="1", outputs=[{"name": "y"}]),
        body_of(array, True, parameters={"binary_data_output": True}),
    ]
    pieces = [b"-1", b"1e400", b"null", b"[", b"]", b"{}", b'"', b"\x00", b"NaN", b"9" * 400]
    pieces.append(b"true")
    for _ in range(count):
        body, size = rng.choice(seeds)
        data = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([rng.randrange(256)])
                case 1:
                    data[at:at] = rng.choice(pieces)
                case 2:
                    del data[at : at + rng.randrange(8)]
                case 3:
                    data[at:at] = data[at : at + rng.randrange(20)]
        if size is not None and rng.random() < 0.2:
            size = str(rng.randrange(2 * len(body)))
        yield bytes(data), size


def check_mutants(count, seed=0):
    """Each mutant is answered, or refused with one of our errors; gives how many of each."""
    version = ModelVersion("scale", 1, scaling(2))
    answered = refused = 0
    for data, size in mutants(count, seed):
        for read in (_read_tensorflow, _read_inference):
            try:
                version.run(*read(data, size))
                answered += 1
            except EagerflowError as error:
                assert str(error)
                refused += 1
    return answered, refused


def _read_tensorflow(data, size):
    return (tensorflow.predict(loads(data), SIGNATURE).inputs,)


def _read_inference(data, size):
    asked = inference.request(data, size)
    return asked.inputs, asked.outputs


def test_mutants():
    answered, refused = check_mutants(4_000)
    assert answered > 100 and refused > 4_000


@pytest.mark.soak
def test_many_mutants():
    check_mutants(100_000, 1)
