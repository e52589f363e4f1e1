"""Sources and targets of gradients: their checks, and why a source was not watched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType
from typing import Any

from eagerflow import tree
from eagerflow.display import summary
from eagerflow.dtypes import is_inexact
from eagerflow.errors import GradientError
from eagerflow.recorder import OP
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["check_target", "path_in", "sources_in", "unwatched"]


def sources_in(nest: Any) -> tuple[list[Any], tree.Structure]:
    """The leaves and the structure of a nest of sources.

    Raises GradientError, which names the leaf, for other objects and for integers.
    """
    leaves, structure = tree.flatten(nest)
    # Keras Variables wrap ours.
    leaves = [getattr(x, "eagerflow_variable", x) for x in leaves]
    for i, leaf in enumerate(leaves):
        if type(leaf) in (Tensor, Variable) and is_inexact(leaf.dtype):
            continue
        hint = "x = x.astype('float32') before it is watched"
        if not isinstance(leaf, Tensor | Variable):
            weights = hasattr(type(leaf), "trainable_weights")
            hint = "model.trainable_weights" if weights else "a list of Variables or tensors"
        _check(leaf, hint, path_in(structure, i))
    return leaves, structure


def check_target(target: Any) -> None:
    """Raise GradientError for a target without a gradient."""
    if type(target) is not Tensor or not target._kind.is_inexact:
        known = type(target) is Tensor
        loss = "the loss as a tensor: without item(), float() and numpy(), which leave the tape"
        _check(target, "a target of floats, computed by differentiable ops" if known else loss)


def _check(value: Any, hint: str, path: str | None = None) -> None:
    known = type(value) in (Tensor, Variable)
    if known and is_inexact(value.dtype):
        return
    raise GradientError(
        f"there is no gradient with respect to {value.dtype.name} values"
        if known
        else f"a {type(value).__name__} has no gradient",
        argument=path,
        received=summary(value),
        expected="floating-point or complex values" if known else "Tensors and Variables",
        hint=hint,
    )


def path_in(structure: tree.Structure | None, i: int) -> str | None:
    """The keys of leaf ``i`` of a nest, None if there are none.

    >>> path_in(tree.flatten({"w": [1.0, 2.0]})[1], 1)
    "['w'][1]"
    """
    path = tree.paths(structure)[i] if structure is not None else ""
    return path or None


# Sources that were not watched --------------------------------------------------------------------


def unwatched(entries: Iterable[Any], source: Any) -> str:
    """Why a tape with these entries has not watched a source."""
    if type(source) is not Variable:
        return "the source was not watched: call tape.watch(x), or use a trainable ef.Variable"
    for entry in entries:
        function = getattr(entry[OP].vjp, "function", None)
        if function is not None and any(x is source for x in _variables_of(function)):
            return (
                f"it is read inside of {entry[OP].name}, a function with a custom gradient, which "
                "has none for it: pass it to the function, and return its gradient too"
            )
    if not source.trainable:
        return "the Variable was not watched: it is not trainable; call tape.watch(variable) first"
    return (
        "the tape recorded no use of this Variable: compute the loss inside of 'with "
        "ef.GradientTape() as tape:'; functions with custom gradients need it as an argument"
    )


def _variables_of(function: Any) -> Iterator[Any]:
    """The Variables that a function refers to, also through models and other objects."""
    while isinstance(function, partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, partial) else function.__wrapped__
    held = [getattr(function, "__self__", None)]
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is not None:
        cells = [cell for cell in function.__closure__ or () if _is_filled(cell)]
        held += [cell.cell_contents for cell in cells]
        held += [function.__globals__.get(name) for name in _names_in(code)]
    for value in held:
        yield from tree.instances(value, (Variable,))
        weights = getattr(value, "weights", None)  # of a model; of others it may be anything
        yield from weights if isinstance(weights, list) else ()
        yield from tree.instances(list(getattr(value, "__dict__", {}).values()), (Variable,))


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (it raises)
    except ValueError:
        return False
    return True


def _names_in(code: CodeType) -> set[str]:
    inner = [_names_in(x) for x in code.co_consts if isinstance(x, CodeType)]
    return set(code.co_names).union(*inner)
