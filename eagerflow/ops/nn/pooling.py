"""Pooling: the maximum or the mean of each window of an image, and what their gradients need.

``max_pool_gradient`` sends a value for each window to where its maximum is, and
``max_pool_gather`` fetches from there; each is the other's transpose. ``avg_pool_gradient``
is the transpose of ``avg_pool``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import ShapeError
from eagerflow.op import ErrorSample, Missing, Sample
from eagerflow.ops.attributes import Padding, Sizes
from eagerflow.ops.family import FLOATS, Batch, Cost, Split, batch_first, define, refused_objects
from eagerflow.ops.nn.convolution import sizes_of, spatial_rank, windows_of
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.primitives import pooling as kernels
from eagerflow.primitives.windows import (
    Window,
    check_kernel,
    known,
    output_size,
    padding_of,
    per_axis,
    window_of,
)
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["avg_pool", "avg_pool_gradient", "max_pool", "max_pool_gather", "max_pool_gradient"]

# Shapes ------------------------------------------------------------------------------------------


def _attributes(rank: int, window: Any, strides: Any, padding: Any) -> Any:
    """Window, stride and padding of each spatial axis."""
    sizes = per_axis(window, rank, "window")
    check_kernel(sizes, "window")
    steps = sizes if strides is None else per_axis(strides, rank, "strides")
    pads = padding_of(padding, rank)
    pads = (pads,) * rank if isinstance(pads, str) else pads
    for size, pad in zip(sizes, pads, strict=True):
        if not isinstance(pad, str) and max(pad) >= size:
            raise ShapeError(
                f"with padding {pad} a window of {size} can lie beside the input",
                argument="padding",
                expected="less padding than the window has elements",
            )
    return sizes, steps, pads


def _pool_spec(x: TensorSpec, window: Any, strides: Any, padding: Any) -> TensorSpec:
    sizes, steps, pads = _attributes(spatial_rank(x, "x"), window, strides, padding)
    columns = zip(x.shape[1:-1], sizes, steps, pads, strict=True)
    out = [output_size(n, k, s, 1, pad) for n, k, s, pad in columns]
    return x.like((x.shape[0], *out, x.shape[-1]))


def _check_result(g: TensorSpec, y: TensorSpec) -> None:
    fits = len(g.shape) == len(y.shape) and all(
        not known(a, b) or a == b for a, b in zip(g.shape, y.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"g has shape {g.shape}, pooling gives {y.shape}",
            argument="g",
            expected="a g with the shape of the pooling's result",
        )


def _gradient_spec(
    x: TensorSpec, g: TensorSpec, window: Any, strides: Any, padding: Any
) -> TensorSpec:
    _check_result(g, _pool_spec(x, window, strides, padding))
    return x.like()


def _gather_spec(
    x: TensorSpec, t: TensorSpec, window: Any, strides: Any, padding: Any
) -> TensorSpec:
    y = _pool_spec(x, window, strides, padding)
    if t.ndim != x.ndim or any(
        known(a, b) and a != b for a, b in zip(t.shape, x.shape, strict=True)
    ):
        raise ShapeError(
            f"t has shape {t.shape}, x has {x.shape}", argument="t", expected="equal shapes"
        )
    return y


def _transpose_spec(
    g: TensorSpec, size: Any, window: Any, strides: Any, padding: Any
) -> TensorSpec:
    x = g.like((*g.shape[:1], *sizes_of(size, max(g.ndim - 2, 0)), *g.shape[-1:]))
    _check_result(g, _pool_spec(x, window, strides, padding))
    return x


@lru_cache(1024, typed=True)
def _windows(shape: Any, window: Any, strides: Any, padding: Any) -> tuple[Window, ...]:
    """The windows on an input of this shape, all checks made."""
    _pool_spec(TensorSpec(shape, "float32"), window, strides, padding)
    columns = zip(shape[1:-1], *_attributes(len(shape) - 2, window, strides, padding), strict=True)
    return tuple(_trimmed(window_of(n, k, s, 1, pad)) for n, k, s, pad in columns)


def _trimmed(w: Window) -> Window:
    """The same window without the elements that lie beside the input wherever it goes.

    So kernels can look at each element in turn, however large a window the user asks for.
    """
    first = max(0, w.before - (w.out - 1) * w.stride)
    last = min(w.kernel, w.before + w.size)
    return w._replace(kernel=max(last - first, 1), before=w.before - first)


@lru_cache(1024, typed=True)
def _pair_windows(spec: Any, x: Any, other: Any, *where: Any) -> tuple[Window, ...]:
    """The same for two arguments of these shapes, which ``spec`` checks."""
    spec(TensorSpec(x, "float32"), TensorSpec(other, "float32"), *where)
    return _windows(x, *where)


def _on_numpy(spec: Any, kernel: Any) -> Any:
    """The NumPy kernel of an op on an input and something of its shape, or of the result's."""

    def on_numpy(xp: Namespace, x: Any, other: Any, window: Any, strides: Any, padding: Any) -> Any:
        return kernel(x, other, _pair_windows(spec, x.shape, other.shape, window, strides, padding))

    return on_numpy


