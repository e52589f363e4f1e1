"""First values of weights that are the same in every call."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dtypes import as_dtype
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.nn.arguments import Float, TensorLike, choice
from eagerflow.nn.configured import Configured, arguments, find
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.ops.creation.filled import full, ones, zeros
from eagerflow.tensor import Tensor

__all__ = ["STFT", "Constant", "Identity", "Initializer", "Ones", "Zeros"]


class Initializer(Configured):
    """Base of initializers: called with a shape and a dtype, they return a tensor.

    >>> class Halves(ef.nn.initializers.Initializer):
    ...     def __call__(self, shape, dtype="float32"):
    ...         return ef.full(shape, 0.5, dtype=dtype)
    >>> Halves()((2,))
    Tensor([0.5, 0.5], float32, cpu:0)
    """

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        """First values of this shape and dtype."""
        raise ArgumentError("the class does not define __call__", op=type(self).__name__)


class Zeros(Initializer):
    """All values 0.

    >>> ef.nn.initializers.Zeros()((2,))
    Tensor([0., 0.], float32, cpu:0)
    """

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        return zeros(shape, dtype=dtype)


class Ones(Initializer):
    """All values 1.

    >>> ef.nn.initializers.Ones()((2,))
    Tensor([1., 1.], float32, cpu:0)
    """

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        return ones(shape, dtype=dtype)


class Constant(Initializer):
    """All values ``value``, a number, or an array that broadcasts to the shape.

    >>> ef.nn.initializers.Constant(0.5)((2,))
    Tensor([0.5, 0.5], float32, cpu:0)
    """

    value: TensorLike

    @arguments
    def __init__(self, value: TensorLike = 0.0) -> None: ...

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        if isinstance(self.value, int | float):
            return full(shape, self.value, dtype=dtype)
        return ops.broadcast_to(as_tensor(self.value, dtype=as_dtype(dtype)), tuple(shape))


class Identity(Initializer):
    """``gain`` times the identity matrix; raises ShapeError for other shapes.

    >>> ef.nn.initializers.Identity(2.0)((2, 3))
    Tensor([[2., 0., 0.],
            [0., 2., 0.]], shape=(2, 3), float32, cpu:0)
    """

    gain: float

    @arguments
    def __init__(self, gain: Float = 1.0) -> None: ...

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        expect_rank(self, len(shape) == 2, shape, "2 axes")
        return ops.eye(*shape, dtype=dtype) * self.gain  # type: ignore[misc]


def expect_rank(initializer: Initializer, ok: bool, shape: Sizes, expected: str) -> None:
    """Raise a ShapeError that names the initializer unless ``ok``."""
    if not ok:
        raise ShapeError(
            "no such weight can begin like this",
            op=initializer._label,
            argument="shape",
            received=f"shape {tuple(shape)}",
            expected=expected,
        )


_COSINES = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08)}
Side = Annotated[str, choice("not a side", "real", "imag")]
Scaling = Annotated[str, choice("not a scaling", "density", "spectrum")]


class STFT(Initializer):
    """The kernel of a convolution that is a short-time Fourier transform.

    ``side`` is ``"real"`` or ``"imag"``. ``window`` is ``"hann"``, ``"hamming"``, ``"blackman"``,
    an array of the length of a frame, or None; ``periodic`` omits its last value. ``scaling``
    divides by the window's root sum of squares (``"density"``), its sum (``"spectrum"``) or not at
    all (None). The shape is (frame length, channels, frequencies). Raises ArgumentError for other
    choices, ShapeError for other shapes.

    >>> ef.nn.initializers.STFT("real", None)((4, 1, 3))[:, 0, 1].round()
    Tensor([ 1.,  0., -1., -0.], float32, cpu:0)
    """

    side: str
    window: str | TensorLike | None
    scaling: str | None
    periodic: bool

    @arguments
    def __init__(
        self,
        side: Side = "real",
        window: str | TensorLike | None = "hann",
        scaling: Scaling | None = "density",
        periodic: bool = False,
    ) -> None:
        if isinstance(window, str):
            find(f"{self._label}: window", window, _COSINES)

    def __call__(self, shape: Sizes, dtype: DTypeLike = "float32") -> Tensor:
        expect_rank(self, len(shape) == 3, shape, "(frame length, channels, frequencies)")
        frame, channels, frequencies = shape
        angles = np.outer(np.arange(frame), np.arange(frequencies)) * -np.pi / (frequencies - 1)
        kernel = np.cos(angles) if self.side == "real" else np.sin(angles)
        if self.window is not None:
            window = self._window(frame)
            expect_rank(self, window.shape == (frame,), window.shape, f"a window of {frame}")
            kernel = kernel * window[:, None]
            if self.scaling is not None:
                density = self.scaling == "density"
                kernel /= np.sqrt(np.square(window).sum()) if density else np.abs(window).sum()
        spread = np.broadcast_to(kernel[:, None], (frame, channels, frequencies))
        return as_tensor(np.array(spread), dtype=as_dtype(dtype))

    def _window(self, frame: int) -> Any:
        if not isinstance(self.window, str):
            return np.asarray(self.window, np.float64)
        turn = 2 * np.pi * np.arange(frame) / max(frame if self.periodic else frame - 1, 1)
        factors = _COSINES[self.window]
        return sum((-1) ** k * factor * np.cos(k * turn) for k, factor in enumerate(factors))
