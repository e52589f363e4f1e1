"""Callbacks: actions between the steps and epochs of ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagerflow.nn.callbacks.averages import SwapEMAWeights
from eagerflow.nn.callbacks.backup import BackupAndRestore
from eagerflow.nn.callbacks.base import Callback, CallbackList, LambdaCallback
from eagerflow.nn.callbacks.history import CSVLogger, History
from eagerflow.nn.callbacks.monitors import EarlyStopping, Monitor, TerminateOnNaN
from eagerflow.nn.callbacks.rates import LearningRateScheduler, ReduceLROnPlateau
from eagerflow.nn.callbacks.saving import ModelCheckpoint
from eagerflow.nn.callbacks.tensorboard import TensorBoard
from eagerflow.ops.other_names import members

__all__ = [
    "BackupAndRestore",
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "Monitor",
    "ReduceLROnPlateau",
    "SwapEMAWeights",
    "TensorBoard",
    "TerminateOnNaN",
]

if not TYPE_CHECKING:  # so that checkers of types refuse other names as well
    __getattr__, __dir__ = members(__name__, __all__)
