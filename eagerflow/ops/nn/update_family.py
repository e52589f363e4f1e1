"""The family of optimizers' steps: one call computes the new value of a parameter.

As a chain of ops, a step of Adam takes a dozen calls and as many passes over memory. So an op's
formula is defined once, in scalar instructions, like that of a ``pointwise`` op, and has several
results. Regions and machine code are generated from it, and NumPy steps on pieces of the arrays
that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.numbers import Numbers, body_of, numbers_of
from eagerflow.codegen.numpy.pointwise import UpdateKernel, whole
from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import Cost, Missing, Op, Split, ops
from eagerflow.ops.attributes import HINTS, tuple_of
from eagerflow.ops.family import Batch, define, op_of
from eagerflow.ops.formula import Formula
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["joined_update", "update"]

NUMBERS = ("learning_rate", "step", "product")
"""The arguments that are one number for all elements."""
MAX_KNOWN_ATTRIBUTES = 256
RATES = ("beta_1", "beta_2", "rho")  # of running means, which forget
_NO_GRADIENT = Missing(
    "a step of an optimizer has no gradient rule; write it with ops to differentiate through it"
)


def _check_shapes(arrays: Sequence[Any], names: Sequence[str]) -> None:
    """Checks that the arrays have one shape."""
    shape = arrays[0].shape if arrays else ()
    for array, name in zip(arrays, names, strict=True):
        if array.shape != shape:
            raise ShapeError(
                f"the shape {tuple(array.shape)} is not that of the {names[0]}",
                argument=name,
                expected=f"shape {tuple(shape)}",
            )


def _check(arrays: Sequence[Any], names: Sequence[str], attributes: dict[str, Any]) -> None:
    """Checks that the arrays have one shape, and that running means decay."""
    _check_shapes(arrays, names)
    for name in RATES:
        value = attributes.get(name, 0.0)
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ArgumentError(
                f"{value} is not a rate", argument=name, expected="a number from 0 to 1"
            )


class _Kernel:
    """The kernel of the formula of a step, ``formula(*arrays, *numbers, **attributes)``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        names = code.co_varnames[: code.co_posonlyargcount]
        self.formula = formula = Formula(function)
        self.arrays = [name for name in names if name not in NUMBERS]
        self.names = [name for name in names if name in NUMBERS]
        self._general = whole(formula)
        self._numpy = UpdateKernel(body_of(formula, len(self.arrays), len(self.names)))
        self._numbers: dict[Any, Numbers] = {}

    def on_arrays(self, xp: Any, *given: Any, **attributes: Any) -> Any:
        """The step on arrays of any library."""
        _check(given[: len(self.arrays)], self.arrays, attributes)
        return self._general(xp, *given, **attributes)

    def on_numpy(self, xp: Any, *given: Any, **attributes: Any) -> Any:
        """The step on NumPy arrays."""
        count = len(self.arrays)
        arrays, numbers = given[:count], given[count:]
        if any(number.ndim for number in numbers):
            return self.on_arrays(xp, *given, **attributes)
        _check(arrays, self.arrays, attributes)
        return self._numpy(arrays, self.numbers_for(numbers, attributes), **attributes)

    def numbers_for(self, numbers: Sequence[Any], attributes: dict[str, Any]) -> tuple[float, ...]:
        """The scalar parts of the formula, as additional numbers."""
        key = tuple(attributes.values())
        found = self._numbers.get(key)
        if found is None:
            if len(self._numbers) > MAX_KNOWN_ATTRIBUTES:  # which change with each call
                self._numbers.clear()
            found = numbers_of(self.formula, len(self.arrays), len(numbers), attributes)
            self._numbers[key] = found
        return found(*[n.item() for n in numbers])

    def region(self, dtype: DType, attributes: dict[str, Any]) -> Any:
        """The formula as a region of arrays of one axis, and of numbers."""
        _check((), (), attributes)
        numbers = self.numbers_for([np.ones((), dtype)] * len(self.names), attributes)
        operands = ((dtype.name, "n"),) * len(self.arrays) + ((dtype.name, ""),) * len(numbers)
        return generated.region(self._numpy.body, "n", operands, tuple(attributes.items()))


