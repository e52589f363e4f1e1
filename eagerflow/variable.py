"""Variable: a named cell that holds a Tensor; the only thing that changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, call, is_not
from typing import Any

import numpy as np

from eagerflow import display
from eagerflow.backends.numpy import unshared
from eagerflow.convert import as_tensor, number_type
from eagerflow.devices import Device, SymbolicKind
from eagerflow.dtypes import DType, is_inexact, join_scalar
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.guard import in_one_call, without_collections
from eagerflow.locks import writing
from eagerflow.op import ops
from eagerflow.recorder import Recorder, next_key, recorder_state
from eagerflow.tensor import Operators, Tensor, joining, new_tensor

_count = itertools.count()

MIN_OWNED_BYTES = 1 << 17
"""Bytes of a value from which tracking its owner is cheaper than new memory for the next one."""


class Variable(Operators):
    """A named cell holding a Tensor; it can be used in place of a Tensor.

    ``value`` is anything accepted by ``ef.tensor``; shape, dtype and device stay those of
    the first value. ``trainable`` says whether tapes watch it automatically.

    >>> w = ef.Variable([1.0, 2.0], name="w")
    >>> w.assign_add([0.5, 0.5])
    Variable([1.5, 2.5], name='w', float32, cpu:0)
    >>> float((w * 2).sum())
    8.0
    """

    __slots__ = (
        "__weakref__",
        "_current",
        "_owner",
        "aggregation",
        "constraint",
        "is_random_state",
        "name",
        "trainable",
    )

    _current: Tensor
    _owner: Tensor | None
    """The value, if it may be overwritten: it was made for this Variable alone, and no reference
    to it has been given out. A read sets this to None."""

    def __init__(
        self,
        value: Any,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
        device: Device | str | None = None,
    ) -> None:
        recorder = recorder_state()[1]
        tensor = as_tensor(value, dtype, device, copy=True)
        if recorder is not None and type(tensor._array) is not tensor._kind.array_type:
            tensor = recorder.initial(tensor)
        self.name = name or f"variable_{next(_count)}"
        self.trainable = trainable and is_inexact(tensor.dtype)
        self.is_random_state = False  # set by generators for their own
        self.aggregation = "mean"  # or "sum": of the values from replicas of a step
        self.constraint: Any = None  # applied by optimizers to a new value before assignment
        self.current = tensor
        if type(value) is np.ndarray and value.nbytes >= MIN_OWNED_BYTES:
            self._owner = self._current  # a copy without other references
        if recorder is not None:
            recorder.created(f"Variable {self.name!r}")

    @property
    def current(self) -> Tensor:
        """The Tensor held now; the read is not recorded."""
        while True:
            held = self._current
            self._owner = None
            # If a step replaces the value before its mark is removed, it may be overwritten.
            if self._current is held and not writing.thread:
                return held
            writing.wait()

    @current.setter
    def current(self, tensor: Tensor) -> None:
        made = self.own(tensor)
        self._owner = None
        self._current = made

    def own(self, tensor: Tensor) -> Tensor:
        """A Tensor of its own, whose key means "this Variable's value" to every tape."""
        if type(tensor._kind) is SymbolicKind:
            tensor._array.refuse("assign")
        made = new_tensor(unshared(tensor._array), tensor._kind)
        if self.trainable:
            made._key = next_key()
        return made

    @property
    def value(self) -> Tensor:
        """The Tensor held now."""
        recorder = recorder_state()[1]
        if recorder is not None:
            return recorder.read(self)  # type: ignore[no-any-return]
        while True:  # as in ``current``
            held = self._current
            self._owner = None
            if self._current is held and not writing.thread:
                return held
            writing.wait()

    def assign(self, value: Any) -> Variable:
        """Hold ``value``, of the same shape, from now on; ShapeError or DTypeError if not."""
        tensor = self.fitted(value)
        recorder = recorder_state()[1]
        if recorder is None:
            self.current = tensor
        else:
            recorder.assign(self, tensor)
        return self

    def fitted(self, value: Any) -> Tensor:
        """``value`` as a Tensor that this Variable can hold; ShapeError or DTypeError if not."""
        current = self._current  # only its shape and dtype matter, which never change
        same = type(value) is Tensor and value._kind is current._kind
        if same and value._array.shape == current._array.shape:
            return value  # type: ignore[no-any-return]
        kind = number_type(value)
        fits = kind is not None and join_scalar(current.dtype, kind) == current.dtype
        tensor = as_tensor(value, current.dtype if fits else None, current.device, copy=True)
        if tensor.shape != current.shape:
            raise ShapeError(
                "the value has another shape",
                op="assign",
                argument=self.name,
                received=display.summary(tensor),
                expected=display.summary(current),
            )
        if tensor.dtype != current.dtype:
            tensor = self._cast(tensor)
        return tensor

    def _cast(self, tensor: Tensor) -> Tensor:
        dtype = self._current.dtype
        if is_inexact(tensor.dtype) > is_inexact(dtype) or tensor.dtype.kind == "c" != dtype.kind:
            raise DTypeError(
                "the value would lose its fraction or its imaginary part",
                op="assign",
                argument=self.name,
                received=display.summary(tensor),
                expected=display.summary(self._current),
                hint=f"value.astype({dtype.name!r})",
            )
        return ops["astype"].call(tensor, dtype)  # type: ignore[no-any-return]

    def exchange(self, old: Tensor, new: Tensor) -> bool:
        """Hold ``new``, a result of ops, if ``old`` is still held; returns whether it was."""
        recorder = recorder_state()[1]
        return self.replace(old, new) if recorder is None else recorder.exchange(self, old, new)

    def replace(self, old: Tensor, new: Tensor) -> bool:
        """The same, without recording."""
        changed = partial(next, map(is_not, map(_held, (self,)), (old,)))
        return not replace_values((self,), (new,), (changed,))

    def assign_add(self, value: Any) -> Variable:
        """Add ``value`` to the value held."""
        return self._updated("add", value)

    def assign_sub(self, value: Any) -> Variable:
        """Subtract ``value`` from the value held."""
        return self._updated("subtract", value)

    def _updated(self, op: str, value: Any) -> Variable:
        """Hold the result of an op on the value held; repeated if it was changed meanwhile."""
        while True:
            held = self.value
            if self.exchange(held, self.fitted(ops[op].call(held, value))):
                return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""
        return self._current.shape

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._current.dtype

    @property
    def device(self) -> Device:
        """The device of the value."""
        return self._current.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._current.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._current.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._current.nbytes

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy array of the value, which later assignments do not change."""
        return self.value.numpy()

    def __repr__(self) -> str:
        return display.text(self)

    def _repr_html_(self) -> str:
        return display.html(self, "tensors")

    def __deepcopy__(self, memo: Any) -> Variable:
        found = Variable(self.current, self.name, self.trainable)
        for name, value in self._facts().items():
            setattr(found, name, value)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Variable, (self.current, self.name, self.trainable), (None, self._facts())

    def _facts(self) -> dict[str, Any]:
        """Attributes of a copy besides the value, the name and ``trainable``."""
        return {x: getattr(self, x) for x in ("aggregation", "constraint", "is_random_state")}


