"""Random numbers: generators with a seed, and functions that use the global one.

Every number is a function of the generator's state, three words ``(key, key, draw)``: the seed
determines the key, and each call consumes one value of ``draw``, for any shape. So the same seed
gives the same bits on every device and with any number of threads, and captured, loaded and
recomputed programs draw the numbers that eager ones do. The conversion of bits to numbers is
described in ``eagerflow/codegen/numpy/philox.py``.

Other distributions are methods, too, and are loaded late: ``eagerflow/ops/distributions.py``.

The state is a Variable. Inside ``vmap`` an outer generator gives each example different numbers; a
generator of a batch of states (``Generator.states``) gives each example the numbers of its own
state.
"""

from __future__ import annotations

import os
from types import MethodType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from eagerflow.codegen.numpy.philox import WORDS
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.op import ops
from eagerflow.ops.creation import draws
from eagerflow.ops.creation.parameters import check_scale, demand, fitting, moved
from eagerflow.ops.elementwise.arithmetic import add, multiply, subtract
from eagerflow.ops.late import RANDOM as LATE
from eagerflow.ops.late import load
from eagerflow.ops.other_names import members
from eagerflow.spec import as_shape, normalize_axis
from eagerflow.tensor import Operators, Tensor
from eagerflow.variable import Variable

__all__ = sorted(
    [
        *LATE,
        "Generator",
        "bernoulli",
        "categorical",
        "choice",
        "exponential",
        "integers",
        "normal",
        "permutation",
        "seed",
        "split",
        "truncated_normal",
        "uniform",
    ]
)

_STEP = np.array([0, 0, 1], np.uint64)


if TYPE_CHECKING:
    from eagerflow.ops.distributions import Distributions as _Late
else:
    _Late = object


