"""Expected results of regions with elementwise bounds, and comparison of arrays with them."""

from typing import NamedTuple

import numpy as np

from eagerflow.codegen.instructions import is_float, value_type
from eagerflow.codegen.numpy import philox
from eagerflow.codegen.region import REDUCTIONS, Constant
from tests.codegen.bounds import Bounded, apart, apply, exactly, finish, wide_type
from tests.codegen.regions import memory_dtype


class Comparison(NamedTuple):
    """How many elements there were, were compared, and were compared within a thousandth."""

    elements: int
    compared: int
    closely: int
    wrong: list[str]


def evaluate(region, inputs, sizes, least=0.0):
    """The Bounded value of each output; ``least`` as in ``bounds.apply``."""
    return _Evaluation(region, inputs, sizes, least).outputs()


def compare(region, outputs, expected):
    """Outputs of a way against those that ``evaluate`` expects."""
    elements = compared = closely = 0
    wrong = []
    for part, got, value in zip(region.outputs, outputs, expected, strict=True):
        value = _along(region, part.axes, got.shape, value)
        bad, close = _judge(got, value, part.dtype, value_type(part.dtype))
        elements += got.size
        compared += int((~value.unknown).sum())
        closely += int((close & ~value.unknown).sum())
        if bad.any():
            place = tuple(int(i) for i in np.unravel_index(bad.argmax(), bad.shape))
            wrong.append(
                f"{part.name}{list(place)}: {got[place]!r}, not {value.value[place]!r} "
                f"± {value.error[place]:.3g} ({bad.sum()} of {got.size})"
            )
    return Comparison(elements, compared, closely, wrong)


def _along(region, axes, shape, expected):
    """A value of the region's rank as one of the shape of an array along some of the axes."""
    kept = tuple(slice(None) if a in axes else 0 for a in region.axes)
    parts = [np.broadcast_to(np.asarray(x)[kept], shape) for x in expected[:3]]
    return Bounded(*parts, expected.signed)


def _judge(got, expected, dtype, value_dtype):
    """Which elements differ from the expectation, and which are known within a thousandth."""
    value, error, unknown, signed = expected
    if not is_float(value_dtype):
        return (got != value) & ~unknown, np.ones(got.shape, bool)
    with np.errstate(all="ignore"):
        low, high = (
            end.astype(value_dtype).astype(memory_dtype(dtype)).astype(wide_type(value_dtype))
            for end in (value - error, value + error)
        )
        found = got.astype(wide_type(value_dtype))
        right = ((found >= low) & (found <= high)) | (np.isnan(found) & np.isnan(value))
        if signed:  # where the number is known to the last bit, so is the sign of zero
            zero = (value == 0) & (error == 0)
            right &= ~zero | (np.signbit(found) == np.signbit(value))
        return ~right & ~unknown, ~(error > 1e-3 * np.abs(value))


