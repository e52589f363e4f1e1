"""Nests of tensors and of shapes, as arguments and results of layers."""

from __future__ import annotations

from typing import Any

from eagerflow import tree
from eagerflow.dtypes import DType
from eagerflow.nn.arguments import Nest
from eagerflow.nn.symbols import is_symbolic, symbol
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Operators

__all__ = [
    "any_symbolic",
    "examples",
    "free_batch",
    "is_nest",
    "only_numbers",
    "pack_data",
    "shapes_of",
    "symbols_of",
    "unpack_data",
]


def is_nest(shapes: Any) -> bool:
    """Whether these are shapes of several tensors."""
    return not isinstance(shapes, tuple) or not all(
        size is None or isinstance(size, int) for size in shapes
    )


def only_numbers(inputs: Nest) -> bool:
    """Whether a nest contains only Python numbers, which makes it one array."""
    if isinstance(inputs, list | tuple):
        return bool(inputs) and all(only_numbers(item) for item in inputs)
    return isinstance(inputs, int | float)


def shapes_of(nest: Nest) -> Any:
    """The shapes of the tensors of a nest; unknown sizes are None."""
    if isinstance(nest, Operators):
        return tuple([size if isinstance(size, int) else None for size in nest.shape])
    return tree.map_leaves(lambda x: shapes_of(x) if hasattr(x, "shape") else None, nest)


def symbols_of(shape: Any, dtype: DType) -> Any:
    """Symbolic tensors of a shape, or of each shape of a nest."""
    if isinstance(shape, tuple) and all(size is None or isinstance(size, int) for size in shape):
        return symbol(shape, dtype, "inputs")
    items = {
        key: symbols_of(item, dtype)
        for key, item in dict(shape if isinstance(shape, dict) else enumerate(shape)).items()
    }
    return items if isinstance(shape, dict) else type(shape)(items.values())


def free_batch(nest: Nest) -> Any:
    """Descriptions of the tensors of a nest with any number of examples; other leaves as is."""

    def described(leaf: Any) -> Any:
        if not hasattr(leaf, "shape"):
            return leaf
        return TensorSpec(("batch", *leaf.shape[1:]) if leaf.shape else (), leaf.dtype)

    return tree.map_leaves(described, nest)


def any_symbolic(*nests: Any) -> bool:
    """Whether one of the tensors in these nests is symbolic."""
    for nest in nests:
        if isinstance(nest, list | tuple | dict):
            if any(is_symbolic(x) for x in tree.flatten(nest)[0]):
                return True
        elif is_symbolic(nest):
            return True
    return False


def examples(nest: Nest) -> float:
    """The number of examples in a nest of tensors, along their first axes."""
    size: float = tree.flatten(nest)[0][0].shape[0]
    return size if not isinstance(size, int) else float(size)


def pack_data(x: Nest, y: Nest = None, sample_weight: Nest = None) -> Any:
    """A batch as steps of training take it: ``x``, ``(x, y)`` or ``(x, y, sample_weight)``."""
    if sample_weight is not None:
        return x, y, sample_weight
    if y is not None:
        return x, y
    return (x,) if isinstance(x, tuple) else x


def unpack_data(data: Any) -> tuple[Any, Any, Any]:
    """Inputs, targets and weights of a batch; None for missing ones."""
    if not isinstance(data, tuple):
        return data, None, None
    x, y, sample_weight = (*data, None, None)[:3]
    return x, y, sample_weight
