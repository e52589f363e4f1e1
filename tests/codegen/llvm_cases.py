"""Regions of the kinds that programs use, arrays for them, and the results of plain NumPy."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.numpy import philox
from eagerflow.dtypes import float32

bfloat16 = np.dtype(ml_dtypes.bfloat16)
NEAR = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "float64": 1e-13}
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


class Case(NamedTuple):
    """A region's body, its inputs as (dtype, along which axes, maker), and a reference.

    ``kind`` is "rows" for regions that reduce rows, "columns" if they reduce columns as well,
    "elements" if they do neither; "rows alone" never walks several rows side by side.
    """

    kind: str
    inputs: dict[str, tuple[str, str, Any]]
    body: Any
    reference: Any
    gather: dict[str, str] = {}


class Bound(NamedTuple):
    """A case's region with arrays of a shape and layout."""

    case: Case
    region: Any
    inputs: list[Any]
    outputs: list[Any]
    sizes: dict[str, int]

    def expected(self):
        """The result of the reference; to be called before inputs are replaced."""
        with np.errstate(all="ignore"):
            return self.case.reference(*(a.copy() for a in self.inputs))


# Elements ----------------------------------------------------------------------------------------


def normal(rng, shape):
    return rng.standard_normal(shape)


def positive(rng, shape):
    return rng.uniform(0.1, 2, shape)


def wild(rng, shape):
    """Numbers of many magnitudes, with ties, infinities and NaN among them."""
    x = rng.standard_normal(shape) * 10 ** rng.uniform(-3, 6, shape)
    return np.where(rng.random(shape) < 0.02, rng.choice([np.nan, np.inf, -np.inf, -0.0], shape), x)


def tied(rng, shape):
    x = np.round(rng.standard_normal(shape) * 2)
    return np.where(rng.random(shape) < 0.005, np.nan, x)


def any_bits(rng, shape):
    """float32 of all bit patterns."""
    return rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)


def patterns(rng, shape):
    """All numbers of 16 bits, in order."""
    return (np.arange(np.prod(shape, dtype=int)) % 2**16).astype(np.uint16).reshape(shape)


def whole(dtype):
    info = np.iinfo(dtype)

    def make(rng, shape):
        x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.1, x % 3, x).astype(dtype)

    return make


def flags(rng, shape):
    return rng.random(shape) < rng.choice([0.03, 0.97], (*shape[:-1], 1) if shape else ())


def small(rng, shape):
    return rng.integers(0, 3, shape)


def number(value):
    return lambda rng, shape: np.full(shape, value)


# References: NumPy, wide where rounding matters --------------------------------------------------


def wide(*arrays):
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return [a.astype(np.float64) for a in arrays]


def total(x):
    return x.sum(-1, keepdims=True)


def columns(x):
    return x.reshape(-1, x.shape[-1]).sum(0)


def np_softmax(x):
    (x,) = wide(x)
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / total(e),)


def np_layer_norm(x, scale, offset, epsilon):
    x, scale, offset, epsilon = wide(x, scale, offset, epsilon)
    mean = x.mean(-1, keepdims=True)
    factor = 1 / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return (x - mean) * factor * scale + offset, mean[..., 0], factor[..., 0]


def np_layer_norm_gradient(x, g, scale, epsilon):
    x, g, scale, epsilon = wide(x, g, scale, epsilon)
    factor = 1 / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    h, u = (x - x.mean(-1, keepdims=True)) * factor, g * scale
    inner = u - u.mean(-1, keepdims=True) - h * (u * h).mean(-1, keepdims=True)
    return inner * factor, columns(g * h), columns(g)


def np_extremes(x):
    return np.argmax(x, -1), np.argmin(x, -1), x.max(-1), x.min(-1)


def np_cross_entropy(x, label):
    (x,) = wide(x)
    shifted = x - x.max(-1, keepdims=True)
    sums = np.log(total(np.exp(shifted)))
    own = np.arange(x.shape[-1]) == label[..., None]
    loss = (sums - total(np.where(own, shifted, 0)))[..., 0]
    return loss, np.exp(shifted - sums) - own, loss.sum()


