"""Regions in NumPy's steps against an evaluation in float64, where that is more exact."""

import ml_dtypes
import numpy as np
import pytest

from eagerflow.codegen import reductions
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.numpy import philox
from eagerflow.codegen.numpy.steps import compute
from eagerflow.dtypes import float32
from tests.codegen.oracle import evaluate, numpy_type

SHAPES = [(0, 5), (5, 0), (1, 1), (3, 7), (1, 40), (300, 10), (257, 301), (40, 5000), (2, 200_001)]


# Regions -----------------------------------------------------------------------------------------


def softmax():
    b = Builder("softmax", "m n")
    x = b.input("x", "float32", "m n")
    e = b.exp(x - b.max(x, "n"))
    b.output("y", e / b.sum(e, "n"))
    return b.region()


def layer_norm():
    b = Builder("layer_norm", "m n")
    x = b.input("x", "float32", "m n")
    scale, offset = b.input("scale", "float32", "n"), b.input("offset", "float32", "n")
    mean = b.mean(x, "n")
    factor = b.rsqrt(b.variance(x, "n") + 1e-5)
    b.output("y", b.fma((x - mean) * factor, scale, offset))
    b.output("mean", mean)
    b.output("factor", factor)
    return b.region()


def layer_norm_backward():
    b = Builder("layer_norm_backward", "m n")
    x, g = b.input("x", "float32", "m n"), b.input("g", "float32", "m n")
    scale = b.input("scale", "float32", "n")
    mean = b.mean(x, "n")
    factor = b.rsqrt(b.variance(x, "n") + 1e-5)
    h, u = (x - mean) * factor, g * b.reciprocal(b.reciprocal(scale))
    b.output("of_x", (u - b.mean(u, "n") - h * b.mean(u * h, "n")) * factor)
    b.output("of_scale", b.sum(g * h, "m"))
    b.output("of_offset", b.sum(g, "m"))
    return b.region()


def cross_entropy():
    b = Builder("cross_entropy", "m n")
    x = b.input("x", "float32", "m n")
    label = b.input("label", "int32", "m")
    shifted = x - b.max(x, "n")
    own = b.equal(b.position("n"), b.convert(label, "int64"))
    total = b.log(b.sum(b.exp(shifted), "n"))
    loss = total - b.sum(b.select(own, shifted, 0.0), "n")
    b.output("loss", loss)
    b.output("total", b.sum(loss, "m"))
    b.output("of_x", b.exp(shifted - total) - b.convert(own, "float32"))
    return b.region()


def gelu():
    b = Builder("gelu", "m n")
    x = b.input("x", "float32", "m n")
    inner = 0.7978845608 * (x + 0.044715 * (x * b.square(x)))
    b.output("tanh", 0.5 * x * (1.0 + b.tanh(inner)))
    b.output("erf", 0.5 * x * (1.0 + b.erf(x * 0.70710678)))
    b.output("sigmoid", x * b.sigmoid(x))
    return b.region()


def extremes():
    b = Builder("extremes", "m n")
    x = b.input("x", "float32", "m n")
    big = b.greater(x, 2.0)
    b.output("argmax", b.argmax(x, "n"))
    b.output("argmin", b.argmin(x, "n"), "int64", "m n")
    b.output("any", b.any(big, "n"))
    b.output("all", b.all(b.logical_not(big), "n"))
    b.output("product", b.product(b.minimum(x, 1.01), "n"))
    for name in ("max", "min"):
        b.output(f"{name}_of_columns", getattr(b, name)(x, "m"))
    b.output("any_of_columns", b.any(big, "m"))
    return b.region()


def mixed():
    """Many types, values along every subset of the axes, and one output per subset."""
    b = Builder("mixed", "m n")
    x, half = b.input("x", "float64", "m n"), b.input("half", "float16", "m n")
    brain, row = b.input("brain", "bfloat16", "n"), b.input("row", "uint8", "m")
    flag, one = b.input("flag", "bool", "m n"), b.input("one", "int16", "")
    wide = b.convert(half * b.exp(brain), "float64")
    chosen = b.select(flag, b.maximum(x, wide), x - wide)
    count = b.bitwise_xor(b.convert(row, "int16"), one)
    b.output("chosen", chosen)
    b.output("narrow", b.convert(chosen, "float32"), "bfloat16")
    b.output("halved", half * 0.5, "float16")
    b.output("counted", b.floor_divide(count, b.subtract(count, count)))
    b.output("shifted", b.bitwise_left_shift(count, 3), "int16", "m n")
    b.output("saturated", b.convert(chosen * 100.0, "int8"))
    b.output("total", b.sum(count, "m"))
    b.output("brains", b.square(brain), "bfloat16")
    b.output("alone", one + one)
    b.output("copied", half, "float16")
    return b.region()


