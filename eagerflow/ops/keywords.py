"""Keywords of NumPy's functions, and of other libraries: accepted if they have a meaning here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eagerflow.errors import KeywordError, short_repr
from eagerflow.op import Op

__all__ = ["check_same", "translate"]

_RENAMED = {
    "M": "n_cols",
    "a_max": "max",
    "a_min": "min",
    "array": "x",
    "ddof": "correction",
    "rcond": "rtol",
    "reps": "repetitions",
}
# Values that request the default behavior.
_AS_IT_IS: dict[str, tuple[Any, ...]] = {
    "casting": ("same_kind",),
    "astype.casting": ("unsafe",),
    "copy": (True, False, None),
    "deg": (False,),
    "hermitian": (False,),
    "indexing": ("xy",),
    "like": (None,),
    "kind": (None, "quicksort", "heapsort", "mergesort", "stable"),
    "mode": ("raise",),
    "optimize": (True, False),
    "order": (None, "C", "K", "A"),
    "out": (None,),
    "overwrite_input": (True, False),
    "retstep": (False,),
    "subok": (True, False),
    "where": (True,),
}
_PLAIN = (str, int, float, type(None))
_HINTS = {
    "casting": "ef.can_cast(x.dtype, dtype) to check in advance",
    "dim": "axis=...",
    "dims": "axes=..., by position",
    "dtype": "x.astype(dtype) before, or the result's after",
    "hermitian": "ef.linalg.eigh(x)",
    "initial": "ef.add(y, initial), ef.maximum(y, initial), ...",
    "keep_dims": "keepdims=True",
    "keepdim": "keepdims=True",
    "kind": "stable=True or False",
    "mode": "ef.clip(indices, 0, n - 1), or indices % n",
    "order": "'C': elements are counted row by row; ef.permute_dims(x) before for columns",
    "out": "y = {op}(...): tensors do not change",
    "unbiased": "correction=1",
    "where": "x = ef.where(condition, x, neutral) before, or x[condition]",
}


def translate(op: str, name: str, value: Any, known: Iterable[str]) -> tuple[str, Any] | None:
    """Name and value of an argument here; None if it has no effect; otherwise KeywordError."""
    known = tuple(known)
    own = _RENAMED.get(name)
    if own in known:
        return str(own), value
    same = _AS_IT_IS.get(f"{op}.{name}", _AS_IT_IS.get(name, ()))
    plain = isinstance(value, _PLAIN)
    if any(value is one or (plain and value == one) for one in same):
        return None
    shown = short_repr(value) if plain else f"a {type(value).__name__}"
    raise KeywordError(
        f"{shown} is not taken" if same else "there is no such argument",
        op=op,
        argument=name,
        expected=f"{op}({', '.join(known)})" if known else None,
        hint=_HINTS.get(name, "").format(op=op) or None,
    )


def check_same(op: str, **given: Any) -> None:
    """KeywordError for a NumPy argument that requests an unsupported behavior."""
    for name, value in given.items():
        translate(op, name, value, ())


Op.translate = staticmethod(translate)
