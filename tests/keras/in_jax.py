"""A stand-in for JAX in those branches of Keras's tests that ``tests.keras.branches`` makes ours.

The names are JAX's. Arrays are our tensors, and BCOO arrays our sparse tensors.
"""

from types import SimpleNamespace

import numpy as np
from keras.src import ops

import eagerflow as ef
from eagerflow.keras.sparse import SparseTensor

__all__ = ["jax", "numpy", "sparse"]


class BCOO:
    """``BCOO((data, indices), shape=shape)`` and ``BCOO.fromdense(x)`` are sparse tensors."""

    def __new__(cls, parts, *, shape):
        values, indices = (ops.convert_to_tensor(part) for part in parts)
        batch = indices.ndim - 2
        if batch:
            values, indices = _without_batch(values, indices, shape[:batch])
        return SparseTensor(values, indices, shape)

    @staticmethod
    def fromdense(x, n_batch=0):
        return SparseTensor.from_dense(ops.convert_to_tensor(x))


def _without_batch(values, indices, sizes):
    """Values and places of which the first axes, which JAX counts along, are places too."""
    *_, n, k = indices.shape
    rest = values.shape[len(sizes) + 1 :]
    values = ops.reshape(ops.broadcast_to(values, (*sizes, n, *rest)), (-1, *rest))
    indices = ops.reshape(ops.broadcast_to(indices, (*sizes, n, k)), (-1, k))
    first = np.indices((*sizes, n))[:-1].reshape(len(sizes), -1).T
    return values, ops.concatenate([ops.cast(first, indices.dtype), indices], axis=1)


def random_bcoo(key, shape, *, dtype, nse):
    """Numbers between 0 and 1 in a share ``nse`` of the places."""
    random = np.random.default_rng(key)
    size = int(np.prod(shape))
    places = random.choice(size, int(nse * size), replace=False)
    indices = np.stack(np.unravel_index(places, shape), axis=1)
    return SparseTensor(random.random(len(places)).astype(dtype), indices, shape)


def uniform(key, shape, dtype):
    """Numbers between 0 and 1."""
    return ops.convert_to_tensor(np.random.default_rng(key).random(shape), dtype)


sparse = SimpleNamespace(BCOO=BCOO, JAXSparse=SparseTensor, random_bcoo=random_bcoo)
random = SimpleNamespace(PRNGKey=int, uniform=uniform)
numpy = ops  # whose functions have JAX's names, and suffice for these tests
jax = SimpleNamespace(grad=ef.grad, numpy=numpy, random=random)
