"""Prefix scans of an associative function, in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import CaptureError, ShapeError
from eagerflow.ops.shapes.joining import concat, stack
from eagerflow.ops.shapes.padding import flip
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.spec import normalize_axis

__all__ = ["associative_scan"]

Leaves = list[Any]


def associative_scan(
    f: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Running results of an associative function along an axis, as ``jax.lax.associative_scan``.

    ``elems`` is a tensor, or a nest of tensors, of one size along ``axis``. ``f(a, b)`` takes two
    such nests, parts of ``elems`` along the axis, and combines each entry of ``a`` with the later
    one of ``b``; it has to be associative, and returns a nest of the same shapes. The result has
    the nest and shapes of ``elems``: entry i combines entries 0 to i, or with ``reverse`` entries i
    to the last, later ones first. ``f`` is called about 2 log2(n) times for n entries, each on many
    of them. Raises ShapeError where sizes differ, CaptureError where the size is not known. Source:
    Blelloch, Prefix sums and their applications, 1990.

    >>> ef.associative_scan(ef.multiply, ef.tensor([1.0, 2.0, 3.0, 4.0]))
    Tensor([ 1.,  2.,  6., 24.], float32, cpu:0)
    """
    leaves, structure = tree.flatten(elems)
    tensors = [as_tensor(leaf) for leaf in leaves]
    if not tensors:
        return elems
    axes = [normalize_axis(axis, x.ndim) for x in tensors]
    _check_sizes([x.shape[at] for x, at in zip(tensors, axes, strict=True)], tensors)

    def join(a: Leaves, b: Leaves) -> Leaves:
        found = tree.flatten(f(tree.unflatten(structure, a), tree.unflatten(structure, b)))
        _check_results(found[0], a, found[1] == structure)
        return found[0]

    def turned(xs: Leaves) -> Leaves:
        return [flip(x, axis=at) for x, at in zip(xs, axes, strict=True)] if reverse else xs

    return tree.unflatten(structure, turned(_scanned(join, turned(tensors), axes)))


def _scanned(join: Callable[[Leaves, Leaves], Leaves], xs: Leaves, axes: list[int]) -> Leaves:
    """Pairs are combined; their scan gives the odd entries, from which the even ones follow."""
    size = xs[0].shape[axes[0]]
    if size < 2:
        return xs

    def part(xs: Leaves, start: int | None, stop: int | None, step: int | None = None) -> Leaves:
        whole = slice(None)
        return [
            x[(*(whole,) * at, slice(start, stop, step))] for x, at in zip(xs, axes, strict=True)
        ]

    odd = _scanned(join, join(part(xs, 0, size - size % 2, 2), part(xs, 1, None, 2)), axes)
    even = part(xs, 0, 1)
    if size > 2:
        later = join(part(odd, 0, (size - 1) // 2), part(xs, 2, None, 2))
        even = [concat([x, y], axis=at) for x, y, at in zip(even, later, axes, strict=True)]
    found = []
    for x, y, at in zip(part(even, 0, size // 2), odd, axes, strict=True):
        pair = stack([x, y], axis=at + 1)
        found.append(reshape(pair, (*x.shape[:at], size - size % 2, *x.shape[at + 1 :])))
    if size % 2:
        last = part(even, size // 2, None)
        found = [concat([x, y], axis=at) for x, y, at in zip(found, last, axes, strict=True)]
    return found


def _check_sizes(sizes: list[Any], tensors: Leaves) -> None:
    if any(size != sizes[0] for size in sizes):
        raise ShapeError(
            "the sizes along the axis differ",
            op="associative_scan",
            argument="elems",
            received=", ".join([summary(x) for x in tensors]),
            expected="one size",
        )
    if not isinstance(sizes[0], int):
        raise CaptureError(
            f"how many entries there are is not known: {sizes[0]}",
            op="associative_scan",
            argument="elems",
            expected="a size along the axis that is a number",
            hint="ef.scan takes one step for each entry, however many there are",
        )


def _check_results(found: Leaves, given: Leaves, same: bool) -> None:
    if not same or any(x.shape != y.shape for x, y in zip(found, given, strict=True)):
        raise ShapeError(
            "the function gives another nest or other shapes than it takes",
            op="associative_scan",
            argument="f",
            received=", ".join([summary(x) for x in found]),
            expected=", ".join([summary(x) for x in given]),
        )
