"""Errors: their classes, their form, and that wrong calls get the right one and leave no trace."""

import pickle

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import errors
from eagerflow.devices import current_device
from eagerflow.errors import DTypeError, EagerflowError, GradientError, IndexRangeError, ShapeError
from eagerflow.recorder import process, recorder_state

BASES = {
    "ShapeError": ValueError, "AxisError": IndexError, "DTypeError": TypeError,
    "DeviceError": ValueError, "IndexRangeError": IndexError, "GradientError": ValueError,
    "CaptureError": TypeError, "PlacementError": ValueError, "FileFormatError": ValueError,
    "MissingExtraError": ImportError, "OutOfMemoryError": MemoryError, "SessionError": RuntimeError,
}  # fmt: skip


@pytest.mark.parametrize("name", BASES)
def test_classes_derive_from_ours_and_from_pythons(name):
    cls = getattr(ef.errors, name)
    assert issubclass(cls, EagerflowError)
    assert issubclass(cls, BASES[name])
    assert name in errors.__all__


def test_form_of_the_message():
    more = {"received": "float32(2,)", "expected": "rank 2", "hint": "x[None]"}
    error = ShapeError("the ranks differ", op="stack", argument="arrays[1]", **more)
    first, *rest = str(error).splitlines()
    assert first == "stack: arrays[1]: the ranks differ"
    assert rest == ["  received: float32(2,)", "  expected: rank 2", "  try: x[None]"]
    assert str(ShapeError("no")) == "no"
    assert error.problem == "the ranks differ"


@pytest.mark.parametrize("name", BASES)
def test_errors_travel_between_processes(name):
    error = getattr(errors, name)("what", op="add", argument="x1", received="a", hint="b")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.op, again.hint) == (str(error), "add", "b")


X = ef.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
I = ef.tensor([1, 2, 3])


def closed_tape():
    with ef.GradientTape() as tape:
        tape.watch(x := ef.tensor(1.0))
        y = x * x
    tape.gradient(y, x)
    tape.gradient(y, x)


def never_watched():
    with ef.GradientTape() as tape:
        y = X * 2
    tape.gradient(y.sum(), X)


def entered_twice():
    with (tape := ef.GradientTape()), tape:
        pass


