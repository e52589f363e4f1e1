"""Trace: the recorder that turns a run of a Python function into a Graph.

No kernel runs: arguments are Tensors around Values, every op call is checked and becomes a Node,
Variables are read as Values and assigned Values. A Trace inside a Trace, as for the body of a
loop, takes values from outside as inputs of its own (``captured``).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, TypeVar
from weakref import ref

import numpy as np

from eagerflow import tree
from eagerflow.capture import number_arithmetic as _methods_of_numbers  # noqa: F401
from eagerflow.capture import number_questions as _questions_of_numbers  # noqa: F401
from eagerflow.capture.assumptions import UNRELATED, Assumptions
from eagerflow.capture.free_sizes import FreeSizes
from eagerflow.capture.guards.events import current
from eagerflow.capture.guards.lookup import FOREIGN, USER, origins
from eagerflow.capture.leaks import refuse_leaks
from eagerflow.capture.taps import Taps
from eagerflow.capture.updates import Updates
from eagerflow.convert import as_tensor, number_type
from eagerflow.devices import Device, as_device, current_device, scoped_device
from eagerflow.dims import Dim
from eagerflow.dispatch import check, internal, user_frame
from eagerflow.display import function_name
from eagerflow.dtypes import DType
from eagerflow.errors import CaptureError, EagerflowError
from eagerflow.graph.devices import said
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values, place_of
from eagerflow.graph.names import FreeNames
from eagerflow.graph.run import interpret
from eagerflow.graph.walk import needed
from eagerflow.handlers import raised_here
from eagerflow.masks import Masked, are_masks, opened
from eagerflow.number import WIDE, Number
from eagerflow.op import Op, ops
from eagerflow.recorder import recorder_state, with_recorder
from eagerflow.runtime.collector import young
from eagerflow.scopes import scopes
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable
from eagerflow.visitors import Secluded

T = TypeVar("T")

_frame = sys._getframe
_WIDE = {kind: np.dtype(name) for kind, name in WIDE.items()}
_LARGEST = np.dtype("uint64")


def _here(depth: int) -> str:
    """The user's current line, seen from this many frames down."""
    frame = user_frame(_frame(depth))
    return place_of((frame.f_code, frame.f_lasti))


@contextmanager
def located() -> Iterator[None]:
    """A context that adds the user's line to errors."""
    try:
        yield
    except EagerflowError as error:
        trace = error.__traceback__ if error.at is None else None
        while trace is not None:
            code = trace.tb_frame.f_code
            if not internal[code.co_filename]:
                error.at = place_of((code.co_filename, trace.tb_lineno, code.co_name))
            trace = trace.tb_next
        raise


