"""Arguments of calls of captured functions: their leaves, and what tells signatures apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.capture.guards.lookup import method_of
from eagerflow.capture.history import NUMBERS
from eagerflow.capture.trace import wide_dtype
from eagerflow.convert import as_tensor, from_array
from eagerflow.devices import Device, current_device
from eagerflow.dims import Dim
from eagerflow.dtypes import STANDARD
from eagerflow.number import WIDE
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor

PLAIN = frozenset({bool, np.bool_, str, bytes, type(None)})


class BoundArguments(NamedTuple):
    """The arguments of one call, including defaults of omitted ones, and all their leaves."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    structure: tree.Structure
    literal: bool = False
    """Whether numbers are constants, as no graph for symbolic numbers is valid for them."""
    omitted: frozenset[str] = frozenset()
    """Omitted arguments with numbers in their defaults: these numbers are constants
    as well."""
    specs: tuple[TensorSpec | None, ...] | None = None
    """Of the leaves, with names for sizes that are free by themselves."""


def is_ready(x: Any) -> bool:
    """Whether a plan can read an argument directly: kernels need native byte order."""
    return type(x) is Tensor or (type(x) is np.ndarray and x.dtype.isnative)


def kind_of_array(dtype: Any, device: Device) -> Any:
    """The kind of the tensor that stands for an array in the graph, which tensors have as well."""
    if not dtype.isnative or (dtype.kind not in "biufc" and dtype not in STANDARD):
        return dtype
    return device.kind(dtype)


def home_of(leaves: list[Any]) -> Device:
    """The device of the first tensor, on which arrays among the arguments are as well."""
    for x in leaves:
        if type(x) is Tensor:
            return x._kind.device
    return current_device()


def spec_of(x: Any, shape: Sequence[Any], home: Device) -> TensorSpec:
    """The spec of a tensor or array in a graph for this device, with this shape."""
    other = type(x) is Tensor and x.device is not home
    return TensorSpec(shape, x.dtype, None, x.device if other else None)


def as_input(x: Any) -> Tensor:
    """A tensor as it is, or one made of an array or number, of full precision and native order."""
    if type(x) is Tensor:  # kept as it lies in memory, which affects rounding in NumPy
        return x
    if type(x) in WIDE:
        return from_array(np.array(x, WIDE[type(x)]), current_device())
    return as_tensor(x, wide_dtype(x) if type(x) in NUMBERS else None, copy=True)


def callee_of(f: Any) -> Any:
    """The function that a method or an object with ``__call__`` runs; others unchanged."""
    f = getattr(f, "__func__", f)
    own = None if isinstance(f, FunctionType | type) else method_of(f, "__call__")
    return f if own is None else own


def is_ours(f: Any) -> bool:
    """Whether a function is defined in eagerflow, as the training step of ``fit``."""
    return str(getattr(f, "__module__", "")).startswith("eagerflow.")


def is_own(f: Any) -> bool:
    """Whether this is a public function of eagerflow.

    Number arguments of those are axes, sizes and other attributes, and each has its own graph.
    """
    while isinstance(f, partial):
        f = f.func
    if not isinstance(f, FunctionType) or not is_ours(f):
        return False
    return getattr(sys.modules.get(f.__module__), f.__name__, None) is f


def wrapped_in(f: Any) -> list[Any]:
    """The objects that determine the signature of a ``functools.partial`` or a wrapper."""
    found: list[Any] = []
    inner = f.func if isinstance(f, partial) else getattr(f, "__wrapped__", None)
    if isinstance(f, partial):
        found += [*f.args, *f.keywords, *f.keywords.values()]
    if inner is not None:
        inner = callee_of(inner)
        more = getattr(inner, "__kwdefaults__", None) or {}
        found += [inner, getattr(inner, "__defaults__", None), *more, *more.values()]
        found += wrapped_in(inner)
    return found


def is_steady(default: Any) -> bool:
    """Whether a default contains no list or dict, which may be changed in place."""
    waiting = [tree.flatten(default)[1]]
    for structure in waiting:
        if structure.container is not None and not issubclass(structure.container, tuple):
            return False
        waiting += structure.children
    return True


def place_of_change(own: Any, changed_at: dict[int, str]) -> str | None:
    """Where a list or dict among arguments was changed; None if unknown."""
    found = changed_at.get(id(own))
    if found is None and isinstance(own, list | tuple | dict):
        parts = own.values() if isinstance(own, dict) else own
        found = next(filter(None, (place_of_change(p, changed_at) for p in parts)), None)
    return found


def by_identity(x: Any) -> bool:
    """Whether an argument other than a tensor is identified by object, not by value."""
    if type(x) in PLAIN or type(x) in NUMBERS or isinstance(x, np.dtype | Dim | TensorSpec):
        return False
    return not isinstance(x, np.ndarray | np.generic | Tensor)


def identity(x: Any) -> Any:
    """The key of an object in a signature: plain values themselves, others by identity."""
    cls = type(x)
    if cls in PLAIN or cls in NUMBERS:
        return cls, x if cls in PLAIN or cls is int else repr(x)
    return (cls, id(x)) if by_identity(x) else x


def spec_key(x: Any) -> Any:
    """A leaf in the key of a graph asked for by specs, which may be unnamed."""
    return (x.shape, x.dtype) if isinstance(x, TensorSpec) else x
