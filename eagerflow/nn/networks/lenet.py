"""LeNet-5: the convolutional network that read handwritten digits."""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.nn.layers.convolution import Conv2D
from eagerflow.nn.layers.core import Dense, Flatten, Input
from eagerflow.nn.layers.pooling import AveragePooling2D
from eagerflow.nn.sequential import Sequential

__all__ = ["lenet5"]


def lenet5(
    classes: int = 10, input_shape: Sequence[int] = (32, 32, 1), name: str = "lenet5"
) -> Sequential:
    """LeNet-5: logits of ``classes`` for images of digits, from 61,706 parameters.

    Inputs have shape (batch, 32, 32, 1) unless ``input_shape`` says otherwise. The network of 1998
    has 60,000 trained parameters. Here, as is usual, all maps of the second convolution see all of
    the first, which adds 900 parameters; pooling has no weights, which takes 44 away; activations
    are ``tanh`` without factors; and the last layer is dense, of 850 parameters, where there
    distances from fixed patterns were computed. Source: LeCun and others, "Gradient-based learning
    applied to document recognition", 1998.

    >>> model = ef.nn.networks.lenet5()
    >>> model(ef.zeros((2, 32, 32, 1))).shape, model.count_params()
    ((2, 10), 61706)
    """
    return Sequential(
        [
            Input(tuple(input_shape), name="images"),
            Conv2D(6, 5, activation="tanh"),
            AveragePooling2D(2),
            Conv2D(16, 5, activation="tanh"),
            AveragePooling2D(2),
            Flatten(),
            Dense(120, "tanh"),
            Dense(84, "tanh"),
            Dense(classes, name="logits"),
        ],
        name=name,
    )
