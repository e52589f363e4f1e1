"""The functions of ``keras.ops.numpy`` that arrange elements, pick them, join and split."""

import math

import numpy as np

import eagerflow as ef
from eagerflow.keras.backend.operands import axes_of, promoted, sizes_of
from eagerflow.keras.backend.tensors import cast, convert_to_tensor
from eagerflow.keras.sparse import (
    also_sparse,
    concatenated,
    is_sparse,
    linear,
    reshaped,
    transposed,
)

__all__ = [
    "append",
    "array_split",
    "broadcast_to",
    "concatenate",
    "copy",
    "diag",
    "diagflat",
    "diagonal",
    "diff",
    "dsplit",
    "dstack",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "hsplit",
    "hstack",
    "meshgrid",
    "moveaxis",
    "pad",
    "ravel",
    "repeat",
    "reshape",
    "roll",
    "rot90",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "take",
    "take_along_axis",
    "tile",
    "transpose",
    "tril",
    "triu",
    "unravel_index",
    "vsplit",
    "vstack",
]

# Arranged otherwise -------------------------------------------------------------------------------


@also_sparse(reshaped)
def reshape(x, newshape):
    return ef.reshape(convert_to_tensor(x), sizes_of(newshape))


def ravel(x):
    return ef.reshape(convert_to_tensor(x), (-1,))


@also_sparse(transposed)
def transpose(x, axes=None):
    return ef.permute_dims(convert_to_tensor(x), axes_of(axes))


def swapaxes(x, axis1, axis2):
    return ef.swapaxes(convert_to_tensor(x), axis1, axis2)


def moveaxis(x, source, destination):
    return ef.moveaxis(convert_to_tensor(x), axes_of(source), axes_of(destination))


@also_sparse(reshaped)
def expand_dims(x, axis):
    return ef.expand_dims(convert_to_tensor(x), axis=axes_of(axis))


@also_sparse(reshaped)
def squeeze(x, axis=None):
    return ef.squeeze(convert_to_tensor(x), axis=axes_of(axis))


def broadcast_to(x, shape):
    return ef.broadcast_to(convert_to_tensor(x), sizes_of(shape))


@also_sparse(linear)
def copy(x):
    return convert_to_tensor(x)  # tensors are immutable


def flip(x, axis=None):
    return ef.flip(convert_to_tensor(x), axis=axes_of(axis))


def fliplr(x):
    return flip(x, 1)


def flipud(x):
    return flip(x, 0)


def roll(x, shift, axis=None):
    return ef.roll(
        convert_to_tensor(x),
        sizes_of(shift) if isinstance(shift, list | tuple) else int(shift),
        axis=axes_of(axis),
    )


def rot90(array, k=1, axes=(0, 1)):
    x = convert_to_tensor(array)
    if x.ndim < 2:
        raise ValueError(
            f"Input array must have at least 2 dimensions. Received: array.ndim={x.ndim}"
        )
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ValueError(f"Invalid axes: {axes}. Axes must be a tuple of two different dimensions.")
    return ef.rot90(x, k=k, axes=tuple(axes))


def repeat(x, repeats, axis=None):
    if not isinstance(repeats, int):  # the size of the result is their sum
        repeats = tuple(int(n) for n in np.atleast_1d(np.asarray(repeats)))
        repeats = repeats[0] if len(repeats) == 1 else repeats
    return ef.repeat(convert_to_tensor(x), repeats, axis=axis)


def tile(x, repeats):
    return ef.tile(convert_to_tensor(x), sizes_of(repeats))


def pad(x, pad_width, mode="constant", constant_values=None):
    if constant_values is not None and mode != "constant":
        raise ValueError(
            "Argument `constant_values` can only be provided when `mode == 'constant'`. "
            f"Received: mode={mode}"
        )
    x = convert_to_tensor(x)
    width = pad_width if isinstance(pad_width, int) else np.asarray(pad_width).tolist()
    return ef.pad(x, width, mode=mode, constant_values=constant_values or 0)


