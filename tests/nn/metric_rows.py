"""A table of metrics: construction, inputs, and the result in NumPy."""

from dataclasses import dataclass, field

import numpy as np

from tests.nn.loss_rows import sigmoid, softmax

RNG = np.random.default_rng(11)
BATCH, CLASSES = 24, 4  # three batches of eight


def floats(*shape):
    return RNG.normal(size=shape).astype("float32")


LOGITS = floats(BATCH, CLASSES)
LABELS = RNG.integers(0, CLASSES, BATCH)
ONE_HOT = np.eye(CLASSES, dtype="float32")[LABELS]
BITS = RNG.integers(0, 2, (BATCH, CLASSES)).astype("float32")
SCORES = sigmoid(LOGITS + BITS).astype("float32")
TARGETS = floats(BATCH, CLASSES)
MAP = RNG.integers(0, 3, (BATCH, 5))
OTHER_MAP = np.where(RNG.uniform(size=MAP.shape) < 0.6, MAP, RNG.integers(0, 3, MAP.shape))
PROBABILITIES = softmax(LOGITS).astype("float32")

KINDS = {
    "floats": (TARGETS, TARGETS + 0.5 * LOGITS),
    "columns": (TARGETS[:, :1], TARGETS[:, :1] + 0.3 * LOGITS[:, :1]),
    "positive": (np.abs(TARGETS), np.abs(LOGITS)),
    "one hot": (ONE_HOT, PROBABILITIES),
    "one hot logits": (ONE_HOT, LOGITS),
    "classes": (LABELS, PROBABILITIES),
    "class columns": (LABELS[:, None], PROBABILITIES),
    "class logits": (LABELS, LOGITS),
    "step classes": (MAP, softmax(floats(BATCH, 5, 3)).astype("float32")),
    "bits": (BITS, SCORES),
    "bit logits": (BITS, LOGITS + BITS),
    "yes or no": (BITS[:, 0], SCORES[:, 0]),
    "yes or no columns": (BITS[:, :1], SCORES[:, 0]),
    "numbers": (LABELS, np.where(RNG.uniform(size=BATCH) < 0.7, LABELS, 0)),
    "ids": (LABELS, np.argsort(-LOGITS, axis=-1)),
    "maps": (MAP, OTHER_MAP),
    "one hot maps": (np.eye(3, dtype="float32")[MAP], np.eye(3, dtype="float32")[OTHER_MAP]),
    "mixed maps": (np.eye(3, dtype="float32")[MAP], OTHER_MAP),
    "binary maps": (BITS, SCORES),
}


@dataclass
class Row:
    """A metric: its class, its arguments, its inputs, and its result for all of them."""

    cls: str
    kind: str
    reference: object = None  # f(y_true, y_pred, weight of each number) with NumPy
    kwargs: dict = field(default_factory=dict)

    @property
    def id(self):
        shown = [f"{k}={v}" for k, v in self.kwargs.items()]
        return f"{self.cls}({', '.join(shown)})-{self.kind}"

    @property
    def arrays(self):
        return KINDS[self.kind]

    @property
    def weights(self):
        """Of examples; whole numbers for metrics that count in integers."""
        whole = np.random.default_rng(3).integers(0, 4, BATCH)
        if "IoU" in self.cls:
            each = np.repeat(whole, self.arrays[1].reshape(BATCH, -1).shape[1]).reshape(BATCH, -1)
            return each[:, : 4 if self.cls == "BinaryIoU" else 5]
        return (whole / 2).astype("float32")

    def batches(self, weighted=False):
        y, p = self.arrays
        for part in (slice(0, 8), slice(8, 16), slice(16, 24)):
            yield (y[part], p[part], *([self.weights[part]] if weighted else []))


def row(cls, kind, reference=None, **kwargs):
    return Row(cls, kind, reference, kwargs)


# Results, for examples of which each has a weight ------------------------------------------------


def mean(f):
    """The weighted mean of the values of ``f`` for each example."""

    def result(y, p, w):
        values = f(y.astype("float64"), p.astype("float64"))
        values = values.reshape(len(values), -1).mean(1)
        return (values * w).sum() / w.sum()

    return result


