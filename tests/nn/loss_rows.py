"""A table of losses: construction, inputs, and the formula in NumPy."""

import itertools
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from eagerflow.nn.configured import snake_case

EPSILON = 1e-7
RNG = np.random.default_rng(7)
BATCH, CLASSES = 6, 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def floats(*shape):
    return RNG.normal(size=shape).astype("float32")


LOGITS, TARGETS = floats(BATCH, CLASSES), floats(BATCH, CLASSES)
PROBABILITIES = softmax(LOGITS).astype("float32")
LABELS = np.array([0, 3, 1, 1, 2, 0])
ONE_HOT = np.eye(CLASSES, dtype="float32")[LABELS]
BITS = RNG.integers(0, 2, (BATCH, CLASSES)).astype("float32")
MAPS = floats(2, 3, 5, CLASSES)
MAP_LABELS = RNG.integers(0, CLASSES, (2, 3, 5))
UNIT = (LOGITS / np.linalg.norm(LOGITS, axis=1, keepdims=True)).astype("float32")
WORDS = np.array([[1, 2, 0], [3, 3, 0], [2, 0, 0], [1, 2, 3]])
STEPS = floats(4, 6, CLASSES)

KINDS = {
    "floats": (TARGETS, LOGITS),
    "positive": (np.abs(TARGETS), np.abs(LOGITS)),
    "one hot": (ONE_HOT, PROBABILITIES),
    "one hot logits": (ONE_HOT, LOGITS),
    "bits": (BITS, sigmoid(LOGITS).astype("float32")),
    "bit logits": (BITS, LOGITS),
    "signs": (2 * BITS - 1, LOGITS),
    "classes": (LABELS, PROBABILITIES),
    "class columns": (LABELS[:, None], PROBABILITIES),
    "class logits": (LABELS, LOGITS),
    "maps": (MAP_LABELS, softmax(MAPS).astype("float32")),
    "map logits": (MAP_LABELS, MAPS),
    "one hot maps": (np.eye(CLASSES, dtype="float32")[MAP_LABELS], MAPS),
    "counts": (RNG.poisson(2.0, (BATCH, 3)).astype("float32"), np.exp(floats(BATCH, 3))),
    "embeddings": (LABELS, UNIT),
    "words": (WORDS, STEPS),
    "columns": (TARGETS[:, 0], LOGITS[:, :1]),
}


@dataclass
class Row:
    """A loss: its class, its arguments, its inputs, and a formula for each example."""

    cls: str
    kind: str
    reference: object = None  # f(y_true, y_pred) with NumPy, in float64
    kwargs: dict = field(default_factory=dict)
    function: str | None = None
    keras: bool = True

    @property
    def id(self):
        shown = [f"{k}={v}" for k, v in self.kwargs.items()]
        return f"{self.cls}({', '.join(shown)})-{self.kind}"

    @cached_property
    def arrays(self):
        return KINDS[self.kind]

    @property
    def function_name(self):
        return snake_case(self.cls)


def row(cls, kind, reference=None, keras=True, **kwargs):
    return Row(cls, kind, reference, kwargs, keras=keras)


# Formulas ----------------------------------------------------------------------------------------


def binary(y, p):
    p = np.clip(p, EPSILON, 1 - EPSILON)
    return -(y * np.log(p) + (1 - y) * np.log(1 - p))


def binary_logits(y, x):
    return np.logaddexp(0, -x) * y + np.logaddexp(0, x) * (1 - y)


def categorical(y, p, axis=-1):
    p = p / p.sum(axis, keepdims=True)
    return -(y * np.log(np.clip(p, EPSILON, 1 - EPSILON))).sum(axis)


def sparse(y, p):
    return categorical(np.eye(p.shape[-1])[y], p)


def focal(y, p, alpha=None, gamma=2.0):
    right = y * p + (1 - y) * (1 - p)
    weight = 1 if alpha is None else y * alpha + (1 - y) * (1 - alpha)
    return (weight * (1 - right) ** gamma * binary(y, p)).mean(-1)


