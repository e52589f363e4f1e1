"""Families: decorators that make a function an op with the facts common to its kind.

    @ufunc(partials=(lambda y, x: cos(x),), saves="x", ...)
    def sin(xp, x, /):
        \"\"\"Sine of each element, in radians. ...\"\"\"
        return xp.sin(x)

A fact given to the decorator replaces the family's; ``Missing("reason")`` declares that there is
none. Rules use public ops and Tensor methods, so they work on any values of ops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.instructions import INSTRUCTIONS
from eagerflow.codegen.numpy.pointwise import direct, on_numpy
from eagerflow.convert import as_tensor, number_type
from eagerflow.dims import product
from eagerflow.dispatch import bind, bind_operator
from eagerflow.dtypes import (
    BOOL,
    FLOAT8,
    FLOATS,
    INEXACT,
    NUMERIC,
    STANDARD,
    as_dtype,
    default_dtype,
    join_scalar,
    promote,
    real_dtype,
)
from eagerflow.errors import ShapeError
from eagerflow.op import Cost, Missing, Onnx, Op, Split, declared, register
from eagerflow.ops.formula import Formula
from eagerflow.spec import TensorSpec, broadcast, normalize_axis, reduced_axes
from eagerflow.tensor import Operators, Tensor

__all__ = [
    "ANY",
    "BOOL",
    "FLOAT8",
    "FLOATS",
    "INEXACT",
    "NUMERIC",
    "STANDARD",
    "Batch",
    "Cost",
    "Missing",
    "Onnx",
    "Rows",
    "Split",
    "define",
    "elementwise",
    "pointwise",
    "reduction",
    "ufunc",
]

Call = Callable[..., Any]
ANY = STANDARD | FLOAT8
_NEW_MEMORY = frozenset({"contraction", "creation", "random", "rows"})
_IN_ORDER = frozenset({"creation", "elementwise", "random", "reduction"})
_REFLECTED = frozenset(
    "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
)


class Rows(NamedTuple):
    """The fact ``scalar`` of an op along axes: the body of a region with rows along "n".

    ``body(s, *values, **attributes)`` gets the op's attributes except axis and keepdims, and None
    for omitted arguments. ``along`` has for each argument, and ``gives`` for each result, its axes
    among those of the first argument: "mn" for all, "n" for those of the op's ``axis``, "m" for the
    rest. ``columns`` means that all reductions of the body are results, so that leading axes can be
    reduced as well, row after row.
    """

    body: Callable[..., Any]
    along: tuple[str, ...] = ("mn",)
    gives: tuple[str, ...] = ("m",)
    columns: bool = False


class Operand:
    """A partial derivative that is an argument itself, counted from 1, or the result: 0."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, *values: Any) -> Any:
        """The value out of the result and the arguments."""
        return values[self.number]


class Batch(NamedTuple):
    """The fact ``batch`` where the rule calls the op: ``rule(call, args, batched, size, ...)``."""

    rule: Call


def define(
    family: str, *, operator: str | None = None, method: bool | str = False, **facts: Any
) -> Callable[[Call], Call]:
    """The decorator that registers an op with these facts, binds it, and attaches it to Tensor."""

    def decorate(kernel: Call) -> Call:
        own = dict(facts, family=family)
        own["dtypes"] = dtypes if isinstance(dtypes := own["dtypes"], tuple) else (dtypes,)
        own["saves"] = frozenset(own.get("saves", "").split())
        own.setdefault("cost", elements)
        own.setdefault("onnx", "body")
        own.setdefault("scalar", Missing("not element-wise"))
        own.setdefault("split", Missing("the whole input is needed"))
        own.setdefault("partials", Missing("see vjp"))
        own.setdefault("vjp", Missing("see partials"))
        constant = isinstance(own["vjp"], Missing) and isinstance(own["partials"], Missing)
        own.setdefault("jvp", own["vjp"] if constant else "vjp")
        own.setdefault("aliases", family not in _NEW_MEMORY)
        own.setdefault("keeps_order", family in _IN_ORDER or own.get("views") == "all")
        own.setdefault("threaded", family in ("contraction", "custom"))
        op = register(kernel, own)
        call = bind(op)
        if isinstance(batch := own.get("batch"), Batch):
            op.batch = partial(batch.rule, call)
        if operator:
            _attach_operator(op, operator)
        if method:
            setattr(Operators, op.name if method is True else method, call)
        return call

    return decorate


