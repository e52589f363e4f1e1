"""Masks: the valid steps of sequences, attached to the tensors that layers pass on.

A layer such as ``Embedding(mask_zero=True)`` gives its output a mask, later layers propagate it,
and those that work along the steps apply it. The result of an op has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow import ops, tree
from eagerflow.dtypes import DType
from eagerflow.nn.layer_graph import call_of
from eagerflow.nn.symbols import is_symbolic
from eagerflow.tensor import Tensor, known_masks
from eagerflow.tensor import mask_of as own_mask_of
from eagerflow.tensor import set_mask as set_own_mask

__all__ = [
    "give_masks",
    "hidden_score",
    "known_masks",
    "mask_of",
    "masks_of",
    "set_mask",
    "spread",
    "with_masks",
]


def set_mask(tensor: Any, mask: Any) -> None:
    """Give a tensor this mask, bools of its first axes; None removes its mask.

    The mask of a symbolic tensor is stored with the call of its layer.
    """
    if is_symbolic(tensor):
        call_of(tensor).masks[tensor._array.index] = mask
    else:
        set_own_mask(tensor, mask)


def mask_of(tensor: Any) -> Any:
    """The mask of a tensor, or None.

    >>> from eagerflow.nn.masks import mask_of
    >>> mask_of(ef.nn.Embedding(3, 1, mask_zero=True)([[1, 0]]))
    Tensor([[ True, False]], shape=(1, 2), bool, cpu:0)
    """
    if is_symbolic(tensor):
        call = call_of(tensor)
        return None if call is None else call.masks.get(tensor._array.index)
    return own_mask_of(tensor)


def masks_of(nest: Any) -> Any:
    """The masks of the tensors of a nest, or None if no tensor has one."""
    if isinstance(nest, Tensor):
        return mask_of(nest)
    found = tree.map_leaves(mask_of, nest)
    return found if any(mask is not None for mask in tree.flatten(found)[0]) else None


def give_masks(outputs: Any, masks: Any) -> None:
    """Give each tensor of ``outputs`` its mask; a single mask applies to the first."""
    if masks is None:
        return
    leaves = tree.flatten(outputs)[0]
    for leaf, mask in zip(leaves, tree.flatten(masks)[0], strict=False):
        set_mask(leaf, mask)


def spread(mask: Any, rank: int) -> Any:
    """A mask of the first axes of a tensor with this ``rank``, with axes of size 1 appended."""
    return ops.reshape(mask, (*mask.shape, *(1,) * (rank - len(mask.shape))))


def hidden_score(dtype: DType) -> float:
    """The score of masked elements, before a softmax.

    It is finite: if all elements are masked, the softmax gives equal weights, and not NaN.
    """
    return -3e4 if dtype.name == "float16" else -1e9


def with_masks(names: Sequence[str], given: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """The named arguments of a call, completed by the masks of tensors.

    ``names`` are the accepted arguments, the first of which are ``given``. ``mask`` is that of the
    first, ``query_mask`` that of ``query``.
    """
    found = dict(zip(names, given, strict=False)) | named
    wanted = {f"{name}_mask": name for name in names} | {"mask": names[0] if names else ""}
    for label, name in wanted.items():
        if label in names and found.get(label) is None:
            masks = masks_of(found.get(name))
            if masks is not None:
                named = named | {label: masks}
    return named