class Generator(_Late):
    """A random number generator with its own state.

    ``seed`` is an integer from 0 to below 2**128, or None for one from the system's entropy.
    A uint64 tensor of three words, one of ``states``, is taken as the state itself; such a
    generator keeps it as a plain tensor, for use inside ``vmap`` or ``scan``. Raises
    ArgumentError, DTypeError or ShapeError for other seeds. Source: Philox4x64-10, Salmon and
    others, 2011.

    >>> g = ef.random.Generator(0)
    >>> g.normal((2,))
    Tensor([1.5076, 0.9205], float32, cpu:0)
    >>> g.integers(0, 10, (3,)).shape, g
    ((3,), Generator(key=0, draw=2))
    """

    __slots__ = ("__weakref__", "_state", "_step")

    def __init__(self, seed: Any = None) -> None:
        if isinstance(seed, Operators):
            self._state: Any = _checked_state(seed)
        else:
            words = np.array(_words(seed), np.uint64)
            self._state = Variable(words, "random_state", trainable=False, device="cpu:0")
        if isinstance(self._state, Variable):
            self._state.is_random_state = True
        self._step = as_tensor(_STEP, device=self._state.device)

    @property
    def state(self) -> Any:
        """The Variable (or, for a generator made from one, the Tensor) of three words."""
        return self._state

    def seed(self, seed: Any = None) -> None:
        """Restart from another seed; this is visible to other holders of the state's Variable."""
        if isinstance(self._state, Variable):
            self._state.assign(np.array(_words(seed), np.uint64))
        else:
            self._state = as_tensor(np.array(_words(seed), np.uint64))

    def advance(self) -> Tensor:
        """The state of the next draw, which is then consumed."""
        while True:  # another thread, or a signal handler, may draw in between
            state = self._state
            if type(state) is not Tensor:
                held = state.current
                value: Tensor = state.value
                if state.exchange(held, add(value, self._step)):
                    return value
                continue
            moved = add(state, self._step)
            if self._state is state:  # no other Python code runs between these two
                self._state = moved
                return state

    if not TYPE_CHECKING:  # they are those of _Late

        def __getattr__(self, name: str) -> Any:
            if name not in LATE:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            return MethodType(getattr(load(LATE[name]).Distributions, name), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *LATE})

    def __repr__(self) -> str:
        state = self._state.current if isinstance(self._state, Variable) else self._state
        if type(state._array) is not state._kind.array_type:
            return f"Generator({summary(state)})"
        low, high, draw = state.tolist()
        return f"Generator(key={high << 64 | low}, draw={draw})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Generator, (self._state,)

    # Independent generators ------------------------------------------------------------------

    @overload
    def split(self, n: None = None) -> Generator: ...
    @overload
    def split(self, n: int) -> list[Generator]: ...
    def split(self, n: int | None = None) -> Any:
        """An independent generator, or a list of ``n`` of them.

        Their keys of 128 bits are drawn from this one, which moves on by one draw.

        >>> a, b = ef.random.Generator(0).split(2)
        >>> bool(a.uniform(()) == b.uniform(()))
        False
        """
        rows = self.states(1 if n is None else n)
        made = [Generator(0) for _ in range(rows.shape[0])]
        for generator, row in zip(made, rows, strict=True):
            generator._state.assign(row)
        return made[0] if n is None else made

    def states(self, n: int) -> Tensor:
        """States of ``n`` independent generators, as a uint64 tensor of shape (n, 3).

        >>> states = ef.random.Generator(0).states(4)
        >>> ef.vmap(lambda s: ef.random.Generator(s).normal((2,)))(states).shape
        (4, 2)
        """
        words = draws.random_bits(self.advance(), (n, WORDS))
        mask = as_tensor(np.array([1, 1, 0], np.uint64), device=words.device)
        found: Tensor = multiply(words, mask)
        return found

    # Distributions ---------------------------------------------------------------------------

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, device: Any = None
    ) -> Tensor:
        """Numbers of the normal distribution.

        ``shape`` is a size or a tuple of sizes; ``mean`` and ``stddev`` are numbers, or tensors
        that broadcast to it, and gradients pass to them; ``dtype`` defaults to float32. Raises
        ShapeError or DTypeError, and ArgumentError for a negative number as ``stddev``.

        >>> ef.random.Generator(0).normal((2,), mean=5.0, stddev=2.0)
        Tensor([8.0153, 6.841 ], float32, cpu:0)
        """
        check_scale(stddev, "stddev")
        z = draws.random_normal(self.advance(), shape, dtype, device)
        return moved(z, mean, stddev, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, device: Any = None
    ) -> Tensor:
        """Numbers of the normal distribution, cut off two ``stddev`` from ``mean``.

        Arguments are those of ``normal``; ``stddev`` is that of the whole distribution, the
        numbers themselves have 0.88 of it.

        >>> bool(abs(ef.random.Generator(0).truncated_normal((100,)).numpy()).max() <= 2)
        True
        """
        check_scale(stddev, "stddev")
        z = draws.random_truncated_normal(self.advance(), shape, dtype, device)
        return moved(z, mean, stddev, dtype)

    def uniform(
        self, shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: Any = None, device: Any = None
    ) -> Tensor:
        """Numbers from ``low`` up to ``high``, all equally likely.

        ``low`` and ``high`` are numbers, or tensors that broadcast to ``shape``. ``high`` itself
        is not drawn, except where ``low + (high - low) * u`` rounds to it.

        >>> ef.random.Generator(0).uniform((2,), -1, 1)
        Tensor([ 0.5798, -0.8255], float32, cpu:0)
        """
        u = draws.random_uniform(self.advance(), shape, dtype, device)
        low, high = fitting(low, u, "low"), fitting(high, u, "high")
        plain = not isinstance(low, Operators) and not isinstance(high, Operators)
        return moved(u, low, high - low if plain else subtract(high, low), dtype)

    def integers(
        self,
        low: int,
        high: int | None = None,
        shape: Any = (),
        dtype: Any = "int64",
        device: Any = None,
    ) -> Tensor:
        """Integers from ``low`` up to, not including, ``high``, all equally likely.

        With one bound only it is ``high``, and ``low`` is 0. Raises ShapeError for an empty
        range or one that ``dtype`` does not hold.

        >>> ef.random.Generator(0).integers(0, 10, (4,))
        Tensor([8, 0, 5, 5], int64, cpu:0)
        """
        if high is None:
            low, high = 0, low
        found: Tensor = draws.random_integers(self.advance(), shape, low, high, dtype, device)
        return found

    def bernoulli(self, p: Any = 0.5, shape: Any = None, device: Any = None) -> Tensor:
        """Bools that are true with probability ``p``.

        ``p`` is a number or a tensor that broadcasts to ``shape`` (default: the shape of p).

        >>> ef.random.Generator(0).bernoulli(0.5, (4,))
        Tensor([False,  True,  True, False], bool, cpu:0)
        """
        demand(p, "p", lambda number: 0 <= number <= 1, "a probability from 0 to 1")
        if shape is None:
            shape = p.shape if hasattr(p, "shape") else ()
        u = draws.random_uniform(self.advance(), shape, None, device)
        found: Tensor = ops["less"].call(u, fitting(p, u, "p"))
        return found

    def exponential(
        self, shape: Any, scale: Any = 1.0, dtype: Any = None, device: Any = None
    ) -> Tensor:
        """Numbers of the exponential distribution with mean ``scale``.

        ``scale`` is a number or a tensor that broadcasts to ``shape``.

        >>> ef.random.Generator(0).exponential((2,))
        Tensor([1.5601, 0.0913], float32, cpu:0)
        """
        check_scale(scale, "scale")
        z = draws.random_exponential(self.advance(), shape, dtype, device)
        return moved(z, 0.0, scale, dtype)

    def categorical(self, logits: Any, num_samples: int | None = None) -> Tensor:
        """Indices along the last axis, drawn with probabilities ``softmax(logits)``.

        ``logits`` is a tensor of shape (..., classes). The result has shape (...), or
        (..., num_samples). Raises ShapeError for logits without classes.

        >>> ef.random.Generator(0).categorical(ef.tensor([0.0, 100.0]), 3)
        Tensor([1, 1, 1], int64, cpu:0)
        """
        logits = as_tensor(logits)
        if not logits.ndim or logits.shape[-1] == 0:
            raise ShapeError(
                "there are no classes to draw from",
                op="categorical",
                argument="logits",
                received=summary(logits),
                expected="shape (..., classes)",
            )
        *rows, classes = logits.shape
        samples = () if num_samples is None else as_shape(num_samples)
        noise = draws.random_exponential(
            self.advance(), (*rows, *samples, classes), "float64", str(logits.device)
        )
        # The class whose exponential clock, running at rate exp(logit), rings first.
        wide = logits.astype("float64").reshape((*rows, *(1,) * len(samples), classes))
        found: Tensor = ops["argmax"].call(subtract(wide, ops["log"].call(noise)), axis=-1)
        return found

    def permutation(self, x: Any, axis: int = 0) -> Tensor:
        """The integers below ``x``, or the slices of a tensor along ``axis``, in random order.

        >>> ef.random.Generator(0).permutation(4)
        Tensor([0, 3, 2, 1], int64, cpu:0)
        """
        if isinstance(x, int):
            found: Tensor = draws.random_permutation(self.advance(), x)
            return found
        x = as_tensor(x)
        at = normalize_axis(axis, x.ndim)
        order = draws.random_permutation(self.advance(), x.shape[at], device=str(x.device))
        taken: Tensor = ops["take"].call(x, order, axis=at)
        return taken

    def choice(
        self, x: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0
    ) -> Tensor:
        """Integers below ``x``, or slices of a tensor along ``axis``, chosen at random.

        ``p`` gives the probability of each (default: the same). With ``replace=False`` none is
        chosen twice; ShapeError if ``shape`` exceeds their number.

        >>> ef.random.Generator(0).choice(ef.tensor([10, 20, 30]), 3, replace=False).shape
        (3,)
        """
        wanted = as_shape(shape)
        items = None if isinstance(x, int) else as_tensor(x)
        at = 0 if items is None else normalize_axis(axis, items.ndim)
        n = x if items is None else items.shape[at]
        index = self._chosen(n, wanted, replace, p)
        if items is None:
            return index
        taken = ops["take"].call(items, index.reshape((-1,)), axis=at)
        found: Tensor = taken.reshape((*items.shape[:at], *wanted, *items.shape[at + 1 :]))
        return found

    def _chosen(self, n: int, shape: tuple[Any, ...], replace: bool, p: Any) -> Tensor:
        count = int(np.prod(shape, dtype=np.int64))
        if n < 1 or (not replace and count > n):
            raise ShapeError(
                f"{count} of {n} cannot be chosen",
                op="choice",
                argument="shape",
                expected="at least one item" if n < 1 else f"at most {n}, or replace=True",
            )
        if p is None and replace:
            return self.integers(0, n, shape)
        if p is None:
            return self.permutation(n)[:count].reshape(shape)  # type: ignore[no-any-return]
        weights = as_tensor(p)
        if weights.shape != (n,):
            raise ShapeError(
                "there is one probability for each item",
                op="choice",
                argument="p",
                received=summary(weights),
                expected=f"shape ({n},)",
            )
        log = ops["log"].call(weights.astype("float64"))
        if replace:
            return self.categorical(log, count).reshape(shape)  # type: ignore[no-any-return]
        noise = draws.random_exponential(self.advance(), (n,), "float64", str(weights.device))
        order = ops["argsort"].call(subtract(ops["log"].call(noise), log))
        return order[:count].reshape(shape)  # type: ignore[no-any-return]


