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


def part(a):
    b = a[1:]
    b *= 2
    return a * 1


def made(text, result="a * 1"):
    """A function of an array."""
    names = {module.__name__: module for module in (functools, operator, types)}
    names |= {"ef": ef, "np": np, "plus": plus}
    exec(compile(f"def f(a):\n    {text}\n    return {result}", "changing.py", "exec"), names)
    return names["f"]


CHANGING = """a += 1 | b = a; b -= 1 | b = a[1:]; b *= 2 | b = a.reshape(3, 1).T; b **= 2
    b = np.flip(a[None].swapaxes(0, 1).ravel()); b /= 2 | for row in a.reshape(3, 1): row += 1
    first, *_ = np.split(a, 3); first += 1 | b = a.astype("float32", copy=False); b += 1
    held = [a]; held[0] += 1 | held = types.SimpleNamespace(a=a); held.a += 1
    operator.iadd(a, 1) | functools.reduce(operator.isub, [1, 2], a) | plus(a) | a.sort()"""


@pytest.mark.parametrize("text", [text.strip() for text in CHANGING.replace("\n", "|").split("|")])
def test_changes_of_arrays_are_refused(text):
    array, f = np.array([3.0, 1.0, 2.0], "f4"), made(text)
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
    line = f.__code__.co_firstlineno + (1 if f is plus else 2)
    assert f"test_updates.py:{line}" in str(caught.value)
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


@pytest.mark.parametrize(("text", "result"), [
    ("b = a.copy(); b += 1", "a * b"),
    ("b = a.flatten(); b += 1", "a * b"),
    ("b = a.astype('float32'); b -= 1", "a * b"),
    ("a = ef.as_tensor(a); a += 1", "a * 2"),
    ("a = ef.tensor(a); a += 1", "a * 2"),
    ("b = np.copy(a); b *= 3", "a * b"),
    ("b = a[[0, 2]]; b += 1", "a[:2] * b"),
    ("a = a / 2; a += 1", "a"),
])  # fmt: skip
def test_changes_of_copies_are_those_of_eager_code(text, result):
    array, f = np.array([3.0, 1.0, 2.0], "f4"), made(text, result)
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
