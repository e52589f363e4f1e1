"""Methods of Tensors and Variables that NumPy's arrays have, with NumPy's arguments.

Most ops attach their methods themselves; here are those whose op takes other arguments, or has
another name. Methods that work in place in NumPy (``sort``) return a new tensor: tensors are
immutable.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from eagerflow.convert import SCALARS, as_tensor
from eagerflow.devices import as_device
from eagerflow.dlpack import capsule_of
from eagerflow.dtypes import INEXACT
from eagerflow.errors import ArgumentError, DeviceError, short_repr
from eagerflow.ops.creation.cast import astype, own_value, to_device
from eagerflow.ops.elementwise.arithmetic import abs, divide, floor_divide, multiply, remainder
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.elementwise.rounding import round
from eagerflow.ops.elementwise.selection import clip
from eagerflow.ops.indexing.scattering import nonzero
from eagerflow.ops.keywords import check_same
from eagerflow.ops.late import load
from eagerflow.ops.linear_algebra.contraction import matmul, tensordot
from eagerflow.ops.reductions.cumulative import cumulative_prod, cumulative_sum
from eagerflow.ops.reductions.sorting import argsort, searchsorted, sort
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.shapes.diagonals import diagonal
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.recorder import recorder_state
from eagerflow.tensor import Operators, Tensor

__all__: list[str] = []

_MAX_DECIMALS = 300  # powers of ten up to there are finite in float64


def _astype(
    self: Any,
    dtype: Any,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: bool = True,
) -> Tensor:
    """The tensor in another dtype; fractions are cut off, integers wrap around."""
    if order != "K" or casting != "unsafe":
        check_same("astype", order=order, casting=casting)
    return self if not copy and self.dtype == dtype else astype(self, dtype)


def _copy(self: Any, order: str = "C") -> Tensor:
    """A tensor of the same values; since tensors do not change, it may be the same one."""
    if order != "C":
        check_same("copy", order=order)
    return own_value(as_tensor(self))


@wraps(sort)
def _sort(self: Any, /, *args: Any, **named: Any) -> Tensor:
    recorder = recorder_state()[1]
    if recorder is not None:
        recorder.changing(self)
    return sort(self, *args, **named)


def _cumprod(self: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Tensor:
    """Cumulative products along an axis; None: of the flattened tensor."""
    if out is not None:
        check_same("cumprod", out=out)
    x, axis = (reshape(self, (-1,)), 0) if axis is None else (self, axis)
    return cumulative_prod(x, axis=axis, dtype=dtype)


def _cumsum(self: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Tensor:
    """Cumulative sums along an axis; None: of the flattened tensor."""
    if out is not None:
        check_same("cumsum", out=out)
    x, axis = (reshape(self, (-1,)), 0) if axis is None else (self, axis)
    return cumulative_sum(x, axis=axis, dtype=dtype)


def _diagonal(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonals of the matrices in two axes: by default, as in NumPy, the first two."""
    return diagonal(self, offset, axis1, axis2)


def _divmod(self: Any, other: Any) -> tuple[Tensor, Tensor]:
    """Quotients rounded down, and the remainders."""
    return floor_divide(self, other), remainder(self, other)


def _divided_by(self: Any, other: Any) -> tuple[Tensor, Tensor]:
    """``_divmod`` of a number by the tensor."""
    return floor_divide(other, self), remainder(other, self)


def _dot(self: Any, other: Any, out: None = None) -> Tensor:
    """Sums of products over the last axis and the last but one of ``other`` (or its only one)."""
    if out is not None:
        check_same("dot", out=out)
    if type(other) not in SCALARS and not isinstance(other, Operators):
        other = as_tensor(other, device=self.device)
    if type(other) in SCALARS or self.ndim == 0 or other.ndim == 0:
        return multiply(self, other)
    if other.ndim <= 2:
        return matmul(self, other)
    return tensordot(self, other, axes=((self.ndim - 1,), (other.ndim - 2,)))


def _itemsize(self: Any) -> int:
    """Bytes of one element."""
    size: int = self.dtype.itemsize
    return size


