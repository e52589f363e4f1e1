"""The promotion table over all pairs and triples of dtypes, and how scalars join in."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.dtypes import (
    BOOL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    STANDARD,
    as_dtype,
    join_scalar,
    promote,
)
from eagerflow.errors import DTypeError
from eagerflow.op import ops
from tests.contract.cases import as_tensors, main_dtype, samples

ALL = sorted(STANDARD, key=str)
KINDS = [(bool, BOOL), (int, INTEGERS), (float, FLOATS), (complex, COMPLEX)]


def rank(dtype):
    """bool, integer, float, complex: 0 to 3."""
    return next(i for i, (_, family) in enumerate(KINDS) if dtype in family)


def test_there_are_fifteen_computing_dtypes():
    assert len(ALL) == 15
    assert len(ef.dtypes.FLOAT8) == 2
    assert all(getattr(ef, dtype.name) == dtype for dtype in STANDARD | ef.dtypes.FLOAT8)


def test_promotion_is_commutative_idempotent_and_never_narrows():
    for a, b in itertools.product(ALL, ALL):
        c = promote(a, b)
        assert c in STANDARD
        assert c == promote(b, a)
        assert promote(a, a) == a
        assert rank(c) == max(rank(a), rank(b))
        assert promote(a, c) == promote(c, b) == c, (a, b)


def test_promotion_is_associative():
    triples = itertools.product(ALL, ALL, ALL)
    wrong = [
        t for t in triples if promote(promote(t[0], t[1]), t[2]) != promote(t[0], promote(*t[1:]))
    ]
    print(f"{len(ALL) ** 3} triples, {len(wrong)} wrong")
    assert wrong == []


def test_promotion_agrees_with_numpy_where_it_can():
    """Within one kind as NumPy; integers do not widen floats, as in the other ML libraries."""
    for a, b in itertools.product(ALL, ALL):
        if "bfloat16" in (a.name, b.name):
            continue
        numpy_says = np.promote_types(a, b)
        if rank(a) == rank(b) and "uint64" not in (a.name, b.name):
            assert promote(a, b) == numpy_says, (a, b)
        if a in INTEGERS and b in FLOATS | COMPLEX:
            assert promote(a, b) == b


@pytest.mark.parametrize(("a", "b", "c"), [
    ("float16", "bfloat16", "float32"),
    ("int8", "uint8", "int16"),
    ("int64", "uint64", "int64"),
    ("int64", "float16", "float16"),
    ("float64", "complex64", "complex128"),
    ("bfloat16", "complex64", "complex64"),
    ("bool", "uint8", "uint8"),
])  # fmt: skip
def test_pairs_that_people_ask_about(a, b, c):
    assert promote(as_dtype(a), as_dtype(b)).name == c
    x, y = ef.ones((2,), dtype=a), ef.ones((2,), dtype=b)
    assert (x + y).dtype.name == (y + x).dtype.name == c


def test_ops_promote_as_the_table_says():
    for a, b in itertools.product(ALL, ALL):
        x, y = ef.ones((2,), dtype=a), ef.ones((), dtype=b)
        assert (x + y).dtype == promote(a, b), (a, b)


@pytest.mark.parametrize("narrow", sorted(ef.dtypes.FLOAT8, key=str), ids=str)
def test_float8_is_for_storage(narrow):
    assert promote(narrow, narrow) == narrow
    for other in ALL:
        with pytest.raises(DTypeError, match="no common dtype"):
            promote(narrow, other)
    with pytest.raises(DTypeError) as caught:
        ef.ones((2,), dtype=narrow) + 1
    assert "astype" in caught.value.hint
    assert ef.ones((2,), dtype=narrow).astype("float32").tolist() == [1, 1]


def test_scalars_never_widen():
    for dtype in ALL:
        for kind, (cls, _) in enumerate(KINDS):
            joined = join_scalar(dtype, cls)
            if kind <= rank(dtype):
                assert joined == dtype
            else:
                assert rank(joined) == kind
                default = ef.dtypes.default_dtype(cls)
                assert joined == (default if rank(dtype) < 2 else promote(dtype, as_dtype(cls)))


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("scalar", [True, 3, 0.5, 1j])
def test_ops_join_scalars_as_the_table_says(dtype, scalar):
    x = ef.ones((2,), dtype=dtype)
    wanted = join_scalar(dtype, type(scalar))
    for y in (x + scalar, scalar + x, x * scalar, scalar * x):
        assert y.dtype == wanted
    np.testing.assert_allclose((x * scalar).numpy().astype(complex), np.full(2, scalar), rtol=1e-2)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_arrays_without_axes_join_with_their_dtype(dtype):
    x = ef.ones((2,), dtype="float32")
    assert (x + np.array(1, dtype)).dtype == promote(as_dtype("float32"), dtype)


@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=6), st.randoms())
def test_the_order_of_operands_does_not_matter(dtypes, random):
    def total(order):
        result = ef.zeros((), dtype=order[0])
        for dtype in order[1:]:
            result = result + ef.zeros((), dtype=dtype)
        return result.dtype

    shuffled = random.sample(dtypes, len(dtypes))
    assert total(dtypes) == total(shuffled)


def test_names_and_types():
    assert as_dtype("float32") == as_dtype(np.float32) == as_dtype(np.dtype("f4")) == ef.float32
    assert as_dtype(float) == ef.float32
    assert as_dtype(int) == ef.int64
    assert as_dtype(complex) == ef.complex64
    assert as_dtype(bool) == ef.bool
    assert as_dtype(ml_dtypes.bfloat16) == as_dtype("bfloat16") == ef.bfloat16
    assert as_dtype(np.dtype(">f4")) == ef.float32


@pytest.mark.parametrize(
    "junk",
    ["float", "object", "", object, str, None, [], {}, 3, "f", np.dtype("M8[s]"), b"float32"],
)
def test_invalid_dtypes_are_refused(junk):
    with pytest.raises(DTypeError, match="is not a dtype") as caught:
        as_dtype(junk)
    assert "bfloat16" in caught.value.expected


def test_predicates():
    for dtype in ALL:
        assert ef.dtypes.is_floating(dtype) == (rank(dtype) == 2)
        assert ef.dtypes.is_complex(dtype) == (rank(dtype) == 3)
        assert ef.dtypes.is_inexact(dtype) == (rank(dtype) >= 2)
    assert ef.dtypes.real_dtype(ef.complex128) == ef.float64
    assert ef.dtypes.real_dtype(ef.complex64) == ef.float32
    assert ef.dtypes.real_dtype(ef.int8) == ef.int8


@pytest.mark.parametrize("name", [name for name, op in ops.items() if "dtype" in op.attributes])
def test_dtype_is_that_of_the_result_or_is_refused(name):
    op, given = ops[name], 0
    for wanted in sorted(ef.dtypes.STANDARD, key=str):
        for sample in samples(op, main_dtype(op)):
            attributes = sample.attributes | {"dtype": wanted}
            try:
                found = op.call(*as_tensors(sample), **attributes)
            except ef.errors.EagerflowError as error:
                assert error.argument, "it does not say which argument is wrong"
                continue
            assert found.dtype == wanted
            given += 1
    assert given


def test_bools_are_added_as_numpy_does():
    x = np.array([[0.0, 2.0, -2.0], [0.0, 0.0, 0.0]])
    for ours, numpys in (
        (ef.sum, np.sum),
        (ef.prod, np.prod),
        (ef.cumulative_sum, np.cumsum),
        (ef.cumulative_prod, np.cumprod),
    ):
        for axis in (0, 1):

            def f(x):
                return ours(x * 1, axis=axis, dtype="bool")  # noqa: B023

            expected = numpys(x, axis=axis, dtype=bool)
            for found in (f(ef.tensor(x)), ef.function(f)(ef.tensor(x))):
                assert found.dtype == ef.bool
                np.testing.assert_array_equal(found, expected)