REGIONS = {
    f.__name__: f
    for f in (softmax, layer_norm, layer_norm_backward, cross_entropy, gelu, extremes, mixed)
}


# Tools -------------------------------------------------------------------------------------------


def array_for(part, sizes, rng):
    """Random values for an input."""
    shape = [sizes[a] for a in part.axes]
    if part.name == "label":
        return rng.integers(0, max(1, sizes["n"]), shape, dtype=part.dtype)
    if part.dtype == "bool":
        return np.asarray(rng.random(shape) < 0.3)
    if "int" in part.dtype:
        return rng.integers(0, 100, shape, dtype=part.dtype)
    return np.asarray(rng.standard_normal(shape)).astype(numpy_type(part.dtype))


def arguments(region, sizes, seed=0):
    """Inputs with random values, and outputs with values that no test expects."""
    rng = np.random.default_rng(seed)
    inputs = [array_for(p, sizes, rng) for p in region.inputs]
    outputs = [np.full([sizes[a] for a in o.axes], 77, numpy_type(o.dtype)) for o in region.outputs]
    return inputs, outputs


def assert_close(region, outputs, expected, tolerance=2e-6):
    """Each output near to what is expected, of which its largest value says what is near."""
    steps = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-13}
    for part, got, want in zip(region.outputs, outputs, expected, strict=True):
        if got.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want, err_msg=part.name)
            continue
        got, want = got.astype(np.float64), want.astype(np.float64)
        near = steps.get(part.dtype, tolerance)
        scale = max(1.0, np.max(np.abs(want), initial=0, where=np.isfinite(want)))
        np.testing.assert_allclose(got, want, near, near * scale, err_msg=part.name)


def same_bits(got, want):
    return all(a.tobytes() == b.tobytes() for a, b in zip(got, want, strict=True))


# Against the oracle ------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", REGIONS)
def test_regions_match_evaluation_of_their_text(name, shape):
    region, sizes = REGIONS[name](), dict(zip("mn", shape, strict=True))
    inputs, outputs = arguments(region, sizes)
    compute(region, inputs, outputs, sizes)
    assert_close(region, outputs, evaluate(region, inputs, sizes, wide=name != "mixed"))


def test_a_wrong_step_is_noticed(monkeypatch):
    region, sizes = softmax(), {"m": 40, "n": 30}
    inputs, outputs = arguments(region, sizes)
    monkeypatch.setitem(reductions.JOINS, "max", "minimum")
    monkeypatch.setitem(reductions.JOINS, "sum", "maximum")
    compute(region, inputs, outputs, sizes)
    with pytest.raises(AssertionError):
        assert_close(region, outputs, evaluate(region, inputs, sizes, wide=True))


# How arrays lie in memory ------------------------------------------------------------------------


def laid_out(array, how, rng):
    """The same values with other strides."""
    if not array.ndim:
        return array
    if how == "turned":
        return np.asfortranarray(array)
    if how == "reversed":
        return array[tuple(slice(None, None, -1) for _ in array.shape)].copy()[
            tuple(slice(None, None, -1) for _ in array.shape)
        ]
    if how == "gaps":
        wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
        places = tuple(slice(1, None, 2) for _ in array.shape)
        wide[places] = array
        return wide[places]
    if how == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype)
        raw = raw.reshape(array.shape)
        raw[...] = array
        return raw
    return array if rng.random() < 0.5 else laid_out(array, "gaps", rng)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("how", ["turned", "reversed", "gaps", "unaligned", "some"])