def _attach_operator(op: Op, name: str) -> None:
    call, method = op.call, bind_operator(op)
    if name in ("eq", "ne"):
        setattr(Operators, f"__{name}__", _comparison(method))
        return
    setattr(Operators, f"__{name}__", method)
    if name in _REFLECTED:
        setattr(Operators, f"__r{name}__", lambda self, other, /: call(other, self))
        setattr(Operators, f"__i{name}__", bind_operator(op, in_place=True))


def _comparison(call: Call) -> Call:
    # x == None and x == "a" are identity comparisons, as everywhere in Python.
    def compare(self: Any, other: Any, /) -> Tensor:
        if other is None or isinstance(other, str | bytes):
            return NotImplemented
        return call(self, other)

    return compare


# Facts that several families share -------------------------------------------------------------


def elements(*specs: Any, flops: int = 1, **attributes: Any) -> Cost:
    """One operation per element of the largest argument; each argument is moved once."""
    sizes = [(s.size, s.dtype.itemsize) for s in specs if isinstance(s, TensorSpec)]
    known = [size for size, _ in sizes if isinstance(size, int)]
    total = sum((size * width for size, width in sizes), start=0)
    return Cost(max(known, default=1) * flops, total + max(known, default=1) * 4)


def as_operand(obj: Any, like: Tensor) -> Tensor:
    """``obj`` as a Tensor to be combined with ``like``, on its device.

    Numbers, in lists or not, are converted directly to the final dtype; integers in lists stay
    integers.
    """
    kind, dtype = number_type(obj), None
    if kind is not None and not isinstance(obj, list | tuple):
        dtype = join_scalar(like.dtype, kind)
    elif kind is not None and {default_dtype(kind), like.dtype} <= INEXACT:
        dtype = promote(like.dtype, default_dtype(kind))
    return as_tensor(obj, dtype, None if isinstance(obj, Operators) else like.device)


def as_operands(*items: Any) -> list[Tensor]:
    """Operands as Tensors; numbers take the dtype of the first tensor, as in ``as_operand``."""
    found = [None if number_type(x) is not None else as_tensor(x) for x in items]
    like = next((x for x in found if x is not None), None)
    return [
        t if t is not None else as_tensor(x) if like is None else as_operand(x, like)
        for x, t in zip(items, found, strict=True)
    ]


def shapes_of(specs: Any) -> list[Any]:
    """The shapes of all arguments; None for Python scalars."""
    return [s.shape if isinstance(s, TensorSpec) else () for s in specs if s is not None]


def result_dtype(rule: Any, dtype: Any) -> Any:
    """The dtype of a result: ``"same"``, ``"real"``, a dtype, or a function of the dtype."""
    if rule == "same":
        return dtype
    if rule == "real":
        return real_dtype(dtype)
    return rule(dtype) if callable(rule) else as_dtype(rule)


# Batches and cuts ---------------------------------------------------------------------------------


def batch_first(args: Any, batched: Any, size: Any) -> list[Any]:
    """All arguments with the batch axis in front; omitted ones stay None."""
    return [
        x if own or x is None else x.broadcast_to((size, *x.shape))
        for x, own in zip(args, batched, strict=True)
    ]


def _along_axis(call: Call, args: Any, batched: Any, size: Any, *, axis: int, **more: Any) -> Any:
    whole = batch_first(args, batched, size)
    if axis is None:
        return call(*(x.reshape((size, product(x.shape[1:]))) for x in whole), axis=1, **more)
    return call(*whole, axis=normalize_axis(axis, whole[0].ndim - 1) + 1, **more)


batch_along_axis = Batch(_along_axis)
"""For ops along ``axis`` of the first argument; None flattens all of them."""


