"""Products by cuBLASLt: on a look-alike, and on nvmath-python where there is a GPU."""

import inspect
import shutil
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.backends import cublaslt
from eagerflow.extras import load_if_there
from tests.backends.lookalike import Lookalike
from tests.backends.lookalike_cublaslt import (
    DESCRIPTION,
    LAYOUT,
    PREFERENCE,
    ComputeType,
    CudaDataType,
    Epilogue,
    Library,
    gelu,
    gelu_derivative,
    modules,
)
from tests.backends.test_cupy_plans import close, numbers, source
from tests.internals import forget_device_kernels

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture
def library(gpus, monkeypatch):
    """Where cuBLASLt is there; the look-alike's, which tells what was started."""
    forget_device_kernels(monkeypatch)
    if isinstance(gpus, Lookalike):
        for name, module in modules(gpus).items():
            monkeypatch.setitem(sys.modules, name, module)
        return sys.modules["nvmath.bindings.cublasLt"]
    if load_if_there("nvmath") is None:
        pytest.skip("nvmath-python is not installed")
    return None


def started(library):
    """The epilogues of the products since the last question."""
    if library is None:
        pytest.skip("only the look-alike tells what was started")
    found = list(library.started)
    library.started.clear()
    return found


# How arrays are seen --------------------------------------------------------------------------


@st.composite
def placed(draw):
    """Arrays of two to four axes that lie in many ways."""
    shape = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    x = np.arange(np.prod(shape) * 4, dtype=np.float32)[: np.prod(shape)].reshape(shape)
    x = x.transpose(draw(st.permutations(range(len(shape)))))
    cut = [slice(draw(st.integers(0, n - 1)), None, draw(st.integers(1, 2))) for n in x.shape]
    x = x[tuple(cut)]
    if draw(st.booleans()):
        x = np.broadcast_to(x[:1], (3, *x.shape[1:]))
    return x


@settings(max_examples=300, deadline=None)
@given(placed())
def test_matrices_that_are_seen_are_those_of_the_array(x):
    found = cublaslt.seen(x.shape, x.strides, 4)
    plain = x.strides[-1] == 4 or x.strides[-2] == 4 or 1 in x.shape[-2:]
    if found is None:
        assert not plain or x.ndim > 2 or not x.flags.c_contiguous
        return
    assert found.stride >= found.rows
    shape = (found.batch, found.rows, found.columns)
    strides = (4 * found.batch_stride, 4, 4 * found.stride)
    columns = np.lib.stride_tricks.as_strided(x, shape, strides)
    whole = columns if found.turned else columns.mT
    np.testing.assert_array_equal(whole.reshape(-1), x.reshape(-1))


def test_arrays_in_rows_are_always_seen():
    for shape in ((1, 1), (5, 1), (1, 5), (3, 4), (2, 3, 4), (2, 1, 3, 4)):
        x = np.zeros(shape, np.float32)
        assert cublaslt.seen(x.shape, x.strides, 4) is not None
        assert cublaslt.seen(x.mT.shape, x.mT.strides, 4) is not None
    assert cublaslt.seen((0, 3), (12, 4), 4) is None


# Products -------------------------------------------------------------------------------------

SHAPES = [((8, 16), (16, 24)), ((1, 5), (5, 1)), ((2, 8, 4), (4, 8)), ((3, 4, 8), (3, 8, 4))]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_products_match_numpy(dtype, shapes, turned, library, gpus):
    backend = ef.tensor([0.0], device="gpu:0").device.backend
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s).astype(ef.as_dtype(dtype)) for s in shapes]
    expected = np.matmul(*[v.astype(np.float64) for v in values])
    with backend.on(0):
        given = [
            backend.asarray(np.ascontiguousarray(v.mT), None).mT if t else backend.asarray(v, None)
            for v, t in zip(values, turned, strict=True)
        ]
        out = backend.empty(expected.shape, values[0].dtype)
        done = backend.products(0)("default", *given, out)
        folded = len(shapes[0]) == 3 and len(shapes[1]) == 2
        assert done == (not (folded and turned[0]))
        if done:
            tolerance = {"float64": 1e-12, "float32": 1e-5}.get(dtype, 0.05)
            found = backend.to_numpy(out).astype(np.float64)
            np.testing.assert_allclose(found, expected, tolerance, tolerance)


def test_arrays_that_it_does_not_take_are_left(library, gpus):
    backend = ef.tensor([0.0], device="gpu:0").device.backend
    with backend.on(0):
        x = backend.asarray(np.ones((8, 8), np.float32), None)
        out, multiply = backend.empty((8, 8), np.dtype("float32")), backend.products(0)
        assert multiply("default", x, x, out)
        assert not multiply("default", x[:, ::2], x[:4], out), "columns with gaps"
        assert not multiply("default", x[:, 1:], x[1:], out), "no algorithm begins anywhere"
        whole = backend.asarray(np.ones((8, 8), np.int32), None)
        assert not multiply("default", whole, whole, backend.empty((8, 8), whole.dtype))
        vector = backend.asarray(np.ones(8), None)
        assert not multiply("bias", x, x, out, vector), "another dtype"
        narrow = backend.asarray(np.ones((8, 4), np.float32), None)
        made, matrix = backend.empty((8, 4), x.dtype), backend.empty((8, 4), x.dtype)
        assert not multiply("gelu_aux", x, narrow, made, None, matrix), "4 columns"


