"""Files that are damaged or made to harm: typed errors, in short time and little memory."""

import contextlib
import os
import tracemalloc

import numpy as np
import pytest

import eagerflow as ef
from tests.onnx.reading.models import imported, onnx, parsed

BROKEN = ef.errors.FileFormatError
TYPED = (ef.errors.FileFormatError, ef.errors.ArgumentError)


def refused(model, words, error=BROKEN):
    """Import a model, which is refused with these words."""
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(error, match=words):
        ef.capture.import_onnx(data)


@pytest.fixture
def little_memory():
    """What is done within takes no more than a few megabytes."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26


def identity(**initializer):
    """A model that gives an initializer, whose proto has these fields."""
    model = parsed("net () => (float[2] y) { y = Identity(w) }")
    model.graph.initializer.append(onnx.TensorProto(name="w", **initializer))
    return model


@pytest.mark.parametrize("data", [b"", b"\x00", b"not a model", b"\xff" * 100])
def test_data_that_is_no_model_is_refused(data):
    refused(data, "no graph|not an ONNX model|operators")


def test_a_file_that_ends_early():
    data = identity(dims=[2], data_type=1, float_data=[1, 2]).SerializeToString()
    for n in range(len(data)):
        with pytest.raises(TYPED):
            ef.capture.import_onnx(data[:n])


@pytest.mark.parametrize(
    "fields",
    [
        {"dims": [2], "data_type": 1, "raw_data": b"\0" * 7},
        {"dims": [2], "data_type": 1, "raw_data": b"\0" * 9},
        {"dims": [2], "data_type": 1, "float_data": [1.0]},
        {"dims": [2], "data_type": 1, "float_data": [1.0, 2.0, 3.0]},
        {"dims": [2], "data_type": 10, "int32_data": [1]},
        {"dims": [2], "data_type": 14, "float_data": [1.0, 2.0, 3.0]},
        {"dims": [2**40, 2**40], "data_type": 1, "raw_data": b"\0" * 8},
        {"dims": [2**62], "data_type": 1},
        {"dims": [-2], "data_type": 1, "raw_data": b"\0" * 8},
        {"dims": [1] * 100, "data_type": 1, "raw_data": b"\0" * 4},
        {"dims": [0, 2**62, 2**62], "data_type": 1, "raw_data": b""},
    ],
)
@pytest.mark.usefixtures("little_memory")
def test_tensors_contradicting_their_shape_are_refused(fields):
    refused(identity(**fields), "does not hold|impossible shape")


@pytest.mark.parametrize("number", [0, 8, 18, 21, 22, 23, 99])
def test_element_types_that_there_are_not(number):
    refused(identity(dims=[2], data_type=number, raw_data=b"\0" * 2), "tensors|not exist", TYPED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("net (float x) => (float y) { a = Neg(b) b = Neg(a) y = Neg(b) }", "no value 'b'"),
        ("net (float x) => (float y) { y = Neg(gone) }", "no value 'gone'"),
        ("net (float x) => (float y) { z = Neg(x) }", "no value 'y'"),
        ("net (float x) => (float y) { y = Neg(x) y = Abs(x) }", "two values named 'y'"),
        ("net (float x) => (float x) { x = Neg(x) }", "two values named 'x'"),
        ("net (float x, float x) => (float y) { y = Neg(x) }", "two inputs named 'x'"),
        ("net (float x) => (float y, float y) { y = Neg(x) }", "two outputs named 'y'"),
    ],
)
def test_names(text, words):
    refused(parsed(text), words)


FUNCTIONS = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
net (float x) => (float y) {{ y = own.f0(x) }}
{functions}"""
FUNCTION = """<opset_import: ["" : 21, "own" : 1], domain: "own">
f{i} (a) => (b) {{ {body} }}
"""


def test_functions_that_call_themselves_or_each_other():
    own = FUNCTION.format(i=0, body="b = own.f0(a)")
    refused(parsed(FUNCTIONS.format(functions=own)), "calls itself")
    two = FUNCTION.format(i=0, body="b = own.f1(a)") + FUNCTION.format(i=1, body="b = own.f0(a)")
    refused(parsed(FUNCTIONS.format(functions=two)), "calls itself")


def test_functions_that_grow_without_bound():
    body = "c = own.f{0}(a) b = own.f{0}(c)"
    many = "".join(FUNCTION.format(i=i, body=body.format(i + 1)) for i in range(25))
    text = FUNCTIONS.format(functions=many + FUNCTION.format(i=25, body="b = Neg(a)"))
    refused(parsed(text), "too long to be unrolled")


def test_functions_nested_without_end():
    many = "".join(FUNCTION.format(i=i, body=f"b = own.f{i + 1}(a)") for i in range(100))
    text = FUNCTIONS.format(functions=many + FUNCTION.format(i=100, body="b = Neg(a)"))
    refused(parsed(text), "nested too deeply")


