"""What captured functions ask of the class of a number among their arguments."""

import functools
import numbers

import numpy as np
import pytest

import eagerflow as ef


@functools.singledispatch
def dispatched(value):
    return 1.0


@dispatched.register
def _(value: int):
    return 2.0


@dispatched.register
def _(value: float):
    return 3.0


def matched(value):
    match value:
        case bool():
            return 2.0
        case int():
            return 3.0
        case float():
            return 4.0
    return 5.0


def checked(value):
    if type(value) is not int:
        raise TypeError("no int")
    return value * 2.0


QUESTIONS = {
    "singledispatch": dispatched,
    "match": matched,
    "isinstance": lambda v: 2.0 if isinstance(v, int) else 3.0,
    "isinstance of several": lambda v: 2.0 if isinstance(v, (float, str)) else 3.0,
    "isinstance of NumPy's": lambda v: 2.0 if isinstance(v, np.integer) else 3.0,
    "isinstance of an ABC": lambda v: 2.0 if isinstance(v, numbers.Integral) else 3.0,
    "__class__": lambda v: 2.0 if v.__class__ is int else 3.0,
    "type": lambda v: 2.0 if type(v) is int else 3.0,
    "issubclass": lambda v: 2.0 if issubclass(type(v), int) else 3.0,
    "a dict of types": lambda v: {int: 2.0, float: 3.0}.get(type(v), 9.0),
    "the name of the type": lambda v: float(len(type(v).__name__)),
    "hasattr": lambda v: 2.0 if hasattr(v, "bit_length") else 3.0,
    "getattr": lambda v: getattr(v, "numerator", 0.5) * 1.0,
    "a method": lambda v: v.is_integer() * 2.0 if isinstance(v, float) else 1.0,
    "type, or an error": checked,
}
NUMBERS = [1, 2, 1.5, 2.0, True, np.float32(2.0), np.int64(3), np.float64(2.5), np.uint8(4)]


def seen(f, *args):
    try:
        return f(*args).tolist()
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_eager_code(name):
    def f(x, value):
        return x * QUESTIONS[name](value)

    x, step = ef.tensor([1.0, 2.0]), ef.function(f)
    for value in NUMBERS:
        for _ in range(2):
            assert seen(step, x, value) == seen(f, x, value), repr(value)


def test_isinstance_needs_no_graph_for_each_number():
    step = ef.function(lambda x, v: x * v if isinstance(v, int) else x)
    x = ef.tensor([1.0, 2.0])
    assert [step(x, v).tolist() for v in (1, 2, 3)] == [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]
    assert len(step.graphs) == 1
