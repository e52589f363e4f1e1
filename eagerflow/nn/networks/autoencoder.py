"""An autoencoder: a network that has to pass its inputs on through a few numbers."""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.nn.layers.core import Dense, Input
from eagerflow.nn.model import Model
from eagerflow.nn.sequential import Sequential

__all__ = ["autoencoder"]


def autoencoder(
    features: int = 784,
    units: Sequence[int] = (1000, 500, 250),
    code: int = 30,
    activation: str = "sigmoid",
    name: str = "autoencoder",
) -> Model:
    """A deep autoencoder: logits of its inputs, from a code of a few numbers.

    Inputs have shape (batch, features), numbers from 0 to 1; outputs are their logits. The layers
    called ``encoder`` and ``decoder`` are models: the one has layers of ``units`` and then a linear
    one of ``code``, the other has them in reverse. The defaults are the network for handwritten
    digits, of 2,837,314 parameters; there, layers are trained one by one before. Source: Hinton
    and Salakhutdinov, "Reducing the dimensionality of data with neural networks", 2006.

    >>> model = ef.nn.networks.autoencoder(16, (8,), code=2)
    >>> x = ef.zeros((5, 16))
    >>> model(x).shape, model.get_layer("encoder")(x).shape, model.count_params()
    ((5, 16), (5, 2), 322)
    """
    inward = [Dense(count, activation) for count in units]
    outward = [Dense(count, activation) for count in reversed(units)]
    encoder = Sequential([Input((features,)), *inward, Dense(code)], name="encoder")
    decoder = Sequential([Input((code,)), *outward, Dense(features)], name="decoder")
    x = Input((features,), name="inputs")
    return Model(x, decoder(encoder(x)), name=name)