def np_dropout(x, *state):
    state = np.array(state, np.uint64)
    u = philox.uniform(state, x.size, float32).reshape(x.shape)
    words = philox.bits(state, x.size).reshape(x.shape)
    return np.where(u < 0.75, x * np.float32(1 / 0.75), np.float32(0)), u, words, wide(u)[0].sum(-1)


def np_adam(p, g, m, v, rate):
    p, g, m, v, rate = wide(p, g, m, v, rate)
    m, v = m + 0.1 * (g - m), v + 0.001 * (g * g - v)
    return m, v, p - rate * m / (np.sqrt(v) + 1e-8)


def np_gather(index, table, x):
    found = table[index].reshape(index.shape + (1,) * (x.ndim - 2) + table.shape[-1:])
    both = wide(np.broadcast_to(found, x.shape), x)
    return both[0], both[0] * both[1], total(both[0] * both[1])[..., 0]


def np_integers(x, y):
    kind = x.dtype
    shifted = np.bitwise_xor(np.left_shift(x, kind.type(1)), np.right_shift(y, kind.type(2)))
    divided = np.floor_divide(x, y), np.remainder(x, y)
    sums = (x * y + kind.type(3)).sum(-1, dtype=kind)
    first = np.argmax(x, -1)
    return shifted, *divided, sums, x.max(-1), x.min(-1), x.prod(-1, dtype=kind), first


def np_integer_columns(x, y):
    flat = (x - y).reshape(-1, x.shape[-1])
    return flat.sum(0, dtype=x.dtype), flat.max(0), flat.min(0), x.max(-1)


def np_booleans(x, y):
    return np.where(x, y, ~y), (x ^ y).any(-1), (x | y).all(-1)


def np_boolean_columns(x, y):
    flat = (x & y).reshape(-1, x.shape[-1])
    return flat.any(0), flat.all(0), x.any(-1)


def np_conversions(x, count):
    narrow = np.clip(np.nan_to_num(np.trunc(x), nan=0), -128, 127).astype(np.int8)
    large = np.clip(np.nan_to_num(np.trunc(wide(x)[0]), nan=0), 0, 2**32 - 1).astype(np.uint32)
    return narrow, large, x != 0, count.astype(np.float64), count.astype(np.uint8)


def np_rounding(x, y):
    own = np.floor(x), np.ceil(x), np.trunc(x), np.rint(x), np.abs(x), np.copysign(x, y)
    return *own, np.fmod(x, y), np.sqrt(np.abs(x)), x / y, (x < y) | np.isnan(x)


def np_fma(x, y, z):
    x, y, z = wide(x, y, z)
    return (x * y + z,)


def np_halves(half, brain, x):
    wide = half.astype(np.float32), brain.astype(np.float32)
    return *wide, x.astype(np.float16), x.astype(bfloat16)


# Regions: bodies take the builder, the outer axes, the dtype of the first input, and values -------


def softmax(b, outer, dtype, x):
    e = b.exp(x - b.max(x, "n"))
    b.output("y", e / b.sum(e, "n"), dtype)


def layer_norm(b, outer, dtype, x, scale, offset, epsilon):
    mean = b.mean(x, "n")
    factor = b.rsqrt(b.variance(x, "n") + epsilon)
    b.output("y", b.fma((x - mean) * factor, scale, offset), dtype)
    b.output("mean", mean)
    b.output("factor", factor)


def layer_norm_gradient(b, outer, dtype, x, g, scale, epsilon):
    mean = b.mean(x, "n")
    factor = b.rsqrt(b.variance(x, "n") + epsilon)
    h, u = (x - mean) * factor, g * scale
    b.output("of_x", (u - b.mean(u, "n") - h * b.mean(u * h, "n")) * factor, dtype)
    b.output("of_scale", b.sum(g * h, outer))
    b.output("of_offset", b.sum(g, outer))


def extremes(b, outer, dtype, x):
    b.output("argmax", b.argmax(x, "n"))
    b.output("argmin", b.argmin(x, "n"))
    b.output("max", b.max(x, "n"))
    b.output("min", b.min(x, "n"))


