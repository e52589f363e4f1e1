"""CTC against trying every way; lengths, labels that do not fit, all ways to call it, mistakes."""

import itertools

import numpy as np
import pytest

import eagerflow as ef

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=(3, 5, 3))
LABELS = np.array([[1, 2], [2, 2], [2, 1]])
TIMES, COUNTS = np.array([5, 4, 3]), np.array([2, 2, 1])


def brute(logits, labels, blank=0):
    """-log of the probability of all ways to write a class at each time that give the labels."""
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    total = 0.0
    for way in itertools.product(range(logits.shape[-1]), repeat=len(logits)):
        if [c for c, _ in itertools.groupby(way) if c != blank] == list(labels):
            total += np.prod(p[range(len(way)), way])
    return -np.log(total) if total else np.inf


RIGHT = [brute(x[:t], y[:n]) for x, y, t, n in zip(LOGITS, LABELS, TIMES, COUNTS, strict=True)]


def loss(logits):
    return ef.ctc_loss(logits, LABELS, TIMES, COUNTS)


def test_it_counts_all_ways():
    np.testing.assert_allclose(loss(LOGITS), RIGHT, rtol=1e-10)
    whole = [brute(x, y) for x, y in zip(LOGITS, LABELS, strict=True)]
    np.testing.assert_allclose(ef.ctc_loss(LOGITS, LABELS), whole, rtol=1e-10)
    other = brute(LOGITS[0], [0, 1], blank=2)
    np.testing.assert_allclose(ef.ctc_loss(LOGITS[0], [0, 1], blank=2), other, rtol=1e-10)
    nothing = ef.ctc_loss(LOGITS[0], LABELS[0], label_lengths=0)
    np.testing.assert_allclose(nothing, brute(LOGITS[0], []), rtol=1e-10)


def test_gradients():
    ef.testing.check_gradients(lambda x: loss(x).sum(), (ef.tensor(LOGITS),))
    # What lies behind the end of a sequence does not count.
    g = ef.grad(lambda x: loss(x).sum())(ef.tensor(LOGITS)).numpy()
    assert not g[1, 4:].any() and not g[2, 3:].any() and g[0].all()


def test_labels_that_do_not_fit_cost_infinity_and_teach_nothing():
    x = ef.tensor(LOGITS[0, :2])
    assert float(ef.ctc_loss(x, [2, 2])) == np.inf == brute(LOGITS[0, :2], [2, 2])
    assert not ef.grad(lambda x: ef.ctc_loss(x, [2, 2]))(x).numpy().any()


def test_long_sequences_do_not_underflow():
    x = RNG.normal(size=(400, 5)) * 5
    found = ef.ctc_loss(x.astype("float32"), [1, 2, 3, 4] * 20)
    np.testing.assert_allclose(found, ef.ctc_loss(x, [1, 2, 3, 4] * 20), rtol=1e-4)
    assert np.isfinite(float(found))


def test_captured_and_batched():
    x = ef.tensor(LOGITS)
    np.testing.assert_allclose(ef.function(loss)(x), RIGHT, rtol=1e-10)
    spec = [ef.TensorSpec((3, "t", 3), "float64")]
    free = ef.function(lambda x: ef.ctc_loss(x, LABELS), input_signature=spec)
    np.testing.assert_allclose(free(x), ef.ctc_loss(x, LABELS), rtol=1e-10)
    each = ef.vmap(lambda x, y, t, n: ef.ctc_loss(x, y, t, n))
    np.testing.assert_allclose(each(x, LABELS, TIMES, COUNTS), RIGHT, rtol=1e-10)
    assert ef.ctc_loss(x.astype("bfloat16"), LABELS).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ef.ctc_loss(LOGITS, LABELS[:2]), ef.errors.ShapeError, "labels do not fit"),
        (lambda: ef.ctc_loss(LOGITS[0, 0], LABELS), ef.errors.ShapeError, "labels do not fit"),
        (lambda: ef.ctc_loss(LOGITS, LABELS * 1.0), ef.errors.DTypeError, "integers"),
        (lambda: ef.ctc_loss(LOGITS, LABELS + 2), ef.errors.IndexRangeError, "4"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_blank_among_the_labels_is_one_more_label():
    found = ef.ctc_loss(np.zeros((4, 3)), np.array([1, 2, 0]))
    np.testing.assert_allclose(found, np.log(81 / 7), rtol=1e-6)  # one stays, or a blank is added