# Facts that all five share -----------------------------------------------------------------------


def _cost(*specs: Any, window: Any, **attributes: Any) -> Cost:
    sizes = [s.size for s in specs]
    moved = specs[0].size * specs[0].dtype.itemsize
    for spec in specs[1:]:
        moved = moved + spec.size * spec.dtype.itemsize
    rank = specs[0].ndim - 2
    elements = math.prod(window) if isinstance(window, tuple) else window**rank
    return Cost(sizes[-1] * elements, moved * 2)


def _split(*specs: Any, **attributes: Any) -> list[Split]:
    count, last = len(specs), specs[0].ndim - 1
    return [Split((0,) * count, 0), Split((last,) * count, last)]


def _batched(call: Any, args: Any, batched: Any, size: int, /, **attributes: Any) -> Any:
    """One larger batch of images."""
    whole = batch_first(args, batched, size)
    flat = [reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) for x in whole]
    y = call(*flat, **attributes)
    return reshape(y, (size, whole[0].shape[1], *y.shape[1:]))


def _op(**facts: Any) -> Any:
    own: dict[str, Any] = {
        "dtypes": FLOATS,
        "batch": Batch(_batched),
        "split": _split,
        "cost": _cost,
        "onnx": Missing("ONNX's pooling has its channels first, so it takes transposes as well"),
        "trusted": True,  # the kernels look at the shapes themselves
        "threaded": False,
    } | facts
    return define("contraction", **own)


# Samples -----------------------------------------------------------------------------------------

_CASES: tuple[tuple[Any, dict[str, Any]], ...] = (
    ((2, 4, 4, 2), {"window": 2}),
    ((1, 5, 4, 3), {"window": 2}),
    ((1, 5, 5, 1), {"window": 3, "strides": 2, "padding": "same"}),
    ((2, 4, 5, 2), {"window": (2, 3), "strides": 1}),
    ((1, 5, 4, 2), {"window": 3, "strides": 1, "padding": "same"}),
    ((1, 6, 5, 1), {"window": (3, 2), "strides": (2, 3), "padding": ((1, 2), (0, 1))}),
    ((1, 7, 7, 1), {"window": 2, "strides": 3}),
    ((2, 6, 3), {"window": 2}),
    ((1, 5, 2), {"window": 3, "strides": 2, "padding": "same"}),
    ((1, 4, 2, 3, 2), {"window": (2, 2, 1)}),
    ((1, 3, 3, 2), {"window": 1}),
    ((0, 4, 4, 2), {"window": 2}),
    ((2, 3, 3, 0), {"window": 2, "padding": "same"}),
)


def _spread(rng: np.random.Generator, dtype: DType, shape: Any) -> Any:
    """Values that differ from each other by more than a finite difference."""
    values = rng.permutation(int(np.prod(shape))) * 0.25 - 2
    return values.reshape(shape).astype(dtype)


