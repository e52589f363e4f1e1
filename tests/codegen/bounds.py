"""Numbers with bounds: the exact result of a scalar instruction, and how far off a kernel may be.

A value is kept as arrays (``Bounded``): the exact number, in a wider type; the largest error that
the statements before it allow; where nothing can be said, as after comparing two numbers that are
equal within their errors; and whether the signs of zeros are known. Errors are propagated
through the ends of intervals, or a derivative; then each instruction adds its own bound, in units
in the last place. Operations that IEEE 754 defines exactly (arithmetic, square roots, rounding,
comparisons), of operands without error, have no error, and so have integers.
"""

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from eagerflow.codegen import functions
from eagerflow.codegen.instructions import is_float

HALF = 0.5  # units in the last place: the error of one rounding


class Bounded(NamedTuple):
    """A value: numbers, their errors, where they are unknown, whether the signs of zeros count."""

    value: Any
    error: Any
    unknown: Any
    signed: bool = True

    @property
    def clean(self):
        """Where the value is known to the last bit."""
        return (self.error == 0) & ~self.unknown

    @property
    def ends(self):
        return self.value - self.error, self.value + self.error

    @property
    def may_be_zero(self):
        """Where errors make it uncertain whether, or which, zero this is."""
        doubtful = (self.error > 0) | (not self.signed)
        return self.unknown | ((np.abs(self.value) <= self.error) & doubtful)


def wide_type(dtype):
    """The type in which exact numbers of a type of floats are kept; other types stay."""
    return {"float32": np.float64, "float64": np.longdouble}.get(dtype, dtype)


def exactly(value, dtype):
    """A Bounded without error."""
    value = np.asarray(value).astype(wide_type(dtype))
    return Bounded(value, np.zeros_like(value, wide_type("float32")), np.zeros(value.shape, bool))


def units(name, dtype, least=0.0):
    """The stated bound of an instruction in units in the last place."""
    stated = getattr(functions, "BOUNDS", {}).get(name, (4.0, 4.0))
    return max(stated[dtype == "float64"], least)


def apart(a, b):
    """The distance of two numbers: 0 of equal infinities and of two NaN, NaN of one."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0, np.abs(a - b))


def finish(dtype, value, error, unknown, ulps=HALF, signed=True):
    """A float result with the error of its own rounding; beyond the type's range it is infinite."""
    wide = wide_type(dtype)
    value = np.asarray(value, wide)
    largest = wide(np.finfo(dtype).max)
    error = np.where(unknown, 0, error)
    finite = np.isfinite(value)
    unknown = unknown | ~(error < np.inf) | (~finite & (error > 0))
    size = np.where(finite, np.abs(value), 0)
    error = np.where(unknown | ~finite, 0, error)
    error = error * (1 + 1e-9) + 4 * np.finfo(wide).eps * size
    last_place = np.spacing(np.minimum(size + error, largest).astype(dtype)).astype(wide)
    error = error + ulps * last_place
    beyond = finite & (size - error > largest * (1 + wide(np.finfo(dtype).eps) / 4))
    unknown = unknown | (finite & ~beyond & (size + error > largest))
    value = np.where(beyond, np.copysign(np.inf, value), value)
    error = np.where(beyond | ~finite | unknown, 0, error)
    return Bounded(value, error, unknown, signed)


def _prescribed(result, dtype, function, operands):
    """Where all operands are exact, the result that the machine's own arithmetic has."""
    clean = functools.reduce(np.logical_and, [o.clean for o in operands])
    own = function(*(o.value.astype(dtype) for o in operands)).astype(wide_type(dtype))
    value = np.where(clean, own, result.value)
    return Bounded(value, np.where(clean, 0, result.error), result.unknown & ~clean, result.signed)


def _either_unknown(operands):
    return functools.reduce(np.logical_or, [o.unknown for o in operands])


def _spread(function, value, operands):
    """How far results at the corners of the operands' intervals are from the one in the middle."""
    if not any(o.error.any() for o in operands):
        return np.zeros_like(value)
    corners = itertools.product(*(o.ends for o in operands))
    return functools.reduce(np.maximum, [apart(function(*corner), value) for corner in corners])