def may_be_random_state(held: Any) -> bool:
    """Whether a Variable or a tensor has the form of a random generator's state."""
    return bool(held.dtype == "uint64" and held.shape == (3,))


_held: Any = attrgetter("_current")


def held_together(variables: Sequence[Variable]) -> list[Tensor]:
    """A consistent read of the Tensors of Variables, for a run that has started; not recorded."""
    while True:
        held = list(map(_held, variables))
        if not writing.thread:
            return held
        writing.wait()


def read_together(variables: Sequence[Variable]) -> list[Tensor]:
    """A consistent read of the Tensors of Variables; the reads are not recorded."""
    while True:
        held: list[Tensor] = []
        calls = (
            writing.now,
            partial(held.extend, map(_held, variables)),
            partial(any, map(setattr, variables, repeat("_owner"), repeat(None))),
        )
        if not in_one_call(calls):
            return held
        writing.wait()


def replace_values(
    variables: Sequence[Variable],
    tensors: Sequence[Tensor],
    before: Iterable[Callable[[], Any]] = (),
    after: Iterable[Callable[[], Any]] = (),
    owners: Iterable[Tensor | None] | None = None,
) -> bool:
    """Give Variables new values, atomically; returns whether it was rejected.

    The Tensors are the Variables' from then on. It is rejected while another thread overwrites
    values, or if one of the calls ``before`` returns a true value: then nothing is changed. Nor is
    anything if one of these raises; after them nothing allocates memory, and so nothing can fail.
    ``owners`` has the Tensor for each Variable that is the only owner of it and its memory, else
    None; () keeps older marks, which have no meaning for other values.
    """
    for variable, tensor in zip(variables, tensors, strict=True):
        if variable.trainable:
            tensor._key = next_key()
    held = list(map(_held, variables))  # no old value is freed, and no finalizer runs, inside
    put = map(setattr, variables, repeat("_current"), tensors)
    mark: Iterable[Any] = ()
    if owners != ():
        mark = map(setattr, variables, repeat("_owner"), repeat(None) if owners is None else owners)
    begin: Iterable[Callable[[], Any]] = (writing.now, *before)
    calls = chain(map(call, begin), put, mark, map(call, after))
    refused: bool = without_collections(partial(any, calls))
    del held
    return refused


def put_together(variables: Sequence[Variable], tensors: Sequence[Tensor], *owners: Any) -> None:
    """Give Variables new values, which become theirs, atomically, by ``replace_values``."""
    while replace_values(variables, tensors, (), (), *owners):
        writing.wait()


def assign_together(values: dict[Variable, Any]) -> None:
    """Give Variables new values, atomically; raises as ``assign`` does, before any change."""
    fitted = {variable: variable.fitted(value) for variable, value in values.items()}
    watching = recorder = recorder_state()[1]
    while recorder is not None and type(recorder).assign is Recorder.assign:
        recorder = recorder.outer
    if recorder is not None and watching is not None:  # assignments are recorded
        for variable, tensor in fitted.items():
            watching.assign(variable, tensor)
        return
    put_together([*fitted], [variable.own(tensor) for variable, tensor in fitted.items()])


def _delegate(name: str) -> Any:
    def method(self: Variable, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.value, name)(*args, **kwargs)

    method.__name__ = name
    method.__doc__ = getattr(Tensor, name).__doc__
    return method


joining[Variable] = True

# Non-op attributes of Tensors that a Variable forwards to its value.
for _name in (
    "item",
    "tolist",
    "__bool__",
    "__float__",
    "__int__",
    "__complex__",
    "__index__",
    "__array__",
    "__array_namespace__",
    "__len__",
    "__iter__",
    "__contains__",
    "__format__",
):
    setattr(Variable, _name, _delegate(_name))
