"""Optimizers: they keep their state in Variables, and change weights along gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagerflow.nn import schedules as schedules
from eagerflow.nn.optimizers.adam import Adam, Adamax, AdamW, Nadam, ScheduleFreeAdamW
from eagerflow.nn.optimizers.adaptive import Adadelta, Adagrad, Ftrl, RMSprop
from eagerflow.nn.optimizers.base import Optimizer
from eagerflow.nn.optimizers.descent import SGD, Lion
from eagerflow.nn.optimizers.lbfgs import LBFGS
from eagerflow.nn.optimizers.loss_scale import LossScaleOptimizer
from eagerflow.nn.optimizers.norms import Adafactor, Lamb, Muon
from eagerflow.nn.optimizers.table import get, offer
from eagerflow.ops.other_names import members

__all__ = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "LBFGS",
    "Lamb",
    "Lion",
    "LossScaleOptimizer",
    "Muon",
    "Nadam",
    "Optimizer",
    "RMSprop",
    "SGD",
    "ScheduleFreeAdamW",
    "get",
    "schedules",
]

offer(
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Adamax,
    Ftrl,
    Lamb,
    Lion,
    LossScaleOptimizer,
    Muon,
    Nadam,
    RMSprop,
    SGD,
    ScheduleFreeAdamW,
)

if not TYPE_CHECKING:  # so that checkers of types refuse other names as well
    __getattr__, __dir__ = members(__name__, __all__)