# Floats: each rule gives (value, error, unknown) without the rounding of the instruction --------


def _by_corners(function):
    """The rule of a function that is monotone in each operand."""

    def rule(*operands):
        value = function(*(o.value for o in operands))
        return value, _spread(function, value, operands), _either_unknown(operands)

    return rule


def _by_size(function):
    """The rule of an even function that grows with the absolute value."""

    def rule(x):
        size, value = np.abs(x.value), function(x.value)
        ends = function(size + x.error), function(np.maximum(size - x.error, 0))
        return value, np.maximum(*(apart(end, value) for end in ends)), x.unknown

    return rule


def _divide(a, b):
    value, error, unknown = _by_corners(np.divide)(a, b)
    return value, error, unknown | b.may_be_zero


def _reciprocal(x):
    value, error, unknown = _by_corners(np.reciprocal)(x)
    return value, error, unknown | x.may_be_zero


def _rsqrt(x):
    value, error, unknown = _by_corners(lambda x: 1 / np.sqrt(x))(x)
    return value, error, unknown | x.may_be_zero


def _wave(function):
    """The rule of a sine or cosine."""

    def rule(x):
        value = function(x.value)
        return value, np.where(np.isfinite(value), np.minimum(x.error, 2), 0), x.unknown

    return rule


def _tan(x):
    value, error, unknown = _by_corners(np.tan)(x)
    branches = [np.floor(end / np.pi + 0.5) for end in x.ends]
    far = np.abs(x.value) > 1e4
    return value, error, unknown | ((x.error > 0) & (far | (branches[0] != branches[1])))


def _hypot(a, b):
    value = np.hypot(a.value, b.value)
    error = np.where(np.isfinite(value), a.error + b.error, 0)
    return value, error, _either_unknown((a, b))


def _power(a, b):
    value, error, unknown = _by_corners(np.power)(a, b)
    crosses = (a.error > 0) & (np.abs(a.value) <= a.error)
    negative = (b.error > 0) & (a.value - a.error <= 0)
    return value, error, unknown | crosses | negative | (a.may_be_zero & (b.value <= 0))


def _atan2(y, x):
    value, error, unknown = _by_corners(np.arctan2)(y, x)
    left = x.value - x.error <= 0
    return value, error, unknown | (y.may_be_zero & left) | (x.may_be_zero & (y.value == 0))


def _lgamma(x):
    """Convex between its poles: its ends, and its tangent, bound it on an interval."""
    value = _log_gamma(x.value)
    slope = special.digamma(x.value.astype(np.float64))
    steep = np.where(x.error > 0, np.abs(slope) * x.error, 0)
    error = np.maximum(_spread(_log_gamma, value, (x,)), np.where(np.isnan(steep), 0, steep))
    low, high = x.ends
    pole = (x.error > 0) & (low <= 0) & ((np.floor(low) != np.floor(high)) | (low == high))
    # Near its zeros the reference is exact to an absolute error only; so are kernels on the left.
    if x.value.dtype == np.float64:
        near = np.where(x.value < 0, 8 * np.finfo(np.float32).eps, 0)
    else:
        near = np.where(x.value < 0, 1e-14 * (1 + np.abs(x.value)), 4e-16)
    error = np.where(np.isfinite(value), error + near, error)
    return value, error, x.unknown | pole


def _log_gamma(x):
    value = special.gammaln(x.astype(np.float64)).astype(x.dtype)
    return np.where(np.isinf(x), np.inf, value)


def _in_double(function):
    """A function of SciPy, which knows no wider floats."""
    return lambda x: function(x.astype(np.float64)).astype(x.dtype)


def _erfc(x):
    """As SciPy has it near 0; further out its own rounds x², which costs up to x² units."""
    positive = np.maximum(x, 0)
    scaled = special.erfcx(positive.astype(np.float64)).astype(x.dtype)
    with np.errstate(over="ignore"):
        far = scaled * np.exp(-positive * positive)
    return np.where(x > HALF, far, _in_double(special.erfc)(x))