def _samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = [Sample((_spread(rng, dtype, shape),), dict(more)) for shape, more in _CASES]
    x = _spread(rng, dtype, (3, 4, 5, 2))
    return [*found, Sample((x.T,), {"window": 2}), Sample((x[:, ::-1, ::2],), {"window": 2})]


def _pooled(rng: np.random.Generator, dtype: DType, shape: Any, more: Any) -> Any:
    spec = _pool_spec(TensorSpec(shape, dtype), **{"strides": None, "padding": "valid"} | more)
    return make(rng, dtype, spec.shape)


def _gradient_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [
        Sample((_spread(rng, dtype, shape), _pooled(rng, dtype, shape, more)), dict(more))
        for shape, more in _CASES
    ]


def _gather_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [
        Sample((_spread(rng, dtype, shape), make(rng, dtype, shape)), dict(more))
        for shape, more in _CASES
    ]


def _transpose_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [
        Sample((_pooled(rng, dtype, shape, more),), {"size": shape[1:-1], **more})
        for shape, more in _CASES
    ]


def _errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.standard_normal((2, 5, 5, 4))
    bad: list[tuple[dict[str, Any], str]] = [
        ({"window": 6}, "does not fit"),
        ({"window": 0}, "too small"),
        ({"window": (2, 2, 2)}, "for each spatial axis"),
        ({"window": 2, "strides": 0}, "too small"),
        ({"window": 2, "padding": "full"}, "is not a kind of padding"),
        ({"window": 2, "padding": ((0, -1), (0, 0))}, "negative"),
        ({"window": 2, "padding": 2}, "beside the input"),
    ]
    return [
        *refused_objects(rng, window=2),
        *(ErrorSample((x,), more, ShapeError, words) for more, words in bad),
        ErrorSample((x[0, 0],), {"window": 2}, ShapeError, "too few"),
    ]


def _pair_errors(rng: np.random.Generator, words: str) -> list[ErrorSample]:
    x = rng.standard_normal((2, 4, 4, 3))
    return [
        ErrorSample((x, x[:, :3]), {"window": 2}, ShapeError, words),
        ErrorSample((x, x[0]), {"window": 2}, ShapeError, words),
        ErrorSample((x, x), {"window": 5}, ShapeError, "does not fit"),
        ErrorSample((x, x), {"window": 2, "padding": "full"}, ShapeError, "kind of padding"),
    ]


def _transpose_errors(rng: np.random.Generator) -> list[ErrorSample]:
    g = rng.standard_normal((2, 2, 2, 3))
    return [
        ErrorSample((g,), {"size": 6, "window": 2}, ShapeError, "pooling gives"),
        ErrorSample((g,), {"size": (4,), "window": 2}, ShapeError, "for each spatial axis"),
        ErrorSample((g,), {"size": 4, "window": 2, "strides": 0}, ShapeError, "too small"),
        ErrorSample((g[0, 0],), {"size": (), "window": 2}, ShapeError, "too few"),
    ]


# References --------------------------------------------------------------------------------------


def _pieces(shape: Any, window: Any, strides: Any, padding: Any) -> Any:
    """For each position: its index, and the part of the input that its window covers."""
    sizes = shape[1:-1]
    kernel = window if isinstance(window, tuple) else (window,) * len(sizes)
    steps = kernel if strides is None else strides
    pads, _, found = windows_of(sizes, kernel, steps, padding, 1)
    for at, piece in found:
        inside = [
            slice(max(p.start - before, 0), min(p.stop - before, n))
            for p, (before, _), n in zip(piece, pads, sizes, strict=True)
        ]
        yield (slice(None), *at), (slice(None), *inside)


def _reference(function: Any) -> Any:
    def reference(x: Any, **where: Any) -> Any:
        y = np.empty(_pool_spec(TensorSpec(x.shape, x.dtype), **where).shape, x.dtype)
        for at, piece in _pieces(x.shape, **where):
            y[at] = function(x[piece], axis=tuple(range(1, x.ndim - 1)))
        return y

    return reference