def table(y, p, w, threshold):
    """True positives, false positives, true negatives, false negatives; a loop over numbers."""
    found = [0.0] * 4
    w = np.broadcast_to(w.reshape(len(w), *(1,) * (p.ndim - 1)), p.shape)
    for true, pred, weight in zip(y.ravel(), p.ravel(), w.ravel(), strict=True):
        alarm = pred > threshold
        found[(0 if alarm else 3) if true else (1 if alarm else 2)] += weight
    return found


def count(which, thresholds=(0.5,)):
    def result(y, p, w):
        found = [table(y, p, w, np.float32(t))[which] for t in thresholds]
        return np.array(found) if len(found) > 1 else found[0]

    return result


def rate(other, threshold=0.5):
    def result(y, p, w):
        found = table(y, p, w, threshold)
        return found[0] / (found[0] + found[other])

    return result


def best(wanted, given, least, number=200):
    """The best of one rate where the other is as large; each is a pair of counts."""

    def result(y, p, w):
        found = []
        for i in range(number):
            t = table(y, p, w, np.float32(i / (number - 1)))
            rates = [t[a] / (t[a] + t[b]) if t[a] + t[b] else 0 for a, b in (wanted, given)]
            found.append(rates[0] if rates[1] >= least else 0)
        return max(found)

    return result


SENSITIVITY, SPECIFICITY, PRECISION = (0, 3), (2, 1), (0, 1)


def area(y, p, w):
    """The area under ROC: how often a yes is above a no."""
    yes, no = ([(b, c) for a, b, c in zip(y, p, w, strict=True) if a == k] for k in (1, 0))
    won = sum(a * b * ((x > z) + 0.5 * (x == z)) for x, a in yes for z, b in no)
    return won / sum(a * b for _, a in yes for _, b in no)


def f_score(average=None, beta=1.0, threshold=None):
    def result(y, p, w):
        chosen = p > threshold if threshold else p == p.max(-1, keepdims=True)
        each, counts, total = [], [], np.zeros(4)
        for c in range(p.shape[1]):
            t = np.array(table(y[:, c], chosen[:, c], w, 0.5))
            each.append((1 + beta**2) * t[0] / ((1 + beta**2) * t[0] + beta**2 * t[3] + t[1]))
            counts.append(t[0] + t[3])
            total += t
        if average == "micro":
            right = (1 + beta**2) * total[0]
            return right / (right + beta**2 * total[3] + total[1])
        if average == "weighted":
            return np.average(each, weights=counts)
        return np.array(each) if average is None else np.mean(each)

    return result


def iou(classes, ids=None, ignore=None, threshold=None, one_hot=(False, False)):
    def result(y, p, w):
        y, p = (x.argmax(-1) if hot else x for x, hot in zip((y, p), one_hot, strict=True))
        p = p >= threshold if threshold else p
        w = np.broadcast_to(w, y.shape)
        w = np.where(y == ignore, 0, w) if ignore is not None else w
        shares = []
        for c in range(classes) if ids is None else ids:
            both = w[(y == c) & (p == c)].sum()
            union = w[(y == c) | (p == c)].sum()
            shares += [both / union] if union else []
        return np.mean(shares)

    return result


def r2(aggregation="uniform_average", regressors=0):
    def result(y, p, w):
        w = w[:, None]
        center = (y * w).sum(0) / w.sum()
        total = ((y - center) ** 2 * w).sum(0)
        score = 1 - ((y - p) ** 2 * w).sum(0) / total
        if aggregation == "uniform_average":
            score = score.mean()
        elif aggregation == "variance_weighted_average":
            score = np.average(score, weights=total)
        n = y.size
        return 1 - (1 - score) * (n - 1) / (n - regressors - 1) if regressors else score

    return result


def in_top(y, p, k):
    return np.array([label in np.argsort(-x)[:k] for label, x in zip(y, p, strict=True)]) * 1.0


def concordance(y, p):
    spread = y.var(-1) + p.var(-1) + (y.mean(-1) - p.mean(-1)) ** 2
    return 2 * ((y - y.mean(-1, keepdims=True)) * (p - p.mean(-1, keepdims=True))).mean(-1) / spread


def cosine(y, p):
    return (y * p).sum(-1) / np.linalg.norm(y, axis=-1) / np.linalg.norm(p, axis=-1)