batch_along_axes = Batch(
    lambda call, args, batched, size, *, axis, **more: call(
        args[0], axis=tuple(i + 1 for i in reduced_axes(axis, args[0].ndim - 1)), **more
    )
)
"""For ops along one or more axes of one argument; None means all axes."""

stacked = Batch(lambda call, args, batched, size, **attributes: call(*args, **attributes))
"""For elementwise ops, or ops on matrices, of one argument, with the batch as one more axis."""


def split_others(x: TensorSpec, *more: Any, axis: Any = -1, **attributes: Any) -> list[Split]:
    """Along every axis but those that ``axis`` names; all arguments have the same ones."""
    axes = reduced_axes(axis, x.ndim)
    return [Split((i,) * (1 + len(more)), i) for i in range(x.ndim) if i not in axes]


def numpy_kernel(function: Call, on_complex: Call | None = None) -> dict[str, Any]:
    """The facts of an op with the kernel ``function(x, **attributes)`` on NumPy arrays.

    ``on_complex(xp, x, **attributes)`` replaces it for complex numbers.
    """
    overrides: dict[str, Call] = {"numpy": lambda xp, x, **attributes: function(x, **attributes)}
    if on_complex is not None:
        overrides["complex"] = on_complex
    return {"direct": lambda xp: function if xp is np else None, "overrides": overrides}


# Element-wise ------------------------------------------------------------------------------------


def elementwise(
    *,
    partials: Any,
    dtypes: Any = NUMERIC,
    result: Any = "same",
    scalar: Any = "",
    operator: str | None = None,
    method: bool | str = False,
    **facts: Any,
) -> Callable[[Call], Call]:
    """An op on each element of arguments that broadcast.

    ``result`` is the rule of ``result_dtype``, applied to the first argument that is a tensor.
    ``scalar`` defaults to the scalar instruction of the op's name.
    """

    def infer(*specs: Any, **attributes: Any) -> TensorSpec:
        like = specs[0]
        if not isinstance(like, TensorSpec):
            like = next(s for s in specs if isinstance(s, TensorSpec))
        return like.like(broadcast(*shapes_of(specs)), result_dtype(result, like.dtype))

    def decorate(kernel: Call) -> Call:
        name = facts.get("name") or kernel.__name__.strip("_")
        function, first = declared(kernel)
        code = function.__code__
        arity = code.co_posonlyargcount - first
        has_attributes = code.co_argcount + code.co_kwonlyargcount > arity + first
        own: dict[str, Any] = {
            "partials": partials,
            "dtypes": dtypes,
            "infer": infer,
            "jvp": Missing("no gradient") if isinstance(partials, Missing) else "partials",
            "scalar": _scalar_rule(name, scalar),
            "split": split_elementwise,
            "batch": Batch(batch_elementwise),
            "trusted": not has_attributes,  # NumPy checks arrays, not attributes
            "aliases": "ufunc" not in facts,
        } | facts
        return define("elementwise", operator=operator, method=method, **own)(kernel)

    return decorate


def ufunc(**facts: Any) -> Callable[[Call], Call]:
    """An elementwise op that is the library's function of the same name, which is called directly.

    The body serves libraries that lack it.
    """

    def decorate(kernel: Call) -> Call:
        return elementwise(ufunc=kernel.__name__, **facts)(kernel)

    return decorate


def pointwise(
    *, on_complex: Call | None = None, instruction: str = "", **facts: Any
) -> Callable[[Call], Call]:
    """An elementwise op defined by its formula in public ops, ``(x, /, **attributes)``.

    Kernels for NumPy and CuPy, in place and tiled, machine code and regions are derived from it.
    ``on_complex(xp, x, **attributes)`` replaces it for complex numbers, and a scalar
    ``instruction`` in all generated code.
    """

    def decorate(formula: Call) -> Call:
        body = Formula(formula, instruction)
        own: dict[str, Any] = {
            "scalar": body,
            "overrides": {"numpy": on_numpy(body)},
            "dtypes": FLOATS,
            "aliases": False,
        }
        if on_complex is not None:
            own["overrides"]["complex"] = on_complex
        if formula.__defaults__:
            own["direct"] = direct(formula, body)
        return elementwise(**own | facts)(body)

    return decorate


