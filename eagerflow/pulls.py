"""Gradients of elementwise ops in one pass over memory: derivative times incoming gradient.

Rules are made of public ops; each would pass over its arrays, and cost a call. While
these calls are not recorded, a rule of several ops is run as one kernel: it is called once with
values of a region, on which ops write their scalar instructions. The bits are those of the ops one
after the other, and so is the memory order, which affects the rounding of sums; if they might
differ, or the rule is unsupported, the ops are called after all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import INSTRUCTIONS, SAME_BITS, is_float
from eagerflow.devices import Kind
from eagerflow.handlers import raised_here
from eagerflow.op import Op
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import multiply, multiply_no_nan
from eagerflow.ops.elementwise.gradient_ops import GradientOp
from eagerflow.ops.family import Operand
from eagerflow.ops.formula import Writer, value_of
from eagerflow.recorder import ATTRIBUTES, FIRST_KEY, FIRST_VALUE, RESULT, process
from eagerflow.tensor import Tensor, new_tensor

__all__ = [
    "CAREFUL",
    "FUNCTION",
    "KERNEL",
    "NUMBER",
    "OPPOSITE",
    "PLAIN",
    "SAME",
    "VALUE",
    "WATCHED",
    "WHOLE",
    "product_of",
    "rules_of",
]

Rule = Callable[..., Any]
MAX_KERNELS = 64  # per rule: for dtypes, attributes, and Python numbers among the arguments

# Writing down ------------------------------------------------------------------------------------


class _Writer(Writer):
    """Writes elementwise ops on floats, and tells whether their kernels have the same bits."""

    def __init__(self, s: Any) -> None:
        super().__init__(s)
        self.calls = 0
        self.same_bits = True

    def write(self, op: Op, values: list[Any], attributes: dict[str, Any]) -> Any:
        """The value of an op's result; AttributeError if the op has no such form."""
        self.calls += 1
        if op.call is not astype:
            if op.family != "elementwise":
                raise AttributeError(f"{op.name} is not element-wise")
            same = self._has_same_bits(op, values)  # which raises where there is no form
            self.same_bits = self.same_bits and same
        return super().write(op, values, attributes)

    def _has_same_bits(self, op: Op, values: list[Any]) -> bool:
        if not isinstance(op.scalar, str):
            # The formula of its kernel, compiled to the same machine code.
            return op.scalar is op.kernel or op.call is multiply_no_nan
        takes, kinds = INSTRUCTIONS[op.scalar].takes, {getattr(v, "dtype", "") for v in values}
        kinds -= {""}
        if takes == "bool" and kinds != {"bool"}:
            raise AttributeError(f"{op.name} of numbers")
        if takes in ("number", "float") and not all(is_float(x) for x in kinds):
            raise AttributeError(f"{op.name} of values that are not floats")
        return op.scalar in SAME_BITS


# Kernels -----------------------------------------------------------------------------------------


class _Kernel(NamedTuple):
    """A rule as a kernel: ``few(g, *arrays)`` for few elements, ``many(g, *arrays)`` for many.

    The arrays are those of the Tensors at one or two indices of an entry, of these kinds. Without
    ``many``, many elements use the ops one by one.
    """

    place: int
    kind: Kind
    second: int  # 0 for none
    second_kind: Kind
    few: Rule
    many: Rule | None


class _Body:
    """A partial derivative times g as the body of a region, for arguments like an entry's."""

    __name__ = "gradient"

    def __init__(self, partial: Rule, product: Rule, kind: Kind, entry: Any) -> None:
        self.partial, self.product, self.kind = partial, product, kind
        self.attributes = entry[ATTRIBUTES]
        values = [entry[RESULT], *entry[FIRST_VALUE::2]]
        self.numbers = [x if x.__class__ in _NUMBERS else None for x in values]
        self.kinds = {i: x._kind for i, x in enumerate(values) if type(x) is Tensor}
        self.writer = _Writer(None)

    def __call__(self, s: Any, g: Any, *own: Any) -> Any:
        self.writer = writer = _Writer(s)
        device = self.kind.device
        given: list[Any] = [*self.numbers]
        for i, value in zip(self.kinds, own, strict=True):
            given[i] = writer.tensor(value, device)
        p = self.partial(*given, **self.attributes)
        return value_of(self.product(writer.tensor(g, device), p))

    def region(self) -> Any:
        """The region for arrays of one shape."""
        dtypes = [k.dtype.name for k in (self.kind, *self.kinds.values())]
        return generated.region(self, "n", tuple((dtype, "n") for dtype in dtypes))

    def drop_unused(self) -> None:
        """Remove inputs that the rule does not read."""
        read = {o for part in self.region().body for o in part.operands}
        self.kinds = {
            i: own for n, (i, own) in enumerate(self.kinds.items()) if f"x{n + 1}" in read
        }


def kernel_for(partial: Rule, product: Rule, kind: Kind, entry: Any) -> _Kernel | None:
    """The kernel of a partial derivative times g; None if that is a single op."""
    if kind.array_type is not np.ndarray or type(kind) is not Kind or kind.dtype.char not in "fd":
        return None
    small, large = (_Body(partial, p, kind, entry) for p in (multiply, product))
    for body in (small, large):
        body.drop_unused()
    region = small.region()
    if small.writer.calls < 2 or region.outputs[0].dtype != kind.dtype.name:
        return None
    compiles = generated.enabled() and large.writer.same_bits
    many = (lambda *arrays: generated.elementwise(large, *arrays)) if compiles else None
    places = [RESULT if i == 0 else FIRST_VALUE + 2 * (i - 1) for i in small.kinds]
    first, second = zip([*places, 0][:2], [*small.kinds.values(), kind][:2], strict=True)
    few = generated.program(region, makes=True)
    return _Kernel(*first, *second, few, many) if len(places) in (1, 2) else None


