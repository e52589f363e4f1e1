"""Quantization, back, and four bits: against arithmetic with Python's and NumPy's own integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow import errors

SMALL = ("int8", "uint8", "int16", "uint16")


def exactly(x, scale, zero, dtype):
    """``round(x / scale) + zero``, limited; float32 quotients, all else in int64."""
    limits = np.iinfo(dtype)
    with np.errstate(over="ignore"):
        quotient = np.float32(x) / np.float32(scale)
    whole = np.rint(np.clip(quotient.astype("float64"), -1e6, 1e6)).astype("int64")
    return np.clip(whole + zero.astype("int64"), limits.min, limits.max).astype(dtype)


@st.composite
def tensors(draw):
    """A tensor, scales and zero points that broadcast to it, and a dtype."""
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(1, 5)) for _ in range(rank))
    form = tuple(draw(st.sampled_from([1, n])) for n in shape)
    form = form[draw(st.integers(0, rank)) :] if rank else form
    dtype = draw(st.sampled_from(SMALL))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    limits = np.iinfo(dtype)
    scale = (2.0 ** rng.integers(-12, 3, form) * rng.integers(1, 8, form)).astype("float32")
    spread = draw(st.sampled_from([1.0, 300.0, 1e6]))
    x = np.broadcast_to(scale, shape) * rng.integers(-500, 500, shape) / 2 * spread / 100
    zero = rng.integers(limits.min, limits.max + 1, form).astype(dtype)
    return x.astype("float32"), scale, zero, dtype


@given(tensors())
def test_numbers_are_rounded_to_the_nearest_and_limited(case):
    x, scale, zero, dtype = case
    wanted = exactly(x, scale, zero, dtype)
    found = ef.quantize(x, scale, zero, dtype=dtype).numpy()
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == dtype
    # In a kernel, beside other steps.
    captured = ef.function(lambda x: ef.quantize(x + 0.0, scale, zero, dtype=dtype))
    np.testing.assert_array_equal(captured(x).numpy(), wanted)


@given(tensors())
def test_back_again_is_within_half_a_step(case):
    x, scale, zero, dtype = case
    y = ef.dequantize(ef.quantize(x, scale, zero, dtype=dtype), scale, zero).numpy()
    limits = np.iinfo(dtype)
    low, high = ((np.float64(n) - zero) * scale.astype("float64") for n in (limits.min, limits.max))
    wanted = np.clip(x.astype("float64"), low, high)
    assert (abs(y - wanted) <= scale * 0.5 + abs(wanted) * 1e-6).all()


def test_large_arrays_are_quantized_alike():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((257, 1030)).astype("float32")
    scale, zero = np.float32(0.013), np.uint8(99)
    f = ef.function(lambda x: ef.quantize(ef.relu(x), scale, ef.tensor(zero), dtype="uint8"))
    wanted = exactly(np.maximum(x, 0), scale, zero, "uint8")
    np.testing.assert_array_equal(f(x).numpy(), wanted)


def test_halves_go_to_the_even_number():
    x = np.arange(-5, 6, dtype="float32") / 2
    # -2.5 -2 -1.5 -1 -0.5 0 0.5 1 1.5 2 2.5
    assert ef.quantize(x, 1.0).numpy().tolist() == [-2, -2, -2, -1, 0, 0, 0, 1, 2, 2, 2]


def test_the_scale_has_a_gradient():
    q, zero = ef.tensor([[-3, 5], [7, 0]], "int8"), ef.tensor([1, -2], "int8")
    factors = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = ef.grad(lambda s: (ef.dequantize(q, s, zero) * factors).sum())(ef.tensor([0.5, 0.25]))
    assert found.numpy().tolist() == [-4 * 1 + 6 * 3, 7 * 2 + 2 * 4]


@pytest.mark.parametrize(
    "x", [[0.0], [0.0, 0.0], [1.0, 2.0, 3.0], [-1.0, -0.5], [-1e30, 1e30], [1e-40, 0.0]]
)
def test_dynamic_quantization_range_is_computed_at_run_time(x):
    y, scale, zero = ef.dynamic_quantize(np.array(x, "float32"))
    low, high = min([*x, 0.0]), max([*x, 0.0])
    assert y.dtype == zero.dtype == "uint8"
    assert scale.item() == pytest.approx((high - low) / 255 if high > low else 1 / 255, rel=1e-6)
    back = (y.numpy().astype(float) - zero.item()) * scale.item()
    assert abs(back - x).max() <= scale.item() * 1.01


@given(st.integers(0, 2**32), st.integers(0, 3), st.integers(1, 4))
def test_four_bits_come_back(seed, axis, size):
    rng = np.random.default_rng(seed)
    shape = [*rng.integers(1, 5, 4)]
    shape[axis] = 2 * size
    x = rng.integers(-8, 8, shape).astype("int8")
    packed = ef.pack_int4(x, axis=axis)
    assert packed.dtype == "uint8" and packed.size * 2 == x.size
    np.testing.assert_array_equal(ef.unpack_int4(packed, axis=axis).numpy(), x)


def test_odd_numbers_are_no_pairs():
    with pytest.raises(errors.ShapeError, match="3 numbers along axis 0 are no pairs"):
        ef.pack_int4(np.zeros(3, "int8"), axis=0)