def _words(seed: Any) -> list[int]:
    if seed is None:
        seed = int.from_bytes(os.urandom(16), "little")
    try:
        number = seed.__index__()
    except raised_here(AttributeError, TypeError):
        raise DTypeError(
            f"a {type(seed).__name__} is not a seed",
            op="random",
            argument="seed",
            expected="an integer, None, or a state of three uint64 words",
        ) from None
    if not 0 <= number < 2**128:
        raise ArgumentError(
            f"seed {number} is out of range",
            op="random",
            argument="seed",
            expected="an integer from 0 to below 2**128",
        )
    return [number & (2**64 - 1), number >> 64, 0]


def _checked_state(state: Any) -> Any:
    if state.dtype != np.uint64 or state.shape != (WORDS,):
        raise ShapeError(
            "this tensor is not a state",
            op="random",
            argument="seed",
            received=summary(state),
            expected=f"uint64({WORDS},), or an integer as a seed",
        )
    return state


# The global generator ----------------------------------------------------------------------

default_generator = Generator()
"""The generator of the functions of this module."""


def seed(seed: int | None = None) -> None:
    """Start the global generator from ``seed``, an integer, or from the system's entropy.

    >>> ef.random.seed(0)
    >>> ef.random.normal((2,))
    Tensor([1.5076, 0.9205], float32, cpu:0)
    """
    default_generator.seed(seed)