FORMULAS = {
    "default": lambda y, v, m: (y, None, None),
    "bias": lambda y, v, m: (y + v, None, None),
    "relu": lambda y, v, m: (np.maximum(y, 0), None, None),
    "relu_bias": lambda y, v, m: (np.maximum(y + v, 0), None, None),
    "gelu": lambda y, v, m: (gelu(y), None, None),
    "gelu_bias": lambda y, v, m: (gelu(y + v), None, None),
    "gelu_aux": lambda y, v, m: (gelu(y), None, y),
    "gelu_aux_bias": lambda y, v, m: (gelu(y + v), None, y + v),
    "dgelu": lambda y, v, m: (y * gelu_derivative(m), None, None),
    "dgelu_bgrad": lambda y, v, m: (y * gelu_derivative(m),) * 2 + (None,),
}


@pytest.mark.parametrize("epilogue", FORMULAS)
def test_epilogues(epilogue, library, gpus):
    assert set(FORMULAS) == set(cublaslt.EPILOGUES)
    backend = ef.tensor([0.0], device="gpu:0").device.backend
    rng = np.random.default_rng(1)
    for _ in range(2):  # other arrays, the same plan
        x, w, v, m = (rng.standard_normal(s) for s in ((6, 5), (5, 16), (16,), (6, 16)))
        y, sums, matrix = FORMULAS[epilogue](x @ w, v, m)
        with backend.on(0):
            arrays = [backend.asarray(a.astype(np.float32), None) for a in (x, w, v, m)]
            out = backend.empty((6, 16), np.dtype("float32"))
            vector = arrays[2] if "bias" in epilogue or sums is not None else None
            more = arrays[3] if "aux" in epilogue or "dgelu" in epilogue else None
            assert backend.products(0)(epilogue, *arrays[:2], out, vector, more)
            np.testing.assert_allclose(backend.to_numpy(out), y, 1e-3, 1e-4)
            if sums is not None:
                np.testing.assert_allclose(backend.to_numpy(vector), sums.sum(0), 1e-3, 1e-3)
            if matrix is not None:
                np.testing.assert_allclose(backend.to_numpy(more), matrix, 1e-3, 1e-4)


def test_names_and_numbers_are_those_of_nvmath():
    """The look-alike against the bindings themselves, which need no GPU to be looked at."""
    nvmath = pytest.importorskip("nvmath")
    own, bindings = Library(None), pytest.importorskip("nvmath.bindings.cublasLt")
    for ours, theirs in (
        (CudaDataType, nvmath.CudaDataType),
        (ComputeType, pytest.importorskip("nvmath.bindings.cublas").ComputeType),
        (Epilogue, bindings.Epilogue),
        (own.MatmulDescAttribute, bindings.MatmulDescAttribute),
        (own.MatrixLayoutAttribute, bindings.MatrixLayoutAttribute),
        (own.MatmulPreferenceAttribute, bindings.MatmulPreferenceAttribute),
    ):
        assert {x.name: int(x) for x in ours} == {x.name: int(theirs[x.name]) for x in ours}
    for kind in ("matmul_desc", "matrix_layout", "matmul_preference"):
        known = {"matmul_desc": DESCRIPTION, "matrix_layout": LAYOUT}.get(kind, PREFERENCE)
        for number, dtype in known.values():
            found = getattr(bindings, f"get_{kind}_attribute_dtype")(number)
            assert np.dtype(found).itemsize == np.dtype(dtype).itemsize
        assert hasattr(bindings, f"{kind}_set_attribute") and hasattr(bindings, f"{kind}_destroy")
    assert np.dtype(bindings.matmul_heuristic_result_dtype) == own.matmul_heuristic_result_dtype
    for name in ("matmul", "matmul_algo_get_heuristic", "matrix_layout_create", "create"):
        given = getattr(bindings, name).__doc__.partition("(")[2].partition(")")[0]
        ours = inspect.signature(getattr(own, name)).parameters
        assert len(ours) == (given.count(",") + 1 if given else 0), name


# Plans ----------------------------------------------------------------------------------------


def perceptron(width, activation):
    """A step, and its weights' starting values."""
    shapes = {"w1": (12, width), "b1": (width,), "w2": (width, 8), "b2": (8,)}
    start = {n: numbers(s, seed=i).numpy() * 0.3 for i, (n, s) in enumerate(shapes.items())}
    weights = [ef.Variable(v, name=n, device="gpu:1") for n, v in start.items()]

    def step(x):
        w1, b1, w2, b2 = weights
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.square(activation(x @ w1 + b1) @ w2 + b2))
        for w, g in zip(weights, tape.gradient(loss, weights), strict=True):
            w.assign_sub(g * 0.1)
        return loss

    return step, weights


