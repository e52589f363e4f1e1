"""What captured ops give is theirs: no later call writes it, no array of the caller's is in it."""

import numpy as np
import pytest

import eagerflow as ef
from tests.contract.cases import (
    SOAK,
    arrays_of,
    dtypes_of,
    main_dtype,
    samples,
    shipped,
)

KILOBYTES_400 = 100_000
OPS = [op for op in shipped() if op.data and op.family != "control" and not op.on_tensors]


def kept_bytes(tensor):
    array = tensor._array
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.nbytes


def own_memory(op, dtype, many):
    """Captured calls of samples, with arrays that a plan computes, and with those of NumPy."""
    for first, second in list(zip(samples(op, dtype), samples(op, dtype, 1), strict=False))[:many]:
        if len(arrays_of(first)) != len(first.args):
            continue
        captured = ef.function(
            lambda *x, more=first.attributes: op.call(*[y.at[...].set(y) for y in x], **more)
        )
        plain = ef.function(lambda *x, more=first.attributes: op.call(*x, **more))
        for f in (captured, plain):
            try:
                found = f(*first.args)
            except Exception:  # what values are refused for is no matter here
                continue
            found = found if isinstance(found, tuple) else (found,)
            before = [y.numpy().copy() for y in found]
            try:
                f(*second.args)
            except ef.errors.EagerflowError:
                pass
            for y, was in zip(found, before, strict=True):
                assert y.numpy().tobytes() == was.tobytes(), f"{op.name}: a later call wrote it"
                for x in first.args:
                    assert not np.may_share_memory(y._array, x), f"{op.name}: an argument's memory"


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.soak
def test_results_of_all_ops_are_their_own(op):
    for dtype in dtypes_of(op) or [main_dtype(op)]:
        own_memory(op, dtype, 100)


VIEWS = [op for op in OPS if op.aliases and op.family in ("shape", "indexing", "creation")]


@pytest.mark.parametrize("op", VIEWS, ids=lambda op: op.name)
def test_results_of_ops_that_alias_are_their_own(op):
    own_memory(op, main_dtype(op), 2)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "complex64", "float16", "float32"])
def test_bits_of_another_dtype_are_not_those_of_a_buffer(dtype):
    captured = ef.function(lambda x: ef.view(x * 2.0, dtype))
    first = captured(ef.ones(1000))
    before = first.numpy().copy()
    captured(ef.ones(1000) * 3.0)
    assert first.numpy().tobytes() == before.tobytes()
    array = np.ones(1000, np.float32)
    bits = ef.function(lambda x: ef.view(x, dtype))(array)
    before = bits.numpy().copy()
    array[:] = 7
    assert bits.numpy().tobytes() == before.tobytes()


SMALL = {
    "the last row": lambda x: (x * 2.0)[-1],
    "the first of several": lambda x: ef.split(x * 2.0, 100)[0],
    "a row of an argument": lambda x: x[3],
    "unstack": lambda x: ef.unstack((x * 2.0).reshape((100, -1)))[0],
    "a reshaped row": lambda x: (x * 2.0)[:4].reshape((2, 2)).T,
    "the last state of a scan": lambda x: ef.scan(lambda c, e: (c + e, c), x[0], x)[0],
    "both results of a scan": lambda x: ef.scan(lambda c, e: (c + e, c), x[:2], x)[0],
    "a branch": lambda x: ef.cond(x[0] > 0, lambda: (x * 2.0)[1], lambda: (x * 3.0)[2]),
    "a loop": lambda x: ef.fori_loop(0, 3, lambda i, s: s * 2.0, x)[5],
}


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("name", SMALL)
def test_small_results_keep_no_large_array(name, numerics):
    x = ef.ones(KILOBYTES_400 if "scan" not in name or SOAK else 3_000)
    found = ef.function(SMALL[name], numerics=numerics)(x)
    assert kept_bytes(found) <= 4 * found.nbytes + 4096
    np.testing.assert_allclose(found.numpy(), SMALL[name](x).numpy(), rtol=1e-5)


def test_values_of_variables_keep_no_large_array():
    v = ef.Variable(ef.zeros(3))

    @ef.function
    def step(x):
        v.assign((x * 2.0)[:3])
        return v.value.sum()

    assert float(step(ef.ones(KILOBYTES_400))) == 6.0
    assert kept_bytes(v.value) <= 12 + 4096
