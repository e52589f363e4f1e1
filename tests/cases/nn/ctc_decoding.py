"""Cases of eagerflow/ops/nn/ctc_decoding.py."""

import builtins
import math

import numpy as np

from eagerflow.errors import ArgumentError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make


def _search_reference(logs, lengths, beam_width, top_paths, blank):
    """With a dictionary of sequences."""
    times = logs.shape[-2]
    paths = np.full((*lengths.shape, top_paths, times), -1)
    scores = np.full((*lengths.shape, top_paths), -math.inf)
    for at in np.ndindex(lengths.shape):
        beams = {(): [1.0, 0.0]}  # ends: blank, label
        for row in np.exp(logs[at][: lengths[at]].astype(float)).tolist():
            found = {}
            for path, (quiet, loud) in beams.items():
                for c, p in enumerate(row):
                    if c == blank:
                        found.setdefault(path, [0.0, 0.0])[0] += p * (quiet + loud)
                        continue
                    repeats = path[-1:] == (c,)
                    grown = found.setdefault((*path, c), [0.0, 0.0])
                    grown[1] += p * (quiet if repeats else quiet + loud)
                    if repeats:
                        found.setdefault(path, [0.0, 0.0])[1] += p * loud
            ordered = sorted(found.items(), key=lambda item: -math.fsum(item[1]))
            beams = dict(ordered[:beam_width])
        ranked = sorted(beams.items(), key=lambda item: -math.fsum(item[1]))
        for k, (path, ends) in enumerate(ranked[:top_paths]):
            if math.fsum(ends) > 0:
                paths[at][k, : len(path)] = path
                scores[at][k] = math.log(math.fsum(ends))
    return paths, scores


def _search_samples(rng, dtype):
    found = []
    for shape, width, top, blank in (
        ((4, 3), 2, 1, 0),
        ((2, 5, 3), 4, 2, 2),
        ((6, 2), 3, 3, 1),
        ((1, 4), 10, 8, 0),
        ((2, 2, 4, 3), 20, 2, 1),
        ((0, 3, 2), 2, 1, 0),
        ((2, 7, 4), 30, 5, 3),
    ):
        logs = make(rng, dtype, shape).astype(float)
        logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
        lengths = np.asarray(rng.integers(1, shape[-2] + 1, shape[:-2]))
        more = {"beam_width": width, "top_paths": top, "blank": blank}
        found.append(Sample((logs.astype(dtype), lengths), more))
    return found


def _decoded(rng, dtype, **attributes):
    found = []
    for i, shape in enumerate(((4, 3), (2, 5, 3), (6, 2), (2, 2, 4, 3), (3, 1, 2))):
        lengths = np.asarray(rng.integers(1, shape[-2] + 1, shape[:-2])) if i % 2 else None
        found.append(Sample((distinct(rng, dtype, shape), lengths), attributes if i > 1 else {}))
    return found


def _greedy_reference(logits, sequence_lengths, merge_repeated, blank):
    front, times = logits.shape[:-2], logits.shape[-2]
    labels, scores = np.full((*front, times), -1), np.zeros(front)
    for at in np.ndindex(front):
        count = times if sequence_lengths is None else int(sequence_lengths[at])
        rows = logits[at][:count].astype(float).tolist()
        best = [row.index(builtins.max(row)) for row in rows]
        kept = [
            c
            for t, c in enumerate(best)
            if c != blank and not (merge_repeated and t and best[t - 1] == c)
        ]
        labels[at][: len(kept)] = kept
        scores[at] = -math.fsum(row[c] for row, c in zip(rows, best, strict=True))
    return labels, scores


def _beam_reference(logits, sequence_lengths, beam_width, top_paths, blank):
    x = logits.astype(float)
    logs = x - np.log(np.exp(x).sum(-1, keepdims=True))
    ends = np.full(x.shape[:-2], x.shape[-2]) if sequence_lengths is None else sequence_lengths
    return _search_reference(logs, ends, beam_width, top_paths, blank)


CASES = {
    "ctc_beam_search": Cases(
        samples=_search_samples,
        errors=lambda rng: [
            ErrorSample(
                (np.ones((3, 2)), np.array(1)),
                {"top_paths": 3, "beam_width": 2},
                ArgumentError,
                "3 of",
            ),
            ErrorSample((np.ones((3, 2)), np.array(1)), {"beam_width": 0}, ArgumentError, "of 0"),
            ErrorSample(
                (np.ones((3, 2)), np.array(1)), {"blank": 2}, ArgumentError, "2 is not a class"
            ),
            ErrorSample((np.ones((3, 2)), np.array([1])), {}, ShapeError, "differ in number"),
        ],
        reference=_search_reference,
    ),
    "ctc_greedy_decode": Cases(
        samples=lambda rng, dtype: _decoded(rng, dtype, blank=1, merge_repeated=False),
        errors=lambda rng: [
            ErrorSample((np.ones(3),), {}, ShapeError, "differ in number"),
            ErrorSample((np.ones((3, 2)),), {"blank": 2}, ArgumentError, "2 is not a class"),
        ],
        reference=_greedy_reference,
    ),
    "ctc_beam_search_decode": Cases(
        samples=lambda rng, dtype: _decoded(rng, dtype, blank=1, beam_width=5, top_paths=3),
        errors=lambda rng: [
            ErrorSample((np.ones(3),), {}, ShapeError, "differ in number"),
            ErrorSample((np.ones((3, 2)),), {"top_paths": 0}, ArgumentError, "cannot be found"),
        ],
        reference=_beam_reference,
    ),
}
