"""Recurrent networks over whole sequences: one op each for a plain cell, an LSTM and a GRU.

A cell is stated once, by two functions: its step on arrays, and its slopes, which are the
coefficients of the linear recurrence that small changes follow (see ``recurrence``). Nothing but
the states is kept for the gradient; gates are computed again, for all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dtypes import BOOL, FLOATS, DType
from eagerflow.errors import ShapeError
from eagerflow.op import Cost, ErrorSample, Missing, Sample, Split
from eagerflow.ops.creation.filled import eye, zeros, zeros_like
from eagerflow.ops.elementwise.activation import sigmoid
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.elementwise.trigonometric import tanh
from eagerflow.ops.family import Batch, batch_first, define
from eagerflow.ops.linear_algebra.contraction import matmul, transposed
from eagerflow.ops.nn.batching import call_merged
from eagerflow.ops.nn.recurrence import block_recurrence, by_blocks, rows, shifted
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.joining import split, stack
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["gru", "lstm", "simple_rnn"]


class _Cell(NamedTuple):
    """What one step does.

    ``a`` is what the inputs bring to the gates and ``u`` what the output before does, both with
    their bias. ``step(xp, a, u, *states)`` gives the new states. ``slopes(a, u, *states)`` gives
    how these change with the states before, with ``u`` and with ``a``.
    """

    gates: int
    states: int
    step: Callable[..., tuple[Any, ...]]
    slopes: Callable[..., tuple[Any, Any, Any]]
    biases: int = 1


# The cells ----------------------------------------------------------------------------------------


def _sigmoid(xp: Namespace, x: Any) -> Any:
    return xp.tanh(x * 0.5) * 0.5 + 0.5  # without overflow


def _pairs(*blocks: Sequence[Any]) -> Any:
    """Slopes in a tensor of axes (..., to block, from block, units)."""
    whole = stack([part for row in blocks for part in row], axis=-2)
    return reshape(whole, (*whole.shape[:-2], len(blocks), len(blocks[0]), whole.shape[-1]))


def _simple_step(xp: Namespace, a: Any, u: Any, h: Any) -> tuple[Any, ...]:
    return (xp.tanh(a + u),)


def _simple_slopes(a: Any, u: Any, h: Any) -> tuple[Any, Any, Any]:
    y = tanh(a + u)
    by_gate = _pairs([1 - y * y])
    return _pairs([zeros_like(y)]), by_gate, by_gate


def _lstm_step(xp: Namespace, a: Any, u: Any, h: Any, c: Any) -> tuple[Any, ...]:
    z, n = a + u, c.shape[-1]
    written = _sigmoid(xp, z[..., : 2 * n])
    c = written[..., n:] * c + written[..., :n] * xp.tanh(z[..., 2 * n : 3 * n])
    return _sigmoid(xp, z[..., 3 * n :]) * xp.tanh(c), c


def _lstm_slopes(a: Any, u: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
    i, f, n, o = split(a + u, 4, axis=-1)
    i, f, n, o = sigmoid(i), sigmoid(f), tanh(n), sigmoid(o)
    top = tanh(f * c + i * n)
    through = o * (1 - top * top)
    to_c = [n * i * (1 - i), c * f * (1 - f), i * (1 - n * n)]
    to_h = [through * part for part in to_c]
    nothing = zeros_like(c)
    by_gate = _pairs([*to_h, top * o * (1 - o)], [*to_c, nothing])
    return _pairs([nothing, through * f], [nothing, f]), by_gate, by_gate


def _gru_step(xp: Namespace, a: Any, u: Any, h: Any) -> tuple[Any, ...]:
    n = h.shape[-1]
    gates = _sigmoid(xp, a[..., : 2 * n] + u[..., : 2 * n])
    z, new = gates[..., :n], xp.tanh(a[..., 2 * n :] + gates[..., n:] * u[..., 2 * n :])
    return (z * h + (1 - z) * new,)


def _gru_slopes(a: Any, u: Any, h: Any) -> tuple[Any, Any, Any]:
    (a_z, a_r, a_n), (u_z, u_r, u_n) = split(a, 3, axis=-1), split(u, 3, axis=-1)
    z, r = sigmoid(a_z + u_z), sigmoid(a_r + u_r)
    new = tanh(a_n + r * u_n)
    by_new = (1 - z) * (1 - new * new)
    both = [(h - new) * z * (1 - z), by_new * u_n * r * (1 - r)]
    return _pairs([z]), _pairs([*both, by_new * r]), _pairs([*both, by_new])


_SIMPLE = _Cell(1, 1, _simple_step, _simple_slopes)
_LSTM = _Cell(4, 2, _lstm_step, _lstm_slopes)
_GRU = _Cell(3, 1, _gru_step, _gru_slopes, biases=2)


# Over all steps -----------------------------------------------------------------------------------


def _biases(cell: _Cell, bias: Any) -> tuple[Any, Any]:
    """The bias of the inputs and that of the output before, with axes for examples and steps."""
    if bias is None:
        return 0.0, 0.0
    if cell.biases == 1:
        return bias[..., None, None, :], 0.0
    return bias[..., 0, None, None, :], bias[..., 1, None, None, :]


def _run(
    xp: Namespace,
    cell: _Cell,
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    starts: Sequence[Any],
    mask: Any,
    reverse: bool,
) -> tuple[Any, ...]:
    """The states after each step, as arrays (..., batch, steps, units)."""
    *lead, batch, steps, width = x.shape
    units = recurrent_kernel.shape[-2]
    if 0 in (*lead, batch, steps):
        return (xp.zeros((*lead, batch, steps, units), dtype=x.dtype),) * cell.states
    of_x, of_h = _biases(cell, bias)
    flat = xp.reshape(x, (*lead, batch * steps, width)) @ kernel
    a = xp.reshape(flat, (*lead, batch, steps, flat.shape[-1])) + of_x
    offset = of_h if isinstance(of_h, float) else of_h[..., 0, :]
    none = xp.zeros((*lead, batch, units), dtype=x.dtype)
    states: Any = [none if start is None else start for start in starts]
    found: list[Any] = [None] * steps
    for t in range(steps)[:: -1 if reverse else 1]:
        u = states[0] @ recurrent_kernel
        after: Any = cell.step(xp, a[..., t, :], u if cell.biases == 1 else u + offset, *states)
        if mask is not None:
            seen = mask[..., t, None]
            after = [xp.where(seen, new, old) for new, old in zip(after, states, strict=True)]
        found[t] = states = after
    return tuple(xp.stack(part, axis=-2) for part in zip(*found, strict=True))


def _rule(cell: _Cell) -> Callable[..., Any]:
    """The gradient: the transposed linear recurrence, and sums over all steps."""

    def vjp(
        g: Any,
        y: Any,
        x: Any,
        kernel: Any,
        recurrent_kernel: Any,
        bias: Any,
        *rest: Any,
        **more: Any,
    ) -> tuple[Any, ...]:
        *starts, mask = rest
        reverse = more["reverse"]
        units = recurrent_kernel.shape[-2]
        before = []
        for states, start in zip(y if cell.states > 1 else (y,), starts, strict=True):
            if start is None:
                start = zeros((*x.shape[:-2], units), x.dtype, device=str(x.device))
            before.append(shifted(states, start[..., None, :], reverse, -2))
        of_x, of_h = _biases(cell, bias)
        a = reshape(matmul(rows(x), kernel), (*x.shape[:-1], kernel.shape[-1])) + of_x
        u = reshape(matmul(rows(before[0]), recurrent_kernel), a.shape) + of_h
        held, by_u, by_a = _masked(mask, cell.slopes(a, u, *before))
        adjoint = block_recurrence(
            stack(g if cell.states > 1 else [g], axis=-2),
            held,
            by_u,
            recurrent_kernel,
            reverse=reverse,
            transposed=True,
        )
        of_u = by_blocks(by_u, adjoint)
        of_a = of_u if by_a is by_u else by_blocks(by_a, adjoint)
        sums = [total(part, axis=(-3, -2)) for part in (of_a, of_u)[: cell.biases]]
        first = slice(-1, None) if reverse else slice(None, 1)
        kept = held[..., first, :, :, :] * adjoint[..., first, :, None, :]
        of_starts = list(split(total(kept, axis=(-4, -3)), cell.states, axis=-2))
        of_starts = [part[..., 0, :] for part in of_starts]
        onward = total(of_u[..., first, :], axis=-2)
        of_starts[0] = of_starts[0] + matmul(onward, transposed(recurrent_kernel))
        return (
            reshape(matmul(rows(of_a), transposed(kernel)), x.shape),
            matmul(transposed(rows(x)), rows(of_a)),
            matmul(transposed(rows(before[0])), rows(of_u)),
            None if bias is None else sums[0] if cell.biases == 1 else stack(sums, axis=-2),
            *(None if s is None else part for s, part in zip(starts, of_starts, strict=True)),
            None,
        )

    return in_float32(vjp)


def _masked(mask: Any, slopes: Any) -> tuple[Any, Any, Any]:
    """Slopes of steps that hold the state where ``mask`` is False."""
    held, by_u, by_a = slopes
    if mask is None:
        return held, by_u, by_a
    seen = mask[..., None, None, None]
    same = eye(held.shape[-2], dtype=held.dtype, device=str(held.device))[..., None]
    shown = where(seen, by_u, 0)
    return where(seen, held, same), shown, shown if by_a is by_u else where(seen, by_a, 0)


# The other facts ----------------------------------------------------------------------------------


def _spec(cell: _Cell) -> Callable[..., Any]:
    names = ("h", "c")[: cell.states]

    def infer(
        x: TensorSpec,
        kernel: TensorSpec,
        recurrent_kernel: TensorSpec,
        bias: Any = None,
        *rest: Any,
        reverse: bool = False,
    ) -> Any:
        for value, rank, name in ((x, 3, "x"), (recurrent_kernel, 2, "recurrent_kernel")):
            if value.ndim < rank:
                raise ShapeError(
                    f"{value.ndim} axes came", argument=name, expected=f"at least {rank}"
                )
        *lead, batch, steps, width = x.shape
        units = recurrent_kernel.shape[-2]
        wide = cell.gates * units
        wanted = {
            "kernel": (kernel, (width, wide)),
            "recurrent_kernel": (recurrent_kernel, (units, wide)),
            "bias": (bias, (2, wide) if cell.biases == 2 else (wide,)),
        }
        given = (*rest, *(None,) * (cell.states + 1 - len(rest)))
        wanted |= {name: (s, (batch, units)) for name, s in zip(names, given, strict=False)}
        wanted["mask"] = (given[-1], (batch, steps))
        for name, (value, shape) in wanted.items():
            if value is not None and value.shape != (*lead, *shape):
                raise ShapeError(
                    f"{name} has shape {value.shape}",
                    argument=name,
                    expected=f"shape {(*lead, *shape)}",
                )
        states = x.like((*lead, batch, steps, units))
        return (states,) * cell.states if cell.states > 1 else states

    return infer


def _batch(call: Any, args: Any, batched: Any, size: Any, /, **attributes: Any) -> Any:
    """Examples become further entries of the batch; more weights become a stack of networks."""
    _, kernel, *rest = args
    if any(batched[1:4]) or kernel.ndim > 2:
        return call(*batch_first(args, batched, size), **attributes)
    axes = (0, None, None, None, *(None if part is None else 0 for part in rest[2:]))
    several = len(rest) == 5
    return call_merged(call, args, batched, size, axes, (0,) * (1 + several), **attributes)


def _split(x: TensorSpec, kernel: TensorSpec, *rest: Any, **attributes: Any) -> list[Split]:
    at = x.ndim - 3
    own = [None if part is None else at for part in rest[2:]]
    found = [Split((at, None, None, None, *own), at)]
    for i in range(at):
        found.append(Split((i, i, i, *(None if part is None else i for part in rest[1:])), i))
    return found


def _cost(x: TensorSpec, kernel: TensorSpec, recurrent_kernel: TensorSpec, *rest: Any) -> Cost:
    examples = x.size // x.shape[-1] if x.shape[-1] else 0
    units, wide = recurrent_kernel.shape[-2:]
    weights = (x.shape[-1] + units) * wide
    size = x.size + weights + examples * units
    return Cost(2 * examples * weights + 20 * examples * wide, size * x.dtype.itemsize)


def _samples(cell: _Cell) -> Callable[..., list[Sample]]:
    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        def of(
            *lead: int, steps: int, width: int, units: int, given: str = "", **more: Any
        ) -> Sample:
            wide, own = cell.gates * units, lead[:-1]
            bias = (*own, 2, wide) if cell.biases == 2 else (*own, wide)
            shapes = [(*lead, steps, width), (*own, width, wide), (*own, units, wide)]
            args = [make(rng, dtype, shape, -1, 1) for shape in shapes]
            args.append(make(rng, dtype, bias, -1, 1) if "b" in given else None)
            for _ in range(cell.states):
                args.append(make(rng, dtype, (*lead, units), -1, 1) if "s" in given else None)
            args.append(rng.random((*lead, steps)) < 0.6 if "m" in given else None)
            return Sample(tuple(args), more)

        return [
            of(2, steps=3, width=2, units=2, given="b"),
            of(1, steps=1, width=1, units=1),
            of(2, steps=3, width=3, units=1, given="bs", reverse=True),
            of(2, steps=4, width=1, units=2, given="bsm"),
            of(3, steps=3, width=2, units=1, given="m", reverse=True),
            of(2, 2, steps=2, width=2, units=2, given="bsm"),
            of(5, steps=3, width=2, units=1, given="bm"),
            of(1, steps=2, width=4, units=1, given="s"),
            of(1, steps=5, width=1, units=1, given="m"),
            of(1, 2, steps=2, width=1, units=2, given="bs", reverse=True),
            of(2, steps=0, width=2, units=2, given="s"),
            of(0, steps=2, width=2, units=2, given="b"),
        ]

    return samples


def _errors(cell: _Cell) -> Callable[..., list[ErrorSample]]:
    def errors(rng: np.random.Generator) -> list[ErrorSample]:
        x, kernel = np.ones((2, 3, 4)), np.ones((4, 5 * cell.gates))
        recurrent = np.ones((5, 5 * cell.gates))
        none = (None,) * (cell.states - 1)
        return [
            ErrorSample((x[0], kernel, recurrent), {}, ShapeError, "2 axes came"),
            ErrorSample((x, kernel[0], recurrent), {}, ShapeError, "kernel has shape"),
            ErrorSample((x, kernel, recurrent[:3]), {}, ShapeError, "expected: shape (4,"),
            ErrorSample((x, kernel, recurrent, x[0]), {}, ShapeError, "bias has shape (3, 4)"),
            ErrorSample((x, kernel, recurrent, None, x), {}, ShapeError, "shape (2, 5)"),
            ErrorSample(
                (x, kernel, recurrent, None, None, *none, np.ones((2, 4), bool)),
                {},
                ShapeError,
                "mask has shape (2, 4)",
            ),
        ]

    return errors


def _reference(cell: _Cell, one: Callable[..., Any]) -> Callable[..., Any]:
    """The definition, one example, step and unit at a time, by ``one(a, u, j, *states)``.

    ``a`` and ``u`` hold numbers for each gate and unit.
    """

    def reference(x: Any, kernel: Any, recurrent: Any, bias: Any, *rest: Any, reverse: bool) -> Any:
        *starts, mask = rest
        *lead, steps, _ = x.shape
        units = recurrent.shape[-2]
        out = np.zeros((cell.states, *lead, steps, units))
        for at in np.ndindex(*lead):
            w, r = (np.asarray(k[at[:-1]], float) for k in (kernel, recurrent))
            b = np.zeros(w.shape[-1]) if bias is None else np.asarray(bias[at[:-1]], float)
            b = b if cell.biases == 2 else np.stack([b, b * 0])
            states = [np.zeros(units) if s is None else np.asarray(s[at], float) for s in starts]
            for t in range(steps)[:: -1 if reverse else 1]:
                a = (np.asarray(x[at][t], float) @ w + b[0]).reshape(cell.gates, units).tolist()
                u = (states[0] @ r + b[1]).reshape(cell.gates, units).tolist()
                if mask is None or mask[at][t]:
                    after = [one(a, u, j, *(s[j] for s in states)) for j in range(units)]
                    states = list(np.array(after).T)
                for k, state in enumerate(states):
                    out[k][at][t] = state
        return tuple(out) if cell.states > 1 else out[0]

    return reference


def _logistic(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def _simple_one(a: Any, u: Any, j: int, h: float) -> tuple[float, ...]:
    return (float(np.tanh(a[0][j] + u[0][j])),)


def _lstm_one(a: Any, u: Any, j: int, h: float, c: float) -> tuple[float, ...]:
    i, f, n, o = (a[k][j] + u[k][j] for k in range(4))
    c = _logistic(f) * c + _logistic(i) * float(np.tanh(n))
    return _logistic(o) * float(np.tanh(c)), c


def _gru_one(a: Any, u: Any, j: int, h: float) -> tuple[float, ...]:
    z, r = _logistic(a[0][j] + u[0][j]), _logistic(a[1][j] + u[1][j])
    return (z * h + (1 - z) * float(np.tanh(a[2][j] + r * u[2][j])),)


def _recurrent(cell: _Cell, one: Callable[..., Any], onnx: str) -> Callable[..., Any]:
    """The decorator of an op over a cell."""
    floats = 4 + cell.states
    saved = " ".join(("h", "c")[: cell.states])
    return define(
        "contraction",
        dtypes=(*(FLOATS,) * floats, BOOL),
        together=tuple(range(floats)),
        infer=_spec(cell),
        outputs=cell.states,
        vjp=_rule(cell),
        saves=f"x kernel recurrent_kernel bias {saved} mask y",
        batch=Batch(_batch),
        split=_split,
        cost=lambda *specs, reverse: _cost(*specs),
        onnx=Missing(f"exported as {onnx}"),
        samples=_samples(cell),
        errors=_errors(cell),
        reference=_reference(cell, one),
        ulp=256,
    )


# The ops ------------------------------------------------------------------------------------------


@_recurrent(_SIMPLE, _simple_one, "RNN")
def simple_rnn(
    xp: Namespace,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Array = None,
    h: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Array:
    """The outputs of a plain recurrent network: h = tanh(x @ kernel + bias + h @ recurrent_kernel).

    ``x`` is a real tensor of shape (..., batch, steps, features), ``kernel`` has shape (...,
    features, units), ``recurrent_kernel`` (..., units, units) and ``bias`` (..., units). ``h`` is
    the state before the first step, shape (..., batch, units), by default zeros. ``mask``, bools
    of shape (..., batch, steps), holds the state where it is False. With ``reverse`` the last step
    comes first. The result has shape (..., batch, steps, units), each state with its step. Raises
    ShapeError where shapes do not fit.

    >>> ef.simple_rnn(ef.zeros((1, 2, 1)), ef.ones((1, 1)), ef.ones((1, 1)), ef.ones(1))
    Tensor([[[0.7616],
             [0.9427]]], shape=(1, 2, 1), float32, cpu:0)
    """
    return _run(xp, _SIMPLE, x, kernel, recurrent_kernel, bias, (h,), mask, reverse)[0]


@_recurrent(_LSTM, _lstm_one, "LSTM")
def lstm(
    xp: Namespace,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Array = None,
    h: Array = None,
    c: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Any:
    """The outputs h and the cell states c of a long short-term memory, after each step.

    ``x`` is a real tensor of shape (..., batch, steps, features), ``kernel`` has shape (...,
    features, 4 * units), ``recurrent_kernel`` (..., units, 4 * units) and ``bias`` (..., 4 *
    units): the input gate, the forget gate, the new content and the output gate in this order.
    ``h`` and ``c`` are the states before the first step, shape (..., batch, units), by default
    zeros. ``mask``, bools of shape (..., batch, steps), holds the states where it is False. With
    ``reverse`` the last step comes first. Both results have shape (..., batch, steps, units), each
    state with its step. Raises ShapeError where shapes do not fit. Source: Hochreiter and
    Schmidhuber, "Long short-term memory", 1997.

    >>> h, c = ef.lstm(ef.ones((1, 2, 1)), ef.ones((1, 4)), ef.zeros((1, 4)))
    >>> h
    Tensor([[[0.3696],
             [0.5453]]], shape=(1, 2, 1), float32, cpu:0)
    """
    return _run(xp, _LSTM, x, kernel, recurrent_kernel, bias, (h, c), mask, reverse)


@_recurrent(_GRU, _gru_one, "GRU with linear_before_reset=1")
def gru(
    xp: Namespace,
    x: Array,
    kernel: Array,
    recurrent_kernel: Array,
    bias: Array = None,
    h: Array = None,
    mask: Array = None,
    /,
    *,
    reverse: bool = False,
) -> Array:
    """The outputs of gated recurrent units whose reset gate acts after the product with h.

    ``x`` is a real tensor of shape (..., batch, steps, features), ``kernel`` has shape (...,
    features, 3 * units), ``recurrent_kernel`` (..., units, 3 * units) and ``bias`` (..., 2, 3 *
    units), one row beside each product: the update gate, the reset gate and the new content in
    this order. ``h`` is the state before the first step, shape (..., batch, units), by default
    zeros. ``mask``, bools of shape (..., batch, steps), holds the state where it is False. With
    ``reverse`` the last step comes first. The result has shape (..., batch, steps, units), each
    state with its step. Raises ShapeError where shapes do not fit. Source: Cho and others,
    "Learning phrase representations", arXiv:1406.1078, in the form of its first version.

    >>> ef.gru(ef.ones((1, 2, 1)), ef.ones((1, 3)), ef.zeros((1, 3)))
    Tensor([[[0.2048],
             [0.3546]]], shape=(1, 2, 1), float32, cpu:0)
    """
    return _run(xp, _GRU, x, kernel, recurrent_kernel, bias, (h,), mask, reverse)[0]
