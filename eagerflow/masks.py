"""Masks: which steps of sequences count, stored beside the tensors that layers pass on.

Results of ops have none. At boundaries, such as captured functions, graphs' files or
other tasks, a tensor with a mask becomes two leaves of a nest (``opened``), and one tensor with
its mask again when the nest is rebuilt; so a mask is an ordinary input or output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from eagerflow import tree
from eagerflow.tensor import Tensor, known_masks, mask_of, new_tensor, set_mask

T = TypeVar("T")

MASKED_KEYS = ("", "mask")  # the tensor keeps its name, as if it had no mask


class Masked(NamedTuple):
    """A tensor and its mask as leaves of a nest; the rebuilt nest has the tensor with its mask."""

    values: Any
    mask: Any


def has_masks(nest: Any) -> bool:
    """Whether a tensor of the nest has a mask."""
    return bool(known_masks) and any(id(x) in known_masks for x in tree.flatten(nest)[0])


def opened(nest: T) -> T:
    """The nest with a ``Masked`` in place of each tensor that has a mask."""
    if not has_masks(nest):
        return nest
    found: T = tree.map_leaves(lambda x: Masked(x, m) if (m := mask_of(x)) is not None else x, nest)
    return found


def keeping_mask(old: Any, new: Tensor) -> Tensor:
    """The tensor ``new``, which has the value of ``old``, with its mask."""
    mask = mask_of(old)
    if mask is not None:
        set_mask(new, mask)
    return new


def are_masks(structure: tree.Structure) -> list[bool]:
    """Flags of the leaves of an opened nest that are masks: each follows its tensor."""
    if structure.container is None:
        return [False]
    found = [is_mask for child in structure.children for is_mask in are_masks(child)]
    return [False, True] if structure.container is Masked else found


def masks_among(leaves: Sequence[Any], structure: tree.Structure | None) -> dict[Any, Any]:
    """The masks among the leaves of an opened nest, by their tensors."""
    hidden = [] if structure is None else are_masks(structure)
    return {leaves[i - 1]: leaves[i] for i, is_mask in enumerate(hidden) if is_mask}


def masks_of_inputs(graph: Any) -> dict[Any, Any]:
    """The inputs of a graph that are masks, by their tensors' inputs.

    The arguments' structure decides; names do if it is not known, as for a part of a graph.
    """
    inputs, structure = graph.inputs, graph.argument_structure
    hidden = [] if structure is None else are_masks(structure)
    if len(hidden) == len(inputs) or (structure is not None and not any(hidden)):
        return {inputs[i - 1]: inputs[i] for i, is_mask in enumerate(hidden) if is_mask}
    named = dict(zip(inputs.names, inputs, strict=True))
    pairs = [(x, named.get(f"{name}_mask")) for name, x in named.items()]
    return {x: mask for x, mask in pairs if mask is not None and mask.dtype == "bool"}


def with_mask(values: Any, mask: Any) -> Any:
    """A tensor with this mask; other objects are unchanged."""
    if id(values) in known_masks:  # one value under two masks is two tensors
        again = new_tensor(values._array, values._kind)
        again._key = values._key
        values = again
    set_mask(values, mask)
    return values


tree.register(Masked, lambda pair: (MASKED_KEYS, pair), lambda _, items: with_mask(*items))
