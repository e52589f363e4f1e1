"""Elementary functions compiled for arrays, and how far they are from exact results."""

import ctypes
import math

import mpmath
import numpy as np

from eagerflow.codegen.functions.table import FUNCTIONS
from eagerflow.codegen.instructions import INSTRUCTIONS
from eagerflow.codegen.llvm.instructions import Code, Emitter, Operand, llvm_type
from eagerflow.runtime.machine_code import compile_object, host, link

LONG = np.longdouble
LONG_IS_LONGER = np.finfo(LONG).nmant >= 63
"""Whether this machine's long double can judge float64."""


def compiled(function, dtype, operands=1, lanes=16, result=None, avx512=None):
    """``function(s, *operands)`` as machine code, called with arrays of one length.

    ``avx512`` says whether that processor's own instructions are used, as they are by default
    where there are any.
    """
    avx512 = host().has_avx512 if avx512 is None else avx512
    code, result = Code(), result or dtype
    one, many = llvm_type(dtype), llvm_type(dtype, lanes)
    given = [f"%x{i}" for i in range(operands)]
    pointers = ", ".join(f"ptr noalias {name}" for name in [*given, "%y"])
    code.lines.append(
        f"define void @kernel({pointers}, i64 %n) {{\nentry:\n  br label %loop\nloop:"
    )
    code.line("%i = phi i64 [0, %entry], [%next, %loop]")
    values = []
    for name in given:
        where = code.value(f"getelementptr {one}, ptr {name}, i64 %i")
        values.append(Operand(code.value(f"load {many}, ptr {where}, align 1"), dtype, lanes))
    value = function(Emitter(code, avx512), *values)
    if result == "bool":
        value = Emitter(code).convert(value, "uint8")
    stored = value.dtype
    where = code.value(f"getelementptr {llvm_type(stored)}, ptr %y, i64 %i")
    code.line(f"store {llvm_type(stored, lanes)} {value.text}, ptr {where}, align 1")
    code.line(f"%next = add i64 %i, {lanes or 1}")
    code.line("%more = icmp ult i64 %next, %n\n  br i1 %more, label %loop, label %done\ndone:")
    code.lines.append("  ret void\n}")
    text = "\n".join([*code.lines, *code.declarations.values()])
    kernel = link(compile_object(text), "kernel").function(
        "kernel", *[ctypes.c_void_p] * (operands + 1), ctypes.c_int64
    )

    def call(*arrays):
        size = arrays[0].size
        padded = -(-size // (lanes or 1)) * (lanes or 1)
        # The last vector is filled up with elements from the beginning.
        arrays = [np.resize(np.asarray(x, dtype), padded) for x in arrays]
        out = np.empty(padded, stored)
        kernel(*(x.ctypes.data for x in arrays), out.ctypes.data, padded)
        return out[:size].astype(result, copy=False)

    return call


def _sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _scipy(name):
    from scipy import special

    return getattr(special, name)


def _lgamma(x):
    # SciPy gives -inf for -inf, where C99 (F.9.5.3) asks for inf, and inf for denormal numbers.
    size = np.abs(x)
    found = np.where(np.isneginf(x), size, _scipy("gammaln")(x))
    return np.where(size < 1e-300, -np.log(size), found)


def wide_reference(name):
    """The function on arrays of a wider type: float64 for float32."""
    if name == "sigmoid":
        return _sigmoid
    if name == "rsqrt":
        return lambda x: 1 / np.sqrt(x)
    if name == "lgamma":
        return _lgamma
    if name in ("erf", "erfc"):
        return _scipy(name)
    return getattr(np, INSTRUCTIONS[name].numpy)


_EXACT = {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))) if x < 0 else mpmath.loggamma(x),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "power": mpmath.power,
}


def exact(name, *numbers):
    """The function of finite numbers in its domain, to 40 digits, rounded to long double."""
    with mpmath.workdps(40):
        function = _EXACT.get(name) or getattr(mpmath, name)
        significand, exponent = mpmath.frexp(function(*map(mpmath.mpf, numbers)))
        # In two parts, as NumPy does not read mpmath's numbers.
        head = float(significand)
        digits = LONG(head) + LONG(float(significand - head))
        return np.ldexp(digits, max(-20_000, min(20_000, int(exponent))))


# Where a function has zeros that no floating-point number hits: errors are measured in units of
# the last place of the greater of the result and this.
FLOORS = {"lgamma": lambda x: np.where(x < 0, 1.0, 0.0)}


