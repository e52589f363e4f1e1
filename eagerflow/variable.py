"""Variable: a named cell that holds a Tensor; the only thing that changes."""

from __future__ import annotations

import itertools
import threading
from time import sleep
from typing import Any

from eagerflow import display
from eagerflow.convert import as_tensor
from eagerflow.devices import Device
from eagerflow.dtypes import DType, is_inexact
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.op import ops
from eagerflow.recorder import next_key, now
from eagerflow.tensor import Operators, Tensor, new_tensor

__all__ = ["Variable", "may_be_random_state"]

_count = itertools.count()
_taking = threading.Lock()


class Variable(Operators):
    """A named cell holding a Tensor; it stands wherever a Tensor can.

    ``value`` is anything that ``ef.tensor`` takes; shape, dtype and device stay those of
    the first value. ``trainable`` says whether tapes watch it by themselves.

    >>> w = ef.Variable([1.0, 2.0], name="w")
    >>> w.assign_add([0.5, 0.5])
    Variable([1.5, 2.5], name='w', float32, cpu:0)
    >>> float((w * 2).sum())
    8.0
    """

    __slots__ = ("__weakref__", "_current", "is_random_state", "name", "trainable")

    _current: Tensor | None  # None while a plan writes the new value over the old one

    def __init__(
        self,
        value: Any,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
        device: Any = None,
    ) -> None:
        recorder = now()[1]
        tensor = as_tensor(value, dtype, device, copy=True)
        if recorder is not None and type(tensor._array) is not tensor._kind.array_type:
            tensor = recorder.initial(tensor)
        self.name = name or f"variable_{next(_count)}"
        self.trainable = trainable and is_inexact(tensor.dtype)
        self.is_random_state = False  # a generator says so of its own
        self.current = tensor
        if recorder is not None:
            recorder.created(f"Variable {self.name!r}")

    @property
    def current(self) -> Tensor:
        """The Tensor held now, which no recorder hears of."""
        held = self._current
        return self._awaited() if held is None else held

    @current.setter
    def current(self, tensor: Tensor) -> None:
        # A Tensor of its own, so that its key means "this Variable's value" to every tape.
        self._current = held = new_tensor(tensor._array, tensor._kind)
        if self.trainable:
            held._key = next_key()

    def lend(self) -> Tensor:
        """The Tensor held now, which nobody else can read until it is given back or replaced."""
        while True:
            with _taking:
                held = self._current
                if held is not None:
                    self._current = None
                    return held
            self._awaited()

    def give_back(self, tensor: Tensor) -> None:
        """End what ``lend`` began."""
        self._current = tensor

    def _awaited(self) -> Tensor:
        while (held := self._current) is None:
            sleep(1e-4)
        return held

    @property
    def value(self) -> Tensor:
        """The Tensor held now."""
        recorder = now()[1]
        if recorder is None:
            held = self._current
            return self._awaited() if held is None else held
        tensor: Tensor = recorder.read(self)
        return tensor

    def assign(self, value: Any) -> Variable:
        """Hold ``value``, of the same shape, from now on; ShapeError or DTypeError if not."""
        current = self.current
        tensor = as_tensor(value, None, current.device, copy=True)
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
        recorder = now()[1]
        if recorder is None:
            self.current = tensor
        else:
            recorder.assign(self, tensor)
        return self

    def _cast(self, tensor: Tensor) -> Tensor:
        dtype = self.current.dtype
        if is_inexact(tensor.dtype) > is_inexact(dtype) or tensor.dtype.kind == "c" != dtype.kind:
            raise DTypeError(
                "the value would lose its fraction or its imaginary part",
                op="assign",
                argument=self.name,
                received=display.summary(tensor),
                expected=display.summary(self.current),
                hint=f"value.astype({dtype.name!r})",
            )
        cast: Tensor = ops["astype"].call(tensor, dtype)
        return cast

    def assign_add(self, value: Any) -> Variable:
        """Add ``value`` to the value held."""
        return self.assign(ops["add"].call(self.value, value))

    def assign_sub(self, value: Any) -> Variable:
        """Subtract ``value`` from the value held."""
        return self.assign(ops["subtract"].call(self.value, value))

    @property
    def shape(self) -> tuple[Any, ...]:
        """Size of each axis."""
        return self.current.shape

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self.current.dtype

    @property
    def device(self) -> Device:
        """Where the value is."""
        return self.current.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.current.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.current.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.current.nbytes

    def numpy(self) -> Any:
        """A NumPy array of the value, which later assignments do not change."""
        return self.value.numpy()

    def __repr__(self) -> str:
        return display.text(self)

    def _repr_html_(self) -> str:
        return display.html(self)

    def __deepcopy__(self, memo: Any) -> Variable:
        found = Variable(self.current, self.name, self.trainable)
        found.is_random_state = self.is_random_state
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        state = (None, {"is_random_state": True}) if self.is_random_state else None
        return Variable, (self.current, self.name, self.trainable), state


def may_be_random_state(held: Any) -> bool:
    """Whether a Variable or a tensor has the form of a random generator's state."""
    return bool(held.dtype == "uint64" and held.shape == (3,))


def _delegate(name: str) -> Any:
    def method(self: Variable, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.value, name)(*args, **kwargs)

    method.__name__ = name
    method.__doc__ = getattr(Tensor, name).__doc__
    return method


# What a Tensor can do besides ops, a Variable does with its value.
for _name in (
    "item", "tolist", "__bool__", "__float__", "__int__", "__complex__", "__index__",
    "__array__", "__array_ufunc__", "__array_function__", "__array_namespace__", "__dlpack__",
    "__dlpack_device__", "__len__", "__iter__", "__contains__", "__format__",
):  # fmt: skip
    setattr(Variable, _name, _delegate(_name))
