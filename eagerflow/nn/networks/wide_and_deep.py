"""Wide & Deep: a linear model of crossed features beside a network of embeddings."""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.nn.layers.core import Dense, Input
from eagerflow.nn.layers.embedding import Embedding
from eagerflow.nn.layers.merging import Add, Concatenate
from eagerflow.nn.model import Model

__all__ = ["wide_and_deep"]


def wide_and_deep(
    vocabularies: Sequence[int],
    numbers: int,
    crosses: Sequence[tuple[int, int]] = (),
    embedding: int = 32,
    units: Sequence[int] = (1024, 512, 256),
    outputs: int = 1,
    name: str = "wide_and_deep",
) -> Model:
    """Wide & Deep: logits (batch, outputs) from categories and numbers.

    Inputs are a dict of ``categories``, integers (batch, n) of which column i is below
    ``vocabularies[i]``, and ``numbers``, floats (batch, numbers). The wide part has a weight for
    each category, and for each pair of categories of the columns in ``crosses``; the deep part has
    vectors of ``embedding`` numbers for categories, which go, with the numbers, through layers of
    ``units``. Both are trained by a single optimizer; in the paper each has its own. Source: Cheng
    and others, "Wide & deep learning for recommender systems", 2016.

    >>> model = ef.nn.networks.wide_and_deep([5, 3], 2, crosses=[(0, 1)], units=(16, 8))
    >>> inputs = {"categories": ef.tensor([[4, 2]]), "numbers": ef.ones((1, 2))}
    >>> model(inputs).shape, model.count_params()
    ((1, 1), 1496)
    """
    categories = Input((len(vocabularies),), dtype="int64", name="categories")
    given = Input((numbers,), name="numbers")
    columns = [categories[:, i] for i in range(len(vocabularies))]
    wide = [(column, size) for column, size in zip(columns, vocabularies, strict=True)]
    for i, j in crosses:
        pair = columns[i] * vocabularies[j] + columns[j]
        wide.append((pair, vocabularies[i] * vocabularies[j]))
    linear = [Embedding(size, outputs, "zeros")(column) for column, size in wide]
    vectors = [
        Embedding(size, embedding)(column)
        for column, size in zip(columns, vocabularies, strict=True)
    ]
    x = Concatenate()([*vectors, given])
    for count in units:
        x = Dense(count, "relu")(x)
    logits = Add()([*linear, Dense(outputs)(x)])
    return Model({"categories": categories, "numbers": given}, logits, name=name)
