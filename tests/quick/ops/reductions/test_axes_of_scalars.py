"""Axis arguments of every op on tensors of no axes and of one: eager and captured code agree."""

import inspect

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, EagerflowError

AXES = (0, -1, 1, (0,), -2, None, (), (-1,), (0, 0))
INPUTS = [
    np.array(2.0, "f4"),
    np.array([3.0, 1.0, 2.0], "f4"),
    np.array(2),
    np.array([True, False]),
    np.zeros(0, "f4"),
]


def with_axis():
    """Functions of a tensor and an axis, and the name of that argument."""
    found = {}
    for name in dir(ef):
        f = getattr(ef, name)
        try:
            names = [*inspect.signature(f).parameters]
        except (TypeError, ValueError):
            continue
        own = [n for n in ("axis", "axes") if n in names]
        if own and not inspect.isclass(f):
            found[name] = own[0]
    assert {"sum", "argmax", "permute_dims", "softmax", "squeeze"} <= found.keys()
    return found


FUNCTIONS = with_axis()


def bound(f, **attributes):
    return lambda x: f(x, **attributes)


def outcome(call, x):
    """Results as arrays, or the type of the error."""
    try:
        found = call(x)
    except (EagerflowError, TypeError) as error:
        return type(error)
    return [np.asarray(y) for y in (found if isinstance(found, tuple | list) else [found])]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("inputs", "axes"),
    [
        pytest.param(INPUTS[:1], AXES[:3], id="scalar"),
        pytest.param(INPUTS, AXES, id="all", marks=pytest.mark.soak),
    ],
)
def test_captured_code_takes_the_axes_that_eager_code_takes(name, inputs, axes):
    f = getattr(ef, name)
    for x in map(ef.tensor, inputs):
        for axis in axes:
            call = bound(f, **{FUNCTIONS[name]: axis})
            wanted, found = outcome(call, x), outcome(ef.function(call), x)
            about = f"{name}, axis {axis}, {x!r}: {wanted} in eager code, {found} captured"
            if isinstance(wanted, type) or isinstance(found, type):
                assert found is wanted or found is CaptureError, about
                continue
            assert [y.dtype for y in found] == [y.dtype for y in wanted], about
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=about)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "all", "any", "argmax", "squeeze"])
@pytest.mark.parametrize("axis", [0, -1])
def test_reductions_of_scalars_are_those_of_numpy(name, axis):
    x = np.float32(3)
    wanted = np.asarray(getattr(np, name)(x, axis=axis))
    own = bound(getattr(ef, name), axis=axis)
    for f in (own, ef.function(own)):
        np.testing.assert_array_equal(f(ef.tensor(x)), wanted)
    each = ef.vmap(own)(ef.ones(3))
    np.testing.assert_array_equal(each, [getattr(np, name)(np.float32(1), axis=axis)] * 3)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "logsumexp", "var", "vector_norm"])
def test_gradients_of_reductions_of_scalars(name):
    for axis in (0, -1):
        f = ef.grad(bound(getattr(ef, name), axis=axis))
        wanted = 0.0 if name == "var" else 1.0
        assert f(ef.tensor(2.0)).item() == wanted
        assert ef.function(f)(ef.tensor(2.0)).item() == wanted