def ulps(got, wanted, floor=0.0):
    """Errors in units in the last place of the exact results; infinite where signs or NaN differ.

    Infinities count as the power of two that is next after the largest number.
    """
    info = np.finfo(got.dtype)
    digits, least = info.nmant, info.smallest_subnormal
    wide = wanted.dtype.type
    beyond = wide(2) ** info.maxexp
    with np.errstate(all="ignore"):
        limited = np.clip(wanted, -beyond, beyond)
        value = np.clip(got.astype(wide), -beyond, beyond)
        size = np.maximum(np.abs(limited), np.asarray(floor, wide))
        if wide is np.float64:
            power = (size.view(np.int64) & 0x7FF0000000000000).view(np.float64)
            unit = np.maximum(power * wide(2) ** -digits, wide(least))
        else:
            exponent = np.where(size == 0, info.minexp, np.frexp(size)[1] - 1)
            unit = np.maximum(np.ldexp(wide(1), exponent - digits), wide(least))
        error = np.abs(value - limited) / unit
    undefined = np.isnan(wanted)
    error[undefined] = 0
    error[undefined != np.isnan(got)] = np.inf
    error[(np.signbit(got) != np.signbit(wanted)) & ~undefined] = np.inf
    return error


def worst(name, call, x, reference, floors=None):
    """The largest error over an array, and where it is."""
    with np.errstate(all="ignore"):
        wanted = reference(x)
    floor = (floors or FLOORS).get(name, lambda x: 0.0)(x)
    found = ulps(call(x), np.asarray(wanted), floor)
    at = int(np.argmax(found))
    return float(found[at]), x[at]


def float32_range(name, first, last, step=1, function=None):
    """The largest error over the float32 inputs with bits first, first + step, ..."""
    call = compiled(function or FUNCTIONS[name], "float32")
    reference = wide_reference(name)
    largest, where = 0.0, None
    # Pieces that stay in the cache: the checks cost more than the function.
    for start in range(first, last, step << 16):
        bits = np.arange(start, min(start + (step << 16), last), step, dtype=np.uint32)
        x = bits.view(np.float32)
        error, at = worst(name, call, x, lambda x: reference(x.astype(np.float64)))
        if error > largest:
            largest, where = error, at
    return largest, where


SPECIAL = (
    *(0.0, math.inf, math.nan, 1.0, 0.5, 2.0, 1.5, 3.0, 8.0, 10.0, math.pi, math.e, math.log(2)),
    *(1e-10, 1e-20, 1e-30, 1e10, 1e20, 1e30, 88.72283, 88.72284, 89.4159, 103.9720, 103.9721),
    *(126.0, 127.0, 128.0, 149.0, 150.0, 151.0, 708.3964, 709.782712893384, 709.7827128933841),
    *(710.47586, 745.1332191019411, 745.1332191019412, 1023.0, 1024.0, 1074.0, 1075.0, 1e300),
    *(2.0**-1074, 2.0**-1022, 2.0**-149, 2.0**-126, 1.7976931348623157e308, 3.4028235e38),
)


def hard_points(dtype):
    """Special numbers, their neighbours, and those near multiples of pi / 2."""
    with np.errstate(all="ignore"):
        x = np.array([*SPECIAL, *(np.arange(1, 60) * (math.pi / 2))], dtype)
        x = np.concatenate([x, np.nextafter(x, dtype(0)), np.nextafter(x, dtype(np.inf))])
    return np.concatenate([x, -x])


def spread_points(rng, count):
    """float64 numbers of all exponents, and more of those where functions are not trivial."""
    with np.errstate(all="ignore"):
        bits = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    middle = rng.uniform(-1, 1, count) * 2.0 ** rng.integers(-30, 11, count)
    near_one = 1 + rng.uniform(-1, 1, count) * 2.0 ** -rng.integers(1, 53, count)
    return np.concatenate([bits, middle, near_one, rng.uniform(-4, 4, count)])


def float64_reference(name):
    """The function on float64 arrays, as long doubles."""
    if LONG_IS_LONGER and name not in ("erf", "erfc", "lgamma"):
        function = wide_reference(name)
        return lambda *x: function(*(part.astype(LONG) for part in x))
    narrow = wide_reference(name)

    def reference(*x):
        wanted = np.asarray(narrow(*x)).astype(LONG)
        # SciPy gives 0 for denormal results; where 0 is right, so is its sign.
        doubtful = (wanted != 0) | (np.abs(x[0]) < 1000)
        for i in np.flatnonzero(np.isfinite(wanted) & doubtful):
            value = exact(name, *(float(part[i]) for part in x))
            wanted[i] = value if value else wanted[i]
        return wanted

    return reference
