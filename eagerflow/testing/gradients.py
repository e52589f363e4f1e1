"""Gradients against central differences: the full Jacobian, in every mode, up to any order.

Complex values are taken as pairs of real ones. With L = Re(conj(w) y), the gradient of L from the
tape is dL/dRe(x) + i dL/dIm(x); so w = 1 and w = i give the rows of Re(y) and of Im(y), and
functions that are not complex-differentiable need no special case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import is_complex, is_inexact
from eagerflow.errors import GradientError
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor
from eagerflow.transforms import jvp, same_value
from eagerflow.variable import Variable

__all__ = ["check_gradients"]

_NAME = "check_gradients"
_MODES = {"both": ("reverse", "forward"), "reverse": ("reverse",), "forward": ("forward",)}

Array = np.ndarray[Any, Any]
Flat = Callable[[Sequence[Tensor]], list[Tensor]]


class _Limits(NamedTuple):
    """The step of the differences, and the tolerances."""

    eps: float
    atol: float
    rtol: float


class _Problem(NamedTuple):
    """A function from a list of tensors to a list of tensors, and its arguments."""

    f: Flat
    at: list[Tensor]
    inputs: list[str]
    outputs: list[str]
    what: str


def check_gradients(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    mode: str = "both",
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> None:
    """Compare all gradients of a function with central differences.

    ``f`` is called with ``args``, a tuple of tensors, arrays, numbers or nests of them, and returns
    a tensor or a nest. Floating and complex arguments are made float64 and complex128 and varied
    element by element by ``eps``; others are not varied. ``mode`` is ``"reverse"``, ``"forward"``
    or ``"both"``; ``order=2`` checks the gradient of the gradient as well. A derivative d may
    differ from the difference n by ``atol + rtol * abs(n)``. Use small arguments: the time grows
    with the product of the numbers of elements.

    Raises a GradientError that names the wrong input and element.

    >>> ef.testing.check_gradients(lambda x, y: x * x * y, (ef.tensor([1.0, 2.0]), 3.0))
    >>> @ef.custom_gradient
    ... def square(x):
    ...     return x * x, lambda g: g * x
    >>> ef.testing.check_gradients(square, (ef.tensor([1.0, 2.0]),))
    Traceback (most recent call last):
    ...
    eagerflow.errors.GradientError: check_gradients: args[0][...]: the reverse derivative of ...
      received: ...
      expected: ..., by central differences
      try: 2 of 4 elements are wrong: see the rule of each op in the function
    """
    if mode not in _MODES:
        _refuse(f"{mode!r} is not a mode", "mode", "'both', 'reverse' or 'forward'")
    if not isinstance(order, int) or order < 1:
        _refuse(f"{order!r} is not an order", "order", "1, 2 or more")
    if not isinstance(args, tuple | list):
        _refuse(f"a {type(args).__name__} is not a list of arguments", "args", "a tuple")
    problem = _flat_problem(f, args)
    limits = _Limits(eps, atol, rtol)
    for _ in range(order):
        _check(problem, _MODES[mode], limits)
        problem = _gradient_problem(problem)


def _refuse(
    problem: str, argument: str | None, expected: str | None = None, **details: str
) -> NoReturn:
    raise GradientError(problem, op=_NAME, argument=argument, expected=expected, **details)


# From the user's function to lists of tensors --------------------------------------------------


def _flat_problem(f: Callable[..., Any], args: Sequence[Any]) -> _Problem:
    leaves, structure = tree.flatten(tuple(args))
    wide = [_widened(leaf) for leaf in leaves]
    moving = [i for i, x in enumerate(wide) if x is not None]
    if not moving:
        _refuse("there is nothing to differentiate by", "args", "a floating or complex argument")
    names = [f"args{path}" for path in tree.paths(structure)]
    outputs: list[str] = []

    def flat(xs: Sequence[Tensor]) -> list[Tensor]:
        values = list(leaves)
        for i, x in zip(moving, xs, strict=True):
            values[i] = x
        results, result = tree.flatten(f(*tree.unflatten(structure, values)))
        for y in results:
            if not isinstance(y, Tensor):
                _refuse(f"the function returned {summary(y)}", "f", "tensors")
        named = zip(tree.paths(result, "output"), results, strict=True)
        found = [(name, y) for name, y in named if is_inexact(y.dtype)]
        outputs[:] = [name for name, _ in found]
        return [y for _, y in found]

    at = [x for x in wide if x is not None]
    before, again = (_reals(flat(at)) for _ in range(2))
    if before.tobytes() != again.tobytes():
        problem = "two calls with the same arguments give different results"
        _refuse(problem, "f", hint="fix the random numbers: a seed or a key")
    return _Problem(flat, at, [names[i] for i in moving], outputs, "")


def _widened(leaf: Any) -> Tensor | None:
    """A leaf in double precision if it can be differentiated; otherwise None."""
    if isinstance(leaf, Variable):
        leaf = leaf.value
    if not isinstance(leaf, float | complex) and not hasattr(leaf, "dtype"):
        return None
    tensor = as_tensor(leaf)
    if not is_inexact(tensor.dtype):
        return None
    wide = as_tensor(leaf, "complex128" if is_complex(tensor.dtype) else "float64")
    return same_value(wide)  # f(x, x) has two arguments


def _gradient_problem(problem: _Problem) -> _Problem:
    """The gradient of a weighted sum of all results, as a function of the same inputs."""
    rng = np.random.default_rng(0)
    weights = [as_tensor(_like(y, rng.standard_normal)) for y in problem.f(problem.at)]

    def gradient(xs: Sequence[Tensor]) -> list[Tensor]:
        with GradientTape() as tape:
            tape.watch(list(xs))
            ys = problem.f(xs)
        found: list[Tensor] = tape.gradient(ys, list(xs), weights, unconnected="zero")
        return found

    names = [f"the gradient by {name}" for name in problem.inputs]
    return _Problem(gradient, problem.at, problem.inputs, names, "second " + problem.what)


def _like(y: Tensor, draw: Callable[[Any], Array]) -> Array:
    values = draw(y.shape)
    return values + 1j * draw(y.shape) if is_complex(y.dtype) else values


# Jacobians of real numbers -----------------------------------------------------------------------


def _reals(tensors: Sequence[Tensor]) -> Array:
    """All elements in one row of real numbers: real, then imaginary parts of each tensor."""
    parts: list[Array] = []
    for tensor in tensors:
        values = tensor.numpy()
        parts.append(values.real.ravel())
        if is_complex(tensor.dtype):
            parts.append(values.imag.ravel())
    return np.concatenate(parts).astype(np.float64) if parts else np.empty(0)


def _units(tensors: Sequence[Tensor], length: float = 1.0) -> Any:
    """For each real number in ``_reals(tensors)``: which tensor, which element, and the step."""
    for i, tensor in enumerate(tensors):
        for unit in (1.0, 1j) if is_complex(tensor.dtype) else (1.0,):
            for at in np.ndindex(tensor.shape):
                yield i, at, unit * length


def _directions(tensors: Sequence[Tensor]) -> Any:
    """All unit vectors, each as a list of tensors."""
    for i, at, unit in _units(tensors):
        arrays = [np.zeros(t.shape, t.dtype) for t in tensors]
        arrays[i][at] = unit
        yield [
            as_tensor(array, device=str(t.device)) for array, t in zip(arrays, tensors, strict=True)
        ]


def _differences(problem: _Problem, eps: float) -> Array:
    columns = []
    for i, at, step in _units(problem.at, eps):
        ends = []
        for sign in (1, -1):
            values = np.array(problem.at[i].numpy())
            values[at] += sign * step
            xs = list(problem.at)
            xs[i] = as_tensor(values, device=str(xs[i].device))
            ends.append(_reals(problem.f(xs)))
        with np.errstate(invalid="ignore"):  # infinities; the caller reports them
            columns.append((ends[0] - ends[1]) / (2 * eps))
    return np.array(columns).T


def _reverse(problem: _Problem) -> Array:
    with GradientTape(persistent=True) as tape:
        tape.watch(problem.at)
        ys = problem.f(problem.at)
    ones = [as_tensor(np.ones(y.shape, y.dtype), device=str(y.device)) for y in ys]
    whole = tape.gradient(ys, problem.at, ones, unconnected="zero")
    for name, x, g in zip(problem.inputs, problem.at, whole, strict=True):
        if g.shape != x.shape or g.dtype != x.dtype:
            wrong = f"the {problem.what}gradient has another shape or dtype than the argument"
            _refuse(wrong, name, summary(x), received=summary(g))
    rows = [
        _reals(tape.gradient(ys, problem.at, weights, unconnected="zero"))
        for weights in _directions(ys)
    ]
    return np.array(rows)


def _forward(problem: _Problem) -> Array:
    columns = []
    for tangents in _directions(problem.at):
        ys, moved = jvp(
            lambda *xs: problem.f(xs), tuple(problem.at), tuple(tangents), unconnected="zero"
        )
        for name, y, t in zip(problem.outputs, ys, moved, strict=True):
            if t.shape != y.shape or t.dtype != y.dtype:
                wrong = f"the {problem.what}tangent has another shape or dtype than {name}"
                _refuse(wrong, None, summary(y), received=summary(t))
        columns.append(_reals(moved))
    return np.array(columns).T


_JACOBIANS = {"reverse": _reverse, "forward": _forward}


def _check(problem: _Problem, modes: Sequence[str], limits: _Limits) -> None:
    expected = _differences(problem, limits.eps)
    ys = problem.f(problem.at)
    rows, columns = list(_units(ys)), list(_units(problem.at))
    if not np.isfinite(expected).all():
        hint = "arguments inside the domain of the function, away from its poles"
        _refuse("the differences are not finite", "args", hint=hint)
    for mode in modes:
        received = _JACOBIANS[mode](problem)
        if not rows or not columns:
            continue
        excess = np.abs(received - expected) - limits.atol - limits.rtol * np.abs(expected)
        excess = np.where(np.isnan(received), np.inf, excess)
        row, column = np.unravel_index(np.argmax(excess), excess.shape)
        if excess[row, column] > 0:
            y = _place(problem.outputs, rows[row])
            _refuse(
                f"the {mode} {problem.what}derivative of {y} is wrong",
                _place(problem.inputs, columns[column]),
                f"{float(expected[row, column])!r}, by central differences",
                received=repr(float(received[row, column])),
                hint=f"{int((excess > 0).sum())} of {excess.size} elements are wrong: see the rule "
                "of each op in the function",
            )


def _place(names: Sequence[str], unit: tuple[int, tuple[int, ...], Any]) -> str:
    number, at, step = unit
    part = " (imaginary part)" if isinstance(step, complex) else ""
    where = f"[{', '.join(map(str, at))}]" if at else ""
    return names[number] + where + part