@pytest.mark.parametrize("name", REGIONS)
def test_strides_of_all_kinds(name, how):
    region, rng = REGIONS[name](), np.random.default_rng(5)
    for shape in ((3, 7), (100, 401), (70, 5), (2, 140_000)):
        sizes = dict(zip("mn", shape, strict=True))
        inputs, outputs = arguments(region, sizes)
        inputs = [laid_out(a, how, rng) for a in inputs]
        outputs = [laid_out(a, how, rng) for a in outputs]
        compute(region, inputs, outputs, sizes)
        assert_close(region, outputs, evaluate(region, inputs, sizes, wide=name != "mixed"))


def test_broadcast_inputs():
    region = layer_norm_backward()
    for shape in ((3, 7), (100, 401), (500, 6)):
        sizes = dict(zip("mn", shape, strict=True))
        inputs, outputs = arguments(region, sizes)
        inputs[0] = np.broadcast_to(inputs[0][:1], shape)
        inputs[1] = np.broadcast_to(inputs[1][:, :1], shape)
        inputs[2] = np.broadcast_to(inputs[2][:1], shape[1:])
        compute(region, inputs, outputs, sizes)
        assert_close(region, outputs, evaluate(region, inputs, sizes, wide=True))


def many_axes(axes, row, columns):
    """Values along many subsets of the axes, a row reduction and column reductions."""
    names = axes.split()
    b = Builder("many", axes)
    x = b.input("x", "float32", axes)
    along = [b.input(f"a{n}", "float32", n) for n in names]
    crossed = b.input("c", "float32", f"{names[0]} {names[-1]}") if len(names) > 1 else along[0]
    total = x
    for value in (*along, crossed):
        total = total + b.sin(value)
    b.output("y", total)
    if row:
        top = b.max(total, row)
        b.output("top", top)
        b.output("rest", b.exp(total - top))
    for over in columns:
        b.output(f"of_{over.replace(' ', '_')}", b.sum(b.square(total), over))
    b.output("crossed", b.cos(crossed) + along[0])
    b.output("wide", b.cos(along[-1]), "float32", axes)
    b.output("numbers", b.position(names[0]), "int64", axes)
    return b.region()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("axes", "row", "columns"),
    [
        ("a", "", ()),
        ("a", "a", ()),
        ("a b", "", ("a",)),
        ("a b", "a b", ("a",)),
        ("a b c", "", ("a", "a b")),
        ("a b c", "c", ("a", "a b")),
        ("a b c", "b c", ("a",)),
        ("a b c", "b c", ("a b",)),
        ("a b c d", "", ("a b c", "a")),
        ("a b c d", "d", ("a b",)),
        ("a b c d", "c d", ("a",)),
        ("a b c d", "b c d", ("a b",)),
    ],
)
def test_any_number_of_axes(axes, row, columns):
    region = many_axes(axes, row, columns)
    names = axes.split()
    for shape in (
        (2, 3, 4, 5),
        (1, 1, 1, 1),
        (33, 1, 70, 31),
        (2, 400, 3, 90),
        (7, 0, 5, 2),
        (3, 2, 50, 900),
        (0, 2, 2, 2),
        (5, 90_000, 1, 2),
    ):
        sizes = dict(zip(names, shape, strict=False))
        inputs, outputs = arguments(region, sizes)
        compute(region, inputs, outputs, sizes)
        expected = evaluate(region, inputs, sizes, wide=True)
        assert_close(region, outputs, expected)
        flipped = [np.ascontiguousarray(a.T).T for a in inputs]
        compute(region, flipped, outputs, sizes)
        assert_close(region, outputs, expected)


# Rows that are looked up, random numbers ---------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("width", [3, 64, 150_000])
def test_rows_are_looked_up(dtype, width):
    b = Builder("gather", "m n")
    place = b.input("place", "int64", "m")
    table = b.input("table", dtype, "m n", gather="place")
    x = b.convert(table, "float32")
    b.output("rows", table, dtype)
    b.output("centred", x - b.max(x, "n"))
    region, sizes = b.region(), {"m": 9, "n": width}
    rng = np.random.default_rng(0)
    table = (100 * rng.standard_normal((5, width))).astype(numpy_type(dtype))
    for held in (table, np.asfortranarray(table)):
        place = rng.integers(0, 5, 9)
        rows, centred = np.empty((9, width), table.dtype), np.empty((9, width), np.float32)
        compute(region, (place, held), (rows, centred), sizes)
        np.testing.assert_array_equal(rows, table[place])
        wide = table[place].astype(np.float32)
        np.testing.assert_array_equal(centred, wide - wide.max(1, keepdims=True))
        expected = evaluate(region, (place, held), sizes) if width < 100 else (rows, centred)
        assert same_bits((rows, centred), expected)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (101, 777), (2, 150_001), (0, 3)])
