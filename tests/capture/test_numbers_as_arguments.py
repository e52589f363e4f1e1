"""Numbers as arguments of captured functions do what they do in eager calls, or are refused alike.

Also those that the dtype of the tensor does not have, or int64: Python's integers have no limit.
"""

import functools
import operator
import warnings

import numpy as np
import pytest

import eagerflow as ef
from tests.contract.cases import SOAK, spread

with_tensors = {
    "add": operator.add,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "remainder": operator.mod,
    "less": operator.lt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "maximum": ef.maximum,
    "where": lambda x, k: ef.where(x > 0, x, k),
    "clip": lambda x, k: ef.clip(x, k, k),
    "full": lambda x, k: ef.full(3, k),
    "full_like": ef.full_like,
    "tensor with a dtype": lambda x, k: ef.asarray(k, dtype=x.dtype),
    "stack": lambda x, k: ef.stack([x[0], k]),
    "set": lambda x, k: x.at[0].set(k),
    "from the left": lambda x, k: k - x,
    "compared from the left": lambda x, k: k < x,
}
with_numbers = {
    "square": lambda x, k: x < k * k,
    "sum": lambda x, k: x + (k + 1),
    "less": lambda x, k: ef.where(k < 2**53 + 0.5, x, 0),
    "divided": lambda x, k: x * (3 // k),
    "rest": lambda x, k: x * (3 % k),
    "ratio": lambda x, k: x * (3 / k),
    "negative": lambda x, k: x * -k,
    "size": lambda x, k: x < abs(k),
    "inverse": lambda x, k: x * k**-1,
    "power": lambda x, k: x < k**3,
    "lowest bit": lambda x, k: x * (k & 1),
    "other bits": lambda x, k: x < (k | 4) ^ 1,
    "from the left": lambda x, k: x < (255 & k),
    "moved to the left": lambda x, k: x < k << 2,
    "moved to the right": lambda x, k: x < k >> 1,
    "moved far": lambda x, k: x < k << 70,
    "moved by it": lambda x, k: x < 1 << (k % 100),
    "inverted": lambda x, k: x < ~k,
    "both hold": lambda x, k: ef.where((k > 2) & (k < 300) | (k == 0), x, 0),
    "quotient and rest": lambda x, k: x * sum(divmod(k, 7)),
    "rest of seven": lambda x, k: x < divmod(7, k)[1],
    "parts": lambda x, k: x * k.real + k.imag,
    "conjugate": lambda x, k: x * k.conjugate(),
    "ops of numbers": lambda x, k: ef.power(k, 2),
    "in a branch": lambda x, k: ef.cond(x[0] == 0, lambda: x < k, lambda: x < 0),
    "in a loop": lambda x, k: ef.fori_loop(0, 2, lambda i, s: s & (x < k), x == x),
    "in a scan": lambda x, k: ef.scan(lambda c, e: (c, e < k), x[0], x)[1],
    "too large a constant": lambda x, k: x < k - 2**64,
}
NUMBERS = [0, 1, -1, 3, 127, 128, -129, 256, 300, 2**31, 2**53 + 1, 2**62, -(2**63), 2**63, 2**64]
NUMBERS += [-(2**63) - 1, 10**30, 0.0, 2.5, -1.5, 1e39, float("nan"), float("inf"), True, 1 + 2j]
NUMBERS += [np.int8(-3), np.uint8(200), np.int64(2**40), np.float32(0.1), np.float64(1e39)]
NUMBERS += [np.uint64(2**64 - 1), np.bool_(True), np.float16(3)]
DTYPES = ["uint8", "int64", "float32", "int8", "uint16", "uint64", "float16", "float64", "bool"]
CASES = [
    (dtype, name)
    for dtype in (DTYPES if SOAK else ("uint8", "float32"))
    for name in [*with_tensors, *(f"{name} of numbers" for name in with_numbers)]
]


def outcome(f, *args):
    """The result as an array and its dtype, or the class of the error."""
    try:
        with warnings.catch_warnings(action="ignore"):
            y = f(*args)
    except Exception as error:
        return type(error).__name__
    return y.dtype, y.numpy()


@pytest.mark.parametrize(("dtype", "name"), CASES)
def test_numbers_of_all_sizes_are_those_of_eager(dtype, name):
    f = with_numbers.get(name.removesuffix(" of numbers")) if " of numbers" in name else None
    f = f or with_tensors[name]
    x = ef.tensor(np.array([0, 1, 3])).astype(dtype)
    captured = ef.function(lambda x, k: f(x, k))
    for k in spread(NUMBERS, 12):
        wanted, found = outcome(f, x, k), outcome(captured, x, k)
        what = f"{name} of {dtype} and {k!r}: {found} instead of {wanted}"
        assert isinstance(wanted, str) == isinstance(found, str), what
        if isinstance(wanted, str):
            assert wanted == found or {wanted, found} <= {"TypeError", "DTypeError"}, what
            continue
        assert wanted[0] == found[0], what
        rtol = {"float16": 2e-3, "float32": 2e-6, "float64": 4e-15, "complex128": 4e-15}
        rtol = rtol.get(str(wanted[0]), 0)
        np.testing.assert_allclose(found[1], wanted[1], rtol=rtol, atol=0, err_msg=what)


WITH_SIZES = {
    "sum": lambda x: x + x.shape[0],
    "negative": lambda x: x + -x.shape[0],
    "half": lambda x: x * (x.shape[0] // 2),
    "less": lambda x: x < x.shape[0],
    "maximum": lambda x: ef.maximum(x, x.shape[0]),
    "where": lambda x: ef.where(x > 0, x, x.shape[0]),
    "ratio": lambda x: x / x.shape[0],
}


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32"])
@pytest.mark.parametrize("name", WITH_SIZES)
def test_free_sizes_beside_narrow_integers_are_right_or_refused(name, dtype):
    f = WITH_SIZES[name]
    captured = ef.function(f, input_signature=[ef.TensorSpec((None,), dtype)])
    for count in (5, 300, 70_000):
        x = ef.tensor(np.arange(count) % 128).astype(dtype)
        wanted, found = outcome(f, x), outcome(captured, x)
        if not isinstance(found, str):
            assert wanted[0] == found[0]
            np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6)
        else:
            assert found == "CaptureError" and np.dtype(dtype).itemsize < 4


NUMBERS_FED = {  # and the dtypes of inputs that take them
    300: ("int64", "float32"),
    -1: ("int64", "float32"),
    7: ("uint8", "int64", "float32"),
    2**70: ("float32",),
    2.5: ("float32",),
    float("nan"): ("float32",),
    True: ("bool", "uint8", "int64", "float32"),
    1j: (),
    np.int64(300): ("int64", "float32"),
    np.float16(2): ("float32",),
    np.uint8(8): ("uint8", "int64", "float32"),
    (1, 300): ("int64", "float32"),
    (1, 2): ("uint8", "int64", "float32"),
    (1.5, 2): ("float32",),
}


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "float32"])
@pytest.mark.parametrize("value", NUMBERS_FED, ids=repr)
def test_numbers_that_are_fed_fit_the_input_or_are_refused(value, dtype):
    spec = ef.TensorSpec(np.shape(value), dtype)
    graph = ef.capture.trace(lambda k: {"y": ef.stack([k, k])[0]}, spec)
    session = ef.capture.Session(graph)
    ways = [lambda x: graph(x)["y"], lambda x: session.run("y", {"k": x})]
    if not isinstance(value, tuple):
        captured = ef.function(lambda k: ef.stack([k, k])[0], input_signature=[spec])
        captured(ef.zeros((), dtype=dtype))
        ways.append(captured)
    for way in ways:
        found = outcome(way, value)
        if dtype in NUMBERS_FED[value]:
            assert found[0] == dtype
            np.testing.assert_array_equal(found[1], np.asarray(value, np.float64).astype(dtype))
        else:
            assert found == "DTypeError"


