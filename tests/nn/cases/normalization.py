"""Layers that bring values to mean 0 and variance 1, or to length 1."""

import numpy as np

from tests.nn.cases import case

IMAGES = (2, 3, 4, 6)
WORDS = np.array([[0, 1, 5], [2, 2, 4]])
MEAN, VARIANCE = [1.0, -2.0, 0.5, 0.0], [0.25, 4.0, 1.0, 0.0]
GIVEN = {"mean": MEAN, "variance": VARIANCE}
SPREAD = np.maximum(np.sqrt(VARIANCE), 1e-7)


def batch(axis, epsilon):
    """Given weights gamma, beta, mean and variance, or some of them from the front."""

    def reference(weights, x):
        *scales, mean, variance = weights
        shape = [1] * x.ndim
        shape[axis] = -1
        y = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)
        for weight, act in zip(scales, (np.multiply, np.add), strict=False):
            y = act(y, weight.reshape(shape))
        return y

    return reference


def over(axes, epsilon, center=True):
    """Layer normalization by a loop over the examples; ``gamma`` and ``beta`` as they come."""

    def reference(weights, x):
        kept = [i for i in range(x.ndim) if i not in axes]
        out = np.empty_like(x)
        for place in np.ndindex(*(x.shape[i] for i in kept)):
            at = [slice(None)] * x.ndim
            for i, n in zip(kept, place, strict=True):
                at[i] = n
            values = x[tuple(at)].astype("float64")
            values = values - values.mean() if center else values
            out[tuple(at)] = values / np.sqrt((values**2).mean() + epsilon)
        shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
        for weight, act in zip(weights, (np.multiply, np.add), strict=False):
            out = act(out, weight.reshape(shape))
        return out

    return reference


def groups(number, epsilon):
    def reference(weights, x):
        parts = np.split(x, number, axis=-1)
        axes = tuple(range(1, x.ndim))
        gamma, beta = weights
        return np.concatenate([over(axes, epsilon)((), p) for p in parts], -1) * gamma + beta

    return reference


def beside(weights, x):
    out = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        *at, channel = place
        near = x[(*at, slice(max(channel - 2, 0), channel + 3))]
        out[place] = x[place] / (2.0 + 0.1 * (near**2).sum()) ** 0.75
    return out


ALONE = {"_keras": None, "_reference": beside}

CASES = [
    case("BatchNormalization", inputs=[(8, 4)], _reference=batch(-1, 1e-3)),
    case("BatchNormalization", 1, 0.9, 1e-2, inputs=[(3, 4, 5)], _reference=batch(1, 1e-2)),
    case("BatchNormalization", center=False, inputs=[IMAGES], _reference=batch(-1, 1e-3)),
    case(
        "BatchNormalization",
        beta_initializer="ones",
        gamma_initializer="random_normal",
        moving_mean_initializer="random_normal",
        moving_variance_initializer="ones",
        beta_regularizer="l2",
        gamma_regularizer="l1",
        beta_constraint="non_neg",
        gamma_constraint="unit_norm",
        inputs=[(8, 4)],
        _random=True,
    ),
    case(
        "BatchNormalization",
        inputs=[(3, 4, 5)],
        call={"mask": np.arange(12).reshape(3, 4) % 3 > 0},
        _reference=batch(-1, 1e-3),
    ),
    case("LayerNormalization", _reference=over((1,), 1e-3)),
    case("LayerNormalization", [1, 2], 1e-2, inputs=[(2, 3, 4)], _reference=over((1, 2), 1e-2)),
    case("LayerNormalization", [-2, -1], scale=False, inputs=[(2, 3, 4)]),
    case("LayerNormalization", 1, center=False, inputs=[(2, 3, 4)], _reference=over((1,), 1e-3)),
    case("LayerNormalization", rms_scaling=True, inputs=[(2, 3, 4)]),
    case("GroupNormalization", 3, inputs=[IMAGES], _reference=groups(3, 1e-3)),
    case("GroupNormalization", -1, epsilon=1e-2, inputs=[IMAGES], _reference=groups(6, 1e-2)),
    case("GroupNormalization", 2, axis=1, center=False, inputs=[(2, 4, 5)]),
    case("RMSNormalization", _reference=over((1,), 1e-6, center=False)),
    case("RMSNormalization", [1, 2], 0.1, inputs=[(2, 3, 4)]),
    case("UnitNormalization", _reference=lambda w, x: x / np.sqrt((x**2).sum(1, keepdims=True))),
    case("UnitNormalization", [1, 2], inputs=[(2, 3, 4)]),
    case("LocalResponseNormalization", 2, 2.0, 0.1, 0.75, inputs=[IMAGES], **ALONE),
    case(
        "Normalization",
        **GIVEN,
        inputs=[np.random.default_rng(0).normal(MEAN, 0.1, (3, 4)).astype("float32")],
        _gradients=False,  # one variance is 0, so that the slope is 1e7
        _reference=lambda w, x: (x - MEAN) / SPREAD,
        _tolerance=1e-4,
    ),
    case("Normalization", **GIVEN, invert=True, _reference=lambda w, x: x * SPREAD + MEAN),
    case("Normalization", None, 2.0, 9.0, _reference=lambda w, x: (x - 2) / 3),
    case("Normalization", [1, 2], MEAN[:2], VARIANCE[:2], inputs=[(3, 4, 2)]),
    case("Normalization", inputs=[(3, 4)], _keras=None, _reference=lambda w, x: x),
    *(
        case("SpectralNormalization", layer, steps, inputs=[shape])
        for layer, steps, shape in (
            (case("Dense", 3), 1, (4, 5)),
            (case("Conv2D", 2, 3), 2, (2, 5, 5, 3)),
        )
    ),
    case("SpectralNormalization", case("Embedding", 6, 4), inputs=[WORDS], _keras=None),
]
