"""Random numbers: the right bits, the right distributions, and the same ones every time."""

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy import stats

import eagerflow as ef
from eagerflow.codegen.numpy import philox
from eagerflow.ops.creation import draws
from eagerflow.runtime import threads
from tests.cases.creation.philox import slow_words

COUNT = 200_000
LEVEL = 1e-4  # of a test's p-value; the seeds are fixed, so the suite does not flicker


def generator(seed=0):
    return ef.random.Generator(seed)


# Bits ------------------------------------------------------------------------------------------


def test_bits_are_those_of_the_paper():
    # The known answers that come with the authors' own implementation (Random123, kat_vectors).
    zeros = draws.random_bits(np.zeros(3, np.uint64), 4).tolist()
    assert zeros == [
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    ]


@pytest.mark.parametrize("state", [(0, 0, 0), (5, 2**63 + 7, 11), (2**64 - 1,) * 3])
@pytest.mark.parametrize("retry", [0, 1, 5])
def test_bits_are_those_of_a_slow_cipher(state, retry):
    words = np.array(state, np.uint64)
    assert philox.bits(words, 23, retry).tolist() == slow_words(words, 23, retry)


def test_a_longer_draw_begins_like_a_shorter_one():
    state = generator(3).state.value
    assert draws.random_bits(state, 5).tolist() == draws.random_bits(state, 50)[:5].tolist()


def test_draws_of_one_key_share_no_block():
    seen = [set(generator(1).states(100).numpy()[:, 0].tolist())]
    source = generator(1)
    for _ in range(20):
        seen.append(set(draws.random_bits(source.advance(), 100).tolist()))
    assert len(set.union(*seen[1:])) == 2000


# Distributions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("draw", "distribution"),
    [
        (lambda g, n, t: g.uniform(n, dtype=t), stats.uniform()),
        (lambda g, n, t: g.uniform(n, -3, 5, dtype=t), stats.uniform(-3, 8)),
        (lambda g, n, t: g.normal(n, dtype=t), stats.norm()),
        (lambda g, n, t: g.normal(n, 2.0, 0.5, dtype=t), stats.norm(2, 0.5)),
        (lambda g, n, t: g.truncated_normal(n, dtype=t), stats.truncnorm(-2, 2)),
        (lambda g, n, t: g.exponential(n, 3.0, dtype=t), stats.expon(scale=3)),
    ],
    ids=["uniform", "uniform-8", "normal", "normal-2", "truncated", "exponential"],
)
def test_distribution(draw, distribution, dtype):
    x = draw(generator(7), COUNT, dtype).numpy()
    assert x.dtype == dtype
    mean, variance, _, kurtosis = (float(m) for m in distribution.stats("mvsk"))
    deviation = np.sqrt(variance / COUNT)
    assert abs(x.mean(dtype=float) - mean) < 4 * deviation
    # The variance of the sample variance, from the fourth moment.
    spread = variance * np.sqrt((kurtosis + 2) / COUNT)
    assert abs(x.var(dtype=float) - variance) < 4 * spread
    assert stats.kstest(x[:50_000].astype(float), distribution.cdf).pvalue > LEVEL
    # Neighbours and elements at other distances are not correlated.
    for lag in (1, 2, 3, 4, 8):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 5 / np.sqrt(COUNT)


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-3, 4), (0, 10), (5, 6)])
def test_integers_are_equally_likely(low, high):
    x = generator(5).integers(low, high, (COUNT,)).numpy()
    counts = np.bincount(x - low, minlength=high - low)
    assert len(counts) == high - low
    if high - low > 1:
        assert stats.chisquare(counts).pvalue > LEVEL


def test_integers_of_a_range_that_needs_retries():
    size = 3 * 2**62  # a quarter of all words is drawn again
    x = generator(5).integers(0, size, (50_000,), dtype="uint64").numpy().astype(float)
    assert x.max() < size
    assert stats.kstest(x / size, stats.uniform().cdf).pvalue > LEVEL


def test_integers_over_all_of_a_dtype():
    for dtype, bits in (("uint64", 64), ("int64", 64), ("int8", 8)):
        low = 0 if dtype[0] == "u" else -(2 ** (bits - 1))
        x = generator(1).integers(low, low + 2**bits, (4000,), dtype=dtype).numpy()
        assert x.dtype == dtype
        assert abs(x.astype(float).mean() - (low + 2 ** (bits - 1))) < 2**bits / 50


