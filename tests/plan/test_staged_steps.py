"""Convolutions, pooling, batch norms and attention as steps of segments."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen.kernel import has_segments
from eagerflow.plan.segments import PythonPart
from tests.internals import parts_of

pytestmark = pytest.mark.skipif(not has_segments(), reason="there is no compiler")

RNG = np.random.default_rng(0)


def array(*shape):
    """Normal numbers, smaller in larger arrays."""
    found = RNG.standard_normal(shape)
    return (found / max(np.sqrt(found.size / shape[-1]), 1)).astype("float32")


def names_in_python(function):
    return {p.step.op.name for p in parts_of(function) if isinstance(p, PythonPart)}


def compare(function, *arrays, rtol=2e-4, times=2):
    """Captured results, twice, are the eager ones; gives the captured function."""
    captured = ef.function(function)
    wanted = function(*map(ef.tensor, arrays))
    scale = [np.abs(w.numpy()[np.isfinite(w.numpy())]).max(initial=0) for w in wanted]
    for _ in range(times):
        found = captured(*map(ef.tensor, arrays))
        for a, b, s in zip(found, wanted, scale, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rtol, atol=rtol * s)
    return captured


def network(x, w1, w2, scale, offset):
    with ef.GradientTape() as tape:
        tape.watch([x, w1, w2, scale, offset])
        y = ef.conv(x, w1)
        y, mean, variance = ef.batch_norm(y, scale, offset, epsilon=1e-5)
        y = ef.max_pool(ef.relu(y), 2, 2)
        y = ef.relu(ef.conv(y, w2, padding="valid"))
        loss = ef.mean(y * y)
    return (loss, mean, variance, *tape.gradient(loss, [x, w1, w2, scale, offset]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("channels", "filters"), [(3, 16), (16, 32)])
def test_a_convolutional_network_is_one_call(channels, filters):
    arrays = array(16, 16, 16, channels), array(3, 3, channels, filters)
    arrays += array(3, 3, filters, filters), array(filters), array(filters)
    captured = compare(network, *arrays)
    assert names_in_python(captured) == set()


def test_strided_convolutions_stay_with_python():
    def f(x, w):
        with ef.GradientTape() as tape:
            tape.watch([x, w])
            loss = ef.sum(ef.tanh(ef.conv(ef.tanh(x), w, strides=2)))
        return tape.gradient(loss, [x, w])

    compare(f, array(8, 17, 18, 8), array(3, 3, 8, 16))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_nonfinite_inputs_affect_only_their_receptive_field(value):
    """Tiles with such results are computed again, in the middle of a segment."""

    def f(x, w):
        with ef.GradientTape() as tape:
            tape.watch(w)
            y = ef.conv(ef.relu(x) - ef.relu(-x), w) * 2.0
            loss = ef.sum(ef.where(ef.isfinite(y), y, ef.zeros_like(y)))
        return y, tape.gradient(loss, w)

    x, w = array(8, 24, 24, 16), array(3, 3, 16, 16)
    captured = ef.function(f)
    plain = captured(ef.tensor(x), ef.tensor(w))[0].numpy()
    x[3, 5, 7, 2] = value
    for _ in range(2):
        found = captured(ef.tensor(x), ef.tensor(w))[0].numpy()
        seen = np.zeros(plain.shape, bool)
        seen[3, 4:7, 6:9] = True
        assert not np.isfinite(found[seen]).any()
        np.testing.assert_allclose(found[~seen], plain[~seen], rtol=1e-4, atol=1e-4)
    x[3, 5, 7, 2] = 0
    again = captured(ef.tensor(x), ef.tensor(w))[0].numpy()
    assert np.isfinite(again).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mask", [None, "bool", "float32"])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
def test_attention(mask, heads):
    queries, shared = heads

    def f(x, wq, wkv, *mask):
        with ef.GradientTape() as tape:
            tape.watch([x, wq, wkv])
            q = ef.permute_dims((x @ wq).reshape(2, 48, queries, 16), (0, 2, 1, 3))
            kv = (x @ wkv).reshape(2, 48, 2, shared, 16)
            k, v = (ef.permute_dims(kv[:, :, i], (0, 2, 1, 3)) for i in range(2))
            y = ef.dot_product_attention(q, k, v, *mask, is_causal=not mask)
            y = ef.permute_dims(y, (0, 2, 1, 3)).reshape(2, 48, 16 * queries)
            loss = ef.mean(ef.tanh(y) ** 2)
        return (loss, y, *tape.gradient(loss, [x, wq, wkv]))

    arrays = [array(2, 48, 64), array(64, 16 * queries), array(64, 32 * shared)]
    if mask is not None:
        own = RNG.random((2, 1, 48, 48)) < 0.8
        arrays.append(own if mask == "bool" else np.where(own, 0, -2).astype("float32"))
    captured = compare(f, *arrays)
    assert names_in_python(captured) == set()


def test_one_value_as_several_arguments():
    def f(x):
        y = ef.tanh(x) * 0.5
        return (ef.relu(ef.dot_product_attention(y, y, y)),)

    compare(f, array(2, 4, 64, 16))


def test_other_strides_come_later():
    """Arrays that lie otherwise than those before are read as they lie, or copied first."""

    @ef.function
    def f(x, w):
        return ef.relu(ef.conv(x, w)) * 2.0

    x, w = array(8, 16, 16, 16), array(3, 3, 16, 16)
    turned = np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    wanted = f(ef.tensor(x), ef.tensor(w)).numpy()
    for given in (ef.permute_dims(ef.tensor(turned.transpose(0, 2, 1, 3)), (0, 2, 1, 3)), x, x):
        np.testing.assert_array_equal(f(ef.tensor(given), ef.tensor(w)).numpy(), wanted)


def test_two_arguments_that_are_one_array():
    """Which of two arguments a kernel is to read is not told by where they lie the first time."""

    @ef.function
    def f(q, k, v):
        return ef.dot_product_attention(q, k, v) * 1.0

    q, k, v = (ef.tensor(array(2, 4, 64, 16)) for _ in range(3))
    f(q, k, k)
    wanted = ef.dot_product_attention(q, k, v)
    np.testing.assert_allclose(f(q, k, v).numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
