"""Captured: one graph of a function, with the arguments and Python state that it is valid for."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from eagerflow.capture.history import NUMBERS, Told
from eagerflow.capture.tracing import Traced
from eagerflow.capture.varying import ValidSizes
from eagerflow.plan.replay import Replay

MAX_ALIASES = 1024  # sizes for which a graph with free sizes is found at once


class Captured:
    """One graph of a function: its signature, its assumptions, and its replay."""

    __slots__ = (
        "aliases", "assumptions", "graph", "idle", "kept", "known", "ledger", "nest", "numbers",
        "places", "replay", "sizes", "told", "updated", "used",
    )  # fmt: skip

    def __init__(self, found: Traced, replay: Replay, told: Told, leaves: Sequence[Any]) -> None:
        recorder, graph, self.ledger, places = found
        taps = recorder.taps
        sizes = ValidSizes(graph, recorder.free)
        self.sizes = sizes if sizes.is_restricted else None
        self.graph = graph
        self.assumptions = recorder.assumptions
        self.updated = recorder.updated  # leaves that are changed in place, and where
        self.numbers = [i for i in places if type(leaves[i]) in NUMBERS]
        self.replay = replay
        self.places = places  # which leaves of the arguments are inputs
        self.told = told
        self.nest = taps.nest(graph)  # builds the result from the outputs of a run
        self.idle = taps.idle(graph, replay.numerics)  # the graph to run while no tap is active
        self.known: list[tuple[int, Any]] = []  # leaves identified by object, held weakly
        self.aliases: list[tuple[dict[Any, Captured], Any]] = []  # tables that it is in, and keys
        self.used = True
        self.kept = False  # whether later calls can find it

    def is_right_for(self, leaves: Sequence[Any]) -> bool:
        """Whether the assumptions of the trace hold for the numbers among the arguments."""
        numbers = self.numbers
        return not numbers or self.assumptions.hold([leaves[i] for i in numbers])

    def run(self, inputs: Sequence[Any]) -> Any:
        """The result for these inputs, after values have been sent to the sinks that are due."""
        idle = self.idle
        if idle is None:
            return self.nest(self.replay.run(inputs))
        if idle.holds(inputs):
            return idle.nest(idle.replay.run(inputs))
        found = self.nest(self.replay.run(inputs))
        self.replay.rest()
        return found

    def is_for(self, leaves: Sequence[Any]) -> bool:
        """Whether these are the same objects as in the trace, not new ones with a reused id.

        An object without weak references is held strongly, so its id cannot be reused.
        """
        for i, held in self.known:
            if type(held) is weakref.ref and held() is not leaves[i]:
                return False
        return True

    def fits(self, leaves: Sequence[Any]) -> bool | None:
        """Whether it is valid for these arguments; None if only numbers for all sizes are."""
        if not self.is_for(leaves):
            return False
        return True if self.sizes is None else self.sizes.fit([leaves[i] for i in self.places])

    def add_alias(self, table: dict[Any, Captured], key: Any) -> None:
        """Note a call that it is valid for in a table, to be found there at once."""
        if len(self.aliases) >= MAX_ALIASES:
            self.drop_aliases()
        table[key] = self
        self.aliases.append((table, key))

    def drop_aliases(self) -> None:
        """Leave the tables."""
        while self.aliases:
            table, key = self.aliases.pop()
            if table.get(key) is self:
                table.pop(key, None)

    def release(self) -> None:
        """Give back the buffers of its plans; the next run takes new ones."""
        for replay in (self.replay, *([self.idle.replay] if self.idle is not None else ())):
            for plan in list(replay.plans.items.values()):
                plan.release()
