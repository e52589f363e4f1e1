"""Tensor: an immutable value on one device.

The methods and operators that compute are the ops themselves: each op attaches itself to
``Operators`` when it is defined (see ``ops/family.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

import numpy as np

from eagerflow import display, tree
from eagerflow.devices import Device, Kind, as_device
from eagerflow.dtypes import DType
from eagerflow.errors import CaptureError, DTypeError, EagerflowError, NoAxesError, ShapeError
from eagerflow.op import ops
from eagerflow.recorder import recorder_state

if TYPE_CHECKING:
    from eagerflow.tensor_methods import Methods  # what the ops attach
else:
    Methods = object


class _Tidy(type):
    """A metaclass with a ``__dir__`` of its own: see ops/absent.py."""


class Operators(Methods, metaclass=_Tidy):
    """Common base of Tensors and Variables; the ops attach their methods here."""

    __slots__ = ()

    if not TYPE_CHECKING:  # so that checkers of types refuse it as well

        def __setitem__(self, key: Any, value: Any, /) -> NoReturn:
            raise DTypeError(
                "tensors cannot be changed in place",
                op=f"{type(self).__name__}.__setitem__",
                hint="y = x.at[index].set(value), or .add, .min ...; variable.assign(y)",
            )

        def __delitem__(self, key: Any, /) -> NoReturn:
            self.__setitem__(key, None)

    __hash__ = object.__hash__


class _Refusing(_Tidy):
    """A metaclass of classes that cannot be called, as functions make their objects."""

    def __call__(cls, *args: object, **named: object) -> NoReturn:
        hint = "ef.tensor(values) or ef.asarray(array)"
        raise DTypeError(f"{cls.__name__} is not called", hint=hint)


class Tensor(Operators, metaclass=_Refusing):
    """An immutable array on one device; made by ``ef.tensor``, ``ef.asarray`` and all ops.

    >>> t = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> t.shape, t.dtype, str(t.device)
    ((2, 2), dtype('float32'), 'cpu:0')
    >>> float((t @ t).sum())
    54.0
    """

    __slots__ = ("__weakref__", "_array", "_key", "_kind")

    _array: Any  # an array of the device's backend, or a recorder's own symbol
    _kind: Kind
    _key: int | None  # identifies the value in tapes, once one has recorded it

    def __hash__(self) -> int:
        """By identity; CaptureError for an argument of a function that is being traced."""
        if type(self._array) is not self._kind.array_type:
            getattr(self._array, "hashed", int)()
        return object.__hash__(self)

    # Facts without the values --------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""
        return self._array.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._kind.dtype

    @property
    def device(self) -> Device:
        """Where the values are."""
        return self._kind.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._array.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self._kind.dtype.itemsize

    # Leaving eagerflow -----------------------------------------------------------------

    def _leave(self, how: str) -> Any:
        array = self._array
        if type(array) is not self._kind.array_type:
            array.refuse(how)
        if self._key is not None and (recorder := recorder_state()[1]) is not None:
            recorder.leave(self, how)
        return array

    def _values(self, how: str) -> np.ndarray[Any, Any]:
        array = self._leave(how)
        values: np.ndarray[Any, Any] = self._kind.device.backend.to_numpy(array)
        return values

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values as a NumPy array: a read-only view if the memory is shared."""
        view = self._values("numpy()")
        view.flags.writeable = False
        return view

    def item(self) -> Any:
        """The one element as a Python number; ShapeError if there are more or none."""
        return self._single("item()").item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return self._values("tolist()").tolist()

    def _single(self, how: str) -> np.ndarray[Any, Any]:
        if self.size != 1:
            raise ShapeError(
                f"{how} needs a tensor of one element",
                received=display.summary(self),
                hint="reduce it first, or use .numpy()",
            )
        return self._values(how)

    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise ShapeError(
                "the truth of a tensor with more than one element, or none, is not defined",
                op="bool",
                received=display.summary(self),
                hint="ef.any(x), ef.all(x), or ef.where(condition, a, b) element by element",
            )
        return bool(self._values("bool()").item())

    def __float__(self) -> float:
        return float(self._single("float()").item())

    def __int__(self) -> int:
        return int(self._single("int()").item())

    def __complex__(self) -> complex:
        return complex(self._single("complex()").item())

    def __index__(self) -> int:
        if self.ndim or self._kind.dtype.kind not in "iu":
            raise DTypeError(
                "only an integer tensor without axes can be an index of a Python sequence",
                received=display.summary(self),
            )
        return int(self._single("__index__").item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        values = self._values("np.asarray()")
        if dtype is not None and np.dtype(dtype) != values.dtype:
            if copy is False:
                raise DTypeError("a change of dtype needs a copy", received=display.summary(self))
            return values.astype(dtype)
        if copy:
            return values.copy()
        values.flags.writeable = False
        return values

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2022.12", "2023.12", "2024.12", "2025.12"):
            raise EagerflowError(f"Array API version {api_version!r} is not known")
        return array_namespace()

    # Python's protocols ------------------------------------------------------------------

    def __len__(self) -> int:
        if not self._array.shape:
            raise NoAxesError("a tensor without axes has no length", op="len")
        return int(self._array.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if not self._array.shape:
            raise NoAxesError("a tensor without axes cannot be iterated over", op="iter")
        if type(self._array) is not self._kind.array_type and not isinstance(self.shape[0], int):
            self._array.refuse("iteration")
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        if item is None or isinstance(item, str | bytes):
            return False
        return bool(ops["equal"].call(self, item).any())

    def __repr__(self) -> str:
        return display.text(self)

    def _repr_html_(self) -> str:
        return display.html(self, "tensors")

    def __format__(self, form: str) -> str:
        if form and self.size == 1:
            return format(self._values("a format").item(), form)
        if form:
            raise ShapeError(
                f"the format {form!r} is for one element", received=display.summary(self)
            )
        return str(self)

    def __copy__(self) -> Tensor:
        return self  # immutable

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        values = np.array(self._values("pickle"))
        return _rebuild, (values, str(self._kind.device), mask_of(self))


tree.LEAVES.update({Tensor, np.ndarray})
blank: Callable[[], Tensor] = type.__call__.__get__(Tensor)  # faster than object.__new__
"""Makes an empty Tensor."""


def new_tensor(array: Any, kind: Kind) -> Tensor:
    """A Tensor around an array of the kind's device; nothing is copied."""
    tensor = blank()
    tensor._array = array
    tensor._kind = kind
    tensor._key = None
    return tensor


def _rebuild(values: np.ndarray[Any, Any], place: str, mask: Any = None) -> Tensor:
    device = as_device(place)
    dtype: DType = values.dtype
    made = new_tensor(device.backend.asarray(values, dtype, device.index), device.kind(dtype))
    set_mask(made, mask)
    return made


# Masks, kept beside tensors; see masks.py --------------------------------------------------------

known_masks: dict[int, tuple[ref[Tensor], Any]] = {}
"""All masks, by the ids of their tensors; dropped with them."""


def set_mask(tensor: Any, mask: Any) -> None:
    """Set the mask of a tensor, bools of its first axes; None removes it."""
    key, pop = id(tensor), known_masks.pop  # at process exit the module's name is gone
    if mask is None:
        pop(key, None)
    elif type(tensor) is Tensor:
        known_masks[key] = ref(tensor, lambda _: pop(key, None)), mask


def mask_of(tensor: Any) -> Any:
    """The mask of a tensor, or None."""
    found = known_masks.get(id(tensor)) if known_masks else None
    return None if found is None else found[1]  # dropped with its tensor, so the id is not reused


_namespace: list[Any] = []


def set_namespace(module: Any) -> None:
    """Set the module that holds the ops; called once by the package."""
    _namespace[:] = [module]


def array_namespace() -> Any:
    """The module that holds the ops under the names of the Array API standard."""
    return _namespace[0]


class _Joining(dict[type, bool]):
    """Whether values of a class join an operation with a tensor, or handle it themselves.

    As in NumPy, they handle it if they disable array ufuncs, or have a higher
    priority; mere arrays, which DLPack exchanges, are treated as tensors.
    """

    def __missing__(self, cls: type) -> bool:
        if issubclass(cls, Operators):
            return True
        if getattr(cls, "__array_ufunc__", cls) is None:
            return False
        if hasattr(cls, "__dlpack__") and not issubclass(cls, np.ndarray):
            return True
        priority = getattr(cls, "__array_priority__", 0)
        return not (isinstance(priority, int | float) and priority > 0)  # NumPy's: a property


# Only permanent classes are kept.
joining = _Joining.fromkeys(
    (Tensor, np.ndarray, *np.sctypeDict.values(), bool, int, float, complex, list, tuple), True
)


def refuse_symbol(how: str, what: str) -> NoReturn:
    """Raise the error for code that needs a value while only its spec is known."""
    raise CaptureError(
        f"{how} needs the value of a tensor, and {what}",
        hint="an op instead: ef.where, ef.cond, ef.while_loop",
    )
