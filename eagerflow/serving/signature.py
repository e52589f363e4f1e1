"""Signatures: the named inputs and outputs of a served graph, and its batch dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eagerflow.errors import ArgumentError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value
from eagerflow.graph.rows import mixing
from eagerflow.graph.state import State
from eagerflow.spec import TensorSpec

__all__ = ["Signature"]


class Signature:
    """The inputs and outputs of a graph, and the dimension along which requests are joined.

    ``inputs`` and ``outputs`` map names to TensorSpecs. ``batch`` is the name of the free dimension
    that is the first of every input and every output, if the graph provably computes each of its
    rows independently; otherwise None, and each request runs alone. ``state`` is the graph's; it is
    excluded from ``inputs`` and ``outputs``.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec(("batch", 3), "float32"))
    >>> signature = ef.serving.Signature(graph)
    >>> signature.batch, signature.inputs
    ('batch', {'x': TensorSpec((batch, 3), float32, name='x')})
    """

    def __init__(self, graph: Graph) -> None:
        self.name = graph.name
        self.state: State | None = graph.state
        inputs = _specs(zip(graph.inputs.names, graph.inputs, strict=True))
        outputs = _specs(zip(graph.outputs.names, graph.outputs, strict=True))
        self.batch = _first_size([*inputs.values(), *outputs.values()])
        taken = {} if self.state is None else self.state.pairs
        self.inputs = {name: spec for name, spec in inputs.items() if name not in taken}
        self.outputs = {name: spec for name, spec in outputs.items() if name not in taken.values()}
        self.all_outputs = graph.outputs.names
        self._places = tuple(map(self.all_outputs.index, self.outputs))
        self.alone = "inputs and outputs do not all begin with one free size"
        """The reason that each request runs alone, where ``batch`` is None."""
        if self.batch is not None:
            self.alone = mixing(graph, self.batch) or ""
            if self.alone:
                self.batch = None

    def ordered(self, given: Mapping[str, Any]) -> list[Any]:
        """The values in the order of the inputs; ArgumentError for a missing or an unknown name."""
        if given.keys() != self.inputs.keys():
            self._refuse_names(given)
        return [given[name] for name in self.inputs]

    def _refuse_names(self, given: Mapping[str, Any]) -> None:
        missing = [name for name in self.inputs if name not in given]
        strange = [str(name) for name in given if name not in self.inputs]
        raise ArgumentError(
            f"the input {missing[0]!r} is missing"
            if missing
            else f"there is no input {strange[0][:80]!r}",
            op=self.name,
            argument=missing[0] if missing else strange[0][:80],
            expected=", ".join(f"{n}: {s}" for n, s in self.inputs.items()) or "no inputs",
        )

    def only_input(self) -> str:
        """The name of the single input; ArgumentError for several inputs."""
        if len(self.inputs) != 1:
            raise ArgumentError(
                f"values without names can only be given to a model of one input, not of "
                f"{len(self.inputs)}",
                op=self.name,
                expected=", ".join(f"{n}: {s}" for n, s in self.inputs.items()),
            )
        return next(iter(self.inputs))

    def outputs_of(self, names: Iterable[str] | None) -> Sequence[int]:
        """The positions of these or all outputs; ArgumentError for unknown names."""
        if names is None:
            return self._places
        known = self.all_outputs
        wanted = list(names)
        strange = [name for name in wanted if name not in self.outputs]
        if strange:
            raise ArgumentError(
                f"there is no output {str(strange[0])[:80]!r}",
                op=self.name,
                argument=str(strange[0])[:80],
                expected="one of " + ", ".join(self.outputs),
            )
        return [known.index(name) for name in wanted]


def _specs(named: Iterable[tuple[str, Value]]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(v.shape, v.dtype, name) for name, v in named}


def _first_size(specs: Iterable[TensorSpec]) -> str | None:
    """The name of the first size of all specs, if it is the same free size."""
    firsts = {str(spec.shape[0]) if spec.shape else "" for spec in specs}
    name = firsts.pop() if len(firsts) == 1 else ""
    return name if name.isidentifier() else None