def cross_entropy(b, outer, dtype, x, label):
    shifted = x - b.max(x, "n")
    own = b.equal(b.position("n"), b.convert(label, "int64"))
    logarithm = b.log(b.sum(b.exp(shifted), "n"))
    loss = logarithm - b.sum(b.select(own, shifted, 0.0), "n")
    b.output("loss", loss)
    b.output("of_x", b.exp(shifted - logarithm) - b.convert(own, "float32"))
    b.output("total", b.sum(loss, outer))


def dropout(b, outer, dtype, x, *state):
    u = b.uniform(state)
    b.output("y", b.select(b.less(u, 0.75), x * (1 / 0.75), 0.0))
    b.output("u", u)
    b.output("words", b.random_bits(state, "uint64"))
    b.output("of_rows", b.sum(u, "n"))


def adam(b, outer, dtype, p, g, m, v, rate):
    new_m = b.fma(g - m, 0.1, m)
    new_v = b.fma(b.square(g) - v, 0.001, v)
    b.output("m", new_m, inplace="m")
    b.output("v", new_v, inplace="v")
    b.output("p", p - rate * new_m / (b.sqrt(new_v) + 1e-8), inplace="p")


def gather(b, outer, dtype, index, table, x):
    b.output("rows", b.convert(table, "float32"), axes=f"{outer} n")
    b.output("products", table * x)
    b.output("dots", b.sum(table * x, "n"))


def integers(b, outer, dtype, x, y):
    left, right = b.bitwise_left_shift(x, 1), b.bitwise_right_shift(y, 2)
    b.output("bits", b.bitwise_xor(left, right))
    b.output("quotient", b.floor_divide(x, y))
    b.output("rest", b.remainder(x, y))
    b.output("sum", b.sum(x * y + 3, "n"))
    b.output("max", b.max(x, "n"))
    b.output("min", b.min(x, "n"))
    b.output("product", b.product(x, "n"))
    b.output("argmax", b.argmax(x, "n"))


def integer_columns(b, outer, dtype, x, y):
    for name in ("sum", "max", "min"):
        b.output(name, getattr(b, name)(x - y, outer))
    b.output("rows", b.max(x, "n"))


def booleans(b, outer, dtype, x, y):
    b.output("both", b.select(x, y, b.logical_not(y)))
    b.output("any", b.any(b.logical_xor(x, y), "n"))
    b.output("all", b.all(b.logical_or(x, y), "n"))


def boolean_columns(b, outer, dtype, x, y):
    b.output("any", b.any(b.logical_and(x, y), outer))
    b.output("all", b.all(b.logical_and(x, y), outer))
    b.output("rows", b.any(x, "n"))


def conversions(b, outer, dtype, x, count):
    b.output("narrow", b.convert(x, "int8"))
    b.output("large", b.convert(x, "uint32"))
    b.output("some", b.convert(x, "bool"))
    b.output("wide", b.convert(count, "float64"))
    b.output("low", b.convert(count, "uint8"))


def rounding(b, outer, dtype, x, y):
    for name in ("floor", "ceil", "trunc", "round", "abs"):
        b.output(name, getattr(b, name)(x))
    b.output("copysign", b.copysign(x, y))
    b.output("fmod", b.fmod(x, y))
    b.output("sqrt", b.sqrt(b.abs(x)))
    b.output("quotient", x / y)
    b.output("less", b.logical_or(b.less(x, y), b.isnan(x)))


def fma(b, outer, dtype, x, y, z):
    b.output("y", b.fma(x, y, z), dtype)


def halves(b, outer, dtype, half, brain, x):
    b.output("of_half", half)
    b.output("of_brain", brain)
    b.output("half", x, "float16")
    b.output("brain", x, "bfloat16")


def case(kind, body, reference, dtype="float32", gather=None, **inputs):
    """A case whose inputs have this dtype, if they do not tell their own in front."""
    given = {name: row if len(row) == 3 else (dtype, *row) for name, row in inputs.items()}
    return Case(kind, given, body, reference, gather or {})


def alike(kind, names, body, reference, dtype, maker):
    """A case whose inputs are all of one kind."""
    return case(kind, body, reference, dtype, **dict.fromkeys(names, ("all", maker)))


X, SCALE, EPSILON = ("all", normal), ("n", positive), ("", number(0.1))
WORDS = {f"s{i}": ("uint64", "", number(word)) for i, word in enumerate((2**63 + 5, 17, 3))}

