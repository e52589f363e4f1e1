"""Positions in sequences, as numbers that networks can use."""

from __future__ import annotations

from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dims import Shape
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import Count, TensorLike, number
from eagerflow.nn.configured import arguments
from eagerflow.nn.initializers import Initializer, InitializerLike
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.ops.operands import floating
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = [
    "PositionEmbedding",
    "RotaryEmbedding",
    "SinePositionEncoding",
    "rotary_embedding",
    "sinusoidal_positions",
]

Positive = Annotated[float, number(lambda x: x > 0, "not positive", "a number above 0")]


def places(x: Tensor, axis: int) -> Tensor:
    """0, 1, 2 ... along an axis of ``x``, as int64, also where its size has a name only."""
    size = x.shape[axis]
    if isinstance(size, int):
        return ops.arange(size)
    line = x[tuple([slice(None) if i == axis % x.ndim else 0 for i in range(x.ndim)])]
    return ops.cumulative_sum(ops.ones_like(line, dtype="int64")) - 1


def _angles(positions: TensorLike, width: Any, max_wavelength: float) -> Tensor:
    """The angle of each position for each pair of numbers; waves from 2 pi to longer ones."""
    even = ops.arange(0, width, 2, dtype="float32")
    rates = ops.power(max_wavelength, even / -float(width))
    found: Tensor = as_tensor(positions).astype("float32")[..., None] * rates
    return found


def sinusoidal_positions(
    positions: TensorLike, width: int, max_wavelength: float = 10_000.0
) -> Tensor:
    """Sines and cosines of positions, in turn, of ``width / 2`` wavelengths.

    ``positions`` are numbers of any shape; the result has an additional axis of ``width``, in
    float32. The longest wave has ``2 pi max_wavelength`` positions. Source: Vaswani and others,
    "Attention is all you need", 2017.

    >>> ef.nn.sinusoidal_positions([0, 1], 4)
    Tensor([[0.    , 1.    , 0.    , 1.    ],
            [0.8415, 0.5403, 0.01  , 0.9999]], shape=(2, 4), float32, cpu:0)
    """
    angles = _angles(positions, width, max_wavelength)
    both = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    whole = ops.reshape(both, (*angles.shape[:-1], 2 * angles.shape[-1]))
    return whole[..., :width]


