"""The functions of ``keras.ops.numpy`` that multiply vectors, matrices and polynomials."""

import eagerflow as ef
from eagerflow.keras.backend.operands import floating, joined, promoted
from eagerflow.keras.backend.sparse import convert_to_tensor as tensor_of
from eagerflow.keras.backend.tensors import cast, convert_to_tensor
from eagerflow.keras.sparse import also_sparse, matrix_product

__all__ = [
    "correlate",
    "cross",
    "dot",
    "einsum",
    "inner",
    "kron",
    "matmul",
    "outer",
    "slogdet",
    "tensordot",
    "vander",
    "vdot",
]


def _sparse_matmul(function, x1, x2):
    """The dtype rule of ``matmul``."""
    x1, x2 = tensor_of(x1), tensor_of(x2)
    short = x1.dtype == "int8" and x2.dtype == "int8"
    dtype = "int32" if short else joined(x1.dtype.name, x2.dtype.name)
    return matrix_product(tensor_of(x1, dtype), tensor_of(x2, dtype))


@also_sparse(_sparse_matmul)
def matmul(x1, x2):
    x1, x2 = convert_to_tensor(x1), convert_to_tensor(x2)
    if x1.dtype == "int8" and x2.dtype == "int8":
        return ef.integer_matmul(x1, x2)
    return ef.matmul(*promoted(x1, x2))


def einsum(subscripts, *operands, **kwargs):
    tensors = [convert_to_tensor(x) for x in operands]
    if all(x.dtype == "int8" for x in tensors):
        tensors = [cast(x, "int32") for x in tensors]
    return ef.einsum(*promoted(*tensors), subscripts=subscripts)


def dot(x1, x2):
    x1, x2 = _pair(x1, x2)
    if not x1.ndim or not x2.ndim:
        return ef.multiply(x1, x2)
    if x2.ndim <= 2:
        return ef.matmul(x1, x2)
    return ef.tensordot(x1, x2, axes=((x1.ndim - 1,), (x2.ndim - 2,)))


def vdot(x1, x2):
    x1, x2 = _pair(x1, x2)
    return ef.matmul(ef.reshape(ef.conj(x1), (-1,)), ef.reshape(x2, (-1,)))


def inner(x1, x2):
    return ef.inner(*_pair(x1, x2))


def outer(x1, x2):
    x1, x2 = _pair(x1, x2)
    return ef.multiply(ef.reshape(x1, (-1, 1)), ef.reshape(x2, (1, -1)))


def tensordot(x1, x2, axes=2):
    axes = (
        axes
        if isinstance(axes, int)
        else tuple(tuple(a) if isinstance(a, list | tuple) else (a,) for a in axes)
    )
    return ef.tensordot(*_pair(x1, x2), axes=axes)


def kron(x1, x2):
    return ef.kron(*_pair(x1, x2))


def cross(x1, x2, axisa=-1, axisb=-1, axisc=-1, axis=None):
    if axis is not None:
        axisa = axisb = axisc = axis
    x1, x2 = _pair(x1, x2)
    x1, x2 = ef.moveaxis(x1, axisa, -1), ef.moveaxis(x2, axisb, -1)
    flat = x1.shape[-1] == x2.shape[-1] == 2
    found = ef.cross(_spatial(x1), _spatial(x2))
    return found[..., 2] if flat else ef.moveaxis(found, -1, axisc)


def _spatial(x):
    """Vectors of three elements; those of two are padded by a zero."""
    return ef.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)]) if x.shape[-1] == 2 else x


def vander(x, N=None, increasing=False):
    return ef.vander(convert_to_tensor(x), N=N, increasing=increasing)


def correlate(x1, x2, mode="valid"):
    x1, x2 = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    swapped = x1.shape[0] < x2.shape[0]
    long, short = (x2, x1) if swapped else (x1, x2)
    size = short.shape[0]
    # With the shorter one first, positions are reversed; "same" is the middle part.
    ends = {"valid": (0, 0), "full": (size - 1, size - 1), "same": (size // 2, (size - 1) // 2)}
    rows, window = ef.reshape(long, (1, -1, 1)), ef.reshape(ef.conj(short), (-1, 1, 1))
    found = ef.reshape(ef.conv(rows, window, padding=(ends[mode],)), (-1,))
    return ef.flip(found, axis=0) if swapped else found


def slogdet(x):
    return tuple(ef.linalg.slogdet(floating(x)))


def _pair(x1, x2):
    return promoted(convert_to_tensor(x1), convert_to_tensor(x2))
