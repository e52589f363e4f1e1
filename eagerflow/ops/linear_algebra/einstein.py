"""Sums over named axes: einsum.

A call is planned once for its subscripts and shapes: which two operands are multiplied next
(greedily the pair with the smallest product relative to its operands, as in opt_einsum; Smith and
Gray, JOSS 2018), and each such product is one matrix product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.op import Cost, Split
from eagerflow.ops.creation.filled import eye
from eagerflow.ops.family import NUMERIC, define, op_of
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["einsum"]

Labels = tuple[str, ...]


# Subscripts --------------------------------------------------------------------------------------

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


_FORM = "letters, '...' for any axes, ',' between operands, '->' before the result"


def _refused(problem: str, expected: str | None = None, hint: str | None = None) -> ShapeError:
    return ShapeError(problem, op="einsum", argument="subscripts", expected=expected, hint=hint)


@lru_cache(maxsize=1024)
def parse(subscripts: str, ranks: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of each operand's axes and of the result's; ``...`` gets new labels."""
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks) or not ranks:
        raise _refused(
            f"{subscripts!r} describes {len(terms)} operands, {len(ranks)} given",
            'one group of labels for each operand, such as "ij,jk->ik"',
        )
    for label in "".join(term.replace("...", "", 1) for term in (*terms, output)):
        if not label.isalpha():
            raise _refused(f"{label!r} is not a label", _FORM)
    used = set(text)
    spare = [c for c in itertools.islice(_symbols(), 64 + len(used)) if c not in used]
    found = tuple(_labels(term, rank, spare) for term, rank in zip(terms, ranks, strict=True))
    dots = max((r - len(t) + 3 for t, r in zip(terms, ranks, strict=True) if "..." in t), default=0)
    extra = tuple(reversed(spare[:dots]))
    everything = [label for labels in found for label in labels]
    if not arrow:
        once = sorted(c for c in set(everything) - set(extra) if everything.count(c) == 1)
        return found, (*extra, *once)
    before, any_axes, after = output.partition("...")
    result = (*before, *(extra if any_axes else ()), *after)
    for label in result:
        if label not in everything:
            raise _refused(f"label {label!r} of the result is not in any operand", _FORM)
        if result.count(label) > 1:
            raise _refused(f"label {label!r} stands twice in the result", "each label once")
    return found, result


def _symbols() -> Iterable[str]:
    yield from LETTERS
    yield from filter(str.isalpha, map(chr, range(0xC0, 0x2000)))


def _labels(term: str, rank: int, spare: list[str]) -> Labels:
    """Labels of one operand; the axes of ``...`` are numbered from the last one."""
    before, dots, after = term.partition("...")
    named = len(before) + len(after)
    if rank < named or (rank > named and not dots):
        raise _refused(
            f"{term!r} names {named} axes of an operand that has {rank}",
            f"{rank} labels, or '...' for the axes without one",
        )
    return (*before, *reversed(spare[: rank - named]), *after)


def sizes_of(
    inputs: tuple[Labels, ...], shapes: tuple[Any, ...], named: frozenset[str]
) -> dict[str, Any]:
    """The size of each label; those that are not ``named`` come from ``...`` and broadcast."""
    sizes: dict[str, Any] = {}
    owner: dict[str, int] = {}
    for i, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.setdefault(label, size)
            owner.setdefault(label, i)
            if known == size or (label not in named and size == 1):
                continue
            if label not in named and known == 1:
                sizes[label] = size
                continue
            what = f"label {label!r}" if label in named else "an axis of '...'"
            raise ShapeError(
                f"{what} has size {known} in operand {owner[label]} and {size} in operand {i}",
                argument="operands",
                expected="one size for each label" if label in named else "equal sizes or 1",
            )
    return sizes


def resolved(
    subscripts: str, shapes: tuple[Any, ...]
) -> tuple[tuple[Labels, ...], Labels, dict[str, Any]]:
    if not isinstance(subscripts, str):
        raise _refused(f"{subscripts!r} is not a string", 'such as "ij,jk->ik"')
    inputs, output = parse(subscripts, tuple(map(len, shapes)))
    return inputs, output, sizes_of(inputs, shapes, frozenset(subscripts))


def _text(inputs: Iterable[Labels], output: Labels) -> str:
    return f"{','.join(map(''.join, inputs))}->{''.join(output)}"


# The plan and its steps --------------------------------------------------------------------------


