"""Shared by the classical models of ``ai.onnx.ml``: features, scores, and labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.onnx.reading.calls import Call

TINY = 1e-7  # the threshold of SOFTMAX_ZERO


def features_of(call: Call, x: Any) -> Any:
    """The examples as rows of floats: (examples, features)."""
    if x.ndim != 2:
        call.refuse(f"examples of rank {x.ndim}, where each is a row of a matrix")
    return x if x.dtype.name in ("float32", "float64") else ops.astype(x, "float32")


def transformed(call: Call, scores: Any, kind: str) -> Any:
    """Scores (examples, classes) after the transformation ``post_transform``."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return ops.sigmoid(scores)
    if kind == "SOFTMAX":
        return ops.softmax(scores, axis=1)
    if kind == "SOFTMAX_ZERO":
        largest = ops.max(scores, axis=1, keepdims=True)
        zero = ops.abs(scores) <= TINY
        found = ops.where(zero, scores * ops.exp(-largest), ops.exp(scores - largest))
        total = ops.sum(found, axis=1, keepdims=True)
        return ops.where(total == 0, 0.5, found / ops.where(total == 0, 1.0, total))
    call.refuse(f"the post_transform {kind}")


def labels_of(call: Call, places: Any, numbers: Any, texts: Any, count: int) -> Any:
    """The labels of the classes at these indices; None if unused by the model."""
    if not call.wants(0):
        return None
    if texts:
        call.refuse("labels that are texts: give the classes numbers, or leave the labels out")
    if not numbers:
        return places
    if len(numbers) < count:
        call.refuse(f"{len(numbers)} labels for {count} classes")
    return ops.take(as_tensor(np.asarray(numbers, "int64")), places)
