"""Vectors for integers: words, categories, positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import INTEGERS, is_floating
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import Count, Float, TensorLike
from eagerflow.nn.configured import Untracked, arguments
from eagerflow.nn.constraints import ConstraintLike
from eagerflow.nn.initializers import Initializer, InitializerLike
from eagerflow.nn.layer import Layer, LayerOptions
from eagerflow.nn.regularizers import RegularizerLike
from eagerflow.ops.attributes import DTypeLike
from eagerflow.ops.indexing.slices import looked_up
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["Embedding", "ReversibleEmbedding"]


class EmbeddingOptions(LayerOptions, total=False):
    """The arguments of ``Embedding`` that are not repeated."""

    weights: TensorLike
    sparse: bool


def _rows(table: Tensor, indices: Tensor) -> Tensor:
    found: Tensor = ops.take(table, indices, axis=0)
    return found


class Embedding(Layer):
    """A learned vector for each of ``input_dim`` integers.

    Inputs are integers from 0 to below ``input_dim``, of any shape; outputs have one more axis, of
    ``output_dim`` numbers. With ``mask_zero`` an input of 0 is padding: the outputs have a mask
    that is False there. ``weights`` are initial values, of shape (input_dim, output_dim). With
    ``sparse`` the gradient of the vectors is an ``ef.IndexedSlices`` of the used ones, and
    optimizers leave others unchanged. Raises IndexRangeError for integers out of range, ShapeError
    for mismatched initial values; negative integers count from the end, as in ``ef.take``.

    >>> layer = ef.nn.Embedding(3, 2, weights=[[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> layer(ef.tensor([[1, 2]]))
    Tensor([[[1., 2.],
             [3., 4.]]], shape=(1, 2, 2), float32, cpu:0)
    """

    input_dim: int
    output_dim: int
    embeddings_initializer: Initializer
    embeddings_regularizer: Callable[..., Any] | None
    embeddings_constraint: Callable[..., Any] | None
    mask_zero: bool
    sparse: bool
    embeddings: Variable

    @arguments
    def __init__(
        self,
        input_dim: Count,
        output_dim: Count,
        embeddings_initializer: InitializerLike = "uniform",
        embeddings_regularizer: RegularizerLike = None,
        embeddings_constraint: ConstraintLike = None,
        mask_zero: bool = False,
        weights: TensorLike = None,
        sparse: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.supports_masking = mask_zero
        given = None if weights is None else as_tensor(weights, self.dtype, copy=True)
        if given is not None and given.ndim == 3:  # a list of one, as returned by get_weights
            given = given[0]
        shape = self.input_dim, self.output_dim
        if given is not None and given.shape != shape:
            raise ShapeError(
                "the initial values do not have the shape of the vectors",
                op=self._label,
                argument="weights",
                received=summary(given),
                expected=f"shape {shape}",
            )
        self._given = Untracked(given)

    def build(self, input_shape: Any = None) -> None:
        given = self._given.held
        self.embeddings = self.add_weight(
            (self.input_dim, self.output_dim),
            self.embeddings_initializer if given is None else lambda shape, dtype: given,
            "embeddings",
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
        )

    def call(self, inputs: Tensor) -> Tensor:
        indices = inputs if inputs.dtype in INTEGERS else inputs.astype("int32")
        found = (
            looked_up(_rows, self.embeddings, indices)
            if self.sparse
            else _rows(self.embeddings.value, indices)
        )
        return ops.astype(found, self.compute_dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return ops.not_equal(inputs, 0) if self.mask_zero else None

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["weights"]  # as with every layer, a configuration holds no numbers of weights
        if not self.sparse:  # which Keras's has not
            del config["sparse"]
        return config


class ReversibleEmbedding(Embedding):
    """An embedding that can be reversed: ``layer(x, reverse=True)`` scores each of the integers.

    In reverse, inputs have shape (..., output_dim) and outputs (..., input_dim): products with the
    vectors themselves, or with a separate kernel unless ``tie_weights``. ``reverse_dtype`` is the
    dtype of these products; ``logit_soft_cap`` bounds their magnitude, by ``tanh``. Source: Press
    and Wolf, "Using the output embedding", 2017.

    >>> layer = ef.nn.ReversibleEmbedding(10, 4)
    >>> layer(layer(ef.tensor([[1, 2, 3]])), reverse=True).shape
    (1, 3, 10)
    """

    tie_weights: bool
    reverse_dtype: DTypeLike
    logit_soft_cap: float | None

    @arguments
    def __init__(
        self,
        input_dim: Count,
        output_dim: Count,
        tie_weights: bool = True,
        embeddings_initializer: InitializerLike = "uniform",
        embeddings_regularizer: RegularizerLike = None,
        embeddings_constraint: ConstraintLike = None,
        mask_zero: bool = False,
        reverse_dtype: DTypeLike = None,
        logit_soft_cap: Float | None = None,
        **options: Unpack[EmbeddingOptions],
    ) -> None: ...

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        if not self.tie_weights:
            shape = self.output_dim, self.input_dim
            self.reverse_embeddings = self.add_weight(
                shape, self.embeddings_initializer, "reverse_embeddings"
            )

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if not reverse:
            return super().call(inputs)
        self.expect(inputs, min_rank=1, last=self.output_dim)
        tied = self.tie_weights
        kernel = self.value(self.embeddings).mT if tied else self.value(self.reverse_embeddings)
        if self.reverse_dtype is not None:
            inputs, kernel = inputs.astype(self.reverse_dtype), kernel.astype(self.reverse_dtype)
        logits = ops.matmul(inputs, kernel)
        cap = self.logit_soft_cap
        return logits if cap is None else ops.tanh(logits / cap) * cap

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of integers; scores have none."""
        floating = is_floating(inputs.dtype)
        return None if floating else super().compute_mask(inputs, previous_mask)
