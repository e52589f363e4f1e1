"""vmap: a recorder that lets ops written for one example compute a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.customs import same
from eagerflow.dims import DimLike, Shape, product
from eagerflow.dispatch import check_once
from eagerflow.display import summary
from eagerflow.dtypes import DType
from eagerflow.errors import CaptureError, ShapeError, short_repr
from eagerflow.handlers import raised_here, suppress
from eagerflow.masks import opened
from eagerflow.op import Missing, Op
from eagerflow.ops.arguments_of_others import explains_arguments
from eagerflow.ops.shapes.reshaping import broadcast_to, moveaxis
from eagerflow.recorder import Recorder, below, with_recorder
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor, new_tensor, refuse_symbol

P = ParamSpec("P")
R = TypeVar("R")


class BatchedArray:
    """The content of a Tensor for one example; ``tensor`` holds all along its first axis."""

    __slots__ = ("level", "tensor")
    __array_ufunc__ = None

    def __init__(self, tensor: Tensor, level: object) -> None:
        self.tensor = tensor
        self.level = level

    @property
    def shape(self) -> Shape:
        """Shape of one example."""
        return self.tensor.shape[1:]

    @property
    def size(self) -> DimLike:
        """Number of elements of one example."""
        return product(self.shape)

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self.tensor.dtype

    def refuse(self, how: str) -> None:
        """Raise the error for code that needs the value of one example."""
        refuse_symbol(how, "inside vmap it has a different value for each example")


class Batching(Recorder):
    """Computes each op on the whole batch, by the op's batching rule."""

    def __init__(self, size: DimLike, level: object = None) -> None:
        self.size = size
        self.level = level or object()  # identifies its values

    def again(self) -> Batching:
        """A recorder for the values of this one, for code that runs later."""
        return Batching(self.size, self.level)

    def wrap(self, tensor: Tensor) -> Tensor:
        """The Tensor for one example of ``tensor``'s first axis."""
        return new_tensor(BatchedArray(tensor, self.level), tensor._kind)

    def holds(self, value: Any) -> bool:
        """Whether ``value`` differs between the examples of this batch."""
        array = getattr(value, "_array", None)
        return type(array) is BatchedArray and array.level is self.level

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        batched = tuple(self.holds(x) for x in args)
        # A random op draws for each example, even from a shared state.
        if not any(batched) and op.family != "random":
            return below(self.outer, op, args, attributes)
        if isinstance(op.batch, Missing):
            raise CaptureError(
                "there is no batching rule",
                op=op.name,
                expected=op.batch.reason,
                hint="call the function in a loop and ef.stack the results",
            )
        with suppress(CaptureError):  # a shape may depend on the numbers of a mask
            check_once(op, args, attributes)  # a rule would take a vector for a matrix
        whole = tuple(
            x._array.tensor if is_batched else x
            for x, is_batched in zip(args, batched, strict=True)
        )
        out = with_recorder(self.outer, op.batch, whole, batched, self.size, **attributes)
        return tuple([self.wrap(x) for x in out]) if isinstance(out, tuple) else self.wrap(out)

    def assign(self, variable: Any, value: Any) -> None:
        self._check(variable, value)
        super().assign(variable, value)

    def exchange(self, variable: Any, old: Any, new: Any) -> bool:
        self._check(variable, new)
        return self.exchange_below(variable, old, new)

    def _check(self, variable: Any, value: Any) -> None:
        if self.holds(value):
            raise CaptureError(
                "inside vmap the value differs between examples",
                op="assign",
                argument=variable.name,
                hint="return the values, and assign their mean outside",
            )

    def emit(self, name: str, sink: Callable[..., Any], tensors: Mapping[str, Any]) -> None:
        if hasattr(sink, "node"):
            tensors = {n: x._array.tensor if self.holds(x) else x for n, x in tensors.items()}
        elif any(self.holds(x) for x in tensors.values()):
            raise CaptureError(
                "inside vmap the value differs between examples",
                op=name,
                hint="return the values, and write them outside",
            )
        super().emit(name, sink, tensors)

    def customized(
        self, name: str, args: tuple[Any, ...], results: tuple[Any, ...], rule: Any
    ) -> Any:
        """Results for the whole batch, with a rule that is run for all examples together."""
        batched = [self.holds(x) for x in args]

        def whole_rule(gradients: Any) -> tuple[Any, ...]:
            with self.again() as level:
                parts = rule([g if g is None else level.wrap(g) for g in gradients])
            found = []
            for part, is_batched in zip(parts, batched, strict=True):
                whole = part if part is None else level.join(part)
                found.append(whole if whole is None or is_batched else whole.sum(axis=0))
            return tuple(found)

        whole_rule.takes_none = getattr(rule, "takes_none", False)  # type: ignore[attr-defined]
        values = tuple([x._array.tensor if self.holds(x) else x for x in args])
        wholes = tuple([same(with_recorder(self.outer, self.join, y)) for y in results])
        return tuple([self.wrap(x) for x in super().customized(name, values, wholes, whole_rule)])

    def join(self, value: Any) -> Tensor:
        """All examples of ``value`` along a new first axis."""
        if self.holds(value):
            whole: Tensor = value._array.tensor
            return whole
        tensor = as_tensor(value)
        repeated: Tensor = broadcast_to(tensor, (self.size, *tensor.shape))
        return repeated


