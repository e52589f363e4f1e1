"""The norm of all gradients together, and gradients limited by it."""

from __future__ import annotations

from functools import reduce
from typing import Any

from eagerflow import ops, tree
from eagerflow.convert import as_tensor
from eagerflow.dtypes import COMPLEX, NARROW
from eagerflow.errors import ArgumentError, short_repr
from eagerflow.ops.indexing.slices import IndexedSlices
from eagerflow.tensor import Tensor

__all__ = ["clip_by_global_norm", "elements", "factor", "global_norm", "squares", "times"]


def global_norm(gradients: Any) -> Tensor:
    """The square root of the sum of the squares of all elements in a nest of tensors.

    Float32 at least; None counts as zeros. Raises ArgumentError for a nest without tensors.
    As TensorFlow's function of that name.

    >>> ef.global_norm([ef.tensor([3.0, 0.0]), None, ef.tensor(4.0)])
    Tensor(5., float32, cpu:0)
    """
    return ops.sqrt(_sum_of_squares(gradients, "global_norm")[1])  # type: ignore[no-any-return]


def clip_by_global_norm(gradients: Any, limit: Any) -> tuple[Any, Tensor]:
    """A nest of tensors scaled down so that its global norm is at most ``limit``, and that norm.

    The tensors keep their dtypes, None stays None. ``limit`` is above 0. Raises ArgumentError for
    a nest without tensors or another limit. As TensorFlow's function of that name.

    >>> clipped, norm = ef.clip_by_global_norm([ef.tensor([3.0]), ef.tensor([4.0])], 1.0)
    >>> clipped[1], float(norm)
    (Tensor([0.8], float32, cpu:0), 5.0)
    """
    if type(limit) in (int, float) and not limit > 0:
        raise ArgumentError(
            "a limit of norms is above 0",
            op="clip_by_global_norm",
            argument="limit",
            received=short_repr(limit),
            expected="a number above 0",
        )
    found, square, structure = _sum_of_squares(gradients, "clip_by_global_norm")
    norm = ops.sqrt(square)
    scale = factor(norm, limit)
    clipped = [None if g is None else times(g, scale) for g in found]
    return tree.unflatten(structure, clipped), norm


def _sum_of_squares(gradients: Any, op: str) -> tuple[list[Any], Any, tree.Structure]:
    """The gradients, the sum of all their squares, and the structure of their nest."""
    leaves, structure = tree.flatten(gradients, whole=IndexedSlices)
    plain = (IndexedSlices, type(None))
    found = [g if isinstance(g, plain) else as_tensor(g) for g in leaves]
    terms = [squares(g) for g in found if g is not None]
    if not terms:
        raise ArgumentError(
            "there is no gradient", op=op, argument="gradients", received=short_repr(gradients)
        )
    return found, reduce(ops.add, terms), structure


def elements(gradient: Any) -> Any:
    """The elements of a gradient that may not be 0."""
    return gradient.values if type(gradient) is IndexedSlices else gradient


def squares(gradient: Any) -> Any:
    """The sum of the squares of the elements, in at least float32: 16 bits end at 65,504."""
    if type(gradient) is IndexedSlices:
        gradient = gradient.summed().values
    if gradient.dtype in COMPLEX:
        gradient = ops.abs(gradient)
    if gradient.dtype in NARROW:
        gradient = gradient.astype("float32")
    return (gradient * gradient).sum()


def times(gradient: Any, number: Any) -> Any:
    """A gradient times a number, in the dtype of the gradient."""
    found = gradient * number
    values, dtype = elements(found), elements(gradient).dtype
    if values.dtype == dtype:
        return found
    values = values.astype(dtype)
    return found.with_values(values) if type(found) is IndexedSlices else values


def factor(norm: Any, limit: Any) -> Any:
    """The factor that limits a norm."""
    return limit / ops.maximum(norm, limit)