def cross(y, p):
    return -np.log(p[np.arange(len(y)), y.astype(int)])


def rms(y, p, w):
    return np.sqrt(mean(lambda y, p: (y - p) ** 2)(y, p, w))


def logarithmic(y, p):
    return (np.log1p(y) - np.log1p(p)) ** 2


BY_VARIANCE = "variance_weighted_average"
ONE_OF_THREE = {"num_classes": 3, "target_class_ids": [1]}

ROWS = [
    row("MeanSquaredError", "floats", mean(lambda y, p: (y - p) ** 2)),
    row("MeanAbsoluteError", "floats", mean(lambda y, p: abs(y - p))),
    row("MeanAbsolutePercentageError", "floats", mean(lambda y, p: 100 * abs((y - p) / y))),
    row("MeanSquaredLogarithmicError", "positive", mean(logarithmic)),
    row("RootMeanSquaredError", "floats", rms),
    row("LogCoshError", "floats", mean(lambda y, p: np.log(np.cosh(y - p)))),
    row("CosineSimilarity", "floats", mean(cosine)),
    row(
        "PearsonCorrelation",
        "floats",
        mean(lambda y, p: np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(y, p, strict=True)])),
    ),
    row("ConcordanceCorrelation", "floats", mean(concordance)),
    row("R2Score", "floats", r2()),
    row("R2Score", "columns", r2()),
    row("R2Score", "floats", r2(BY_VARIANCE), class_aggregation=BY_VARIANCE),
    row("R2Score", "floats", r2(None), class_aggregation=None),
    row("R2Score", "floats", r2(regressors=3), num_regressors=3),
    row("R2Score", "columns", r2(), num_regressors=200),
    row("Hinge", "bit logits", mean(lambda y, p: np.maximum(1 - (2 * y - 1) * p, 0))),
    row("SquaredHinge", "bit logits", mean(lambda y, p: np.maximum(1 - (2 * y - 1) * p, 0) ** 2)),
    row("CategoricalHinge", "one hot"),
    row("KLDivergence", "one hot", mean(lambda y, p: cross(y.argmax(-1), p))),
    row("Poisson", "positive", mean(lambda y, p: p - y * np.log(p + 1e-7))),
    row("BinaryCrossentropy", "bits", mean(lambda y, p: -np.log(np.where(y == 1, p, 1 - p)))),
    row("BinaryCrossentropy", "bit logits", from_logits=True, label_smoothing=0.1),
    row("CategoricalCrossentropy", "one hot", mean(lambda y, p: cross(y.argmax(-1), p))),
    row("CategoricalCrossentropy", "one hot logits", from_logits=True, label_smoothing=0.1),
    row("SparseCategoricalCrossentropy", "classes", mean(cross)),
    row("SparseCategoricalCrossentropy", "class columns"),
    row("SparseCategoricalCrossentropy", "step classes"),
    row("SparseCategoricalCrossentropy", "class logits", from_logits=True),
    row("Accuracy", "numbers", mean(lambda y, p: 1.0 * (y == p))),
    row("BinaryAccuracy", "bits", mean(lambda y, p: 1.0 * ((p > 0.5) == y))),
    row("BinaryAccuracy", "yes or no columns"),
    row("BinaryAccuracy", "bits", mean(lambda y, p: 1.0 * ((p > 0.7) == y)), threshold=0.7),
    row("CategoricalAccuracy", "one hot", mean(lambda y, p: 1.0 * (y.argmax(-1) == p.argmax(-1)))),
    row("SparseCategoricalAccuracy", "classes", mean(lambda y, p: 1.0 * (y == p.argmax(-1)))),
    row("SparseCategoricalAccuracy", "class columns"),
    row("SparseCategoricalAccuracy", "step classes", mean(lambda y, p: 1.0 * (y == p.argmax(-1)))),
    row("TopKCategoricalAccuracy", "one hot", mean(lambda y, p: in_top(y.argmax(-1), p, 2)), k=2),
    row("SparseTopKCategoricalAccuracy", "classes", mean(lambda y, p: in_top(y, p, 2)), k=2),
    row("SparseTopKCategoricalAccuracy", "step classes", k=2),
    row("SparseTopKCategoricalAccuracy", "ids", k=2, from_sorted_ids=True),
    row("TruePositives", "bits", count(0)),
    row("FalsePositives", "yes or no", count(1)),
    row("TrueNegatives", "bits", count(2), thresholds=0.5),
    row("FalseNegatives", "bits", count(3, (0.7, 0.2, 0.9)), thresholds=[0.7, 0.2, 0.9]),
    row("TruePositives", "bits", count(0, (0.0, 0.5, 1.0)), thresholds=[0.0, 0.5, 1.0]),
    row("Precision", "bits", rate(1)),
    row("Recall", "yes or no columns"),
    row("Recall", "bits", rate(3, 0.7), thresholds=0.7),
    row("Precision", "bits", thresholds=[0.2, 0.6]),
    row("Precision", "bits", top_k=2),
    row("Recall", "bits", top_k=2, class_id=1),
    row("Precision", "bits", top_k=3, thresholds=0.6),
    row("Precision", "bits", lambda y, p, w: rate(1)(y[:, 2], p[:, 2], w), class_id=2),
    row("Recall", "bits", lambda y, p, w: rate(3)(y[:, 2], p[:, 2], w), class_id=2),
    row("SensitivityAtSpecificity", "bits", best(SENSITIVITY, SPECIFICITY, 0.6), specificity=0.6),
    row("SpecificityAtSensitivity", "bits", best(SPECIFICITY, SENSITIVITY, 0.6), sensitivity=0.6),
    row("PrecisionAtRecall", "bits", best(PRECISION, SENSITIVITY, 0.7), recall=0.7),
    row("RecallAtPrecision", "bits", best(SENSITIVITY, PRECISION, 0.6), precision=0.6),
    row("RecallAtPrecision", "bits", precision=0.6, num_thresholds=1),
    row("PrecisionAtRecall", "bits", recall=0.5, num_thresholds=20, class_id=1),
    row("AUC", "yes or no", area, num_thresholds=4000),
    row("AUC", "yes or no"),
    row("AUC", "bits"),
    row("AUC", "bit logits", from_logits=True),
    row("AUC", "bits", thresholds=[0.6, 0.2, 0.3]),
    row("AUC", "bits", label_weights=[1.0, 2.0, 0.5, 0.0]),
    row("AUC", "bits", multi_label=True, num_labels=4),
    row("AUC", "bits", multi_label=True, label_weights=[1.0, 2.0, 0.5, 0.0]),
    *(
        row("AUC", "bits", curve=curve, summation_method=method, multi_label=several)
        for curve in ("ROC", "PR", "PRGAIN")
        for method in ("interpolation", "minoring", "majoring")
        for several in (False, True)
    ),
    row("F1Score", "bits", f_score()),
    row("F1Score", "bits", f_score("micro"), average="micro"),
    row("F1Score", "bits", f_score("macro", threshold=0.4), average="macro", threshold=0.4),
    row("FBetaScore", "bits", f_score("weighted", 2.0), average="weighted", beta=2.0),
    row("FBetaScore", "bits", f_score(None, 0.5, 0.6), beta=0.5, threshold=0.6),
    row("IoU", "maps", iou(3, (0, 2)), num_classes=3, target_class_ids=[0, 2]),
    row("IoU", "maps", iou(3, (0,), 1), num_classes=3, target_class_ids=[0], ignore_class=1),
    row("MeanIoU", "maps", iou(3), num_classes=3),
    row("MeanIoU", "maps", iou(3, ignore=2), num_classes=3, ignore_class=2),
    row("MeanIoU", "mixed maps", iou(3, one_hot=(True, False)), num_classes=3, sparse_y_true=False),
    row("BinaryIoU", "binary maps", iou(2, threshold=0.5)),
    row(
        "BinaryIoU", "binary maps", iou(2, (1,), threshold=0.3), target_class_ids=[1], threshold=0.3
    ),
    row("OneHotIoU", "one hot maps", iou(3, (1,), one_hot=(True, True)), **ONE_OF_THREE),
    row("OneHotIoU", "mixed maps", num_classes=3, target_class_ids=[1, 2], sparse_y_pred=True),
    row("OneHotMeanIoU", "one hot maps", iou(3, one_hot=(True, True)), num_classes=3),
]
