"""The forms of ops in a program: operators, indexing, array methods, or NumPy functions.

Most ops exist in NumPy under the same name, with the same arguments: these need no rule. There are
rules for ops that are written differently.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from eagerflow.dims import Dim
from eagerflow.errors import CaptureError
from eagerflow.graph.ir import Node, Value
from eagerflow.handlers import raised_here
from eagerflow.op import Op
from eagerflow.standalone.expressions import (
    ATOM,
    OPERATORS,
    PRODUCT,
    SUM,
    Expression,
    binary,
    bundle,
    call,
    listed,
    literal,
    method,
    text,
    unary,
)
from eagerflow.standalone.layout import Line
from eagerflow.standalone.writer import Writer

UNSAID: Any = inspect.signature(np.sum).parameters["keepdims"].default
"""Defaults of NumPy parameters that can be left out."""

Form = Callable[..., Any]
FORMS: dict[str, Form] = {}
"""Rules ``(w, node, *expressions)`` by the names of ops."""


def form(*names: str) -> Callable[[Form], Form]:
    """Decorator that registers the rule for these ops."""

    def decorate(rule: Form) -> Form:
        FORMS.update(dict.fromkeys(names, rule))
        return rule

    return decorate


# NumPy functions ---------------------------------------------------------------------------------


def numpy_form(w: Writer, node: Node, xs: Sequence[Any]) -> Expression | None:
    """An op as an operator, or as the equivalent NumPy function; None without one."""
    op = node.op
    symbol = OPERATORS.get(op.name)
    if symbol is not None and not node.attributes:
        return unary(symbol[0], xs[0]) if len(xs) == 1 else binary(*symbol, *xs)
    name = numpy_name(op)
    named = None if name is None or None in xs else _named(op, name, node.attributes)
    if named is None:
        return None
    return call(f"np.{name}", *xs, **{key: w.literal(x) for key, x in named.items()})


@cache
def numpy_name(op: Op) -> str | None:
    """The name of the NumPy function for an op."""
    for name in (op.ufunc, op.name, f"linalg.{op.name}", f"fft.{op.name}"):
        found: Any = np
        for part in (name or "-").split("."):
            found = getattr(found, part, None)
        if callable(found) and not op.variadic and op.outputs == 1:
            return name
    return None


def _named(op: Op, name: str, attributes: dict[str, Any]) -> dict[str, Any] | None:
    """The keyword arguments of a NumPy function for the attributes; None if it lacks one."""
    defaults = _defaults(name)
    found = {}
    for key, value in attributes.items():
        said = defaults.get(key, UNSAID)
        said = op.attributes[key] if said is UNSAID else said
        if key == "device" or _same(value, said):
            continue
        if key not in defaults:
            return None
        found[key] = value[0] if key == "axis" and _is_one(value) else value
    return found


@cache
def _defaults(name: str) -> dict[str, Any]:
    """The parameters of a NumPy function, and their defaults."""
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part)
    try:
        parameters = inspect.signature(found).parameters.values()
    except raised_here(ValueError):
        return {}
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return {p.name: p.default for p in parameters if p.kind not in kinds}


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def _is_one(axis: Any) -> bool:
    return isinstance(axis, tuple) and len(axis) == 1


# Shapes and dtypes -------------------------------------------------------------------------------


@form("stop_gradient", "to_device", "positive", "after")
def _same_value(w: Writer, node: Node, x: Expression, *others: Expression) -> Expression:
    return x


@form("send", "recv", "replica_concat", "replica_mean")
def _communication(w: Writer, node: Node, *xs: Expression) -> Expression:
    raise CaptureError("it cannot be exported: a program is in one place", op=node.op.name)


@form("custom_gradient")
def _own_results(w: Writer, node: Node, *xs: Expression) -> list[Expression]:
    start, count = node.attributes["arguments"], node.attributes["results"]
    return list(xs[start : start + count])


@form("astype")
def _cast(w: Writer, node: Node, x: Expression) -> Expression:
    return method(x, "astype", literal(node.outputs[0].dtype))


@form("view")
def _bits(w: Writer, node: Node, x: Expression) -> Expression:
    x = call("np.ascontiguousarray", x) if node.inputs[0].shape else x
    return method(x, "view", literal(node.outputs[0].dtype))


@form("reshape", "squeeze")
def _reshape(w: Writer, node: Node, x: Expression) -> Expression:
    shape = node.outputs[0].shape
    free = [i for i, n in enumerate(shape) if isinstance(n, Dim)]
    if len(free) == 1 and 0 not in shape:  # the one unknown size follows
        shape = tuple(-1 if i in free else n for i, n in enumerate(shape))
    return (
        method(x, "reshape", *[w.size(x) for x in shape]) if shape else method(x, "reshape", "()")
    )


@form("broadcast_to")
def _broadcast(w: Writer, node: Node, x: Expression) -> Expression:
    return call("np.broadcast_to", x, w.sizes(node.outputs[0].shape))


@form("permute_dims")
def _transpose(w: Writer, node: Node, x: Expression) -> Expression:
    rank = len(node.outputs[0].shape)
    axes = node.attributes["axes"]
    axes = tuple(range(rank))[::-1] if axes is None else tuple(a % rank for a in axes)
    if axes == tuple(range(len(axes))):
        return x
    if axes == (1, 0):
        return text(*x.at(ATOM), ".T")
    if len(axes) > 2 and axes == (*range(len(axes) - 2), len(axes) - 1, len(axes) - 2):
        return text(*x.at(ATOM), ".mT")
    return method(x, "transpose", *[literal(x) for x in axes])


@form("concat", "stack")
def _joined(w: Writer, node: Node, *xs: Expression) -> Expression:
    name = "concatenate" if node.op.name == "concat" else "stack"
    axis = node.attributes["axis"]
    more = {} if axis == 0 else {"axis": literal(axis)}
    return call(f"np.{name}", bundle(xs, "[]"), **more)


@form("_pad", "pad")
def _pad(w: Writer, node: Node, x: Expression) -> Expression:
    more = node.attributes
    named: dict[str, Any] = {}
    if more["mode"] != "constant":
        named["mode"] = literal(more["mode"])
    elif more["constant_values"] != 0:
        named["constant_values"] = literal(more["constant_values"])
    return call("np.pad", x, w.literal(more["pad_width"]), **named)


# Indexing ----------------------------------------------------------------------------------------


@form("getitem")
def _getitem(w: Writer, node: Node, x: Expression, *arrays: Expression) -> Expression:
    return text(*x.at(ATOM), index_of(w, node, arrays))


def index_of(w: Writer, node: Node, arrays: Sequence[Expression], skip: int = 1) -> Expression:
    """The index of a node in brackets, with its arrays at their positions."""
    index = node.attributes["index"]
    items = index if isinstance(index, tuple) else (index,)
    values = node.inputs[skip:]
    rest = zip(arrays, values, strict=True)
    parts = [_item(w, item, rest) for item in items]
    inner = text(*listed(parts)) if parts else text("()")
    return text("[", inner, "]")


def _item(w: Writer, item: Any, rest: Any) -> Expression:
    if isinstance(item, str):
        array, value = next(rest)
        if item == "mask" and isinstance(value, Value) and value.dtype.kind != "b":
            return method(array, "astype", "bool")
        return array  # type: ignore[no-any-return]
    if isinstance(item, slice):
        return _slice(w, item)
    if item is Ellipsis:
        return text("...")
    return w.literal(item)


def _slice(w: Writer, item: slice) -> Expression:
    parts = [None if x is None else w.size(x) for x in (item.start, item.stop, item.step)]
    # A space where there is more than a name or a number, as ruff formats it.
    space = "" if all(x is None or len(x.pieces) == 1 for x in parts) else " "
    start, stop, step = parts
    found: list[Any] = [start, space] if start is not None else []
    found.append(":")
    found += [space, stop] if stop is not None else []
    if step is not None:
        found += [space if stop is not None else "", ":", space, step]
    return text(*found)


def _wide_index(w: Writer, node: Node, arrays: Sequence[Expression], skip: int) -> Expression:
    """The index of a node as an argument of a function."""
    found = index_of(w, node, arrays, skip)
    if node.attributes["index"] == ("array",) or node.attributes["index"] == ("mask",):
        return arrays[0]
    return text("np.s_", found)


def _written(
    w: Writer, node: Node, function: str, value: Expression, arrays: Any, skip: int
) -> Expression:
    """Store a value into a part of the node's result, in place; returns the result's variable."""
    (made,) = node.outputs
    y = text(w.known_variable(made))
    single = not any(isinstance(x, Value) for x in node.inputs[skip:])
    if not function or (single and function in IN_PLACE):
        place = text(y, index_of(w, node, arrays, skip))
        w.write(Line(text(place, f" {IN_PLACE.get(function, '')}= ", value).pieces))
    else:
        index = _wide_index(w, node, arrays, skip)
        w.write(Line(call(f"np.{function}.at", y, index, value).pieces))
    return y


IN_PLACE = {"add": "+", "multiply": "*"}


@form("index_set", "index_add", "index_multiply", "index_max", "index_min")
def _changed(
    w: Writer, node: Node, x: Expression, value: Expression, *arrays: Expression
) -> Expression:
    function = {"set": "", "max": "maximum", "min": "minimum"}
    name = node.op.name.removeprefix("index_")
    w.make(node.outputs[0], call("np.array", x))
    return _written(w, node, function.get(name, name), value, arrays, 2)


@form("index_scatter")
def _scattered(w: Writer, node: Node, updates: Expression, *arrays: Expression) -> Expression:
    made = node.outputs[0]
    w.make(made, call("np.zeros", w.sizes(made.shape), literal(made.dtype)))
    return _written(w, node, "add", updates, arrays, 1)


# Sorting along an axis ---------------------------------------------------------------------------


@form("sort", "argsort")
def _sorted(w: Writer, node: Node, x: Expression) -> Expression | None:
    if not node.attributes["descending"]:
        return None
    name = w.program.use(f"{node.op.name}_descending")
    return call(name, x, literal(node.attributes["axis"]))


@form("cumulative_sum", "cumulative_prod")
def _running(w: Writer, node: Node, x: Expression) -> Expression:
    more, given, made = node.attributes, node.inputs[0], node.outputs[0]
    axis = literal(0 if more["axis"] is None else more["axis"])
    function = f"np.cum{node.op.name.removeprefix('cumulative_')}"
    if isinstance(given, Value) and given.dtype != made.dtype:
        x = method(x, "astype", literal(made.dtype))
    named = {name: text("True") for name in ("include_initial", "reverse") if more[name]}
    if named:
        found = call(w.program.use("cumulative"), function, x, axis, **named)
    else:
        found = call(function, x, axis)
    short = made.dtype.kind in "biu" and made.dtype.itemsize < 8  # NumPy widens these
    return method(found, "astype", literal(made.dtype)) if short else found


@form("floor_divide")
def _rounded_down(w: Writer, node: Node, x1: Expression, x2: Expression) -> Expression | None:
    if node.outputs[0].dtype.kind in "iu":
        return None  # NumPy's operator is right
    return call(w.program.use("floor_quotient"), x1, x2)


@form("logaddexp", "sigmoid")
def _of_complex(w: Writer, node: Node, *xs: Expression) -> Expression | None:
    if node.outputs[0].dtype.kind != "c":
        return None
    return call(w.program.use(f"complex_{node.op.name}"), *xs)


@form("searchsorted")
def _places(w: Writer, node: Node, x1: Expression, x2: Expression, *sorter: Any) -> Expression:
    side = None if node.attributes["side"] == "left" else literal(node.attributes["side"])
    several = len(node.inputs[0].shape) > 1
    function = w.program.use("places_in_rows") if several else "np.searchsorted"
    return call(function, x1, x2, side=side, sorter=sorter[0] if sorter else None)


# Creation ----------------------------------------------------------------------------------------


@form("zeros", "ones", "full")
def _filled(w: Writer, node: Node) -> Expression:
    made = node.outputs[0]
    if not made.shape:
        value = node.attributes.get("fill_value", int(node.op.name == "ones"))
        return call(literal(made.dtype), literal(value))
    shape = w.sizes(made.shape)
    given = [shape]
    if node.op.name == "full":
        given.append(literal(node.attributes["fill_value"]))
    return call(f"np.{node.op.name}", *given, literal(made.dtype))


@form("zeros_like", "ones_like")
def _filled_like(w: Writer, node: Node, x: Expression) -> Expression:
    name, made = node.op.name.removesuffix("_like"), node.outputs[0]
    if not made.shape:
        return call(literal(made.dtype), literal(int(name == "ones")))
    return call(f"np.{name}", w.sizes(made.shape), literal(made.dtype))


@form("arange")
def _arange(w: Writer, node: Node) -> Expression:
    more, made = node.attributes, node.outputs[0]
    start, stop, step = more["start"], more["stop"], more["step"]
    if stop is None:
        start, stop = 0, start
    given = [start, stop, step]
    if any(isinstance(x, float) for x in given):
        steps = call("np.arange", w.size(made.shape[0]))
        line = binary("+", SUM, literal(start), binary("*", PRODUCT, steps, literal(step)))
        return method(line, "astype", literal(made.dtype))
    if step == 1:
        given = given[:2] if start != 0 else [stop]
    sizes = [w.size(x) for x in given]
    return call("np.arange", *sizes, dtype=_unless(made.dtype, "int64"))


def _unless(dtype: Any, usual: str) -> Expression | None:
    return None if dtype == usual else literal(dtype)


@form("eye")
def _eye(w: Writer, node: Node) -> Expression:
    rows, columns = node.outputs[0].shape
    k = node.attributes["k"]
    given = [w.size(rows)] + ([w.size(columns)] if columns != rows else [])
    more = {"k": literal(k)} if k else {}
    return call("np.eye", *given, **more, dtype=literal(node.outputs[0].dtype))


# Elements ----------------------------------------------------------------------------------------


@form("clip")
def _clip(w: Writer, node: Node, x: Expression, *limits: Any) -> Expression:
    if all(n is None for n in limits):  # NumPy 2.0 refuses that
        return x
    return call("np.clip", x, *[text("None") if n is None else n for n in limits])


@form("ceil", "floor", "trunc")
def _whole(w: Writer, node: Node, x: Expression) -> Expression | None:
    """Integers are returned as they are; NumPy 2.0 would make floats of them."""
    return x if node.outputs[0].dtype.kind in "iu" else None


@form("einsum")
def _einsum(w: Writer, node: Node, *xs: Expression) -> Expression:
    return call("np.einsum", literal(node.attributes["subscripts"]), *xs)
