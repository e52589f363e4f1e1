"""Passes: named functions from Graph to Graph that make a program smaller, faster, more accurate.

``ALL`` lists them in the order in which they run. Each states its effect on numbers: an ``exact``
pass keeps every bit of eager calls, a ``fast`` one may round differently within the ops'
stated units in the last place, a ``stable`` one replaces forms that lose digits by forms that do
not, and a ``final`` one gives a graph that runs the same but has different gradients (``final,
fast`` if it may round differently, too).

>>> graph = ef.capture.trace(lambda x: ef.log(ef.softmax(x)), ef.TensorSpec((3,), "float32"))
>>> [node.op.name for node in ef.capture.passes.stability(graph).nodes]
['softmax', 'log_softmax']
>>> [node.op.name for node in graph.optimized().nodes]
['log_softmax']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eagerflow.capture.passes.algebra import simplified, without_no_ops, without_stop_gradients
from eagerflow.capture.passes.constants import folded
from eagerflow.capture.passes.dead_code import without_dead_code
from eagerflow.capture.passes.integers import with_integer_products
from eagerflow.capture.passes.layout import untransposed
from eagerflow.capture.passes.pooling import with_relus_behind
from eagerflow.capture.passes.recurrences import with_products_outside
from eagerflow.capture.passes.rewriting import Rewrite
from eagerflow.capture.passes.sharing import (
    opened,
    with_shared_scans,
    without_custom_gradients,
    without_unused_results,
)
from eagerflow.capture.passes.stability import stabilized
from eagerflow.capture.passes.subexpressions import merged
from eagerflow.errors import ArgumentError, CaptureError
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Value

__all__ = [
    "ALL",
    "Pass",
    "Report",
    "algebra",
    "constants",
    "custom_gradients",
    "dead_code",
    "integers",
    "layout",
    "no_ops",
    "optimized",
    "pooling",
    "recorded_scans",
    "recurrences",
    "shared_scans",
    "stability",
    "stop_gradients",
    "subexpressions",
    "unused_results",
]


def __dir__() -> list[str]:
    return sorted(__all__)


MAX_ROUNDS = 8
"""The maximum number of runs of a pass; each round may enable rewrites in the next one."""


class Pass:
    """A named function from Graph to Graph; the result's ``rewrites`` is a Report.

    ``numerics`` is "exact", "fast", "stable", "final" or "final, fast"; see
    ``ef.capture.passes``. The input graph does not change, and is returned if there is
    nothing to do. The result has the same inputs, Variables, outputs, shapes and dtypes;
    CaptureError if not.

    >>> ef.capture.passes.dead_code
    <Pass dead_code, exact: nodes that no output and no assigned Variable needs are left out>
    """

    def __init__(
        self,
        name: str,
        numerics: str,
        run: Callable[[Graph], tuple[Graph, list[Rewrite]]],
        words: str = "",
    ) -> None:
        self.words = words or _first_words(run)
        self.name = name
        self.numerics = numerics
        self.run = run
        self.__doc__ = run.__doc__

    def __call__(self, graph: Graph) -> Graph:
        """The graph after this pass."""
        return self.apply(graph, [])

    def apply(self, graph: Graph, rewrites: list[Rewrite]) -> Graph:
        """The graph after this pass; its rewrites are added to ``rewrites``."""
        found, done = self.run(graph)
        if found is graph:
            return graph
        compare(graph, found, self.name)
        rewrites.extend(done)
        found.rewrites = Report(rewrites)
        return found

    def __repr__(self) -> str:
        return f"<Pass {self.name}, {self.numerics}: {self.words}>"


def _first_words(run: Callable[..., Any]) -> str:
    """The description of a pass from the docstring of its module."""
    line = (run.__globals__["__doc__"] or "").partition("\n")[0]
    return line.partition(": ")[2].rstrip(".") or line


class Report:
    """The rewrites made by passes: a list, in order, that prints well.

    >>> graph = ef.capture.trace(lambda x: x * 1.0 - 0.0, ef.TensorSpec((3,), "float32"))
    >>> graph.optimized().rewrites.counts
    {'no_ops': 1, 'algebra': 1}
    """

    def __init__(self, rewrites: Iterable[Rewrite] = ()) -> None:
        self.rewrites = tuple(rewrites)

    @property
    def counts(self) -> dict[str, int]:
        """The number of rewrites by each pass."""
        found: dict[str, int] = {}
        for rewrite in self.rewrites:
            found[rewrite.name] = found.get(rewrite.name, 0) + 1
        return found

    def of(self, name: str) -> list[str]:
        """The lines about one pass, such as ``stability: log(1 + x) -> log1p(x), train.py:12``."""
        return [str(r) for r in self.rewrites if r.name == name]

    def __iter__(self) -> Iterator[Rewrite]:
        return iter(self.rewrites)

    def __len__(self) -> int:
        return len(self.rewrites)

    def __str__(self) -> str:
        lines = [f"{name}: {count}" for name, count in self.counts.items()]
        return "\n".join([", ".join(lines) or "nothing to do", *self.of("stability")])

    def __repr__(self) -> str:
        return f"<Report {', '.join(f'{n} {c}' for n, c in self.counts.items()) or 'empty'}>"


constants = Pass("constants", "exact", folded)
no_ops = Pass(
    "no_ops",
    "exact",
    without_no_ops,
    "nodes that return one of their inputs, bit for bit and with the same layout",
)
subexpressions = Pass("subexpressions", "exact", merged)
unused_results = Pass(
    "unused_results",
    "exact",
    without_unused_results,
    "unused rows of scans and results of branches are removed",
)
shared_scans = Pass(
    "shared_scans", "exact", with_shared_scans, "one scan replaces two if it has both results"
)
recorded_scans = Pass(
    "recorded_scans",
    "fast",
    opened,
    "scans that eager code computes as a whole become part of the program around them",
)
stability = Pass("stability", "stable", stabilized)
algebra = Pass("algebra", "fast", simplified)
layout = Pass("layout", "fast", untransposed)
recurrences = Pass(
    "recurrences",
    "fast",
    with_products_outside,
    "products in each step of scans are computed once, before or after them, if possible",
)
pooling = Pass(
    "pooling",
    "fast",
    with_relus_behind,
    "a relu before a max pooling is computed behind it, where there are fewer elements",
)
integers = Pass(
    "integers",
    "final, fast",
    with_integer_products,
    "products and convolutions of dequantized values are computed on the small integers",
)
dead_code = Pass("dead_code", "exact", without_dead_code)
stop_gradients = Pass(
    "stop_gradients",
    "final",
    without_stop_gradients,
    "ops that only affect gradients are removed if none will be requested",
)
custom_gradients = Pass(
    "custom_gradients",
    "final",
    without_custom_gradients,
    "functions with custom gradients become the ops that they consist of",
)

ALL: dict[str, Pass] = {
    p.name: p
    for p in (
        recorded_scans,
        constants,
        no_ops,
        subexpressions,
        unused_results,
        shared_scans,
        stability,
        algebra,
        layout,
        pooling,
        recurrences,
        stop_gradients,
        custom_gradients,
        integers,
        dead_code,
    )
}
"""Every pass by its name, in the order in which they run."""

_RUN = {"exact": ("exact",), "fast": ("exact", "fast", "stable")}


def _chosen(numerics: str, only: Any, without: Any, final: bool) -> list[Pass]:
    if numerics not in _RUN:
        raise ArgumentError(
            f"{numerics!r} is not a choice", argument="numerics", expected="'fast' or 'exact'"
        )
    for name in (*(only or ()), *without):
        if name not in ALL:
            raise ArgumentError(f"there is no pass {name!r}", expected="one of " + ", ".join(ALL))
    kinds = _RUN[numerics]
    if final:
        kinds = (*kinds, "final", f"final, {numerics}")
    chosen = [p for p in ALL.values() if (p.numerics in kinds if only is None else p.name in only)]
    return [p for p in chosen if p.name not in without]


@graph_method
def optimized(
    self: Graph,
    numerics: str = "fast",
    *,
    only: Iterable[str] | None = None,
    without: Iterable[str] = (),
    final: bool = False,
) -> Graph:
    """See ``Graph.optimized``.

    >>> graph = ef.capture.trace(lambda x: ef.log(1 + x), ef.TensorSpec((3,), "float32"))
    >>> ef.capture.passes.optimized(graph).nodes
    (<Node log = log1p(x)>,)
    """
    only = None if only is None else tuple(only)
    chosen = _chosen(numerics, only, tuple(without), final)
    rewrites: list[Rewrite] = []
    graph = self
    quiet = 0  # number of consecutive passes with nothing to do
    for turn in range(MAX_ROUNDS * len(chosen)):
        found = chosen[turn % len(chosen)].apply(graph, rewrites)
        quiet = quiet + 1 if found is graph else 1
        graph = found
        if quiet > len(chosen):
            break
    return graph


def compare(before: Graph, after: Graph, name: str) -> None:
    """Raise CaptureError if a pass has changed a graph's inputs, outputs or Variables."""
    given = [_facts(g.inputs, g.inputs.names) for g in (before, after)]
    results = [_facts(g.outputs, g.outputs.names) for g in (before, after)]
    cells = [
        [(c.name, id(c.variable), c.value, *_facts((c.assigned,), ("",))) for c in g.cells]
        for g in (before, after)
    ]
    plain = [[x for x in g.results if type(x) is not Value] for g in (before, after)]
    same_plain = len(plain[0]) == len(plain[1]) and all(a is b for a, b in zip(*plain, strict=True))
    for what, (old, new) in (
        ("inputs", given),
        ("outputs", results),
        ("Variables", cells),
        ("order of inputs", [list(g.inputs) for g in (before, after)]),
        ("results", [same_plain, True]),
    ):
        if old != new:
            raise CaptureError(
                f"the pass {name} has changed the {what} of {before.name}",
                received=str(new)[:300],
                expected=str(old)[:300],
                hint=f"graph.optimized(without=({name!r},)), and report it",
            )


def _facts(values: Iterable[Value | None], names: Iterable[str]) -> list[Any]:
    return [
        (name, None if v is None else (v.shape, v.dtype))
        for name, v in zip(names, values, strict=True)
    ]