def _order(
    inputs: tuple[frozenset[str], ...], output: frozenset[str], sizes: tuple[tuple[str, int], ...]
) -> tuple[tuple[int, int], ...]:
    """Positions of the two operands of each step; their product is appended."""
    size = dict(sizes)
    rest = list(inputs)
    steps = []
    while len(rest) > 1:
        best: tuple[float, float, int, int] | None = None
        for i, j in itertools.combinations(range(len(rest)), 2):
            union = rest[i] | rest[j]
            others = output.union(*(r for k, r in enumerate(rest) if k not in (i, j)))
            volume = [
                math.prod(size[c] for c in part)
                for part in (union & others, rest[i], rest[j], union)
            ]
            choice = (volume[0] - volume[1] - volume[2], volume[3], i, j)
            best = choice if best is None or choice < best else best
        assert best is not None
        _, _, i, j = best
        others = output.union(*(r for k, r in enumerate(rest) if k not in (i, j)))
        steps.append((i, j))
        second, first = rest.pop(j), rest.pop(i)
        rest.append((first | second) & others)
    return tuple(steps)


class _Plan:
    """The steps of a call: operations on the remaining operands, by position."""

    def __init__(self, subscripts: str, shapes: tuple[Any, ...]) -> None:
        inputs, output, self.sizes = resolved(subscripts, shapes)
        self.steps: list[tuple[str, int, Any]] = []
        self.rest: list[Labels] = list(inputs)
        for i, shape in enumerate(shapes):
            self._diagonal(i)
            self._drop_ones(i, dict(zip(inputs[i], shape, strict=True)))
        for i in range(len(inputs)):
            self._sum(i, self._needed(output, (i,)))
        order = _order(
            tuple(map(frozenset, self.rest)), frozenset(output), tuple(self.sizes.items())
        )
        for i, j in order:
            self._multiply(i, j, self._needed(output, (i, j)))
            self._sum(len(self.rest) - 1, self._needed(output, (len(self.rest) - 1,)))
        self._arrange(0, output)

    def _needed(self, output: Labels, but: tuple[int, ...]) -> set[str]:
        """Labels of the result and of all operands but these."""
        others = (own for i, own in enumerate(self.rest) if i not in but)
        return set(output).union(*others)

    def _arrange(self, i: int, wanted: Labels) -> None:
        if self.rest[i] != wanted:
            axes = tuple(self.rest[i].index(c) for c in wanted)
            self.steps.append(("permute_dims", i, axes))
            self.rest[i] = wanted

    def _reshape(self, i: int, *parts: Iterable[str] | int) -> None:
        """One axis for each part: a size, or labels with the product of their sizes."""
        shape = tuple(
            part if isinstance(part, int) else math.prod(self.sizes[c] for c in part)
            for part in parts
        )
        self.steps.append(("reshape", i, shape))

    def _diagonal(self, i: int) -> None:
        """One axis for each label, the diagonal for repeated ones."""
        while twice := [c for c in self.rest[i] if self.rest[i].count(c) > 1]:
            label, labels = twice[0], self.rest[i]
            pair = [k for k, c in enumerate(labels) if c == label][:2]
            kept = [k for k in range(len(labels)) if k not in pair]
            self.steps.append(("permute_dims", i, (*kept, *pair)))
            self.steps.append(("diagonal", i, self.sizes[label]))
            self.rest[i] = (*(labels[k] for k in kept), label)

    def _drop_ones(self, i: int, own: dict[str, int]) -> None:
        """Without the axes of ``...`` that another operand widens."""
        kept = tuple(c for c in self.rest[i] if own[c] == self.sizes[c])
        if kept != self.rest[i]:
            self._reshape(i, *kept)
            self.rest[i] = kept

    def _sum(self, i: int, keep: set[str]) -> None:
        """Sum over the labels that no other operand needs."""
        axes = tuple(k for k, c in enumerate(self.rest[i]) if c not in keep)
        if axes:
            self.steps.append(("sum", i, axes))
            self.rest[i] = tuple(c for c in self.rest[i] if c in keep)

    def _multiply(self, i: int, j: int, keep: set[str]) -> None:
        """The product of two operands, summed over the labels that are not in ``keep``."""
        left, right = self.rest[i], self.rest[j]
        both = [c for c in left if c in right]
        stack = tuple(c for c in both if c in keep)
        inner = tuple(c for c in both if c not in keep)
        rows = tuple(c for c in left if c not in both)
        columns = tuple(c for c in right if c not in both)
        self._arrange(i, (*stack, *rows, *inner))
        self._arrange(j, (*stack, *inner, *columns))
        if inner:
            lead = (stack,) if stack else ()
            if stack or len(rows) != 1 or len(inner) != 1:
                self._reshape(i, *lead, rows, inner)
            if stack or len(columns) != 1 or len(inner) != 1:
                self._reshape(j, *lead, inner, columns)
        else:
            self._reshape(i, *stack, *rows, *(1 for _ in columns))
            self._reshape(j, *stack, *(1 for _ in rows), *columns)
        self.steps.append(("matmul" if inner else "multiply", i, j))
        result = (*stack, *rows, *columns)
        if inner and (stack or len(rows) != 1 or len(columns) != 1):
            self._reshape(-1, *result)
        del self.rest[j], self.rest[i]
        self.rest.append(result)


