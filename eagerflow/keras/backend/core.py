"""Variables, conversions and specs of results: the core of Keras's backend interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable, standardize_dtype
from keras.src.backend.common.keras_tensor import KerasTensor
from keras.src.backend.common.name_scope import name_scope as base_name_scope
from keras.src.backend.common.stateless_scope import (
    StatelessScope,
    get_stateless_scope,
    in_stateless_scope,
)
from keras.src.backend.common.symbolic_scope import SymbolicScope

import eagerflow as ef
from eagerflow.capture.guards.categories import FRAMEWORKS, LIBRARIES
from eagerflow.capture.trace import Trace
from eagerflow.dtypes import is_inexact
from eagerflow.keras.backend.control import (
    associative_scan,
    cond,
    custom_gradient,
    fori_loop,
    map,
    remat,
    scan,
    stop_gradient,
    switch,
    vectorized_map,
    while_loop,
)
from eagerflow.keras.backend.slices import scatter, scatter_update, slice, slice_update, unstack
from eagerflow.keras.backend.sparse import cast, convert_to_tensor, is_tensor
from eagerflow.keras.backend.tensors import convert_to_numpy, shape
from eagerflow.keras.sparse import SparseTensor, is_sparse
from eagerflow.recorder import prepared
from eagerflow.scopes import scope
from eagerflow.tensor import Operators, mask_of, set_mask

__all__ = [
    "IS_THREAD_SAFE",
    "SUPPORTS_COMPLEX_DTYPES",
    "SUPPORTS_RAGGED_TENSORS",
    "SUPPORTS_SPARSE_TENSORS",
    "Variable",
    "associative_scan",
    "cast",
    "compute_output_spec",
    "cond",
    "convert_to_numpy",
    "convert_to_tensor",
    "custom_gradient",
    "device_scope",
    "fori_loop",
    "is_tensor",
    "map",
    "name_scope",
    "random_seed_dtype",
    "remat",
    "scan",
    "scatter",
    "scatter_update",
    "shape",
    "slice",
    "slice_update",
    "stop_gradient",
    "switch",
    "unstack",
    "vectorized_map",
    "while_loop",
]

FRAMEWORKS.add("keras")
LIBRARIES.update(("keras", "optree"))
# Keras's attribute for masks; as masks of eagerflow they cross captured functions.
ef.Tensor._keras_mask = property(mask_of, set_mask)  # type: ignore[attr-defined]

SUPPORTS_SPARSE_TENSORS = True
SUPPORTS_RAGGED_TENSORS = False
SUPPORTS_COMPLEX_DTYPES = True
IS_THREAD_SAFE = True

FREE_SIZES = 83, 89
"""Trial values of free sizes: result sizes that differ between them are free, too."""


class Variable(KerasVariable, Operators):  # type: ignore[misc]
    """Keras's variable around an ``ef.Variable``, as tapes and captured steps expect.

    It can be used like a tensor, also in functions of eagerflow.
    """

    def _initialize(self, value: Any) -> None:
        self._value = ef.Variable(value, self.path, self._trainable, self._dtype)

    def _initialize_with_initializer(self, initializer: Any) -> None:
        def made() -> ef.Tensor:
            return convert_to_tensor(initializer(self._shape, dtype=self._dtype))

        self._initialize(prepared(made))

    def _direct_assign(self, value: Any) -> None:
        self._value.assign(value)

    def _convert_to_tensor(self, value: Any, dtype: Any = None) -> ef.Tensor:
        return convert_to_tensor(value, dtype=dtype, sparse=False)

    @property
    def eagerflow_variable(self) -> ef.Variable:
        """The source of gradients for tapes."""
        return self._value

    @property
    def value(self) -> ef.Tensor:
        """The current tensor, or its replacement in a StatelessScope."""
        found = get_stateless_scope().get_current_value(self) if in_stateless_scope() else None
        if found is None:
            if self._value is None:  # only during shape inference
                found = self._initializer(self._shape, dtype=self._dtype)
            else:
                found = self._value.value
        cast_value: ef.Tensor = self._maybe_autocast(found)
        return cast_value

    @property
    def trainable(self) -> bool:
        """Whether tapes watch it and optimizers update it."""
        return bool(self._trainable)

    @trainable.setter
    def trainable(self, value: Any) -> None:
        self._trainable = bool(value)
        if self._value is not None:
            self._value.trainable = self._trainable and is_inexact(self._value.dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.array(convert_to_numpy(self.value), dtype=dtype)


def random_seed_dtype():
    """The dtype of the state of seed generators."""
    return "uint32"


def compute_output_spec(fn, *args, **kwargs):
    """The result of ``fn`` with KerasTensors, for arguments with KerasTensors.

    No kernel runs. Free sizes (None) are evaluated with two trial values.
    """
    with StatelessScope(), SymbolicScope():
        first = _specs(fn, args, kwargs, FREE_SIZES[0])
        given = [x for x in tree.flatten((args, kwargs)) if isinstance(x, KerasTensor)]
        if not any(size is None for x in given for size in x.shape):
            return first
        second = _specs(fn, args, kwargs, FREE_SIZES[1])
        leaves = zip(tree.flatten(first), tree.flatten(second), strict=True)
        return tree.pack_sequence_as(first, [_freed(a, b) for a, b in leaves])


def _specs(fn: Callable[..., Any], args: Any, kwargs: Any, size: int) -> Any:
    """The result of ``fn``, its tensors as KerasTensors, with ``size`` for free sizes."""
    recorder = Trace("compute_output_spec", placed=True)

    def entered(x: Any) -> Any:
        if not isinstance(x, KerasTensor):
            return x
        sizes = tuple(size if n is None else n for n in x.shape)
        if x.sparse:
            value = recorder.input(ef.TensorSpec((1,), x.dtype), "values")
            place = recorder.input(ef.TensorSpec((1, len(sizes)), "int64"), "indices")
            return SparseTensor(value, place, sizes)
        return recorder.input(ef.TensorSpec(sizes, x.dtype), "input")

    def left(x: Any) -> Any:
        if is_sparse(x):
            return KerasTensor(tuple(x.shape), standardize_dtype(x.dtype), sparse=True)
        if not isinstance(x, ef.Tensor | KerasVariable | ef.Variable):
            return x
        return KerasTensor(tuple(x.shape), standardize_dtype(x.dtype))

    with recorder:
        args, kwargs = tree.map_structure(entered, (args, kwargs))
        with StatelessScope():
            found = tree.map_structure(left, fn(*args, **kwargs))
    recorder.is_open = False
    return found


def _freed(first: Any, second: Any) -> Any:
    """A spec in which the sizes that differ between two runs are free."""
    if not isinstance(first, KerasTensor):
        return first
    pairs = zip(first.shape, second.shape, strict=True)
    sizes = tuple(a if a == b else None for a, b in pairs)
    return KerasTensor(sizes, first.dtype, sparse=first.sparse)


class name_scope(base_name_scope):  # type: ignore[misc]  # noqa: N801
    """Keras's name scope, which also names the nodes of captured graphs."""

    def __enter__(self) -> name_scope:
        super().__enter__()
        self._nodes = scope(self.name) if self._pop_on_exit else None
        if self._nodes is not None:
            self._nodes.acquire()
        return self

    def __exit__(self, *args: Any, **kwargs: Any) -> None:
        super().__exit__(*args, **kwargs)
        if self._nodes is not None:
            self._nodes.release()


def device_scope(device_name):
    """A context in which tensors are created on this device, such as ``"cpu:0"`` or ``"gpu:1"``."""
    if isinstance(device_name, ef.Device):
        return ef.device(device_name)
    if not isinstance(device_name, str):
        raise ValueError(
            "Invalid value for argument `device_name`. Expected a string like 'gpu:0' or an "
            f"`ef.Device`. Received: device_name='{device_name}'"
        )
    return ef.device(device_name.lower())