def _sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _sign(x):
    return np.where(np.isnan(x), x, np.sign(x) + 0.0)


PRESCRIBED = {  # rule, and the function that NumPy computes exactly
    "add": (_by_corners(np.add), np.add),
    "subtract": (_by_corners(np.subtract), np.subtract),
    "multiply": (_by_corners(np.multiply), np.multiply),
    "divide": (_divide, np.divide),
    "square": (_by_size(np.square), np.square),
    "reciprocal": (_reciprocal, np.reciprocal),
    "sqrt": (_by_corners(np.sqrt), np.sqrt),
}
SELECTED = {  # those that round nothing
    "negative": (_by_corners(np.negative), np.negative),
    "abs": (_by_size(np.abs), np.abs),
    "sign": (_by_corners(_sign), _sign),
    "floor": (_by_corners(np.floor), np.floor),
    "ceil": (_by_corners(np.ceil), np.ceil),
    "trunc": (_by_corners(np.trunc), np.trunc),
    "round": (_by_corners(np.rint), np.rint),
    "maximum": (_by_corners(np.maximum), np.maximum),
    "minimum": (_by_corners(np.minimum), np.minimum),
}
MONOTONE = "exp exp2 expm1 log log2 log10 log1p sinh tanh asin acos atan asinh acosh atanh".split()
FUNCTIONS = {
    **{name: _by_corners(getattr(np, name)) for name in MONOTONE},
    "rsqrt": _rsqrt,
    "cosh": _by_size(np.cosh),
    "sin": _wave(np.sin),
    "cos": _wave(np.cos),
    "tan": _tan,
    "erf": _by_corners(_in_double(special.erf)),
    "erfc": _by_corners(_erfc),
    "lgamma": _lgamma,
    "sigmoid": _by_corners(_sigmoid),
    "power": _power,
    "atan2": _atan2,
    "hypot": _hypot,
}
IN_DOUBLE = ("erf", "erfc", "lgamma")
WITHOUT_SIGN = ("sign", "maximum", "minimum")  # zeros: NumPy, C and IEEE 754-2019 differ


def _fma(dtype, a, b, c):
    """Rounded once or twice: both are allowed."""
    product = finish(dtype, *_by_corners(np.multiply)(a, b))
    value, error, unknown = _by_corners(lambda a, b, c: a * b + c)(a, b, c)
    overflow = np.isinf(product.value) & np.isfinite(a.value * b.value)
    rounding = np.spacing(np.where(overflow, 0, product.value).astype(dtype)) * HALF
    rounding = np.where(np.isfinite(value), np.abs(rounding), 0)
    return finish(
        dtype, value, error + rounding, unknown | overflow | product.unknown, signed=False
    )


def _floor_divide(dtype, a, b):
    value, error, unknown = _divide(a, b)
    clean = a.clean & b.clean
    divides = clean & (np.fmod(a.value, b.value) == 0)
    quotient = finish(dtype, value, error, unknown, 1)
    slack = np.where(divides, 0, quotient.error)
    whole = np.floor(value)
    ends = np.floor(value - slack), np.floor(value + slack)
    error = np.maximum(*(apart(end, whole) for end in ends))
    result = finish(dtype, whole, error, quotient.unknown, HALF, signed=False)
    infinite = np.isinf(a.value) | np.isinf(b.value)
    strange = clean & (infinite | (b.value == 0))
    own = np.floor_divide(a.value.astype(dtype), b.value.astype(dtype))
    return Bounded(
        np.where(strange, own, result.value),
        np.where(strange, 0, result.error),
        (result.unknown | (infinite & ~clean)) & ~strange | (strange & b.may_be_zero),
        signed=False,
    )