@pytest.mark.sampled(6)
@pytest.mark.parametrize("activation", [ef.gelu, ef.relu], ids=["gelu", "relu"])
@pytest.mark.parametrize("width", [16, 7])
@pytest.mark.parametrize("shape", [(16, 12), (4, 8, 12)], ids=str)
def test_steps_with_epilogues(activation, width, shape, library, gpus):
    (eager, ours), (step, theirs) = perceptron(width, activation), perceptron(width, activation)
    captured = ef.function(step)
    for number in range(7):
        x = numbers(shape, seed=10 + number)
        found, expected = captured(x), eager(x)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-4)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), 1e-3, 1e-5)
    if library is None:
        return
    started(library)
    gpus.graph_launches = 0
    captured(x)
    assert gpus.graph_launches == 1, "the whole step is one recording"
    names = started(library)
    if activation is ef.gelu and width == 16:
        assert {"gelu_aux_bias", "dgelu_bgrad", "default"} == set(names)
        assert "matmul_add_gelu = (" in source(captured)
    with ef.device("gpu:1"):
        text = captured.graphs[-1].plan().explain()
    assert "cuBLASLt: " in text


@pytest.mark.soak
def test_kernels_that_do_more_are_no_epilogues(library, gpus):
    cases = {
        "bias": lambda x, w, v: x @ w + v,
        "relu_bias": lambda x, w, v: ef.relu(x @ w + v),
        "gelu_bias": lambda x, w, v: ef.gelu(v + x @ w),
        "relu": lambda x, w, v: ef.relu(x @ w),
        "gelu": lambda x, w, v: ef.gelu(x @ w),
        "other bias": lambda x, w, v: x @ w + v[0],
        "exact form": lambda x, w, v: ef.gelu(x @ w + v, approximate=False),
        "more": lambda x, w, v: ef.gelu(x @ w + v) * 2.0,
        "a row": lambda x, w, v: x[0] @ w + v,
        "twice": lambda x, w, v: (ef.relu((y := x @ w) + v), y),
        "itself": lambda x, w, v: (y := x @ w) + y,
    }
    given = [numbers(s, seed=i) for i, s in enumerate([(6, 5), (5, 8), (8,)])]
    for name, f in cases.items():

        def g(x, w, v, f=f):
            return ef.tree.flatten(f(ef.exp(x), w, v))[0]

        captured = ef.function(g)
        for _ in range(4):
            close(captured(*given), g(*given))
        if library is not None:
            found = set(started(library))
            assert found <= ({name} if name in cublaslt.EPILOGUES else {"default"}), name
            assert found or name == "a row"


@pytest.mark.parametrize("there", [False, True], ids=["not installed", "not to be loaded"])
def test_without_it_products_are_the_library_s(there, gpus, monkeypatch):
    if not isinstance(gpus, Lookalike):
        pytest.skip("about the look-alike")
    forget_device_kernels(monkeypatch)
    for name, module in modules(gpus, works=False).items() if there else ():
        monkeypatch.setitem(sys.modules, name, module)
    (eager, _), (step, _) = perceptron(16, ef.gelu), perceptron(16, ef.gelu)
    captured, x = ef.function(step), numbers((16, 12))
    for _ in range(5):
        np.testing.assert_allclose(captured(x).numpy(), eager(x).numpy(), 1e-4)
    with ef.device("gpu:1"):
        assert "the device's library: cuBLASLt is not there" in captured.graphs[-1].plan().explain()


def test_descriptors_are_given_back(library, gpus):
    if library is None:
        pytest.skip("about the look-alike")
    backend = ef.tensor([0.0], device="gpu:0").device.backend
    with backend.on(0):
        multiply = backend.products(0)
        x = backend.asarray(np.ones((8, 8), np.float32), None)
        multiply("default", x, x, backend.empty((8, 8), x.dtype))
        assert len([t for t in library.things.values() if "about" not in t]) == 5
        multiply._planned.clear()
        assert len([t for t in library.things.values() if "about" not in t]) == 1


def test_a_bias_that_is_another_array_each_time(library, gpus, monkeypatch):
    """A plan that points to an old bias is found."""
    backend = ef.tensor([0.0], device="gpu:0").device.backend

    def run(seed):
        rng = np.random.default_rng(seed)
        x, w, v = (rng.standard_normal(s).astype(np.float32) for s in ((6, 5), (5, 16), (16,)))
        with backend.on(0):
            arrays = [backend.asarray(a, None) for a in (x, w, v)]
            out = backend.empty((6, 16), np.dtype("float32"))
            assert backend.products(0)("bias", *arrays[:2], out, arrays[2])
            np.testing.assert_allclose(backend.to_numpy(out), x @ w + v, 1e-4, 1e-5)
            kept.append(arrays)

    kept = []
    run(0)
    run(1)
    if library is not None:
        monkeypatch.setattr(cublaslt.Planned, "point", lambda *_: None)
        with pytest.raises(AssertionError):
            run(2)
