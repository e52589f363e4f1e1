"""Normalization over the last axes or other ones: layer, RMS and group normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen.instructions import RowInstructions
from eagerflow.convert import as_tensor
from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
from eagerflow.op import Split
from eagerflow.ops.attributes import Axes
from eagerflow.ops.elementwise.powers import rsqrt, square
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import Batch, Rows, as_operand, batch_first, define, elements
from eagerflow.ops.formula import Formula
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.shapes.reshaping import permute_dims
from eagerflow.primitives import normalization
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axes
from eagerflow.tensor import Tensor

__all__ = ["group_norm", "layer_norm", "rms_norm"]

# Formulas ----------------------------------------------------------------------------------------


@Formula
def _norm(x: Any, epsilon: Any, *parameters: Any, center: bool, scaled: bool, shifted: bool) -> Any:
    """A row standardized, scaled and shifted."""
    middle = x - mean(x, axis=-1, keepdims=True) if center else x
    y = middle * rsqrt(mean(square(middle), axis=-1, keepdims=True) + epsilon)
    if scaled:
        y = y * parameters[0]
    return y + parameters[-1] if shifted else y


@Formula
def _norm_gradient(
    x: Any, g: Any, epsilon: Any, *scale: Any, center: bool, early: bool = True
) -> Any:
    """The gradients of x, scale and offset; ``early`` so that all sums take one pass."""
    middle = x - mean(x, axis=-1, keepdims=True) if center else x
    u = g * scale[0] if scale else g
    factor = rsqrt(mean(square(middle), axis=-1, keepdims=True) + epsilon)
    h = middle * factor
    of_scale = g * h
    if early:  # before the factor is known
        along = mean(u * middle, axis=-1, keepdims=True) * factor
    else:
        along = mean(of_scale * scale[0] if scale else of_scale, axis=-1, keepdims=True)
    rest = u - h * along
    if center:
        rest = rest - mean(u, axis=-1, keepdims=True)
    return rest * factor, sum(of_scale, axis=0, keepdims=True), sum(g, axis=0, keepdims=True)


# For the gradients of gradients ------------------------------------------------------------------


def standardized(x: Any, axes: Any, epsilon: float, center: bool) -> tuple[Any, Any]:
    """``x`` with mean 0 (where ``center``) and mean square 1 over ``axes``, and the factor."""
    if center:
        x = x - mean(x, axis=axes, keepdims=True)
    factor = (mean(x * x, axis=axes, keepdims=True) + epsilon) ** -0.5
    return x * factor, factor


def projected(h: Any, v: Any, axes: Any, center: bool) -> Any:
    """``v`` without its parts along 1 (where ``center``) and along ``h``.

    Times the factor, this is the derivative of ``standardized``, which is symmetric.
    """
    rest = v - h * mean(v * h, axis=axes, keepdims=True)
    return rest - mean(v, axis=axes, keepdims=True) if center else rest


def second_order(h: Any, factor: Any, u: Any, c: Any, axes: Any, center: bool) -> Any:
    """Gradient with respect to x of the sum of c times factor times projected(h, u).

    With m for the mean over the axes: the factor r depends on x as dr/dx = -r^2 h / n, and h
    as the projection says, so it is -r^2 (h q + P(m(u h) c + m(c h) u)), where
    q = m(c u) - m(c) m(u) - m(c h) m(u h) and P is the projection.
    """

    def average(v: Any) -> Any:
        return mean(v, axis=axes, keepdims=True)

    uh, ch = average(u * h), average(c * h)
    q = average(c * u) - ch * uh
    if center:
        q = q - average(c) * average(u)
    return -(factor * factor) * (h * q + projected(h, uh * c + ch * u, axes, center))


def gradient_rules(
    c: Any, x: Any, g: Any, scale: Any, axes: Any, epsilon: float, center: bool
) -> tuple[Any, Any, Any]:
    """Gradients with respect to x and g of the gradients of a normalization.

    ``c`` holds those of its three results, which broadcast to x as ``scale`` does. Times g, the
    third value sums up to the gradient with respect to the scale.
    """
    c_x, c_scale, c_offset = c
    h, factor = standardized(x, axes, epsilon, center)
    pulled = factor * projected(h, c_x, axes, center)
    u = g if scale is None else g * scale
    of_x = second_order(h, factor, u, c_x, axes, center)
    of_x = of_x + factor * projected(h, g * c_scale, axes, center)
    of_g = (pulled if scale is None else pulled * scale) + h * c_scale + c_offset
    return of_x, of_g, pulled


# Facts -------------------------------------------------------------------------------------------


def sizes_of(x: Any, axis: Any) -> tuple[Any, ...]:
    return tuple(x.shape[i] for i in normalize_axes(axis, x.ndim))


def aligned(parameter: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """A parameter with one axis for each of ``axes``, so that it broadcasts to ``x``."""
    trailing = range(x.ndim - len(axes), x.ndim)
    if axes == tuple(trailing):
        return parameter
    if list(axes) != sorted(axes):
        parameter = permute_dims(parameter, tuple(np.argsort(axes).tolist()))
    return parameter.reshape(tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))


def _norm_spec(
    x: TensorSpec,
    scale: TensorSpec | None = None,
    offset: TensorSpec | None = None,
    axis: Any = -1,
    epsilon: float = 1e-5,
) -> TensorSpec:
    sizes = sizes_of(x, axis)
    for name, parameter in (("scale", scale), ("offset", offset)):
        if parameter is not None and parameter.shape != sizes:
            raise ShapeError(
                f"{name} has shape {parameter.shape}",
                argument=name,
                expected=f"shape {sizes}, the sizes of the normalized axes",
            )
    check_epsilon(epsilon)
    return x


def check_epsilon(epsilon: Any) -> None:
    """Raise unless ``epsilon`` is a number of at least 0."""
    if type(epsilon) not in (int, float) or not epsilon >= 0:
        raise ShapeError(
            f"{epsilon!r} is not a small number", argument="epsilon", expected="at least 0.0"
        )


def _norm_rules(center: bool) -> Callable[..., Any]:
    def rules(
        g: Any, y: Any, x: Any, scale: Any, offset: Any = None, *, axis: Any, epsilon: float
    ) -> tuple[Any, ...]:
        of_x, of_scale, of_offset = norm_gradient(
            x, g, scale, axis=axis, epsilon=epsilon, center=center
        )
        found = (of_x, None if scale is None else of_scale, None if offset is None else of_offset)
        return found if center else found[:2]

    return rules


def _kept_split(*specs: Any, axis: Any = -1, **attributes: Any) -> list[Split]:
    """Every axis that is not normalized can be split; scale and offset stay whole."""
    x = specs[0]
    axes = normalize_axes(axis, x.ndim)
    rest = (None,) * (len(specs) - 1)
    return [Split((i, *rest), i) for i in range(x.ndim) if i not in axes]


def _batched_norm(call: Any, args: Any, batched: Any, size: int, **attributes: Any) -> Any:
    """Parameters that differ between the examples are applied after the normalization."""
    (x,) = batch_first(args[:1], batched[:1], size)
    axes = tuple(i + 1 for i in normalize_axes(attributes.pop("axis"), x.ndim - 1))
    if not any(batched[1:]):
        return call(x, *args[1:], axis=axes, **attributes)
    y = call(x, axis=axes, **attributes)
    for i, (parameter, own) in enumerate(zip(args[1:], batched[1:], strict=True)):
        if parameter is not None:
            placed = aligned(parameter, x, (0, *axes) if own else axes)
            y = y + placed if i else y * placed
    return y


def _norm_op(center: bool, parameters: int) -> Any:
    def on_numpy(
        xp: Namespace, x: Any, scale: Any, offset: Any = None, *, axis: Any, epsilon: float
    ) -> Any:
        axes = normalize_axes(axis, x.ndim)
        return normalization.norm(_norm, x, scale, offset, axes, epsilon, center)

    def body(s: Any, x: Any, scale: Any = None, offset: Any = None, *, epsilon: float) -> Any:
        given = [p for p in (scale, offset) if p is not None]
        scaled, shifted = scale is not None, offset is not None
        return _norm(s, x, float(epsilon), *given, center=center, scaled=scaled, shifted=shifted)

    return define(
        "rows",
        scalar=Rows(body, ("mn", *("n",) * parameters), ("mn",)),
        dtypes=FLOATS,
        infer=_norm_spec,
        overrides={"numpy": on_numpy},
        vjp=_norm_rules(center),
        saves="x scale",
        batch=Batch(_batched_norm),
        split=_kept_split,
        cost=lambda *specs, **attributes: elements(*specs, flops=8),
    )


def _on_arrays(
    xp: Namespace, x: Any, scale: Any, offset: Any, axis: Any, epsilon: float, center: bool
) -> Any:
    axes = normalize_axes(axis, x.ndim)
    given = [_placed(xp, p, x, axes) for p in (scale, offset) if p is not None]
    flags = {"scaled": scale is not None, "shifted": offset is not None}
    s = RowInstructions(xp, x, axes)
    return _norm(s, x, float(epsilon), *given, center=center, **flags)


def _placed(xp: Namespace, parameter: Any, x: Any, axes: tuple[int, ...]) -> Any:
    order = sorted(range(len(axes)), key=axes.__getitem__)
    moved = xp.permute_dims(parameter, tuple(order))
    return xp.reshape(moved, tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))


# The ops -----------------------------------------------------------------------------------------


@_norm_op(True, 2)
def layer_norm(
    xp: Namespace,
    x: Array,
    scale: Array = None,
    offset: Array = None,
    /,
    *,
    axis: Axes = -1,
    epsilon: float = 1e-5,
) -> Array:
    """Each example brought to mean 0 and variance 1 over axes, then scaled and shifted.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``scale`` and ``offset`` (default: none) have the sizes of these axes as their shape.
    The result is (x - mean) / sqrt(variance + epsilon) * scale + offset. Raises ShapeError
    where a shape does not fit. Source: Ba and others, "Layer normalization", 2016.

    >>> ef.layer_norm(ef.tensor([[1.0, 3.0], [10.0, 30.0]]), epsilon=0.0)
    Tensor([[-1.,  1.],
            [-1.,  1.]], shape=(2, 2), float32, cpu:0)
    """
    return _on_arrays(xp, x, scale, offset, axis, epsilon, True)


@_norm_op(False, 1)
def rms_norm(
    xp: Namespace, x: Array, scale: Array = None, /, *, axis: Axes = -1, epsilon: float = 1e-6
) -> Array:
    """Each example divided by the root of its mean square over axes, then scaled.

    ``x`` is a real tensor, ``axis`` an integer, a tuple of integers or None for all axes;
    ``scale`` (default: none) has the sizes of these axes as its shape. The result is
    x / sqrt(mean(x^2) + epsilon) * scale. Raises ShapeError where a shape does not fit.
    Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.

    >>> ef.rms_norm(ef.tensor([3.0, 3.0, 3.0, -3.0]), epsilon=0.0)
    Tensor([ 1.,  1.,  1., -1.], float32, cpu:0)
    """
    return _on_arrays(xp, x, scale, None, axis, epsilon, False)


def group_norm(
    x: Any,
    groups: int,
    scale: Any = None,
    offset: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Tensor:
    """Each example brought to mean 0 and variance 1 over space and groups of channels.

    ``x`` has examples along its first axis and channels along ``axis`` (default: the last);
    ``groups`` divides the number of channels; ``scale`` and ``offset`` (default: none) have
    one element for each channel. One group is layer normalization over all but the first
    axis, as many as channels are instance normalization. Raises ShapeError where the channels
    cannot be divided. Source: Wu and He, "Group normalization", 2018.

    >>> ef.group_norm(ef.tensor([[1.0, 3.0, 10.0, 30.0]]), groups=2, epsilon=0.0)
    Tensor([[-1.,  1., -1.,  1.]], shape=(1, 4), float32, cpu:0)
    """
    x = as_tensor(x)
    (at,) = normalize_axes((axis,), x.ndim)
    channels = x.shape[at]
    fits = isinstance(groups, int) and groups > 0 and channels % groups == 0
    if at == 0 or not fits:
        raise ShapeError(
            f"{groups!r} groups cannot share {channels} channels" if at else "axis 0 has examples",
            op="group_norm",
            argument="groups" if at else "axis",
            expected=f"a divisor of {channels}" if at else "the axis of channels",
        )
    apart = x.reshape((*x.shape[:at], groups, channels // groups, *x.shape[at + 1 :]))
    axes = tuple(i for i in range(1, apart.ndim) if i != at)
    y = layer_norm(apart, axis=axes, epsilon=epsilon).reshape(x.shape)
    if scale is not None:
        y = y * aligned(as_operand(scale, x), x, (at,))
    return y if offset is None else y + aligned(as_operand(offset, x), x, (at,))


# The gradient ------------------------------------------------------------------------------------


def _gradient_spec(
    x: TensorSpec,
    g: TensorSpec,
    scale: TensorSpec | None = None,
    axis: Any = -1,
    epsilon: float = 1e-5,
    center: bool = True,
) -> tuple[TensorSpec, ...]:
    if g.shape != x.shape:
        raise ShapeError("the shapes of x and g differ", expected="equal shapes")
    _norm_spec(x, scale, None, axis, epsilon)
    parameter = x.like(sizes_of(x, axis))
    return x, parameter, parameter


def _numpy_gradient(
    xp: Namespace, x: Any, g: Any, scale: Any, *, axis: Any, epsilon: float, center: bool
) -> tuple[Any, Any, Any]:
    axes = normalize_axes(axis, x.ndim)
    return normalization.norm_gradient(_norm_gradient, x, g, scale, axes, epsilon, center)


def _gradient_rules(
    c: Any, _: Any, x: Any, g: Any, scale: Any, axis: Any, epsilon: float, center: bool
) -> tuple[Any, ...]:
    axes = normalize_axes(axis, x.ndim)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    placed = None if scale is None else aligned(scale, x, axes)
    c = c[0], aligned(c[1], x, axes), aligned(c[2], x, axes)
    of_x, of_g, pulled = gradient_rules(c, x, g, placed, axes, epsilon, center)
    of_scale = None
    if scale is not None:
        of_scale = sum(g * pulled, axis=kept)
        if list(axes) != sorted(axes):  # the remaining axes keep their own order
            order = tuple(sorted(axes).index(i) for i in axes)
            of_scale = of_scale.permute_dims(order)
    return of_x, of_g, of_scale


def _batched_gradient(args: Any, batched: Any, size: int, **attributes: Any) -> Any:
    x, g = batch_first(args[:2], batched[:2], size)
    axes = tuple(i + 1 for i in normalize_axes(attributes["axis"], x.ndim - 1))
    h, factor = standardized(x, axes, attributes["epsilon"], attributes["center"])
    u = g
    if args[2] is not None:
        u = g * aligned(args[2], x, (0, *axes) if batched[2] else axes)
    of_x = factor * projected(h, u, axes, attributes["center"])
    kept = tuple(i for i in range(1, x.ndim) if i not in axes)
    order = tuple(sorted(axes).index(i) for i in axes)
    of_scale, of_offset = (
        sum(v, axis=kept).permute_dims((0, *(i + 1 for i in order))) for v in (g * h, g)
    )
    return of_x, of_scale, of_offset


def _body_of_gradient(s: Any, x: Any, g: Any, scale: Any, epsilon: float, center: bool) -> Any:
    given = () if scale is None else (scale,)
    return _norm_gradient(s, x, g, float(epsilon), *given, center=center)


@define(
    "rows",
    scalar=Rows(_body_of_gradient, ("mn", "mn", "n"), ("mn", "n", "n")),
    dtypes=FLOATS,
    infer=_gradient_spec,
    outputs=3,
    overrides={"numpy": _numpy_gradient},
    vjp=in_float32(_gradient_rules),
    saves="x g scale",
    batch=_batched_gradient,
    cost=lambda *specs, **attributes: elements(*specs, flops=15),
)
def norm_gradient(
    xp: Namespace,
    x: Array,
    g: Array,
    scale: Array = None,
    /,
    *,
    axis: Axes = -1,
    epsilon: float = 1e-5,
    center: bool = True,
) -> Any:
    """The gradients of layer_norm (``center``) or rms_norm, from the gradient of the result.

    ``x`` and ``g`` are real tensors of one shape; ``scale`` and the attributes are those of
    the op. There are three results: the gradients with respect to x, scale and offset.
    Raises ShapeError where a shape does not fit.

    >>> ef.grad(lambda x: ef.layer_norm(x, epsilon=1.0)[0])(ef.tensor([1.0, -1.0]))
    Tensor([ 0.1768, -0.1768], float32, cpu:0)
    """
    axes = normalize_axes(axis, x.ndim)
    given = () if scale is None else (_placed(xp, scale, x, axes),)
    s = RowInstructions(xp, x, axes)
    of_x, *sums = _norm_gradient(s, x, g, float(epsilon), *given, center=center)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    order = tuple(sorted(axes).index(i) for i in axes)
    return of_x, *(xp.permute_dims(xp.squeeze(v, axis=kept), order) for v in sums)