def _modulo(function, whole):
    """The rule of a - whole(a / b) * b, which is exact but for one rounding where a and b are."""

    def rule(dtype, a, b):
        value = function(a.value, b.value)
        quotient, error, unknown = _divide(a, b)
        clean = a.clean & b.clean
        slack = np.where(clean, 0, error + np.abs(quotient) * np.finfo(dtype).eps)
        low, high = whole(quotient - slack), whole(quotient + slack)
        unknown = unknown | (~clean & (low != high))
        error = np.where(clean | ~np.isfinite(value), 0, a.error + np.abs(low) * b.error)
        result = finish(dtype, value, error, unknown, 1, signed=False)
        own = function(a.value.astype(dtype), b.value.astype(dtype))
        return result._replace(value=np.where(clean, own, result.value))

    return rule


def _copysign(dtype, a, b):
    unknown = _either_unknown((a, b)) | b.may_be_zero | np.isnan(b.value)
    value = np.copysign(a.value, b.value)
    return Bounded(value, a.error + 0 * b.error, unknown, signed=True)


def _nextafter(dtype, a, b):
    value = np.nextafter(a.value.astype(dtype), b.value.astype(dtype))
    error = np.where(np.isfinite(value), a.error, 0)
    near = np.where(np.isnan(b.value), np.nan, a.value)
    unknown = _either_unknown((a, b)) | np.isinf(a.value)
    result = finish(dtype, near, np.where(np.isfinite(near), error, 0), unknown, 1)
    return _prescribed(result, dtype, np.nextafter, (a, b))


SPECIAL = {
    "fma": _fma,
    "floor_divide": _floor_divide,
    "remainder": _modulo(np.remainder, np.floor),
    "fmod": _modulo(np.fmod, np.trunc),
    "copysign": _copysign,
    "nextafter": _nextafter,
}


def _float(name, dtype, operands, least):
    """A float instruction that gives the type it takes."""
    if name in SPECIAL:
        return SPECIAL[name](dtype, *operands)
    signed = all(o.signed for o in operands) and name not in WITHOUT_SIGN
    if name in FUNCTIONS:
        ulps = units(name, dtype, least) + 6 * (dtype == "float64" and name in IN_DOUBLE)
        return finish(dtype, *FUNCTIONS[name](*operands), ulps, signed)
    rule, own = (PRESCRIBED | SELECTED)[name]
    value, error, unknown = rule(*operands)
    if name in PRESCRIBED:
        result = finish(dtype, value, error, unknown, HALF, signed)
    else:
        unknown = unknown | ~(error < np.inf)
        result = Bounded(value, np.where(unknown, 0, error), unknown, signed)
    return _prescribed(result, dtype, own, operands)


# Comparisons, choices, types ---------------------------------------------------------------------


def _truth(value, unknown):
    return Bounded(np.asarray(value), np.zeros(np.shape(value)), np.asarray(unknown))


def _compare(name, a, b):
    """True or false where no two numbers of the intervals say otherwise."""
    function = getattr(np, name)
    value = function(a.value, b.value)
    unknown = _either_unknown((a, b))
    (a0, a1), (b0, b1) = a.ends, b.ends
    if name in ("equal", "not_equal"):
        overlap = (a0 <= b1) & (b0 <= a1)
        unknown = unknown | (overlap & ~(a.clean & b.clean))
    else:
        unknown = unknown | (function(a0, b1) != function(a1, b0))
    return _truth(value, unknown)


def _question(name, x):
    unknown = x.unknown
    if name == "signbit":
        unknown = unknown | x.may_be_zero | np.isnan(x.value)
    return _truth(getattr(np, name)(x.value), unknown)


def _logic(name, operands):
    value = getattr(np, name)(*(o.value for o in operands))
    unknown = _either_unknown(operands)
    if name in ("logical_and", "logical_or"):  # one operand may be enough
        enough = name == "logical_or"
        sure = [(o.value == enough) & ~o.unknown for o in operands]
        decided = functools.reduce(np.logical_or, sure)
        value, unknown = np.where(decided, enough, value), unknown & ~decided
    return _truth(value, unknown)


