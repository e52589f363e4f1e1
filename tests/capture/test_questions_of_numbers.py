"""What captured functions ask of number arguments that only the number itself can answer.

Its text, its rounding, a NumPy array of it: results are those of eager calls for each number. And
errors that the code catches, where they come of values that are not known while tracing.
"""

import contextlib
import copy
import dataclasses
import decimal
import fractions
import functools
import io
import json
import logging
import math
import pickle
import pprint
import string
import struct
import types

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError

TWO = 2


@dataclasses.dataclass
class Setting:
    value: object


def printed(k):
    stream = io.StringIO()
    print(k, file=stream)
    return len(stream.getvalue())


def logged(k):
    stream = io.StringIO()
    logger = logging.Logger("questions")
    logger.addHandler(logging.StreamHandler(stream))
    logger.warning("%s", k)
    return len(stream.getvalue())


def caught(f, errors=TypeError):
    def question(k):
        try:
            return f(k)
        except errors:
            return 77.0

    return question


def square_roots(k):
    total = 0.0
    for value in ("a", k):
        try:
            total += math.sqrt(value)
        except (TypeError, ValueError):
            total += 100.0
    return total


QUESTIONS = {
    "str": lambda k: len(str(k)),
    "repr": lambda k: len(repr(k)),
    "f-string": lambda k: len(f"{k}"),
    "f-string, repr": lambda k: len(f"{k!r}"),
    "f-string with a form": lambda k: float(f"{k:.3f}"),
    "%s": lambda k: len("%s" % k),  # noqa: UP031
    "%(k)s": lambda k: len("%(k)s" % {"k": k}),  # noqa: UP031
    "format": lambda k: len("{!r}".format([k])),  # noqa: UP032
    "format()": lambda k: len(format(k, "08")),
    "join": lambda k: len(",".join(map(str, [k, 1]))),
    "of a list": lambda k: len(str([k])),
    "of a dataclass": lambda k: len(str(Setting(k))),
    "of a namespace": lambda k: len(repr(types.SimpleNamespace(k=k))),
    "pprint": lambda k: len(pprint.pformat({"a": [k]})),
    "Template": lambda k: len(string.Template("$k").substitute(k=k)),
    "partial": lambda k: len(functools.partial(str)(k)),
    "method": lambda k: len(k.__str__()),
    "largest text": lambda k: max([k, 10], key=str) * 1.0,
    "key of a dict": lambda k: {"2": 5.0}.get(str(k), 7.0),
    "printed": printed,
    "logged": logged,
    "json": lambda k: len(json.dumps({"k": k})),
    "pickle": lambda k: pickle.loads(pickle.dumps(k)) * 1.0,
    "copy": lambda k: copy.copy(k) + copy.deepcopy([k])[0],
    "asdict": lambda k: dataclasses.asdict(Setting(k))["value"] * 1.0,
    "type in map": lambda k: 2.0 if list(map(type, [k])) == [int] else 3.0,
    "attribute of tensors": lambda k: 2.0 if hasattr(k, "shape") else 3.0,
    "docstring": lambda k: len(k.__doc__),
    "Fraction": lambda k: float(fractions.Fraction(k)),
    "Decimal": lambda k: float(decimal.Decimal(k)),
    "struct": lambda k: struct.unpack("d", struct.pack("d", k))[0],
    "round": lambda k: round(k, 1),
    "trunc": math.trunc,
    "floor and ceil": lambda k: math.floor(k) + math.ceil(k),
    "pow of three": lambda k: pow(k, 2, 3),
    "np.sqrt": np.sqrt,
    "np.float32": np.float32,
    "np.array": lambda k: ef.tensor(np.array([k, 1.0])),
    "np.full": lambda k: ef.tensor(np.full(2, k)),
    "np.result_type": lambda k: np.result_type(k, np.float32).itemsize,
    "np.min_scalar_type": lambda k: np.min_scalar_type(k).itemsize,
    "an array times it": lambda k: ef.tensor(np.array([1.0, 2.0]) * k),
    "method of int": int.bit_length,
    "method of float": float.is_integer,
    "is": lambda k: 2.0 if k is TWO else 3.0,
    "id": lambda k: 2.0 if id(k) == id(TWO) else 3.0,
    "iter": caught(lambda k: 1.0 if iter(k) else 2.0),
    "item": caught(lambda k: k[0]),
    "product of matrices": caught(lambda k: k @ k),
    "json, or another": caught(lambda k: len(json.dumps(k))),
    "np.sqrt, or another": caught(np.sqrt),
    "struct, or another": caught(lambda k: len(struct.pack("d", k)), struct.error),
    "int, or another": caught(int, Exception),
    "some of several": square_roots,
}
NUMBERS = [2, 3, 2.5, 10**6, -0.0, np.float32(2.0), np.int64(3), np.float16(2.5), 2**70]


def outcome(f, *args):
    try:
        y = f(*args)
    except CaptureError:
        raise
    except Exception as error:
        return [type(error).__name__]
    return y.dtype.name, y.tolist()


@pytest.mark.parametrize("derived", [False, True], ids=["argument", "derived"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_eager_calls(name, derived):
    def f(x, k):
        return x * QUESTIONS[name](k * 1 if derived else k)

    x, step = ef.tensor([1.0, 2.0]), ef.function(f)
    for k in NUMBERS[::3] if derived else NUMBERS:
        wanted = outcome(f, x, k)
        for _ in range(2):
            found = outcome(step, x, k)
            assert found[0] == wanted[0], repr(k)
            if isinstance(wanted, tuple):
                np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6, err_msg=repr(k))


def test_copies_of_numbers_keep_their_limits():
    step = ef.function(lambda x, k: x < copy.deepcopy(k))
    x = ef.tensor(np.array([1, 200], np.uint8))
    assert step(x, 100).tolist() == [True, False]
    assert step(x, 300).tolist() == [True, True]


def test_numbers_that_are_only_computed_with_share_one_graph():
    step = ef.function(lambda x, k: x * k + isinstance(k, int) + abs(k).real)
    for k in range(5):
        step(ef.ones(2), k)
    assert len(step.graphs) == 1


def test_errors_of_messages_tell_the_number():
    def f(x, k):
        raise ValueError(f"{k} is too much")

    with pytest.raises(ValueError, match=r"^7 is too much"):
        ef.function(f)(ef.ones(2), 7)


def float_or(x):
    try:
        n = float(x.sum())
    except Exception:
        n = 100.0
    return x * n


def branch_or(x):
    try:
        if x.sum() > 0:
            return x * 2
    except CaptureError:
        pass
    return x * 5


def array_or(x):
    n = 4.0
    with contextlib.suppress(Exception):
        n = float(np.asarray(x).sum())
    return x * n


def size_or(x):
    try:
        return ef.zeros(x.sum().astype("int64")) + x[0]
    except Exception:
        return x


def returned_anyway(x):
    n = 4.0
    try:
        n = x.sum().item()
    finally:
        return x * n  # noqa: B012


def in_a_branch(x):
    return ef.cond(x[0] > 0, lambda: float_or(x), lambda: x)


WAYS_ON = [float_or, branch_or, array_or, size_or, returned_anyway, in_a_branch]


@pytest.mark.parametrize("f", WAYS_ON, ids=lambda f: f.__name__)
def test_code_that_catches_the_refusal_of_a_value_is_refused(f):
    x = ef.tensor([1.0, 2.0])
    for _ in range(2):
        with pytest.raises(CaptureError, match="not known while"):
            ef.function(f)(x)
    with pytest.raises(CaptureError, match="not known while"):
        ef.capture.trace(float_or, ef.TensorSpec((2,), "float32"))
