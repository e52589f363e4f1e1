"""Products and convolutions of bytes: exact sums, by every kernel, for constants, by BLAS."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.ops.linear_algebra.integer_products import integer_product
from eagerflow.ops.nn.convolution import of_conv, windows_for
from eagerflow.primitives import byte_convolution, integer_products, matrix_product, weight_product
from eagerflow.primitives.llvm import byte_convolution as convolutions_of_bytes
from eagerflow.primitives.llvm import weight_product as writers
from eagerflow.runtime import threads
from tests.internals import replace_method

BYTES = ("int8", "uint8")
SIZES = (1, 2, 3, 5, 16, 33, 100, 300)

needs_llvm = pytest.mark.skipif(not generated.enabled(), reason="there is no llvmlite")


def whole_range(rng, shape, dtype):
    """Integers of which the extremes come up often."""
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max + 1, shape)
    ends = rng.integers(0, 4, shape)
    return np.where(ends == 0, limits.min, np.where(ends == 1, limits.max, found)).astype(dtype)


def exactly(a, b):
    return (a.astype("int64") @ b.astype("int64")).astype("int32")


@st.composite
def factors(draw):
    m, k, n = (draw(st.sampled_from(SIZES)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    first, second = draw(st.sampled_from(BYTES)), draw(st.sampled_from(BYTES))
    a, b = whole_range(rng, (m, k), first), whole_range(rng, (k, n), second)
    if draw(st.booleans()):
        a = np.asfortranarray(a)
    if draw(st.booleans()):
        b = np.asfortranarray(b)
    return a, b


@given(factors())
def test_sums_are_exact(pair):
    a, b = pair
    np.testing.assert_array_equal(ef.integer_matmul(a, b).numpy(), exactly(a, b))
    out = np.empty((a.shape[0], b.shape[1]), "int32")
    integer_products.multiply_floats(a, b, out)
    np.testing.assert_array_equal(out, exactly(a, b))


@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8")])
def test_long_sums_of_extremes_are_exact_without_kernels(kinds):
    """As many terms as float32 would round."""
    limits = [np.iinfo(kind) for kind in kinds]
    for ends in ([n.max for n in limits], [n.min or n.max for n in limits]):
        a, b = (
            np.full(s, n, k) for s, n, k in zip([(2, 5001), (5001, 3)], ends, kinds, strict=True)
        )
        out = np.empty((2, 3), "int32")
        integer_products.multiply_floats(a, b, out)
        np.testing.assert_array_equal(out, exactly(a, b))


def test_terms_that_float32_does_not_hold_are_found(monkeypatch):
    monkeypatch.setattr(integer_products, "EXACT", 1 << 30)
    with pytest.raises(AssertionError):
        test_long_sums_of_extremes_are_exact_without_kernels(("uint8", "int8"))


@given(factors(), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_zero_points_are_taken_off(pair, seed, rows, columns):
    a, b = pair
    rng = np.random.default_rng(seed)
    zero1 = whole_range(rng, (a.shape[0], 1) if rows else (), a.dtype)
    zero2 = whole_range(rng, (b.shape[1],) if columns else (), b.dtype)
    wide = [x.astype("int64") for x in (a, b, zero1, zero2)]
    wanted = ((wide[0] - wide[2]) @ (wide[1] - wide[3])).astype("int32")
    found = integer_product(*map(ef.tensor, (a, b, zero1, zero2)))
    np.testing.assert_array_equal(found.numpy(), wanted)
    alone = integer_product(ef.tensor(a), ef.tensor(b), ef.tensor(zero1))
    np.testing.assert_array_equal(alone.numpy(), ((wide[0] - wide[2]) @ wide[1]).astype("int32"))


# Constants ----------------------------------------------------------------------------------------


@needs_llvm
@pytest.mark.parametrize("size", [(1, 64, 64), (40, 1100, 70), (300, 513, 200), (33, 30, 1)])
@pytest.mark.parametrize("kind", BYTES)
def test_constants_are_packed_once(size, kind, monkeypatch):
    m, k, n = size
    rng = np.random.default_rng(0)
    w = ef.tensor(whole_range(rng, (k, n), "int8"))
    packed = []
    pack = matrix_product.ProductCall.packed
    monkeypatch.setattr(
        matrix_product.ProductCall, "packed", lambda *given: packed.append(1) or pack(*given)
    )

    @ef.function
    def f(x):
        return ef.integer_matmul(x, w) * 2

    for turn in range(3):
        x = whole_range(np.random.default_rng(turn), (m, k), kind)
        np.testing.assert_array_equal(f(x).numpy(), exactly(x, w.numpy()) * 2)
    large = m * k * n * 2 >= 1 << 17
    assert len(packed) == large


@needs_llvm
def test_memory_of_others_is_read_each_time():
    rng = np.random.default_rng(0)
    array = whole_range(rng, (300, 200), "int8")
    w = ef.asarray(array)
    x = whole_range(rng, (100, 300), "int8")
    graph = ef.capture.trace(
        lambda x: ef.integer_matmul(x, w) + 1, ef.TensorSpec((100, 300), "int8")
    )
    with ef.capture.Session(graph) as session:
        for _ in range(2):
            found = session.run("output", feeds={"x": x}).numpy()
            np.testing.assert_array_equal(found, exactly(x, array) + 1)
            array[:] = whole_range(rng, array.shape, "int8")


# Convolutions -------------------------------------------------------------------------------------


@st.composite
def convolutions(draw):
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    rank = draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    sizes = tuple(draw(st.integers(5, 9)) for _ in range(rank))
    inner, filters = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    more = {
        "strides": draw(st.integers(1, 2)),
        "dilation": draw(st.integers(1, 2)),
        "padding": draw(st.sampled_from(["same", "valid", 2])),
        "groups": groups,
    }
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    images = draw(st.integers(1, 3))
    x = whole_range(rng, (images, *sizes, inner * groups), draw(st.sampled_from(BYTES)))
    w = whole_range(rng, (*kernel, inner, filters * groups), draw(st.sampled_from(BYTES)))
    return x, w, more


@given(convolutions())
def test_convolutions_are_exact(case):
    x, w, more = case
    # Products of bytes, and sums of so few of them, are whole numbers of float64.
    wanted = ef.conv(ef.tensor(x, "float64"), ef.tensor(w, "float64"), **more).numpy()
    found = ef.integer_conv(x, w, **more).numpy()
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted)


LARGE = [  # images, filters, strides, dilation
    ((3, 9, 11, 20), (3, 3, 20, 33), 1, 1),
    ((2, 12, 13, 130), (3, 3, 130, 40), 2, 1),  # sums in two parts, that end inside of runs
    ((6, 15, 9, 7), (5, 1, 7, 70), (2, 3), (3, 2)),
    ((1, 40, 40, 3), (7, 7, 3, 64), 2, 1),
    ((4, 10, 10, 64), (1, 1, 64, 17), 1, 1),
    ((5, 300, 6), (9, 6, 40), 2, 1),
]


@pytest.mark.sampled(3)
@needs_llvm
@pytest.mark.parametrize("case", LARGE, ids=str)
@pytest.mark.parametrize("kind", BYTES)
def test_windows_are_copied_run_by_run(case, kind):
    images, filters, strides, dilation = case
    rng = np.random.default_rng(0)
    x, w = whole_range(rng, images, kind), whole_range(rng, filters, "int8")
    more = {"strides": strides, "dilation": dilation, "padding": "valid"}
    wide = ef.tensor(x, "float64"), ef.tensor(w, "float64")
    wanted = ef.conv(*wide, **more).numpy()
    windows = windows_for(of_conv, x.shape, w.shape, groups=1, **more)
    assert byte_convolution.call_for(x, w, windows) is not None
    np.testing.assert_array_equal(ef.integer_conv(x, w, **more).numpy(), wanted)
    filled = ef.tensor(w)
    for held in (True, False):  # filters that are packed once, and in each run

        @ef.function
        def f(x, k, held=held):
            return ef.integer_conv(x, filled if held else k, **more) + 1

        np.testing.assert_array_equal(f(x, w).numpy(), wanted + 1)


@needs_llvm
@pytest.mark.parametrize("plant", ["_copy_run", "_offset"])
def test_windows_that_are_copied_wrongly_are_found(plant, monkeypatch, compiled_anew):
    writer = convolutions_of_bytes.ByteConvolutionWriter
    if plant == "_copy_run":  # no more than whole vectors of each run
        copy = writer._copy_run

        def short(self, source, aim, count):
            several = self.lanes * self.terms.group
            whole = self.v.number("mul", self.v.number("udiv", count, several), several)
            copy(self, source, aim, whole)

        monkeypatch.setattr(writer, plant, short)
    else:  # the next position where the next line is
        offset = writer._offset
        monkeypatch.setattr(
            writer, plant, lambda self, i: offset(self, self.v.number("and", i, -2))
        )
    monkeypatch.setattr(byte_convolution, "known_call", byte_convolution.known_call.__wrapped__)
    with pytest.raises(AssertionError):
        test_windows_are_copied_run_by_run(LARGE[0], "uint8")


# Weights of 8 and 4 bits --------------------------------------------------------------------------


def weights(rng, groups, height, columns, bits):
    """Random bytes of weights, their scales, and what they stand for, in float64."""
    integers = rng.integers(-8, 8, (groups, height, columns)) if bits == 4 else None
    if integers is None:
        integers = whole_range(rng, (groups, height, columns), "int8")
        stored = integers
    else:
        low, high = integers[:, ::2] % 16, integers[:, 1::2] % 16
        stored = (low + 16 * high).astype("uint8")
    scale = rng.uniform(0.01, 0.02, (groups, 1, columns)).astype("float32")
    exact = integers * scale.astype("float64")
    return stored, scale, exact.reshape(-1, columns)


WEIGHTS = [(1, 1, 64, 64), (1, 4, 32, 700), (5, 4, 32, 70), (33, 3, 50, 130), (300, 2, 512, 40)]


def check_weights(m, groups, height, columns, bits):
    rng = np.random.default_rng(m)
    w, scale, exact = weights(rng, groups, height, columns, bits)
    x = rng.standard_normal((m, groups * height)).astype("float32")
    out = np.full((m, columns), np.nan, "float32")
    weight_product.multiply(x, w, scale, out)
    bound = abs(x).astype("float64") @ abs(exact) * (x.shape[1] + 3) * np.finfo("float32").eps
    assert (abs(out - x.astype("float64") @ exact) <= bound).all()
    return out


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("size", WEIGHTS)
def test_weights_are_multiplied_as_they_are_kept(size, bits):
    check_weights(*size, bits)


@needs_llvm
@given(
    st.tuples(st.integers(1, 40), st.integers(1, 5), st.integers(1, 70), st.integers(1, 140)),
    st.sampled_from([8, 4]),
)
def test_any_sizes_of_groups(size, bits):
    m, groups, height, columns = size
    check_weights(m, groups, 2 * height, columns, bits)


@needs_llvm
@pytest.mark.parametrize("bits", [8, 4])
def test_bits_do_not_depend_on_threads(bits):
    found = []
    for count in (1, 2, 3):
        threads.set_thread_count(count)
        try:
            found.append(check_weights(300, 4, 256, 300, bits).tobytes())
        finally:
            threads.set_thread_count(None)
    assert found[0] == found[1] == found[2]


@needs_llvm
@pytest.mark.parametrize("plant", ["groups", "halves"])
def test_planted_bugs_are_found(plant, monkeypatch, compiled_anew):
    monkeypatch.setattr(weight_product, "known_call", weight_product.known_call.__wrapped__)
    if plant == "groups":  # scales of the first group for all of them
        replace_method(
            monkeypatch,
            writers.WeightProductWriter,
            "_scales",
            lambda scales: lambda self, group, column, masks: scales(self, "0", column, masks),
        )
    else:  # the rows of a byte, the other way round
        replace_method(
            monkeypatch,
            writers.HalfByteProductWriter,
            "_numbers",
            lambda numbers: lambda self, loaded: numbers(self, loaded)[::-1],
        )
    with pytest.raises(AssertionError):
        check_weights(7, 4, 64, 90, 4)


# Other processors ---------------------------------------------------------------------------------

_OTHERS = """
import tests.conftest  # for the settings of hypothesis
from tests.primitives import test_integer_products as own
for size in own.WEIGHTS:
    for bits in (8, 4):
        own.check_weights(*size, bits)
own.test_sums_are_exact()
for case in own.LARGE if own.generated.enabled() else ():
    for kind in own.BYTES:
        own.test_windows_are_copied_run_by_run(case, kind)
own.test_convolutions_are_exact()
own.test_zero_points_are_taken_off()
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    "variables",
    [
        {"EAGERFLOW_LLVM_FEATURES": "-avx512*"},
        {"EAGERFLOW_LLVM_FEATURES": "-avx512* -avxvnni*"},
        {"EAGERFLOW_LLVM_FEATURES": "-avx* -fma -f16c"},
        {"EAGERFLOW_LLVM": "0"},
    ],
    ids=["avx2", "avx2 without vnni", "sse", "without llvmlite"],
)
def test_other_processors(variables):
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _OTHERS],
        cwd=root,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
