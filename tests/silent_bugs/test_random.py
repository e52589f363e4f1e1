"""Random numbers: the same in each call, of a wrong distribution, or consumed by nothing."""

import random

import numpy as np

import eagerflow as ef
from eagerflow.errors import EagerflowError
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import WAYS


def pytorch_118735():
    """Compiled, two generators of one seed drew other numbers."""

    def draw():
        own = ef.random.Generator(42).uniform((5,))
        ef.random.seed(42)
        return own, ef.random.uniform((5,))

    own, default = (x.numpy() for x in draw())
    for _ in range(2):
        np.testing.assert_array_equal(draw()[0].numpy(), own)
        np.testing.assert_array_equal(draw()[1].numpy(), default)
    run = ef.function(lambda: ef.random.uniform((5,)))
    for _ in range(2):
        ef.random.seed(42)
        np.testing.assert_array_equal(run().numpy(), default)
    generator = ef.random.Generator(42)
    drawn = ef.function(lambda: generator.uniform((5,)))
    np.testing.assert_array_equal(drawn().numpy(), own)
    assert not np.array_equal(drawn().numpy(), own)


def pytorch_197101():
    """Compiled, a seed set inside the function was not heeded in the first call."""

    def draw(x):
        random.seed(3)
        return x + random.random()

    state = random.getstate()
    try:
        expected = draw(ef.tensor(1.0)).item()
        run = ef.function(draw)
        try:
            found = [run(ef.tensor(1.0)).item() for _ in range(3)]
        except EagerflowError:
            return
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    finally:
        random.setstate(state)


def xla_8636():
    """Compiled, dropout had the same mask in every call."""
    layer = ef.nn.Dropout(0.5)
    x = ef.ones(400)
    for apply in WAYS.values():
        run = apply(lambda x: layer(x, training=True))
        masks = {tuple(run(x).numpy() > 0) for _ in range(4)}
        assert len(masks) == 4
    for mask in masks:
        assert 120 < sum(mask) < 280


def jax_27702():
    """Small integers of a range that does not divide 256 were drawn unevenly."""
    for dtype, low, high in (("uint8", 0, 100), ("int8", -50, 50), ("int64", 0, 100)):
        drawn = ef.random.Generator(5).integers(low, high, (200_000,), dtype=dtype).numpy()
        counts = np.bincount(drawn.astype("i8") - low, minlength=100)
        assert len(counts) == 100
        assert abs(counts - 2000).max() < 6 * np.sqrt(2000), dtype
        assert abs(counts[:56].mean() - counts[56:].mean()) < 30, dtype


def jax_25498():
    """What has probability zero was drawn, by rounding in long sums."""
    n = 3_000
    p = np.zeros(n, "f4")
    p[: n * 5 // 7] = 1.0
    p /= p.sum(dtype="f8")
    drawn = ef.random.Generator(0).choice(ef.arange(n), (n,), p=ef.tensor(p)).numpy()
    assert p[drawn].min() > 0
    logits = np.where(np.arange(50) % 7 == 3, 0.0, -np.inf).astype("f4")
    drawn = ef.random.Generator(0).categorical(ef.tensor(logits), 5000).numpy()
    assert set(np.unique(drawn)) == set(range(3, 50, 7))


def jax_5061():
    """Compiled, classes were drawn that there are not."""
    generator = ef.random.Generator(1)
    run = ef.function(lambda x: generator.categorical(x))
    drawn = np.array([run(ef.ones((1, 2))).item() for _ in range(200)])
    assert set(drawn) == {0, 1}
    assert 60 < drawn.sum() < 140


def pytorch_158643():
    """With one seed, compiled dropout drew another mask than the eager one."""
    x = ef.ones((16, 72))
    found = []
    for apply in WAYS.values():
        run = apply(lambda x: ef.cumulative_sum(ef.dropout(x, 0.5), axis=1))
        ef.random.seed(7)
        found.append([run(x).numpy() for _ in range(2)])
    for first, second in found:
        np.testing.assert_array_equal(first, found[0][0])
        np.testing.assert_array_equal(second, found[0][1])
    assert not np.array_equal(*found[0])


def pytorch_136656():
    """Dropout of nothing used up random numbers in one way of running and not in the other."""
    found = []
    for apply in WAYS.values():
        run = apply(lambda x: ef.dropout(x, 0.0))
        ef.random.seed(11)
        np.testing.assert_array_equal(run(ef.ones(9)).numpy(), np.ones(9))
        run(ef.ones(9))
        found.append(ef.random.uniform((4,)).numpy())
    for drawn in found[1:]:
        np.testing.assert_array_equal(drawn, found[0])


def noise(item):
    return item, np.random.randint(0, 2**31 - 1), random.random()


def pytorch_5059():
    """Workers of a loader that draw with NumPy all drew the same numbers."""
    np.random.seed(0)
    for workers in (0, 2):
        loader = ef.nn.Loader(np.arange(40), 5, map=noise, workers=workers)
        for _ in range(1):
            numbers = np.concatenate([np.asarray(batch[1]) for batch in loader])
            floats = np.concatenate([np.asarray(batch[2]) for batch in loader])
            assert len(set(numbers.tolist())) == 40, workers
            assert len(set(floats.tolist())) == 40, workers


def pytorch_3880():
    """Each epoch of a loader with workers had the augmentations of the one before."""
    loader = ef.nn.Loader(np.arange(24), 6, map=noise, workers=2)
    epochs = [np.concatenate([np.asarray(b[1]) for b in loader]) for _ in range(2)]
    assert not set(epochs[0].tolist()) & set(epochs[1].tolist())


def pytorch_7882():
    """With a seed, a shuffled loader was the same in all but what Python's own module drew."""
    orders = []
    for _ in range(2):
        loader = ef.nn.Loader(np.arange(30), 7, shuffle=True, seed=2018)
        orders.append([np.concatenate([np.asarray(b) for b in loader]) for _ in range(2)])
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not np.array_equal(*orders[0])
    for order in orders[0]:
        np.testing.assert_array_equal(np.sort(order), np.arange(30))


@cases("random", globals())
def test_case(case):
    case()