def formula_region(op: Op, dtype: DType, attributes: dict[str, Any]) -> Any:
    """The region of a step's formula, of flat arrays and of the results of ``formula_numbers``."""
    own: _Kernel = op.overrides["numpy"].__self__  # type: ignore[attr-defined]
    return own.region(dtype, attributes)


def formula_numbers(op: Op, numbers: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """The numbers that a step's region takes, from those that the op takes."""
    own: _Kernel = op.overrides["numpy"].__self__  # type: ignore[attr-defined]
    return own.numbers_for(numbers, attributes)


def update(results: int, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
    """An op of arrays of one shape, followed by numbers, with ``results`` such arrays as results.

    It decorates the formula in public ops, ``(*arrays, *numbers, /, *, **attributes)``.
    """

    def decorate(formula: Callable[..., Any]) -> Any:
        kernel = _Kernel(formula)
        arrays, numbers = kernel.arrays, kernel.names

        def infer(*specs: TensorSpec, **attributes: Any) -> tuple[TensorSpec, ...]:
            _check(specs[: len(arrays)], arrays, attributes)
            return tuple(specs[0].like() for _ in range(results))

        def split(x: TensorSpec, *rest: Any, **attributes: Any) -> list[Split]:
            alone = (None,) * len(numbers)
            return [Split((*(i for _ in arrays), *alone), i) for i in range(x.ndim)]

        def cost(x: TensorSpec, *rest: Any, **attributes: Any) -> Cost:
            size = product(x.shape)
            return Cost(size * 4 * results, size * x.dtype.itemsize * (len(arrays) + results))

        @wraps(kernel.formula)
        def on_arrays(xp: Any, *given: Any, **attributes: Any) -> Any:
            return kernel.on_arrays(xp, *given, **attributes)

        call = define(
            "update",
            dtypes=FLOATS,
            infer=infer,
            vjp=_NO_GRADIENT,
            batch=Batch(_batch),
            split=split,
            cost=cost,
            outputs=results,
            trusted=True,  # the kernels check the shapes
            scalar=kernel.formula,
            overrides={"numpy": kernel.on_numpy},
            **facts,
        )(kernel.formula)
        op_of(call).kernel = on_arrays
        return call

    return decorate


def _batch(call: Any, args: Any, batched: Any, size: int, **attributes: Any) -> Any:
    rank = max(x.ndim - own for x, own in zip(args, batched, strict=True))
    names = op_of(call).data
    lined = []
    for name, x, own in zip(names, args, batched, strict=True):
        if own:
            x = x.reshape((size, *(1,) * (rank - x.ndim + 1), *x.shape[1:]))
        elif name not in NUMBERS:
            x = broadcast_to(x, (size, *x.shape))
        lined.append(x)
    return call(*lined, **attributes)


# Many small parameters ---------------------------------------------------------------------------


def _is_option(op: Op, item: Any) -> bool:
    pair = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
    return pair and item[0] in op.attributes


def updated(
    args: Sequence[Any], update: str, options: Any
) -> tuple[Op, dict[str, Any], list[tuple[Any, ...]]]:
    """The op, its attributes, and the number of its arrays per parameter."""
    op = ops.get(update) if isinstance(update, str) else None
    if op is None or op.family != "update" or op.variadic:
        raise ArgumentError(
            f"{update!r} is not an optimizer's step", argument="update", expected="as 'adam_update'"
        )
    if not isinstance(options, tuple) or not all(_is_option(op, item) for item in options):
        raise ArgumentError(
            f"{options!r} are not options of {update}",
            argument="options",
            expected="pairs of a name and a value, of " + ", ".join(op.attributes),
        )
    arrays = [name for name in op.data if name not in NUMBERS]
    count, width = len(op.data) - len(arrays), len(arrays)
    numbers, rest = args[:count], args[count:]
    if not rest or len(rest) % width:
        raise ShapeError(
            f"{len(rest)} arrays given",
            argument="arrays",
            expected=f"{', '.join(arrays)} of each parameter",
        )
    groups = [(*rest[i : i + width], *numbers) for i in range(0, len(rest), width)]
    return op, op.attributes | dict(options), groups


def _each(call: Callable[..., Any], groups: Sequence[Any], **attributes: Any) -> tuple[Any, ...]:
    return tuple(y for group in groups for y in call(*group, **attributes))


def _joined_specs(*specs: Any, update: str, options: Any) -> tuple[TensorSpec, ...]:
    op, attributes, groups = updated(specs, update, options)
    return _each(op.infer, groups, **attributes)


def _joined_cost(*specs: Any, update: str, options: Any) -> Cost:
    op, _, groups = updated(specs, update, options)
    flops, moved = zip(*(op.cost(*group) for group in groups), strict=True)
    return Cost(sum(flops), sum(moved))


def _joined_batch(args: Any, batched: Any, size: int, update: str, options: Any) -> Any:
    op, attributes, groups = updated(args, update, options)
    _, _, own = updated(batched, update, options)
    pairs = zip(groups, own, strict=True)
    return tuple(y for x, o in pairs for y in op.batch(x, o, size, **attributes))  # type: ignore[operator]


def _joined_numpy(xp: Namespace, *given: Any, update: str, options: Any) -> tuple[Any, ...]:
    op, attributes, groups = updated(given, update, options)
    kernel = op.overrides["numpy"]
    names = [name for name in op.data if name not in NUMBERS]
    if any(n.ndim for n in groups[0][len(names) :]):
        return tuple(y for group in groups for y in kernel(xp, *group, **attributes))
    for group in groups:
        _check_shapes(group[: len(names)], names)
    (*columns,) = zip(*(group[: len(names)] for group in groups), strict=True)
    joined = (np.concatenate(column, axis=None) for column in columns)
    new = kernel(xp, *joined, *groups[0][len(names) :], **attributes)
    return tuple(_taken_apart([p for p, *_ in groups], new))


def _taken_apart(shapes: Sequence[Any], joined: Sequence[Any]) -> Iterator[Any]:
    """The part of each of the joined arrays that belongs to each of the arrays."""
    start = 0
    for x in shapes:
        end = start + x.size
        yield from (column[start:end].reshape(x.shape) for column in joined)
        start = end


Options = tuple[tuple[str, Any], ...]
"""Attributes that differ from an op's defaults: pairs of a name and a number or a bool."""


def _is_pair(item: Any) -> bool:
    named = type(item) is tuple and len(item) == 2 and type(item[0]) is str
    return named and type(item[1]) in (bool, int, float)


HINTS["Options"] = tuple_of(_is_pair), "pairs of a name and a number"


@define(
    "update",
    dtypes=FLOATS,
    infer=_joined_specs,
    outputs=0,  # as many for each parameter as the update has
    trusted=True,  # the kernels check the shapes
    overrides={"numpy": _joined_numpy},
    vjp=_NO_GRADIENT,
    batch=_joined_batch,
    split=Missing("the arrays have shapes of their own"),
    cost=_joined_cost,
    scalar=Missing("arrays of several shapes"),
    ulp=16,
)
def joined_update(xp: Namespace, /, *arrays: Array, update: str, options: Options = ()) -> Array:
    """One step of an optimizer for several parameters at once, equal to separate ``update`` ops.

    ``update`` names an op of this family, ``options`` are its attributes that differ from the
    defaults, as pairs. ``arrays`` are the op's numbers, then its arrays for the first parameter,
    those for the second one, and so on; results come in this order. Small ones are joined, since
    calls cost more than their arithmetic. Raises ShapeError where an array is missing, or shapes
    differ.
    """
    op, attributes, groups = updated(arrays, update, options)
    return tuple(y for group in groups for y in op.kernel(xp, *group, **attributes))