def test_graphs_nested_without_end():
    y = onnx.helper.make_tensor_value_info("z", 1, [])
    node = onnx.helper.make_node("Identity", ["x"], ["z"])
    for _ in range(28):  # protobuf itself ends soon after
        inner = onnx.helper.make_graph([node], "g", [], [y])
        node = onnx.helper.make_node("If", ["c"], ["z"], then_branch=inner)
    model = parsed("net (bool c, float x) => (float y) { y = Neg(x) }")
    model.graph.node.append(node)
    refused(model, "nested too deeply")


LOOP = """net (float x) => (float y)
{{
    n = Constant<value_int = {n}>()
    yes = Constant<value = bool {{1}}>()
    y = Loop ({most}, yes, {start}) <
        body = step (int64 i, bool go, float a) => (bool go, float a) {{ }}
    >
}}"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("most", "start"), [("", "x"), ("", "n"), ("n", "n")])
def test_loops_that_do_not_end(most, start):
    refused(parsed(LOOP.format(n=2**62, most=most, start=start)), "too long to be unrolled")


@pytest.mark.parametrize(
    "line",
    [
        "a = ConstantOfShape(big)",
        "a = Expand(one, big)",
        "a = Tile(small, big)",
        "a = Range(zero, far, step)",
        "a = OneHot(zero, far, pair)",
        "b = ConstantOfShape(big) a = EyeLike(b)",
        "a = Pad(small, pads)",
        "a = CenterCropPad(small, big)",
        "b = Expand(one, big) a = ReduceSum(b)",
    ],
)
@pytest.mark.usefixtures("little_memory")
def test_shapes_that_no_file_promises(line):
    model = parsed(
        f"""net (float x) => (float y)
        {{
            big = Constant<value_ints = [300000, 300000]>()
            pads = Constant<value_ints = [300000, 300000, 0, 0]>()
            pair = Constant<value_floats = [0.0, 1.0]>()
            zero = Constant<value_int = 0>()
            far = Constant<value_int = 90000000000>()
            step = Constant<value_int = 1>()
            one = Constant<value_float = 1.0>()
            small = ConstantOfShape(two)
            {line}
            s = ReduceSum<keepdims = 0>(a)
            t = CastLike(s, x)
            y = Add(x, t)
        }}"""
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1]), "two"))
    with contextlib.suppress(*TYPED):
        imported(model)  # it says how large it is, and nothing of it is computed


# Data in other files ------------------------------------------------------------------------------


def external(folder, location, **more):
    """A model whose tensor is in another file."""
    model = identity(dims=[2], data_type=1, data_location=1)
    for key, value in {"location": location, **more}.items():
        model.graph.initializer[0].external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(b"\0" * 4 + np.float32([1, 2]).tobytes())
    path = external(tmp_path, "weights/w.bin", offset=4, length=8)
    assert ef.capture.import_onnx(path).outputs[0].constant.numpy().tolist() == [1, 2]


def test_external_data_of_bytes_is_refused(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    refused(external(tmp_path, "w.bin").read_bytes(), "in another file")


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "sub/../../secret.bin",
        "/etc/hostname",
        "",
        ".",
        "gone.bin",
        "C:\\x",
        "a\0b",
    ],
)
def test_external_data_outside_of_the_folder(tmp_path, location):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8)
    with pytest.raises(BROKEN, match="not a file within"):
        ef.capture.import_onnx(external(inner, location))


def test_external_data_behind_links(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8)
    os.symlink(tmp_path / "secret.bin", inner / "w.bin")
    os.symlink(tmp_path, inner / "folder")
    for location in ("w.bin", "folder/secret.bin"):
        with pytest.raises(BROKEN, match="not a file within"):
            ef.capture.import_onnx(external(inner, location))


@pytest.mark.parametrize(
    "place", [{"offset": v} for v in (1, -1, "x", 2**40)] + [{"length": 4}, {"length": 2**70}]
)
def test_external_data_that_is_not_there(tmp_path, place):
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    with pytest.raises(BROKEN, match=r"does not fit|no place"):
        ef.capture.import_onnx(external(tmp_path, "w.bin", **place))


# Sparse tensors -----------------------------------------------------------------------------------


def sparse(indices, dims=(4,), values=(1.0, 2.0)):
    model = parsed("net () => (float[4] y) { y = Identity(w) }")
    model.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(
            onnx.numpy_helper.from_array(np.float32(values), "w"),
            onnx.numpy_helper.from_array(np.array(indices)),
            dims,
        )
    )
    return model


def test_sparse_tensors():
    for indices in ([1, 3], [[1], [3]]):
        graph = imported(sparse(indices))
        assert graph.outputs[0].constant.numpy().tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("indices", "dims"),
    [([1, 4], (4,)), ([-1, 2], (4,)), ([1], (4,)), ([[1, 1], [2, 2]], (4,)), ([1, 2], (2**40,))],
)
def test_sparse_tensors_that_do_not_fit(indices, dims):
    refused(sparse(indices, dims), "places|outside|too large")