def _ravel(self: Any, order: str = "C") -> Tensor:
    """The same values along one axis, in row-major order."""
    if order != "C":
        check_same("ravel", order=order)
    return reshape(self, (-1,))


def _round(self: Any, decimals: int = 0, out: None = None) -> Tensor:
    """Each element rounded, half to even, to decimals (negative: to tens, hundreds, ...)."""
    if out is not None:
        check_same("round", out=out)
    if isinstance(decimals, bool) or not isinstance(decimals, int):
        _refuse_decimals(decimals, "an integer")
    if decimals == 0 or (decimals > 0 and self.dtype not in INEXACT):
        return round(self)
    if self.dtype not in INEXACT:
        _refuse_decimals(decimals, f"an integer from 0 on for {self.dtype.name}")
    if not -_MAX_DECIMALS <= decimals <= _MAX_DECIMALS:
        _refuse_decimals(decimals, f"an integer from {-_MAX_DECIMALS} to {_MAX_DECIMALS}")
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    if decimals > 0:
        return divide(round(multiply(self, scale)), scale)
    return multiply(round(divide(self, scale)), scale)


def _refuse_decimals(decimals: Any, expected: str) -> None:
    raise ArgumentError(
        f"{short_repr(decimals)} is not a number of decimals",
        op="round",
        argument="decimals",
        expected=expected,
    )


def _searchsorted(self: Any, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    """Where the elements of ``v`` would go into this sorted vector."""
    return searchsorted(self, v, sorter, side=side)


def _to(self: Any, device: Any) -> Tensor:
    """The tensor on another device, given by its name or as a Device."""
    return to_device(self, str(as_device(device)))


def _to_device(self: Any, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on another device, given by its name or as a Device."""
    if stream is not None:
        raise DeviceError(
            f"stream {short_repr(stream)} cannot be chosen",
            op="to_device",
            argument="stream",
            expected="None: the device's backend orders the work",
        )
    return _to(self, device)


def _trace(
    self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None
) -> Tensor:
    """Sum along each diagonal of the matrices in two axes: as in NumPy, the first two."""
    if out is not None:
        check_same("trace", out=out)
    return sum(diagonal(self, offset, axis1, axis2), axis=-1, dtype=dtype)


# DLPack -------------------------------------------------------------------------------------------


def _dlpack(
    self: Any,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """The values for another library, as in the standard; shared memory is read-only."""
    given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    told = {name: value for name, value in given.items() if value is not None}
    x = as_tensor(self)
    if not x.device.backend.host:
        return x._leave("__dlpack__").__dlpack__(**told)
    array = x._values("__dlpack__")
    told_read_only = max_version is not None and max_version >= (1,)  # not before version 1
    backward = copy is None and min(array.strides, default=0) < 0  # ends PyTorch
    if told_read_only and copy is not True and not backward:
        array.flags.writeable = False
    else:
        array = array.copy()
    return capsule_of(array, **told)


def _dlpack_device(self: Any) -> tuple[int, int]:
    """DLPack's type and number of the device that holds the values."""
    array = as_tensor(self)._leave("__dlpack_device__")
    device: tuple[int, int] = array.__dlpack_device__()
    return device


def _view(self: Any, dtype: Any, *sizes: Any) -> Tensor:
    """The bits, read as numbers of another dtype; see ``ef.view``."""
    return load("creation.bits").view(self, (dtype, *sizes) if sizes else dtype)


_METHODS = {
    "__divmod__": _divmod,
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "__rdivmod__": _divided_by,
    "abs": abs,
    "argsort": argsort,
    "astype": _astype,
    "clip": clip,
    "conjugate": conj,
    "copy": _copy,
    "cumprod": _cumprod,
    "cumsum": _cumsum,
    "diagonal": _diagonal,
    "dot": _dot,
    "itemsize": property(_itemsize),
    "nonzero": nonzero,
    "ravel": _ravel,
    "round": _round,
    "searchsorted": _searchsorted,
    "sort": _sort,
    "to": _to,
    "to_device": _to_device,
    "trace": _trace,
    "view": _view,
}

for _name, _method in _METHODS.items():
    setattr(Operators, _name, _method)
