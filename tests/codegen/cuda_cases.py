"""Regions with arrays and NumPy's results, of the kinds that suit GPUs."""

import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import scipy.special

from eagerflow.codegen.builder import Builder
from eagerflow.codegen.numpy import philox

BFLOAT = np.dtype(ml_dtypes.bfloat16)


class Named(NamedTuple):
    """A region, its input arrays, those for its outputs, sizes, expected values and tolerance."""

    region: Any
    inputs: list
    outputs: list
    sizes: dict
    expected: list
    rtol: float = 2e-6
    atol: float = 1e-6


CASES = {}


def case(function):
    """Enter a case under its function's name."""
    CASES[function.__name__] = function
    return function


def floats(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def softmax_region(dtype="float32", inplace=None):
    b = Builder("softmax", "m n")
    x = b.input("x", dtype, "m n")
    e = b.exp(x - b.max(x, "n"))
    b.output("y", e / b.sum(e, "n"), dtype, inplace=inplace)
    return b.region()


def softmax(x, axis=-1):
    return scipy.special.softmax(x.astype(np.float64), axis) if x.size else x


def softmax_case(m, n, dtype="float32", inplace=None, rtol=2e-6):
    x = (floats(m, n) * 3).astype(BFLOAT if dtype == "bfloat16" else dtype)
    y = x if inplace else np.empty_like(x)
    region = softmax_region(dtype, inplace)
    return Named(region, [x], [y], {"m": m, "n": n}, [softmax(x)], rtol)


ROWS = [(1, 1), (5, 3), (3, 33), (9, 130), (1, 1001), (4, 1001), (2, 3000), (2, 20_001)]
for _m, _n in [*ROWS, (3, 70_001)]:
    CASES[f"softmax_{_m}_{_n}"] = lambda m=_m, n=_n: softmax_case(m, n)
CASES |= {
    "softmax_without_rows": lambda: softmax_case(0, 7),
    "softmax_of_nothing": lambda: softmax_case(4, 0),
    "softmax_in_place": lambda: softmax_case(6, 77, inplace="x"),
    "softmax_in_place_in_a_loop": lambda: softmax_case(2, 20_001, inplace="x"),
    "softmax_bfloat16": lambda: softmax_case(5, 300, "bfloat16", rtol=2**-8),
    "softmax_float16": lambda: softmax_case(5, 300, "float16", rtol=2**-10),
}


@case
def softmax_strided():
    x = floats(40, 70)[::2, ::-3]
    y = np.empty((24, 20), np.float32).T
    return Named(softmax_region(), [x], [y], {"m": 20, "n": 24}, [softmax(x)])


@case
def softmax_not_aligned():
    x = np.empty(1 + 3 * 130, np.float32)[1:].reshape(3, 130)
    x[...] = floats(3, 130)
    return Named(softmax_region(), [x], [np.empty_like(x)], {"m": 3, "n": 130}, [softmax(x)])


@case
def gelu():
    b = Builder("gelu", "n")
    x = b.input("x", "float32", "n")
    b.output("y", x * 0.5 * (b.erf(x * math.sqrt(0.5)) + 1.0))
    x = floats(1003)
    y = 0.5 * x.astype(np.float64) * (1 + scipy.special.erf(x * math.sqrt(0.5)))
    return Named(b.region(), [x], [np.empty_like(x)], {"n": 1003}, [y])


@case
def add_of_broadcast_and_transposed():
    b = Builder("add", "a b c")
    given = {"x": "a b c", "y": "b", "z": "c"}
    x, y, z = (b.input(name, "float32", axes) for name, axes in given.items())
    b.output("out", b.fma(x, y, z))
    x, y, z = floats(4, 3, 5).transpose(2, 1, 0), floats(3, seed=1), floats(4, seed=2)
    out = x.astype(np.float64) * y[:, None] + z
    sizes = {"a": 5, "b": 3, "c": 4}
    return Named(b.region(), [x, y, z], [np.empty((5, 3, 4), np.float32)], sizes, [out])


def norm_parts(b, x):
    centred = x - b.mean(x, "n")
    return centred, b.rsqrt(b.mean(b.square(centred), "n") + 1e-5)


def layer_norm_region():
    b = Builder("layer_norm", "m n")
    x, g, c = (b.input(n, "float32", a) for n, a in (("x", "m n"), ("g", "n"), ("c", "n")))
    centred, scale = norm_parts(b, x)
    b.output("y", centred * scale * g + c)
    b.output("scale", scale)
    return b.region()


@case
def layer_norm():
    m, n = 7, 201
    x, g, c = floats(m, n), floats(n, seed=1), floats(n, seed=2)
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt(wide.var(1) + 1e-5)
    y = (wide - wide.mean(1, keepdims=True)) * scale[:, None] * g + c
    outputs = [np.empty_like(x), np.empty(m, np.float32)]
    return Named(layer_norm_region(), [x, g, c], outputs, {"m": m, "n": n}, [y, scale])


def backward_region(inplace=None):
    b = Builder("layer_norm_backward", "m n")
    x, g, dy = (b.input(n, "float32", a) for n, a in (("x", "m n"), ("g", "n"), ("dy", "m n")))
    centred, scale = norm_parts(b, x)
    h, a = centred * scale, dy * g
    b.output("dx", (a - b.mean(a, "n") - h * b.mean(a * h, "n")) * scale, inplace=inplace)
    b.output("dg", b.sum(dy * h, "m"))
    b.output("dc", b.sum(dy, "m"))
    return b.region()


def backward_case(m, n, inplace=None):
    x, g, dy = floats(m, n), floats(n, seed=1), floats(m, n, seed=2)
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    h = (wide - wide.mean(1, keepdims=True)) * scale
    a = dy.astype(np.float64) * g
    dx = (a - a.mean(1, keepdims=True) - h * (a * h).mean(1, keepdims=True)) * scale
    expected = [dx, (dy * h).sum(0), dy.sum(0, dtype=np.float64)]
    dx = dy if inplace else np.empty_like(dy)
    outputs = [dx, np.empty(n, np.float32), np.empty(n, np.float32)]
    region = backward_region(inplace)
    return Named(region, [x, g, dy], outputs, {"m": m, "n": n}, expected, 2e-5, 2e-5)


CASES |= {
    "layer_norm_backward": lambda: backward_case(150, 45),
    "layer_norm_backward_in_one_stage": lambda: backward_case(30, 45),
    "layer_norm_backward_in_place": lambda: backward_case(150, 45, "dy"),
    "layer_norm_backward_of_a_long_row": lambda: backward_case(2, 66_000),
}


@case
def cross_entropy():
    m, n = 11, 37
    b = Builder("cross_entropy", "m n")
    x, label = b.input("x", "float32", "m n"), b.input("label", "int32", "m")
    shifted = x - b.max(x, "n")
    chosen = b.equal(b.position("n"), b.convert(label, "int64"))
    total = b.sum(b.exp(shifted), "n")
    loss = b.log(total) - b.sum(b.select(chosen, shifted, b.constant(0, "float32")), "n")
    b.output("loss", b.sum(loss, "m"))
    b.output("each", loss)
    x = floats(m, n)
    label = np.random.default_rng(3).integers(0, n, m).astype(np.int32)
    each = -np.log(softmax(x))[np.arange(m), label]
    outputs = [np.empty((), np.float32), np.empty(m, np.float32)]
    return Named(b.region(), [x, label], outputs, {"m": m, "n": n}, [each.sum(), each])


def argmax_case(x):
    b = Builder("argmax", "m n")
    b.output("at", b.argmax(b.input("x", "float32", "m n"), "n"))
    m, n = x.shape
    return Named(b.region(), [x], [np.empty(m, np.int64)], {"m": m, "n": n}, [x.argmax(1)], 0, 0)


@case
def argmax():
    x = np.round(floats(9, 65))
    x[2, 40] = np.nan
    return argmax_case(x)


@case
def argmax_of_a_long_row():
    return argmax_case(floats(1, 80_000))


@case
def dropout():
    b = Builder("dropout", "m n")
    x = b.input("x", "float32", "m n")
    state = tuple(b.input(f"s{i}", "uint64", "") for i in range(3))
    kept = b.less(b.uniform(state), 0.75)
    b.output("y", b.select(kept, x * (1 / 0.75), b.constant(0, "float32")))
    b.output("words", b.random_bits(state, "uint64"))
    x, words = floats(13, 29), np.array([2**63 + 5, 77, 3], np.uint64)
    kept = philox.uniform(words, x.size, np.dtype("float32")).reshape(x.shape) < 0.75
    expected = [np.where(kept, x * np.float32(1 / 0.75), 0)]
    expected.append(philox.bits(words, x.size).reshape(x.shape))
    inputs = [x, *(np.array(w) for w in words)]
    outputs = [np.empty_like(x), np.empty(x.shape, np.uint64)]
    return Named(b.region(), inputs, outputs, {"m": 13, "n": 29}, expected, 0, 0)


@case
def adam():
    n = 777
    b = Builder("adam", "n")
    w, g, m, v = (b.input(name, "float32", "n") for name in "wgmv")
    rate = b.input("rate", "float32", "")
    first, second = m * 0.9 + g * 0.1, v * 0.999 + b.square(g) * 0.001
    b.output("w", w - rate * first / (b.sqrt(second) + 1e-8), inplace="w")
    b.output("m", first, inplace="m")
    b.output("v", second, inplace="v")
    w, g, m, v = (floats(n, seed=s) for s in range(4))
    v = abs(v)
    first, second = 0.9 * m.astype(float) + 0.1 * g, 0.999 * v.astype(float) + 0.001 * g**2
    expected = [w - 0.01 * first / (np.sqrt(second) + 1e-8), first, second]
    inputs = [w, g, m, v, np.array(0.01, np.float32)]
    return Named(b.region(), inputs, [w, m, v], {"n": n}, expected, 1e-5)


@case
def gather():
    b = Builder("embed", "m n")
    index = b.input("index", "int64", "m")
    table = b.input("table", "float16", "m n", gather="index")
    b.output("y", table * 2.0)
    b.output("largest", b.max(table, "n"))
    table = floats(17, 48).astype(np.float16)
    index = np.array([3, 0, 16, 3, 9])
    y = table.astype(np.float32)[index] * 2
    outputs = [np.empty((5, 48), np.float32), np.empty(5, np.float32)]
    sizes = {"m": 5, "n": 48}
    return Named(b.region(), [index, table], outputs, sizes, [y, y.max(1) / 2], 0, 0)


@case
def integers_and_bool():
    b = Builder("integers", "m n")
    x, y = b.input("x", "int8", "m n"), b.input("y", "int8", "n")
    b.output("product", x * y)
    b.output("quotient", b.floor_divide(x, y))
    b.output("rest", b.remainder(x, y))
    b.output("above", b.greater(x, y))
    b.output("any", b.any(b.equal(x, y), "n"))
    b.output("lowest", b.min(x, "m"))
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-128, 128, s).astype(np.int8) for s in ((6, 50), 50))
    x[0, 0], y[0], y[1] = -128, -1, 0
    shape, wide = x.shape, y.astype(int)
    safe = np.where(y == 0, 1, wide)
    expected = [
        x * y,
        np.where(y == 0, 0, x // safe).astype(np.int8),
        np.where(y == 0, 0, x % safe).astype(np.int8),
        x > y,
        (x == y).any(1),
        x.min(0),
    ]
    outputs = [np.empty(shape, np.int8) for _ in range(3)]
    outputs += [np.empty(shape, bool), np.empty(6, bool), np.empty(50, np.int8)]
    return Named(b.region(), [x, y], outputs, {"m": 6, "n": 50}, expected, 0, 0)


def _nearest(number, limits):
    """The integer that a float is truncated to, within limits; 0 for NaN."""
    if math.isnan(number):
        return 0
    whole = math.trunc(number) if math.isfinite(number) else int(math.copysign(2**70, number))
    return min(max(whole, limits.min), limits.max)


@case
def conversions():
    b = Builder("conversions", "n")
    x = b.input("x", "float32", "n")
    kinds = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "bool")
    for kind in kinds:
        b.output(kind, b.convert(x, kind))
    powers = [s * 2.0**n for n in (31, 32, 63, 64) for s in (1, -1)]
    x = [0.5, -0.5, 1.9, -1.9, 127.5, 128, -128.9, -129, 255.9, 256, *powers, np.inf, -np.inf]
    x = np.array([*x, np.nan, 0.0], np.float32)
    expected = [np.array([_nearest(v, np.iinfo(k)) for v in x.tolist()], k) for k in kinds[:-1]]
    expected.append(x != 0)
    outputs = [np.empty(x.size, k) for k in kinds]
    return Named(b.region(), [x], outputs, {"n": x.size}, expected, 0, 0)