def _select(dtype, condition, a, b):
    value = np.where(condition.value, a.value, b.value)
    error = np.where(condition.value, a.error, b.error)
    unknown = np.where(condition.value, a.unknown, b.unknown)
    gap = apart(a.value, b.value) if is_float(dtype) else (a.value != b.value) * np.inf
    gap = np.where(np.isnan(gap), np.inf, gap)
    either = np.maximum(a.error, b.error) + gap
    lost = condition.unknown & (_either_unknown((a, b)) | ~(either < np.inf))
    error = np.where(condition.unknown & ~lost, either, np.where(lost, 0, error))
    return Bounded(value, error, unknown | lost, a.signed and b.signed)


def _saturated(value, dtype):
    ends, exact = np.iinfo(dtype), np.dtype(dtype).type
    whole = np.trunc(value)
    inside = (whole >= float(ends.min)) & (whole < float(ends.max) + 1 - (ends.bits < 53) * 0.5)
    inside &= whole < 2.0 ** (ends.bits - (ends.min < 0))
    found = np.where(inside, whole, 0).astype(dtype)
    beyond = np.where(value > 0, exact(ends.max), exact(ends.min))
    return np.where(inside | np.isnan(value), found, beyond)


def _convert(x, source, target):
    if source == target:
        return x
    if not is_float(source):
        wide = x.value.astype(target).astype(wide_type(target))
        return Bounded(wide, np.zeros(wide.shape), x.unknown)
    if target == "bool":
        return _truth(x.value != 0, x.unknown | ((x.error > 0) & (np.abs(x.value) <= x.error)))
    if not is_float(target):
        low, high = (_saturated(end, target) for end in x.ends)
        return Bounded(
            _saturated(x.value, target).astype(target),
            np.zeros(low.shape),
            x.unknown | (low != high),
        )
    if target == "float64":
        wide = wide_type(target)
        return Bounded(x.value.astype(wide), x.error.astype(wide), x.unknown, x.signed)
    result = finish(target, x.value.astype(np.float64), x.error, x.unknown, signed=x.signed)
    own = x.value.astype(source).astype(target)
    return Bounded(
        np.where(x.clean, own, result.value),
        np.where(x.clean, 0, result.error).astype(np.float64),
        result.unknown & ~x.clean,
        x.signed,
    )


def _bitcast(x, source, target):
    unknown = x.unknown
    if is_float(source):
        doubtful = np.isnan(x.value) | (x.error > 0) | x.may_be_zero
        unknown = unknown | doubtful
    bits = np.ascontiguousarray(x.value.astype(source)).view(target).reshape(x.value.shape)
    return exactly(bits, target)._replace(unknown=unknown)


def _quotient(a, b):
    """Integers divided, rounded towards 0: the quotient of sizes, with the product of signs."""
    unsigned = f"u{a.dtype.itemsize}"  # which holds the size of the lowest integer too
    size, by = (np.ascontiguousarray(np.abs(x)).view(unsigned).reshape(x.shape) for x in (a, b))
    found = np.where(by == 0, 0, size // np.maximum(by, 1)).astype(a.dtype)
    return np.where((a < 0) != (b < 0), -found, found)


def _integer(name, operands):
    if name == "quotient":
        value = _quotient(*(o.value for o in operands))
        return Bounded(value, np.zeros(value.shape), _either_unknown(operands))
    value = getattr(np, {"select": "where"}.get(name, name))(*(o.value for o in operands))
    return Bounded(value, np.zeros(value.shape), _either_unknown(operands))


def apply(name, operands, source, target, least=0.0):
    """The result of an instruction on Bounded operands of a type, in a type.

    ``least`` is the smallest bound of elementary functions, in units in the last place.
    """
    with np.errstate(all="ignore"):
        if name == "select":
            return _select(source, *operands)
        if name == "convert":
            return _convert(operands[0], source, target)
        if name == "bitcast":
            return _bitcast(operands[0], source, target)
        if name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
            return _compare(name, *operands)
        if name in ("isfinite", "isinf", "isnan", "signbit"):
            return _question(name, *operands)
        if name.startswith("logical_"):
            return _logic(name, operands)
        if is_float(source):
            return _float(name, source, operands, least)
        return _integer(name, operands)