# call, class, op, argument, words of the problem, what was received, what is expected
WRONG = [
    (lambda: X + ef.ones((2,)), ShapeError, "add", None, "do not broadcast", "x1 float32(2, 3)",
     "sizes"),
    (lambda: ef.ones((2,)) * X, ShapeError, "multiply", None, "do not broadcast",
     "x2 float32(2, 3)", ""),
    (lambda: X.reshape((4, 2)), ShapeError, "reshape", "shape", "6 elements", "float32(2, 3)",
     "product is 6"),
    (lambda: X.reshape((-1, -1)), ShapeError, "reshape", "shape", "6 elements", "float32(2, 3)",
     "at most one"),
    (lambda: X.reshape("ab"), ShapeError, "reshape", None, "is not a size", "float32(2, 3)",
     "integers"),
    (lambda: ef.sum(X, axis=2), ShapeError, "sum", "axis", "axis 2 does not exist", "float32(2, 3)",
     "-2 to 1"),
    (lambda: ef.sum(X, axis=(0, -2)), ShapeError, "sum", "axis", "repeat", "float32(2, 3)", ""),
    (lambda: ef.sum(X, axis=1.5), ShapeError, "sum", "axis", "is not an axis", "float32(2, 3)",
     "integer"),
    (lambda: X @ X, ShapeError, "matmul", None, "", "x1 float32(2, 3)", ""),
    (lambda: X @ ef.tensor(1.0), ShapeError, "matmul", None, "", "float32()", ""),
    (lambda: ef.permute_dims(X, (0, 0)), ShapeError, "permute_dims", "axes", "repeat",
     "float32(2, 3)", ""),
    (lambda: ef.broadcast_to(X, (3, 3)), ShapeError, "broadcast_to", None, "broadcast",
     "float32(2, 3)", ""),
    (lambda: ef.zeros((2, -1)), ShapeError, "zeros", None, "negative", "", "at least 0"),
    (lambda: ef.zeros((2**40, 2**40)), ShapeError, "zeros", None, "too large", "", "elements"),
    (lambda: ef.ones((2.5,)), ShapeError, "ones", None, "is not a size", "", ""),
    (lambda: ef.max(ef.zeros((0,))), ShapeError, "max", None, "nothing to reduce", "float32(0,)",
     ""),
    (lambda: ef.concat([X, I]), ShapeError, "concat", None, "", "", ""),
    (lambda: ef.sin("a"), DTypeError, "sin", "x", "a str", "", "NumPy arrays"),
    (lambda: ef.add(X, object()), DTypeError, "add", "x2", "an object", "", "NumPy arrays"),
    (lambda: X + None, DTypeError, "add", "x2", "None", "", ""),
    (lambda: ef.sin([[1.0], [1.0, 2.0]]), ShapeError, "sin", "x", "ragged", "", "equal lengths"),
    (lambda: ef.tensor([True]) - ef.tensor([True]), DTypeError, "subtract", "x1", "dtype bool", "",
     "float32"),
    (lambda: X & X, DTypeError, "bitwise_and", "x1", "dtype float32", "", "int32"),
    (lambda: ef.zeros((2,), dtype="words"), DTypeError, "zeros", "dtype", "is not a dtype", "",
     "float32"),
    (lambda: X.astype("words"), DTypeError, "astype", "dtype", "is not a dtype", "", "float32"),
    (lambda: ef.tensor([1j]).astype("float32"), DTypeError, "astype", "x", "imaginary", "",
     "complex"),
    (lambda: ef.ones((2,), dtype="float8_e5m2") + X[0, :2], DTypeError, "add", None, "common",
     "float8", ""),
    (lambda: ef.zeros((2,), device="gpu:7"), errors.DeviceError, None, None, "no device 'gpu:7'",
     "", "cpu:0"),
    (lambda: X.to("moon"), errors.DeviceError, None, None, "no device type 'moon'", "", "cpu"),
    (lambda: I[5], IndexRangeError, "getitem", None, "index 5 is out of range", "int64(3,)",
     "-3 to 2"),
    (lambda: X[0, 0, 0], IndexRangeError, "getitem", None, "3 indices", "float32(2, 3)",
     "at most 2"),
    (lambda: I[1.5], DTypeError, "getitem", None, "cannot be indices", "", "integers"),
    (lambda: I["a"], DTypeError, "getitem", None, "a str", "", "integers"),
    (lambda: X[ef.tensor([True, False, True])], EagerflowError, "getitem", None, "",
     "float32(2, 3)", ""),
    (closed_tape, GradientError, None, None, "has computed its gradient", "", ""),
    (never_watched, GradientError, None, None, "does not depend", "float32(2, 3)", ""),
    (entered_twice, EagerflowError, None, None, "entered already", "", ""),
    (lambda: ef.grad(lambda x: x.sum())(I), GradientError, None, None, "int64", "int64(3,)",
     "floating"),
    (lambda: ef.grad(lambda x: x)(X), ShapeError, "grad", None, "one element", "float32(2, 3)", ""),
    (lambda: ef.grad(ef.sum, argnums=3)(X), GradientError, "grad", "argnums", "no argument 3",
     "1 arg", ""),
    (lambda: ef.grad(ef.sum)("a"), EagerflowError, None, None, "a str", "", ""),
    (lambda: ef.GradientTape().watch(3.0), GradientError, None, None, "a float has no gradient", "",
     "Tensors"),
    (lambda: ef.vmap(ef.sin, in_axes=5)(X), ShapeError, None, "in_axes", "axis 5", "", ""),
    (lambda: ef.vmap(ef.add)(X, I), ShapeError, "vmap", None, "different numbers", "float32(2, 3)",
     ""),
    (lambda: ef.Variable("a"), DTypeError, None, None, "a str", "", ""),
]  # fmt: skip


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_calls_tell_their_story(number, recorded):
    call, cls, op, argument, words, received, expected = WRONG[number]
    before = recorder_state(), len(process.recorders), current_device(), np.geterr()
    for _ in range(2):
        with pytest.raises(cls) as caught:
            if recorded:
                with ef.GradientTape() as tape:
                    tape.watch(ef.tensor(1.0))
                    call()
            else:
                call()
        error = caught.value
        assert isinstance(error, EagerflowError)
        assert words in error.problem
        assert op is None or error.op == op
        assert argument is None or error.argument == argument
        assert received in (error.received or "")
        assert expected in (error.expected or "")
        assert len(str(error)) < 600
    assert (recorder_state(), len(process.recorders), current_device(), np.geterr()) == before
    assert (X + 1).sum().item() == 27.0


def test_too_much_memory_is_our_error():
    with pytest.raises(errors.OutOfMemoryError) as caught:
        ef.ones((2**45,), dtype="float64")
    assert caught.value.op == "ones"
    assert isinstance(caught.value, MemoryError)


def test_an_error_of_the_users_passes_through():
    class Mine(Exception):
        pass

    def f(x):
        raise Mine("here")

    for transform in (ef.grad, ef.vmap, ef.value_and_grad, ef.jacobian):
        with pytest.raises(Mine, match="here"):
            transform(f)(X)
    assert recorder_state()[1] is None
    assert not process.recorders
