"""The implementation of a plan's matrix products: generated kernels, or NumPy with its BLAS.

On a GPU it is cuBLASLt, or the library used by CuPy.

Generated kernels compute all products that they support: docs/decisions/0027-blas-or-ours.md has
the measurements behind that rule. It depends on shapes, dtypes and neighbouring steps, not on
measurements at run time, so that a plan computes the same bits in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eagerflow.fusion.groups import MIN_SEGMENT_STEPS
from eagerflow.graph.costs import stated_cost
from eagerflow.graph.ir import Node, place_of
from eagerflow.op import Into

MIN_NATIVE_FLOPS = 1 << 17
"""Operations of a product that uses machine code even in short runs of such steps."""
PRODUCTS = frozenset({"einsum", "integer_matmul", "matmul", "vecdot"})


class ProductChoice(NamedTuple):
    """A product of a plan: its name in the program, and its implementation."""

    name: str
    node: Node
    way: str
    reason: str

    def words(self) -> tuple[str, str, str, str]:
        """The name, the factors, the implementation, and the user's line."""
        factors = [f"{x.dtype.name}{x.shape}" for x in self.node.values()]
        place = place_of(self.node.source) if self.node.source else ""
        return self.name, " · ".join(factors), f"{self.way}: {self.reason}", place


def is_large(node: Node) -> bool:
    """Whether a product uses machine code regardless of its neighbours.

    A product with a vector is bound by memory, in any implementation.
    """
    return not _has_vector(node) and stated_cost(node).flops >= MIN_NATIVE_FLOPS


def _has_vector(node: Node) -> bool:
    return min(len(x.shape) for x in node.values()) < 2


def why_generated(node: Node) -> str:
    """The reason for a generated kernel."""
    if is_large(node):
        return f"{stated_cost(node).flops:,} operations"
    return "in one call with neighbouring steps"


def why_numpy(node: Node, into: Into | None, exact: bool, has_machine_code: bool) -> str:
    """The reason for NumPy."""
    if exact:
        return "the plan is exact, and multiplies as eager code does"
    if not has_machine_code:
        return "there is no machine code here"
    if node.op.name not in ("integer_matmul", "matmul"):
        return f"{node.op.name} has no kernel of its own"
    if into is None:
        return f"no kernel multiplies {next(node.values()).dtype.name}"
    few = f"fewer than {MIN_SEGMENT_STEPS} consecutive steps have machine code"
    if _has_vector(node):
        return f"a factor is a vector, and {few}"
    return f"{stated_cost(node).flops:,} operations are few, and {few}"


def explained(choices: Iterable[ProductChoice]) -> str:
    """A line for each product, as text in columns."""
    rows = [choice.words() for choice in choices]
    if not rows:
        return "no products"
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{word:<{n}}" for word, n in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