_NUMBERS = frozenset((bool, int, float))


class Pull:
    """A partial derivative times the incoming gradient, in one kernel, for entries of a tape."""

    __slots__ = ("_guards", "_kernels", "_lone", "_pair", "_product", "partial")

    def __init__(self, op: Op, partial: Rule, product: Rule) -> None:
        self.partial, self._product = partial, product
        self._guards = product is not multiply
        self._lone = len(op.data) == 1 and not op.attributes
        self._pair = len(op.data) == 2 and not op.attributes
        self._kernels: dict[Any, _Kernel | None] = {}

    def of(self, g: Any, entry: Any) -> Tensor | None:
        """The product; None if there is no kernel for these arguments."""
        key = kind = g._kind
        if not self._lone and not (
            self._pair
            and entry[FIRST_VALUE].__class__ is Tensor is entry[FIRST_VALUE + 2].__class__
        ):
            key = _key(kind, entry)
        try:
            kernel = self._kernels[key]
        except KeyError:
            kernel = self._learn(key, g, entry)
        if kernel is None:
            return None
        place, own, second, second_kind, few, many = kernel
        a, x = g._array, entry[place]
        b, size = x._array, a.size
        if x._kind is not own or b.size != size or not a.ndim:  # NumPy returns scalars for numbers
            return None
        arrays: Any = (a, b)
        if second:
            x = entry[second]
            if x._kind is not second_kind or x._array.size != size:
                return None
            arrays = a, b, x._array
        try:
            if size >= generated.MIN_COMPILED_ELEMENTS:
                if many is None or 0 in arrays[-1].strides:
                    return None
                return new_tensor(process.run(many, *arrays), kind)
            if not arrays[-1].flags.c_contiguous:  # otherwise the result of ops has this order, too
                return None
            if not a.flags.c_contiguous:
                arrays = np.ascontiguousarray(a), *arrays[1:]
            out = process.run(few, *arrays)
            if self._guards and process.run(_has_nan, out):  # 0 wins over infinity and NaN
                return None
        except raised_here(Exception):  # ops explain, or find the memory
            return None
        return new_tensor(out, kind)

    def _learn(self, key: Any, g: Any, entry: Any) -> _Kernel | None:
        """The kernel for arguments like these."""
        if len(self._kernels) >= MAX_KERNELS:
            return None  # numbers that change with each call
        try:
            found = kernel_for(self.partial, self._product, g._kind, entry)
        except raised_here(Exception):  # run as ops, it raises the error, if there is one
            found = None
        self._kernels[key] = found
        return found


def _has_nan(array: Any) -> Any:
    flat = array.ravel()
    square = flat.dot(flat)
    return square != square


def _key(kind: Kind, entry: Any) -> Any:
    """The key of the kernel of an op with attributes or several arguments."""
    given = entry[FIRST_VALUE::2]
    forms = [(x.__class__, x if x.__class__ in _NUMBERS else None) for x in given]
    return kind, *forms, *entry[ATTRIBUTES].values()


# Rules for the tape's walk -----------------------------------------------------------------------

SAME, OPPOSITE, NUMBER, VALUE, KERNEL, FUNCTION, WHOLE = range(7)
"""Kinds of factors: 1, -1, another number, a value of the entry, or the result of a function,
perhaps in one kernel; or an op for the product, with a value of the entry and the gradient."""

PLAIN, CAREFUL, WATCHED = 0, 1, 2
"""Modes of a walk: whether the product lets 0 win, plus whether a recorder sees the calls."""


def product_of(mode: int) -> Rule:
    """The product of gradients in a mode."""
    return multiply_no_nan if mode & CAREFUL else multiply


def rules_of(op: Op, mode: int) -> list[tuple[int, Any, int]] | bool:
    """For each partial: the kind, the factor, and the index of its argument's key in an entry.

    Without recorders, kernels may be used. False if an op has other rules; stored in ``op``.
    """
    own = op.vjp[0] if isinstance(op.vjp, tuple) and op.vjp else None
    found: list[tuple[int, Any, int]] | bool = False
    if isinstance(own, GradientOp):
        place = RESULT if own.of == "y" else FIRST_VALUE
        found = [(WHOLE, (own.gradient(), place), FIRST_KEY)]
    elif isinstance(op.partials, tuple):
        found = [
            (*_rule(op, p, product_of(mode), not mode & WATCHED), FIRST_KEY + 2 * i)
            for i, p in enumerate(op.partials)
            if p is not None
        ]
    op.rules[mode] = found
    return found


def _rule(op: Op, partial: Any, product: Rule, unwatched: bool) -> tuple[int, Any]:
    if isinstance(partial, Operand):
        place = partial.number - 1
        return VALUE, RESULT if place < 0 else FIRST_VALUE + 2 * place
    if callable(partial):
        return (KERNEL, Pull(op, partial, product)) if unwatched else (FUNCTION, partial)
    return {1: SAME, -1: OPPOSITE}.get(partial, NUMBER), partial
