"""Steps of optimizers as single ops: one call reads a parameter and gives its successor.

Written as a chain of ops, Adam's step takes a dozen calls and as many passes over memory. Here its
formula is written down once, in scalar instructions. Regions and machine code are made of it, and
NumPy's steps, which take the arrays in pieces that stay in the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.pointwise import UPDATE_TILE_ELEMENTS, UpdateKernel, whole
from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.op import Cost, ErrorSample, Missing, Sample, Split
from eagerflow.ops.family import Batch, define
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["adam_update", "momentum_update"]

_NO_GRADIENT = Missing(
    "a step of an optimizer has no gradient rule; write it with ops to differentiate through it"
)


def _check(arrays: tuple[Any, ...], names: tuple[str, ...]) -> None:
    """The arrays have one shape, and the numbers after them none of their own."""
    shape = arrays[0].shape
    for array, name in zip(arrays[1:], names[1:], strict=False):
        if array.shape != shape:
            raise ShapeError(
                f"the shape {tuple(array.shape)} is not that of the parameter",
                argument=name,
                expected=f"shape {tuple(shape)}",
            )


def _check_rates(beta_1: float = 0.0, beta_2: float = 0.0, **others: Any) -> None:
    """The running means of Adam forget; ArgumentError for rates that mean nothing."""
    for name, value in (("beta_1", beta_1), ("beta_2", beta_2)):
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ArgumentError(
                f"{value} is no rate", argument=name, expected="a number from 0 to 1"
            )


class _Formula:
    """The formula of a step, and what computes it.

    ``body(s, *arrays, length, left, decays=..., **attributes)`` gives the new values in scalar
    instructions, that of the parameter first. ``length(s, rate, ...)`` is the length of the step
    that comes of the numbers of a call, the learning rate first, and ``of_numbers(rate, ...)`` the
    same in Python's numbers; ``left`` is what is left of a parameter that ``decays``.
    """

    def __init__(
        self,
        body: generated.Body,
        arrays: str,
        results: int,
        length: generated.Body,
        of_numbers: Callable[..., float],
    ) -> None:
        self.body = body
        self.arrays = tuple(arrays.split())
        self.results = results
        self._length = length
        self._length_of_numbers = of_numbers
        self._kernel = UpdateKernel(body)

    def scalar(self, s: Any, *values: Any, weight_decay: float, **attributes: Any) -> Any:
        """The step in scalar instructions."""
        count = len(self.arrays)
        length = self._length(s, *values[count:], **attributes)
        left = s.subtract(1, s.multiply(values[count], weight_decay)) if weight_decay else None
        decays = weight_decay != 0
        return self.body(s, *values[:count], length, left, decays=decays, **attributes)

    def on_arrays(self, xp: Any, *arrays: Any, **attributes: Any) -> Any:
        """The step on arrays of any library."""
        _check(arrays[: len(self.arrays)], self.arrays)
        _check_rates(**attributes)
        return whole(self.scalar)(xp, *arrays, **attributes)

    def on_numpy(self, xp: Any, *arrays: Any, weight_decay: float, **attributes: Any) -> Any:
        """The step on NumPy arrays."""
        count = len(self.arrays)
        arrays, given = arrays[:count], arrays[count:]
        if given[0].ndim or given[-1].ndim:
            attributes["weight_decay"] = weight_decay
            return self.on_arrays(xp, *arrays, *given, **attributes)
        _check(arrays, self.arrays)
        _check_rates(**attributes)
        rate, *more = [number.item() for number in given]
        numbers = self._length_of_numbers(rate, *more, **attributes), 1 - rate * weight_decay
        return self._kernel(arrays, numbers, decays=weight_decay != 0, **attributes)


def _update(formula: _Formula, numbers: int, **facts: Any) -> Callable[[Any], Any]:
    """An op of arrays of one shape, followed by ``numbers`` that broadcast to it."""
    arrays, outputs = formula.arrays, formula.results

    def infer(*specs: TensorSpec, **attributes: Any) -> tuple[TensorSpec, ...]:
        _check(specs[: len(arrays)], arrays)
        _check_rates(**attributes)
        return tuple(specs[0].like() for _ in range(outputs))

    def batch(call: Any, args: Any, batched: Any, size: int, **attributes: Any) -> Any:
        rank = max(x.ndim - own for x, own in zip(args, batched, strict=True))
        lined = []
        for i, (x, own) in enumerate(zip(args, batched, strict=True)):
            if i < len(arrays) and not own:
                x = broadcast_to(x, (size, *x.shape))
            elif own:
                x = x.reshape((size, *(1,) * (rank - x.ndim + 1), *x.shape[1:]))
            lined.append(x)
        return call(*lined, **attributes)

    def split(x: TensorSpec, *rest: Any, **attributes: Any) -> list[Split]:
        whole = (None,) * numbers
        return [Split((*(i for _ in arrays), *whole), i) for i in range(x.ndim)]

    def cost(x: TensorSpec, *rest: Any, **attributes: Any) -> Cost:
        size = product(x.shape)
        return Cost(size * 4 * outputs, size * x.dtype.itemsize * (len(arrays) + outputs))

    own: dict[str, Any] = {
        "dtypes": FLOATS,
        "infer": infer,
        "vjp": _NO_GRADIENT,
        "batch": Batch(batch),
        "split": split,
        "cost": cost,
        "onnx": Missing("training is not exported"),
        "errors": lambda rng: _errors(rng, len(arrays), numbers),
        "outputs": outputs,
        "trusted": True,  # the kernels check the shapes
        "scalar": formula.scalar,
        "overrides": {"numpy": formula.on_numpy},
    } | facts
    return define("update", **own)


def _errors(rng: np.random.Generator, arrays: int, numbers: int) -> list[ErrorSample]:
    x = rng.standard_normal((2, 3))
    rest = (x,) * (arrays - 1) + (0.1,) * numbers
    return [
        ErrorSample((x, x[0], *rest[1:]), {}, ShapeError, "not that of the parameter"),
        ErrorSample((x, x.T, *rest[1:]), {}, ShapeError, "not that of the parameter"),
        ErrorSample((x * 1j, *rest), {}, DTypeError, "is not taken"),
    ]


def _samples(arrays: int, numbers: Any, options: list[dict[str, Any]]) -> Any:
    shapes = ((), (1,), (5,), (0,), (2, 3), (3, 1, 4), (UPDATE_TILE_ELEMENTS + 3,))

    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        scalars = tuple(np.asarray(n, dtype) for n in numbers)
        found = []
        for i, shape in enumerate(shapes):
            values = [make(rng, dtype, shape, 0.5, 2) for _ in range(arrays)]
            found.append(Sample((*values, *scalars), options[i % len(options)]))
        base = [make(rng, dtype, (6, 4), 0.5, 2) for _ in range(arrays)]
        for cut in (lambda x: x.T, lambda x: x[::2, ::-1], lambda x: np.broadcast_to(x[0], (3, 4))):
            found += [Sample((*map(cut, base), *scalars), more) for more in options]
        return found

    return samples


# Gradient descent with momentum ------------------------------------------------------------------


def _momentum(
    s: Any,
    p: Any,
    g: Any,
    v: Any,
    rate: Any,
    left: Any,
    *,
    momentum: float,
    nesterov: bool,
    decays: bool,
) -> tuple[Any, Any]:
    v = s.subtract(s.multiply(v, momentum), s.multiply(g, rate))
    step = s.subtract(s.multiply(v, momentum), s.multiply(g, rate)) if nesterov else v
    return s.add(s.multiply(p, left) if decays else p, step), v


_MOMENTUM = _Formula(
    _momentum,
    "parameter gradient velocity",
    2,
    length=lambda s, rate, **attributes: rate,
    of_numbers=lambda rate, **attributes: rate,
)


def _momentum_reference(
    p: Any, g: Any, v: Any, rate: Any, momentum: float, nesterov: bool, weight_decay: float
) -> Any:
    def one(p: float, g: float, v: float) -> tuple[float, float]:
        new = momentum * v - rate.item() * g
        step = momentum * new - rate.item() * g if nesterov else new
        return p * (1 - rate.item() * weight_decay) + step, new

    return _row_by_row(one, 2, p, g, v)


def _row_by_row(one: Callable[..., Any], outputs: int, *arrays: Any) -> Any:
    rows = [one(*row) for row in zip(*(a.ravel().tolist() for a in arrays), strict=True)]
    columns = zip(*rows, strict=True) if rows else [()] * outputs
    return tuple(np.array(column, arrays[0].dtype).reshape(arrays[0].shape) for column in columns)


@_update(
    _MOMENTUM,
    1,
    samples=_samples(
        3,
        (0.1,),
        [{}, {"momentum": 0.5, "nesterov": True}, {"momentum": 0.0, "weight_decay": 0.01}],
    ),
    reference=_momentum_reference,
)
def momentum_update(
    xp: Namespace,
    parameter: Array,
    gradient: Array,
    velocity: Array,
    learning_rate: Array,
    /,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Array:
    """One step of gradient descent with momentum, as ``(parameter, velocity)``.

    ``parameter``, ``gradient`` and ``velocity`` are float tensors of one shape,
    ``learning_rate`` a number. The velocity becomes ``momentum * velocity - learning_rate *
    gradient`` and is added to the parameter, which ``weight_decay`` has shrunk by its product
    with the learning rate; ``nesterov`` looks one step ahead. Raises ShapeError for shapes that
    differ. Source: Sutskever and others, 2013.

    >>> ef.momentum_update(ef.tensor([1.0]), [2.0], [0.0], 0.1)
    (Tensor([0.8], float32, cpu:0), Tensor([-0.2], float32, cpu:0))
    """
    return _MOMENTUM.on_arrays(
        xp,
        parameter,
        gradient,
        velocity,
        learning_rate,
        momentum=momentum,
        nesterov=nesterov,
        weight_decay=weight_decay,
    )


# Adam --------------------------------------------------------------------------------------------


def _adam(
    s: Any,
    p: Any,
    g: Any,
    mean: Any,
    square: Any,
    length: Any,
    left: Any,
    *,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    decays: bool,
) -> tuple[Any, Any, Any]:
    mean = s.add(mean, s.multiply(s.subtract(g, mean), 1 - beta_1))
    square = s.add(square, s.multiply(s.subtract(s.multiply(g, g), square), 1 - beta_2))
    step = s.multiply(s.divide(mean, s.add(s.sqrt(square), epsilon)), length)
    return s.subtract(s.multiply(p, left) if decays else p, step), mean, square


def _corrected(s: Any, rate: Any, t: Any, *, beta_1: float, beta_2: float, **more: Any) -> Any:
    # 1 - beta^t without the rounding of powers close to 1, which float32 needs and Python's
    # numbers do not; at step 0 it gives 0 / 0.
    first, second = (
        s.expm1(s.multiply(t, math.log(beta) if beta else -math.inf)) for beta in (beta_1, beta_2)
    )
    return s.divide(s.multiply(rate, s.sqrt(s.negative(second))), s.negative(first))


def _corrected_number(rate: float, t: float, *, beta_1: float, beta_2: float, **more: Any) -> float:
    return rate * math.sqrt(1 - beta_2**t) / (1 - beta_1**t) if t > 0 else math.nan


_ADAM = _Formula(
    _adam, "parameter gradient mean square", 3, length=_corrected, of_numbers=_corrected_number
)


def _adam_reference(
    p: Any,
    g: Any,
    m: Any,
    s: Any,
    rate: Any,
    step: Any,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    weight_decay: float,
) -> Any:
    lr, t = rate.item(), step.item()

    def one(p: float, g: float, m: float, s: float) -> tuple[float, float, float]:
        m = beta_1 * m + (1 - beta_1) * g
        s = beta_2 * s + (1 - beta_2) * g * g
        # As in the paper, where epsilon stands beside the uncorrected root.
        scale = lr * math.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        return p - lr * weight_decay * p - scale * m / (math.sqrt(s) + epsilon), m, s

    return _row_by_row(one, 3, p, g, m, s)


@_update(
    _ADAM,
    2,
    samples=_samples(
        4,
        (0.1, 3),
        [{}, {"beta_1": 0.5, "epsilon": 1e-3}, {"weight_decay": 0.01, "beta_2": 0.9}],
    ),
    reference=_adam_reference,
    ulp=16,
)
def adam_update(
    xp: Namespace,
    parameter: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    learning_rate: Array,
    step: Array,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Array:
    """One step of Adam, as ``(parameter, mean, square)``.

    ``parameter``, ``gradient``, ``mean`` and ``square`` (the running means of the gradient and
    of its square) are float tensors of one shape, ``learning_rate`` a number, ``step`` the
    number of this step, from 1 on. ``weight_decay`` shrinks the parameter by its product with
    the learning rate (AdamW). Raises ShapeError for shapes that differ. Source: Kingma and Ba,
    "Adam", 2015, with the bias corrected in the step size; Loshchilov and Hutter, 2019.

    >>> p, m, s = ef.adam_update(ef.tensor([1.0]), [2.0], [0.0], [0.0], 0.1, 1)
    >>> p, m
    (Tensor([0.9], float32, cpu:0), Tensor([0.2], float32, cpu:0))
    """
    return _ADAM.on_arrays(
        xp,
        parameter,
        gradient,
        mean,
        square,
        learning_rate,
        step,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        weight_decay=weight_decay,
    )


# Adam on many small parameters -------------------------------------------------------------------


def _each(args: Any) -> list[tuple[Any, ...]]:
    """What ``adam_update`` takes for each parameter; ShapeError where an array is missing."""
    names = _ADAM.arrays
    numbers, arrays = args[:2], args[2:]
    if not arrays or len(arrays) % len(names):
        raise ShapeError(
            f"{len(arrays)} arrays came",
            argument="arrays",
            expected=f"{', '.join(names)} of each parameter",
        )
    return [(*arrays[i : i + 4], *numbers) for i in range(0, len(arrays), 4)]


def _joined_specs(*specs: Any, **options: Any) -> tuple[TensorSpec, ...]:
    return tuple(y for group in _each(specs) for y in adam_update.op.infer(*group, **options))


def _joined_cost(*specs: Any, **options: Any) -> Cost:
    flops, moved = zip(*(adam_update.op.cost(*group) for group in _each(specs)), strict=True)
    return Cost(sum(flops), sum(moved))


def _joined_numpy(
    xp: Namespace, learning_rate: Array, step: Array, /, *arrays: Any, **options: Any
) -> Any:
    groups = _each((learning_rate, step, *arrays))
    for group in groups:
        _check(group[:4], _ADAM.arrays)
    if learning_rate.ndim or step.ndim:
        return _by_group(xp, groups, **options)
    *columns, _, _ = zip(*groups, strict=True)
    joined = (np.concatenate(column, axis=None) for column in columns)
    new = _ADAM.on_numpy(xp, *joined, learning_rate, step, **options)
    found, start = [], 0
    for p, *_ in groups:
        end = start + p.size
        found += [column[start:end].reshape(p.shape) for column in new]
        start = end
    return tuple(found)


def _by_group(xp: Namespace, groups: list[tuple[Any, ...]], **options: Any) -> tuple[Any, ...]:
    return tuple(y for group in groups for y in _ADAM.on_arrays(xp, *group, **options))


def _joined_batch(args: Any, batched: Any, size: int, **attributes: Any) -> Any:
    found: list[Any] = []
    for values, own in zip(_each(args), _each(batched), strict=True):
        found += adam_update.op.batch(values, own, size, **attributes)
    return tuple(found)


def _joined_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    numbers = (np.asarray(0.1, dtype), np.asarray(3, dtype))
    base = [make(rng, dtype, (6, 4), 0.5, 2) for _ in _ADAM.arrays]
    found = []
    for shapes, more in (
        (((3,),), {}),
        (((2, 3), (), (0,), (4, 1)), {"beta_1": 0.5, "epsilon": 1e-3}),
        (((5,), (5,)), {"weight_decay": 0.01, "beta_2": 0.9}),
    ):
        arrays = [make(rng, dtype, shape, 0.5, 2) for shape in shapes for _ in _ADAM.arrays]
        found.append(Sample((*numbers, *arrays), more))
    found.append(Sample((*numbers, *(x.T for x in base), *(x[::2, ::-1] for x in base)), {}))
    return found


def _joined_errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((0.1, 1.0, x, x, x), {}, ShapeError, "3 arrays came"),
        ErrorSample((0.1, 1.0, x, x, x, x[0]), {}, ShapeError, "not that of the parameter"),
        ErrorSample((0.1, 1.0, x * 1j, x, x, x), {}, DTypeError, "is not taken"),
    ]


@define(
    "update",
    dtypes=FLOATS,
    infer=_joined_specs,
    outputs=0,  # three for each parameter
    trusted=True,  # the kernels check the shapes
    overrides={"numpy": _joined_numpy},
    vjp=_NO_GRADIENT,
    batch=_joined_batch,
    split=Missing("the arrays have shapes of their own"),
    cost=_joined_cost,
    onnx=Missing("training is not exported"),
    scalar=Missing("several results"),
    samples=_joined_samples,
    errors=_joined_errors,
    reference=lambda rate, step, *arrays, **options: tuple(
        x for group in _each((rate, step, *arrays)) for x in _adam_reference(*group, **options)
    ),
    ulp=16,
)
def adam_updates(
    xp: Namespace,
    learning_rate: Array,
    step: Array,
    /,
    *arrays: Array,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Array:
    """One step of Adam for several parameters at once: as many calls of ``adam_update``.

    ``arrays`` are parameter, gradient, mean and square of the first one, then those of the
    second one, and so on; the results are parameter, mean and square of each in this order.
    Small ones are joined, since calls cost more than their arithmetic. Raises ShapeError where
    an array is missing, or shapes differ.
    """
    return _by_group(
        xp,
        _each((learning_rate, step, *arrays)),
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        weight_decay=weight_decay,
    )
