"""First values of weights, by Keras' names and formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.dtypes import as_dtype
from eagerflow.nn.arguments import Float, choice, number
from eagerflow.nn.configured import arguments, from_config
from eagerflow.nn.constant_initializers import (
    STFT,
    Constant,
    Identity,
    Initializer,
    Ones,
    Zeros,
    expect_rank,
)
from eagerflow.ops import random
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.tensor import Tensor

__all__ = [
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "Initializer",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "STFT",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    "constant",
    "get",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "stft",
    "truncated_normal",
    "variance_scaling",
    "zeros",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class _Random(Initializer):
    """Base of random initializers: with a ``seed``, every call returns the same numbers."""

    seed: int | None

    @arguments
    def __init__(self, seed: int | None = None) -> None: ...

    def _generator(self) -> random.Generator:
        return random.default_generator if self.seed is None else random.Generator(self.seed)


class RandomNormal(_Random):
    """Numbers of a normal distribution.

    >>> ef.nn.initializers.RandomNormal(stddev=0.1, seed=0)((2,))
    Tensor([0.1508, 0.092 ], float32, cpu:0)
    """

    mean: float
    stddev: float

    @arguments
    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None
    ) -> None: ...

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        return self._generator().normal(shape, self.mean, self.stddev, dtype)


class TruncatedNormal(RandomNormal):
    """Numbers of a normal distribution, none further than two ``stddev`` from ``mean``.

    >>> ef.nn.initializers.TruncatedNormal(seed=0)((2,))
    Tensor([ 0.0381, -0.0624], float32, cpu:0)
    """

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        return self._generator().truncated_normal(shape, self.mean, self.stddev, dtype)


class RandomUniform(_Random):
    """Numbers between ``minval`` and ``maxval``, all equally likely.

    >>> ef.nn.initializers.RandomUniform(0.0, 1.0, seed=0)((2,))
    Tensor([0.7899, 0.0872], float32, cpu:0)
    """

    minval: float
    maxval: float

    @arguments
    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None
    ) -> None: ...

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        return self._generator().uniform(shape, self.minval, self.maxval, dtype)


_TRUNCATED_STDDEV = 0.87962566103423978
"""Standard deviation of the standard normal distribution cut off at -2 and 2."""

Scale = Annotated[float, number(lambda x: x > 0, "not positive")]
FanMode = Annotated[str, choice("not a choice", "fan_in", "fan_out", "fan_avg")]
_distribution = choice("not a choice", "truncated_normal", "untruncated_normal", "uniform")
Distribution = Annotated[
    str, lambda name: _distribution("truncated_normal" if name == "normal" else name)
]
FanAxes = Annotated[Sequence[int], tuple]


class VarianceScaling(_Random):
    """Random numbers whose variance is ``scale`` over the number of connections.

    ``mode`` selects the connections: ``"fan_in"``, ``"fan_out"`` or ``"fan_avg"``; ``distribution``
    is ``"truncated_normal"`` (also ``"normal"``), ``"untruncated_normal"`` or ``"uniform"``. The
    last two axes of a shape are inputs and outputs, those before them the receptive field, unless
    ``input_axes`` and ``output_axes`` specify the axes to multiply. Raises ArgumentError for other
    choices.

    >>> ef.nn.initializers.VarianceScaling(2.0, "fan_in", seed=0)((3, 2)).shape
    (3, 2)
    """

    scale: float
    mode: str
    distribution: str
    input_axes: tuple[int, ...] | None
    output_axes: tuple[int, ...] | None

    @arguments
    def __init__(
        self,
        scale: Scale = 1.0,
        mode: FanMode = "fan_in",
        distribution: Distribution = "truncated_normal",
        seed: int | None = None,
        input_axes: FanAxes | None = None,
        output_axes: FanAxes | None = None,
    ) -> None: ...

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        fan_in, fan_out = self._fans(tuple(shape))
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, fan)
        source = self._generator()
        kind = as_dtype(dtype)
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * variance)
            return source.uniform(shape, -limit, limit, kind)
        if self.distribution == "untruncated_normal":
            return source.normal(shape, 0.0, math.sqrt(variance), kind)
        return source.truncated_normal(shape, 0.0, math.sqrt(variance) / _TRUNCATED_STDDEV, kind)

    def _fans(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Numbers of inputs and outputs that a weight of this shape connects."""
        if self.input_axes is not None and self.output_axes is not None:
            inputs, outputs = self.input_axes, self.output_axes
            return math.prod(shape[i] for i in inputs), math.prod(shape[i] for i in outputs)
        if len(shape) < 2:
            return math.prod(shape), math.prod(shape)
        field = math.prod(shape[:-2])
        return field * shape[-2], field * shape[-1]


