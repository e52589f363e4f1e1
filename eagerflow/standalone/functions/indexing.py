"""Zeros with numbers added at indices, and other reductions by index."""

import numpy as np


def scatter(indices, updates, shape):
    """Zeros with ``updates`` added at positions, each given by a row of ``indices``."""
    y = np.zeros(shape, updates.dtype)
    places = tuple(np.moveaxis(indices, -1, 0))
    if not places:  # each update is for the whole array
        return updates.sum(tuple(range(indices.ndim - 1)), updates.dtype)
    np.add.at(y, places, updates)
    return y


def scatter_along_axis(updates, indices, shape, axis=-1):
    """Zeros with ``updates`` added at positions along an axis."""
    indices, updates = np.broadcast_arrays(indices, updates)
    y = np.zeros(shape, updates.dtype)
    places = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    np.add.at(y, tuple(places), updates)
    return y


def segment_sum(x, segment_ids, num_segments):
    """Sums of the rows of each segment."""
    y = np.zeros((num_segments, *x.shape[segment_ids.ndim :]), x.dtype)
    np.add.at(y, segment_ids, x)
    return y


def segment_max(x, segment_ids, num_segments):
    """The largest elements of the rows of each segment."""
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    y = np.full((num_segments, *x.shape[segment_ids.ndim :]), least, x.dtype)
    np.maximum.at(y, segment_ids, x)
    return y


def segment_min(x, segment_ids, num_segments):
    """The smallest elements of the rows of each segment."""
    largest = np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    y = np.full((num_segments, *x.shape[segment_ids.ndim :]), largest, x.dtype)
    np.minimum.at(y, segment_ids, x)
    return y


def segment_prod(x, segment_ids, num_segments):
    """Products of the rows of each segment."""
    y = np.ones((num_segments, *x.shape[segment_ids.ndim :]), x.dtype)
    np.multiply.at(y, segment_ids, x)
    return y