class _Evaluation:
    """Values of a region by name; each has the region's rank, of size 1 where it is constant."""

    def __init__(self, region, inputs, sizes, least):
        self.region, self.sizes, self.least = region, sizes, least
        self.arrays = dict(zip((p.name for p in region.inputs), inputs, strict=True))
        self.values, self.types = {}, {}
        for part in region.inputs:
            self.types[part.name] = value_type(part.dtype)
            self.values[part.name] = exactly(self.read(part), self.types[part.name])
        self.makers = {s.name: s for s in region.body}
        for statement in region.body:
            self.types[statement.name] = statement.dtype
            self.values[statement.name] = self.statement(statement)

    def outputs(self):
        return [self.values[part.value] for part in self.region.outputs]

    def read(self, part):
        array = self.arrays[part.name].astype(value_type(part.dtype))
        if part.gather is None:
            return self.spread(array, part.axes)
        index = next(p for p in self.region.inputs if p.name == part.gather)
        rows = array[self.arrays[part.gather]]
        rows = self.spread(rows, (*index.axes, *part.axes[1:]))
        shape = [self.sizes[a] if a in part.axes else 1 for a in self.region.axes]
        return np.broadcast_to(rows, shape)

    def spread(self, array, axes):
        """An array along some axes with the rank of the region."""
        return array.reshape([self.sizes[a] if a in axes else 1 for a in self.region.axes])

    def operand(self, operand):
        if isinstance(operand, Constant):
            value = np.full([1] * len(self.region.axes), operand.value, operand.dtype)
            return exactly(value, operand.dtype), operand.dtype
        return self.values[operand], self.types[operand]

    def statement(self, part):
        known = [self.operand(o) for o in part.operands]
        operands = [value for value, _ in known]
        if part.instruction in REDUCTIONS:
            over = tuple(self.region.axes.index(a) for a in part.over)
            with np.errstate(all="ignore"):
                return _reduce(part.instruction, part.dtype, operands[0], over)
        if part.instruction in ("position", "extent", "random_bits"):
            return exactly(self.generated(part, operands), part.dtype)
        types = [dtype for _, dtype in known]
        if part.instruction == "equal" and is_float(types[0]) and self.is_extreme(part):
            return _where_extreme(*operands)
        return apply(part.instruction, operands, types[-1], part.dtype, self.least)

    def is_extreme(self, part):
        """Whether a value is compared with its own largest or smallest element, as in argmax."""
        maker = self.makers.get(part.operands[1])
        return (
            maker is not None
            and maker.instruction in ("max", "min")
            and maker.operands == part.operands[:1]
        )

    def generated(self, part, operands):
        if part.instruction == "extent":
            return np.full([1] * len(self.region.axes), self.sizes[part.over[0]]).astype(part.dtype)
        if part.instruction == "position":
            return self.spread(np.arange(self.sizes[part.over[0]]), part.over)
        state = np.array([int(o.value.ravel()[0]) for o in operands], np.uint64)
        shape = [self.sizes[a] for a in part.over]
        count = int(np.prod(shape))
        words = philox.bits(state, count)
        if part.dtype == "uint32":
            words = words.astype("<u8").view("<u4")[:count].astype(np.uint32)
        return self.spread(words.reshape(shape), part.over)


def _where_extreme(x, extreme):
    """Where the largest (or smallest) element is; only one whose interval reaches it, if it may.

    The element and the extreme have the same error, so that it equals itself exactly.
    """
    result = apply("equal", [x, extreme], "float32", "bool")
    axes = tuple(i for i, n in enumerate(x.value.shape) if extreme.value.shape[i] != n)
    candidates = result.value | result.unknown
    alone = candidates & (candidates.sum(axes, keepdims=True) == 1)
    doubtful = extreme.unknown | x.unknown.any(axes, keepdims=True) | ~np.isfinite(extreme.value)
    sure = alone & ~doubtful
    return result._replace(value=result.value | sure, unknown=result.unknown & ~sure)


# Reductions --------------------------------------------------------------------------------------


def _reduce(name, dtype, x, over):
    if name in ("any", "all"):
        wanted = name == "any"
        decided = ((x.value == wanted) & ~x.unknown).any(over, keepdims=True)
        value = np.where(decided, wanted, getattr(np, name)(x.value, axis=over, keepdims=True))
        unknown = x.unknown.any(over, keepdims=True) & ~decided
        return Bounded(value, np.zeros(value.shape), unknown)
    if not is_float(dtype):
        return _reduce_integers(name, dtype, x, over)
    count = int(np.prod([x.value.shape[axis] for axis in over]))
    if count == 0:
        empty = {"sum": 0, "product": 1, "max": -np.inf, "min": np.inf}[name]
        shape = [1 if axis in over else n for axis, n in enumerate(x.value.shape)]
        return exactly(np.full(shape, empty), dtype)._replace(signed=False)
    if count == 1 and name in ("sum", "product"):
        value, error, unknown = (a.sum(over, keepdims=True) for a in x[:3])
        return Bounded(value, error, unknown > 0, False)
    return {"sum": _sum, "product": _product}.get(name, _extreme)(name, dtype, x, over, count)


