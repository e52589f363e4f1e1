"""Arrays among the arguments that a captured function changes in place: never without a word."""

import functools
import operator
import types

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError


def plus(a):
    a += 1
    return a * 1


def alias(a):
    b = a
    b -= 1
    return a * 1


def part(a):
    b = a[1:]
    b *= 2
    return a * 1


def reshaped(a):
    b = a.reshape(3, 1).T
    b **= 2
    return a * 1


def raveled(a):
    b = np.flip(a[None].swapaxes(0, 1).ravel())
    b /= 2
    return a * 1


def each_row(a):
    for row in a.reshape(3, 1):
        row += 1
    return a * 1


def pieces(a):
    first, *_ = np.split(a, 3)
    first += 1
    return a * 1


def not_cast(a):
    b = a.astype("float32", copy=False)
    b += 1
    return a * 1


def in_a_list(a):
    held = [a]
    held[0] += 1
    return a * 1


def in_an_object(a):
    held = types.SimpleNamespace(a=a)
    held.a += 1
    return a * 1


def by_function(a):
    operator.iadd(a, 1)
    return a * 1


def by_reduce(a):
    functools.reduce(operator.isub, [1, 2], a)
    return a * 1


def in_a_helper(a):
    plus(a)
    return a * 1


def in_order(a):
    a.sort()
    return a * 1


CHANGING = [
    plus, alias, part, reshaped, raveled, each_row, pieces, not_cast, in_a_list, in_an_object,
    by_function, by_reduce, in_a_helper, in_order,
]  # fmt: skip


@pytest.mark.parametrize("f", CHANGING)
def test_changes_of_arrays_are_refused(f):
    array = np.array([3.0, 1.0, 2.0], "f4")
    f(changed := array.copy())
    assert not np.array_equal(changed, array)  # what would be lost
    with pytest.raises(CaptureError, match="changes an array among its arguments"):
        ef.function(f)(array)


@pytest.mark.parametrize("f", [plus, part])
def test_tensors_do_not_change_and_their_graph_refuses_arrays(f):
    step, x = ef.function(f), ef.tensor([3.0, 1.0, 2.0])
    assert step(x).tolist() == f(x).tolist()
    with pytest.raises(CaptureError, match=r"x = x \+ 1") as caught:
        step(x.numpy())
    assert f"test_updates.py:{f.__code__.co_firstlineno + (1 if f is plus else 2)}" in str(
        caught.value
    )
    assert step(x).tolist() == f(x).tolist()


def test_arrays_in_nests_and_zero_dimensional_ones():
    def step(batch):
        batch["x"] = batch["x"] * 1
        x = batch["y"][0]
        x += 1
        return x

    with pytest.raises(CaptureError):
        ef.function(step)({"x": np.ones(2, "f4"), "y": [np.ones(2, "f4")]})
    with pytest.raises(CaptureError, match="changes an array"):
        ef.function(plus)(np.array(1.0, "f4"))


def copied(a):
    b = a.copy()
    b += 1
    return a * b


def flattened(a):
    b = a.flatten()
    b += 1
    return a * b


def cast(a):
    b = a.astype("float32")
    b -= 1
    return a * b


def converted(a):
    a = ef.as_tensor(a)
    a += 1
    return a * 2


def made_a_tensor(a):
    a = ef.tensor(a)
    a += 1
    return a * 2


def numpy_copy(a):
    b = np.copy(a)
    b *= 3
    return a * b


def selected(a):
    b = a[[0, 2]]
    b += 1
    return a[:2] * b


def computed(a):
    a = a / 2
    a += 1
    return a


@pytest.mark.parametrize(
    "f", [copied, flattened, cast, converted, made_a_tensor, numpy_copy, selected, computed]
)
def test_changes_of_copies_are_those_of_eager_code(f):
    array = np.array([3.0, 1.0, 2.0], "f4")
    step = ef.function(f)
    for _ in range(2):
        assert np.asarray(step(array)).tolist() == np.asarray(f(array.copy())).tolist()
    assert array.tolist() == [3.0, 1.0, 2.0]


class Shifted(ef.nn.Layer):
    def call(self, x):
        x += 1.0
        return x


def test_layers_and_transformations_pass_on_tensors():
    array, layer = np.array([[3.0, 1.0]], "f4"), Shifted()
    assert ef.function(lambda x: layer(x))(array).tolist() == layer(array).tolist()
    rows = ef.function(lambda x: ef.vmap(plus)(x))
    assert rows(array).tolist() == ef.vmap(plus)(array).tolist()
    slope = ef.function(lambda x: ef.grad(lambda x: plus(x).sum())(x))
    assert slope(array).tolist() == [[1.0, 1.0]]
    assert array.tolist() == [[3.0, 1.0]]