def _scalar_rule(name: str, rule: Any) -> Any:
    if rule != "":
        return rule
    return name if name in INSTRUCTIONS else Missing("not in the set of scalar instructions")


def split_elementwise(*specs: Any, **attributes: Any) -> list[Split]:
    """Along every axis of the result; arguments that are broadcast there stay whole."""
    shapes = shapes_of(specs)
    whole = broadcast(*shapes)
    splits = []
    for axis, size in enumerate(whole):
        own = [axis - len(whole) + len(shape) for shape in shapes]
        cuts = tuple(
            a if a >= 0 and shape[a] == size else None for a, shape in zip(own, shapes, strict=True)
        )
        splits.append(Split(cuts, axis))
    return splits


def batch_elementwise(
    call: Call, args: tuple[Any, ...], batched: tuple[bool, ...], size: int, **attributes: Any
) -> Any:
    """Line the batch axis up in front: size-1 axes go between it and the argument's own."""
    logical = [
        len(x.shape) - is_batched if isinstance(x, Tensor) else 0
        for x, is_batched in zip(args, batched, strict=True)
    ]
    rank = max(logical)
    aligned = [
        x.reshape((x.shape[0], *(1,) * (rank - own), *x.shape[1:])) if is_batched else x
        for x, own, is_batched in zip(args, logical, batched, strict=True)
    ]
    return call(*aligned, **attributes)


# Reductions --------------------------------------------------------------------------------------


def reduced_shape(shape: Any, axis: Any, keepdims: bool) -> tuple[Any, ...]:
    """The shape after reducing ``axis`` (an integer, a tuple, or None for all)."""
    axes = reduced_axes(axis, len(shape))
    if keepdims:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def expand_reduced(g: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """A reduced value with the reduced axes back as size 1, so that it broadcasts to ``x``."""
    whole = keepdims or not g.ndim  # one number broadcasts to anything
    return g if whole else g.reshape(reduced_shape(x.shape, axis, True))


def reduction(
    *,
    dtypes: Any = NUMERIC,
    result: Any = "same",
    combine: str | None = None,
    method: bool | str = True,
    empty: bool = True,
    **facts: Any,
) -> Callable[[Call], Call]:
    """An op that reduces ``axis`` (an integer, a tuple, or None for all axes).

    ``combine`` names the op that combines the results of parts, if there is one; ``empty`` is
    whether axes of size 0 can be reduced. The kernel's signature is ``(xp, x, /, *, axis=None,
    keepdims=False)``, perhaps with more attributes.
    """

    def infer(x: TensorSpec, axis: Any = None, keepdims: bool = False, **more: Any) -> TensorSpec:
        shape = reduced_shape(x.shape, axis, keepdims)
        axes = reduced_axes(axis, x.ndim)
        if not empty and any(x.shape[i] == 0 for i in axes):
            raise ShapeError(
                "nothing to reduce: an axis has size 0", argument="x", expected="non-empty axes"
            )
        dtype = more.get("dtype") or result_dtype(result, x.dtype)
        return x.like(shape, dtype)

    def split(x: TensorSpec, axis: Any = None, keepdims: bool = False, **more: Any) -> list[Split]:
        axes = reduced_axes(axis, x.ndim)
        kept = [i for i in range(x.ndim) if keepdims or i not in axes]
        found = [Split((i,), kept.index(i)) for i in range(x.ndim) if i not in axes]
        if combine and more.get("dtype") not in BOOL:  # no op adds bools as sums do
            found += [Split((i,), None, combine) for i in axes]
        return found

    def decorate(kernel: Call) -> Call:
        own: dict[str, Any] = {
            "dtypes": dtypes,
            "infer": infer,
            "split": split,
            "batch": batch_along_axes,
            "trusted": empty,
        } | facts
        return define("reduction", method=method, **own)(kernel)

    return decorate


def op_of(call: Call) -> Op:
    """The Op behind a public function."""
    op: Op = call.op  # type: ignore[attr-defined]
    return op
