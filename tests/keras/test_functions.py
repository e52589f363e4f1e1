"""The functions behind ``keras.ops``: all are there, and captured ones give what eager ones do."""

import ast
import inspect
import pathlib

import keras
import keras.src
import ml_dtypes
import numpy as np
import pytest
from keras import ops

import eagerflow as ef
from eagerflow.keras import backend

RNG = np.random.default_rng(0)
X = RNG.uniform(0.1, 1.0, (4, 6)).astype("float32")
IMAGES = RNG.uniform(0.0, 1.0, (4, 8, 6, 3)).astype("float32")


def functions_of(module):
    """The functions that Keras's own backend for NumPy defines in a module, by reading it."""
    # By its path: a package that is imported takes the place of our module in keras.src.backend.
    path = pathlib.Path(keras.src.__file__).parent / "backend" / "numpy" / f"{module}.py"
    found = [p.name for p in ast.parse(path.read_text()).body if isinstance(p, ast.FunctionDef)]
    return [name for name in found if not name.startswith("_")]


@pytest.mark.parametrize("module", ["image", "linalg", "math", "nn", "numpy", "random"])
def test_each_function_of_a_backend_is_there(module):
    ours = vars(getattr(backend, module))
    names = functions_of(module)
    assert len(names) >= 10
    assert [name for name in names if not callable(ours.get(name))] == []