@pytest.mark.parametrize("value", [np.array(3), ef.tensor(300), np.array([1.5]), [ef.tensor(300)]])
def test_arrays_that_are_fed_have_the_dtype_of_the_input(value):
    graph = ef.capture.trace(lambda k: k * 1, ef.TensorSpec(np.shape(value), "uint8"))
    with pytest.raises(ef.errors.DTypeError, match="dtype mismatch"):
        graph(value)


def test_an_input_signature_is_for_one_structure():
    twice = ef.function(lambda k: k * 2, input_signature=[ef.TensorSpec((), "float32")])
    assert float(twice(1.0)) == 2.0
    with pytest.raises(ef.errors.ArgumentError, match="2 arguments"):
        twice([1.0, 300.0])


def test_numbers_within_the_range_share_one_graph():
    below = ef.function(lambda x, k: x < k)
    x = ef.tensor(np.array([0, 200], np.uint8))
    for k in (*range(256), 300, -1, 300):
        assert below(x, k).tolist() == [k > 0, k > 200]
    assert len(below.graphs) == 3
    assert "is not valid" in below.explain()


@pytest.mark.parametrize("value", [2.0, -2.5, float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_quotients_of_numbers_of_numpy(kind, value):
    def f(x, k):
        return x * (7 // k) + 7 % k + k // 3

    x, k = ef.tensor([1.0, 2.0]), kind(value)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(ef.function(f)(x, k).numpy(), f(x, k).numpy(), rtol=1e-3)


OF_A_NUMBER = {  # functions that take a tensor first, and write or look into it
    "index_set": lambda k: ef.index_set(k, 5, ()),
    "index_add": lambda k: ef.index_add(k, k, ()),
    "index_scatter": lambda k: ef.index_scatter(k, shape=(4,), index=1),
    "gather": lambda k: ef.gather(ef.arange(4), k),
}


@pytest.mark.parametrize("k", [2, np.int64(2), True, 1.5], ids=repr)
@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_numbers_are_taken_where_tensors_are(name, k):
    wanted, found = (outcome(f, k) for f in (OF_A_NUMBER[name], ef.function(OF_A_NUMBER[name])))
    assert wanted[0] == found[0]
    if not isinstance(wanted, str):
        np.testing.assert_array_equal(found[1], wanted[1])


def test_results_that_no_integer_holds():
    square = ef.function(lambda k: k * k)
    assert int(square(3)) == 9
    assert square(2**40) == 2**80
    with pytest.raises(ZeroDivisionError):
        ef.function(lambda k: 3 // k)(0)


OPS_WITH_ATTRIBUTES = {
    "sort": (ef.sort, (), {}),
    "softmax": (ef.softmax, (), {"axis": 0}),
    "var": (ef.var, (), {"correction": 1}),
    "vector_norm": (ef.linalg.vector_norm, (), {"ord": 3}),
    "cross": (ef.cross, (ef.ones((4, 3)),), {}),
    "pad": (ef.pad, (2,), {"constant_values": 1.5}),
    "roll": (ef.roll, (1,), {"axis": 0}),
    "top_k": (ef.top_k, (2,), {}),
    "multiply": (ef.multiply, (2.5,), {}),
    "partial": (functools.partial(ef.sum, axis=1), (), {}),
    "sum by position": (ef.sum, (1, True), {}),
    "max by position": (ef.max, (np.int64(0),), {}),
    "var by position": (ef.var, (1,), {"correction": 1}),
}


@pytest.mark.parametrize("name", OPS_WITH_ATTRIBUTES)
def test_ops_are_captured_as_they_are(name):
    op, args, attributes = OPS_WITH_ATTRIBUTES[name]
    x = ef.tensor(np.arange(12.0, dtype="f4").reshape(4, 3)[::-1])
    for found, wanted in zip(
        ef.tree.flatten(ef.function(op)(x, *args, **attributes))[0],
        ef.tree.flatten(op(x, *args, **attributes))[0],
        strict=True,
    ):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)


def test_too_many_attributes_are_refused():
    for args in ((1, False, None, 7), (1,)):
        with pytest.raises(TypeError, match="sum"):
            ef.function(ef.sum)(ef.ones((2, 3)), *args, **({"axis": 1} if len(args) == 1 else {}))


NUMBERS_ALONE = {  # where no tensor says a dtype
    "add": lambda x, a, b: ef.add(a, b),
    "ldexp of one exponent": lambda x, a, b: ef.ldexp(b, ef.sum(x)),
    "where": lambda x, a, b: ef.where(x > 0, a, b),
    "ldexp": lambda x, a, b: ef.ldexp(a, x),
    "list": lambda x, a, b: ef.tensor([a, b]),
    "nested list": lambda x, a, b: ef.tensor([[a], [b]]),
    "stack": lambda x, a, b: ef.stack([a, b]),
    "linspace": lambda x, a, b: ef.linspace(0, a, 3),
    "full": lambda x, a, b: ef.full(2, a),
    "maximum": lambda x, a, b: ef.maximum(a, b),
    "result": lambda x, a, b: ef.asarray(a) if isinstance(a, np.generic) else x,
}
PAIRS = [(np.float16(2.5), 0.5), (np.uint8(3), 1), (np.float64(1e300), 1), (2**40, 1.5)]
PAIRS += [(np.uint8(200), -1), (2, np.float64(0.1)), (np.uint8(200), np.int8(1))]
PAIRS += [(np.float64(1e39), 2.0), (2**31, 1), (1e39, np.float64(3))]
PAIRS += [(np.int8(-1), np.float16(2)), (np.float32(2), np.float64(1e300)), (2**62, 3), (1, 2)]


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
@pytest.mark.parametrize("name", NUMBERS_ALONE)
def test_numbers_that_meet_no_tensor_have_the_dtype_of_eager(name, pair):
    f, x = NUMBERS_ALONE[name], ef.tensor([0, 1, 3])
    wanted = outcome(f, x, *pair)
    if name == "ldexp":
        with np.errstate(over="ignore"):
            numbers = (float(pair[0]) * np.array([1.0, 2.0, 8.0])).astype(wanted[0])
        np.testing.assert_allclose(wanted[1], numbers, rtol=1e-6)
    ways = [
        (ef.function(f), pair),
        (ef.function(f, numerics="exact"), pair),
        (ef.function(lambda x, b: f(x, pair[0], b)), pair[1:]),
        (ef.function(f, static=(1, 2)), pair),
    ]
    for way, numbers in ways:
        found = outcome(way, x, *numbers)
        assert found[0] == wanted[0], (found, wanted)
        if not isinstance(wanted, str):
            np.testing.assert_allclose(found[1], wanted[1], rtol=2e-6)


def test_numbers_that_meet_no_tensor_are_numpys():
    x = np.array([0, 1, 3])
    for a, b in PAIRS[:1] + PAIRS[1:2]:
        wanted = np.where(x > 0, a, b)
        found = ef.where(ef.tensor(x > 0), a, b)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.numpy(), wanted)
    for number in (2**62, np.float64(1e300), np.float16(2.5)):
        wide = np.float64 if type(number) is not int else np.float32
        wanted = np.ldexp(np.asarray(number, getattr(number, "dtype", wide)), x)
        np.testing.assert_allclose(ef.ldexp(number, ef.tensor(x)).numpy(), wanted, rtol=1e-6)


def test_numbers_of_numpys_are_results():
    for number in (np.float16(2.5), np.uint8(3), np.int8(-1), np.float32(2), np.float64(2)):
        y = ef.function(lambda x, k: (x, k))(ef.ones(1), number)[1]
        assert y.dtype == number.dtype and y.item() == number.item()


def test_each_value_of_an_attribute_has_its_graph():
    total = ef.function(ef.sum)
    x = ef.ones((2, 3))
    for axis in (0, 1, -1, 0):
        assert total(x, axis=axis).tolist() == ef.sum(x, axis=axis).tolist()
    assert len(total.graphs) == 3


@pytest.mark.parametrize("value", [0, 255, 256, -1])
def test_constants_of_pads(value):
    def padded(x, k):
        return ef.pad(x, 1, constant_values=k)

    x = ef.tensor(np.array([1, 3], np.uint8))
    assert outcome(ef.function(padded), x, value)[0] == outcome(padded, x, value)[0]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("value", [-(2**33), 1e300, -1e300, float("inf")])
def test_floor_division_by_numbers_infinite_in_the_dtype(value, dtype):
    x = ef.tensor(np.array([1, 3], dtype))
    for f in (lambda x, k: x // k, lambda x, k: k // x):
        wanted = f(x, ef.tensor(value, dtype="float64").astype(dtype))
        for numerics in ("fast", "exact"):
            way = ef.function(f, numerics=numerics)
            np.testing.assert_array_equal(way(x, value).numpy(), wanted.numpy())
        np.testing.assert_array_equal(f(x, value).numpy(), wanted.numpy())


def test_functions_of_no_module_are_captured():
    def scaled(x, k):
        return x * k

    scaled.__module__ = None
    assert float(ef.function(scaled)(ef.tensor(3.0), 2.0)) == 6.0


@pytest.mark.parametrize("share", [-0.5, 0.25, 1.0, 1.5, float("nan"), 3, True])
def test_shares_beyond_the_range_are_those_of_eager(share):
    x = ef.tensor(np.arange(5.0, dtype="f4"))
    for f in (
        ef.quantile,
        lambda x, k: ef.percentile(x, k * 100),
        lambda x, k: ef.quantile(x, k / 2),
    ):
        captured = ef.function(f)
        captured(x, 0.5)
        found, wanted = outcome(captured, x, share), outcome(f, x, share)
        assert found[0] == wanted[0]
        assert isinstance(wanted, str) or found[1] == wanted[1]
