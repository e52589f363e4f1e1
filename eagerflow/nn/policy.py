"""DType policies: the dtypes of layers' weights, and of their computations."""

from __future__ import annotations

import difflib
from typing import Any

from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import DTypeError
from eagerflow.nn.configured import Configured

__all__ = ["DTypePolicy", "dtype_policy", "get", "set_dtype_policy"]


_MIXED = "mixed_bfloat16", "mixed_float16"


class DTypePolicy(Configured):
    """A dtype for weights and one for computing, by one name.

    ``name`` is a dtype for both, or ``"mixed_bfloat16"`` or ``"mixed_float16"``: weights in
    float32, and computing in the other. Raises DTypeError for other names.

    >>> policy = ef.nn.DTypePolicy("mixed_bfloat16")
    >>> policy.variable_dtype, policy.compute_dtype
    (dtype('float32'), dtype(bfloat16))
    """

    def __init__(self, name: Any) -> None:
        self.mixed = mixed = isinstance(name, str) and name.startswith("mixed_")
        if mixed and name not in _MIXED:
            close = difflib.get_close_matches(name, _MIXED, 1)
            raise DTypeError(
                f"{name!r} is not a dtype policy",
                argument="dtype",
                expected=f"a dtype, {' or '.join(map(repr, _MIXED))}",
                hint=repr(close[0]) if close else None,
            )
        self.compute_dtype: DType = as_dtype(name.removeprefix("mixed_") if mixed else name)
        self.variable_dtype: DType = as_dtype("float32") if mixed else self.compute_dtype
        self.name = name if mixed else self.compute_dtype.name

    def __repr__(self) -> str:
        return f"<DTypePolicy {self.name}>"


_default = DTypePolicy("float32")


def dtype_policy() -> DTypePolicy:
    """The policy of layers that are made without a ``dtype``.

    >>> ef.nn.dtype_policy()
    <DTypePolicy float32>
    """
    return _default


def set_dtype_policy(policy: Any) -> None:
    """Set the policy of new layers, a name or a DTypePolicy.

    >>> ef.nn.set_dtype_policy("float32")
    >>> ef.nn.dtype_policy()
    <DTypePolicy float32>
    """
    global _default
    _default = get(policy)


def get(policy: Any) -> DTypePolicy:
    """The policy for a name, a dtype, a configuration or a policy; None: the default."""
    if policy is None:
        return _default
    if isinstance(policy, dict) and set(policy) == {"class_name", "config"}:
        policy = policy["config"]["name"]
    return policy if isinstance(policy, DTypePolicy) else DTypePolicy(policy)