def categorical_focal(y, p, alpha=0.25, gamma=2.0):
    return -(alpha * (1 - p) ** gamma * y * np.log(p)).sum(-1)


def signs(y):
    return 2 * y - 1 if set(np.unique(y)) <= {0.0, 1.0} else y


def huber(y, p, delta):
    e = np.abs(y - p)
    return np.where(e <= delta, e**2 / 2, delta * e - delta**2 / 2).mean(-1)


def cosine(y, p, axis=-1):
    lengths = np.linalg.norm(y, axis=axis) * np.linalg.norm(p, axis=axis)
    return -(y * p).sum(axis) / lengths


def kullback(y, p):
    y, p = np.clip(y, EPSILON, 1), np.clip(p, EPSILON, 1)
    return (y * np.log(y / p)).sum(-1)


def categorical_hinge(y, p):
    found = []
    for t, x in zip(y, p, strict=True):
        k = int(t.argmax())
        others = [v for i, v in enumerate(x) if i != k] + [0.0]
        found.append(max(max(others) - x[k] + 1, 0))
    return np.array(found)


def dice(y, p, axis=None):
    return 1 - 2 * (y * p).sum(axis) / (y.sum(axis) + p.sum(axis) + EPSILON)


def tversky(y, p, alpha=0.5, beta=0.5, axis=None):
    both = (y * p).sum(axis)
    missed, surplus = (y * (1 - p)).sum(axis), ((1 - y) * p).sum(axis)
    return 1 - both / (both + alpha * missed + beta * surplus + EPSILON)


def circle(y, p, gamma=80.0, margin=0.4, diagonal=False):
    found = []
    for i in range(len(y)):
        near, far = [], []
        for j in range(len(y)):
            d = max(1 - float(p[i] @ p[j]), 0)
            if y[i] != y[j]:
                far.append(gamma * max(1 + margin - d, 0) * (1 - margin - d))
            elif i != j or diagonal:
                near.append(gamma * (margin + d) * (d - margin))
        total = np.logaddexp.reduce(near) + np.logaddexp.reduce(far) if near and far else -np.inf
        found.append(np.logaddexp(0, total))
    return np.array(found)


def ctc(y, x):
    """By trying every way to write a class at each time; short sequences only."""
    found = []
    for labels, logits in zip(y, softmax(x), strict=True):
        total = 0.0
        for way in itertools.product(range(x.shape[-1]), repeat=x.shape[1]):
            joined = [c for c, _ in itertools.groupby(way) if c]
            if joined == [c for c in labels if c]:
                total += np.prod(logits[range(len(way)), way])
        found.append(-np.log(total))
    return np.array(found)


def smoothed(y, amount):
    return y * (1 - amount) + amount / y.shape[-1]


def generalized(y, p, q):
    return (1 - p[range(BATCH), y] ** q) / q


def ignored(y, p, label):
    return np.where(y == label, 0, sparse(y, p))


LOGITS_GIVEN = {"from_logits": True}
SMOOTH = {"from_logits": True, "label_smoothing": 0.1}
SHARES = {"alpha": [1.0, 2.0, 3.0, 4.0], "gamma": 1.0}
BALANCED = {"apply_class_balancing": True, "alpha": 0.3, "gamma": 1.5}
AROUND = {"gamma": 10.0, "margin": 0.2, "remove_diagonal": False}
classes = partial(row, "SparseCategoricalCrossentropy")
one_hot = partial(row, "CategoricalCrossentropy")
binary_focal = partial(row, "BinaryFocalCrossentropy")