@overload
def split(n: None = None) -> Generator: ...
@overload
def split(n: int) -> list[Generator]: ...
def split(n: int | None = None) -> Any:
    """A generator independent of the global one, or a list of ``n``; see ``Generator.split``.

    >>> len(ef.random.split(3))
    3
    """
    return default_generator.split(n)


def normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Numbers of the normal distribution; see ``Generator.normal``.

    >>> ef.random.normal((2, 3)).shape
    (2, 3)
    """
    return default_generator.normal(shape, mean, stddev, dtype, device)


def truncated_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Normal numbers cut off two ``stddev`` from ``mean``; see ``Generator.truncated_normal``.

    >>> ef.random.truncated_normal((3,)).shape
    (3,)
    """
    return default_generator.truncated_normal(shape, mean, stddev, dtype, device)


def uniform(
    shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Equally likely numbers from ``low`` up to ``high``; see ``Generator.uniform``.

    >>> ef.random.uniform((3,), dtype="float64").dtype
    dtype('float64')
    """
    return default_generator.uniform(shape, low, high, dtype, device)


def integers(
    low: int, high: int | None = None, shape: Any = (), dtype: Any = "int64", device: Any = None
) -> Tensor:
    """Integers from ``low`` up to, not including, ``high``; see ``Generator.integers``.

    >>> int(ef.random.integers(6)) in range(6)
    True
    """
    return default_generator.integers(low, high, shape, dtype, device)


def bernoulli(p: Any = 0.5, shape: Any = None, device: Any = None) -> Tensor:
    """Bools that are true with probability ``p``; see ``Generator.bernoulli``.

    >>> ef.random.bernoulli(1.0, (2,))
    Tensor([ True,  True], bool, cpu:0)
    """
    return default_generator.bernoulli(p, shape, device)


def exponential(shape: Any, scale: Any = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers of the exponential distribution; see ``Generator.exponential``.

    >>> float(ef.random.exponential(())) >= 0
    True
    """
    return default_generator.exponential(shape, scale, dtype, device)


def categorical(logits: Any, num_samples: int | None = None) -> Tensor:
    """Indices drawn with probabilities ``softmax(logits)``; see ``Generator.categorical``.

    >>> ef.random.categorical(ef.zeros((4, 3)), 5).shape
    (4, 5)
    """
    return default_generator.categorical(logits, num_samples)


def permutation(x: Any, axis: int = 0) -> Tensor:
    """Integers below ``x``, or slices of ``x``, in random order; see ``Generator.permutation``.

    >>> sorted(ef.random.permutation(3).tolist())
    [0, 1, 2]
    """
    return default_generator.permutation(x, axis)


def choice(x: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0) -> Tensor:
    """Integers below ``x``, or slices of ``x``, chosen at random; see ``Generator.choice``.

    >>> ef.random.choice(5, (2, 2)).shape
    (2, 2)
    """
    return default_generator.choice(x, shape, replace, p, axis)


_missing, __dir__ = members(__name__, __all__)


if TYPE_CHECKING:
    beta = default_generator.beta
    binomial = default_generator.binomial
    cauchy = default_generator.cauchy
    chi_square = default_generator.chi_square
    dirichlet = default_generator.dirichlet
    gamma = default_generator.gamma
    geometric = default_generator.geometric
    gumbel = default_generator.gumbel
    laplace = default_generator.laplace
    logistic = default_generator.logistic
    lognormal = default_generator.lognormal
    multinomial = default_generator.multinomial
    poisson = default_generator.poisson
    randint = default_generator.randint
    shuffle = default_generator.shuffle
    student_t = default_generator.student_t
    von_mises = default_generator.von_mises
else:

    def __getattr__(name: str) -> Any:
        return getattr(default_generator, name) if name in LATE else _missing(name)