def _places(x: Any, **where: Any) -> Any:
    """For each window, image and channel: the index of the result and that of the maximum."""
    for at, piece in _pieces(x.shape, **where):
        part = x[piece]
        for n, c in np.ndindex(x.shape[0], x.shape[-1]):
            found = np.unravel_index(int(part[n, ..., c].argmax()), part.shape[1:-1])
            offsets = [p.start + int(i) for p, i in zip(piece[1:], found, strict=True)]
            yield (n, *at[1:], c), (n, *offsets, c)


def _gradient_reference(x: Any, g: Any, **where: Any) -> Any:
    result = np.zeros_like(x)
    for at, place in _places(x, **where):
        result[place] += g[at]
    return result


def _gather_reference(x: Any, t: Any, **where: Any) -> Any:
    y = np.zeros(_pool_spec(TensorSpec(x.shape, x.dtype), **where).shape, x.dtype)
    for at, place in _places(x, **where):
        y[at] = t[place]
    return y


def _transpose_reference(g: Any, size: Any, **where: Any) -> Any:
    sizes = size if isinstance(size, tuple) else (size,) * (g.ndim - 2)
    x = np.zeros((g.shape[0], *sizes, g.shape[-1]), g.dtype)
    for at, piece in _pieces(x.shape, **where):
        part = x[piece]
        count = np.prod(part.shape[1:-1])
        part += g[at].reshape(len(g), *(1,) * (g.ndim - 2), g.shape[-1]) / count.astype(g.dtype)
    return x


# The ops -----------------------------------------------------------------------------------------


@_op(
    infer=_pool_spec,
    vjp=(lambda g, y, x, **more: max_pool_gradient(x, g, **more),),
    jvp=lambda tangents, y, x, **more: max_pool_gather(x, tangents[0], **more),
    saves="x",
    samples=_samples,
    errors=_errors,
    reference=_reference(np.max),
    overrides={"numpy": lambda xp, x, **where: kernels.max_pool(x, _windows(x.shape, **where))},
)
def max_pool(
    xp: Namespace, x: Array, /, window: Sizes, strides: Sizes = None, padding: Padding = "valid"
) -> Array:
    """Largest element of each window of channels-last images, signals or volumes.

    ``x`` is (batch, *spatial, channels), ``window`` an integer or one for each spatial axis,
    ``strides`` likewise (None: the window). ``padding`` is ``"valid"`` (none), ``"same"`` (as
    TensorFlow has it: ``ceil(size / stride)`` positions), or pairs (before, after); padding
    never wins. The gradient goes to the largest element, of equal ones to the first. Raises
    ShapeError where shapes or attributes do not fit.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0]).reshape((1, 4, 1))
    >>> ef.max_pool(x, 2).reshape((-1,))
    Tensor([5., 4.], float32, cpu:0)
    """
    return kernels.portable_max(xp, x, _windows(x.shape, window, strides, padding))


@_op(
    infer=_gradient_spec,
    vjp=(None, lambda t, y, x, g, **more: max_pool_gather(x, t, **more)),
    jvp=lambda tangents, y, x, g, **more: (
        None if tangents[1] is None else max_pool_gradient(x, tangents[1], **more)
    ),
    saves="x",
    samples=_gradient_samples,
    errors=lambda rng: _pair_errors(rng, "pooling gives"),
    reference=_gradient_reference,
    overrides={"numpy": _on_numpy(_gradient_spec, kernels.scatter_to_maxima)},
)
def max_pool_gradient(
    xp: Namespace,
    x: Array,
    g: Array,
    /,
    window: Sizes,
    strides: Sizes = None,
    padding: Padding = "valid",
) -> Array:
    """Gradient of ``max_pool``: for each window its element of ``g``, where the maximum is.

    ``x`` is what was pooled; ``g`` has the shape of ``max_pool(x, window, ...)`` and the
    result that of ``x``. Where windows overlap, the elements are added. Raises ShapeError
    where ``g`` has another shape.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0]).reshape((1, 4, 1))
    >>> ef.max_pool_gradient(x, ef.ones((1, 2, 1)), 2).reshape((-1,))
    Tensor([0., 1., 0., 1.], float32, cpu:0)
    """
    windows = _pair_windows(_gradient_spec, x.shape, g.shape, window, strides, padding)
    return kernels.max_pool_gradient(xp, x, g, windows)