CASES = {
    f"softmax {dtype}": case("rows", softmax, np_softmax, dtype, x=X)
    for dtype in ("float32", "float64", "float16", "bfloat16")
}
CASES |= {
    "layer_norm": case(
        "rows", layer_norm, np_layer_norm, x=X, scale=SCALE, offset=("n", normal), epsilon=EPSILON
    ),
    "layer_norm_gradient": case(
        *("columns", layer_norm_gradient, np_layer_norm_gradient),
        **{"x": X, "g": X, "scale": SCALE, "epsilon": EPSILON},
    ),
    "extremes": case("rows", extremes, np_extremes, x=("all", tied)),
    "extremes float64": case("rows", extremes, np_extremes, "float64", x=("all", tied)),
    "cross_entropy": case(
        "columns", cross_entropy, np_cross_entropy, x=X, label=("int32", "outer", small)
    ),
    "dropout": case("rows alone", dropout, np_dropout, x=X, **WORDS),
}
for _dtype in ("float32", "float64"):
    CASES[f"adam {_dtype}"] = case(
        *("elements", adam, np_adam, _dtype),
        **dict.fromkeys("pgm", X),
        v=("all", positive),
        rate=("", number(1e-3)),
    )
CASES["gather"] = case(
    *("rows alone", gather, np_gather),
    gather={"table": "index"},
    index=("int64", "first", small),
    table=("table", normal),
    x=X,
)
for _dtype in INTEGERS:
    CASES[f"integers {_dtype}"] = alike("rows", "xy", integers, np_integers, _dtype, whole(_dtype))
for _dtype in ("int8", "uint64"):
    CASES[f"integer_columns {_dtype}"] = alike(
        "columns", "xy", integer_columns, np_integer_columns, _dtype, whole(_dtype)
    )
CASES |= {
    "booleans": alike("rows", "xy", booleans, np_booleans, "bool", flags),
    "boolean_columns": alike("columns", "xy", boolean_columns, np_boolean_columns, "bool", flags),
    "conversions": case(
        *("elements", conversions, np_conversions),
        **{"x": ("all", wild), "count": ("int32", "all", whole("int32"))},
    ),
}
for _dtype in ("float32", "float64"):
    CASES[f"rounding {_dtype}"] = alike("elements", "xy", rounding, np_rounding, _dtype, wild)
CASES |= {
    "fma": alike("elements", "xyz", fma, np_fma, "float32", normal),
    "halves": case(
        *("elements", halves, np_halves),
        half=("float16", "all", patterns),
        brain=("bfloat16", "all", patterns),
        x=("all", any_bits),
    ),
}


# Arrays ------------------------------------------------------------------------------------------

PLACES = {
    "rows": ((37, 301), "unit"),
    "rows strided": ((37, 301), "strided"),
    "rows outer": ((37, 301), "outer"),
    "broadcast": ((37, 301), "broadcast"),
    "rows unaligned": ((37, 301), "unaligned"),
    "group": ((37, 101), "unit"),
    "group strided": ((37, 101), "strided"),
    "short": ((53, 3), "unit"),
    "short reversed": ((53, 3), "reversed"),
    "side": ((90, 33), "turned"),
    "stages": ((2, 70_003), "unit"),
    "stages strided": ((2, 70_003), "strided"),
}
"""Rows and their length, and how arrays lie in memory; the first word is the variant."""


FEW = ("rows", "group", "short", "side", "stages strided")
"""One place of each variant."""


def pairs(places=tuple(PLACES)):
    """(case, place) for all cases; of the types of integers, most are tried at one place only."""
    rare = [f"integers {dtype}" for dtype in INTEGERS if dtype not in ("int8", "uint64")]
    return [
        (name, place)
        for name in CASES
        for place in places
        if name not in rare or place == places[0]
    ]


def check(name, place, compute=kernel.compute):
    """Compute a case at a place and compare with NumPy; the region and arrays."""
    bound = bind(name, *PLACES[place])
    expected = bound.expected()
    compute(bound.region, bound.inputs, bound.outputs, bound.sizes)
    assert_close(bound.region, bound.outputs, expected)
    return bound


