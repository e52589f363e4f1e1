"""Graph: a captured program as plain data, and its methods.

A Graph lists typed Values and the Nodes that make them, in topological order.
It is pure: the Variables that a program reads are additional inputs, and
the values that it assigns are additional outputs, which a replay commits. The methods of
graphs are declared here, with docstrings; higher modules implement them (``graph_method``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow.errors import printable
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.tree import Structure, unflatten

MAX_BOXES = 80  # default for pictures
_TOOLS: dict[str, Callable[..., Any]] = {}


def graph_method(f: Callable[..., Any]) -> Callable[..., Any]:
    """Implement the method of Graph that has the function's name."""
    _TOOLS[f.__name__] = f
    return f


class Example(NamedTuple):
    """Inputs of a graph by name, and its outputs for them when it was saved."""

    inputs: dict[str, Any]
    outputs: dict[str, Any]


class Graph:
    """A captured program: typed, pure, readable, and saved without any code in it.

    ``inputs`` and ``outputs`` are named Values, ``nodes`` the calls in a valid order of
    execution, ``cells`` the Variables read and assigned. ``argument_structure`` and ``structure``
    are the nests of the arguments and of the result; ``results`` are the result's leaves, Values
    and plain Python objects. Graphs are made by ``ef.capture.trace``, ``ef.function`` and
    ``ef.capture.load``.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
    >>> [node.name for node in graph.nodes], graph.inputs.names, graph.outputs.names
    (['tanh', 'multiply'], ('x',), ('output',))
    """

    def __init__(
        self,
        name: str,
        inputs: Values,
        nodes: Iterable[Node],
        outputs: Values,
        cells: Iterable[Cell] = (),
        argument_structure: Structure | None = None,
        structure: Structure | None = None,
        results: tuple[Any, ...] | None = None,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.nodes = tuple(nodes)
        self.outputs = outputs
        self.cells = tuple(cells)
        self.argument_structure = argument_structure
        self.structure = structure
        self.results: tuple[Any, ...] = tuple(outputs) if results is None else results
        alone = structure is None or structure.container is None
        self._is_one = alone and len(self.results) == 1 and type(self.results[0]) is Value
        self.cache: dict[Any, Any] = {}  # derived data: see graph/cache.py
        self.examples: tuple[Example, ...] = ()  # from its file
        self.signatures: dict[str, dict[str, str]] = {}  # likewise: see ``signature``
        self.state: Any = None  # the State between calls, if declared
        self.rewrites: Any = None  # the Report of its passes, if any

    @property
    def variables(self) -> dict[str, Any]:
        """The Variables that the program reads or assigns, by their names in the graph."""
        return {cell.name: cell.variable for cell in self.cells}

    @property
    def constants(self) -> tuple[Value, ...]:
        """The constants used by nodes or outputs, in order of use."""
        used = [v for node in self.nodes for v in node.values()] + self.all_outputs()
        return tuple(dict.fromkeys(v for v in used if v.constant is not None))

    def all_outputs(self) -> list[Value]:
        """All computed results: outputs, and the values assigned to Variables."""
        return [*self.outputs, *(c.assigned for c in self.cells if c.assigned is not None)]

    def all_inputs(self) -> list[Value]:
        """All entries: the inputs, and the values of Variables on entry."""
        return [*self.inputs, *(cell.value for cell in self.cells)]

    def like(
        self,
        nodes: Iterable[Node],
        new: Mapping[Value, Value],
        name: str | None = None,
        inputs: Iterable[str] | None = None,
        outputs: Iterable[str] | None = None,
    ) -> Graph:
        """A graph of these nodes, with ``new`` values in place of some inputs and outputs.

        ``inputs`` and ``outputs`` are new names for these.
        """
        made: Graph = object.__new__(type(self))  # a subclass may have another constructor
        Graph.__init__(
            made,
            self.name if name is None else name,
            self.inputs.replaced(new, inputs),
            nodes,
            self.outputs.replaced(new, outputs),
            [cell.replaced(new) for cell in self.cells],
            self.argument_structure,
            self.structure,
            tuple([new.get(x, x) if type(x) is Value else x for x in self.results]),
        )
        return made

    def nest(self, outputs: Iterable[Any]) -> Any:
        """The result's nest, filled with these outputs."""
        if self._is_one:
            return next(iter(outputs))
        found = iter(outputs)
        leaves = [next(found) if type(x) is Value else x for x in self.results]
        if self.structure is None:
            return leaves[0] if len(leaves) == 1 else tuple(leaves)
        return unflatten(self.structure, leaves)

    # Methods implemented in higher modules --------------------------------------------------------

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The results for these arguments, in the nest that the traced function returned.

        ``args`` have the nest of the traced function's, or are one value for each input; inputs may
        also be given by name, after the positional ones. Variables
        have their new values afterwards. Raises ArgumentError, ShapeError or DTypeError for
        arguments that do not fit; under a tape the call is recorded.
        """
        return _TOOLS["run_graph"](self, *args, **named)

    def value(self, name: str | Value) -> Value:
        """The value of this name: an output, an input, a Variable's value on entry, or any other.

        Outputs of nodes have the node's name, or where there are several ``name:0``, ``name:1`` ...
        If an input and an output share a name, it is the output's, here and everywhere else a value
        is looked up by name; ``graph.inputs[name]`` is the input. Raises SessionError, with similar
        names, if there is none.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
        >>> graph.value("tanh"), graph.value("output")
        (<Value tanh: float32(3,)>, <Value multiply: float32(3,)>)
        """
        return _TOOLS["value"](self, name)

    def text(self, *, lines: bool = True, types: bool = True, whole: bool = True) -> str:
        """The listing of the graph, which ``print(graph)`` shows.

        ``lines=False`` leaves out the lines of the user's code, ``types=False`` dtypes and shapes.
        ``whole=False`` folds repeated parts of a long listing into the first and a count, as
        ``print`` does.
        The time is proportional to the length of the listing.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
        >>> print(graph.text(lines=False))
        graph lambda(x: float32[3]):
          tanh:     float32[3] = tanh(x)
          multiply: float32[3] = multiply(tanh, 2.0)
        <BLANKLINE>
          return
            output = multiply
        """
        return _TOOLS["text"](self, lines=lines, types=types, whole=whole)

    def costs(self, sizes: Mapping[str, int] | None = None, **named: int) -> Any:
        """The costs of the graph: operations, bytes moved and memory, as a Costs, which is a table.

        ``sizes`` (or names as arguments) gives numbers for named dimensions; without them, costs
        are polynomials. Raises ShapeError if a cost is no polynomial, and for a name without a
        size. Bodies of loops count with their known number of iterations, else once.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec(("batch", 3), "float32"))
        >>> print(graph.costs(batch=32))
        costs of lambda for batch=32
          96 operations, 768 B moved
          768 B at the peak, of which 384 B for inputs, variables and constants
        <BLANKLINE>
          operations   share  bytes  node         line
                  96  100.0%  768 B  tanh (tanh)  ...
        """
        return _TOOLS["costs"](self, sizes, **named)

    def diff(self, other: Graph) -> Any:
        """Additions, removals and changes from this graph to another, as a Difference.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec((3,), "float32"))
        >>> graph.diff(graph)
        <Difference: none>
        """
        return _TOOLS["diff"](self, other)

    def to_dot(self) -> str:
        """The whole graph in the language of Graphviz, scopes as clusters, shapes on the edges.

        Bodies of branches and loops are clusters with a dashed edge to the node that they belong
        to.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec((3,), "float32"))
        >>> print(graph.to_dot())
        digraph "lambda" {
        ...
          n0_0 -> n0_1 [label="float32[3]"];
        ...
        """
        return _TOOLS["to_dot"](self)

    def to_svg(self, limit: int = MAX_BOXES) -> str:
        """A picture of the graph as SVG; with more than ``limit`` nodes, scopes
        collapse.

        Graphviz draws it if it is installed, else eagerflow itself.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec((3,), "float32"))
        >>> graph.to_svg().rstrip().endswith("</svg>")
        True
        """
        return _TOOLS["to_svg"](self, limit)

    def draw(self, path: str | os.PathLike[str], limit: int = MAX_BOXES) -> Path:
        """Write a picture of the graph; returns the file's path.

        ``path`` ends in ``.svg``, ``.dot`` or ``.gv`` (the whole graph for Graphviz), ``.png`` or
        ``.pdf`` (through Graphviz or matplotlib; MissingExtraError if neither is installed).
        ``limit`` is the maximum number of boxes without collapsed scopes.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec((3,), "float32"))
        >>> import pathlib, tempfile
        >>> graph.draw(pathlib.Path(tempfile.mkdtemp()) / "graph.svg").name
        'graph.svg'
        """
        return _TOOLS["draw"](self, path, limit)

    def check(self) -> None:
        """Check every rule for graphs, also in the graphs of branches and loops.

        Values are defined before use, each once and with a unique name; ops are
        registered and get valid inputs and attributes, and infer the results
        that the graph states; Variables match their assigned values. Raises CaptureError with
        the node and the user's line. The time is proportional to the size of the graph.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
        >>> graph.check()
        """
        _TOOLS["check"](self)

    def prune(self, outputs: Any, assignments: bool = False) -> Graph:
        """A graph that computes only these values, without unneeded nodes.

        ``outputs`` is a name, a Value, or a nest of them, and becomes the nest of the result.
        Inputs and Variables that are not needed are dropped, and so are assignments, unless
        ``assignments`` is set. Raises SessionError for names that the graph does not have.

        >>> spec = ef.TensorSpec((3,), "float32")
        >>> graph = ef.capture.trace(lambda x, y: {"a": ef.tanh(x), "b": x * y}, spec, spec)
        >>> graph.prune("a")
        <Graph lambda(x: float32(3,)), 1 nodes>
        """
        return _TOOLS["prune"](self, outputs, assignments)

    def rename(
        self,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Graph:
        """The graph with other names for inputs, for outputs, or for itself.

        ``inputs`` and ``outputs`` map old names to new ones. Raises SessionError for a name that
        the graph does not have, and CaptureError for one that is taken.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec((3,), "float32"), name="f")
        >>> graph.rename({"x": "image"}, {"output": "score"}, "model")
        <Graph model(image: float32(3,)), 1 nodes>
        """
        return _TOOLS["rename"](self, inputs, outputs, name)

    def compose(
        self,
        other: Graph,
        feeds: Mapping[str, str] | None = None,
        keep: Iterable[str] = (),
        scope: str = "",
    ) -> Graph:
        """The graph that runs this one, then ``other`` on its outputs.

        ``feeds`` maps inputs of ``other`` to names of values of this graph; without it, outputs go
        to the inputs of the same names, or the only output to the only input. Inputs that are not
        fed stay inputs; a name in both graphs is one input. ``other`` reads Variables after the
        assignments of this graph. The result is that of ``other``; ``keep`` names values of this
        graph that become outputs too. ``scope`` is a prefix for names of nodes from
        ``other``. Raises CaptureError if shapes or dtypes do not fit.

        >>> spec = ef.TensorSpec((3,), "float32")
        >>> first = ef.capture.trace(lambda x: {"y": ef.tanh(x)}, spec, name="first")
        >>> second = ef.capture.trace(lambda y: y * 2.0, spec, name="second")
        >>> print(first.compose(second).text(lines=False))
        graph first_second(x: float32[3]):
          tanh:     float32[3] = tanh(x)
          multiply: float32[3] = multiply(tanh, 2.0)
        <BLANKLINE>
          return
            output = multiply
        """
        return _TOOLS["compose"](self, other, feeds, keep, scope)

    def signature(self, name: str) -> Graph:
        """The graph of a single signature of the graph's file.

        It takes the inputs that its outputs need, and shares nodes and Variables. Raises
        ArgumentError for a name that is none of ``signatures``.

        >>> graph = ef.capture.trace(
        ...     lambda x, y: {"sum": x + y, "log": ef.log(x)},
        ...     ef.TensorSpec((3,), "float32"), ef.TensorSpec((3,), "float32"))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     graph.save(f"{folder}/model.ef", signatures={"logs": {"logarithm": "log"}})
        ...     loaded = ef.capture.load(f"{folder}/model.ef")
        >>> loaded.signatures, loaded.signature("logs")
        ({'logs': {'logarithm': 'log'}}, <Graph lambda(x: float32(3,)), 1 nodes>)
        """
        return _TOOLS["signature"](self, name)

    def gradient(self, targets: Any, sources: Any, unconnected: str = "raise") -> Graph:
        """A larger graph that also returns the gradients of ``targets`` by ``sources``.

        ``targets`` and ``sources`` are names, Values or Variables, or nests of them; any value of
        the graph can be either. The new outputs are called ``gradient/<source>``, and if there is
        one already, ``gradient/<source>_1``; called, the graph returns a dict of all outputs. The
        graph's own nodes are shared, and its results are unchanged. ``unconnected`` is as for
        ``GradientTape.gradient``; GradientError and SessionError as there and for unknown names.

        >>> graph = ef.capture.trace(lambda x: (x * x).sum(), ef.TensorSpec((3,), "float32"))
        >>> graph.gradient("output", "x").outputs.names
        ('output', 'gradient/x')
        """
        return _TOOLS["gradient"](self, targets, sources, unconnected)

    def optimized(
        self,
        numerics: str = "fast",
        *,
        only: Iterable[str] | None = None,
        without: Iterable[str] = (),
        final: bool = False,
    ) -> Graph:
        """The graph after all passes that ``numerics`` allows, repeated until nothing
        changes.

        ``numerics`` is "fast" or "exact" (bit for bit as in eager calls). ``only`` names the
        passes to run, of any kind, and ``without`` those to leave out. ``final`` says that no code
        will request gradients of the result, so that ``stop_gradient`` can go too. The rewrites are
        a Report in ``rewrites``; a graph that cannot be improved is returned
        itself. Raises ArgumentError for a name that is no pass.

        >>> graph = ef.capture.trace(lambda x: ef.log(1 + x), ef.TensorSpec((3,), "float32"))
        >>> graph.optimized().nodes[0].op.name, graph.optimized("exact") is graph
        ('log1p', True)
        """
        return _TOOLS["optimized"](self, numerics, only=only, without=without, final=final)

    def plan(self, numerics: str = "fast", sizes: dict[str, int] | None = None) -> Any:
        """The plan by which the graph runs on the current device.

        ``numerics`` is ``"fast"`` or ``"exact"``; ``sizes`` gives the graph's named dimensions.
        Raises ShapeError if one is missing.

        >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec(("n",), "float32"))
        >>> graph.plan(sizes={"n": 3})
        <Plan of lambda: 1 steps on cpu:0>
        """
        return _TOOLS["plan"](self, numerics, sizes)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        gradients: tuple[Any, Any] | None = None,
        examples: Iterable[Mapping[str, Any]] | None = None,
        signatures: Mapping[str, Iterable[str] | Mapping[str, str]] | None = None,
        state: Mapping[str, Any] | None = None,
        decoder: Mapping[str, Any] | None = None,
    ) -> None:
        """Save the graph, with the current values of its Variables, as one safetensors file.

        ``path`` is a file name; an existing file is replaced when the new one is complete, so
        that nothing is lost if the process dies or the disk is full. ``gradients`` are targets and
        sources as for ``graph.gradient``, whose larger graph is then saved. ``examples`` are
        inputs, each a mapping of names to arrays, which are stored with their current
        outputs: a server runs them before it answers with the graph (default: those of its file).
        ``signatures`` names choices of outputs for ``graph.signature`` and for clients of a
        server: lists of names of values, or mappings of new names to them; stored likewise.
        ``state`` maps inputs to the outputs that give their values for the next call, or to such
        an output and the initial array of one row (default: zeros); a server
        keeps them between the requests of a sequence. ``decoder`` names the ``tokens`` among the
        inputs and the ``logits`` among the outputs of a graph that generates, and how many tokens
        its ``context`` has. The same program gives the same bytes. Raises FileFormatError for a
        graph that cannot be saved, ArgumentError, ShapeError or DTypeError for examples and state
        that do not fit.

        >>> w = ef.Variable([2.0, 3.0], name="w")
        >>> graph = ef.capture.trace(lambda x: {"y": (x * w).sum()}, ef.TensorSpec((2,), "float32"))
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     graph.save(f"{folder}/model.ef", gradients=("y", "w"))
        ...     ef.capture.load(f"{folder}/model.ef").outputs.names
        ('y', 'gradient/w')
        """
        kept = {"examples": examples, "signatures": signatures, "state": state, "decoder": decoder}
        _TOOLS["save"](self, path, gradients=gradients, **kept)

    def _repr_html_(self) -> str:
        """The picture, and the listing below it, for a notebook cell."""
        return _TOOLS["_repr_html_"](self)

    def __str__(self) -> str:
        return self.text(whole=False)

    def __repr__(self) -> str:
        inputs = zip(self.inputs.names, self.inputs, strict=True)
        given = ", ".join(f"{name}: {value.spec}" for name, value in inputs)
        return printable(f"<Graph {self.name}({given}), {len(self.nodes)} nodes>")
