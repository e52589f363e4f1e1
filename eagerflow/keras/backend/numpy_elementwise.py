"""The elementwise functions of ``keras.ops.numpy``."""

import functools
import re

from keras.src import tree
from keras.src.backend.common.dtypes import INT_TYPES

import eagerflow as ef
from eagerflow.keras.backend.operands import binary, floating, is_integral, joined, promoted, unary
from eagerflow.keras.backend.tensors import cast, convert_to_tensor
from eagerflow.keras.sparse import also_sparse, linear, on_values, quotient, scaled, union

__all__ = [
    "abs",
    "absolute",
    "add",
    "allclose",
    "angle",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clip",
    "conj",
    "conjugate",
    "cos",
    "cosh",
    "deg2rad",
    "divide",
    "divide_no_nan",
    "equal",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "greater",
    "greater_equal",
    "heaviside",
    "hypot",
    "i0",
    "imag",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "lcm",
    "ldexp",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "nan_to_num",
    "negative",
    "nextafter",
    "not_equal",
    "power",
    "rad2deg",
    "real",
    "reciprocal",
    "right_shift",
    "round",
    "select",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
    "vectorize",
    "view",
    "where",
]

# One argument -------------------------------------------------------------------------------------

arccos = unary("acos", "floats")
arccosh = unary("acosh", "floats")
arcsin = unary("asin", "floats", on_values)
arcsinh = unary("asinh", "floats", on_values)
arctan = unary("atan", "floats", on_values)
arctanh = unary("atanh", "floats", on_values)
bitwise_invert = unary("bitwise_invert", "all")
cbrt = unary("cbrt", "floats", on_values)
ceil = unary("ceil", "floats", on_values)
conjugate = unary("conj", "all", linear)
cos = unary("cos", "floats")
cosh = unary("cosh", "floats")
deg2rad = unary("deg2rad", "floats", on_values)
exp = unary("exp", "floats")
exp2 = unary("exp2", "floats")
expm1 = unary("expm1", "floats", on_values)
fabs = unary("abs", "floats", on_values)
floor = unary("floor", "floats", on_values)
i0 = unary("i0", "floats")
isfinite = unary("isfinite", "all")
isinf = unary("isinf", "all", on_values)
isnan = unary("isnan", "all", on_values)
log = unary("log", "floats")
log10 = unary("log10", "floats")
log1p = unary("log1p", "floats", on_values)
log2 = unary("log2", "floats")
logical_not = unary("logical_not", "all")
negative = unary("negative", "numbers", linear)
rad2deg = unary("rad2deg", "floats", on_values)
reciprocal = unary("reciprocal", "floats")
sign = unary("sign", "numbers", on_values)
sin = unary("sin", "floats", on_values)
sinc = unary("sinc", "floats")
sinh = unary("sinh", "floats", on_values)
sqrt = unary("sqrt", "floats", on_values)
square = unary("square", "numbers", on_values)
tan = unary("tan", "floats", on_values)
tanh = unary("tanh", "floats", on_values)

conj, bitwise_not = conjugate, bitwise_invert


@also_sparse(on_values)
def absolute(x):
    x = convert_to_tensor(x)
    return x if x.dtype == "bool" else ef.abs(x)


@also_sparse(on_values)
def abs(x):
    return absolute(x)


def angle(x):
    return ef.angle(floating(x))


@also_sparse(linear)
def real(x):
    x = convert_to_tensor(x)
    return ef.real(x) if _is_complex(x) else x


@also_sparse(linear)
def imag(x):
    x = convert_to_tensor(x)
    return ef.imag(x) if _is_complex(x) else ef.zeros_like(x)


def isreal(x):
    return ef.equal(imag(x), 0)


def isneginf(x):
    x = convert_to_tensor(x)
    return ef.logical_and(ef.isinf(x), ef.less(x, 0))


def isposinf(x):
    x = convert_to_tensor(x)
    return ef.logical_and(ef.isinf(x), ef.greater(x, 0))


@also_sparse(on_values)
def signbit(x):
    x = convert_to_tensor(x)
    return (
        ef.less(cast(x, "int32") if x.dtype == "bool" else x, 0)
        if is_integral(x)
        else ef.signbit(x)
    )


@also_sparse(on_values)
def trunc(x):
    x = convert_to_tensor(x)
    return x if is_integral(x) else ef.trunc(x)


@also_sparse(on_values)
def round(x, decimals=0):
    x = convert_to_tensor(x)
    if is_integral(x):
        if decimals >= 0:
            return x
        step = 10.0**-decimals
        return cast(ef.multiply(ef.round(ef.divide(cast(x, "float64"), step)), step), x.dtype)
    if decimals == 0:
        return ef.round(x)
    wide = cast(x, joined(x.dtype.name, "float32"))
    step = 10.0 ** (decimals if decimals > 0 else -decimals)
    if decimals > 0:
        return cast(ef.divide(ef.round(ef.multiply(wide, step)), step), x.dtype)
    return cast(ef.multiply(ef.round(ef.divide(wide, step)), step), x.dtype)


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    x = convert_to_tensor(x)
    return x if is_integral(x) else ef.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


def view(x, dtype=None):
    x = convert_to_tensor(x)
    return x if dtype is None else ef.view(x, dtype)


def _is_complex(x):
    return x.dtype.name.startswith("complex")


# Two arguments ------------------------------------------------------------------------------------

