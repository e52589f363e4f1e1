"""Numbers of Python's and NumPy's on their way into tensors: no dtype but the last rounds them."""

import ml_dtypes
import numpy as np
import pytest

import eagerflow as ef
from eagerflow import dispatch
from eagerflow.errors import DTypeError

TENTH = 0.1  # float32 has another
HUGE = 1e300  # float32 has none
PAIR = [TENTH, HUGE]
COMPLEX = [0.1 + 0.2j, 1e300j]
BIG = [2**53 + 1, -(2**63) + 1]


def wide(values=(1.0, 2.0)):
    return ef.tensor(np.array(values, np.float64))


GENERATOR = ef.random.Generator(3)


DOORS = {
    "tensor": lambda x: ef.tensor(x, dtype="float64"),
    "asarray": lambda x: ef.asarray(x, dtype="float64"),
    "tensor of tensors and numbers": lambda x: ef.tensor([wide(), x])[1],
    "tensor with a dtype of tensors": lambda x: ef.tensor([ef.ones(2), x], dtype="float64")[1],
    "Variable": lambda x: ef.Variable(x, dtype="float64").value,
    "assign": lambda x: ef.Variable(wide()).assign(x).value,
    "assign_add": lambda x: ef.Variable(wide((0.0, 0.0))).assign_add(x).value,
    "add": lambda x: ef.add(wide((0.0, 0.0)), x),
    "radd": lambda x: x + wide((0.0, 0.0)),
    "np.add": lambda x: np.add(wide((0.0, 0.0)), x),
    "concat": lambda x: ef.concat([wide(), x])[2:],
    "np.concatenate": lambda x: np.concatenate([wide(), x])[2:],
    "stack": lambda x: ef.stack([wide(), x])[1],
    "where": lambda x: ef.where(ef.tensor([False, False]), wide(), x),
    "where of numbers": lambda x: ef.where(ef.tensor([True, True]), x, wide()),
    "clip": lambda x: ef.clip(wide(), x, x),
    "maximum": lambda x: ef.maximum(wide((0.0, 0.0)), x),
    "set": lambda x: wide().at[:].set(x),
    "add at": lambda x: wide((0.0, 0.0)).at[:].add(x),
    "full_like": lambda x: ef.full_like(wide(), x),
    "broadcast_arrays": lambda x: ef.broadcast_arrays(x, wide())[0],
    "outer": lambda x: ef.outer(x, wide((1.0,)))[:, 0],
    "tensordot": lambda x: ef.tensordot(x, wide((1.0,)), axes=0)[:, 0],
    "diff": lambda x: ef.diff(wide((0.0,)), prepend=0.0, append=x)[-2:] + np.array([0.0, TENTH]),
    "random": lambda x: GENERATOR.normal((2,), x, 0.0, dtype="float64"),
    "uniform": lambda x: GENERATOR.uniform((2,), x, x, dtype="float64"),
    "carry": lambda x: ef.fori_loop(0, 1, lambda i, s: s + x, wide((0.0, 0.0))),
    "absolute error": lambda x: ef.nn.losses.mean_absolute_error(
        [[v] for v in x], wide((0.0, 0.0)).reshape((2, 1))
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_lists_of_numbers_reach_float64_unrounded(door):
    assert DOORS[door](PAIR).tolist() == PAIR
    assert DOORS[door](tuple(np.float64(x) for x in PAIR)).tolist() == PAIR


@pytest.mark.parametrize("door", sorted(DOORS.keys() - {"Variable", "assign", "assign_add"}))
def test_captured_numbers_reach_float64_unrounded(door):
    captured = ef.function(lambda a, b: DOORS[door]([a, b]))
    assert captured(*PAIR).tolist() == PAIR
    fixed = ef.function(lambda: DOORS[door](PAIR))
    assert fixed().tolist() == PAIR


def test_comparisons_with_lists_see_all_digits():
    x = wide(PAIR)
    assert (x == PAIR).tolist() == ef.equal(x, PAIR).tolist() == [True, True]
    assert (wide([0.1, 0.1]) < [0.1, np.nextafter(0.1, 1).item()]).tolist() == [False, True]


def test_single_numbers_keep_all_digits():
    assert ef.full((1,), TENTH, dtype="float64").tolist() == [TENTH]
    assert ef.linspace(TENTH, HUGE, 2, dtype="float64").tolist() == PAIR
    assert ef.arange(TENTH, 0.2, dtype="float64").tolist() == [TENTH]
    assert ef.pad(wide(()), ((0, 1),), constant_values=HUGE).tolist() == [HUGE]
    v = ef.Variable(0.0, dtype="float64")
    assert float(v.assign(TENTH)) == TENTH


def test_complex_numbers_in_lists():
    x = ef.tensor(np.zeros(2, complex))
    for y in (ef.tensor(COMPLEX, dtype="complex128"), x + COMPLEX, ef.concat([x, COMPLEX])[2:]):
        assert (y.dtype.name, y.tolist()) == ("complex128", COMPLEX)
    assert ef.Variable(x).assign(COMPLEX).value.tolist() == COMPLEX


def test_large_integers_in_lists():
    x = ef.zeros(2, dtype="int64")
    for y in (ef.tensor(BIG), x + BIG, x.at[:].set(BIG), ef.stack([x, BIG])[1]):
        assert (y.dtype.name, y.tolist()) == ("int64", BIG)
    top = [2**64 - 1, 0]
    assert ef.tensor(top, dtype="uint64").tolist() == top
    assert ef.zeros(2, dtype="uint64").at[:].set(top).tolist() == top
    assert ef.tensor([2**63, -1], dtype="float64").tolist() == [2.0**63, -1.0]
    assert ef.tensor([2**70, 1], dtype="float64").tolist() == [2.0**70, 1.0]
    # 2**60 + 2**36 + 1 is above the middle of two neighbours in float32, and float64 has no + 1.
    assert ef.tensor([2**60 + 2**36 + 1], dtype="float32").tolist() == [2.0**60 + 2.0**37]


@pytest.mark.parametrize("values", [2**63, [2**63], [2**63, -1], [2**64 - 1, 0], [[2**70], [1]]])
def test_integers_that_no_int64_holds_are_refused(values):
    with pytest.raises(DTypeError, match="does not fit into int64"):
        ef.tensor(values)
    words = r"add: (x2: .* does not fit into int64|Python int too large)"
    with pytest.raises(DTypeError, match=words):
        ef.ones(1, dtype="int64") + values
    with pytest.raises(DTypeError, match="does not fit into uint8"):
        ef.tensor(values, dtype="uint8")


def test_lists_say_the_dtype_that_they_did():
    assert ef.add(ef.ones(1, dtype="int8"), [1]).dtype == "int64"
    assert ef.add(ef.ones(1, dtype="float16"), [1.0]).dtype == "float32"
    assert ef.add(ef.ones(1), [True]).dtype == "float32"
    assert ef.add(ef.tensor([1]), []).dtype == "float32"
    assert ef.tensor([np.ones(2), [1, 2]]).dtype == "float32"
    assert ef.tensor([np.ones(2, ml_dtypes.bfloat16)]).dtype == "float32"


# NumPy's numbers ---------------------------------------------------------------------------------

NUMPYS = [
    np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int64(3), np.int8(3), np.uint64(2**63),
    np.bool_(True), ml_dtypes.bfloat16(0.5), np.longdouble(0.5), np.longlong(3),
]  # fmt: skip
OPS = {
    "add": lambda x, n: x + n,
    "radd": lambda x, n: n + x,
    "divide": lambda x, n: x / n,
    "power": lambda x, n: x**n,
    "multiply": lambda x, n: ef.multiply(n, x),
    "np.maximum": lambda x, n: np.maximum(n, x),
    "where": lambda x, n: ef.where(x > 0, x, n),
    "clip": lambda x, n: ef.clip(x, n, None),
    "stack": lambda x, n: ef.stack([x[0], n]),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("number", NUMPYS, ids=repr)
def test_numbers_of_numpys_count_like_pythons(number, op):
    kinds = {"b": bool, "i": int, "u": int, "f": float, "V": float}
    python = kinds[number.dtype.kind](number)
    for dtype in ("float32", "float16", "bfloat16", "float64", "int64", "int8"):
        x = ef.tensor([1, 2], dtype=dtype)
        try:
            wanted = OPS[op](x, python)
        except DTypeError:
            with pytest.raises(DTypeError):
                OPS[op](x, number)
            continue
        for _ in range(2):  # the second call finds the kernel
            found = OPS[op](x, number)
            assert found.dtype == wanted.dtype
            assert found.tolist() == wanted.tolist()
        if found.dtype in ("float32", "float64") and found.dtype == dtype:
            f = OPS[op]
            slopes = [ef.grad(lambda x, n=n: f(x, n).sum())(x).tolist() for n in (number, python)]  # noqa: B023
            assert slopes[0] == slopes[1]


def test_numbers_of_numpys_alone_keep_their_dtype():
    assert ef.tensor(np.float64(0.1)).tolist() == 0.1
    assert ef.tensor(np.int8(3)).dtype == "int8"
    assert ef.exp(np.float64(1.0)).dtype == "float64"
    assert ef.add(np.float16(1), 2.0).dtype == "float16"
    assert ef.add(np.float64(1), [1.0]).dtype == "float32"
    assert (ef.ones(1) * np.array(2.0)).dtype == "float64"
    with pytest.raises(DTypeError):
        ef.tensor(np.longdouble(1))


def test_float32_models_stay_float32():
    start = ef.nn.initializers.RandomNormal(stddev=np.sqrt(0.25))
    assert start((2, 3)).dtype == "float32"
    x = GENERATOR.normal((3,), np.float64(1), np.float64(2), dtype="float32")
    assert x.dtype == "float32"
    assert GENERATOR.uniform((3,), np.float64(1), np.float32(2)).dtype == "float32"
    assert GENERATOR.bernoulli(np.float64(0.5), (3,)).dtype == "bool"
    scores = ef.ones((2, 2)) / np.sqrt(8)
    assert ef.result_type(np.sqrt(8), scores) == scores.dtype == "float32"
    with ef.GradientTape() as tape:
        w = ef.Variable(ef.ones((2,)))
        loss = (w * np.sqrt(8)).sum()
    assert tape.gradient(loss, w).dtype == "float32"


@pytest.mark.parametrize("number", [*NUMPYS[:5], np.complex64(1j)], ids=repr)
def test_captured_code_counts_them_as_eager_does(number):
    def f(x, n):
        return x * n, n * x, ef.exp(n), n + ef.tensor(1.0), x / (n * 2 + 1), ef.exp(n * 0.5 - n)

    captured = ef.function(f)
    x = ef.tensor([1.0, 2.0])
    for value in (number, number * 2):
        for a, b in zip(captured(x, value), f(x, value), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    assert len(captured.graphs) == 1
    fixed = ef.function(lambda x: f(x, number))
    for a, b in zip(fixed(x), f(x, number), strict=True):
        assert a.dtype == b.dtype


def test_static_numbers_of_numpys_are_values():
    traced = []

    @ef.function(static=("n",))
    def f(x, n):
        traced.append(n)
        return x * 2 if n > 1 else x

    for n in (np.float32(2), np.float32(2), np.float32(0.5)):
        f(ef.ones(1), n)
    assert traced == [np.float32(2), np.float32(0.5)]


def test_graphs_and_sessions_take_them_as_any_number():
    graph = ef.capture.trace(lambda x: x * 2, ef.TensorSpec((), "float64"))
    assert float(graph(np.float32(0.5))) == 1.0
    assert float(ef.capture.Session(graph).run("output", {"x": np.int64(3)})) == 6.0


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.int8(3), np.bool_(True)])
def test_beside_a_tensor_a_numpy_number_costs_a_call_with_a_python_number(number, monkeypatch):
    x = ef.tensor([1.0, 2.0])

    def results(number):
        yield from (x * number, number - x, ef.where(x > 1, x, number), ef.clip(x, number, number))

    expected = [y.numpy() for y in results(number.item())]
    list(results(number))  # the kernels for these kinds, and their dtypes, are known from here on
    monkeypatch.setattr(dispatch, "learned", None)
    monkeypatch.setattr(dispatch, "join_numbers", None)
    for found, other in zip(results(number), expected, strict=True):
        assert found.dtype == "float32"
        np.testing.assert_array_equal(found.numpy(), other)