def stored_region(source, target):
    b = Builder("stored", "n")
    b.output("y", b.input("x", source, "n"), target)
    return b.region()


@case
def every_float16():
    x = np.arange(2**16).astype(np.uint16).view(np.float16)
    y = np.empty(x.size, np.float32)
    region = stored_region("float16", "float32")
    return Named(region, [x], [y], {"n": x.size}, [x.astype(np.float32)], 0, 0)


def rounding_case(kind, target):
    """All numbers of a small type, the middles between them, and their neighbours."""
    exact = np.arange(2**16).astype(np.uint16).view(target).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    middle = (exact[1:].astype(np.float64) + exact[:-1]).astype(np.float64) / 2
    middle = middle.astype(np.float32)
    more = [np.nextafter(middle, np.float32(s)) for s in (np.inf, -np.inf)]
    edge = np.array([65519.996, 65520, 1e30, 3.4e38, -3.4028235e38, np.inf, -np.inf, np.nan], "f4")
    x = np.concatenate([exact, middle, *more, edge])[::3]
    region = stored_region("float32", kind)
    with np.errstate(over="ignore"):
        y = x.astype(target)
    return Named(region, [x], [np.empty(x.size, target)], {"n": x.size}, [y], 0, 0)


CASES["rounding_to_float16"] = lambda: rounding_case("float16", np.float16)
CASES["rounding_to_bfloat16"] = lambda: rounding_case("bfloat16", BFLOAT)


