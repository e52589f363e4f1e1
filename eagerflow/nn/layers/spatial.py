"""Common parts of layers over channels-last signals, images and volumes: a class per rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import choice, is_count, require
from eagerflow.nn.layer import Layer
from eagerflow.tensor import Tensor

__all__: list[str] = []


def _channels_last(value: Any) -> str:
    if value not in (None, "channels_last"):
        raise ArgumentError(
            f"{value!r} is not a data format here",
            expected="'channels_last', or None for the same",
            hint="ef.moveaxis(x, 1, -1) puts channels last",
        )
    return "channels_last"


Window = int | Sequence[int]
"""An integer, or one for each spatial axis."""
Margins = int | Sequence[int] | Sequence[Sequence[int]]
"""Elements at the ends of each spatial axis: a number for all, one for each, or pairs."""
Padding = Annotated[str, choice("not a padding", "valid", "same", expected="'valid' or 'same'")]
"""Whether windows lie inside, or there is one for each stride."""
DataFormat = Annotated[str | None, _channels_last]
"""Where the channels are, for the signatures of Keras: last."""

_AXES = {1: ("steps",), 2: ("rows", "columns"), 3: ("planes", "rows", "columns")}


class SpatialLayer(Layer):
    """Base of layers over (batch, *spatial, channels), with a subclass for each ``rank``.

    Masks of steps end here, as in Keras: the outputs have other axes.
    """

    supports_masking = False
    rank: int
    data_format: str

    def per_axis(self, *names: str, least: int = 1) -> None:
        """Make a tuple of each of these attributes: an integer, or one for each spatial axis."""
        for name in names:
            setattr(self, name, self._integers(name, getattr(self, name), self.rank, least))

    def margins(self, name: str) -> None:
        """Convert this attribute to pairs (before, after), one for each spatial axis."""
        given = getattr(self, name)
        spread = isinstance(given, tuple | list) and self.rank > 1
        items = tuple(given) if spread else (given,) * self.rank
        wanted = f"an integer, or a pair (before, behind) for each of {self.rank} axes"
        fits = len(items) == self.rank
        require(fits, given, "not for each spatial axis", self._label, name, wanted)
        setattr(self, name, tuple(self._integers(name, item, 2, 0) for item in items))

    def _integers(self, name: str, value: Any, number: int, least: int) -> tuple[int, ...]:
        items = tuple(value) if isinstance(value, tuple | list) else (value,) * number
        expected = f"an integer of at least {least}"
        if number > 1:
            expected = f"integers of at least {least}, {number} of them or one for all"
        wrong = "out of range" if len(items) == number else f"not {number} numbers"
        fits = len(items) == number and all(is_count(item, least) for item in items)
        require(fits, value, wrong, self._label, name, expected)
        return tuple(int(item) for item in items)

    @property
    def layout(self) -> str:
        """The axes of the inputs, as errors name them."""
        return f"(batch, {', '.join(_AXES[self.rank])}, channels)"

    def expect_layout(self, inputs: Tensor, channels: Any = None) -> None:
        """Raise a ShapeError unless the inputs have the layer's axes and number of channels."""
        self.expect(inputs, rank=self.rank + 2, last=channels)
