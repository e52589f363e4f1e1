"""Checks of gradients: against differences, in both modes, twice, and where they vanish."""

import ml_dtypes
import numpy as np

import eagerflow as ef
from eagerflow.errors import DTypeError
from eagerflow.testing import check_gradients
from tests.contract.cases import (
    COMPLEX128,
    FLOAT64,
    SMALL,
    SOAK,
    about,
    check_close,
    computable,
    dtypes_of,
    inexact,
    moving,
    no_small_floats,
    run,
    samples,
    spread,
)
from tests.contract.registry import NotApplicable, check, either

LIMIT = 400 if SOAK else 24
"""Elements that go into, and that come out of, a call whose whole Jacobian is checked."""


def not_differentiable(op):
    """An excuse: there is no gradient, or it is not that of the values."""
    if stated := getattr(op.vjp, "stated", None):
        return stated
    return None if op.differentiable else getattr(op.vjp, "reason", "no gradient")


def takes(dtype):
    """An excuse for ops that do not take ``dtype``."""
    return lambda op: None if dtypes_of(op, (dtype,)) else f"takes no {dtype}"


def cases(op, dtype, count):
    """Samples with a Jacobian of a size to check: most with several elements, some without."""
    sized = []
    for sample in samples(op, dtype):
        inside = sum(sample.args[i].size for i in moving(sample))
        outside = sum(y.size for y in run(op, sample) if ef.dtypes.is_inexact(y.dtype))
        if moving(sample) and outside + inside * outside >= 0:
            sized.append((inside, outside, sample))
    assert sized, f"{op.name}: no sample has an argument and a result with a gradient"
    fitting = [s for s in sized if s[0] <= LIMIT and s[1] <= LIMIT]
    fitting = fitting or sorted(sized, key=lambda s: s[0] * s[1])[:2]
    several = [s[2] for s in fitting if s[0] > 1 and s[1] > 0]
    others = [s[2] for s in fitting if not (s[0] > 1 and s[1] > 0)]
    few = spread(others, 2)[: None if SOAK else max(1, count // 4)]
    return spread(several, max(2, count - len(few))) + few


def function_of(op, sample):
    """The op as a function of the arguments that have gradients, and these."""
    where = moving(sample)

    def f(*xs):
        args = list(sample.args)
        for i, x in zip(where, xs, strict=True):
            args[i] = x
        out = op.call(*args, **sample.attributes)
        if not isinstance(out, tuple):
            return out
        return tuple(y for y in out if ef.dtypes.is_inexact(y.dtype))  # integers are counted

    return f, tuple(sample.args[i] for i in where)


def check_samples(op, chosen, order, mode="both"):
    """All derivatives of an op at some samples."""
    for sample in chosen:
        with about(op, sample):
            check_gradients(*function_of(op, sample), order=order, mode=mode)


@check(excuse=either(not_differentiable, takes(FLOAT64)), step=2)
def gradient(op):
    """The whole Jacobian, in reverse and forward mode, is that of central differences."""
    check_samples(op, cases(op, FLOAT64, 5), order=1)


@check(excuse=either(not_differentiable, takes(FLOAT64)), step=6)
def second_order(op):
    """So is the Jacobian of the gradient."""
    chosen = sorted(cases(op, FLOAT64, 5), key=elements)
    check_samples(op, [s for s in chosen if elements(s) > 1][: None if SOAK else 2], order=2)


@check(excuse=either(not_differentiable, takes(COMPLEX128)), step=4)
def complex_gradient(op):
    """For complex values the gradient is the direction of steepest ascent; twice as well."""
    chosen = sorted(cases(op, COMPLEX128, 4), key=elements)
    check_samples(op, chosen[: None if SOAK else 1], order=2)
    check_samples(op, chosen[1:], order=1)


def elements(sample):
    """How many elements a gradient is taken by."""
    return sum(sample.args[i].size for i in moving(sample))


def not_elementwise(op):
    """An excuse: the imaginary step is taken in all elements at once."""
    return None if op.family == "elementwise" else "not element-wise"


@check(excuse=either(not_differentiable, not_elementwise, takes(FLOAT64), takes(COMPLEX128)))
def complex_step(op):
    """Im f(x + ih) / h is the derivative to the last digits, where f is analytic.

    Squire and Trapp, Using complex variables to estimate derivatives of real functions (1998).
    """
    h = 1e-30
    checked = 0
    for sample in cases(op, FLOAT64, 6):
        f, xs = function_of(op, sample)
        if not analytic(f, xs):
            continue
        for i, x in enumerate(xs):
            with about(op, sample):
                moved = [x + h * 1j if j == i else other for j, other in enumerate(xs)]
                expected = f(*moved).numpy().imag / h
                tangents = tuple(np.ones(o.shape) * (j == i) for j, o in enumerate(xs))
                actual = ef.jvp(f, xs, tangents, unconnected="zero")[1].numpy()
                np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-14)
                checked += 1
    if not checked:
        raise NotApplicable("not complex-differentiable")


def analytic(f, xs, step=1e-6):
    """Whether a step along the imaginary axis gives the same derivative as one along the real."""
    points = [np.asarray(x) + 0.1j for x in xs]
    for i, z in enumerate(points):

        def at(value, i=i):
            args = [value if j == i else p for j, p in enumerate(points)]
            return f(*args).numpy()

        real = (at(z + step) - at(z - step)) / (2 * step)
        if not ef.dtypes.is_complex(real.dtype):
            return False
        imaginary = (at(z + step * 1j) - at(z - step * 1j)) / (2j * step)
        if not np.allclose(real, imaginary, rtol=1e-4, atol=1e-6):
            return False
    return True


def gradients_at(op, args, sample, weight):
    """Gradients by all floating arguments, for output gradients that are all ``weight``."""
    where = [i for i, x in enumerate(args) if inexact(x)]
    xs = [ef.tensor(args[i]) for i in where]
    with ef.GradientTape() as tape:
        tape.watch(xs)
        values = list(args)
        for i, x in zip(where, xs, strict=True):
            values[i] = x
        out = op.call(*values, **sample.attributes)
        ys = [y for y in (out if isinstance(out, tuple) else (out,)) if inexact(y.numpy())]
    weights = [np.full(y.shape, weight, y.dtype) for y in ys]
    return [g.numpy() for g in tape.gradient(ys, xs, weights, unconnected="zero")]


@check(excuse=either(not_differentiable, takes(FLOAT64)), step=3)
def zero_cotangents(op):
    """A gradient of zero stays zero on its way back, also where derivatives are infinite."""
    edges = (0.0, 1.0, -1.0, np.inf) if op.singular else ()
    for sample in samples(op, FLOAT64):
        variants = [sample.args]
        variants += [
            tuple(np.full_like(x, edge) if inexact(x) else x for x in sample.args) for edge in edges
        ]
        if callable(op.singular) and not op.singular(*sample.args):
            variants = [args for args in variants if not any(np.isinf(x).any() for x in args)]
        for args in variants:
            with about(op, sample._replace(args=args)):
                for g in gradients_at(op, args, sample, 0.0):
                    assert np.all(g == 0), f"zero output gradients give {g} at {args}"


UNITS = 3
"""Units in the last place of the largest gradient, or of 1, that 16-bit gradients may be off."""


@check(excuse=either(not_differentiable, takes(FLOAT64), no_small_floats), step=3)
def small_gradients(op):
    """Gradients in float16 and bfloat16 are those in float64 of the same values, rounded."""
    for dtype in dtypes_of(op, SMALL):
        unit = float(ml_dtypes.finfo(dtype).eps)
        for sample in spread(samples(op, dtype), 6):
            wide = tuple(widened(x, dtype) for x in sample.args)
            with about(op, sample):
                try:
                    expected = gradients_at(op, wide, sample, 0.75)
                except DTypeError:  # a cast from a type other than float64
                    continue
                actual = gradients_at(op, sample.args, sample, 0.75)
                for g, wanted in zip(actual, expected, strict=True):
                    check_close(computable(g), wanted, UNITS * unit, "the gradient")


def widened(x, dtype):
    """An array of ``dtype`` in float64, anything else as it is."""
    return x.astype(FLOAT64) if isinstance(x, np.ndarray) and x.dtype == dtype else x