@case
def rows_of_two_axes_that_do_not_join():
    b = Builder("centre", "m h w")
    x = b.input("x", "float32", "m h w")
    mean = b.mean(x, "h w")
    b.output("y", x - mean)
    b.output("line", b.input("u", "float32", "m h") * mean, inplace="u")
    x, u = floats(5, 7, 4).transpose(2, 1, 0), floats(4, 7, seed=1)
    wide = x.astype(np.float64)
    mean = wide.mean((1, 2))
    sizes, outputs = {"m": 4, "h": 7, "w": 5}, [np.empty((4, 7, 5), np.float32), u]
    expected = [wide - mean[:, None, None], u * mean[:, None]]
    return Named(b.region(), [x, u], outputs, sizes, expected)


@case
def inputs_that_overwrite_what_others_read():
    """Each of two launches reads data the other overwrites, so one must read a copy."""
    b = Builder("crossed", "m h w")
    u, v, x = (
        b.input("u", "float32", "m h"),
        b.input("v", "float32", "m"),
        b.input("x", "float32", "m h w"),
    )
    b.output("v", v + b.sum(x * u, "h w"), inplace="v")
    b.output("u", u + v, inplace="u")
    u, v, x = floats(3, 4), floats(3, seed=1), floats(3, 4, 6, seed=2)
    wide = x.astype(np.float64)
    expected = [v + (wide * u[:, :, None]).sum((1, 2)), u.astype(np.float64) + v[:, None]]
    return Named(b.region(), [u, v, x], [v, u], {"m": 3, "h": 4, "w": 6}, expected)


@case
def one_number():
    b = Builder("one", "n")
    b.output("y", b.input("x", "float64", "") + 1.0)
    return Named(b.region(), [np.array(2.5)], [np.empty(())], {"n": 4}, [np.array(3.5)], 0, 0)


@case
def sum_of_all():
    b = Builder("total", "n")
    b.output("y", b.sum(b.input("x", "float32", "n"), "n"))
    x = floats(200_003)
    expected = [x.sum(dtype=np.float64)]
    return Named(b.region(), [x], [np.empty((), np.float32)], {"n": x.size}, expected, 1e-5, 1e-3)