def rotary_embedding(
    x: TensorLike,
    positions: TensorLike = None,
    max_wavelength: float = 10_000.0,
    scaling_factor: float = 1.0,
    axis: int = -2,
) -> Tensor:
    """Vectors turned by angles that grow with their positions.

    ``x`` is a tensor of floats, as which integers are taken; each number of the first half of its
    last axis is turned together with that of the second half. ``positions`` are those along
    ``axis``, shape (length) or (batch, length), by default 0, 1, 2 ...; they are divided by
    ``scaling_factor``. Products of queries and keys then depend on their distance. Raises
    ShapeError for an odd last axis. Source: Su and others, "RoFormer", 2021.

    >>> ef.nn.rotary_embedding(ef.tensor([[1.0, 0.0], [1.0, 0.0]]))
    Tensor([[1.    , 0.    ],
            [0.5403, 0.8415]], shape=(2, 2), float32, cpu:0)
    """
    x = floating(as_tensor(x))
    width, at = x.shape[-1], normalize_axis(axis, x.ndim)
    if width % 2:
        raise ShapeError(
            "an odd number of elements cannot be split into pairs",
            op="rotary_embedding",
            argument="x",
            received=f"shape {x.shape}",
            expected="an even last axis",
        )
    where = as_tensor(places(x, at) if positions is None else positions).astype("float32")
    angles = _angles(where / scaling_factor, width, max_wavelength)
    # The axes of positions and those of x between them, so that they broadcast.
    between = (1,) * (x.ndim - 2 - at)
    lead = (angles.shape[0], *(1,) * (at - 1)) if angles.ndim == 3 else ()
    angles = ops.reshape(angles, (*lead, angles.shape[-2], *between, angles.shape[-1]))
    sine, cosine = ops.sin(angles).astype(x.dtype), ops.cos(angles).astype(x.dtype)
    first, second = x[..., : width // 2], x[..., width // 2 :]
    return ops.concat([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def _positions(x: Tensor, axis: int, start_index: Any, positions: TensorLike) -> Any:
    return places(x, axis) + start_index if positions is None else positions


class RotaryEmbedding(Layer):
    """Queries or keys turned by angles that grow with their positions; no weights.

    Inputs have shape (batch, length, heads, width) or (batch, length, width): ``sequence_axis`` is
    that of positions. A call takes ``start_index``, the position of the first, or ``positions``.
    See ``rotary_embedding`` for the rotations. Raises ShapeError for an odd width. Source: Su and
    others, "RoFormer", 2021.

    >>> ef.nn.RotaryEmbedding()(ef.ones((1, 2, 2)), start_index=1)
    Tensor([[[-0.3012,  1.3818],
             [-1.3254,  0.4932]]], shape=(1, 2, 2), float32, cpu:0)
    """

    max_wavelength: float
    scaling_factor: float
    sequence_axis: int

    @arguments
    def __init__(
        self,
        max_wavelength: Positive = 10_000.0,
        scaling_factor: Positive = 1.0,
        sequence_axis: int = 1,
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def call(self, inputs: Tensor, start_index: Any = 0, positions: TensorLike = None) -> Tensor:
        self.expect(inputs, min_rank=2)
        axis = normalize_axis(self.sequence_axis, inputs.ndim)
        found = _positions(inputs, axis, start_index, positions)
        return rotary_embedding(inputs, found, self.max_wavelength, self.scaling_factor, axis)


class SinePositionEncoding(Layer):
    """Sines and cosines of positions, of the shape of the inputs, to be added to these.

    Inputs have shape (batch, ..., length, width). A call takes ``start_index``, the position of
    the first, or ``positions``. Source: Vaswani and others, "Attention is all you need", 2017.

    >>> ef.nn.SinePositionEncoding()(ef.ones((1, 2, 2)))
    Tensor([[[0.    , 1.    ],
             [0.8415, 0.5403]]], shape=(1, 2, 2), float32, cpu:0)
    """

    max_wavelength: float

    @arguments
    def __init__(
        self, max_wavelength: Positive = 10_000.0, **options: Unpack[LayerOptions]
    ) -> None: ...

    def call(self, inputs: Tensor, start_index: Any = 0, positions: TensorLike = None) -> Tensor:
        self.expect(inputs, min_rank=2)
        found = _positions(inputs, -2, start_index, positions)
        waves = sinusoidal_positions(found, inputs.shape[-1], self.max_wavelength)
        return ops.broadcast_to(waves.astype(floating(inputs).dtype), inputs.shape)


class PositionEmbedding(Layer):
    """A learned vector for each position, of the shape of the inputs, to be added to these.

    Inputs have shape (batch, ..., length, width), length up to ``sequence_length``. A call takes
    ``start_index``, the position of the first, or ``positions``. Raises IndexRangeError for
    positions from ``sequence_length`` on.

    >>> ef.nn.PositionEmbedding(8)(ef.ones((2, 5, 3))).shape
    (2, 5, 3)
    """

    sequence_length: int
    initializer: Initializer
    position_embeddings: Variable

    @arguments
    def __init__(
        self,
        sequence_length: Count,
        initializer: InitializerLike = "glorot_uniform",
        **options: Unpack[LayerOptions],
    ) -> None: ...

    def build(self, input_shape: Shape) -> None:
        shape = self.sequence_length, input_shape[-1]
        self.position_embeddings = self.add_weight(shape, self.initializer, "embeddings")

    def call(self, inputs: Tensor, start_index: Any = 0, positions: TensorLike = None) -> Tensor:
        self.expect(inputs, min_rank=2)
        found = _positions(inputs, -2, start_index, positions)
        vectors = ops.take(self.value(self.position_embeddings), found, axis=0)
        return ops.broadcast_to(vectors, inputs.shape)
