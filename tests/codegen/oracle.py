"""The value of a region, computed from its text on whole arrays, one statement after the other."""

import math

import ml_dtypes
import numpy as np
import scipy.special

from eagerflow.codegen.region import Constant
from tests.cases.creation.philox import slow_words

SMALL_FLOATS = ("float16", "bfloat16")


def numpy_type(dtype):
    """NumPy's type of a name."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def evaluate(region, inputs, sizes, wide=False):
    """The outputs of a region; with ``wide``, floats are computed in float64 and not rounded."""
    with np.errstate(all="ignore"):
        return _Evaluation(region, inputs, sizes, wide).outputs()


def _shift(x, count, left):
    bits = 1 if x.dtype == bool else 8 * x.dtype.itemsize
    beyond = (count < 0) | (count >= bits) if x.dtype != bool else count
    if x.dtype == bool:
        return x & ~count
    moved = (
        np.left_shift(x, np.where(beyond, 0, count))
        if left
        else np.right_shift(x, np.where(beyond, 0, count))
    )
    lost = np.where(x < 0, -1, 0).astype(x.dtype) if not left else np.zeros_like(x)
    return np.where(beyond, lost, moved).astype(x.dtype)


def _divided(function):
    def divide(x, y):
        if x.dtype.kind == "f":
            return function(x, y)
        result = function(x, np.where(y == 0, 1, y).astype(y.dtype))
        return np.where(y == 0, 0, result).astype(x.dtype)

    return divide


def _to_integer(x, dtype):
    limits = np.iinfo(dtype)

    def one(value):
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return limits.max if value > 0 else limits.min
        return min(max(int(value), limits.min), limits.max)

    return np.array([one(float(v)) for v in x.ravel()], dtype).reshape(x.shape)


def _sigmoid(x):
    return scipy.special.expit(x.astype(np.float64))  # that of float32 flushes tiny results


def _lgamma(x):
    return np.where(np.isinf(x), np.inf, scipy.special.gammaln(x))  # SciPy takes -inf for a limit


NAMES = {
    "round": np.rint,
    "select": np.where,
    "sigmoid": _sigmoid,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "lgamma": _lgamma,
    "fma": lambda a, b, c: a * b + c,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor_divide": _divided(np.floor_divide),
    "remainder": _divided(np.remainder),
    "bitwise_left_shift": lambda x, n: _shift(x, n, True),
    "bitwise_right_shift": lambda x, n: _shift(x, n, False),
}
REDUCTIONS = {"sum": np.sum, "product": np.prod, "max": np.max, "min": np.min}
REDUCTIONS |= {"any": np.any, "all": np.all}


class _Evaluation:
    def __init__(self, region, inputs, sizes, wide):
        self.region, self.sizes, self.wide = region, sizes, wide
        self.arrays = dict(zip((p.name for p in region.inputs), inputs, strict=True))
        self.values = {}

    def held(self, dtype):
        """The type in which values are computed."""
        if dtype in SMALL_FLOATS or dtype in ("float32", "float64"):
            return np.dtype("float64" if self.wide or dtype == "float64" else "float32")
        return np.dtype(dtype)

    def spread(self, array, axes):
        """With all axes of the region, size 1 along those that are missing."""
        return array.reshape([self.sizes[a] if a in axes else 1 for a in self.region.axes])

    def outputs(self):
        for part in self.region.inputs:
            array = self.arrays[part.name]
            if part.gather:
                array = self.looked_up(part, array)
            self.values[part.name] = self.spread(array, part.axes).astype(self.held(part.dtype))
        for part in self.region.body:
            value = np.asarray(self.statement(part))
            self.values[part.name] = value.astype(self.held(part.dtype))
        found = []
        for part in self.region.outputs:
            shape = tuple(self.sizes[a] if a in part.axes else 1 for a in self.region.axes)
            value = np.broadcast_to(self.values[part.value], shape)
            value = value.reshape([self.sizes[a] for a in part.axes])
            is_wide = self.wide and value.dtype.kind == "f"
            found.append(value if is_wide else value.astype(numpy_type(part.dtype)))
        return found

    def looked_up(self, part, table):
        index = next(p for p in self.region.inputs if p.name == part.gather)
        axes = part.axes
        result = np.empty([self.sizes[a] for a in axes], table.dtype)
        for place in np.ndindex(*result.shape):
            at = dict(zip(axes, place, strict=True))
            row = self.arrays[part.gather][tuple(at[a] for a in index.axes)]
            result[place] = table[(int(row), *place[1:])]
        return result

    def operand(self, operand):
        if isinstance(operand, Constant):
            return np.full([1] * len(self.region.axes), operand.value, self.held(operand.dtype))
        return self.values[operand]

    def statement(self, part):
        name = part.instruction
        given = [self.operand(o) for o in part.operands]
        over = tuple(self.region.axes.index(a) for a in part.over)
        if name in REDUCTIONS:
            return self.reduction(part, given[0], over)
        if name == "extent":
            return np.full([1] * len(self.region.axes), self.sizes[part.over[0]], part.dtype)
        if name == "position":
            return self.spread(np.arange(self.sizes[part.over[0]]), part.over)
        if name == "random_bits":
            return self.random_bits(part, given)
        if name == "convert":
            to_integer = given[0].dtype.kind == "f" and part.dtype[0] in "iu"
            return _to_integer(given[0], part.dtype) if to_integer else given[0]
        if name == "bitcast":
            first = part.operands[0]
            narrow = first.dtype if isinstance(first, Constant) else self.type_of(first)
            return given[0].astype(numpy_type(narrow)).view(part.dtype)
        return NAMES[name](*given) if name in NAMES else getattr(np, name)(*given)

    def type_of(self, name):
        dtype = self.region.statement(name).dtype
        return "float32" if dtype in SMALL_FLOATS else dtype

    def reduction(self, part, x, over):
        options = {}
        if part.instruction in ("max", "min"):
            lowest = part.instruction == "max"
            if x.dtype.kind == "f":
                options["initial"] = -np.inf if lowest else np.inf
            elif x.dtype == bool:
                options["initial"] = not lowest
            else:
                limits = np.iinfo(x.dtype)
                options["initial"] = limits.min if lowest else limits.max
        if part.instruction in ("sum", "product"):
            options["dtype"] = np.float64 if x.dtype.kind == "f" else x.dtype
        return REDUCTIONS[part.instruction](x, axis=over, keepdims=True, **options)

    def random_bits(self, part, words):
        count = math.prod(self.sizes[a] for a in part.over)
        state = [int(w.ravel()[0]) for w in words]
        if part.dtype == "uint64":
            bits = slow_words(state, count)
        else:
            halves = (h for w in slow_words(state, (count + 1) // 2) for h in (w % 2**32, w >> 32))
            bits = [h for h, _ in zip(halves, range(count), strict=False)]
        return self.spread(np.array(bits, part.dtype), part.over)