def test_bernoulli_and_dropout_rates():
    x = generator(2).bernoulli(0.3, (COUNT,)).numpy()
    assert x.dtype == bool
    assert abs(x.mean() - 0.3) < 4 * np.sqrt(0.21 / COUNT)
    p = ef.tensor([0.0, 1.0])
    assert generator(2).bernoulli(p).tolist() == [False, True]
    kept = ef.dropout(ef.ones((COUNT,)), 0.3, generator=generator(2)).numpy()
    assert set(np.unique(kept)) == {0, np.float32(1 / 0.7)}
    assert abs(kept.mean() - 1) < 0.01


def test_categorical_follows_its_logits():
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    x = generator(4).categorical(ef.tensor(np.log(p)), 20_000).numpy()
    assert x.shape == (2, 20_000)
    for row, expected in zip(x, p, strict=True):
        counts = np.bincount(row, minlength=3)
        assert stats.chisquare(counts, expected * 20_000).pvalue > LEVEL
    assert generator(4).categorical(ef.zeros((5, 3))).shape == (5,)


def test_permutations_are_equally_likely():
    g = generator(6)
    rows = np.array([g.permutation(4).numpy() for _ in range(2400)])
    _, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > LEVEL


def test_permutation_of_a_tensor():
    x = ef.arange(12).reshape((3, 4))
    y = generator(0).permutation(x, axis=1).numpy()
    assert sorted(y[0].tolist()) == [0, 1, 2, 3]
    assert (y == y[0] + np.array([[0], [4], [8]])).all()


def test_choice():
    g = generator(8)
    assert sorted(g.choice(5, 5, replace=False).tolist()) == [0, 1, 2, 3, 4]
    items = ef.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert g.choice(items, (4, 2)).shape == (4, 2, 2)
    x = g.choice(3, 30_000, p=[0.2, 0.5, 0.3]).numpy()
    assert stats.chisquare(np.bincount(x), np.array([0.2, 0.5, 0.3]) * 30_000).pvalue > LEVEL
    first = [int(g.choice(3, 1, replace=False, p=[0.1, 0.0, 0.9])[0]) for _ in range(300)]
    assert 1 not in first
    assert 10 <= first.count(0) <= 60


def test_small_floats_stay_below_one():
    for dtype in ("float16", "bfloat16"):
        x = generator(0).uniform((20_000,), dtype=dtype)
        assert x.dtype.name == dtype
        assert x.numpy().astype(float).max() < 1


# The state ------------------------------------------------------------------------------------


def test_same_seed_gives_same_bits_for_any_thread_count():
    def run():
        g = generator(123)
        parts = [g.normal((1000,)), g.uniform((77,), dtype="float64"), g.permutation(50)]
        parts += [g.truncated_normal((33,)), g.integers(0, 6, (100,)), g.bernoulli(0.5, (9,))]
        return b"".join(p.numpy().tobytes() for p in parts)

    first = run()
    before = threads.thread_count()
    try:
        for count in (1, 2):
            threads.set_thread_count(count)
            assert all(run() == first for _ in range(10))
    finally:
        threads.set_thread_count(before)
    found = []
    workers = [threading.Thread(target=lambda: found.append(run())) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [first] * 4


def test_same_seed_same_bits_in_another_process():
    code = (
        "import eagerflow as ef; g = ef.random.Generator(99);"
        "print(g.normal((64,)).numpy().tobytes().hex())"
    )
    g = generator(99)
    expected = g.normal((64,)).numpy().tobytes().hex()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_threads_never_share_a_draw():
    g = generator(5)
    found = []

    def work():
        found.extend(int(draws.random_bits(g.advance(), 1)[0]) for _ in range(200))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(found)) == 800
    assert g.state.value.tolist()[2] == 800


def test_global_seed():
    ef.random.seed(1)
    first = ef.random.normal((4,)).tolist()
    assert ef.random.normal((4,)).tolist() != first
    ef.random.seed(1)
    assert ef.random.normal((4,)).tolist() == first == generator(1).normal((4,)).tolist()
    ef.random.seed()
    assert ef.random.normal((4,)).tolist() != first


def test_split_generators_are_independent():
    parent = generator(0)
    children = parent.split(4)
    rows = np.array([c.normal((5000,)).numpy() for c in (parent, *children)])
    off = np.corrcoef(rows)[~np.eye(5, dtype=bool)]
    assert np.abs(off).max() < 0.06
    again = generator(0).split(4)
    assert again[2].normal((3,)).tolist() == rows[3][:3].tolist()


