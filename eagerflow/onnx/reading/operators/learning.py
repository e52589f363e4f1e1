"""Scalers, encoders and linear models of ``ai.onnx.ml``, used by scikit-learn's converters."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.onnx.reading.calls import LEARNING, Call, known, operator
from eagerflow.onnx.reading.operators.scores import features_of, labels_of, transformed

SMALLEST = 1e-30  # of a norm
MAX_PAIRS = 1 << 16  # keys of an encoder, each of which is compared with each input


@operator("Scaler", domain=LEARNING)
def scaler(call: Call, x: Any, offset: Any = (0.0,), scale: Any = (1.0,)) -> Any:
    """Features minus an offset, times a scale."""
    x = features_of(call, x)
    offset, scale = [np.asarray(values, x.dtype) for values in (offset, scale)]
    if any(len(values) not in (1, x.shape[1]) for values in (offset, scale)):
        call.refuse(f"{len(offset)} offsets and {len(scale)} scales for {x.shape[1]} features")
    return (x - as_tensor(offset)) * as_tensor(scale)


@operator("Normalizer", domain=LEARNING)
def normalizer(call: Call, x: Any, norm: str) -> Any:
    """Each example divided by its norm: L1, L2, or the largest magnitude."""
    x = features_of(call, x)
    if norm == "L2":
        size = ops.sqrt(ops.sum(x * x, axis=1, keepdims=True))
    elif norm in ("L1", "MAX"):
        size = (ops.sum if norm == "L1" else ops.max)(ops.abs(x), axis=1, keepdims=True)
    else:
        call.refuse(f"there is no norm {norm!r}")
    return x / ops.maximum(size, SMALLEST)


@operator("Binarizer", domain=LEARNING)
def binarizer(call: Call, x: Any, threshold: float) -> Any:
    """1 where a feature is above the threshold, else 0."""
    return ops.astype(x > threshold, x.dtype)


@operator("Imputer", domain=LEARNING)
def imputer(
    call: Call,
    x: Any,
    imputed_value_floats: Any = (),
    imputed_value_int64s: Any = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:
    """Features with imputed values in place of missing ones."""
    whole = x.dtype.kind in "iu"
    values = np.asarray(imputed_value_int64s if whole else imputed_value_floats, x.dtype)
    missing = replaced_value_int64 if whole else replaced_value_float
    if x.ndim != 2 or len(values) not in (1, x.shape[1]):
        call.refuse(f"{len(values)} values for features of shape {x.shape}")
    is_missing = ops.isnan(x) if missing != missing else x == missing
    return ops.where(is_missing, as_tensor(values), x)


@operator("ArrayFeatureExtractor", domain=LEARNING)
def array_feature_extractor(call: Call, x: Any, places: Any) -> Any:
    """The features at these positions of the last axis; those of a vector become a row."""
    found = ops.take(x, ops.reshape(places, (-1,)), axis=-1)
    return found[None] if x.ndim == 1 else found


@operator("FeatureVectorizer", domain=LEARNING)
def feature_vectorizer(call: Call, *xs: Any, inputdimensions: Any = ()) -> Any:
    """The features of several tensors, concatenated."""
    return ops.concat([features_of(call, x) for x in xs], axis=1)


@operator("OneHotEncoder", domain=LEARNING)
def one_hot_encoder(
    call: Call, x: Any, cats_int64s: Any = (), cats_strings: Any = (), zeros: int = 1
) -> Any:
    """One-hot encoding of categories."""
    if cats_strings or not cats_int64s:
        call.refuse("categories that are texts")
    if not zeros:
        call.refuse("zeros=0, where a number that is no category is an error")
    if x.dtype.kind == "f":
        x = ops.astype(x, "int64")
    return ops.astype(x[..., None] == as_tensor(np.asarray(cats_int64s, "int64")), "float32")


@operator("LabelEncoder", domain=LEARNING)
def label_encoder(call: Call, x: Any, **attributes: Any) -> Any:
    """The value for a key, or a default; NaN is a possible key."""
    keys, values = [
        _first(call, attributes, (f"{name}_{kind}" for kind in ("tensor", "int64s", "floats")))
        for name in ("keys", "values")
    ]
    default = attributes.get("default_tensor")
    if default is None:
        whole = values.dtype.kind in "iu"
        default = attributes.get("default_int64" if whole else "default_float")
    if keys.ndim != 1 or keys.shape != values.shape or not 0 < len(keys) <= MAX_PAIRS:
        call.refuse(f"{keys.shape} keys for {values.shape} values")
    table = as_tensor(keys.astype(x.dtype))
    same = x[..., None] == table
    if keys.dtype.kind == "f":
        same = ops.logical_or(same, ops.logical_and(ops.isnan(x)[..., None], ops.isnan(table)))
    found = ops.take(as_tensor(values), ops.argmax(ops.astype(same, "int32"), axis=-1))
    return ops.where(ops.any(same, axis=-1), found, as_tensor(_one(default, values.dtype)))


def _first(call: Call, attributes: dict[str, Any], names: Any) -> Any:
    """The first of these attributes that is present, as an array."""
    for name in names:
        if attributes.get(name) is not None:
            found = known(attributes[name])
            return found.astype("float32") if name.endswith("floats") else found
    call.refuse("keys or values that are texts")


def _one(value: Any, dtype: Any) -> Any:
    return np.asarray(known(value).reshape(()), dtype)


@operator("ZipMap", domain=LEARNING)
def zip_map(call: Call, x: Any, **attributes: Any) -> Any:
    """Refused: a dictionary for each example is not a tensor."""
    call.refuse('a dictionary for each example; convert with options={"zipmap": False}')


# Linear models ------------------------------------------------------------------------------------


def _linear(call: Call, x: Any, coefficients: Any, intercepts: Any, rows: int) -> Any:
    """The products of examples with ``rows`` vectors of coefficients, and intercepts."""
    table = np.asarray(coefficients, x.dtype)
    if not rows or table.size != rows * x.shape[1] or len(intercepts) not in (0, 1, rows):
        call.refuse(
            f"{table.size} coefficients and {len(intercepts)} intercepts for {rows} results of "
            f"{x.shape[1]} features"
        )
    found = ops.matmul(x, as_tensor(np.ascontiguousarray(table.reshape(rows, -1).T)))
    return found + as_tensor(np.asarray(intercepts, x.dtype)) if len(intercepts) else found


@operator("LinearRegressor", domain=LEARNING)
def linear_regressor(
    call: Call,
    x: Any,
    coefficients: Any = (),
    intercepts: Any = (),
    targets: int = 1,
    post_transform: str = "NONE",
) -> Any:
    """Linear functions of the features: (examples, targets)."""
    found = _linear(call, features_of(call, x), coefficients, intercepts, targets)
    return ops.astype(transformed(call, found, post_transform), "float32")


@operator("LinearClassifier", domain=LEARNING)
def linear_classifier(
    call: Call,
    x: Any,
    coefficients: Any,
    intercepts: Any = (),
    classlabels_ints: Any = (),
    classlabels_strings: Any = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> Any:
    """The label of the class with the highest score, and the scores of a linear model."""
    x = features_of(call, x)
    rows = len(coefficients) // max(x.shape[1], 1)
    scores = _linear(call, x, coefficients, intercepts, rows)
    names = len(classlabels_ints or classlabels_strings)
    if rows == 1 and names == 2:
        scores = ops.concat([-scores, scores], axis=1)
    elif rows == 1:
        call.refuse("one score without a second class")
    places = ops.argmax(scores, axis=1)
    count = scores.shape[1]
    label = labels_of(call, places, classlabels_ints, classlabels_strings, count)
    return label, ops.astype(transformed(call, scores, post_transform), "float32")