class Trace(Secluded):
    """Records op calls as Nodes; values are Tensors around Values that belong to it.

    ``device`` is the assumed device of values. ``lifts`` says that concrete tensors from
    outside become inputs too, so that gradients can pass to them. ``placed`` says that values are
    on the devices of eager calls; without it they are all in one place, and pins only tell a
    partition where to compute.
    """

    derives = False

    def __init__(
        self,
        name: str,
        device: Device | None = None,
        lifts: bool = False,
        free: FreeSizes | None = None,
        placed: bool = False,
    ) -> None:
        self.name = name
        self.placed = placed
        self.free = free or FreeSizes()
        self.device = device or current_device()
        self.lifts = lifts
        self.nodes: list[Node] = []
        self.cells: dict[int, Cell] = {}
        self.on_created: Callable[[], None] | None = None
        self.is_unwatched = False  # from some point on, as the code will run again
        self.made: list[str] = []  # lasting state created by the traced code
        self.made_at: list[str] = []
        self.taped: dict[int, Variable] = {}  # Variables read under a tape inside the trace
        self.captured: dict[int, tuple[Tensor, Value]] = {}  # values from outside
        self.adopted: set[Value] = set()  # values of the graph that this trace extends
        self.taps = Taps()
        self.assumptions = Assumptions()
        self.updates = Updates()
        self.updated: dict[int, str] = {}  # arguments that were changed in place, and where
        self.refused: CaptureError | None = None  # an error that the traced code has caught
        self.unique = FreeNames().take
        self._constants: dict[int, Value] = {}
        self._reads: dict[int, tuple[Value, Tensor]] = {}  # current values of Variables
        self._specs: dict[Any, TensorSpec] = {}
        self._tensors: list[ref[Tensor]] = []
        self._origin: tuple[Any, int] | None = None
        self.is_open = True

    # Values ----------------------------------------------------------------------------------

    def symbol(self, value: Value, device: Device | None = None) -> Tensor:
        """The Tensor that stands for a value."""
        tensor = new_tensor(value, (device or self.device).kind(value.dtype))
        self._tensors.append(ref(tensor))
        return tensor

    def input(self, spec: Any, name: str) -> Tensor:
        """A new Tensor of this shape and dtype; the caller lists it as an input."""
        value = Value(self.unique(name), tuple(spec.shape), spec.dtype, self)
        place = getattr(spec, "device", None) if self.placed else None
        return self.symbol(value, None if place is None else as_device(place))

    def value_of(self, tensor: Tensor) -> Value:
        """The Value of a Tensor here: an own one, a constant, or one from outside."""
        array = tensor._array
        if type(array) is Value and (array.owner is self or array in self.adopted):
            return array
        concrete = type(array) is tensor._kind.array_type
        known = self.captured.get(id(tensor))
        if known is not None:
            return known[1]
        if concrete and not self.lifts:
            return self._constant(tensor)
        if type(array) is Value and not (array.owner and array.owner.is_open):
            array.refuse("an op")
        value = Value(self.unique("captured"), tensor.shape, tensor.dtype, self)
        self.captured[id(tensor)] = (tensor, value)
        return value

    def _constant(self, tensor: Tensor) -> Value:
        value = self._constants.get(id(tensor))
        if value is None:
            name = self.unique("constant")
            value = Value(name, tensor.shape, tensor.dtype, self, constant=tensor)
            self._constants[id(tensor)] = value
        return value

    # Recorder methods --------------------------------------------------------------------------

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        specs = self._inferred(op, args, attributes)
        inputs = tuple([self.value_of(x) if type(x) is Tensor else x for x in args])
        origin = self._origin
        if origin is None:
            frame = user_frame(_frame(1))
            origin = frame.f_code, frame.f_lasti
        scoped = scoped_device()
        makes = "device" in op.attributes
        if self.placed and makes and scoped is None and current_device() is not self.device:
            scoped = current_device()  # as in eager calls, independent of the arguments' device
        pin = None if scoped is None else str(scoped)
        node = Node(op, inputs, attributes, self.unique(scopes() + op.name), origin, pin)
        self.nodes.append(node)
        place = said(node) if self.placed else None
        home = self.device if place is None else as_device(place)
        for x in args if not (makes and self.placed) else ():
            if type(x) is Tensor:
                home = x._kind.device
                break
        if type(specs) is tuple:
            node.outputs = tuple(
                Value(f"{node.name}:{i}", s.shape, s.dtype, self, node, i)
                for i, s in enumerate(specs)
            )
            return tuple([self.symbol(v, home) for v in node.outputs])
        value = Value(node.name, specs.shape, specs.dtype, self, node)
        node.outputs = (value,)
        if op.name == "to_device":
            value.device, home = attributes["device"], specs.device
        return self.symbol(value, home)

    def _inferred(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """The specs of the op's results; cached by shape for elementwise ops."""
        if attributes or op.family != "elementwise":
            return check(op, args, attributes)
        key = op, *[(x._kind, x._array.shape) if type(x) is Tensor else type(x) for x in args]
        found = self._specs.get(key)
        if found is None:
            found = self._specs[key] = check(op, args, attributes)
        return found

    def _cell(self, variable: Variable) -> Cell:
        cell = self.cells.get(id(variable))
        if cell is None:
            name = self.unique(variable.name)
            value = Value(name, variable.shape, variable.dtype, self, device=str(variable.device))
            cell = self.cells[id(variable)] = Cell(name, variable, value)
        return cell

    def read(self, variable: Any) -> Tensor:
        cell = self._cell(variable)
        if recorder_state()[1] is not self:
            self._outermost().taped[id(variable)] = variable
        value = cell.value if cell.assigned is None else cell.assigned
        known = self._reads.get(id(variable))
        if known is None or known[0] is not value:
            # One tensor for all reads, as in eager calls: tapes sum gradients in the same order.
            again = cell.assigned is not None and variable.trainable and not self.lifts
            value_now = self._read_again(cell) if again else value
            tensor = self.symbol(value_now, variable.device if self.placed else None)
            known = self._reads[id(variable)] = value, tensor
        return known[1]

    def _outermost(self) -> Trace:
        found, recorder = self, self.outer
        while recorder is not None:
            if isinstance(recorder, Trace):
                found = recorder
            recorder = recorder.outer
        return found

    def _read_again(self, cell: Cell) -> Value:
        """The assigned value, detached from the gradient of its computation."""
        frame = user_frame(_frame(2))
        origin = self._origin or (frame.f_code, frame.f_lasti)
        name = self.unique(f"{cell.name}/read")
        node = Node(ops["stop_gradient"], (cell.assigned,), {}, name, origin)
        self.nodes.append(node)
        value = Value(name, cell.value.shape, cell.value.dtype, self, node)
        node.outputs = (value,)
        return value

    def assign(self, variable: Any, value: Any) -> None:
        self._cell(variable).assigned = self.value_of(value)
        self._reads.pop(id(variable), None)

    def emit(self, name: str, sink: Callable[..., Any], tensors: Mapping[str, Any]) -> None:
        if (node := getattr(sink, "node", None)) is not None:
            with_recorder(self, node, *tensors.values())
            return
        named = {f"{name}/{label}".rstrip("/"): self.value_of(x) for label, x in tensors.items()}
        self.taps.note(sink, named)

    def changing(self, tensor: Any) -> None:
        if type(tensor) is Tensor and getattr(tensor._array, "owner", None) is self:
            self.updates.note(tensor._array, _here(3))

    def leave(self, tensor: Any, how: str) -> None:
        """Allow all values to leave while tracing: only constants get here."""

    def created(self, what: str) -> None:
        if self.on_created is not None:
            self.on_created()
            self.is_unwatched = True
        self.made.append(what)
        self.made_at.append(_here(3))

    def aside(self, f: Callable[..., Any], *args: Any) -> Any:
        monitors = current().stack
        call = partial(monitors[-1].aside, f) if monitors else f
        return with_recorder(None, call, *args)

    def initial(self, tensor: Tensor) -> Tensor:
        """The value of a tensor computed from constants only; others are rejected."""
        value = self.value_of(tensor)
        nodes, given = self._origins(value)
        if given:
            tensor._array.refuse("ef.Variable(...)")
        graph = Graph(self.name, Values(()), nodes, Values((value,)))
        found: Tensor = with_recorder(None, interpret, graph, ())[0]
        return found

    def _origins(self, value: Value) -> tuple[list[Node], set[Value]]:
        """The nodes that compute a value, and the inputs of these."""
        nodes = needed(self.nodes, (value,))
        used = {value, *(v for node in nodes for v in node.values())}
        return nodes, {v for v in used if v.node is None and v.constant is None}

    def follow(self, origin: tuple[Any, Any] | None) -> None:
        self._origin = origin[0] if origin and isinstance(origin[0], tuple) else origin

    def explain(self, error: EagerflowError) -> None:
        if error.at is None:
            error.at = place_of(self._origin) if self._origin else _here(3)

    def refusal(self, value: Value, how: str) -> CaptureError:
        """The error for code that needs an unknown number, with a message for the case."""
        made = "" if value.node is None else f", computed at {value.node.place}"
        what = f"{value.name}: {TensorSpec(value.shape, value.dtype)}{made}"
        at = _here(3)
        if not self.is_open:
            return CaptureError(
                f"a value of the captured {self.name!r} is used after its tracing has ended",
                received=what,
                at=at,
                hint=f"return it from {self.name}, or keep it in an ef.Variable",
            )
        what_for = how.replace("__index__", "a size, an index or an axis")
        if what_for.endswith(" of a number"):
            what_for = what_for.removesuffix(" of a number")
            problem = f"{what_for} needs the value of a number argument, which is not known"
            names = ", ".join(sorted(repr(v.name) for v in self._origins(value)[1]))
            hint = f"declare the argument static: @ef.function(static=({names},)), or use ef ops"
        else:
            problem = f"{what_for} needs a number that is not known"
            hint = _remedy(how)
        error = CaptureError(
            f"{problem} while {self.name!r} is traced",
            received=what,
            hint=hint,
            at=at,
        )
        if _asks_itself(_frame(2)):
            self.refused = error
        return error

    def caught(self, error: BaseException | None) -> None:
        """The traced code has caught an error and continues, unlike eager calls."""
        self.assumptions.caught(error)
        if not isinstance(error, UNRELATED):
            self.free.need("the cause of an error that the function catches")
        if isinstance(error, CaptureError):
            self.refused = error

    def refuse_caught(self) -> None:
        """Raise the CaptureError that the traced code has caught, if there is one."""
        if self.refused is not None:
            raise self.refused

    def refuse_key(self, value: Value) -> None:
        """Raise CaptureError for an argument that user code puts into a set or dict."""
        frame = _frame(3)
        while origins[frame.f_code.co_filename] == FOREIGN and frame.f_back:
            frame = frame.f_back
        state = (cell.value for cell in self.cells.values())
        if self.is_open and origins[frame.f_code.co_filename] == USER and value not in state:
            raise CaptureError(
                f"the tensor {value.name!r} is a key of a set or dict while {self.name!r} is "
                "traced: a later call may pass one object where this one has two",
                at=_here(4),
                expected="keys that are the same in each call",
                hint="its place or a name as the key",
            )

    # The end -----------------------------------------------------------------------------------

    def finish(self, inputs: Values, result: Any, argument_structure: Any = None) -> Graph:
        """The recorded graph; ``result`` is the nest that the function returned.

        The values of ``taps`` follow as outputs outside of the nest.
        """
        self.refuse_caught()
        leaves, structure = tree.flatten(result)
        found = [self._result(leaf) for leaf in leaves]
        values = [x for x in found if type(x) is Value]
        outputs = self.taps.added(Values(values, _output_names(found, structure)))
        self.is_open = False
        self._reads.clear()
        return Graph(
            self.name,
            inputs,
            self.nodes,
            outputs,
            self.cells.values(),
            argument_structure,
            structure,
            tuple(found),
        )

    def _result(self, leaf: Any) -> Any:
        if isinstance(leaf, Number):
            given = leaf
            leaf = given.tensor if given.own is None else with_recorder(self, lambda: given.value)
        if isinstance(leaf, Variable):
            leaf = with_recorder(self, lambda: leaf.value)
        if type(leaf) is Tensor:
            return self.value_of(leaf)
        if type(leaf) is Dim and leaf.free is not None:
            leaf.free.need("a size as a result")
        self._refuse_object(leaf)
        return leaf

    def _refuse_object(self, leaf: Any) -> None:
        """Raise CaptureError for a returned object that is no nest, and holds traced values."""
        held = getattr(leaf, "__dict__", None)
        parts = leaf if isinstance(leaf, set | frozenset) else held.values() if held else ()
        if not isinstance(leaf, type | ModuleType) and any(self._is_own(x) for x in parts):
            raise CaptureError(
                f"{self.name!r} returns a {type(leaf).__name__} that holds computed values",
                expected="tensors, and lists, tuples, named tuples and dicts of them",
                hint="return its parts, as a dict or a typing.NamedTuple, and make the "
                f"{type(leaf).__name__} outside",
            )

    def _is_own(self, value: Any) -> bool:
        array = getattr(value, "_array", None) if type(value) is Tensor else None
        return type(array) is Value and array.owner is self

    def leaks(self) -> list[Tensor]:
        """The Tensors of this trace that are still held."""
        held = [t for t in (r() for r in self._tensors) if t is not None]
        self._tensors.clear()
        return held


def _asks_itself(frame: Any) -> bool:
    """Whether a value is requested by code outside of the package, and not by an op."""
    while frame is not None and frame.f_code.co_filename in _OF_VALUES:
        frame = frame.f_back
    return frame is not None and not internal[frame.f_code.co_filename]


_VALUES = (Number, Tensor, Trace, Value, Variable)
_OF_VALUES = {sys.modules[cls.__module__].__file__ for cls in _VALUES}


def _remedy(how: str) -> str:
    if how.startswith(("bool", "if")):
        return (
            "ef.cond(value, true_fn, false_fn) in place of if, ef.while_loop in place of while, "
            "ef.where(condition, a, b) element by element"
        )
    if how.startswith(("int", "__index__", "float", "complex")):
        return (
            "keep it a tensor; ef.fori_loop(0, n, body, init) in place of range(n); a size or an "
            "index must be known: pass it as a static argument; ef.stack(values) or "
            "x.at[i].set(value) in place of array[i] = value"
        )
    if how.startswith("iteration"):
        return "ef.scan(f, init, xs) or ef.map(f, xs) in place of a for loop"
    if how.startswith("ef.Variable"):
        return "create Variables outside of captured functions, or from values that are known"
    return "ef ops in place of NumPy and Python; return the value and look at it outside"


def _output_names(leaves: list[Any], structure: tree.Structure) -> list[str]:
    """Keys of a returned dict; else output, or output_0, output_1 ...; masks are x_mask."""
    hide = are_masks(structure)
    shown = [x for x, hidden in zip(leaves, hide, strict=True) if not hidden]
    count = sum(type(x) is Value for x in shown)
    if structure.container is not Masked and structure.keys and len(structure.keys) == len(shown):
        keyed = zip(structure.keys, shown, strict=True)
        taken = FreeNames()  # 1 and "1" are different keys
        names = [taken.take(str(key)) for key, x in keyed if type(x) is Value]
    else:
        names = ["output"] if count == 1 else [f"output_{n}" for n in range(count)]
    free, found = FreeNames(names).take, iter(names)
    made: list[str] = []
    for leaf, hidden in zip(leaves, hide, strict=True):
        if type(leaf) is Value:
            made.append(free(f"{made[-1]}_mask") if hidden else next(found))
    return made


# Tracing a function ------------------------------------------------------------------------------


def argument_names(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """A name for each positional argument."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except raised_here(ValueError, TypeError):
        parameters = []
    names = []
    for i in range(len(args)):
        parameter = parameters[min(i, len(parameters) - 1)] if parameters else None
        if parameter is None or parameter.kind is parameter.VAR_POSITIONAL:
            names.append(f"{parameter.name}_{i}" if parameter else f"argument_{i}")
        else:
            names.append(parameter.name)
    return names


def bind(
    signature: inspect.Signature, args: Any, kwargs: dict[str, Any], is_op: bool
) -> inspect.BoundArguments:
    """The arguments of a call with their names; ops take attributes by position as well."""
    kinds = [p.kind for p in signature.parameters.values()]
    count = len(kinds) - kinds.count(inspect.Parameter.KEYWORD_ONLY)
    if is_op and inspect.Parameter.VAR_POSITIONAL not in kinds:
        names = list(signature.parameters)[count : len(args)]
        given = dict(zip(names, args[count:], strict=False))
        if not kwargs.keys() & given:
            args, kwargs = args[:count] + args[count + len(given) :], kwargs | given
    return signature.bind(*args, **kwargs)


def trace(f: Callable[..., Any], *args: Any, name: str | None = None) -> Graph:
    """The graph of ``f`` for arguments like these; no kernel runs.

    ``args`` are TensorSpecs, whose sizes may be integers, names or None (free), or example
    tensors, or nests of them; free sizes that must be equal become one. Python
    numbers, strings and other objects are constants.
    Raises CaptureError for code that needs unknown values, with the user's line,
    and the errors of the ops.

    >>> graph = ef.capture.trace(lambda x, w: x @ w, ef.TensorSpec(("batch", 3), "float32"),
    ...                          ef.TensorSpec((3, 2), "float32"))
    >>> graph.outputs[0].shape
    (batch, 2)
    """
    return FreeSizes().traced(partial(_trace, f, args, name))


def _trace(
    f: Callable[..., Any], args: tuple[Any, ...], name: str | None, free: FreeSizes
) -> Graph:
    recorder = Trace(name or function_name(f), free=free)
    args = opened(args)
    labelled = zip(argument_names(f, args), args, strict=True)
    leaves, structure = tree.flatten(args)
    inputs: list[Value] = []
    given = tree.unflatten(
        structure,
        [
            _argument(recorder, leaf, path, inputs)
            for leaf, path in zip(leaves, paths(labelled), strict=True)
        ],
    )
    with young():
        with recorder, located():
            result = f(*given)
        graph = recorder.finish(Values(inputs), opened(result), structure)
        del result, given
        refuse_leaks(recorder.name, recorder.leaks())
    return graph


def paths(labelled: Iterable[tuple[str, Any]]) -> list[str]:
    """A readable name for each leaf of nests with names, such as ``batch['x'][0]``."""
    return [path for name, x in labelled for path in tree.paths(tree.flatten(x)[1], name)]


def _argument(recorder: Trace, leaf: Any, path: str, inputs: list[Value]) -> Any:
    if isinstance(leaf, Variable):
        return leaf
    if not isinstance(leaf, TensorSpec):
        if not isinstance(leaf, Tensor) and not hasattr(leaf, "__array__"):
            return leaf
        tensor = as_tensor(leaf)
        leaf = TensorSpec(tensor.shape, tensor.dtype)
    return spec_input(recorder, leaf, plain_name(path), inputs)


def spec_input(
    recorder: Trace, spec: TensorSpec, label: str, inputs: list[Value], example: Any = None
) -> Tensor:
    """An input like a spec, named by it or else by ``label``; free sizes get names.

    ``example`` is the shape in the call that is traced, if there is one.
    """
    name = spec.name or label
    shape = recorder.free.shape(spec.shape, name, example)
    tensor = recorder.input(spec.like(shape), name)
    inputs.append(tensor._array)
    if spec.device is not None:
        tensor._array.device = str(spec.device)
    return tensor


def plain_name(path: str) -> str:
    """An argument's path as a name: ``batch['x'][0]`` is ``batch_x_0``."""
    found = "".join(c if c.isalnum() else "_" for c in path.replace("'", ""))
    while "__" in found:
        found = found.replace("__", "_")
    return found.strip("_") or "argument"


def number(recorder: Trace, example: Any, name: str, inputs: list[Value]) -> Number:
    """An input for a Python or NumPy number of the type of ``example``."""
    python = number_type(example)
    assert python is not None
    tensor = recorder.input(TensorSpec((), wide_dtype(example)), name)
    inputs.append(tensor._array)
    own = example.dtype if isinstance(example, np.generic) else None
    at = recorder.assumptions.argument(python, own)
    return Number(tensor, python, own, recorder.assumptions, at)


def wide_dtype(number: Any) -> DType:
    """The dtype that holds any number of this type."""
    python = number_type(number)
    assert python is not None
    kind = _WIDE[python]
    return kind if getattr(number, "dtype", None) != _LARGEST else _LARGEST