class _NamedScaling(VarianceScaling):
    """Base of the scalings that have a name: ``scale``, ``mode`` and ``distribution`` are known."""

    _scaling: tuple[float, str, str]

    def __init__(
        self,
        seed: int | None = None,
        input_axes: FanAxes | None = None,
        output_axes: FanAxes | None = None,
    ) -> None:
        super().__init__(*self._scaling, seed, input_axes, output_axes)


class GlorotUniform(_NamedScaling):
    """Uniform numbers up to ``sqrt(6 / (fan_in + fan_out))``; Glorot and Bengio, 2010.

    >>> ef.nn.initializers.GlorotUniform(seed=0)((2, 1))
    Tensor([[ 0.8199],
            [-1.1675]], shape=(2, 1), float32, cpu:0)
    """

    _scaling = 1.0, "fan_avg", "uniform"


class GlorotNormal(_NamedScaling):
    """Truncated normal numbers of variance ``2 / (fan_in + fan_out)``; Glorot and Bengio, 2010.

    >>> ef.nn.initializers.GlorotNormal(seed=0)((2, 3)).shape
    (2, 3)
    """

    _scaling = 1.0, "fan_avg", "truncated_normal"


class HeNormal(_NamedScaling):
    """Truncated normal numbers of variance ``2 / fan_in``; He and others, 2015.

    >>> ef.nn.initializers.HeNormal(seed=0)((2, 3)).shape
    (2, 3)
    """

    _scaling = 2.0, "fan_in", "truncated_normal"


class HeUniform(_NamedScaling):
    """Uniform numbers up to ``sqrt(6 / fan_in)``; He and others, 2015.

    >>> ef.nn.initializers.HeUniform(seed=0)((2, 3)).shape
    (2, 3)
    """

    _scaling = 2.0, "fan_in", "uniform"


class LecunNormal(_NamedScaling):
    """Truncated normal numbers of variance ``1 / fan_in``; LeCun and others, 1998.

    >>> ef.nn.initializers.LecunNormal(seed=0)((2, 3)).shape
    (2, 3)
    """

    _scaling = 1.0, "fan_in", "truncated_normal"


class LecunUniform(_NamedScaling):
    """Uniform numbers up to ``sqrt(3 / fan_in)``; LeCun and others, 1998.

    >>> ef.nn.initializers.LecunUniform(seed=0)((2, 3)).shape
    (2, 3)
    """

    _scaling = 1.0, "fan_in", "uniform"


class Orthogonal(_Random):
    """``gain`` times a random matrix whose rows or columns, whichever are fewer, are orthonormal.

    All axes of the shape except the last are flattened. Raises ShapeError for fewer than two axes.
    Source: Saxe and others, arXiv:1312.6120.

    >>> w = ef.nn.initializers.Orthogonal(seed=0)((5, 2))
    >>> abs(w.mT @ w - ef.eye(2)).max() < 1e-6
    Tensor(True, bool, cpu:0)
    """

    gain: float

    @arguments
    def __init__(self, gain: Float = 1.0, seed: int | None = None) -> None: ...

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        expect_rank(self, len(shape) >= 2, shape, "at least 2 axes")
        sizes = math.prod(shape[:-1]), shape[-1]
        q, r = ops.qr(self._generator().normal((max(sizes), min(sizes)), dtype="float32"))
        # Without these signs, the distribution would depend on conventions of the decomposition.
        q = q * ops.where(ops.diagonal(r) < 0, -1.0, 1.0)
        tall = q if sizes[0] >= sizes[1] else q.mT
        return ops.astype(ops.reshape(tall, tuple(shape)) * self.gain, as_dtype(dtype))


# Keras has the classes under their names as functions too.
constant, identity, ones, zeros = Constant, Identity, Ones, Zeros
glorot_normal, glorot_uniform = GlorotNormal, GlorotUniform
he_normal, he_uniform = HeNormal, HeUniform
lecun_normal, lecun_uniform = LecunNormal, LecunUniform
random_normal, random_uniform, truncated_normal = RandomNormal, RandomUniform, TruncatedNormal
orthogonal, stft, variance_scaling = Orthogonal, STFT, VarianceScaling

_TABLE: dict[str, Any] = {
    name: globals()[name] for name in __all__ if name.islower() and name != "get"
}
_TABLE |= {"normal": RandomNormal, "one": Ones, "uniform": RandomUniform, "zero": Zeros}
_TABLE |= {f"{name}_initializer": _TABLE[name] for name in ("identity", "orthogonal", "stft")}


def get(identifier: Any) -> Any:
    """Return the initializer for a name, a configuration or a callable.

    >>> ef.nn.initializers.get("zeros")((2,))
    Tensor([0., 0.], float32, cpu:0)
    """
    return from_config("initializer", identifier, _TABLE, callable)


InitializerLike = Annotated[str | Mapping[str, Any] | Callable[..., Any], get]
"""An initializer or another function of a shape and a dtype, its name, or its configuration."""
