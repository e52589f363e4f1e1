"""A language model of LSTM layers."""

from __future__ import annotations

from typing import NamedTuple

from eagerflow.nn.arguments import require
from eagerflow.nn.initializers import RandomUniform
from eagerflow.nn.layers.core import Dense, Input
from eagerflow.nn.layers.embedding import Embedding
from eagerflow.nn.layers.noise import Dropout
from eagerflow.nn.layers.recurrent import LSTM
from eagerflow.nn.sequential import Sequential

__all__ = ["lstm_language_model"]


class _Size(NamedTuple):
    units: int
    dropout: float
    bound: float


_SIZES = {
    "small": _Size(200, 0.0, 0.1),
    "medium": _Size(650, 0.5, 0.05),
    "large": _Size(1500, 0.65, 0.04),
}


def lstm_language_model(
    size: str = "medium",
    vocabulary: int = 10_000,
    units: int | None = None,
    depth: int = 2,
    batch_size: int | None = None,
    name: str = "lstm_language_model",
) -> Sequential:
    """A language model of LSTM layers: logits of the next word at each position of a text.

    Inputs are integers (batch, length) below ``vocabulary``; outputs are logits (batch, length,
    vocabulary). ``size`` is ``"small"``, ``"medium"`` or ``"large"``: 200, 650 or 1500 units in
    ``depth`` layers, dropout of 0, 0.5 or 0.65 between layers, and weights that begin from -b to b,
    b being 0.1, 0.05 or 0.04. Parameters are 4,651,600, 19,775,200 or 66,022,000. ``units``
    overrides the size's. With a ``batch_size`` the layers continue from the states of the previous
    batch, as in the paper; ``layer.reset_state()`` resets them. Biases begin with 0. Raises
    ArgumentError for other sizes. Source: Zaremba and others, "Recurrent neural network
    regularization", 2014.

    >>> model = ef.nn.networks.lstm_language_model("small", vocabulary=50, units=8)
    >>> model(ef.tensor([[1, 2, 3]])).shape, model.count_params()
    ((1, 3, 50), 1938)
    """
    names = ", ".join(map(repr, _SIZES))
    op = "lstm_language_model"
    require(size in _SIZES, size, "not a size", op, "size", f"one of {names}")
    width, dropout, bound = _SIZES[size]
    width = width if units is None else units
    uniform = RandomUniform(-bound, bound)
    layers = [
        layer
        for _ in range(depth)
        for layer in (
            Dropout(dropout),
            LSTM(
                width,
                return_sequences=True,
                stateful=batch_size is not None,
                kernel_initializer=uniform,
                recurrent_initializer=uniform,
                unit_forget_bias=False,
            ),
        )
    ]
    return Sequential(
        [
            Input((None,), batch_size, dtype="int64", name="words"),
            Embedding(vocabulary, width, embeddings_initializer=uniform),
            *layers,
            Dropout(dropout),
            Dense(vocabulary, kernel_initializer=uniform, name="logits"),
        ],
        name=name,
    )
