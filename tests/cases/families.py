"""The cases that an op has by its family, where its row says nothing else."""

import cmath
import math
import operator
from functools import partial

import numpy as np

from eagerflow.errors import AxisError, DTypeError, ShapeError
from eagerflow.op import Op
from tests.cases.samples import Cases, ErrorSample, each, pairs, reals

_OPERATORS = {  # the names of functions in Python's operator
    "bitwise_and": "and_",
    "bitwise_left_shift": "lshift",
    "bitwise_or": "or_",
    "bitwise_right_shift": "rshift",
    "bitwise_xor": "xor",
    "divide": "truediv",
    "equal": "eq",
    "floor_divide": "floordiv",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "positive": "pos",
    "power": "pow",
    "remainder": "mod",
    "subtract": "sub",
}


def completed(op, own):
    """A row with its family's cases in place of those that it leaves out."""
    if not isinstance(op, Op):
        return own if own.errors else own._replace(errors=lambda rng: [])
    usual = _usual(op)
    errors = own.errors or usual.errors or (lambda rng: [])
    return Cases(
        own.samples or usual.samples,
        partial(_all_refused, op, errors),
        own.reference or usual.reference,
    )


def _usual(op):
    if op.family == "elementwise":
        samples = reals() if len(op.data) == 1 else pairs()
        return Cases(samples, _refused_shapes(len(op.data)), of_python(op.name))
    if op.family == "reduction":
        return Cases(errors=_repeated_axes)
    return Cases()


def _all_refused(op, own, rng):
    """Calls with what is no array, with axes that do not exist, and the op's own.

    Other arguments are those of its first sample.
    """
    if not op.data or op.variadic or (op.arrange and (len(op.data) > 1 or op.required)):
        return list(own(rng))
    found = [
        ErrorSample(("a string",), {}, DTypeError, "str"),
        ErrorSample((object(),), {}, DTypeError, "object"),
        ErrorSample(([[1.0, 2.0], [3.0]],), {}, ShapeError, "ragged"),
    ]
    if "axis" in op.attributes:
        args = (np.ones((2, 3)),) if op.arrange else ()
        # NumPy takes the least int32 for None in some of its functions.
        for axis in (7, -(1 << 31)):
            words = f"axis {axis} does not exist"
            found.append(ErrorSample(args, {"axis": axis}, AxisError, words))
        found.append(ErrorSample(args, {"axis": "rows"}, ShapeError, "is not an axis"))
    return [*found, *own(rng)]


def _refused_shapes(arity):
    def errors(rng):
        args = [rng.standard_normal(4)] + [rng.standard_normal((2, 3))] * (arity - 1)
        return [ErrorSample(tuple(args), {}, ShapeError, "broadcast")] if arity > 1 else []

    return errors


def _repeated_axes(rng):
    return [ErrorSample((np.ones((2, 3)),), {"axis": (0, -2)}, ShapeError, "repeat")]


def of_python(name):
    """The function that Python has under the name of an op, for numbers that may be complex."""
    name = _OPERATORS.get(name, name)
    of_both = getattr(operator, name, None) or getattr(operator, f"{name}_", None)
    of_real = of_both or getattr(math, name, None)
    of_complex = of_both or getattr(cmath, name, of_real)
    if of_real is None:
        return None
    return each(lambda *x: (of_complex if complex in map(type, x) else of_real)(*x))