@_op(
    infer=_gather_spec,
    vjp=(None, lambda g, y, x, t, **more: max_pool_gradient(x, g, **more)),
    jvp=lambda tangents, y, x, t, **more: (
        None if tangents[1] is None else max_pool_gather(x, tangents[1], **more)
    ),
    saves="x",
    samples=_gather_samples,
    errors=lambda rng: _pair_errors(rng, "t has shape")[:2] + _pair_errors(rng, "")[2:],
    reference=_gather_reference,
    overrides={"numpy": _on_numpy(_gather_spec, kernels.gather_from_maxima)},
)
def max_pool_gather(
    xp: Namespace,
    x: Array,
    t: Array,
    /,
    window: Sizes,
    strides: Sizes = None,
    padding: Padding = "valid",
) -> Array:
    """Elements of ``t`` from where each window of ``x`` has its maximum.

    ``t`` has the shape of ``x`` and the result that of ``max_pool(x, window, ...)``; with
    ``t`` a tangent of ``x`` it is the tangent of the maxima. Raises ShapeError where the
    shapes differ.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0]).reshape((1, 4, 1))
    >>> ef.max_pool_gather(x, ef.arange(4.0).reshape((1, 4, 1)), 2).reshape((-1,))
    Tensor([1., 3.], float32, cpu:0)
    """
    windows = _pair_windows(_gather_spec, x.shape, t.shape, window, strides, padding)
    return kernels.max_pool_gather(xp, x, t, windows)


@_op(
    infer=_pool_spec,
    vjp=(lambda g, y, x, **more: avg_pool_gradient(g, size=x.shape[1:-1], **more),),
    jvp="linear",
    samples=_samples,
    errors=_errors,
    reference=_reference(np.mean),
    overrides={"numpy": lambda xp, x, **where: kernels.avg_pool(x, _windows(x.shape, **where))},
)
def avg_pool(
    xp: Namespace, x: Array, /, window: Sizes, strides: Sizes = None, padding: Padding = "valid"
) -> Array:
    """Mean of each window of channels-last images, signals or volumes.

    ``x`` is (batch, *spatial, channels), ``window`` an integer or one for each spatial axis,
    ``strides`` likewise (None: the window). ``padding`` is ``"valid"`` (none), ``"same"`` (as
    TensorFlow has it: ``ceil(size / stride)`` positions), or pairs (before, after); only
    elements of ``x`` count, padding does not. Raises ShapeError where shapes or attributes do
    not fit.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0, 7.0]).reshape((1, 5, 1))
    >>> ef.avg_pool(x, 2, padding="same").reshape((-1,))
    Tensor([3., 3., 7.], float32, cpu:0)
    """
    return kernels.portable_avg(xp, x, _windows(x.shape, window, strides, padding))


@_op(
    infer=_transpose_spec,
    vjp=(lambda t, y, g, size, **more: avg_pool(t, **more),),
    jvp="linear",
    samples=_transpose_samples,
    errors=_transpose_errors,
    reference=_transpose_reference,
)
def avg_pool_gradient(
    xp: Namespace,
    g: Array,
    /,
    size: Sizes,
    window: Sizes,
    strides: Sizes = None,
    padding: Padding = "valid",
) -> Array:
    """Gradient of ``avg_pool``: each element of ``g``, shared by the elements of its window.

    ``size`` gives the spatial sizes of what was pooled (an integer or one for each axis);
    all else is as in ``avg_pool``. Raises ShapeError where ``g`` does not have the shape of
    the pooling's result.

    >>> g = ef.tensor([2.0, 4.0]).reshape((1, 2, 1))
    >>> ef.avg_pool_gradient(g, 3, window=2, padding="same").reshape((-1,))
    Tensor([1., 1., 4.], float32, cpu:0)
    """
    spec = _transpose_spec(TensorSpec(g.shape, "float32"), size, window, strides, padding)
    return kernels.avg_pool_gradient(xp, g, _windows(spec.shape, window, strides, padding))