def test_dropout_uses_the_numbers_of_the_generator(shape):
    b = Builder("dropout", "m n")
    x = b.input("x", "float32", "m n")
    state = tuple(b.input(f"s{i}", "uint64", "") for i in range(3))
    u = b.uniform(state)
    b.output("y", b.select(b.less(u, 0.75), x * (1 / 0.75), 0.0))
    b.output("u", u)
    b.output("words", b.random_bits(state, "uint64"))
    b.output("of_rows", b.sum(u, "n"))
    b.output("of_columns", b.max(u, "m"))
    region, sizes = b.region(), dict(zip("mn", shape, strict=True))
    words = np.array([2**63 + 5, 17, 3], np.uint64)
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    y, u = np.empty(shape, np.float32), np.empty(shape, np.float32)
    drawn = np.empty(shape, np.uint64)
    rows, columns = np.empty(shape[0], np.float32), np.empty(shape[1], np.float32)
    compute(region, (x, *(np.array(w) for w in words)), (y, u, drawn, rows, columns), sizes)
    expected = philox.uniform(words, x.size, float32).reshape(shape)
    np.testing.assert_array_equal(u, expected)
    np.testing.assert_array_equal(drawn, philox.bits(words, x.size).reshape(shape))
    np.testing.assert_array_equal(y, np.where(expected < 0.75, x * np.float32(1 / 0.75), 0))
    np.testing.assert_allclose(rows, expected.sum(1, dtype=np.float64), 1e-5)
    np.testing.assert_array_equal(columns, expected.max(0, initial=-np.inf))


