"""Further distributions: methods of ``Generator``, and functions of ``ef.random``.

They are imported on first use. Each call uses one draw of the generator. Gradients pass to the
parameters if the theory provides them: by location and scale, by formulas that are smooth in them,
or at fixed probability (implicit reparametrisation) to gamma and von Mises numbers.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.convert import as_tensor, number_type
from eagerflow.dtypes import FLOATS, as_dtype, default_dtype
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.creation import draws
from eagerflow.ops.creation.parameters import check_scale, demand, moved
from eagerflow.ops.creation.parametric_draws import (
    random_binomial,
    random_gamma,
    random_poisson,
    random_von_mises,
)
from eagerflow.ops.elementwise.activation import sigmoid
from eagerflow.ops.elementwise.arithmetic import remainder
from eagerflow.ops.elementwise.exponential import exp, expm1, log, log1p
from eagerflow.ops.elementwise.powers import sqrt
from eagerflow.ops.elementwise.rounding import floor
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.elementwise.trigonometric import cos, tan
from eagerflow.ops.reductions.softmax import softmax
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.joining import concat, stack
from eagerflow.ops.shapes.reshaping import broadcast_to
from eagerflow.spec import as_shape, broadcast
from eagerflow.tensor import Tensor

# Parameters --------------------------------------------------------------------------------------


def _parameter(x: Any, dtype: Any, device: Any) -> Any:
    """A parameter as a tensor; ``dtype`` is that of numbers."""
    return as_tensor(x, dtype if number_type(x) is not None else None, device)


def _wide(x: Any, device: Any) -> Any:
    """A parameter in float64, which counts and long tails are computed in."""
    return _parameter(x, "float64", device).astype("float64")


def _shape(shape: Any, *parameters: Any) -> tuple[Any, ...]:
    return broadcast(*(p.shape for p in parameters)) if shape is None else as_shape(shape)


def _state(generator: Any, like: Tensor) -> Tensor:
    """The state of the next draw, on the device of the parameters."""
    return _moved_to(generator.advance(), like)


def _moved_to(state: Tensor, like: Tensor) -> Tensor:
    return state if state.device == like.device else state.to(str(like.device))


def _float(dtype: Any, *parameters: Any) -> Any:
    """The dtype of the numbers: the requested one, or the widest of tensor parameters."""
    if dtype is None:
        tensors = [x for x in parameters if number_type(x) is None]
        found = [t.dtype for t in (as_tensor(x) for x in tensors) if t.dtype in FLOATS]
        return max(found, key=lambda t: t.itemsize, default=default_dtype(float))
    found_dtype = as_dtype(dtype)
    if found_dtype not in FLOATS:
        raise DTypeError(
            f"{found_dtype.name} numbers cannot be drawn from this distribution",
            op="random",
            argument="dtype",
            expected="float16, bfloat16, float32 or float64",
        )
    return found_dtype


def _open(state: Tensor, shape: Any, device: Any = None) -> Any:
    """Uniform float64 numbers strictly between 0 and 1."""
    u = draws.random_uniform(state, shape, "float64", device)
    return (floor(u * 2.0**52) + 0.5) * 2.0**-52


def _of_shape(numbers: Tensor, shape: Any, argument: str, dtype: Any) -> Tensor:
    """Numbers cast to a dtype, unless parameters have enlarged the requested shape."""
    if numbers.shape != shape:
        raise ShapeError(
            "the value does not broadcast to the shape to draw",
            op="random",
            argument=argument,
            expected=f"a shape that broadcasts to {shape}",
        )
    found: Tensor = numbers.astype(dtype)
    return found


class Distributions:
    """The methods of ``Generator`` that are loaded late."""

    advance: Any
    states: Any
    permutation: Any
    integers: Any
    normal: Any

    # Positive numbers ----------------------------------------------------------------------------

    def gamma(
        self: Any,
        alpha: Any,
        shape: Any = None,
        scale: Any = 1.0,
        dtype: Any = None,
        device: Any = None,
    ) -> Tensor:
        """Numbers of the gamma distribution.

        ``alpha`` (its shape parameter, at least 0) and ``scale`` are numbers or tensors that
        broadcast to ``shape``, by default the shape of both; ``dtype`` defaults to that of
        ``alpha``. Gradients pass to both. Raises ShapeError, DTypeError or ArgumentError. Sources:
        Marsaglia and Tsang, 2000; Figurnov, Mohamed and Mnih, 2018.

        >>> ef.random.Generator(0).gamma(ef.tensor([0.5, 5.0]))
        Tensor([0.4058, 3.9778], float32, cpu:0)
        """
        given = _parameter(alpha, dtype, device)
        size = scale if number_type(scale) is not None else as_tensor(scale)
        whole = _shape(shape, given, *(() if number_type(scale) is not None else (size,)))
        z = random_gamma(_state(self, given), given, shape=whole, dtype=dtype)
        return moved(z, 0.0, size, dtype)

    def chi_square(
        self: Any, df: Any, shape: Any = None, dtype: Any = None, device: Any = None
    ) -> Tensor:
        """Numbers of the chi-square distribution with ``df`` degrees of freedom.

        ``df`` is a number or a tensor that broadcasts to ``shape`` (default: the shape of df);
        gradients pass to it. Raises the errors of ``gamma``.

        >>> ef.random.Generator(0).chi_square(4.0, (2,)).shape
        (2,)
        """
        half = _parameter(df, dtype, device) * 0.5
        found: Tensor = self.gamma(half, shape, 2.0, dtype)
        return found

    def lognormal(
        self: Any,
        shape: Any,
        mean: Any = 0.0,
        sigma: Any = 1.0,
        dtype: Any = None,
        device: Any = None,
    ) -> Tensor:
        """Numbers whose logarithms have the normal distribution of ``mean`` and ``sigma``.

        Arguments are those of ``normal``, and gradients pass to both.

        >>> bool((ef.random.Generator(0).lognormal((5,)) > 0).all())
        True
        """
        check_scale(sigma, "sigma")
        found: Tensor = exp(self.normal(shape, mean, sigma, dtype, device))
        return found

    # Probabilities -------------------------------------------------------------------------------

    def beta(
        self: Any,
        alpha: Any,
        beta: Any,
        shape: Any = None,
        dtype: Any = None,
        device: Any = None,
    ) -> Tensor:
        """Numbers of the beta distribution, from 0 to 1.

        ``alpha`` and ``beta`` are positive numbers or tensors that broadcast to ``shape``
        (default: the shape of both), and gradients pass to them. Raises the errors of ``gamma``.

        >>> x = ef.random.Generator(0).beta(2.0, ef.tensor([3.0, 1.0]))
        >>> bool(((x > 0) & (x < 1)).all())
        True
        """
        wanted = _float(dtype, alpha, beta)
        both = _wide(alpha, device), _wide(beta, device)
        whole = _shape(shape, *both)
        pair = stack([broadcast_to(x, whole) for x in both])
        state = _state(self, pair)
        first, second = random_gamma(state, pair, shape=(2, *whole), log=True)
        found: Tensor = sigmoid(first - second).astype(wanted)
        return found

    def dirichlet(
        self: Any, alpha: Any, shape: Any = None, dtype: Any = None, device: Any = None
    ) -> Tensor:
        """Rows of numbers with the sum 1, of the Dirichlet distribution.

        ``alpha`` is a tensor of positive numbers, shape (..., k), whose leading axes broadcast to
        ``shape`` (default: their own); the result has shape (*shape, k). Gradients pass to
        ``alpha``. Raises ShapeError where it has no axis, and the errors of ``gamma``.

        >>> float(ef.random.Generator(0).dirichlet([1.0, 2.0, 3.0], dtype="float64").sum())
        1.0
        """
        wanted, given = _float(dtype, alpha), _wide(alpha, device)
        if not given.ndim or not given.shape[-1]:
            raise ShapeError(
                "there are no parameters along the last axis",
                op="dirichlet",
                argument="alpha",
                received=str(given.shape),
                expected="shape (..., k)",
            )
        whole = given.shape[:-1] if shape is None else as_shape(shape)
        logs = random_gamma(_state(self, given), given, shape=(*whole, given.shape[-1]), log=True)
        found: Tensor = softmax(logs, axis=-1).astype(wanted)
        return found

    # Location and scale --------------------------------------------------------------------------

    def gumbel(
        self: Any,
        shape: Any,
        loc: Any = 0.0,
        scale: Any = 1.0,
        dtype: Any = None,
        device: Any = None,
    ) -> Tensor:
        """Numbers of the Gumbel distribution, the limit of maxima of many numbers.

        ``loc`` and ``scale`` are numbers, or tensors that broadcast to ``shape``, and gradients
        pass to them. Raises ShapeError or DTypeError.

        >>> ef.random.Generator(0).gumbel((3,)).shape
        (3,)
        """
        check_scale(scale, "scale")
        z = -log(-log(_open(self.advance(), shape, device)))
        return moved(z.astype(_float(dtype)), loc, scale, dtype)

    def laplace(
        self: Any,
        shape: Any,
        loc: Any = 0.0,
        scale: Any = 1.0,
        dtype: Any = None,
        device: Any = None,
    ) -> Tensor:
        """Numbers of the Laplace distribution: exponential ones on both sides of ``loc``.

        Arguments are those of ``gumbel``.

        >>> ef.random.Generator(0).laplace((3,)).shape
        (3,)
        """
        check_scale(scale, "scale")
        u = _open(self.advance(), shape, device)
        z = where(u < 0.5, log(2 * u), -log(2 - 2 * u))
        return moved(z.astype(_float(dtype)), loc, scale, dtype)

    def logistic(
        self: Any,
        shape: Any,
        loc: Any = 0.0,
        scale: Any = 1.0,
        dtype: Any = None,
        device: Any = None,
    ) -> Tensor:
        """Numbers of the logistic distribution, whose distribution function is the sigmoid.

        Arguments are those of ``gumbel``.

        >>> ef.random.Generator(0).logistic((3,)).shape
        (3,)
        """
        check_scale(scale, "scale")
        u = _open(self.advance(), shape, device)
        return moved((log(u) - log1p(-u)).astype(_float(dtype)), loc, scale, dtype)

    def cauchy(
        self: Any,
        shape: Any,
        loc: Any = 0.0,
        scale: Any = 1.0,
        dtype: Any = None,
        device: Any = None,
    ) -> Tensor:
        """Numbers of the Cauchy distribution, which has no mean.

        Arguments are those of ``gumbel``.

        >>> ef.random.Generator(0).cauchy((3,)).shape
        (3,)
        """
        check_scale(scale, "scale")
        u = _open(self.advance(), shape, device)
        return moved(tan((u - 0.5) * math.pi).astype(_float(dtype)), loc, scale, dtype)

    def student_t(
        self: Any, df: Any, shape: Any = None, dtype: Any = None, device: Any = None
    ) -> Tensor:
        """Numbers of Student's t distribution with ``df`` degrees of freedom.

        ``df`` is a positive number or a tensor that broadcasts to ``shape`` (default: the shape of
        df); gradients pass to it. Raises ShapeError, DTypeError, or ArgumentError for a number that
        is not positive. Source: Bailey, "Polar generation of random variates with the
        t-distribution", 1994.

        >>> ef.random.Generator(0).student_t(3.0, (2,)).shape
        (2,)
        """
        demand(df, "df", lambda number: number > 0, "a positive number")
        wanted, given = _float(dtype, df), _wide(df, device)
        whole = _shape(shape, given)
        u, angle = _open(self.advance(), (2, *whole), str(given.device))
        radius = sqrt(given * expm1(log(u) * -2 / given))
        return _of_shape(radius * cos(angle * (2 * math.pi)), whole, "df", wanted)

    def von_mises(
        self: Any,
        mean: Any,
        concentration: Any,
        shape: Any = None,
        dtype: Any = None,
        device: Any = None,
    ) -> Tensor:
        """Angles of the von Mises distribution, in radians from -pi to pi.

        ``mean`` and ``concentration`` (at least 0; the larger, the closer are all to ``mean``) are
        numbers or tensors that broadcast to ``shape`` (default: the shape of both), and gradients
        pass to them. Raises ShapeError, DTypeError or ArgumentError. Source: Best and Fisher, 1979.

        >>> bool((abs(ef.random.Generator(0).von_mises(3.0, 2.0, (5,))) <= np.pi).all())
        True
        """
        wanted = _float(dtype, mean, concentration)
        given, center = _parameter(concentration, wanted, device), _parameter(mean, wanted, device)
        whole = _shape(shape, given, center)
        z = random_von_mises(_state(self, given), given, shape=whole)
        turned = remainder(z + center + math.pi, 2 * math.pi) - math.pi
        return _of_shape(turned, whole, "mean", wanted)

    # Counts --------------------------------------------------------------------------------------

    def poisson(
        self: Any, rate: Any, shape: Any = None, dtype: Any = "int64", device: Any = None
    ) -> Tensor:
        """Numbers of the Poisson distribution: of events where ``rate`` are expected.

        ``rate`` is a number from 0 to 2**62 or a tensor that broadcasts to ``shape`` (default: the
        shape of rate), ``dtype`` an integer or float dtype. No gradient passes. Raises ShapeError,
        DTypeError or ArgumentError. Source: Hörmann, 1993.

        >>> ef.random.Generator(0).poisson(30.0, (4,))
        Tensor([21, 36, 22, 22], int64, cpu:0)
        """
        given = _wide(rate, device)
        return random_poisson(_state(self, given), given, shape=_shape(shape, given), dtype=dtype)  # type: ignore[no-any-return]

    def binomial(
        self: Any,
        count: Any,
        probability: Any,
        shape: Any = None,
        dtype: Any = "int64",
        device: Any = None,
    ) -> Tensor:
        """Numbers of the binomial distribution: of successes among ``count`` trials.

        ``count`` (whole numbers from 0 to 2**53) and ``probability`` are numbers or tensors that
        broadcast to ``shape`` (default: the shape of both), ``dtype`` is an integer or float dtype.
        No gradient passes. Raises ShapeError, DTypeError or ArgumentError. Source: Hörmann, 1993.

        >>> ef.random.Generator(0).binomial(100, 0.5, (4,))
        Tensor([54, 56, 44, 43], int64, cpu:0)
        """
        given = _wide(count, device), _wide(probability, device)
        whole = _shape(shape, *given)
        return random_binomial(_state(self, given[0]), *given, shape=whole, dtype=dtype)  # type: ignore[no-any-return]

    def multinomial(
        self: Any,
        count: Any,
        probabilities: Any,
        shape: Any = None,
        dtype: Any = "int64",
        device: Any = None,
    ) -> Tensor:
        """The number of occurrences of each of several outcomes in ``count`` trials.

        ``probabilities`` is a tensor of shape (..., k), of numbers of at least 0 in proportion to
        which outcomes are drawn; ``count`` and its leading axes broadcast to ``shape`` (default:
        the shape of both). The result has shape (*shape, k). No gradient passes. Raises ShapeError,
        DTypeError or ArgumentError.

        >>> ef.random.Generator(0).multinomial(60, [0.5, 0.25, 0.25]).sum()
        Tensor(60, int64, cpu:0)
        """
        trials, p = _wide(count, device), _wide(probabilities, device)
        if not p.ndim or not p.shape[-1]:
            raise ShapeError(
                "there are no outcomes along the last axis",
                op="multinomial",
                argument="probabilities",
                received=str(p.shape),
                expected="shape (..., k)",
            )
        k = p.shape[-1]
        whole = broadcast(trials.shape, p.shape[:-1]) if shape is None else as_shape(shape)
        levels = max(k - 1, 0).bit_length()
        # Each half of the outcomes gets its share of the trials, and so on down to single ones.
        missing = 2**levels - k
        if missing:
            p = concat([p, p[..., :1].broadcast_to((*p.shape[:-1], missing)) * 0], axis=-1)
        weights = [p]
        for _ in range(levels):
            halves = weights[0].reshape((*weights[0].shape[:-1], -1, 2))
            weights.insert(0, total(halves, axis=-1))
        states = _moved_to(self.states(max(levels, 1)), p)
        counts = broadcast_to(trials, whole).reshape((*whole, 1))
        for level in range(levels):
            parent, parts = weights[level], weights[level + 1]
            left = parts.reshape((*parts.shape[:-1], -1, 2))[..., 0]
            share = where(parent > 0, left / where(parent > 0, parent, 1), left)
            own = random_binomial(
                states[level], counts, share, shape=(*whole, 2**level), dtype="float64"
            )
            counts = stack([own, counts - own], axis=-1).reshape((*whole, 2 ** (level + 1)))
        found: Tensor = counts[..., :k].astype(dtype)
        return found

    def geometric(
        self: Any, p: Any, shape: Any = None, dtype: Any = "int64", device: Any = None
    ) -> Tensor:
        """Numbers of trials up to the first success, each of which has the probability ``p``.

        ``p`` is a number from above 0 to 1 or a tensor that broadcasts to ``shape`` (default: the
        shape of p). No gradient passes. Raises ShapeError, DTypeError, or ArgumentError for an
        invalid probability.

        >>> ef.random.Generator(0).geometric(1.0, (3,))
        Tensor([1, 1, 1], int64, cpu:0)
        """
        demand(p, "p", lambda number: 0 < number <= 1, "a probability above 0")
        given = _wide(p, device)
        whole = _shape(shape, given)
        u = _open(self.advance(), whole, str(given.device))
        return _of_shape(floor(log(u) / log1p(-given)) + 1, whole, "p", dtype)

    # Other names ---------------------------------------------------------------------------------

    def randint(
        self: Any,
        low: int,
        high: int | None = None,
        shape: Any = (),
        dtype: Any = "int64",
        device: Any = None,
    ) -> Tensor:
        """Integers from ``low`` up to, not including, ``high``: another name of ``integers``.

        >>> ef.random.Generator(0).randint(0, 10, (4,))
        Tensor([8, 0, 5, 5], int64, cpu:0)
        """
        found: Tensor = self.integers(low, high, shape, dtype, device)
        return found

    def shuffle(self: Any, x: Any, axis: int = 0) -> Tensor:
        """A tensor with its slices along ``axis`` in random order; gradients follow them.

        >>> ef.random.Generator(0).shuffle([10, 20, 30, 40])
        Tensor([10, 40, 30, 20], int64, cpu:0)
        """
        found: Tensor = self.permutation(as_tensor(x), axis)
        return found