_plan = lru_cache(maxsize=1024)(_Plan)


def _run(xp: Any, steps: list[tuple[str, int, Any]], rest: list[Any]) -> Any:
    """Do the steps of a plan with arrays."""
    # Methods cost half as much as functions, where arrays have them.
    where, product = getattr(xp, "ndarray", xp), xp.matmul
    permute = where.transpose if where is not xp else xp.permute_dims
    if xp is np:
        product = partial(op_of(matmul).overrides["numpy"], np)
    for name, i, how in steps:
        if name == "permute_dims":
            rest[i] = permute(rest[i], how)
        elif name == "reshape":
            rest[i] = where.reshape(rest[i], how)
        elif name == "sum":
            rest[i] = xp.sum(rest[i], axis=how, dtype=rest[i].dtype)
        elif name == "diagonal":
            x = rest[i]
            rest[i] = xp.reshape(x, (*x.shape[:-2], how * how))[..., :: how + 1]
        else:
            right, left = rest.pop(how), rest.pop(i)
            rest.append(product(left, right) if name == "matmul" else left * right)
    (result,) = rest
    return result


# Facts -------------------------------------------------------------------------------------------


def _arrange(*args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The subscripts are the first argument of a call, as in NumPy; ops take them by name."""
    if "subscripts" in named:
        return args, named
    if not args or not isinstance(args[0], str):
        raise DTypeError(
            "the first argument is not a string",
            op="einsum",
            argument="subscripts",
            expected='subscripts such as "ij,jk->ik", then the operands',
        )
    return args[1:], {**named, "subscripts": args[0]}


def _spec(*operands: TensorSpec, subscripts: str) -> TensorSpec:
    _, output, sizes = resolved(subscripts, tuple(x.shape for x in operands))
    return operands[0].like(sizes[c] for c in output)


def _vjp(g: Any, y: Any, *operands: Any, subscripts: str) -> tuple[Any, ...]:
    inputs, output, sizes = resolved(subscripts, tuple(x.shape for x in operands))
    return tuple(_pulled(i, g, operands, inputs, output, sizes) for i in range(len(operands)))


def _pulled(
    at: int,
    g: Any,
    operands: Any,
    inputs: tuple[Labels, ...],
    output: Labels,
    sizes: dict[str, Any],
) -> Any:
    """The gradient of one operand: an einsum of ``g`` with all other operands.

    A repeated label is a diagonal: the second occurrence gets a new label, tied to the first by an
    identity matrix. An axis that only this operand has was summed, so its gradient is repeated; one
    of size 1 that was broadcast is summed.
    """
    x, labels = operands[at], inputs[at]
    terms, values = [output], [g]
    for i, (other, own) in enumerate(zip(operands, inputs, strict=True)):
        if i != at:
            terms.append(tuple(own))
            values.append(conjugate(other))
    # Axes of '...' with size 1 in an operand do not meet the label's full size any more.
    fresh = (c for c in _symbols() if c not in sizes)
    target: list[str] = []
    for axis, label in enumerate(labels):
        if label in target:
            twin = next(fresh)
            terms.append((label, twin))
            values.append(eye(x.shape[axis], dtype=x.dtype, device=str(x.device)))
            target.append(twin)
        else:
            target.append(label)
    for i, (term, value) in enumerate(zip(terms, values, strict=True)):
        kept = tuple(c for c, n in zip(term, value.shape, strict=True) if n == sizes.get(c, n))
        if kept != term:
            terms[i], values[i] = kept, reshape(value, tuple(sizes[c] for c in kept))
    known = {c for term in terms for c in term}
    whole = {c: x.shape[i] for i, c in enumerate(target)}
    # Size-1 axes of x that were broadcast are summed: they are left out of the result.
    result = tuple(c for c in target if c in known and whole[c] == sizes.get(c, whole[c]))
    part = einsum(_text(terms, result), *values)
    shape = tuple(whole[c] if c in result else 1 for c in target)
    return broadcast_to(reshape(part, shape), x.shape)


def _batch(args: Any, batched: Any, size: Any, subscripts: str) -> Any:
    ranks = tuple(len(x.shape) - own for x, own in zip(args, batched, strict=True))
    inputs, output = parse(subscripts, ranks)
    used = {c for labels in inputs for c in labels}
    new = next(c for c in _symbols() if c not in used)
    # Only axes of '...' broadcast, so one of size 1 must not get a name that has size n.
    shapes = [x.shape[1:] if own else x.shape for x, own in zip(args, batched, strict=True)]
    sizes = sizes_of(inputs, tuple(shapes), frozenset(subscripts))
    terms: list[Labels] = []
    values = []
    for x, labels, shape, own in zip(args, inputs, shapes, batched, strict=True):
        kept = tuple(c for c, n in zip(labels, shape, strict=True) if n == sizes[c])
        lead = (size,) if own else ()
        values.append(x if kept == labels else reshape(x, (*lead, *(sizes[c] for c in kept))))
        terms.append((new, *kept) if own else kept)
    return einsum(_text(terms, (new, *output)), *values)


def _split(*operands: TensorSpec, subscripts: str) -> list[Split]:
    inputs, output, sizes = resolved(subscripts, tuple(x.shape for x in operands))
    found = []
    for label, size in sizes.items():
        if any(labels.count(label) > 1 for labels in inputs):
            continue
        cuts = tuple(
            labels.index(label)
            if label in labels and x.shape[labels.index(label)] == size
            else None
            for x, labels in zip(operands, inputs, strict=True)
        )
        if label in output:
            found.append(Split(cuts, output.index(label)))
        else:
            found.append(Split(cuts, None, "add"))
    return found


def _cost(*operands: TensorSpec, subscripts: str) -> Cost:
    _, output, sizes = resolved(subscripts, tuple(x.shape for x in operands))
    moved = sum((x.size for x in operands), start=product(sizes[c] for c in output))
    flops = len(operands) * product(sizes.values())
    return Cost(flops, moved * operands[0].dtype.itemsize)


def _operator(w: Any, *operands: Any, subscripts: str) -> Any:
    """The rule of ONNX, where the dots stand for the same number of axes of each operand."""
    terms = subscripts.partition("->")[0].replace(" ", "").split(",")
    hidden = [
        x.ndim - len(term) + 3 if "..." in term else None
        for x, term in zip(operands, terms, strict=True)
    ]
    most = max((n for n in hidden if n is not None), default=0)
    given = []
    for x, term, n in zip(operands, terms, hidden, strict=True):
        at, more = term.find("..."), 0 if n is None else most - n
        given.append(w.Unsqueeze(x, w.integers(range(at, at + more))) if more else x)
    return w.Einsum(*given, equation=subscripts)


@define(
    "contraction",
    aliases=True,  # if it only renames axes
    dtypes=NUMERIC,
    infer=_spec,
    arrange=_arrange,
    trusted=True,
    vjp=_vjp,
    saves="operands",
    jvp="multilinear",
    batch=_batch,
    split=_split,
    cost=_cost,
    onnx=_operator,
    ulp=32,
)
def einsum(xp: Namespace, /, *operands: Array, subscripts: str) -> Array:
    """Sum of products of tensors over axes named by letters.

    ``subscripts`` is the first argument of a call: the labels of each operand's axes, separated by
    commas, then ``->`` and the labels of the result; all other labels are summed over. ``...``
    stands for further axes, which broadcast; a repeated label in an operand selects its diagonal.
    Without ``->`` the result has the labels that occur once, in alphabetical order, after those of
    ``...``. ``operands`` are numeric tensors. Raises ShapeError where labels do not fit the
    operands, DTypeError without subscripts.

    >>> a = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> ef.einsum("ij,jk->ik", a, ef.eye(2))
    Tensor([[1., 2.],
            [3., 4.]], shape=(2, 2), float32, cpu:0)
    >>> ef.einsum("ii->", a)
    Tensor(5., float32, cpu:0)
    """
    plan = _plan(subscripts, tuple([x.shape for x in operands]))
    return _run(xp, plan.steps, list(operands))
