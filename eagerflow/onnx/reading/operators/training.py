"""Updates of optimizers (``ai.onnx.preview.training``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow import ops
from eagerflow.onnx.reading.calls import TRAINING, Call, operator


def _each(call: Call, state: tuple[Any, ...], kinds: int, update: Callable[..., Any]) -> Any:
    """``update`` applied to each tensor; operands and results are grouped by kind.

    ``kinds`` is the number of operands of each tensor.
    """
    if not state or len(state) % kinds:
        call.refuse(f"{len(state)} tensors are not {kinds} for each that is updated")
    count = len(state) // kinds
    made = [update(*state[i::count]) for i in range(count)]
    return tuple(new for kind in zip(*made, strict=True) for new in kind)


@operator("Adagrad", domain=TRAINING)
def adagrad(
    call: Call,
    rate: Any,
    step: Any,
    *state: Any,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Any:
    """New tensors and sums of squared gradients."""
    rate = rate / (1 + ops.astype(step, rate.dtype) * decay_factor)

    def update(x: Any, gradient: Any, squares: Any) -> Any:
        gradient = norm_coefficient * x + gradient
        squares = squares + ops.square(gradient)
        return x - rate * gradient / (ops.sqrt(squares) + epsilon), squares

    return _each(call, state, 3, update)


@operator("Adam", domain=TRAINING)
def adam(
    call: Call,
    rate: Any,
    step: Any,
    *state: Any,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    """Adam: new tensors, and means of gradients and of their squares; step 0 has no correction."""
    t = ops.astype(ops.maximum(step, 1), rate.dtype)
    bias = ops.sqrt(1 - ops.power(beta, t)) / (1 - ops.power(alpha, t))
    rate = ops.where(step > 0, rate * bias, rate)

    def update(x: Any, gradient: Any, mean: Any, square: Any) -> Any:
        gradient = norm_coefficient * x + gradient
        mean = alpha * mean + (1 - alpha) * gradient
        square = beta * square + (1 - beta) * ops.square(gradient)
        new = x - rate * (mean / (ops.sqrt(square) + epsilon))
        return (1 - norm_coefficient_post) * new, mean, square

    return _each(call, state, 4, update)


@operator("Momentum", domain=TRAINING)
def momentum(
    call: Call,
    rate: Any,
    step: Any,
    *state: Any,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    """New tensors and momenta, plain or Nesterov's; step 0 takes the whole gradient."""
    if mode not in ("standard", "nesterov"):
        call.refuse(f"there is no mode {mode!r}")
    share = ops.where(step > 0, ops.full((), beta, dtype=rate.dtype), 1)

    def update(x: Any, gradient: Any, velocity: Any) -> Any:
        gradient = norm_coefficient * x + gradient
        velocity = alpha * velocity + share * gradient
        way = velocity if mode == "standard" else gradient + alpha * velocity
        return x - rate * way, velocity

    return _each(call, state, 3, update)


@operator("Gradient", domain=TRAINING)
def gradient(call: Call, *inputs: Any, xs: Any, y: str, zs: Any = ()) -> Any:
    """Refused: use ``ef.grad`` of the imported graph instead."""
    call.refuse("gradients within the model; take those of the imported graph with ef.grad")