def test_random_bits_of_a_part_of_the_axes():
    b = Builder("random", "a b c")
    state = tuple(b.input(f"s{i}", "uint64", "") for i in range(3))
    x = b.input("x", "uint32", "a b c")
    b.output("total", b.sum(b.bitwise_xor(x, b.random_bits(state)), "a"))
    region, sizes = b.region(), {"a": 3, "b": 2, "c": 70_000}
    words = [np.array(w, np.uint64) for w in (1, 2, 3)]
    x, out = np.full((3, 2, 70_000), 9, np.uint32), np.empty((2, 70_000), np.uint32)
    compute(region, (*words, x), (out,), sizes)
    halves = philox.bits(np.array([1, 2, 3], np.uint64), x.size // 2).view("<u4").reshape(x.shape)
    np.testing.assert_array_equal(out, (x ^ halves).sum(0, dtype=np.uint32))
    few = {"a": 3, "b": 5, "c": 7}
    inputs, outputs = (*words, x[:, :1, :7].repeat(5, 1)), [np.empty((5, 7), np.uint32)]
    compute(region, inputs, outputs, few)
    assert same_bits(outputs, evaluate(region, inputs, few))


# Outputs in place of inputs ----------------------------------------------------------------------


def adam():
    b = Builder("adam", "n")
    p, g = b.input("p", "float32", "n"), b.input("g", "float32", "n")
    m, v = b.input("m", "float32", "n"), b.input("v", "float32", "n")
    rate = b.input("rate", "float32", "")
    new_m = b.fma(g - m, 0.1, m)
    new_v = b.fma(b.square(g) - v, 0.001, v)
    b.output("m", new_m, inplace="m")
    b.output("v", new_v, inplace="v")
    b.output("p", p - rate * new_m / (b.sqrt(new_v) + 1e-8), inplace="p")
    return b.region()


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_an_update_in_place(size):
    region, sizes = adam(), {"n": size}
    (p, g, m, v, rate), _ = arguments(region, sizes)
    v = np.square(v)
    for step in (1, 2):
        arrays = p[::step], g[::step], m[::step], v[::step], rate
        sizes = {"n": arrays[0].size}
        expected = evaluate(region, [a.copy() for a in arrays], sizes, wide=True)
        compute(region, arrays, (arrays[2], arrays[3], arrays[0]), sizes)
        assert_close(region, (arrays[2], arrays[3], arrays[0]), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inputs_are_read_before_they_are_replaced(shape):
    """Softmax over its input, a swap, and replaced rows and columns that others read."""
    b = Builder("replaced", "m n")
    x, y = b.input("x", "float32", "m n"), b.input("y", "float32", "m n")
    row, column = b.input("row", "float32", "m"), b.input("column", "float32", "n")
    half = b.input("half", "float16", "m n")
    one = b.input("one", "float32", "")
    e = b.exp(x - b.max(x, "n"))
    b.output("one", one + one, inplace="one")
    b.output("row", b.square(row) + b.max(half, "n"), inplace="row")
    b.output("column", b.max(x * row, "m"), inplace="column")
    b.output("x", y, inplace="x")
    b.output("y", e / b.sum(e, "n") + row + column + one, inplace="y")
    b.output("half", half + x, "float16", inplace="half")
    region, sizes = b.region(), dict(zip("mn", shape, strict=True))
    inputs, _ = arguments(region, sizes)
    expected = evaluate(region, [a.copy() for a in inputs], sizes, wide=True)
    x, y, row, column, half, one = inputs
    outputs = (one, row, column, x, y, half)
    compute(region, inputs, outputs, sizes)
    assert_close(region, outputs, expected)


# Single instructions -----------------------------------------------------------------------------

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    1e-40,
    -1e-40,
    3.0,
    88.0,
    90.0,
    -90.0,
    -104.0,
    3e9,
    -3e9,
    1e20,
    np.inf,
    -np.inf,
    np.nan,
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_instructions_on_floats(dtype):
    b = Builder("floats", "m n")
    x, y = b.input("x", dtype, "m"), b.input("y", dtype, "n")
    unary = (
        "sigmoid rsqrt erf erfc sign round reciprocal isnan signbit floor negative abs "
        "expm1 log1p tanh lgamma"
    ).split()
    for name in unary:
        b.output(name, getattr(b, name)(x))
    binary = "maximum minimum floor_divide remainder copysign atan2 less not_equal equal".split()
    for name in binary:
        b.output(name, getattr(b, name)(x, y))
    b.output("largest", b.maximum(x, 0.5))
    b.output("chosen", b.select(b.less(x, y), x, 2.0))
    b.output("bits", b.bitcast(x, "int32" if dtype == "float32" else "int64"))
    for to in ("int8", "int32", "int64", "uint8", "uint32", "uint64", "bool", "float32"):
        b.output(f"to_{to}", b.convert(x, to))
    region = b.region()
    array = np.array(SPECIAL, dtype)
    sizes = {"m": array.size, "n": array.size}
    outputs = [np.empty([array.size] * len(o.axes), o.dtype) for o in region.outputs]
    compute(region, (array, array), outputs, sizes)
    expected = evaluate(region, (array, array), sizes)
    for part, got, want in zip(region.outputs, outputs, expected, strict=True):
        near = 5e-7 if part.dtype == "float32" else 1e-14
        np.testing.assert_allclose(got, want, near, 0, err_msg=part.name)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint16", "uint64", "bool"])
def test_instructions_on_integers(dtype):
    b = Builder("integers", "m n")
    x, y = b.input("x", dtype, "m"), b.input("y", dtype, "n")
    names = ["bitwise_and", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "less"]
    if dtype != "bool":
        names += ["add", "subtract", "multiply", "floor_divide", "remainder", "maximum"]
        names_of_one = ["negative", "abs", "sign", "square", "bitwise_invert"]
    else:
        names += ["logical_and", "logical_xor"]
        names_of_one = ["logical_not", "bitwise_invert"]
    for name in names:
        b.output(name, getattr(b, name)(x, y))
    for name in names_of_one:
        b.output(name, getattr(b, name)(x))
    for to in ("int8", "uint16", "bool", "float32", "float64"):
        b.output(f"to_{to}", b.convert(x, to))
    if dtype != "bool":
        table = b.add(x, y)
        for name in ("sum", "product", "max", "min"):
            b.output(name, getattr(b, name)(table, "n"))
            b.output(f"column_{name}", getattr(b, name)(table, "m"))
    region = b.region()
    limits = (False, True) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = [*limits, 0, 1]
    if dtype != "bool":
        values += [2, 7, 8, 31, 64, 100, limits[0] + 1]
    if dtype in ("int8", "int32", "int64"):
        values += [-1, -7]
    array = np.array(values, dtype)
    sizes = {"m": array.size, "n": array.size}
    outputs = [np.empty([array.size] * len(o.axes), o.dtype) for o in region.outputs]
    compute(region, (array, array), outputs, sizes)
    expected = evaluate(region, (array, array), sizes)
    for part, got, want in zip(region.outputs, outputs, expected, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=part.name)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_reductions_of_nothing(dtype):
    b = Builder("nothing", "m n")
    x = b.input("x", dtype, "m n")
    names = ("any", "all", "max", "min") if dtype == "bool" else ("sum", "product", "max", "min")
    for name in names:
        b.output(name, getattr(b, name)(x, "n"))
    region = b.region()
    outputs = [np.empty(3, dtype) for _ in names]
    compute(region, (np.empty((3, 0), dtype),), outputs, {"m": 3, "n": 0})
    limits = {"float32": (-np.inf, np.inf), "int32": (-(2**31), 2**31 - 1), "bool": (False, True)}
    first = (False, True) if dtype == "bool" else (0, 1)
    assert [o.tolist() for o in outputs] == [[v] * 3 for v in (*first, *limits[dtype])]


def test_nan_wins_and_small_floats_are_rounded_once():
    b = Builder("rounding", "m n")
    x = b.input("x", "bfloat16", "m n")
    b.output("max", b.max(x, "n"), "bfloat16")
    b.output("sum", b.sum(x, "n"), "bfloat16")
    x = np.ones((2, 301), ml_dtypes.bfloat16)
    x[1, 7] = np.nan
    largest, total = np.empty(2, x.dtype), np.empty(2, x.dtype)
    compute(b.region(), (x,), (largest, total), {"m": 2, "n": 301})
    assert largest[0] == 1
    assert np.isnan(largest[1].astype(float))
    assert total[0] == ml_dtypes.bfloat16(301)


def test_neither_warnings_nor_errors_of_numpy():
    region, sizes = gelu(), {"m": 2, "n": 3}
    b = Builder("quiet", "m")
    x = b.input("x", "float32", "m")
    b.output("y", b.log(b.divide(x, b.subtract(x, x))))
    with np.errstate(all="raise"):
        y = np.empty(2, np.float32)
        compute(b.region(), (np.zeros(2, np.float32),), (y,), {"m": 2})
        inputs, outputs = arguments(region, sizes)
        compute(region, [a * np.inf for a in inputs], outputs, sizes)
    assert np.isnan(y).all()


@pytest.mark.parametrize("rows", [False, True])
def test_long_sums_keep_their_digits(rows):
    """Columns are summed up in runs: number by number, many equal numbers lose digits."""
    b = Builder("sums", "m n")
    x = b.input("x", "float32", "m n")
    b.output("columns", b.sum(x, "m"))
    if rows:
        b.output("rows", b.sum(x, "n"))
    region, exact = b.region(), float(np.float32(0.1))
    for shape in ((1_000_000, 2), (300_001, 3), (2, 1_000_000)):
        x = np.full(shape, 0.1, np.float32)
        outputs = [np.empty(shape[1 - i], np.float32) for i in range(1 + rows)]
        compute(region, (x,), outputs, dict(zip("mn", shape, strict=True)))
        for i, out in enumerate(outputs):
            np.testing.assert_allclose(out, exact * shape[i], 1e-6)


@pytest.mark.parametrize("name", ["isfinite", "isinf", "isnan", "signbit"])
def test_questions_about_floats_with_results_that_lie_apart(name):
    b = Builder(name, "m")
    b.output("y", getattr(b, name)(b.input("x", "float32", "m")))
    x = np.array(SPECIAL * 9, np.float32)
    memory = np.full(3 * x.size, 7, np.uint8)
    compute(b.region(), (x,), (memory.view(bool)[::3],), {"m": x.size})
    np.testing.assert_array_equal(memory[::3], getattr(np, name)(x))
    assert (memory.reshape(-1, 3)[:, 1:] == 7).all()
