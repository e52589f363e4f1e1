"""Function transformations: gradients, products with derivatives, recomputation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from eagerflow import provenance, tree
from eagerflow.batching import vmap
from eagerflow.convert import as_tensor
from eagerflow.customs import custom_call
from eagerflow.display import function_name, summary
from eagerflow.dtypes import is_inexact
from eagerflow.errors import EagerflowError, GradientError, ShapeError
from eagerflow.forward import Forward
from eagerflow.handlers import raised_here
from eagerflow.masks import keeping_mask
from eagerflow.ops.creation.filled import eye, zeros_like
from eagerflow.sources import path_in
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[..., Any]
Argnums = int | Sequence[int]
"""The position of an argument, or a tuple or list of positions."""


def _by_sources(
    f: Function, args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Argnums, op: str
) -> tuple[Function, Any]:
    """``f`` as a function of only the arguments at ``argnums``, and these as Tensors.

    They are passed, and returned, in the form of ``argnums``: one, or a tuple.
    """
    several = isinstance(argnums, tuple | list)
    numbers: Any = argnums if several else (argnums,)
    values = list(args)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise GradientError(
                f"there is no argument {n}",
                op=op,
                argument="argnums",
                received=f"{len(args)} arguments",
                hint=None
                if args
                else "pass what to differentiate by, or use ef.GradientTape() "
                "for Variables that the function reads",
            )
        values[n] = _own_tensors(values[n])

    def of_sources(sources: Any) -> Any:
        whole = list(values)
        for n, part in zip(numbers, sources if several else (sources,), strict=True):
            whole[n] = part
        return f(*whole, **kwargs)

    chosen = tuple(values[n] for n in numbers)
    return of_sources, chosen if several else chosen[0]


def _own_tensors(nest: Any) -> Any:
    """A new Tensor for each leaf, so that x and y in f(x, x) are distinguished."""
    leaves, structure = tree.flatten(nest)
    for i, x in enumerate(leaves):
        if not isinstance(x, Variable):
            try:
                leaves[i] = keeping_mask(x, same_value(as_tensor(x)))
            except raised_here(EagerflowError) as error:
                if structure.container is not None:
                    error.argument = path_in(structure, i)
                    error.hint = "values that are no numbers in another argument"
                raise
    return tree.unflatten(structure, leaves)


def same_value(tensor: Tensor) -> Tensor:
    """The same value as another Tensor object; gradients pass."""
    same: Tensor = tensor.reshape(tensor.shape)
    return same


def _check_choice(value: Any, what: str, op: str, argument: str, *choices: str) -> None:
    if value not in choices:
        raise GradientError(
            f"{value!r} is not a {what}",
            op=op,
            argument=argument,
            expected=" or ".join(map(repr, choices)),
        )


def value_and_grad(
    f: Callable[P, R], argnums: Argnums = 0, has_aux: bool = False, unconnected: str = "raise"
) -> Callable[P, tuple[R, Any]]:
    """A function that returns the value of ``f`` and its gradient.

    ``f`` returns a tensor of one element, or with ``has_aux`` a pair of it and anything
    else. ``argnums`` is the position, or a tuple of positions, of the arguments (tensors,
    Variables or nests of them) to differentiate by. The result is ``(value, gradient)``.
    ``unconnected`` is the gradient of an argument that the value does not depend on: ``"raise"``
    (an error that shows where the path breaks), ``"none"`` or ``"zero"``. Raises GradientError
    if there is no gradient, ShapeError for more than one element.

    >>> ef.value_and_grad(lambda x: x ** 2)(3.0)
    (Tensor(9., float32, cpu:0), Tensor(6., float32, cpu:0))
    """

    @wraps(f)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        of_sources, sources = _by_sources(f, args, kwargs, argnums, "grad")
        with GradientTape() as tape:
            tape.watch(sources)
            result = of_sources(sources)
        y = result[0] if has_aux else result
        if not isinstance(y, Tensor) or y.size != 1:
            raise ShapeError(
                "the function must return a tensor of one element",
                op="grad",
                received=summary(y),
                hint="sum or average it first, or use ef.jacobian",
            )
        return result, tape.gradient(y, sources, unconnected=unconnected)

    return with_gradient


def grad(
    f: Callable[P, Any], argnums: Argnums = 0, has_aux: bool = False, unconnected: str = "raise"
) -> Callable[P, Any]:
    """A function that returns the gradient of ``f``, with the arguments of ``f``.

    Arguments are those of ``value_and_grad``; with ``has_aux`` the result is
    ``(gradient, aux)``. Raises GradientError if there is no gradient.

    >>> ef.grad(ef.grad(lambda x: x ** 3))(2.0)
    Tensor(12., float32, cpu:0)
    """
    both = value_and_grad(f, argnums, has_aux, unconnected)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return gradient


def vjp(
    f: Callable[..., R], *primals: Any, unconnected: str = "raise"
) -> tuple[R, Callable[[Any], tuple[Any, ...]]]:
    """The value of ``f(*primals)``, and the function from its gradient to the arguments'.

    ``primals`` are tensors or nests of them. The function takes a gradient with the
    structure and shapes of the value, can be called again, and returns a tuple; it raises
    GradientError for an argument that the value does not depend on, unless ``unconnected`` is
    ``"zero"`` or ``"none"``.

    >>> y, pull = ef.vjp(lambda a, b: a * b, 2.0, 5.0)
    >>> pull(1.0)
    (Tensor(5., float32, cpu:0), Tensor(2., float32, cpu:0))
    """
    sources = _own_tensors(primals)
    with GradientTape(persistent=True) as tape:
        tape.watch(sources)
        y = f(*sources)

    def pull(g: Any) -> Any:
        return tape.gradient(y, sources, g, unconnected)

    return y, pull


def jvp(
    f: Callable[..., R], primals: Any, tangents: Any, unconnected: str = "raise"
) -> tuple[R, R]:
    """The value of ``f(*primals)`` and its derivative in the direction of ``tangents``.

    ``primals`` is a tuple of tensors or nests, ``tangents`` one of the same structure and
    shapes. Raises ShapeError if they differ, and GradientError for an argument that no result
    depends on, unless ``unconnected`` is ``"zero"``.

    >>> ef.jvp(ef.sin, (0.0,), (2.0,))
    (Tensor(0., float32, cpu:0), Tensor(2., float32, cpu:0))
    """
    _check_choice(unconnected, "choice", "jvp", "unconnected", "raise", "zero")
    sources = _own_tensors(tuple(primals))
    leaves, structure = tree.flatten(sources)
    directions, given = tree.flatten(tuple(tangents))
    if given != structure:
        raise ShapeError("the tangents have another structure than the primals", op="jvp")
    with Forward() as forward:
        for i, (leaf, direction) in enumerate(zip(leaves, directions, strict=True)):
            tangent = as_tensor(direction, leaf.dtype)
            if tangent.shape != leaf.shape:
                raise ShapeError(
                    "a tangent has the shape of its primal",
                    op="jvp",
                    argument="tangents",
                    received=summary(tangent),
                    expected=summary(leaf),
                )
            forward.seed(leaf, tangent, 1 << i)
        y = f(*sources)
    if unconnected == "raise":
        used = forward.sources(*tree.flatten(y)[0])
        for i, leaf in enumerate(leaves):
            if is_inexact(leaf.dtype) and not used >> i & 1:
                raise provenance.unconnected(leaf, forward.ended(i))

    def moved(value: Any) -> Any:
        tangent = forward.tangent(value)
        return zeros_like(value) if tangent is None else tangent

    return y, tree.map_leaves(moved, y)


def jacobian(
    f: Callable[P, Any], argnums: Argnums = 0, mode: str = "reverse", unconnected: str = "raise"
) -> Callable[P, Any]:
    """A function that returns all partial derivatives of ``f``.

    ``f`` returns a tensor or a nest. Each result has the shape ``y.shape + x.shape``, in the
    nest of ``y``, then of ``x``. ``mode`` is ``"reverse"`` (one pass per element of ``y``) or
    ``"forward"`` (one per element of ``x``); all passes run as one batch. An argument that no
    result depends on raises GradientError, or gives zeros with ``unconnected="zero"``.

    >>> ef.jacobian(lambda x: x ** 2)(ef.tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]], shape=(2, 2), float32, cpu:0)
    """
    _check_choice(mode, "mode", "jacobian", "mode", "reverse", "forward")
    _check_choice(unconnected, "choice", "jacobian", "unconnected", "raise", "zero")
    rows = _reverse_rows if mode == "reverse" else _forward_columns

    @wraps(f)
    def derivatives(*args: Any) -> Any:
        return rows(*_by_sources(f, args, {}, argnums, "jacobian"), unconnected)

    return derivatives  # type: ignore[return-value]  # nothing comes by name


def _units(leaves: list[Tensor], structure: tree.Structure, i: int) -> tuple[Tensor, Function]:
    """All unit vectors of a leaf, and a function to the nest that is 0 in all other leaves."""
    leaf, others = leaves[i], [zeros_like(leaf) for leaf in leaves]

    def nest(unit: Tensor) -> Any:
        return tree.unflatten(structure, [*others[:i], unit.reshape(leaf.shape), *others[i + 1 :]])

    return eye(leaf.size, dtype=leaf.dtype, device=str(leaf.device)), nest


def _reverse_rows(f: Function, sources: Any, unconnected: str) -> Any:
    y, pull = vjp(f, sources, unconnected=unconnected)
    leaves, structure = tree.flatten(y)

    def rows(i: int) -> Any:
        units, nest = _units(leaves, structure, i)
        found = vmap(lambda unit: pull(nest(unit))[0])(units)
        shape = leaves[i].shape
        return tree.map_leaves(lambda part: part.reshape((*shape, *part.shape[1:])), found)

    return tree.unflatten(structure, [rows(i) for i in range(len(leaves))])


def _forward_columns(f: Function, sources: Any, unconnected: str) -> Any:
    leaves, structure = tree.flatten(sources)

    def columns(i: int) -> Any:
        units, nest = _units(leaves, structure, i)
        moved = vmap(lambda unit: jvp(f, (sources,), (nest(unit),), unconnected)[1], out_axes=-1)
        shape = leaves[i].shape
        return tree.map_leaves(lambda part: part.reshape((*part.shape[:-1], *shape)), moved(units))

    by_source = [columns(i) for i in range(len(leaves))]
    return tree.map_leaves(lambda *parts: tree.unflatten(structure, parts), *by_source)


def hessian(
    f: Callable[P, Any], argnums: Argnums = 0, unconnected: str = "raise"
) -> Callable[P, Any]:
    """A function that returns all second derivatives of ``f``, which returns one number.

    The result has the shape ``x.shape + x.shape``. If ``f`` or its gradient does not depend
    on an argument it raises GradientError; with ``unconnected="zero"``, as for a function that
    may be linear, these derivatives are 0.

    >>> ef.hessian(lambda x: (x ** 3).sum())(ef.tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]], shape=(2, 2), float32, cpu:0)
    """
    return jacobian(grad(f, argnums, unconnected=unconnected), argnums, unconnected=unconnected)


def custom_gradient(f: Callable[P, tuple[R, Any]]) -> Callable[P, R]:
    """A function with a custom gradient.

    ``f`` takes tensors or nests of them by position and returns ``(y, backward)``: ``backward(g)``
    gets the gradient of ``y`` in its structure and returns one gradient for each argument, in its
    nest (None if there is none). ``backward`` is written with ops, so it can be differentiated
    again, including through values of ``f`` that ``backward`` uses. Keyword arguments cannot be
    tensors, and Variables that ``f`` reads have no gradient: pass them by position. Raises
    GradientError for tensors by name and a wrong number or nest of gradients, and ShapeError for a
    gradient of another shape than its argument.

    >>> @ef.custom_gradient
    ... def clipped(x):
    ...     return x, lambda g: ef.clip(g, -1.0, 1.0)
    >>> ef.grad(lambda x: 10.0 * clipped(x))(2.0)
    Tensor(1., float32, cpu:0)
    """

    @wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        for name, nest in kwargs.items():
            for value in tree.instances(nest, (Tensor, Variable)):
                raise GradientError(
                    "a tensor that is given by name has no gradient",
                    op=function_name(f),
                    argument=name,
                    received=summary(value),
                    hint="give tensors by position",
                )
        values = tree.map_leaves(lambda x: x.value if isinstance(x, Variable) else x, args)
        return custom_call(wraps(f)(partial(f, **kwargs)) if kwargs else f, values)

    return called
