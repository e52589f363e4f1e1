"""Runs a function eagerly and captured, and compares each result with an independent one."""

import functools

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import EagerflowError

WAYS = {
    "eager": lambda f: f,
    "fast": ef.function,
    "exact": functools.partial(ef.function, numerics="exact"),
}


def array(x):
    return x.numpy() if isinstance(x, ef.Tensor | ef.Variable) else np.asarray(x)


def leaves(nest):
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in leaves(nest[key])]
    if isinstance(nest, list | tuple):
        return [leaf for part in nest for leaf in leaves(part)]
    return [array(nest)]


def compare(found, expected, rtol=1e-5, atol=1e-7, way="eager"):
    """Shapes are equal; integers and booleans in dtype and value, floats within rounding."""
    found, expected = leaves(found), leaves(expected)
    assert len(found) == len(expected), way
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape, f"{way}: {a.shape}, not {b.shape}"
        if b.dtype.kind in "biu":
            assert a.dtype == b.dtype, f"{way}: {a.dtype}, not {b.dtype}"
            np.testing.assert_array_equal(a, b, err_msg=way)
        else:
            assert a.dtype.kind in "fc" or a.dtype.name == "bfloat16", f"{way}: {a.dtype}"
            wide = "c16" if "c" in (a.dtype.kind, b.dtype.kind) else "f8"
            a, b = a.astype(wide), b.astype(wide)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=way)


def check(f, *args, expect, rtol=1e-5, atol=1e-7):
    """All ways give the expected result, captured ones when they trace and again when they run."""
    for way, apply in WAYS.items():
        run = apply(f)
        for _ in range(1 if way == "eager" else 2):
            compare(run(*args), expect, rtol, atol, way)


def refused(f, *args, error=EagerflowError):
    """All ways raise the error, captured ones at each call."""
    for way, apply in WAYS.items():
        run = apply(f)
        for _ in range(1 if way == "eager" else 2):
            with pytest.raises(error):
                run(*args)
                pytest.fail(f"{way}: nothing was raised")


def differences(f, *args, argnum=0, step=1e-6):
    """The gradient of a NumPy function by central differences, in float64."""
    args = [np.array(x, "f8") if np.asarray(x).dtype.kind == "f" else x for x in args]
    x = args[argnum]
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            values.append(f(*args[:argnum], moved, *args[argnum + 1 :]))
        result[index] = (values[0] - values[1]) / (2 * step)
    return result


def floats(*shape, seed=0, dtype="f4"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


class Lazy:
    """A part of PyTorch, loaded when a case needs it; without it the case is skipped."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("_") or name == "pytestmark":  # which pytest asks of all there is
            raise AttributeError(name)
        found = pytest.importorskip(self._name, reason="PyTorch is not installed")
        return getattr(found, name)


torch, F = Lazy("torch"), Lazy("torch.nn.functional")
