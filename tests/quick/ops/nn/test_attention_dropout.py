"""Dropout inside of attention: dropped weights, means, gradients, graphs, errors."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
Q = RNG.normal(size=(2, 4, 5, 3))
K = RNG.normal(size=(2, 2, 6, 3))  # shared by two heads each
ONES = np.eye(6)[None, None].repeat(2, 0).repeat(2, 1)  # values that show the weights


def attention(q, k, v, p=0.4, seed=3, **more):
    generator = ef.random.Generator(seed)
    return ef.dot_product_attention(q, k, v, dropout_p=p, generator=generator, **more)


def test_each_weight_is_0_or_grows():
    whole = ef.dot_product_attention(Q, K, ONES).numpy()
    kept = attention(Q, K, ONES).numpy()
    dropped = kept == 0
    assert 0.25 < dropped.mean() < 0.55
    np.testing.assert_allclose(kept[~dropped], (whole / 0.6)[~dropped], rtol=1e-9)


def test_masks_and_queries_that_see_nothing():
    mask = RNG.random((5, 6)) < 0.6
    mask[2] = False
    whole = ef.dot_product_attention(Q, K, ONES, mask, is_causal=True).numpy()
    kept = attention(Q, K, ONES, mask=mask, is_causal=True).numpy()
    np.testing.assert_allclose(kept[kept != 0], (whole / 0.6)[kept != 0], rtol=1e-9)
    assert not kept[:, :, 2].any() and np.isfinite(kept).all()


def test_gradients_see_the_same_mask():
    ef.testing.check_gradients(attention, (Q[:1], K[:1], RNG.normal(size=(1, 2, 6, 2))))


def test_captured_steps_draw_anew_and_repeat():
    generator = ef.random.Generator(1)

    @ef.function
    def step(q):
        return ef.dot_product_attention(q, K, ONES, dropout_p=0.5, generator=generator)

    first, second = step(Q).numpy(), step(Q).numpy()
    assert (first != second).any()
    again = ef.random.Generator(1)
    wanted = ef.dot_product_attention(Q, K, ONES, dropout_p=0.5, generator=again)
    np.testing.assert_allclose(first, wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    q, k, v = (ef.tensor(x).astype(dtype) for x in (Q, K, ONES))
    found = attention(q, k, v)
    assert found.dtype == q.dtype
    np.testing.assert_allclose(found.astype("float32"), attention(Q, K, ONES), atol=0.03)


def test_mistakes():
    with pytest.raises(ArgumentError, match="is not a rate"):
        attention(Q, K, ONES, p=1.0)
    with pytest.raises(ShapeError, match="dot_product_attention: k: widths differ"):
        attention(Q, K[..., :2], ONES)
