"""Steps of optimizers as single ops: one call reads a parameter and gives its successor.

Written as a chain of ops, Adam's step takes a dozen calls and as many passes over memory. Here
the arrays are worked through in pieces that stay in the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.dims import product
from eagerflow.dtypes import FLOATS
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.op import Cost, ErrorSample, Missing, Sample, Split
from eagerflow.ops.family import define, refused_objects
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.runtime import buffers, threads
from eagerflow.spec import TensorSpec

__all__ = ["adam_update", "momentum_update"]

_PIECE = 1 << 14  # elements: seven float32 arrays of this length fit into a cache of 512 kB
_PARALLEL = 1 << 17  # elements from which waking another thread pays
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


def _update(names: str, numbers: int, outputs: int, **facts: Any) -> Callable[[Any], Any]:
    """An op of arrays of one shape, followed by ``numbers`` that broadcast to it."""
    arrays = tuple(names.split())

    def infer(*specs: TensorSpec, **attributes: Any) -> tuple[TensorSpec, ...]:
        _check(specs[: len(arrays)], arrays)
        _check_rates(**attributes)
        return tuple(specs[0].like() for _ in range(outputs))

    def batch(args: Any, batched: Any, size: int, **attributes: Any) -> Any:
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

    call: Any = None

    def decorate(kernel: Any) -> Any:
        nonlocal call
        own = {
            "dtypes": FLOATS,
            "infer": infer,
            "vjp": _NO_GRADIENT,
            "jvp": _NO_GRADIENT,
            "batch": batch,
            "split": split,
            "cost": cost,
            "onnx": Missing("training is not exported"),
            "errors": lambda rng: _errors(rng, len(arrays), numbers),
            "outputs": outputs,
            "trusted": True,  # the kernels check the shapes
        } | facts
        call = define("control", own)(kernel)
        return call

    return decorate


def _errors(rng: Any, arrays: int, numbers: int) -> list[ErrorSample]:
    x = rng.standard_normal((2, 3))
    rest = (x,) * (arrays - 1) + (0.1,) * numbers
    return [
        *(e._replace(args=e.args + rest) for e in refused_objects(rng)),
        ErrorSample((x, x[0], *rest[1:]), {}, ShapeError, "not that of the parameter"),
        ErrorSample((x, x.T, *rest[1:]), {}, ShapeError, "not that of the parameter"),
        ErrorSample((x * 1j, *rest), {}, DTypeError, "is not taken"),
    ]


def _samples(arrays: int, numbers: Any, options: list[dict[str, Any]]) -> Any:
    shapes = ((), (1,), (5,), (0,), (2, 3), (3, 1, 4), (_PIECE + 3,))

    def samples(rng: Any, dtype: Any) -> list[Sample]:
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


def _in_pieces(work: Callable[..., None], *arrays: Any) -> None:
    """``work`` on the same stretch of each array, one stretch after the other."""
    size = arrays[0].size
    if size <= _PIECE:
        work(*arrays)
        return

    def one(i: int) -> None:
        work(*(array[i * _PIECE : (i + 1) * _PIECE] for array in arrays))

    count = -(-size // _PIECE)
    if size >= _PARALLEL:
        threads.run(one, count)
    else:
        for i in range(count):
            one(i)


def _single(*numbers: Any) -> bool:
    return all(n.ndim == 0 for n in numbers)


def _generated(
    body: generated.Body, arrays: tuple[Any, ...], numbers: tuple[float, ...], **options: Any
) -> Any:
    """The outputs of ``body`` on arrays of one shape, and on numbers that change from call to call.

    ``options`` are those that become part of the code.
    """
    kind, shape = arrays[0].dtype, arrays[0].shape
    name = kind.name
    operands = ((name, "n"),) * len(arrays) + ((name, ""),) * len(numbers)
    region = generated.region(body, "n", operands, tuple(options.items()))
    given = [array.ravel() for array in arrays] + [np.array(n, kind) for n in numbers]
    return tuple(y.reshape(shape) for y in generated.run(region, *given))


# Gradient descent with momentum ------------------------------------------------------------------


def _momentum_numpy(
    xp: Any,
    parameter: Any,
    gradient: Any,
    velocity: Any,
    learning_rate: Any,
    /,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Any:
    if not _single(learning_rate):
        options = (momentum, nesterov, weight_decay)
        return _momentum(xp, parameter, gradient, velocity, learning_rate, *options)
    _check((parameter, gradient, velocity), ("parameter", "gradient", "velocity"))
    rate = learning_rate.item()
    shape, size = parameter.shape, parameter.size
    if generated.takes(parameter):
        return _generated(
            _momentum_body,
            (parameter, gradient, velocity),
            (rate, 1 - rate * weight_decay),
            momentum=momentum,
            nesterov=nesterov,
            decays=weight_decay != 0,
        )
    new_p, new_v = (buffers.empty(size, parameter.dtype) for _ in range(2))
    old = (parameter.ravel(), gradient.ravel(), velocity.ravel())

    def work(p: Any, g: Any, v: Any, new: Any, moved: Any) -> None:
        np.multiply(g, -rate, out=new)
        np.multiply(v, momentum, out=moved)
        moved += new
        if nesterov:
            new += np.multiply(moved, momentum)
            new += np.multiply(p, 1 - rate * weight_decay) if weight_decay else p
        elif weight_decay:
            np.multiply(p, 1 - rate * weight_decay, out=new)
            new += moved
        else:
            np.add(p, moved, out=new)

    _in_pieces(work, *old, new_p, new_v)
    return new_p.reshape(shape), new_v.reshape(shape)


def _momentum_body(
    s: Any,
    p: Any,
    g: Any,
    v: Any,
    rate: Any,
    left: Any,
    momentum: float,
    nesterov: bool,
    decays: bool,
) -> Any:
    step = s.multiply(g, rate)
    new_v = s.subtract(s.multiply(v, momentum), step)
    if decays:
        p = s.multiply(p, left)
    return s.add(p, s.subtract(s.multiply(new_v, momentum), step) if nesterov else new_v), new_v


def _momentum(
    xp: Any, p: Any, g: Any, v: Any, rate: Any, momentum: float, nesterov: bool, weight_decay: float
) -> Any:
    step = g * rate
    new_v = v * momentum - step
    new_p = p - p * rate * weight_decay
    return new_p + (new_v * momentum - step if nesterov else new_v), new_v


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


def _momentum_rule(
    s: Any,
    p: Any,
    g: Any,
    v: Any,
    rate: Any,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
) -> Any:
    left = s.subtract(1, s.multiply(rate, weight_decay)) if weight_decay else None
    return _momentum_body(s, p, g, v, rate, left, momentum, nesterov, weight_decay != 0)


@_update(
    "parameter gradient velocity",
    1,
    2,
    scalar=_momentum_rule,
    overrides={"numpy": _momentum_numpy},
    samples=_samples(
        3,
        (0.1,),
        [{}, {"momentum": 0.5, "nesterov": True}, {"momentum": 0.0, "weight_decay": 0.01}],
    ),
    reference=_momentum_reference,
)
def momentum_update(
    xp: Any,
    parameter: Any,
    gradient: Any,
    velocity: Any,
    learning_rate: Any,
    /,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Any:
    """One step of gradient descent with momentum, as ``(parameter, velocity)``.

    ``parameter``, ``gradient`` and ``velocity`` are float tensors of one shape,
    ``learning_rate`` a number. The velocity becomes ``momentum * velocity - learning_rate *
    gradient`` and is added to the parameter, which ``weight_decay`` has shrunk by its product
    with the learning rate; ``nesterov`` looks one step ahead. Raises ShapeError for shapes that
    differ. Source: Sutskever and others, 2013.

    >>> ef.momentum_update(ef.tensor([1.0]), [2.0], [0.0], 0.1)
    (Tensor([0.8], float32, cpu:0), Tensor([-0.2], float32, cpu:0))
    """
    _check((parameter, gradient, velocity), ("parameter", "gradient", "velocity"))
    return _momentum(
        xp, parameter, gradient, velocity, learning_rate, momentum, nesterov, weight_decay
    )


# Adam --------------------------------------------------------------------------------------------

_ADAM = ("parameter", "gradient", "mean", "square")


def _adam_numpy(
    xp: Any,
    parameter: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    learning_rate: Any,
    step: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    if not _single(learning_rate, step):
        options = (beta_1, beta_2, epsilon, weight_decay)
        return _adam(xp, parameter, gradient, mean, square, learning_rate, step, *options)
    _check((parameter, gradient, mean, square), _ADAM)
    _check_rates(beta_1, beta_2)
    t = step.item()
    rate = learning_rate.item()
    scale = rate * math.sqrt(1 - beta_2**t) / (1 - beta_1**t) if t else math.nan
    shape, size = parameter.shape, parameter.size
    if generated.takes(parameter):
        return _generated(
            _adam_body,
            (parameter, gradient, mean, square),
            (scale, 1 - rate * weight_decay),
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            decays=weight_decay != 0,
        )
    new_p, new_m, new_s = (buffers.empty(size, parameter.dtype) for _ in range(3))
    old = (parameter.ravel(), gradient.ravel(), mean.ravel(), square.ravel())

    def work(p: Any, g: Any, m: Any, s: Any, new: Any, nm: Any, ns: Any) -> None:
        np.subtract(g, m, out=nm)
        nm *= 1 - beta_1
        nm += m
        np.multiply(g, g, out=ns)
        ns -= s
        ns *= 1 - beta_2
        ns += s
        np.sqrt(ns, out=new)
        new += epsilon
        np.divide(nm, new, out=new)
        new *= -scale
        new += np.multiply(p, 1 - rate * weight_decay) if weight_decay else p

    _in_pieces(work, *old, new_p, new_m, new_s)
    return new_p.reshape(shape), new_m.reshape(shape), new_s.reshape(shape)


def _adam_body(
    s: Any,
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    scale: Any,
    left: Any,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    decays: bool,
) -> Any:
    new_m = s.add(m, s.multiply(s.subtract(g, m), 1 - beta_1))
    new_v = s.add(v, s.multiply(s.subtract(s.multiply(g, g), v), 1 - beta_2))
    step = s.multiply(s.divide(new_m, s.add(s.sqrt(new_v), epsilon)), scale)
    return s.subtract(s.multiply(p, left) if decays else p, step), new_m, new_v


def _adam(
    xp: Any,
    p: Any,
    g: Any,
    m: Any,
    s: Any,
    rate: Any,
    t: Any,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    weight_decay: float,
) -> Any:
    scale = rate * xp.sqrt(1 - beta_2**t) / (1 - beta_1**t)
    new_m = m + (g - m) * (1 - beta_1)
    new_s = s + (g * g - s) * (1 - beta_2)
    new_p = p - p * rate * weight_decay
    return new_p - scale * new_m / (xp.sqrt(new_s) + epsilon), new_m, new_s


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


def _adam_rule(
    s: Any,
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    rate: Any,
    t: Any,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    weight_decay: float,
) -> Any:
    # 1 - beta^t without the rounding of powers close to 1; at step 0 it gives 0 / 0.
    first, second = (
        s.expm1(s.multiply(t, math.log(beta) if beta else -math.inf)) for beta in (beta_1, beta_2)
    )
    scale = s.divide(s.multiply(rate, s.sqrt(s.negative(second))), s.negative(first))
    left = s.subtract(1, s.multiply(rate, weight_decay)) if weight_decay else None
    return _adam_body(s, p, g, m, v, scale, left, beta_1, beta_2, epsilon, weight_decay != 0)


@_update(
    " ".join(_ADAM),
    2,
    3,
    scalar=_adam_rule,
    overrides={"numpy": _adam_numpy},
    samples=_samples(
        4,
        (0.1, 3),
        [{}, {"beta_1": 0.5, "epsilon": 1e-3}, {"weight_decay": 0.01, "beta_2": 0.9}],
    ),
    reference=_adam_reference,
    ulp=16,
)
def adam_update(
    xp: Any,
    parameter: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    learning_rate: Any,
    step: Any,
    /,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
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
    _check((parameter, gradient, mean, square), _ADAM)
    _check_rates(beta_1, beta_2)
    options = (beta_1, beta_2, epsilon, weight_decay)
    return _adam(xp, parameter, gradient, mean, square, learning_rate, step, *options)


# Adam on many small parameters -------------------------------------------------------------------


def _groups(arrays: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Parameter, gradient, mean and square of each; ShapeError where one of them is missing."""
    size = len(_ADAM)
    if not arrays or len(arrays) % size:
        raise ShapeError(
            f"{len(arrays)} arrays came",
            argument="arrays",
            expected=f"{', '.join(_ADAM)} of each parameter",
        )
    groups = [arrays[i : i + size] for i in range(0, len(arrays), size)]
    for group in groups:
        _check(group, _ADAM)
    return groups


