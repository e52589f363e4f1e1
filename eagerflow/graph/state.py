"""State of a graph: inputs that receive the values of outputs of the previous call.

A graph is pure, so its caller keeps its state: a server keeps one for each sequence of
requests. The pairs of inputs and outputs are declared here, and saved with the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.dtypes import is_inexact
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value
from eagerflow.tensor import Tensor

__all__ = ["Decoder", "State", "declared"]

_OP = "state"


class Decoder(NamedTuple):
    """The input of a graph that is the token, and the output with the logits of the next one.

    Tokens are integers (rows,), or (rows, length) if several can be passed at once; logits are
    (rows, vocabulary), or (rows, length, vocabulary). ``context`` is the maximum number of tokens
    of a sequence, None for no limit.
    """

    tokens: str
    logits: str
    context: int | None = None


class State(NamedTuple):
    """The output that each state input gets its next value from, and initial values.

    ``initial`` has a Tensor for each input with a nonzero initial value, without the axis of
    rows if the input has one. ``decoder`` is set for graphs that generate sequences.
    """

    pairs: dict[str, str]
    initial: dict[str, Tensor]
    decoder: Decoder | None = None


def declared(
    graph: Graph,
    pairs: Mapping[str, Any],
    decoder: Mapping[str, Any] | Decoder | None = None,
) -> State:
    """The state of a graph, after a check that it fits.

    ``pairs`` maps names of inputs to names of outputs, or to a name and the initial array of a
    sequence. ``decoder`` has ``tokens``, ``logits`` and optionally ``context``. Raises
    ArgumentError for unknown and repeated names, DTypeError and ShapeError
    for pairs that differ, for free sizes other than the rows, and for arrays that do not fit.

    >>> from eagerflow.graph.state import declared
    >>> row = ef.TensorSpec(("batch", 2), "float32")
    >>> graph = ef.capture.trace(lambda x, h: {"y": x + h, "h_next": x * h}, row, row)
    >>> declared(graph, {"h": ("h_next", [1.0, 1.0])}).initial
    {'h': Tensor([1., 1.], float32, cpu:0)}
    """
    inputs = dict(zip(graph.inputs.names, graph.inputs, strict=True))
    outputs = dict(zip(graph.outputs.names, graph.outputs, strict=True))
    if not isinstance(pairs, Mapping) or not pairs:
        _refuse("state is a mapping of inputs to outputs", "state", pairs, "{'h': 'h_next'}")
    names: dict[str, str] = {}
    initial: dict[str, Tensor] = {}
    for name, given in pairs.items():
        output, *begin = given if isinstance(given, tuple) else (given,)
        if not isinstance(output, str):
            _refuse("the state is not a pair", name, given, "an output, or an output and an array")
        if name not in inputs:
            _refuse(f"there is no input {name!r}", "state", name, ", ".join(inputs))
        if output not in outputs:
            _refuse(f"there is no output {output!r}", name, output, ", ".join(outputs))
        if output in names.values():
            _refuse("two inputs have the same output as their state", name, output, "one for each")
        if len(begin) > 1:
            _refuse("the state is not a pair", name, given, "an output, or an output and an array")
        _check_pair(name, inputs[name], output, outputs[output])
        names[name] = output
        if begin:
            initial[name] = _beginning(name, inputs[name], begin[0])
    found = None if decoder is None else _decoder(decoder, inputs, outputs, names)
    return State(names, initial, found)


def _check_pair(name: str, taken: Value, output: str, given: Value) -> None:
    if taken.dtype != given.dtype:
        raise DTypeError(
            f"the output {output!r} has another dtype",
            op=_OP,
            argument=name,
            received=str(given.dtype),
            expected=str(taken.dtype),
        )
    if taken.shape != given.shape:
        raise ShapeError(
            f"the output {output!r} has another shape",
            op=_OP,
            argument=name,
            received=str(given.shape),
            expected=str(taken.shape),
        )
    if any(isinstance(size, Dim) for size in taken.shape[1:]):
        raise ShapeError(
            "a size of the state is free",
            op=_OP,
            argument=name,
            received=str(taken.shape),
            expected="sizes that are numbers, but for the first, that of the rows",
            hint="a buffer for the longest sequence, and a count of used entries",
        )


def row_shape(value: Any) -> tuple[int, ...]:
    """The shape of one sequence's state, without the axis of rows."""
    shape: tuple[int, ...] = value.shape
    return shape[1:] if shape and isinstance(shape[0], Dim) else shape


def _beginning(name: str, taken: Value, given: Any) -> Tensor:
    found = given if isinstance(given, Tensor) else as_tensor(given, dtype=taken.dtype)
    if found.dtype != taken.dtype:
        raise DTypeError(
            "the initial state has a different dtype",
            op=_OP,
            argument=name,
            received=str(found.dtype),
            expected=str(taken.dtype),
        )
    if found.shape != row_shape(taken):
        raise ShapeError(
            "the initial state has a different shape",
            op=_OP,
            argument=name,
            received=str(found.shape),
            expected=f"{row_shape(taken)}, the shape of one row",
        )
    return found


def _decoder(
    given: Mapping[str, Any] | Decoder,
    inputs: Mapping[str, Value],
    outputs: Mapping[str, Value],
    pairs: Mapping[str, str],
) -> Decoder:
    fields = "tokens, logits and, if there is one, context"
    told = given._asdict() if isinstance(given, Decoder) else given
    known = isinstance(told, Mapping) and set(told) | {"context"} == set(Decoder._fields)
    if not known:
        _refuse("these are not the fields of a decoder", "decoder", given, fields)
    found = Decoder(**told)
    if not isinstance(found.tokens, str) or not isinstance(found.logits, str):
        _refuse("tokens and logits are names", "decoder", given, "an input and an output")
    others = [name for name in inputs if name not in pairs]
    if others != [found.tokens]:
        _refuse("a decoder has one input beside its state", "decoder", found.tokens, str(others))
    if found.logits not in outputs or found.logits in pairs.values():
        _refuse("there is no such output", "decoder", found.logits, ", ".join(outputs))
    tokens, logits = inputs[found.tokens], outputs[found.logits]
    if tokens.dtype.kind not in "iu" or not is_inexact(logits.dtype):
        raise DTypeError(
            "tokens are integers, logits are floats",
            op=_OP,
            argument="decoder",
            received=f"{tokens.dtype} and {logits.dtype}",
        )
    vocabulary = logits.shape[-1:]
    fits = len(tokens.shape) in (1, 2) and isinstance(tokens.shape[0], Dim)
    fits = fits and (len(tokens.shape) == 1 or isinstance(tokens.shape[1], Dim))
    whole, last = (*tokens.shape, *vocabulary), (*tokens.shape[:1], *vocabulary)
    if not fits or logits.shape not in (whole, last) or not isinstance(vocabulary[0], int):
        raise ShapeError(
            "tokens and logits do not fit together",
            op=_OP,
            argument="decoder",
            received=f"{tokens.shape} and {logits.shape}",
            expected="(rows,) or (rows, length), with free sizes, and these with a vocabulary",
        )
    most = found.context
    if most is not None and (type(most) is not int or most < 1):
        _refuse("not the length of a context", "decoder", most, "an integer of at least 1, or None")
    return found


def _refuse(problem: str, argument: str, received: Any, expected: str) -> None:
    raise ArgumentError(
        problem,
        op=_OP,
        argument=str(argument)[:80],
        received=repr(received)[:80],
        expected=expected,
    )