@explains_arguments(in_dims="in_axes", out_dims="out_axes")
def vmap(f: Callable[P, R], in_axes: Any = 0, out_axes: Any = 0) -> Callable[P, R]:
    """``f``, written for one example, as a function of a whole batch.

    ``in_axes`` is the axis with the examples: an integer for all arguments, or a tuple with an
    integer, None (the same value for all examples) or a nest of these for each; in a nest an
    integer stands for all below it. Arguments by keyword have their examples along axis 0.
    ``out_axes`` is the axis of the results, in the same way, with None for those that are equal for
    all examples. Raises ShapeError if the arguments have different numbers of examples, and for
    axes of another structure than the arguments or results.

    >>> dot = lambda a, b: (a * b).sum()
    >>> ef.vmap(dot, in_axes=(0, None))(ef.ones((2, 3)), ef.arange(3.0))
    Tensor([3., 3.], float32, cpu:0)
    >>> layer = lambda p, x: x @ p["w"] + p["b"]
    >>> p = {"w": ef.ones((3, 2)), "b": ef.zeros((5, 2))}
    >>> ef.vmap(layer, in_axes=({"w": None, "b": 0}, None))(p, ef.ones(3)).shape
    (5, 2)
    """

    def batched(*args: Any, **kwargs: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple | list) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise ShapeError(
                f"{len(axes)} axes for {len(args)} arguments", op="vmap", argument="in_axes"
            )
        args, kwargs = opened((args, kwargs))
        leaves, structure = tree.flatten((args, kwargs))
        each: list[int | None] = []
        for arg, own in zip(args, axes, strict=True):
            each += _spread(own, arg, "in")
        each += [0] * (len(leaves) - len(each))
        for i, axis in enumerate(each):
            if axis is not None:
                leaves[i] = _to_front(leaves[i], axis)
        size = _common_size([x for x, axis in zip(leaves, each, strict=True) if axis is not None])
        with Batching(size) as level:
            for i, axis in enumerate(each):
                if axis is not None:
                    leaves[i] = level.wrap(leaves[i])
            args, kwargs = tree.unflatten(structure, leaves)
            result = opened(f(*args, **kwargs))
        found, structure = tree.flatten(result)
        given = zip(found, _spread(out_axes, result, "out"), strict=True)
        return tree.unflatten(structure, [_result(level, y, axis) for y, axis in given])

    return batched


def _spread(axes: Any, nest: Any, way: str) -> list[int | None]:
    """The axis of each leaf of a nest, by axes that stand for all leaves below them."""
    if axes is None or isinstance(axes, int):
        return [axes] if type(nest) is Tensor else [axes] * len(tree.flatten(nest)[0])
    given, structure = tree.flatten(axes)
    try:
        parts = tree.flatten_up_to(structure, nest)
    except raised_here(ValueError):
        raise ShapeError(
            "the axes have another structure than the values",
            op="vmap",
            argument=f"{way}_axes",
            received=short_repr(axes),
            expected="an int, None, or a nest of these like that of the values",
        ) from None
    return [axis for axis, part in zip(given, parts, strict=True) for _ in tree.flatten(part)[0]]


def _result(level: Batching, value: Any, axis: int | None) -> Any:
    if axis is not None:
        return _from_front(level.join(value), axis)
    if level.holds(value):
        raise ShapeError(
            "a result differs between the examples",
            op="vmap",
            argument="out_axes",
            received="None",
            expected="the axis of the examples",
        )
    return value


def _to_front(value: Any, axis: int) -> Tensor:
    tensor = as_tensor(value)
    at = normalize_axis(axis, tensor.ndim, "in_axes")
    return moveaxis(tensor, at, 0) if at else tensor


def _from_front(tensor: Tensor, axis: int) -> Tensor:
    at = normalize_axis(axis, tensor.ndim, "out_axes")
    return moveaxis(tensor, 0, at) if at else tensor


def _common_size(tensors: list[Tensor]) -> DimLike:
    if not tensors:
        raise ShapeError("no argument holds examples", op="vmap", argument="in_axes")
    size = tensors[0].shape[0]
    for tensor in tensors:
        if tensor.shape[0] != size:
            raise ShapeError(
                "the arguments hold different numbers of examples",
                op="vmap",
                received=", ".join([summary(x) for x in tensors]),
            )
    return size
