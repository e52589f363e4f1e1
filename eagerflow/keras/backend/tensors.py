"""Tensors made of Keras's values, and arrays made of tensors.

The signatures are Keras's, which compares them, so they lack annotations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable, standardize_dtype
from keras.src.backend.common.dtypes import result_type

import eagerflow as ef
from eagerflow.keras.sparse import as_sparse, dense

__all__ = ["cast", "convert_to_numpy", "convert_to_tensor", "shape", "tensors_of"]


def convert_to_tensor(x, dtype=None):
    """The tensor of a variable, an array, a sparse tensor, a number or a nested list of them.

    Python numbers get Keras's default dtype (32 bits), arrays keep theirs.
    """
    if dtype is not None:
        dtype = standardize_dtype(dtype)
    if isinstance(x, KerasVariable | ef.Variable):
        x = x.value
    if isinstance(x, ef.Tensor):
        return x if dtype is None or x.dtype.name == dtype else _converted(x, dtype)
    if isinstance(x, list | tuple) and any(_is_ours(x) for x in tree.flatten(x)):
        return _stacked(x, dtype)
    stored = as_sparse(x)
    if stored is not None:
        return convert_to_tensor(stored.to_dense(), dtype)
    array = x if hasattr(x, "__array__") or hasattr(x, "__dlpack__") else None
    if array is None and dtype is None:
        dtype = _own_dtype(x)
    if isinstance(array, np.generic):
        array = np.asarray(array)
    found: ef.Tensor = ef.asarray(x if array is None else array, dtype=dtype, copy=True)
    return found


_LIMITS = {
    name: (float(np.iinfo(name).min), float(np.iinfo(name).max))
    for name in ("int8", "uint8", "int16", "uint16")
}
"""The bounds of small integer dtypes, which ``float32`` holds exactly."""


def _converted(x: ef.Tensor, dtype: str) -> ef.Tensor:
    """A tensor in another dtype; floats beyond the range of a small integer dtype saturate, as in
    XLA.

    Keras's quantizers rely on it: C leaves such conversions undefined. A complex number is true
    if it is not 0.
    """
    if dtype == "bool" and x.dtype.name.startswith("complex"):
        nonzero: ef.Tensor = ef.not_equal(x, 0)
        return nonzero
    if dtype in _LIMITS and x.dtype.name in ("float16", "bfloat16", "float32", "float64"):
        if x.dtype.name in ("float16", "bfloat16"):
            x = ef.astype(x, "float32")
        x = ef.clip(x, *_LIMITS[dtype])
    converted: ef.Tensor = ef.astype(x, dtype)
    return converted


def _is_ours(x: Any) -> bool:
    return isinstance(x, ef.Tensor | KerasVariable | ef.Variable)


def _stacked(x: Any, dtype: Any) -> ef.Tensor:
    """A nested list with tensors in it, converted to their common dtype by Keras's rules."""
    if dtype is None:
        dtype = result_type(*(getattr(leaf, "dtype", type(leaf)) for leaf in tree.flatten(x)))
    rows = [
        _stacked(row, dtype) if isinstance(row, list | tuple) else convert_to_tensor(row, dtype)
        for row in x
    ]
    stacked: ef.Tensor = ef.stack(rows)
    return stacked


def _own_dtype(x: Any) -> str:
    """The dtype of a Python number, or of a nested list of numbers and arrays."""
    kinds = {getattr(leaf, "dtype", type(leaf)) for leaf in tree.flatten(x)}
    if kinds == {int} and any(not -(2**31) <= n < 2**31 for n in tree.flatten(x)):
        return "int64"
    found: str = result_type(*kinds)
    return found


def convert_to_numpy(x):
    """An array with a copy of the values."""
    if isinstance(x, KerasVariable | ef.Variable):
        x = x.value
    if isinstance(x, list | tuple):
        return np.array([convert_to_numpy(item) for item in x])
    return np.array(dense(x))


def shape(x):
    """The shape of a tensor."""
    return tuple(x.shape)


def cast(x, dtype):
    """``x`` as a tensor of this dtype."""
    return convert_to_tensor(x, dtype=dtype)


def tensors_of(nest: Any) -> Any:
    """A nest with tensors in place of variables, arrays and numbers; None stays None."""
    return tree.map_structure(lambda x: None if x is None else convert_to_tensor(x), nest)