def expected_variant(kind, place):
    """The variant of a kernel by its reductions and the layout of its arrays."""
    wanted = place.partition(" ")[0]
    if kind == "elements":
        return "stages"
    # Regions that also reduce columns do not map rows to lanes.
    return "group" if wanted == "side" and kind != "rows" else wanted


def laid_out(array, how):
    """The same values with other strides; "broadcast" ones are those of the first row."""
    if not array.ndim or how == "unit":
        return array
    if how == "reversed":
        back = (slice(None, None, -1),) * array.ndim
        return array[back].copy()[back]
    if how == "turned":
        return array.swapaxes(-1, -2).copy().swapaxes(-1, -2) if array.ndim > 1 else array
    if how == "broadcast":
        return np.broadcast_to(array[:1], array.shape)
    if how == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        raw[...] = array
        return raw
    step = {"strided": 2, "outer": 1}[how]
    shape = (*(n + 1 for n in array.shape[:-1]), step * array.shape[-1] + 1)
    wider = np.zeros(shape, array.dtype)
    found = wider[(*(slice(n) for n in array.shape[:-1]), slice(1, None, step))]
    found[...] = array
    return found


def _outer_sizes(rows, how):
    if how == "outer":
        return {"a": 3, "b": 2, "c": rows // 6 + 1}
    return {"a": 2, "b": rows // 2} if how == "turned" else {"m": rows}


def region_of(name, outer="m"):
    """The region of a case, with some outer axes."""
    case = CASES[name]
    axes = _axes(outer)
    b = Builder(name.replace(" ", "_"), f"{outer} n")
    values = [
        b.input(part, dtype, axes[along], case.gather.get(part))
        for part, (dtype, along, _) in case.inputs.items()
    ]
    case.body(b, outer, next(iter(case.inputs.values()))[0], *values)
    return b.region()


def _axes(outer):
    first = outer.split()[0]
    own = {"n": "n", "": ""}
    return own | {"all": f"{outer} n", "outer": outer, "first": first, "table": f"{first} n"}


def bind(name, shape, how="unit", seed=0):
    """A case's region with arrays: as many rows, at least, and as long ones as ``shape`` says."""
    case, rng = CASES[name], np.random.default_rng(seed)
    sizes = _outer_sizes(shape[0], how) | {"n": shape[1]}
    region = region_of(name, " ".join(sizes)[:-2])
    replaced = {o.inplace: o for o in region.outputs if o.inplace}
    inputs = {}
    for part in region.inputs:
        own = [sizes[a] for a in part.axes]
        if part.gather:
            own[0] = 3
        made = np.asarray(case.inputs[part.name][2](rng, tuple(own)))
        kind = bfloat16 if part.dtype == "bfloat16" else np.dtype(part.dtype)
        held = made.view(kind) if made.dtype == np.uint16 != kind else made.astype(kind)
        keeps = how == "broadcast" and (part.name in replaced or part.gather)
        inputs[part.name] = held if keeps else laid_out(held, how)
    outputs = []
    for part in region.outputs:
        if part.inplace:
            outputs.append(inputs[part.inplace])
            continue
        kind = bfloat16 if part.dtype == "bfloat16" else np.dtype(part.dtype)
        empty = np.full([sizes[a] for a in part.axes], 77).astype(kind)
        outputs.append(laid_out(empty, "unit" if how == "broadcast" else how))
    return Bound(case, region, list(inputs.values()), outputs, sizes)


def assert_close(region, outputs, expected):
    """Equal where the reference has the type of the output, else as near as the type allows."""
    for part, got, want in zip(region.outputs, outputs, expected, strict=True):
        want = np.asarray(want)
        assert got.shape == want.shape, f"{part.name}: {got.shape}, not {want.shape}"
        if got.dtype.kind in "biu" or got.dtype == want.dtype != np.float64:
            np.testing.assert_array_equal(
                *wide(got, want) if got.dtype.kind not in "iu" else (got, want), err_msg=part.name
            )
            continue
        near = NEAR[got.dtype.name]
        scale = max(1.0, np.max(np.abs(want), initial=0, where=np.isfinite(want)))
        np.testing.assert_allclose(*wide(got, want), near, near * scale, err_msg=part.name)
