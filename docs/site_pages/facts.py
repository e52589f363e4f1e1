"""What an op states about itself, in words: the table under each op of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eagerflow import dtypes
from eagerflow.capture import trace
from eagerflow.errors import CaptureError
from eagerflow.op import Missing, Onnx, Op
from eagerflow.ops.composition import Composition
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor
from tests.cases import cases_of

_PREFERRED = (np.dtype("float32"), np.dtype("int64"))
_GROUPS = (
    ("bool", dtypes.BOOL),
    ("signed integers", frozenset(dtypes.SIGNED_INTEGERS)),
    ("unsigned integers", frozenset(dtypes.UNSIGNED_INTEGERS)),
    ("floats", dtypes.FLOATS),
    ("float8", dtypes.FLOAT8),
    ("complex", dtypes.COMPLEX),
)


def words_for(allowed: frozenset[Any]) -> str:
    """A set of dtypes in words: kinds as a whole, or the names of some."""
    words, left = [], set(allowed)
    for name, members in _GROUPS:
        if members <= left:
            words.append(name)
            left -= members
    words += sorted(dtype.name for dtype in left)
    whole = ", ".join(words)
    return whole.replace("signed integers, unsigned integers", "integers")


def facts_of(op: Op) -> Iterator[tuple[str, str]]:
    """(title, words) of each fact of an op that its users can notice."""
    yield "Dtypes", _dtypes(op)
    if shapes := _shapes(op):
        yield "Shapes", shapes
    yield "Gradient", gradient_of(op)
    yield "Batches", _missing(op.batch, "``ef.vmap`` runs it once for all examples")
    yield "Cuts", _missing(op.split, "over several devices or threads along some of its axes")
    yield "ONNX", _onnx(op)
    yield "Accuracy", _accuracy(op)
    if effects := "; ".join(_effects(op)):
        yield "Effects", effects


def facts_of_composition(composition: Composition) -> Iterator[tuple[str, str]]:
    """(title, words) of each fact of a function that is made of ops."""
    yield "Dtypes", words_for(composition.dtypes)
    yield "Gradient", _missing(composition.gradient, "that of the ops inside")
    yield "Batches", _missing(composition.batch, "``ef.vmap`` runs it once for all examples")
    if ops := _ops_inside(composition):
        yield "Made of", ", ".join(f"``{name}``" for name in ops)


def _dtypes(op: Op) -> str:
    if not op.data:
        return "there is no tensor among its arguments"
    if op.uniform:
        return words_for(op.allowed(0))
    parts = (f"``{name}``: {words_for(op.allowed(i))}" for i, name in enumerate(op.data))
    return "; ".join(parts)


def _samples(op: Op | Composition, allowed: frozenset[Any]) -> list[Any]:
    """The op's own samples, of floats where it takes them."""
    dtype = next((d for d in _PREFERRED if d in allowed), None) or min(allowed, key=str)
    found: list[Any] = cases_of(op).samples(np.random.default_rng(0), dtype)
    return found


def _spec(value: Any) -> Any:
    return TensorSpec(value.shape, value.dtype) if isinstance(value, np.ndarray | Tensor) else value


def _shapes(op: Op) -> str:
    """Shapes of arguments and results, by the op's rule of shapes."""
    if op.family == "elementwise":
        return "any" if len(op.data) == 1 else "any that broadcast"
    lines: list[str] = []
    for sample in _samples(op, op.allowed(0)) if op.data else ():
        args, named = op.bind(sample.args, sample.attributes)
        args = tuple(map(_spec, args))
        sizes = [n for s in args if isinstance(s, TensorSpec) for n in s.shape]
        if not all(isinstance(s, TensorSpec) or s is None for s in args) or 0 in sizes:
            continue
        try:
            results = op.infer(*args, **named)
        except CaptureError as error:
            return error.problem
        results = results if isinstance(results, tuple) else (results,)
        given = ", ".join(str(tuple(s.shape)) for s in args if s is not None)
        told = [f"{name}={value!r}" for name, value in sample.attributes.items()]
        line = f"{'; '.join([given, *told])} → {', '.join(str(tuple(r.shape)) for r in results)}"
        if len(line) < 100 and line not in lines:
            lines.append(line)
    return "for example " + "; ".join(f"``{line}``" for line in _unlike(lines)) if lines else ""


def _unlike(lines: list[str]) -> list[str]:
    return lines[:1] + [lines[-1]] * (len(lines) > 1)


def gradient_of(op: Op) -> str:
    """What is said of an op's gradient, or why it has none."""
    if not op.differentiable:
        return f"none: {_reason(op)}"
    rules = op.vjp if isinstance(op.vjp, tuple) else (op.vjp,)
    stated = next((r.stated for r in rules if hasattr(r, "stated")), None)
    if stated is not None:
        return str(stated)
    ways = ["reverse", "forward"] if not isinstance(op.jvp, Missing) else ["reverse"]
    return f"{' and '.join(ways)}, of any order"


def _reason(op: Op) -> str:
    """Why there is no gradient; families say of one of the two rules where to look for it."""
    rules = (op.vjp, op.partials, op.jvp)
    reasons = [r.reason for r in rules if isinstance(r, Missing)]
    return next((r for r in reasons if not r.startswith(("see ", "no gradient"))), reasons[0])


def _missing(fact: Any, words: str) -> str:
    return f"none: {fact.reason}" if isinstance(fact, Missing) else words


def _onnx(op: Op) -> str:
    if isinstance(op.onnx, Missing):
        return f"none: {op.onnx.reason}"
    if isinstance(op.onnx, Onnx):
        return f"``{op.onnx.name}``"
    return "as the operators that it consists of"


def _accuracy(op: Op) -> str:
    return f"within {op.ulp} units in the last place"


def _effects(op: Op) -> Iterator[str]:
    if op.views:
        yield "shows all elements as they are" if op.views == "all" else "shows some elements"
    if op.aliases:
        yield "the result may share memory with an argument"
    if op.fails:
        yield "may be refused for the numbers in its arguments"
    if op.threaded:
        yield "bits may depend on the number of threads"
    if op.fills:
        yield "the values of its argument do not count"


def _ops_inside(composition: Composition) -> list[str]:
    """Which ops a call runs, by a trace of the first of its samples that can be traced."""
    for sample in _samples(composition, composition.dtypes):
        arrays = {i: x for i, x in enumerate(sample.args) if isinstance(x, np.ndarray)}

        def call(*tensors: Any, sample: Any = sample, places: Any = tuple(arrays)) -> Any:
            args = list(sample.args)
            for place, tensor in zip(places, tensors, strict=True):
                args[place] = tensor
            return composition.call(*args, **sample.attributes)

        try:
            graph = trace(call, *map(_spec, arrays.values()))
        except CaptureError:
            continue  # what it computes depends on values of this sample
        return list(dict.fromkeys(node.op.name for node in graph.nodes))
    return []