def _joined_specs(rate: Any, step: Any, *arrays: Any, **options: Any) -> tuple[TensorSpec, ...]:
    _check_rates(**options)
    return tuple(p.like() for p, *_ in _groups(arrays) for _ in range(3))


def _joined_numpy(xp: Any, learning_rate: Any, step: Any, /, *arrays: Any, **options: Any) -> Any:
    groups = _groups(arrays)
    if not _single(learning_rate, step):
        return _each_adam(xp, groups, learning_rate, step, **options)
    p, g, m, s = (np.concatenate(column, axis=None) for column in zip(*groups, strict=True))
    columns = _adam_numpy(xp, p, g, m, s, learning_rate, step, **options)
    found, start = [], 0
    for p, *_ in groups:
        end = start + p.size
        found += [column[start:end].reshape(p.shape) for column in columns]
        start = end
    return tuple(found)


def _each_adam(
    xp: Any, groups: list[tuple[Any, ...]], learning_rate: Any, step: Any, **options: Any
) -> tuple[Any, ...]:
    found: list[Any] = []
    for p, g, m, s in groups:
        found += _adam(xp, p, g, m, s, learning_rate, step, **options)
    return tuple(found)


def _joined_batch(args: Any, batched: Any, size: int, **attributes: Any) -> Any:
    found: list[Any] = []
    for values, own in zip(_fours(args), _fours(batched), strict=True):
        found += adam_update.op.batch(values, own, size, **attributes)
    return tuple(found)


