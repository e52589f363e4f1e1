"""Decoders of connectionist temporal classification against trying every way, and against Keras."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import keras_on_torch, numbers

RNG = np.random.default_rng(3)


def ranked(logits, blank):
    """All label sequences with the logarithms of their probabilities, the most probable first."""
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    found = defaultdict(float)
    for way in itertools.product(range(logits.shape[-1]), repeat=len(logits)):
        labels = tuple(c for c, _ in itertools.groupby(way) if c != blank)
        found[labels] += np.prod(p[range(len(way)), way])
    return sorted(((np.log(v), k) for k, v in found.items()), reverse=True)


@pytest.mark.parametrize("blank", [0, 2])
def test_a_wide_beam_finds_the_best_of_all_ways(blank):
    logits = RNG.normal(size=(2, 5, 3)) * 2
    labels, scores = ef.ctc_beam_search_decode(logits, beam_width=300, top_paths=6, blank=blank)
    for row, found, log in zip(logits, labels.numpy(), scores.numpy(), strict=True):
        right = ranked(row, blank)[:6]
        np.testing.assert_allclose(log, [score for score, _ in right], rtol=1e-9)
        assert [tuple(x[x >= 0]) for x in found] == [labels for _, labels in right]


def test_scores_are_the_negated_loss():
    logits = RNG.normal(size=(6, 4))
    labels, scores = ef.ctc_beam_search_decode(logits, beam_width=2000)
    (known,) = labels.numpy()
    loss = ef.ctc_loss(logits, known[known >= 0])
    np.testing.assert_allclose(scores[0], -loss, rtol=1e-9)


def test_a_sequence_that_was_dropped_comes_back_as_one():
    """Its longer forms may be kept meanwhile; all ways to write it are joined all the same."""
    for seed in range(20):
        logits = np.random.default_rng(seed).normal(size=(9, 3)) * 1.5
        labels, _ = ef.ctc_beam_search_decode(logits, beam_width=3, top_paths=3)
        rows = [tuple(row) for row in labels.numpy()]
        assert len(set(rows)) == len(rows)


def test_there_may_be_fewer_sequences_than_are_asked_for():
    labels, scores = ef.ctc_beam_search_decode(np.zeros((1, 2)), beam_width=5, top_paths=4)
    assert sorted(labels.numpy().ravel()[:2]) == [-1, 1]
    assert np.isneginf(scores.numpy()[2:]).all() and (labels.numpy()[2:] == -1).all()


def test_captured():
    logits = RNG.normal(size=(2, 4, 3)).astype("float32")
    wanted = ef.ctc_beam_search_decode(logits, beam_width=4, top_paths=2)
    found = ef.function(lambda x: ef.ctc_beam_search_decode(x, beam_width=4, top_paths=2))(logits)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("blank", [0, 3])
def test_results_are_those_of_keras(blank):
    keras = keras_on_torch()
    decode = keras.ops.ctc_decode
    x, lengths = RNG.normal(size=(3, 7, 4)).astype("float32"), np.array([7, 5, 2])
    for merge in (True, False):
        labels, scores = ef.ctc_greedy_decode(x, lengths, merge, blank)
        wanted, theirs = decode(x, lengths, "greedy", merge_repeated=merge, mask_index=blank)
        np.testing.assert_array_equal(labels[None], numbers(wanted))
        np.testing.assert_allclose(scores[:, None], numbers(theirs), rtol=1e-5)
    labels, scores = ef.ctc_beam_search_decode(x, lengths, 6, 3, blank)
    options = {"beam_width": 6, "top_paths": 3, "mask_index": blank}
    wanted, theirs = decode(x, lengths, "beam_search", **options)
    np.testing.assert_array_equal(ef.moveaxis(labels, 1, 0), numbers(wanted))
    np.testing.assert_allclose(scores, numbers(theirs), rtol=1e-5)
