"""Kernels compute nothing with unwritten memory, not even in lanes that are dropped.

Run with new and scratch memory that holds denormal numbers: a processor notes when arithmetic
takes one in, and the inputs here have none. Garbage in dropped lanes changes no result, but it
makes kernels many times slower where it happens to be denormal.
"""

import contextlib
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import EagerflowError
from eagerflow.runtime import threads
from tests.contract.cases import (
    FLOAT32,
    about,
    as_tensors,
    dtypes_of,
    inexact,
    run,
    samples,
    shipped,
    spread,
)
from tests.contract.composed import ALL
from tests.contract.derivatives import function_of
from tests.guard_pages import memory

FLOATS = ("float16", "bfloat16", "float32", "float64")
PRODUCTS = ((3, 200, 5), (13, 200, 127), (70, 70, 70), (127, 13, 257), (301, 300, 299))
CONVOLUTIONS = (
    ((4, 13, 9, 23), (3, 2, 23, 65)),
    ((2, 13, 9, 16), (3, 3, 16, 33)),
    ((2, 17, 7), (5, 7, 9)),
    ((1, 5, 6, 7, 3), (2, 3, 2, 3, 17)),
)

TINY = ("betainc", "beta_density", "betainc_slope", "gammainc", "gamma_density")
OPS = [op for op in (*shipped(), *ALL) if dtypes_of(op, (FLOAT32,)) and op.name not in TINY]
"""All that take float32, but those that compute denormal numbers themselves."""


@pytest.fixture(autouse=True)
def one_thread(request):
    """Notes are kept separately for each thread."""
    if request.config.option.contents != "denormal":
        pytest.skip("memory holds other numbers")
    threads.set_thread_count(1)
    yield
    threads.set_thread_count(None)


def numbers(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [ef.astype(ef.tensor(rng.uniform(0.5, 1.5, s).astype("f4")), dtype) for s in shapes]


def check(function, *inputs):
    """Eager and captured, values and gradients."""
    check_values(function, *inputs)
    check_gradients(function, *inputs)


def check_values(function, *inputs):
    """Eager and captured."""
    for call in (function, ef.function(function)):
        call(*inputs)  # code is made, and constants are computed
        memory.took_denormals()
        call(*inputs)
        assert not memory.took_denormals()


def check_gradients(function, *inputs):
    """By all inputs, eager and captured."""

    def gradients(*inputs):
        inputs = [*map(ef.asarray, inputs)]
        with ef.GradientTape() as tape:
            for x in inputs:
                tape.watch(x)
            results = function(*inputs)
            results = results if isinstance(results, tuple) else (results,)
            total = sum(ef.sum(result * 0.5) for result in results)
        return tape.gradient(total, inputs, unconnected="zero")

    check_values(gradients, *inputs)


def test_denormal_numbers_are_noted():
    x = np.full(1000, 1e-40, "f4")
    memory.took_denormals()
    np.add(x, 1)
    assert memory.took_denormals() and not memory.took_denormals()
    np.add(np.empty(1000, "f4"), 1)
    assert memory.took_denormals(), "new memory holds other numbers"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_products(sizes, dtype):
    m, k, n = sizes
    check(ef.matmul, *numbers((m, k), (k, n), dtype=dtype))
    check(lambda a, b: ef.matmul(a, b.T), *numbers((m, k), (n, k), dtype=dtype))
    check(lambda a, b: ef.matmul(a.T, b), *numbers((k, m), (k, n), dtype=dtype))


def test_packed_rows_of_an_incomplete_block():
    check(ef.matmul, *numbers((13, 200), (200, 64), dtype="float16"))


@pytest.mark.parametrize("shapes", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("strides", [1, 2])
def test_convolutions(shapes, padding, strides):
    check(lambda x, w: ef.conv(x, w, padding=padding, strides=strides), *numbers(*shapes))


@pytest.mark.parametrize("shape", [(5,), (33, 7), (9, 13, 70), (130, 257)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_regions(shape, dtype):
    (x,) = numbers(shape, dtype=dtype)
    for axis in range(len(shape)):
        check(partial(softmax_and_mean, axis), x)


@pytest.mark.parametrize("shape", [(257,), (600, 7), (7, 600), (513, 33), (3, 300, 5)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_in_groups(shape, dtype):
    (x,) = numbers(shape, dtype=dtype)
    for axis in (*range(len(shape)), tuple(range(len(shape))), tuple(range(len(shape)))[-2:]):
        check(partial(sums, axis), x)


def sums(axis, x):
    y = ef.tanh(x)
    return ef.sum(y, axis=axis) + ef.logsumexp(x, axis=axis), ef.sum(x * y, axis=axis)


def softmax_and_mean(axis, x):
    return ef.mean(ef.softmax(ef.tanh(x), axis=axis) + ef.cumulative_sum(x, axis=axis), axis=axis)


@pytest.mark.parametrize("width", [1, 20, 33, 100])
def test_attention_of_other_widths(width):
    check(lambda q, k, v: ef.dot_product_attention(q, k, v), *numbers(*[(1, 2, 70, width)] * 3))


@pytest.mark.parametrize("width", [16, 64])
def test_attention(width):
    check(lambda q, k, v: ef.dot_product_attention(q, k, v), *numbers(*[(1, 2, 70, width)] * 3))


@pytest.mark.parametrize("layer", [ef.nn.LSTM, ef.nn.GRU, ef.nn.SimpleRNN])
@pytest.mark.parametrize("units", [1, 7, 33, 70])
def test_recurrences(layer, units):
    check(layer(units, seed=0), *numbers((5, 9, 11)))


@pytest.mark.parametrize("window", [2, 3])
def test_pooling_and_normalization(window):
    check(lambda x: ef.max_pool(x, window), *numbers((2, 9, 11, 17)))
    check(lambda x: ef.avg_pool(x, window), *numbers((2, 9, 11, 17)))
    check(lambda x, a, b: ef.layer_norm(x, a, b), *numbers((5, 33), (33,), (33,)))


@pytest.mark.parametrize("masked", ["", "causal", "keys", "queries"])
@pytest.mark.parametrize("sizes", [(1, 7), (3, 70), (33, 65), (70, 70), (40, 129)], ids=str)
def test_attention_of_incomplete_blocks(sizes, masked):
    queries, keys = sizes
    shapes = (1, 2, queries, 24), (1, 2, keys, 24), (1, 2, keys, 40)
    mask = None
    if masked == "keys":
        mask = np.arange(keys) % 3 > 0
    elif masked == "queries":
        mask = (np.arange(queries)[:, None] + np.arange(keys)) % 3 > 0

    def attend(q, k, v):
        return ef.dot_product_attention(q, k, v, mask=mask, is_causal=masked == "causal")

    check(attend, *numbers(*shapes))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_ops(op):
    """Some samples of each op and function, but none that holds or gives denormal numbers.

    Ops that cannot be captured, or have no gradient, are for other tests.
    """

    def call(*inputs):
        return op.call(*inputs, **sample.attributes)

    for sample in spread(samples(op, FLOAT32), 3):
        if any(map(has_denormals, (*sample.args, *run(op, sample)))):
            continue
        with about(op, sample), contextlib.suppress(EagerflowError):
            check_values(call, *as_tensors(sample))
            function, inputs = function_of(op, sample)
            check_gradients(function, *inputs)


def has_denormals(x):
    if not inexact(x):
        return False
    parts = np.abs([x.real, x.imag] if x.dtype.kind == "c" else x)
    return bool(((parts > 0) & (parts < ml_dtypes.finfo(parts.dtype).smallest_normal)).any())
