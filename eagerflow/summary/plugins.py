"""The values of TensorBoard's dashboards, made of NumPy arrays as values of one Summary.

A value has a tag, by which dashboards group values, the name of its plugin, and one tensor. The
layouts are those of TensorFlow 2's ``tf.summary``.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from eagerflow.summary.board import message, module, pillow

Array = np.ndarray[Any, Any]
_LEAST = 1e-7  # below a fraction, against division by zero


def _plugin(name: str) -> Any:
    """The module of a TensorBoard plugin that describes its values."""
    return module(f"plugins.{name}.metadata")


@cache
def _described(plugin: str, **more: Any) -> Any:
    """The metadata of a plugin's values, the same for all of them."""
    return _plugin(plugin).create_summary_metadata(None, None, **more)


def _value(tag: str, metadata: Any, tensor: Any) -> Any:
    return message("summary", "Summary").Value(tag=tag, metadata=metadata, tensor=tensor)


def _tensor(array: Any) -> Any:
    """An array, or a list of texts or bytes, as a TensorProto."""
    return module("util.tensor_util").make_tensor_proto(array)


def scalar(tag: str, value: Array) -> list[Any]:
    """One number, in single precision."""
    tensor = message("tensor", "TensorProto")(
        dtype=message("types", "DataType").Value("DT_FLOAT"),
        tensor_shape=message("tensor_shape", "TensorShapeProto")(),
        float_val=(float(value),),
    )
    return [_value(tag, _described("scalar"), tensor)]


def histogram(tag: str, values: Array, *, buckets: int) -> list[Any]:
    """The number of finite values in each of ``buckets`` ranges of equal width."""
    flat = values.ravel()
    if flat.dtype.kind not in "fiu":  # bool, and the small floats
        flat = flat.astype("float32")
    flat = flat[np.isfinite(flat)]
    rows = np.zeros((buckets, 3))
    if flat.size:
        low, high = float(flat.min()), float(flat.max())
        if low == high:  # all in the last range
            rows[:, :2], rows[-1, 2] = low, flat.size
        else:
            counts, edges = np.histogram(flat, buckets, (low, high))
            rows = np.stack([edges[:-1], edges[1:], counts], axis=1)
    return [_value(tag, _described("histogram"), _tensor(rows))]


def text(tag: str, *, words: Array) -> list[Any]:
    """A text in Markdown; a list of texts is a table of one column, a list of lists a table."""
    return [_value(tag, _described("text"), _tensor(words))]


def as_bytes(pixels: Array) -> Array:
    """Pictures with a byte for each channel: floats from 0 to 1 are scaled to 0 to 255."""
    if pixels.dtype == np.uint8:
        return pixels
    known = np.nan_to_num(pixels.astype("float32"), nan=0.0)
    return np.round(np.clip(known, 0.0, 1.0) * 255.0).astype(np.uint8)


def png(pixels: Array) -> bytes:
    """A picture as a PNG file; ``pixels`` are bytes, (height, width, 1 to 4 channels)."""
    file = io.BytesIO()
    only = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    pillow().fromarray(np.ascontiguousarray(only)).save(file, format="PNG")
    return file.getvalue()


def images(tag: str, pixels: Array, *, most: int) -> list[Any]:
    """Up to ``most`` pictures of one size; (height, width), with channels, and several of these."""
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    several = pixels if pixels.ndim == 4 else pixels[None]
    height, width = several.shape[1:3]
    encoded = [png(picture) for picture in as_bytes(several[:most])]
    return pictures(tag, width=width, height=height, encoded=encoded)


def pictures(tag: str, *, width: int, height: int, encoded: Sequence[bytes]) -> list[Any]:
    """PNG files of one size."""
    rows = [str(width).encode(), str(height).encode(), *encoded]
    return [_value(tag, _described("image", converted_to_tensor=True), _tensor(rows))]


def pr_curve(
    tag: str, labels: Array, predictions: Array, weights: Array | None = None, *, thresholds: int
) -> list[Any]:
    """Precision and recall for ``thresholds`` from 0 to 1: scores above one are predicted true.

    The rows are true positives, false positives, true and false negatives, precision, recall.
    """
    truth = labels.ravel().astype(bool)
    known = np.clip(np.nan_to_num(predictions.ravel().astype("float64"), nan=0.0), 0.0, 1.0)
    shares = np.ones(len(known)) if weights is None else weights.ravel().astype("float64")
    ranges = np.floor(known * (thresholds - 1)).astype(int)
    # The totals at and above each threshold.
    yes, no = (
        np.cumsum(np.bincount(ranges, shares * kind, thresholds)[::-1])[::-1]
        for kind in (truth, ~truth)
    )
    missed, rejected = yes[0] - yes, no[0] - no
    precision = yes / np.maximum(_LEAST, yes + no)
    recall = yes / np.maximum(_LEAST, yes + missed)
    rows = np.stack([yes, no, rejected, missed, precision, recall]).astype("float32")
    return [_value(tag, _described("pr_curve", num_thresholds=thresholds), _tensor(rows))]


def mesh(
    tag: str, *arrays: Array, parts: Sequence[str], config: Mapping[str, Any] | None
) -> list[Any]:
    """Points in space: ``parts`` are the names of the arrays, ``vertices``, ``faces``, ``colors``.

    All are (points, 3) or (count, points, 3); colors are bytes, or floats from 0 to 1.
    """
    metadata, kinds = _plugin("mesh"), module("plugins.mesh.plugin_data_pb2").MeshPluginData
    forms: dict[str, tuple[int, Callable[[Array], Array]]] = {
        "vertices": (kinds.VERTEX, lambda x: x.astype("float32")),
        "faces": (kinds.FACE, lambda x: x.astype("int32")),
        "colors": (kinds.COLOR, as_bytes),
    }
    components = metadata.get_components_bitmask([forms[part][0] for part in parts])
    scene = json.dumps(dict(config or {}), sort_keys=True)
    found = []
    for part, array in zip(parts, arrays, strict=True):
        kind, form = forms[part]
        rows = form(array if array.ndim == 3 else array[None])
        shape = list(rows.shape)
        described = metadata.create_summary_metadata(
            tag, None, kind, components, shape, json_config=scene
        )
        found.append(_value(metadata.get_instance_name(tag, kind), described, _tensor(rows)))
    return found


# Hyperparameters ----------------------------------------------------------------------------------


def trial(values: Mapping[str, Any]) -> list[Any]:
    """The hyperparameters of a run."""
    return list(module("plugins.hparams.summary_v2").hparams_pb(dict(values)).value)


def trial_end(succeeded: bool) -> list[Any]:
    """The result of a run with hyperparameters."""
    metadata, status = _plugin("hparams"), module("plugins.hparams.api_pb2").Status
    data = module("plugins.hparams.plugin_data_pb2")
    end = data.SessionEndInfo(
        status=status.Value("STATUS_SUCCESS" if succeeded else "STATUS_FAILURE"),
        end_time_secs=time.time(),
    )
    described = metadata.create_summary_metadata(data.HParamsPluginData(session_end_info=end))
    return [_value(metadata.SESSION_END_INFO_TAG, described, metadata.NULL_TENSOR)]
