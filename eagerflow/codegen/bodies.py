"""Bodies of ops as regions: the one formula of an op, for operands of given types and axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from eagerflow.codegen.builder import Builder
from eagerflow.codegen.region import Region

__all__ = ["region_of"]


@lru_cache(1024)  # attributes are numbers from the user
def region_of(
    body: Callable[..., Any],
    axes: str,
    operands: tuple[tuple[str, str], ...],
    attributes: tuple[tuple[str, Any], ...] = (),
    along: str = "",
) -> Region:
    """The region of a body; ``operands`` are the dtype and the axes of each input.

    ``along`` are the axes of outputs, if they differ from those of the values.
    """
    s = Builder(body.__name__.strip("_").removesuffix("_body"), axes)
    values = [s.input(f"x{i}", dtype, own) for i, (dtype, own) in enumerate(operands)]
    results = body(s, *values, **dict(attributes))
    for i, result in enumerate(results if isinstance(results, tuple) else (results,)):
        s.output(f"y{i}", result, axes=along)
    return s.region()
