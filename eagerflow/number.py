"""Number: a Python number with only its type known while tracing.

It behaves like the actual number: arithmetic with other numbers is done in double
precision or in 64-bit integers, and next to a tensor it takes on that tensor's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dtypes import INTEGERS, DType, default_dtype
from eagerflow.errors import CaptureError
from eagerflow.op import ops
from eagerflow.tensor import Operators, Tensor

MIN_BYTES_OF_SIZES = 4
"""Bytes of the narrowest integers that sizes become without a check."""


class Number(Operators):
    """A number argument of a captured function; ``tensor`` holds it in full precision.

    ``own`` is the dtype of a NumPy number, its default. ``index`` is its
    place among the numbers of ``assumptions``; sizes have none.
    """

    __slots__ = ("assumptions", "index", "own", "python", "tensor")
    __array_ufunc__ = None  # type: ignore[assignment]  # NumPy numbers defer to it

    def __init__(
        self,
        tensor: Tensor,
        python: type,
        own: DType | None = None,
        assumptions: Any = None,
        index: int = -1,
    ) -> None:
        self.tensor = tensor
        self.python = python
        self.own = own
        self.assumptions = assumptions
        self.index = index

    def meeting(self, dtype: DType) -> Tensor:
        """The number in full precision, to be converted to this dtype, which must fit it."""
        if dtype in INTEGERS and self.assumptions is not None:
            self.assumptions.cast(self, dtype)
        elif dtype in INTEGERS and dtype.itemsize < MIN_BYTES_OF_SIZES:
            raise CaptureError(
                f"a size that is not known while tracing meets {dtype}, which may not hold it",
                expected="a dtype of 32 bits or more",
                hint="x.astype('int32') first",
            )
        return self.tensor

    @property
    def value(self) -> Tensor:
        """The number as a tensor of its default dtype."""
        if self.dtype == self.tensor.dtype:
            return self.tensor
        return ops["astype"].call(self.tensor, self.dtype)  # type: ignore[no-any-return]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the actual number, used by isinstance and ABCs."""
        return self.python if self.own is None else self.own.type

    @property
    def shape(self) -> tuple[()]:
        """No axes."""
        return ()

    @property
    def dtype(self) -> DType:
        """Its default dtype."""
        return default_dtype(self.python) if self.own is None else self.own

    def refuse(self, how: str) -> NoReturn:
        """Raise the error for code that needs the number itself."""
        raise self.tensor._array.refuse(f"{how} of a number")  # raises itself

    def __repr__(self) -> str:
        return f"<{self.python.__name__} argument {self.tensor._array.name!r}>"


def size_as_number(size: Dim) -> Number:
    """A size known by name only, as an integer Number."""
    return Number(ops["sum"].call(ops["arange"].call(size, size + 1)), int)


def _refused(how: str) -> Callable[[Number], NoReturn]:
    def method(self: Number) -> NoReturn:
        self.refuse(how)

    return method


WIDE = {int: np.dtype("int64"), float: np.dtype("float64"), complex: np.dtype("complex128")}

for _name in ("bool()", "int()", "float()", "hash()", "__index__"):
    setattr(Number, f"__{_name.strip('_()')}__", _refused(_name))