def tril(x, k=0):
    return ef.tril(convert_to_tensor(x), k=k)


def triu(x, k=0):
    return ef.triu(convert_to_tensor(x), k=k)


def diag(x, k=0):
    return ef.diag(convert_to_tensor(x), k)


def diagflat(x, k=0):
    return ef.diag(ravel(x), k)


def diagonal(x, offset=0, axis1=0, axis2=1):
    return ef.diagonal(convert_to_tensor(x), offset=offset, axis1=axis1, axis2=axis2)


def diff(a, n=1, axis=-1):
    return ef.diff(convert_to_tensor(a), n=n, axis=axis)


# Picked -------------------------------------------------------------------------------------------


def take(x, indices, axis=None):
    return ef.take(convert_to_tensor(x), _places(indices), axis=axis)


def take_along_axis(x, indices, axis=None):
    x, indices = convert_to_tensor(x), _places(indices)
    if axis is None:
        return ef.take_along_axis(ef.reshape(x, (-1,)), ef.reshape(indices, (-1,)), axis=0)
    axis = axis + x.ndim if axis < 0 else axis
    pairs = zip(
        x.shape[:axis] + x.shape[axis + 1 :],
        indices.shape[:axis] + indices.shape[axis + 1 :],
        strict=True,
    )
    front = [n if m == 1 else m for n, m in pairs]
    return ef.take_along_axis(
        ef.broadcast_to(x, (*front[:axis], x.shape[axis], *front[axis:])),
        ef.broadcast_to(indices, (*front[:axis], indices.shape[axis], *front[axis:])),
        axis=axis,
    )


def _places(indices):
    indices = convert_to_tensor(indices)
    return indices if "int" in indices.dtype.name else cast(indices, "int32")


def unravel_index(indices, shape):
    indices = convert_to_tensor(indices)
    indices = ef.where(ef.less(indices, 0), indices + math.prod(shape), indices)
    return tuple(cast(i, indices.dtype) for i in ef.unravel_index(indices, tuple(shape)))


# Joined and split ---------------------------------------------------------------------------------


def _joinable(xs):
    return promoted(*(convert_to_tensor(x) for x in xs))


def concatenate(xs, axis=0):
    if axis is not None and all(is_sparse(x) for x in xs):
        return concatenated(concatenate, xs, axis)
    if axis is None:
        return ef.concat([ravel(x) for x in _joinable(xs)], axis=0)
    return ef.concat(_joinable(xs), axis=axis)


def stack(x, axis=0):
    return ef.stack(_joinable(x), axis=axis)


def append(x1, x2, axis=None):
    return concatenate([x1, x2], axis)


def hstack(xs):
    return ef.hstack(_joinable(xs))


def vstack(xs):
    return ef.vstack(_joinable(xs))


def dstack(xs):
    return ef.dstack(_joinable(xs))


def split(x, indices_or_sections, axis=0):
    return list(ef.split(convert_to_tensor(x), _cuts(indices_or_sections), axis=axis))


def _cuts(indices_or_sections):
    """The number of equal parts, or the split positions."""
    if isinstance(indices_or_sections, int):
        return indices_or_sections
    found = np.asarray(indices_or_sections).tolist()
    return found if isinstance(found, int) else tuple(found)


def array_split(x, indices_or_sections, axis=0):
    return list(ef.array_split(convert_to_tensor(x), _cuts(indices_or_sections), axis=axis))


def hsplit(x, indices_or_sections):
    return list(ef.hsplit(convert_to_tensor(x), _cuts(indices_or_sections)))


def vsplit(x, indices_or_sections):
    return split(x, indices_or_sections, axis=0)


def dsplit(x, indices_or_sections):
    return split(x, indices_or_sections, axis=2)


def meshgrid(*x, indexing="xy"):
    return ef.meshgrid(*(ravel(each) for each in x), indexing=indexing)
