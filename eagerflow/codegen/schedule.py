"""Passes: the order in which generated code traverses the elements of a row.

The elements of a row are traversed once for each level of dependent reductions: softmax takes one
pass for the maximum, one for the sum of the exponentials, one for the quotients. Values that a pass
needs from an earlier one are recomputed if that is cheap, and otherwise kept in a buffer of one
row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eagerflow.codegen.functions.table import COSTLY_FUNCTIONS
from eagerflow.codegen.region import (
    REDUCTIONS,
    Constant,
    Input,
    LoopNest,
    Output,
    Region,
    Statement,
    dependencies,
    reduction_depths,
)

_MIN_KEPT_COST = 8  # instructions from which keeping a value costs less than recomputing it
_COSTS = {"divide": 4, "sqrt": 5, "rsqrt": 8, "reciprocal": 4, "random_bits": 40, "power": 40}


@dataclass
class Pass:
    """The computations of one traversal of the elements of a row."""

    reductions: list[Statement] = field(default_factory=list)
    columns: list[Statement] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    values: set[str] = field(default_factory=set)  # those read or computed per element
    cost: int = 0  # instructions for each element


class Schedule:
    """The passes of a region, and the values between them."""

    def __init__(self, region: LoopNest) -> None:
        self.region = region
        self.passes: list[Pass] = []
        self.kept: dict[str, int] = {}  # from values to the index of their row buffer
        self._inner = set(region.row_axes)
        self.depths = reduction_depths((*region.inputs, *region.body), region.is_row_reduction)
        self._place()
        self._walk_all()

    def varies(self, name: str) -> bool:
        """Whether a value differs between the elements of a row."""
        return not self._inner.isdisjoint(self.region.statement(name).axes)

    def row_values(self, number: int) -> list[Statement]:
        """Values of the row that can be computed once ``number`` passes have ended."""
        return [
            s
            for s in self.region.body
            if s.instruction not in REDUCTIONS
            and not self.varies(s.name)
            and self.depths[s.name] == number
        ]

    def row_columns(self) -> list[Statement]:
        """Column reductions of one value for each row."""
        return [s for s in self.region.columns.values() if not self.varies(str(s.operands[0]))]

    def row_outputs(self) -> list[Output]:
        """Outputs with one value for each row."""
        return [o for o in self._outputs() if self._inner.isdisjoint(o.axes)]

    def has_row_results(self) -> bool:
        """Whether something is written or reduced once for each row, after all passes."""
        return bool(self.row_outputs() or self.row_columns())

    def _outputs(self) -> list[Output]:
        """Outputs that are written element by element or row by row."""
        return [o for o in self.region.outputs if o.value not in self.region.columns]

    def _pass(self, number: int) -> Pass:
        while len(self.passes) <= number:
            self.passes.append(Pass())
        return self.passes[number]

    def _place(self) -> None:
        for part in self.region.body:
            if part.instruction in REDUCTIONS:
                operand = str(part.operands[0])
                if self.region.is_row_reduction(part):
                    self._pass(self.depths[operand]).reductions.append(part)
                elif self.varies(operand):
                    self._pass(self.depths[operand]).columns.append(part)
        for out in self._outputs():
            if not self._inner.isdisjoint(out.axes):
                self._pass(self.depths[out.value]).outputs.append(out)
        self._delay_inplace()

    def _delay_inplace(self) -> None:
        """An output in place of an input is written once no later pass reads the input."""
        replaced = [(p, o) for p in self.passes for o in p.outputs if o.inplace]
        for own, out in replaced:
            last = self.passes[-1]
            if own is not last and any(
                out.inplace in self._inputs_of(later)
                for later in self.passes[self.passes.index(own) + 1 :]
            ):
                own.outputs.remove(out)
                last.outputs.append(out)

    def _roots(self, own: Pass) -> list[str]:
        parts = [str(s.operands[0]) for s in (*own.reductions, *own.columns)]
        return [*parts, *(o.value for o in own.outputs)]

    def _inputs_of(self, own: Pass) -> set[str]:
        """Inputs of the values of a pass, if nothing is kept."""

        def operands(name: str) -> list[str]:
            part = self.region.statement(name)
            if isinstance(part, Input) or self.region.is_row_reduction(part):
                return []
            return [o for o in part.operands if isinstance(o, str) and self.varies(o)]

        return dependencies(self._roots(own), operands)

    # Kept values ---------------------------------------------------------------------------------

    def _walk_all(self) -> None:
        computed: dict[str, int] = {}
        for number, own in enumerate(self.passes):
            for root in self._roots(own):
                self._walk(root, own, computed)
            for name in own.values:
                computed.setdefault(name, number)
            own.cost = sum(
                self._own_cost(name) for name in own.values if computed[name] == number
            ) + len(own.values)

    def _walk(self, name: str, own: Pass, computed: dict[str, int]) -> None:
        if name in own.values or not self.varies(name):
            return
        own.values.add(name)
        part = self.region.statement(name)
        if isinstance(part, Input) or name in self.kept:
            return
        if name in computed and self._cost(name) >= _MIN_KEPT_COST:
            self.kept[name] = len(self.kept)
            self.passes[computed[name]].kept.append(name)
            return
        for operand in part.operands:
            if isinstance(operand, str):
                self._walk(operand, own, computed)

    def _own_cost(self, name: str) -> int:
        part = self.region.statement(name)
        if isinstance(part, Input) or part.instruction in REDUCTIONS:
            return 0
        usual = 15 if part.instruction in COSTLY_FUNCTIONS else 1
        return _COSTS.get(part.instruction, usual)

    def _cost(self, name: str) -> int:
        """Instructions to compute a value from values in memory."""
        part = self.region.statement(name)
        if isinstance(part, (Input, Constant)) or name in self.kept or not self.varies(name):
            return 0
        below = sum(self._cost(o) for o in set(part.operands) if isinstance(o, str))
        return self._own_cost(name) + below


def schedule(region: Region) -> Schedule:
    """The schedule of a region, cached for the region's lifetime."""
    found: Schedule | None = region.derived.get("schedule")
    if found is None:
        found = region.derived["schedule"] = Schedule(region)
    return found