def _fours(args: Any) -> list[tuple[Any, ...]]:
    """What ``adam_update`` takes for each parameter."""
    return [(*args[i : i + 4], *args[:2]) for i in range(2, len(args), 4)]


def _joined_samples(rng: Any, dtype: Any) -> list[Sample]:
    numbers = (np.asarray(0.1, dtype), np.asarray(3, dtype))
    base = [make(rng, dtype, (6, 4), 0.5, 2) for _ in _ADAM]
    found = []
    for shapes, more in (
        (((3,),), {}),
        (((2, 3), (), (0,), (4, 1)), {"beta_1": 0.5, "epsilon": 1e-3}),
        (((5,), (5,)), {"weight_decay": 0.01, "beta_2": 0.9}),
    ):
        arrays = [make(rng, dtype, shape, 0.5, 2) for shape in shapes for _ in _ADAM]
        found.append(Sample((*numbers, *arrays), more))
    found.append(Sample((*numbers, *(x.T for x in base), *(x[::2, ::-1] for x in base)), {}))
    return found


def _joined_errors(rng: Any) -> list[ErrorSample]:
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((0.1, 1.0, x, x, x), {}, ShapeError, "3 arrays came"),
        ErrorSample((0.1, 1.0, x, x, x, x[0]), {}, ShapeError, "not that of the parameter"),
        ErrorSample((0.1, 1.0, x * 1j, x, x, x), {}, DTypeError, "is not taken"),
    ]


