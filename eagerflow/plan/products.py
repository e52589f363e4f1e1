"""What multiplies the matrices of a plan, and why: generated kernels, or NumPy with its BLAS.

On a GPU it is cuBLASLt, or what CuPy takes.

A generated kernel does all products that it can: docs/decisions/0027-blas-or-ours.md has the
measurements behind that rule. It knows shapes, dtypes and the steps beside a product, and no
measurement of its own, so that a plan computes the same bits in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eagerflow.fusion.groups import MIN_SEGMENT_STEPS
from eagerflow.graph.costs import stated_cost
from eagerflow.graph.ir import Node, place_of
from eagerflow.op import Into

MIN_NATIVE_FLOPS = 1 << 17
"""Operations of a product that machine code does in short rows of such steps too."""
PRODUCTS = frozenset({"einsum", "integer_matmul", "matmul", "vecdot"})


class ProductChoice(NamedTuple):
    """A product of a plan: its name in the program, and what computes it."""

    name: str
    node: Node
    way: str
    reason: str

    def words(self) -> tuple[str, str, str, str]:
        """The name, what is multiplied, the way, the user's line."""
        factors = [f"{x.dtype.name}{x.shape}" for x in self.node.values()]
        place = place_of(self.node.source) if self.node.source else ""
        return self.name, " · ".join(factors), f"{self.way}: {self.reason}", place


def is_large(node: Node) -> bool:
    """Whether a product is machine code wherever it stands.

    Alone, a product with a vector waits for memory, whatever computes it.
    """
    return not _has_vector(node) and stated_cost(node).flops >= MIN_NATIVE_FLOPS


def _has_vector(node: Node) -> bool:
    return min(len(x.shape) for x in node.values()) < 2


def why_generated(node: Node) -> str:
    """Why a generated kernel multiplies."""
    if is_large(node):
        return f"{stated_cost(node).flops:,} operations"
    return "in one call with the steps beside it"


def why_numpy(node: Node, into: Into | None, exact: bool, has_machine_code: bool) -> str:
    """Why NumPy multiplies."""
    if exact:
        return "the plan is exact, and multiplies as eager code does"
    if not has_machine_code:
        return "there is no machine code here"
    if node.op.name not in ("integer_matmul", "matmul"):
        return f"{node.op.name} has no kernel of its own"
    if into is None:
        return f"no kernel multiplies {next(node.values()).dtype.name}"
    few = f"fewer than {MIN_SEGMENT_STEPS} steps beside each other have machine code"
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
