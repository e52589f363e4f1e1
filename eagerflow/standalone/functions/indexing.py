"""Zeros with numbers added at indices."""

import numpy as np


def scatter(indices, updates, shape):
    """Zeros with ``updates`` added at places, each of which is a row of ``indices``."""
    y = np.zeros(shape, updates.dtype)
    places = tuple(np.moveaxis(indices, -1, 0))
    if not places:  # each update is for the whole
        return updates.sum(tuple(range(indices.ndim - 1)), updates.dtype)
    np.add.at(y, places, updates)
    return y


def scatter_along_axis(updates, indices, shape, axis=-1):
    """Zeros with ``updates`` added at places along an axis."""
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
