"""Objects with ways of their own among the arguments, and weak references to arguments."""

import operator
import weakref
from unittest import mock

import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError

X = ef.tensor([1.0, 2.0])
ERRORS = [KeyError, AttributeError, RuntimeError, TypeError, IndexError, OSError, AssertionError]


def made(error):
    class Strange:
        def __init__(self):
            self.__dict__["held"] = {"k": 2.0}

        def __getattr__(self, name):
            if name in self.__dict__["held"]:
                return self.__dict__["held"][name]
            raise error(name)

    return Strange()


@pytest.mark.parametrize("error", ERRORS)
def test_objects_whose_getattr_raises_other_errors(error):
    strange = made(error)
    closed = ef.function(lambda x: x * strange.k)
    passed = ef.function(lambda x, s: x * s.k)
    nested = ef.function(lambda x, d: x * d["s"].k)
    for k in (2.0, 2.0, 3.0, 4.0):
        strange.__dict__["held"]["k"] = k
        wanted = (X * k).tolist()
        assert closed(X).tolist() == wanted
        assert passed(X, strange).tolist() == wanted
        assert nested(X, {"s": strange}).tolist() == wanted


def test_mocks_that_have_every_attribute():
    model = mock.MagicMock()
    step = ef.function(lambda x, m: x * m.rate)
    for rate in (2.0, 3.0):
        model.rate = rate
        assert step(X, model).tolist() == (X * rate).tolist()


QUESTIONS = {
    "weakref.ref": lambda a, b: weakref.ref(a) is weakref.ref(b),
    "weakref.proxy": lambda a, b: weakref.proxy(a) is weakref.proxy(b),
    "weakref.finalize": lambda a, b: weakref.finalize(a, print).peek()[0] is b,
    "map of weakref.ref": lambda a, b: operator.is_(*map(weakref.ref, (a, b))),
    "object.__eq__": lambda a, b: object.__eq__(a, b) is True,
    "object.__hash__": lambda a, b: object.__hash__(a) == object.__hash__(b),
    "object.__repr__": lambda a, b: object.__repr__(a) == object.__repr__(b),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_whether_two_arguments_are_one_is_refused(name):
    def f(a, b):
        return a * 2.0 if QUESTIONS[name](a, b) else a * 3.0

    with pytest.raises(CaptureError, match="cannot be relied on"):
        ef.function(f)(X, X)


class Held:
    k = 1.0


@pytest.mark.parametrize("made", [lambda o: weakref.ref(o)(), weakref.proxy])
def test_targets_of_weak_references_are_guarded(made):
    held = Held()
    closed = ef.function(lambda x: x * made(held).k)
    passed = ef.function(lambda x, o: x * made(o).k)
    for k in (1.0, 5.0, 6.0):
        held.k = k
        assert closed(X).tolist() == passed(X, held).tolist() == (X * k).tolist()
