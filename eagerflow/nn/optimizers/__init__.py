"""Optimizers: they keep their state in Variables, and change weights along gradients."""

from __future__ import annotations

from typing import Any

from eagerflow.nn import schedules as schedules
from eagerflow.nn.configured import from_config, snake_case
from eagerflow.nn.optimizers.adam import Adam, Adamax, AdamW, Nadam
from eagerflow.nn.optimizers.adaptive import Adadelta, Adagrad, Ftrl, RMSprop
from eagerflow.nn.optimizers.base import Optimizer
from eagerflow.nn.optimizers.descent import SGD, Lion

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lion",
    "Nadam",
    "Optimizer",
    "RMSprop",
    "SGD",
    "get",
    "schedules",
]

_CLASSES: tuple[type[Optimizer], ...] = (
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    Adamax,
    Ftrl,
    Lion,
    Nadam,
    RMSprop,
    SGD,
)
_TABLE = {snake_case(cls.__name__): cls for cls in _CLASSES} | {"adamw": AdamW, "rmsprop": RMSprop}


def get(identifier: Any) -> Any:
    """The optimizer that a name, a configuration or an optimizer stands for.

    >>> ef.nn.optimizers.get("adam")
    <Adam: learning_rate=0.001, step 0>
    """
    return from_config("optimizer", identifier, _TABLE, lambda x: isinstance(x, Optimizer))
