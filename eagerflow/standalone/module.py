"""A graph as a module: docstring, functions, and a sample call at the end."""

from __future__ import annotations

from typing import Any

from eagerflow.dims import Dim
from eagerflow.graph.check import check
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value
from eagerflow.graph.names import FreeNames
from eagerflow.standalone import sources
from eagerflow.standalone.expressions import (
    Expression,
    Variable,
    bundle,
    call,
    identifier,
    listed,
    literal,
    quoted,
    sentence,
    text,
)
from eagerflow.standalone.layout import INDENT, Line, Text, assignment, broken, written
from eagerflow.standalone.naming import users_names
from eagerflow.standalone.program import Program
from eagerflow.standalone.writer import Writer

MAX_TITLE = 80  # characters
SAMPLE = 2  # the value of free sizes in the sample call
_QUIET = '@np.errstate(all="ignore")'


class Module:
    """The text of a program, and the ``arrays`` for its file of weights."""

    def __init__(self, graph: Graph, stem: str, suffix: str, reader: str) -> None:
        check(graph)
        self.graph = graph = graph.optimized("exact", final=True)
        self.program = Program(graph)
        self.arrays = self.program.arrays
        self.file, self.reader = stem + suffix, reader
        self.trains = any(cell.assigned is not None for cell in graph.cells)
        own = identifier(stem if graph.name == "lambda" else graph.name, "model")
        self.name = self.program.names.take(f"run_{own}" if own in sources.FUNCTIONS else own)
        self.main = self._main()

    # The function --------------------------------------------------------------------------------

    def _main(self) -> Text:
        """The function of the whole graph."""
        graph = self.graph
        names = [identifier(name, "x") for name in graph.inputs.names]
        writer = Writer(self.program, zip(graph.inputs, names, strict=True))
        given = writer.parameters
        writer.parameters = [Variable(x.base, [x], self.trains) for x in given]
        starts = []
        for value, x, own in zip(graph.inputs, given, writer.parameters, strict=True):
            array = call("np.asarray", text(x), literal(value.dtype))
            starts.append(assignment([own], array, [own]))
            writer.known[value] = text(own)
        writer.is_main = True
        writer.weights = Variable("state" if self.trains else "weights", fixed=True)
        writer.wanted_names = self._wanted_names()
        places, scoped = {n.place for n in graph.nodes}, any(n.scope for n in graph.nodes)
        writer.comments = len(places) > 1 or not scoped  # else it is only the tracer's line
        writer.nodes(graph.nodes, graph.all_outputs(), loose=not self.trains)
        self._finish(writer)
        lines = [*starts, *writer.heads, *writer.lines]
        self.weighted = any(writer.weights is x for line in lines for x in line.all_pieces())
        return written([*given, *([writer.weights] if self.weighted else [])], lines)

    def _wanted_names(self) -> dict[Value, str]:
        graph = self.graph
        found = {}
        for cell in graph.cells:
            if cell.assigned is not None:
                found[cell.assigned] = identifier("_".join(self.program.path(cell)[-2:]))
        if isinstance(graph.nest(graph.outputs), dict):
            pairs = zip(graph.outputs, graph.outputs.names, strict=True)
            found |= {value: identifier(name) for value, name in pairs}
        return found | users_names(graph)

    def _finish(self, writer: Writer) -> None:
        """Update the state, at the end, and return the results."""
        graph = self.graph
        ends = [writer.term(v) for v in graph.all_outputs()]
        count = len(graph.outputs)
        if self.trains:
            ends = [
                writer.named(x, identifier(name))
                for x, name in zip(ends, [*graph.outputs.names, *["new"] * len(ends)], strict=False)
            ]
        cells = [cell for cell in graph.cells if cell.assigned is not None]
        for cell, x in zip(cells, ends[count:], strict=True):
            place = writer.weight(self.program.path(cell))
            writer.write(Line(text(place, " = ", x).pieces))
        found = self._nested(ends[:count])
        if found is not None:
            writer.write(Line(text("return ", found).pieces))

    def _nested(self, ends: list[Expression]) -> Expression | None:
        """The results in the nest that the function returned, or in a dict by output name."""
        nest = self.graph.nest(ends)
        found = _nest(nest)
        if found is not None and type(nest) is tuple and len(nest) > 1:
            return text(*found.pieces[1:-1])
        if found is None:
            pairs = zip(self.graph.outputs.names, ends, strict=True)
            found = _nest(dict(pairs))
        return found

    # The text ------------------------------------------------------------------------------------

    def text(self) -> str:
        """The whole module."""
        program = self.program
        reader = [program.use(self.reader)] if self.arrays else []
        bodies = [sources.text_of(name) for name in program.helpers]
        for name, (found, about) in program.functions.items():
            bodies.append("\n".join(found.whole(name, [f'"""{about}"""'])))
        bodies.append("\n".join(self.main.whole(self.name, self._words(), _QUIET)))
        bodies.append("\n".join(self._sample(bool(reader))))
        modules = sorted({m for name in program.helpers for m in sources.modules_of(name)})
        head = [f'"""{self._title()}"""', ""]
        head += [f"import {name}" for name in modules]
        head += ["from pathlib import Path"] if reader else []
        head += [""] * bool(modules or reader) + ["import numpy as np", ""]
        if reader:
            head += [f"WEIGHTS = Path(__file__).with_name({quoted(self.file)})", ""]
        return "\n".join([*head, "", "\n\n\n".join(bodies), ""])

    def _title(self) -> str:
        words = f"{self.name}: a program that needs NumPy alone, written by eagerflow."
        return f"{words}\n\nIts arrays are in {sentence(self.file)}.\n" if self.arrays else words

    def _words(self) -> list[str]:
        """The docstring of the function."""
        graph = self.graph
        given = [
            f"{name}: {_spec(v)}"
            for name, v in zip(self.main.parameters, graph.inputs, strict=False)
        ]
        if self.weighted and self.trains:
            given.append("state: the weights and all else that is updated, which this call does")
        elif self.weighted:
            given.append(f"weights: what {self.reader} gives")
        made = [
            f"{sentence(name)}: {_spec(v)}"
            for name, v in zip(graph.outputs.names, graph.outputs, strict=True)
        ]
        outputs = _and([sentence(name) for name in graph.outputs.names])
        inputs = _and(list(self.main.parameters[: len(graph.inputs)]))
        title = f"Compute {outputs}" + (f" from {inputs}." if inputs else ".")
        title = f"{title[:-1]}, and update the state." if self.trains else title
        title = title if len(title) <= MAX_TITLE else "Compute all outputs."
        lines = [f'"""{title}', ""]
        for head, items in (("Takes", given), ("Returns", made)):
            if items:
                lines += [head, *(INDENT + item for item in items), ""]
        return [*lines[:-1], '"""']

    def _sample(self, reads: bool) -> list[str]:
        """A sample call, for running the module."""
        lines = ['if __name__ == "__main__":']
        take = FreeNames([*self.program.names, "rng"]).take
        names = self.main.parameters[: len(self.graph.inputs)]
        values = [(take(x), v) for x, v in zip(names, self.graph.inputs, strict=True)]
        if any(v.dtype.kind == "f" for _, v in values):
            lines.append(f"{INDENT}rng = np.random.default_rng(0)")
        for name, value in values:
            lines += broken(f"{INDENT}{name} = {_sampled(value)}")
        given = [name for name, _ in values]
        if self.weighted:
            given.append(f"{self.reader}(WEIGHTS)" if reads else "{}")
        return [*lines, *broken(f"{INDENT}print({self.name}({', '.join(given)}))")]


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _nest(x: Any) -> Expression | None:
    """A nest of expressions as one expression; None where there is no literal for it."""
    if isinstance(x, Expression):
        return x
    if type(x) in (tuple, list):
        parts = [_nest(item) for item in x]
        return None if None in parts else bundle(parts, "()" if type(x) is tuple else "[]")
    if type(x) is dict and all(type(key) in (str, int) for key in x):
        pairs = [(literal(key), _nest(item)) for key, item in x.items()]
        if any(item is None for _, item in pairs):
            return None
        return text("{", *listed(text(key, ": ", item) for key, item in pairs), "}")
    if type(x) in (bool, int, float, str, type(None)):
        return literal(x)
    return None


def _spec(value: Value) -> str:
    shape = ", ".join(str(n) for n in value.shape)
    comma = "," if len(value.shape) == 1 else ""
    return sentence(f"{value.dtype.name} ({shape}{comma})")


def _sampled(value: Value) -> str:
    """A sample array for an input."""
    sizes = [_size(n) for n in value.shape]
    shape = "".join(literal(tuple(sizes)).pieces)  # type: ignore[arg-type]
    dtype = "".join(literal(value.dtype).pieces)  # type: ignore[arg-type]
    if value.dtype.kind != "f":
        return f"np.zeros({shape}, {dtype})"
    if value.dtype.itemsize == 2:
        return f"rng.standard_normal({shape}).astype({dtype})"
    return f"rng.standard_normal({shape}, {dtype})"


def _size(dim: Any) -> int:
    if not isinstance(dim, Dim):
        return int(dim)
    names = {atom for monomial in dim._terms for atom in monomial}
    return dim.evaluate(dict.fromkeys(names - set(dim._quotients), SAMPLE))