@define(
    "control",
    {
        "dtypes": FLOATS,
        "infer": _joined_specs,
        "outputs": 0,  # three for each parameter
        "trusted": True,  # the kernels check the shapes
        "overrides": {"numpy": _joined_numpy},
        "vjp": _NO_GRADIENT,
        "jvp": _NO_GRADIENT,
        "batch": _joined_batch,
        "split": Missing("the arrays have shapes of their own"),
        "cost": lambda rate, step, *arrays, **options: Cost(
            _size_of(arrays) * 3, _size_of(arrays) * arrays[0].dtype.itemsize * 7 // 4
        ),
        "onnx": Missing("training is not exported"),
        "scalar": Missing("several results"),
        "samples": _joined_samples,
        "errors": _joined_errors,
        "reference": lambda rate, step, *arrays, **options: tuple(
            x for group in _fours((rate, step, *arrays)) for x in _adam_reference(*group, **options)
        ),
        "ulp": 16,
    },
)
def adam_updates(
    xp: Any,
    learning_rate: Any,
    step: Any,
    /,
    *arrays: Any,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
) -> Any:
    """One step of Adam for several parameters at once: as many calls of ``adam_update``.

    ``arrays`` are parameter, gradient, mean and square of the first one, then those of the
    second one, and so on; the results are parameter, mean and square of each in this order.
    Small ones are joined, since calls cost more than their arithmetic. Raises ShapeError where
    an array is missing, or shapes differ.
    """
    return _each_adam(
        xp,
        _groups(arrays),
        learning_rate,
        step,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        weight_decay=weight_decay,
    )


def _size_of(arrays: tuple[Any, ...]) -> Any:
    return sum((product(x.shape) for x in arrays), 0)