def test_a_generator_can_be_copied_and_pickled():
    g = generator(3)
    g.normal((5,))
    for other in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert repr(other) == repr(g)
        assert other.normal((3,)).tolist() == copy.deepcopy(g).normal((3,)).tolist()


def test_vmap_over_states_is_a_loop_over_generators():
    states = generator(0).states(5)
    whole = ef.vmap(lambda s: ef.random.Generator(s).normal((3,)))(states).numpy()
    for row, state in zip(whole, states, strict=True):
        assert ef.random.Generator(state).normal((3,)).tolist() == row.tolist()


def test_a_shared_generator_gives_each_example_numbers_of_its_own():
    g = generator(0)
    y = ef.vmap(lambda x: x + g.uniform(()))(ef.zeros((50,))).numpy()
    assert len(set(y.tolist())) == 50
    y = ef.vmap(ef.vmap(lambda x: x + g.uniform(())))(ef.zeros((5, 6))).numpy()
    assert len(set(y.ravel().tolist())) == 30
    masks = ef.vmap(lambda x: ef.dropout(x, 0.5, generator=g))(ef.ones((20, 30))).numpy()
    assert len({row.tobytes() for row in masks}) == 20
    assert g.state.value.tolist()[2] == 3


def test_gradients_pass_to_the_parameters_and_through_dropout():
    g = generator(1)
    z = copy.deepcopy(g).normal((4,))
    grads = ef.grad(lambda m, s: g.normal((4,), m, s).sum(), argnums=(0, 1))(1.0, 2.0)
    assert [float(x) for x in grads] == pytest.approx([4.0, float(z.sum())], rel=1e-6)
    mask = ef.dropout(ef.ones((8,)), 0.5, generator=generator(2))
    found = ef.grad(lambda x: ef.dropout(x, 0.5, generator=generator(2)).sum())(ef.ones((8,)))
    assert found.tolist() == mask.tolist()


def test_checkpoint_draws_the_same_again():
    g = generator(4)
    f = ef.checkpoint(lambda x: (ef.dropout(x, 0.5, generator=g) * x).sum())
    x = ef.ones((32,))
    mask = ef.dropout(x, 0.5, generator=generator(4)).numpy()
    assert ef.grad(f)(x).tolist() == (2 * mask).tolist()
    assert g.state.value.tolist()[2] == 1


def test_dropout_leaves_inference_alone_and_shares_noise():
    x = ef.ones((4, 6))
    assert ef.dropout(x, 0.5, training=False) is x
    assert ef.dropout(x, 0) is x
    y = ef.dropout(x, 0.5, noise_shape=(4, 1), generator=generator(0)).numpy()
    assert (y == y[:, :1]).all()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: generator(-1), ef.errors.ArgumentError, "out of range"),
        (lambda: generator(2**128), ef.errors.ArgumentError, "out of range"),
        (lambda: generator("seed"), ef.errors.DTypeError, "not a seed"),
        (lambda: generator(ef.zeros((3,))), ef.errors.ShapeError, "not a state"),
        (lambda: generator().normal((-1,)), ef.errors.ShapeError, "negative"),
        (lambda: generator().normal(2, dtype="int32"), ef.errors.DTypeError, "distribution"),
        (lambda: generator().normal(2, mean=ef.zeros((3,))), ef.errors.ShapeError, "broadcast"),
        (lambda: generator().normal((), mean=ef.zeros((3,))), ef.errors.ShapeError, "broadcast"),
        (lambda: generator().integers(3, 3), ef.errors.ShapeError, "from 3 up to"),
        (lambda: generator().integers(0.5, 3), ef.errors.DTypeError, "not an integer"),
        (lambda: generator().choice(3, 4, replace=False), ef.errors.ShapeError, "4 of 3"),
        (lambda: generator().choice(3, p=[0.5, 0.5]), ef.errors.ShapeError, "one probability"),
        (lambda: generator().categorical(ef.zeros((2, 0))), ef.errors.ShapeError, "no classes"),
        (lambda: ef.dropout(ef.ones((2,)), 1.0), ef.errors.ArgumentError, "not a rate"),
        (lambda: ef.dropout(ef.tensor([1]), 0.5), ef.errors.DTypeError, "is not taken"),
        (lambda: ef.dropout(ef.ones((2,)), 0.5, noise_shape=(3,)), ef.errors.ShapeError, "fit"),
    ],
)
def test_errors_state_the_expected_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()
