"""Functions of NumPy's that take no tensors, and why."""

from __future__ import annotations

__all__ = ["REASONS", "on_values"]

_IN_PLACE = "tensors do not change: x.at[index].set(values) gives a new one"
_DATES = "tensors hold no dates"
_BYTES = "bits packed into bytes are a matter of storage: ef.bitwise_right_shift takes them apart"

REASONS = {
    "busday_count": _DATES,
    "busday_offset": _DATES,
    "copyto": _IN_PLACE,
    "datetime_as_string": _DATES,
    "einsum_path": "ef.einsum orders its products itself",
    "fill_diagonal": _IN_PLACE,
    "is_busday": _DATES,
    "isnat": _DATES,
    "packbits": _BYTES,
    "place": _IN_PLACE,
    "put": _IN_PLACE,
    "put_along_axis": _IN_PLACE,
    "putmask": _IN_PLACE,
    "unpackbits": _BYTES,
}
"""By qualified NumPy name, without ``numpy`` itself."""

on_values = frozenset(
    "array2string array_repr array_str may_share_memory save savetxt savez savez_compressed"
    " shares_memory".split()
)
"""Functions that inspect, write or print values: they get arrays, and return nothing to convert."""
