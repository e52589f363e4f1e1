"""Sparse tensors in Keras: conversion, and slicing into batches.

The modules of this backend convert each tensor to a dense one (``tensors.convert_to_tensor``),
except for functions with a rule for sparse ones (``also_sparse``). The conversions that Keras
itself calls are here, and leave sparse tensors sparse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from keras.src.backend import config
from keras.src.backend.common import standardize_dtype

import eagerflow as ef
from eagerflow.dims import product
from eagerflow.keras.backend import tensors
from eagerflow.keras.sparse import SparseTensor, as_sparse, at_places, is_sparse

__all__ = ["Rows", "cast", "convert_to_tensor", "is_tensor", "rows_of"]


def convert_to_tensor(x, dtype=None, sparse=None, ragged=None):
    """The tensor for any convertible value; sparse ones become dense if ``sparse`` is False."""
    if ragged:
        raise ValueError("`ragged=True` is not supported with the eagerflow backend")
    stored = None if type(x) is ef.Tensor or sparse is False else as_sparse(x)
    if stored is None:
        return tensors.convert_to_tensor(x, dtype)
    return stored.with_values(tensors.convert_to_tensor(stored.values, dtype))


def cast(x, dtype):
    """``x`` as a tensor of this dtype, sparse if it is."""
    return convert_to_tensor(x, dtype)


def is_tensor(x):
    """Whether it is a tensor of this backend."""
    return isinstance(x, ef.Tensor) or is_sparse(x)


# Batches ------------------------------------------------------------------------------------------


def rows_of(x: Any) -> Rows | None:
    """The source of batches of a sparse tensor, with floats in Keras's dtype; None for others."""
    stored = as_sparse(x)
    if stored is None:
        return None
    dtype = standardize_dtype(stored.dtype)
    return Rows(cast(stored, config.floatx()) if "float" in dtype else stored)


class Rows:
    """The rows of a sparse tensor as a Keras sliceable; a subset is a sparse tensor, too."""

    def __init__(self, x: SparseTensor) -> None:
        x = x.elements()
        self.shape, self.dtype = x.shape, x.dtype
        self.size = max(int(product(x.shape[1:])), 1)
        places = np.asarray(x.slices.indices)
        order = np.argsort(places, kind="stable")
        self.places, self.values = places[order] % self.size, np.asarray(x.values)[order]
        self.ends = np.searchsorted(places[order], np.arange(x.shape[0] + 1) * self.size)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> SparseTensor:
        """The rows selected by a slice or an array of integers."""
        chosen = np.arange(len(self))[rows]
        counts = self.ends[chosen + 1] - self.ends[chosen]
        first = np.repeat(self.ends[chosen] - np.cumsum(counts) + counts, counts)
        entries = first + np.arange(len(first))
        places = self.places[entries] + np.repeat(np.arange(len(chosen)), counts) * self.size
        shape = (len(chosen), *self.shape[1:])
        return at_places(ef.asarray(self.values[entries]), ef.asarray(places), shape)

    @classmethod
    def convert_to_numpy(cls, x: SparseTensor) -> SparseTensor:
        """The array that steps of this backend take: the tensor itself."""
        return x
