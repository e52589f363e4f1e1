"""The layers of einops: Rearrange, Reduce and EinMix."""

from __future__ import annotations

from typing import Any

import einops
from einops.layers._einmix import _EinmixMixin

from eagerflow import ops
from eagerflow.nn.initializers import RandomUniform
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["EinMix", "Rearrange", "Reduce"]


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """What every layer takes, such as ``name``, removed from the sizes of axes."""
    return {key: given.pop(key) for key in LayerOptions.__annotations__ if key in given}


class Rearrange(Layer):
    """``einops.rearrange`` as a layer.

    ``pattern`` is that of einops, also with the batch axis; ``axes_lengths`` are sizes of its axes,
    and the arguments of every layer, such as ``name``. Raises EinopsError for patterns that do not
    fit the inputs.

    >>> from eagerflow.einops.layers import Rearrange
    >>> Rearrange("b (h w) c -> b h w c", h=2)(ef.ones((5, 6, 3))).shape
    (5, 2, 3, 3)
    """

    def __init__(self, pattern: str, **axes_lengths: Any) -> None:
        super().__init__(**_options(axes_lengths))
        self.pattern, self.axes_lengths = pattern, axes_lengths

    def call(self, inputs: Tensor) -> Tensor:
        return einops.rearrange(inputs, self.pattern, **self.axes_lengths)


class Reduce(Layer):
    """``einops.reduce`` as a layer.

    ``reduction`` is ``"sum"``, ``"mean"``, ``"max"``, ``"min"``, ``"prod"``, ``"any"`` or
    ``"all"``; the rest is as for ``Rearrange``.

    >>> from eagerflow.einops.layers import Reduce
    >>> Reduce("b (h 2) (w 2) c -> b h w c", "max")(ef.ones((5, 4, 4, 3))).shape
    (5, 2, 2, 3)
    """

    def __init__(self, pattern: str, reduction: str, **axes_lengths: Any) -> None:
        super().__init__(**_options(axes_lengths))
        self.pattern, self.reduction, self.axes_lengths = pattern, reduction, axes_lengths

    def call(self, inputs: Tensor) -> Tensor:
        return einops.reduce(inputs, self.pattern, self.reduction, **self.axes_lengths)


class EinMix(_EinmixMixin, Layer):
    """``einops``'s EinMix: a sum over the products of inputs and a weight, and a bias.

    ``pattern`` has the axes of inputs and outputs, ``weight_shape`` and ``bias_shape`` those of the
    weights, whose sizes are ``axes_lengths``. Raises EinopsError for patterns that do not fit.

    >>> from eagerflow.einops.layers import EinMix
    >>> layer = EinMix("b t (h c) -> b t (h d)", "h c d", "h d", h=2, c=3, d=4)
    >>> layer(ef.ones((5, 7, 6))).shape, layer.weight.shape
    ((5, 7, 8), (2, 3, 4))
    """

    bias: Variable | None

    def __init__(
        self, pattern: str, weight_shape: str, bias_shape: str | None = None, **axes_lengths: int
    ) -> None:
        Layer.__init__(self, **_options(axes_lengths))
        self.pattern, self.axes_lengths = pattern, axes_lengths
        self.weight_shape, self.bias_shape = weight_shape, bias_shape
        self.initialize_einmix(pattern, weight_shape, bias_shape, axes_lengths)

    def _create_parameters(
        self,
        weight_shape: list[int],
        weight_bound: float,
        bias_shape: list[int] | None,
        bias_bound: float,
    ) -> None:
        self._weights_of = (tuple(weight_shape), weight_bound)
        self._bias_of = None if bias_shape is None else (tuple(bias_shape), bias_bound)

    def _create_rearrange_layers(
        self, before: str | None, lengths: dict[str, int] | None, after: str | None, later: Any
    ) -> None:
        self.before = None if before is None else Rearrange(before, **(lengths or {}))
        self.after = None if after is None else Rearrange(after, **later)

    def build(self, input_shape: Any) -> None:
        self.weight = self._new_weight("weight", *self._weights_of)
        self.bias = None if self._bias_of is None else self._new_weight("bias", *self._bias_of)

    def _new_weight(self, name: str, shape: tuple[int, ...], bound: float) -> Variable:
        return self.add_weight(shape, RandomUniform(-bound, bound), name=name)

    def call(self, inputs: Tensor) -> Tensor:
        x = inputs if self.before is None else self.before(inputs)
        x = ops.einsum(self.einsum_pattern, x, self.weight)
        x = x if self.bias is None else x + self.bias
        return x if self.after is None else self.after(x)
