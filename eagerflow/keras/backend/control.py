"""Branches, loops, scans and custom gradients.

The signatures are Keras's, which compares them, so they lack annotations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from keras.src import tree

import eagerflow as ef
from eagerflow.keras.backend.tensors import convert_to_tensor, tensors_of
from eagerflow.keras.sparse import also_sparse, linear

__all__ = [
    "associative_scan",
    "cond",
    "custom_gradient",
    "fori_loop",
    "map",
    "remat",
    "scan",
    "stop_gradient",
    "switch",
    "vectorized_map",
    "while_loop",
]


def cond(pred, true_fn, false_fn):
    """The result of one of two functions, which may assign variables."""
    flag = convert_to_tensor(pred, "bool")
    return ef.cond(flag, lambda: tensors_of(true_fn()), lambda: tensors_of(false_fn()))


def switch(index, branches, *operands):
    """``branches[index](*operands)``, with a clamped index."""
    own = [lambda *given, f=f: tensors_of(f(*given)) for f in branches]
    return ef.switch(convert_to_tensor(index, "int32"), own, *tensors_of(operands))


def vectorized_map(function, elements):
    """``function`` applied to all rows at once."""
    return ef.vmap(function)(tensors_of(elements))


def map(f, xs):
    """``f`` applied to one row after the other."""
    return ef.map(lambda x: tensors_of(f(x)), tensors_of(xs))


def scan(f, init, xs=None, length=None, reverse=False, unroll=1):
    """The last carry and all ys of ``carry, y = f(carry, x)``."""
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    if not isinstance(unroll, bool) and (not isinstance(unroll, int) or unroll < 1):
        raise ValueError(
            f"`unroll` must be an positive integer or boolean. Received: unroll={unroll}"
        )
    if xs is None and length is None:
        raise ValueError("Got no `xs` to scan over and `length` not provided.")

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        carry, y = f(carry, x)
        return tensors_of(carry), tensors_of(y)

    return ef.scan(step, tensors_of(init), tensors_of(xs), length, reverse)


def while_loop(cond, body, loop_vars, maximum_iterations=None):
    """The loop variables once ``cond(*loop_vars)`` is false."""
    several = isinstance(loop_vars, list | tuple)

    def step(state: Any) -> Any:
        found = body(*state)
        return tensors_of(tuple(found) if isinstance(found, list | tuple) else (found,))

    state = tensors_of(tuple(loop_vars) if several else (loop_vars,))
    state = ef.while_loop(
        lambda state: convert_to_tensor(cond(*state), "bool"), step, state, maximum_iterations
    )
    return state if several else state[0]


def fori_loop(lower, upper, body_fun, init_val):
    """The state after ``state = body_fun(i, state)`` for each ``i``, of the dtype of ``lower``."""
    dtype = convert_to_tensor(lower).dtype

    def step(i: Any, state: Any) -> Any:
        return tensors_of(body_fun(convert_to_tensor(i, dtype), state))

    return ef.fori_loop(lower, upper, step, tensors_of(init_val))


@also_sparse(linear)
def stop_gradient(variable):
    """The value, without a gradient."""
    stopped: ef.Tensor = ef.stop_gradient(convert_to_tensor(variable))
    return stopped


def remat(f):
    """``f`` with recomputation for the gradient instead of stored values."""
    return ef.checkpoint(lambda *args, **kwargs: f(*args, **kwargs))


def custom_gradient(fun):
    """``fun`` returns its result and a function from the result's gradient to the arguments'."""

    def called(*args: Any, **kwargs: Any) -> Any:
        leaves = tree.flatten(args)
        places = [i for i, x in enumerate(leaves) if hasattr(x, "shape") or isinstance(x, float)]

        @ef.custom_gradient
        def own(*tensors: ef.Tensor) -> tuple[Any, Any]:
            given = list(leaves)
            for i, tensor in zip(places, tensors, strict=True):
                given[i] = tensor
            result, backward = fun(*tree.pack_sequence_as(args, given), **kwargs)
            return tensors_of(result), partial(_pulled, backward, args, places)

        return own(*(convert_to_tensor(leaves[i]) for i in places))

    return called


def _pulled(backward: Callable[..., Any], args: Any, places: list[int], gradient: Any) -> Any:
    """The gradients of the leaves of ``args`` that are tensors."""
    found = backward(gradient)
    found = tuple(found) if isinstance(found, list | tuple) else (found,)
    parts: list[Any] = []
    for arg, part in zip(args, found, strict=False):
        many = len(tree.flatten(arg))
        parts += tree.flatten(part) if part is not None and many > 1 else [part] * many
    parts += [None] * (max(places, default=-1) + 1 - len(parts))
    return tuple(None if parts[i] is None else convert_to_tensor(parts[i]) for i in places)


def associative_scan(f, elems, reverse=False, axis=0):
    """All prefixes of ``elems`` along an axis, combined by an associative ``f``."""
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    leaves = [convert_to_tensor(x) for x in tree.flatten(elems)]
    if len({x.shape[axis] for x in leaves}) > 1:
        raise ValueError(
            "Array inputs to associative_scan must have the same first dimension. "
            f"(saw: {[x.shape for x in leaves]})"
        )

    def joined(a: list[Any], b: list[Any]) -> list[Any]:
        pair = tree.pack_sequence_as(elems, a), tree.pack_sequence_as(elems, b)
        return [convert_to_tensor(x) for x in tree.flatten(f(*pair))]

    return tree.pack_sequence_as(elems, ef.associative_scan(joined, leaves, reverse, axis))