CAPTURED = {
    "average": lambda x: ops.average(x, axis=1, weights=X[0]),
    "correlate": lambda x: ops.correlate(x[0], X[1, :3], "same"),
    "cross": lambda x: ops.cross(x[:, :3], x[:, 3:]),
    "cumsum": lambda x: ops.cumsum(x, axis=0),
    "divide_no_nan": lambda x: ops.divide_no_nan(x, x > 0.5),
    "extract_sequences": lambda x: ops.extract_sequences(x, 3, 2),
    "geomspace": lambda x: ops.geomspace(x[0], x[1], 3),
    "moments": lambda x: ops.moments(x, [0])[1],
    "nanmax": lambda x: ops.nanmax(ops.where(x > 0.5, x, float("nan")), axis=1),
    "nextafter": lambda x: ops.nextafter(ops.cast(x, "bfloat16"), 1),
    "one_hot": lambda x: ops.one_hot(ops.cast(x * 4, "int32"), 4),
    "quantile": lambda x: ops.quantile(x, [0.25, 0.5], axis=1),
    "round": lambda x: ops.round(x, decimals=2),
    "softmax": lambda x: ops.softmax(x, axis=(0, 1)),
    "sparse_categorical_crossentropy": lambda x: ops.sparse_categorical_crossentropy(
        ops.argmin(x, axis=-1), x
    ),
    "stft": lambda x: ops.stft(x, 4, 2, 4)[0],
    "take_along_axis": lambda x: ops.take_along_axis(x, ops.argsort(x, axis=1), axis=1),
    "top_k": lambda x: ops.top_k(x, 2)[0],
    "vectorize": lambda x: ops.vectorize(ops.sum, signature="(n)->()")(x),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_with_a_free_size_is_eager(name):
    expected = np.asarray(CAPTURED[name](X), dtype="float32")
    graph = ef.capture.trace(CAPTURED[name], ef.TensorSpec((None, 6), "float32"))
    np.testing.assert_allclose(np.asarray(graph(X), dtype="float32"), expected, atol=1e-6)


CAPTURED_IMAGES = {
    "average_pool": lambda x: ops.average_pool(x, 2, padding="same"),
    "conv": lambda x: ops.conv(x, RNG_KERNEL, strides=2, padding="same"),
    "conv_transpose": lambda x: ops.conv_transpose(x, RNG_KERNEL, strides=2, output_padding=1),
    "gaussian_blur": lambda x: ops.image.gaussian_blur(x, (3, 5), (1.0, 2.0)),
    "resize": lambda x: ops.image.resize(x, (5, 9), pad_to_aspect_ratio=True),
    "rgb_to_hsv": ops.image.rgb_to_hsv,
    "unfold": lambda x: ops.fold(ops.unfold(ops.moveaxis(x, 3, 1), 2), (8, 6), 2),
}
RNG_KERNEL = RNG.normal(size=(3, 3, 3, 3)).astype("float32")


@pytest.mark.parametrize("name", CAPTURED_IMAGES)
def test_captured_images_with_a_free_batch(name):
    function = CAPTURED_IMAGES[name]
    graph = ef.capture.trace(function, ef.TensorSpec((None, 8, 6, 3), "float32"))
    np.testing.assert_allclose(graph(IMAGES).numpy(), function(IMAGES).numpy(), atol=1e-5)


@pytest.mark.parametrize("mode", ["valid", "same", "full"])
@pytest.mark.parametrize(("n", "m"), [(5, 3), (3, 5), (4, 4), (2, 5), (5, 2), (1, 3)])
def test_correlations_are_those_of_numpy(n, m, mode):
    a, b = RNG.normal(size=n), RNG.normal(size=m)
    np.testing.assert_allclose(ops.correlate(a, b, mode), np.correlate(a, b, mode), atol=1e-6)


def test_neighbours_of_bfloat16_numbers():
    inf, nan = np.inf, np.nan
    x = np.array([1, -1, 0, 0, 1.5, 2, inf, -inf, nan, 3.3895e38, 1e-40, -2, 4])
    y = np.array([2, 3, 1, -1, 1.5, 1, 0, 0, 1, inf, 0, -1, inf])
    x, y = (a.astype("float32").astype(ml_dtypes.bfloat16) for a in (x, y))
    found = np.asarray(ops.nextafter(x, y))
    np.testing.assert_array_equal(found.view("uint16"), np.nextafter(x, y).view("uint16"))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_different_slices_are_those_of_numpy(axis):
    x = RNG.integers(0, 2, (6, 3, 2)).astype("int32")
    named = {"return_index": True, "return_inverse": True, "return_counts": True, "axis": axis}
    found = ops.unique(x, **named)
    for ours, numpy in zip(found, np.unique(x, **named), strict=True):
        np.testing.assert_array_equal(np.asarray(ours).ravel(), numpy.ravel())


def test_captured_random_draws_match_eager():
    def drawn(generator):
        return keras.random.normal((3,), seed=generator)

    eager, captured = keras.random.SeedGenerator(7), keras.random.SeedGenerator(7)
    function = ef.function(lambda: drawn(captured))
    rows = [function().numpy() for _ in range(3)]
    np.testing.assert_array_equal(rows, [drawn(eager).numpy() for _ in range(3)])
    assert len(np.unique(rows)) == 9


def test_arguments_are_those_of_keras():
    for name in ("average", "clip", "pad", "unique", "vectorize"):
        assert inspect.signature(getattr(backend.numpy, name)) == inspect.signature(
            getattr(ops, name)
        )


def test_the_index_of_a_loop_has_the_dtype_of_its_start():
    total = ops.fori_loop(0, 4, lambda i, state: state + i, 0)
    assert int(total) == 6 and total.dtype == ef.int32
    wide = ops.fori_loop(ops.zeros((), "int64"), 4, lambda i, n: n + i, ops.zeros((), "int64"))
    assert int(wide) == 6 and wide.dtype == ef.int64


@pytest.mark.parametrize("given", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_floats_beyond_small_integers_become_their_bounds(given, dtype):
    bounds = np.iinfo(dtype)
    x = ops.convert_to_tensor([-np.inf, -6e4, -3.0, 2.7, 6e4, np.inf], given)
    if given in ("float16", "bfloat16"):
        x = ops.where(ops.isinf(x), x, ops.clip(x, -1e4, 1e4))
    wide = [int(n) if np.isfinite(n) else int(np.sign(n)) * 10**9 for n in x.numpy().tolist()]
    expected = [min(max(n, bounds.min), bounds.max) for n in wide]
    assert ops.cast(x, dtype).numpy().tolist() == expected


def test_complex_numbers_are_true_but_for_zero():
    x = ops.convert_to_tensor([0j, 1j, 1 + 0j])
    assert ops.cast(x, "bool").tolist() == [False, True, True]
    assert ops.logical_and(x, True).tolist() == [False, True, True]
