"""Convolutions of each rank: plain, transposed, depthwise, separable."""

import itertools
from functools import partial

import numpy as np

from tests.nn.cases import case


def per_axis(value, rank):
    return tuple(value) if isinstance(value, tuple | list) else (value,) * rank


def pads_of(x, window, strides, dilation, padding):
    """Zeros before and behind each spatial axis."""
    pads = []
    for n, k, s, d in zip(x.shape[1:-1], window, strides, dilation, strict=True):
        reach = (k - 1) * d + 1
        if padding == "same":
            missing = max((-(-n // s) - 1) * s + reach - n, 0)
            pads.append((missing // 2, missing - missing // 2))
        else:
            pads.append((reach - 1, 0) if padding == "causal" else (0, 0))
    return pads


def convolved(x, w, strides=1, padding="valid", dilation_rate=1, groups=1):
    """Position by position and element by element of the window."""
    rank, window = x.ndim - 2, w.shape[:-2]
    steps, rates = per_axis(strides, rank), per_axis(dilation_rate, rank)
    padded = np.pad(x, [(0, 0), *pads_of(x, window, steps, rates, padding), (0, 0)])
    reach = [(k - 1) * d + 1 for k, d in zip(window, rates, strict=True)]
    sizes = [(n - r) // s + 1 for n, r, s in zip(padded.shape[1:-1], reach, steps, strict=True)]
    y = np.zeros((len(x), *sizes, w.shape[-1]))
    parts = [np.array_split(np.arange(n), groups) for n in (x.shape[-1], w.shape[-1])]
    for at in np.ndindex(*sizes):
        for tap in np.ndindex(*window):
            columns = zip(at, steps, tap, rates, strict=True)
            seen = padded[(slice(None), *(i * s + t * d for i, s, t, d in columns))]
            for inside, outside in zip(*parts, strict=True):
                y[(slice(None), *at)][:, outside] += seen[:, inside] @ w[tap][:, outside]
    return y


def conv(**options):
    return lambda weights, x: convolved(x, weights[0], **options) + sum(weights[1:])


def depthwise(pointwise=False, **options):
    def reference(weights, x):
        each = [
            convolved(x[..., c : c + 1], weights[0][..., c : c + 1, :], **options)
            for c in range(x.shape[-1])
        ]
        y = np.concatenate(each, axis=-1)
        if pointwise:
            y = y @ weights[1].reshape(weights[1].shape[-2:])
        return y + weights[-1]

    return reference


def transposed(strides=1, padding="valid", output_padding=None, dilation_rate=1):
    """Each input adds its window to the output, of which a part is then cut out."""

    def reference(weights, x):
        kernel, rank = weights[0], x.ndim - 2
        given = (strides, dilation_rate, output_padding)
        given = (per_axis(v, rank) for v in given)
        axes = list(zip(x.shape[1:-1], kernel.shape, *given, strict=False))
        whole = [n * s + k * r for n, k, s, r, _ in axes]
        y = np.zeros((len(x), *whole, kernel.shape[-2]))
        for at, tap in itertools.product(np.ndindex(x.shape[1:-1]), np.ndindex(kernel.shape[:-2])):
            place = [i * axis[2] + t * axis[3] for i, t, axis in zip(at, tap, axes, strict=True)]
            y[(slice(None), *place)] += x[(slice(None), *at)] @ kernel[tap].T
        places = []
        for n, k, s, r, extra in axes:
            reach = (k - 1) * r + 1
            if padding == "same":
                longer = s if extra is None else reach % 2 + extra
            else:
                longer = max(reach, s) if extra is None else reach + extra
            start = max(reach - longer, 0) // 2
            places.append(slice(start, start + (n - 1) * s + longer))
        return y[(slice(None), *places)] + sum(weights[1:])

    return reference


SIGNALS, IMAGES, VOLUMES = [(2, 9, 4)], [(2, 7, 6, 4)], [(1, 5, 4, 5, 2)]

UNEVEN = {"output_padding": (0, 1, 2)}
TRANSPOSED = [
    ("Conv1DTranspose", SIGNALS, 3, 3, {"strides": 2}, {}),
    ("Conv1DTranspose", SIGNALS, 3, 4, {"strides": 2, "padding": "same"}, {}),
    ("Conv1DTranspose", SIGNALS, 3, 3, {"strides": 2, "output_padding": 1}, {}),
    ("Conv1DTranspose", SIGNALS, 3, 3, {"strides": 3, "padding": "same", "output_padding": 1}, {}),
    ("Conv1DTranspose", SIGNALS, 2, 3, {"dilation_rate": 2}, {}),
    ("Conv1DTranspose", SIGNALS, 2, 3, {"padding": "same", "dilation_rate": 2}, {}),
    ("Conv2DTranspose", IMAGES, 3, 3, {}, {}),
    ("Conv2DTranspose", IMAGES, 3, (3, 2), {"strides": (2, 3)}, {}),
    ("Conv2DTranspose", IMAGES, 3, 3, {"strides": 2, "padding": "same"}, {}),
    ("Conv2DTranspose", IMAGES, 3, 3, {"strides": 2, "padding": "same", "output_padding": 1}, {}),
    ("Conv2DTranspose", IMAGES, 3, (5, 3), {"strides": (2, 2), "output_padding": (1, 0)}, {}),
    ("Conv2DTranspose", IMAGES, 2, 2, {"strides": 3}, {"use_bias": False}),
    ("Conv3DTranspose", VOLUMES, 2, 2, {"strides": 2}, {}),
    ("Conv3DTranspose", VOLUMES, 2, 2, {"strides": 3, "padding": "same"} | UNEVEN, {}),
    ("Conv3DTranspose", VOLUMES, 2, (1, 2, 3), {"strides": (1, 2, 2), "padding": "same"}, {}),
]


def row(cls, inputs, *args, reference=conv, before=2, **options):
    """A case whose reference knows of strides and padding, behind so many arguments, and others."""
    known = dict(zip(("strides", "padding"), args[before:], strict=False))
    known |= {key: options[key] for key in ("padding", "dilation_rate", "groups") if key in options}
    if "padding" in known:
        known["padding"] = known["padding"].lower()
    return case(cls, *args, **options, inputs=inputs, _reference=reference(**known))


by_channel = partial(row, reference=depthwise, before=1)
separable = partial(row, reference=partial(depthwise, True))

CASES = [
    row("Conv1D", SIGNALS, 3, 3),
    row("Conv1D", SIGNALS, 3, 3, 2, "same"),
    row("Conv1D", SIGNALS, 3, 2, 1, "causal", dilation_rate=2),
    row("Conv1D", SIGNALS, 3, 2, 2, "causal"),
    row("Conv1D", SIGNALS, 4, 3, groups=2, use_bias=False),
    row("Conv2D", IMAGES, 3, 3),
    row("Conv2D", IMAGES, 4, (3, 2), (2, 1), "same", groups=2),
    row("Conv2D", IMAGES, 3, 2, dilation_rate=(1, 2), use_bias=False),
    row("Conv2D", IMAGES, 2, 3, padding="SAME", dilation_rate=2),
    row("Conv2D", IMAGES, 2, 1, data_format="channels_last", kernel_regularizer="l2"),
    row("Conv3D", VOLUMES, 3, 2),
    case(
        "Conv3D",
        *(2, (1, 2, 3), (1, 2, 1), "same"),
        activation="tanh",
        inputs=VOLUMES,
        _reference=lambda w, x: np.tanh(conv(strides=(1, 2, 1), padding="same")(w, x)),
    ),
    row("Conv3D", VOLUMES, 2, 2, groups=2, dilation_rate=2),
    *(
        case(cls, filters, size, **options, **more, inputs=inputs, _reference=transposed(**options))
        for cls, inputs, filters, size, options, more in TRANSPOSED
    ),
    by_channel("DepthwiseConv1D", SIGNALS, 3),
    by_channel("DepthwiseConv1D", SIGNALS, 2, 2, "same", 3),
    by_channel("DepthwiseConv2D", IMAGES, 3),
    case(
        "DepthwiseConv2D",
        *((2, 3), 2, "same"),
        depth_multiplier=2,
        activation="relu",
        depthwise_regularizer="l2",
        inputs=IMAGES,
        _reference=lambda w, x: np.maximum(depthwise(strides=2, padding="same")(w, x), 0),
    ),
    by_channel("DepthwiseConv2D", IMAGES, 3, dilation_rate=2),
    separable("SeparableConv1D", SIGNALS, 5, 3),
    case("SeparableConv1D", 5, 3, 2, "same", depth_multiplier=2, use_bias=False, inputs=SIGNALS),
    separable("SeparableConv2D", IMAGES, 5, 3),
    separable("SeparableConv2D", IMAGES, 5, (3, 2), 2, "same", depth_multiplier=2),
    case("SeparableConv2D", 2, 2, dilation_rate=2, activation="tanh", inputs=IMAGES),
]