def _reduce_integers(name, dtype, x, over):
    unknown = x.unknown.any(over, keepdims=True)
    if name in ("sum", "product"):
        function = np.sum if name == "sum" else np.prod
        value = function(x.value, axis=over, dtype=dtype, keepdims=True)
    else:
        ends = np.iinfo(dtype)
        first = ends.min if name == "max" else ends.max
        value = getattr(np, name)(x.value, axis=over, keepdims=True, initial=first)
    return Bounded(value, np.zeros(value.shape), unknown)


def _unknown_or_nan(x, over):
    """Where an unknown element leaves the result unknown, which a NaN does not."""
    nan = (np.isnan(x.value) & ~x.unknown).any(over, keepdims=True)
    return x.unknown.any(over, keepdims=True) & ~nan, nan


def _sum(name, dtype, x, over, count):
    """In any order: each of the additions rounds at most the sum of the absolute values."""
    unknown, nan = _unknown_or_nan(x, over)
    size = (np.abs(x.value) + x.error).sum(over, keepdims=True)
    value = x.value.sum(over, keepdims=True)
    error = x.error.sum(over, keepdims=True)
    unit = np.finfo(dtype).eps / 2
    finite = np.isfinite(value)
    error = np.where(finite, error + count * unit * size, 0)
    # Partial sums that overflow do so in one direction only where all signs are equal.
    low, high = (end.min(over, keepdims=True) for end in (x.value - x.error, -x.value - x.error))
    mixed = (low < 0) & (high < 0)
    finite_size = np.where(np.isfinite(x.value), np.abs(x.value) + x.error, 0)
    overflow = finite_size.sum(over, keepdims=True) > np.finfo(dtype).max
    unknown = unknown | (overflow & mixed & ~nan)
    result = finish(dtype, np.where(nan, np.nan, value), error, unknown, 0.5, signed=False)
    return result


def _product(name, dtype, x, over, count):
    """In any order, as long as no product of some of the numbers overflows or underflows."""
    unknown, nan = _unknown_or_nan(x, over)
    size = np.abs(x.value)
    usual = (size > 0) & np.isfinite(size)
    magnitude = np.where(usual, np.log2(np.where(usual, size, 1)), 0).astype(np.float64)
    above = np.maximum(magnitude, 0).sum(over, keepdims=True)
    below = np.minimum(magnitude, 0).sum(over, keepdims=True)
    limits = np.finfo(dtype)
    grows = above >= limits.maxexp - 1
    shrinks = below <= limits.minexp + 1
    infinite = np.isinf(size).any(over, keepdims=True)
    zero = (size == 0).any(over, keepdims=True)
    relative = np.where(usual, x.error / np.where(usual, size, 1), np.where(x.error > 0, np.inf, 0))
    loose = (relative > 0.1).any(over, keepdims=True)
    lost = (
        (zero & (grows | loose))
        | (infinite & (shrinks | loose))
        | (~zero & ~infinite & (grows | shrinks))
    )
    value = x.value.prod(over, keepdims=True)
    growth = np.log1p(np.where(relative > 0.1, 0, relative) / 0.9).sum(over, keepdims=True)
    error = np.expm1(growth + count * limits.eps) * np.abs(value)
    error = np.where(loose, np.inf, np.where(np.isfinite(value), error, 0))
    unknown = unknown | (lost & ~nan) | (loose & ~nan)
    value = np.where(nan, np.nan, value)
    return finish(dtype, value, np.where(nan, 0, error), unknown, 0.5, signed=False)


def _extreme(name, dtype, x, over, count):
    function = np.max if name == "max" else np.min
    unknown, nan = _unknown_or_nan(x, over)
    value = np.where(nan, np.nan, function(x.value, axis=over, keepdims=True))
    ends = [function(end, axis=over, keepdims=True) for end in x.ends]
    error = np.maximum(*(apart(end, value) for end in ends))
    # An infinity that is the result hides elements of any error.
    return Bounded(value, np.where(unknown | nan, 0, error), unknown, False)
