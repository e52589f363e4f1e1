"""Targets, predictions and weights brought to shapes and dtypes that meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow import ops, tree
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import DType, as_dtype, is_floating
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.nn.arguments import Nest, TensorLike
from eagerflow.nn.nests import only_numbers
from eagerflow.ops.family import as_operand
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Operators, Tensor

__all__ = [
    "EPSILON",
    "class_numbers",
    "in_precision",
    "refuse_integers",
    "same_shape",
    "tensors",
    "weight_for",
]

EPSILON = 1e-7  # probabilities are kept this far from 0 and 1, as in Keras
_FLOAT32 = as_dtype("float32")
_SWAPPED = "targets come first: loss(y_true, y_pred)"


def tensors(nest: Nest, convert: Callable[[Any], Any] = as_tensor) -> Any:
    """A nest with a tensor for each array; numbers in lists are one array."""
    if isinstance(nest, list | tuple | dict) and not only_numbers(nest):
        return tree.map_leaves(lambda leaf: tensors(leaf, convert), nest)
    known = isinstance(nest, Operators | np.ndarray | list | tuple | int | float | np.generic)
    return convert(nest) if known else nest


def in_precision(nest: Nest, dtype: DType | None) -> Any:
    """Predictions as tensors of ``dtype``, or of their own, but at least float32."""

    def convert(value: Any) -> Tensor:
        value = as_tensor(value)
        own = value.dtype
        wanted = dtype or (own if is_floating(own) and own.itemsize >= 4 else _FLOAT32)
        return value if own == wanted else value.astype(wanted)

    return tensors(nest, convert)


def same_shape(
    name: str, y_true: TensorLike, y_pred: TensorLike, floating: bool = True
) -> tuple[Any, Any]:
    """Both as tensors of one shape and float dtype; a missing last axis of size 1 is added.

    ``floating=False`` leaves predictions in the dtype that they have.
    """
    y_pred = as_tensor(y_pred)
    if floating and not is_floating(y_pred.dtype):
        y_pred = y_pred.astype(_FLOAT32)
    y_true = as_operand(y_true, y_pred)
    if y_true.dtype != y_pred.dtype:
        y_true = y_true.astype(y_pred.dtype)
    if y_true.shape == y_pred.shape:
        return y_true, y_pred
    if y_pred.ndim == y_true.ndim + 1 and y_pred.shape == (*y_true.shape, 1):
        return y_true.reshape(y_pred.shape), y_pred
    if y_true.ndim == y_pred.ndim + 1 and y_true.shape == (*y_pred.shape, 1):
        return y_true, y_pred.reshape(y_true.shape)
    raise ShapeError(
        "targets and predictions have different shapes",
        op=name,
        received=f"y_true {summary(y_true)}, y_pred {summary(y_pred)}",
        expected="equal shapes",
        hint="for class numbers: SparseCategoricalCrossentropy, SparseCategoricalAccuracy, or "
        f"ef.one_hot(y_true, {y_pred.shape[-1]})"
        if y_true.ndim + 1 == y_pred.ndim
        else _SWAPPED
        if y_true.shape[:-1] == y_pred.shape
        else None,
    )


def refuse_integers(name: str, y_true: Nest, y_pred: Nest) -> None:
    """Raise DTypeError for integers as predictions of targets that are floats: the wrong order."""
    known = isinstance(y_pred, Operators | np.ndarray) and isinstance(
        y_true, Operators | np.ndarray
    )
    if known and y_pred.dtype.kind in "iub" and is_floating(as_dtype(y_true.dtype)):
        raise DTypeError(
            "the predictions are integers or bools, and the targets floats",
            op=name,
            received=f"y_true {summary(y_true)}, y_pred {summary(y_pred)}",
            expected="predictions of floats",
            hint=f"{_SWAPPED}; y_pred.astype('float32') for predictions without fractions",
        )


def class_numbers(
    name: str,
    y_true: TensorLike,
    y_pred: TensorLike,
    one_hot: str | None = None,
    axis: int = -1,
) -> tuple[Tensor, Tensor]:
    """Integers, and predictions with an additional axis of classes.

    An axis of size 1 in its place is removed. ``one_hot`` names the alternative for targets in the
    shape of the predictions.
    """
    labels, y_pred = as_tensor(y_true), as_tensor(y_pred)
    at = normalize_axis(axis, max(y_pred.ndim, 1))
    expected = (*y_pred.shape[:at], *y_pred.shape[at + 1 :])
    if labels.ndim == y_pred.ndim and labels.ndim and labels.shape[at] == 1:
        labels = ops.squeeze(labels, axis=at)
    if not y_pred.ndim or labels.shape != expected:
        raise ShapeError(
            "targets do not fit the predictions",
            op=name,
            received=f"y_true {summary(labels)}, y_pred {summary(y_pred)}",
            expected=f"y_true of shape {expected}",
            hint=f"{one_hot} for one-hot targets"
            if one_hot and labels.shape == y_pred.shape
            else _SWAPPED
            if _are_swapped(labels, y_pred)
            else None,
        )
    if is_floating(labels.dtype):
        labels = labels.astype("int64")
    elif labels.dtype.kind not in "iu":
        raise DTypeError(
            "class numbers are integers", op=name, argument="y_true", received=summary(labels)
        )
    return labels, y_pred


def _are_swapped(labels: Tensor, y_pred: Tensor) -> bool:
    """Whether the predictions have the shape of class numbers for the targets."""
    numbers = y_pred.shape[:-1] if y_pred.shape[-1:] == (1,) else y_pred.shape
    return labels.ndim > 0 and labels.shape[:-1] == numbers and is_floating(labels.dtype)


def weight_for(
    values: Tensor, weight: TensorLike, name: str, argument: str = "sample_weight"
) -> Tensor:
    """A weight for each of ``values``, in their dtype: the first axes are those of ``weight``."""
    weight = as_tensor(weight, values.dtype)
    if weight.shape == values.shape:
        return weight
    if weight.ndim == values.ndim + 1 and weight.shape[-1] == 1:
        weight = ops.squeeze(weight, axis=-1)
    sizes = zip(weight.shape, values.shape, strict=False)
    if weight.ndim > values.ndim or any(a not in (1, b) for a, b in sizes):
        raise ShapeError(
            "weights and examples differ in number",
            op=name,
            argument=argument,
            received=summary(weight),
            expected=f"shape {tuple(values.shape)}, or that of its first axes",
        )
    weight = weight.reshape((*weight.shape, *(1,) * (values.ndim - weight.ndim)))
    return ops.broadcast_to(weight, values.shape)