add = binary("add", bools="logical_or", rule=union)
arctan2 = binary("atan2", float)
bitwise_and = binary("bitwise_and", names="x y")
bitwise_left_shift = binary("bitwise_left_shift", names="x y")
bitwise_or = binary("bitwise_or", names="x y")
bitwise_right_shift = binary("bitwise_right_shift", names="x y")
bitwise_xor = binary("bitwise_xor", names="x y")
divide = binary("divide", float, rule=quotient)
equal = binary("equal")
floor_divide = binary("floor_divide", bools="int32")
fmax = binary("fmax")
fmin = binary("fmin")
fmod = binary("fmod", bools="int32")
gcd = binary("gcd")
greater = binary("greater")
greater_equal = binary("greater_equal")
heaviside = binary("heaviside", float)
hypot = binary("hypot", float)
lcm = binary("lcm")
less = binary("less")
less_equal = binary("less_equal")
logaddexp = binary("logaddexp", float)
logaddexp2 = binary("logaddexp2", float)
maximum = binary("maximum", bools="logical_or", rule=union)
minimum = binary("minimum", bools="logical_and", rule=union)
mod = binary("remainder", bools="int32")
multiply = binary("multiply", bools="logical_and", rule=scaled)
not_equal = binary("not_equal")
power = binary("pow", bools="int32")
subtract = binary("subtract", bools="int32", rule=union)

left_shift, right_shift, true_divide = bitwise_left_shift, bitwise_right_shift, divide


def logical_and(x1, x2):
    return ef.logical_and(_bools(x1), _bools(x2))


def logical_or(x1, x2):
    return ef.logical_or(_bools(x1), _bools(x2))


def logical_xor(x1, x2):
    return ef.logical_xor(_bools(x1), _bools(x2))


def _bools(x):
    return cast(convert_to_tensor(x), "bool")


def nextafter(x1, x2):
    x1, x2 = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    if x1.dtype != "bfloat16":
        return ef.nextafter(x1, x2)
    # 16-bit numbers and their spacing as 32-bit numbers.
    x, up = cast(x1, "float32"), ef.greater(x2, x1)
    share, exponent = ef.frexp(ef.abs(x))
    inwards = ef.logical_and(ef.equal(share, 0.5), ef.equal(up, ef.less(x, 0)))
    exponent = ef.where(inwards, exponent - 9, exponent - 8)
    exponent = ef.where(ef.equal(x, 0), -133, ef.maximum(exponent, -133))
    step = ef.ldexp(ef.ones_like(x), cast(exponent, "int32"))
    moved = cast(ef.where(up, ef.add(x, step), ef.subtract(x, step)), x1.dtype)
    largest = ef.multiply(ef.sign(x1), float(ef.finfo("bfloat16").max))
    moved = ef.where(ef.isinf(x1), largest, moved)
    is_number = ef.logical_not(ef.logical_or(ef.isnan(x1), ef.isnan(x2)))
    return ef.where(is_number, ef.where(ef.equal(x1, x2), x2, moved), ef.nan)


def divide_no_nan(x1, x2):
    x1, x2 = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    is_zero = ef.equal(x2, 0)
    return ef.where(is_zero, 0, ef.divide(x1, ef.where(is_zero, 1, x2)))


def ldexp(x1, x2):
    x1, x2 = convert_to_tensor(x1), convert_to_tensor(x2)
    if x2.dtype.name not in INT_TYPES:
        raise TypeError(
            f"ldexp exponent must be an integer type. Received: x2 dtype={x2.dtype.name}"
        )
    return ef.ldexp(cast(x1, joined(x1.dtype.name, x2.dtype.name, float)), cast(x2, "int32"))


def isclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False):
    x1, x2 = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    return ef.isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)


def allclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False):
    return ef.all(isclose(x1, x2, rtol, atol, equal_nan))


# More arguments -----------------------------------------------------------------------------------


def clip(x, x_min, x_max):
    x = convert_to_tensor(x)
    x, low, high = promoted(cast(x, "int32") if x.dtype == "bool" else x, x_min, x_max)
    return ef.clip(x, low, high)


def where(condition, x1=None, x2=None):
    condition = _bools(condition)
    if x1 is None and x2 is None:
        return tuple(cast(i, "int32") for i in ef.nonzero(condition))
    return ef.where(condition, *promoted(x1, x2))


def select(condlist, choicelist, default=0):
    *choices, found = promoted(*choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        found = ef.where(_bools(condition), choice, found)
    return found


def vectorize(pyfunc, *, excluded=None, signature=None):
    ranks = None if signature is None else _core_ranks(signature)
    excluded = set(excluded or ())

    def vectorized(*args, **kwargs):
        mapped = [i for i in range(len(args)) if i not in excluded]
        tensors = [convert_to_tensor(args[i]) for i in mapped]
        core = [0] * len(mapped) if ranks is None else ranks
        cut = [t.ndim - rank for t, rank in zip(tensors, core, strict=True)]
        outer = ef.broadcast_shapes(*(t.shape[:n] for t, n in zip(tensors, cut, strict=True)))
        rows = [
            ef.reshape(ef.broadcast_to(t, (*outer, *t.shape[n:])), (-1, *t.shape[n:]))
            for t, n in zip(tensors, cut, strict=True)
        ]

        def each(*values):
            given = list(args)
            for i, value in zip(mapped, values, strict=True):
                given[i] = value
            return tree.map_structure(convert_to_tensor, pyfunc(*given, **kwargs))

        found = ef.vmap(each)(*rows)
        return tree.map_structure(lambda y: ef.reshape(y, (*outer, *y.shape[1:])), found)

    return functools.wraps(pyfunc)(vectorized)


def _core_ranks(signature):
    """The number of core axes of each argument in ``"(m,n),(n)->(m)"``."""
    given = signature.partition("->")[0]
    return [
        len([n for n in part.split(",") if n.strip()]) for part in re.findall(r"\((.*?)\)", given)
    ]