ROWS = [
    row("MeanSquaredError", "floats", lambda y, p: ((y - p) ** 2).mean(-1)),
    row("MeanSquaredError", "columns", lambda y, p: ((y[:, None] - p) ** 2).mean(-1)),
    row("MeanAbsoluteError", "floats", lambda y, p: abs(y - p).mean(-1)),
    row(
        *("MeanAbsolutePercentageError", "floats"),
        lambda y, p: 100 * (abs(y - p) / np.maximum(abs(y), EPSILON)).mean(-1),
    ),
    row(
        *("MeanSquaredLogarithmicError", "positive"),
        lambda y, p: ((np.log1p(p) - np.log1p(y)) ** 2).mean(-1),
    ),
    row("Huber", "floats", lambda y, p: huber(y, p, 1.0)),
    row("Huber", "floats", lambda y, p: huber(y, p, 0.3), delta=0.3),
    row("LogCosh", "floats", lambda y, p: np.log(np.cosh(p - y)).mean(-1)),
    row("CosineSimilarity", "floats", cosine),
    row("CosineSimilarity", "floats", lambda y, p: cosine(y, p, 0), axis=0),
    row("BinaryCrossentropy", "bits", lambda y, p: binary(y, p).mean(-1)),
    row("BinaryCrossentropy", "bits", lambda y, p: binary(y, p).mean(0), axis=0),
    row(
        *("BinaryCrossentropy", "bit logits"),
        lambda y, x: binary_logits(0.8 * y + 0.1, x).mean(-1),
        **{"from_logits": True, "label_smoothing": 0.2},
    ),
    binary_focal("bits", focal),
    binary_focal(
        *("bit logits", lambda y, x: focal(y, sigmoid(x), 0.3, 1.5)), **LOGITS_GIVEN, **BALANCED
    ),
    binary_focal("bits", lambda y, p: focal(0.9 * y + 0.05, p), label_smoothing=0.1),
    one_hot("one hot", categorical),
    one_hot("one hot logits", lambda y, x: categorical(smoothed(y, 0.1), softmax(x)), **SMOOTH),
    one_hot(
        *("one hot maps", lambda y, x: categorical(y, softmax(x, 2), 2)), **LOGITS_GIVEN, axis=2
    ),
    row("CategoricalFocalCrossentropy", "one hot", categorical_focal),
    row(
        *("CategoricalFocalCrossentropy", "one hot logits"),
        lambda y, x: categorical_focal(smoothed(y, 0.1), softmax(x), np.array([1, 2, 3, 4]), 1.0),
        **SMOOTH,
        **SHARES,
    ),
    classes("classes", sparse),
    classes("class columns", lambda y, p: sparse(y[:, 0], p)),
    classes("class logits", lambda y, x: sparse(y, softmax(x)), **LOGITS_GIVEN),
    classes("maps", sparse),
    classes("maps", lambda y, p: ignored(y, p, 1), ignore_class=1),
    classes("map logits", lambda y, x: ignored(y, softmax(x), 3), ignore_class=3, from_logits=True),
    row("CategoricalGeneralizedCrossEntropy", "classes", partial(generalized, q=0.3), q=0.3),
    row("KLDivergence", "one hot", kullback),
    row("Poisson", "counts", lambda y, p: (p - y * np.log(p + EPSILON)).mean(-1)),
    row("Hinge", "signs", lambda y, p: np.maximum(1 - y * p, 0).mean(-1)),
    row("Hinge", "bit logits", lambda y, p: np.maximum(1 - signs(y) * p, 0).mean(-1)),
    row("Hinge", "floats", lambda y, p: np.maximum(1 - y * p, 0).mean(-1)),
    row("SquaredHinge", "bit logits", lambda y, p: (np.maximum(1 - signs(y) * p, 0) ** 2).mean(-1)),
    row("CategoricalHinge", "one hot logits", categorical_hinge),
    row("Dice", "bits", dice),
    row("Dice", "bits", lambda y, p: dice(y, p, 1), axis=1),
    row("Dice", "one hot maps", lambda y, p: dice(y, p, (1, 2)), axis=(1, 2)),
    row("Tversky", "bits", tversky),
    row("Tversky", "bits", lambda y, p: tversky(y, p, 0.7, 0.2, 1), alpha=0.7, beta=0.2, axis=1),
    row("CTC", "words", ctc),
    row("Circle", "embeddings", circle),
    row("Circle", "embeddings", lambda y, p: circle(y, p, 10.0, 0.2, True), **AROUND),
]
