"""``keras.ops.linalg`` on eagerflow."""

import math

import eagerflow as ef
from eagerflow.keras.backend.operands import axes_of, floating, promoted
from eagerflow.keras.backend.tensors import cast, convert_to_tensor

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "det",
    "eig",
    "eigh",
    "inv",
    "jvp",
    "lstsq",
    "lu_factor",
    "matrix_rank",
    "norm",
    "pinv",
    "qr",
    "solve",
    "solve_triangular",
    "svd",
]


def cholesky(a, upper=False):
    return ef.linalg.cholesky(floating(a), upper=upper)


def cholesky_inverse(a, upper=False):
    a = floating(a)
    inverse = solve_triangular(a, ef.eye(a.shape[-1], dtype=a.dtype), lower=not upper)
    turned = ef.swapaxes(inverse, -1, -2)
    return ef.matmul(inverse, turned) if upper else ef.matmul(turned, inverse)


def det(a):
    return ef.linalg.det(floating(a))


def eig(x):
    return tuple(ef.linalg.eig(floating(x)))


def eigh(x):
    return tuple(ef.linalg.eigh(floating(x)))


def inv(a):
    return ef.linalg.inv(floating(a))


def lu_factor(x):
    factors, pivots = ef.linalg.lu_factor(floating(x))
    return factors, cast(pivots, "int32")


_MATRIX_ORDERS = (None, "fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2)


def norm(x, ord=None, axis=None, keepdims=False):
    x, axis = floating(x), axes_of(axis)
    is_vector = isinstance(axis, int) or x.ndim == 1 or (isinstance(axis, tuple) and len(axis) == 1)
    if ord in ("fro", "nuc") if is_vector else ord not in _MATRIX_ORDERS:
        raise ValueError(
            f"Invalid `ord` argument for this `axis`. Received: ord={ord}, axis={axis}"
        )
    return ef.linalg.norm(x, ord=ord, axis=axis, keepdims=keepdims)


def qr(x, mode="reduced"):
    if mode not in {"reduced", "complete"}:
        raise ValueError(
            "`mode` argument value not supported. Expected one of {'reduced', 'complete'}. "
            f"Received: mode={mode}"
        )
    return tuple(ef.linalg.qr(floating(x), mode=mode))


def solve(a, b):
    a, b = _pair(a, b)
    if b.ndim == a.ndim - 1:
        return ef.squeeze(ef.linalg.solve(a, ef.expand_dims(b, axis=-1)), axis=-1)
    return ef.linalg.solve(a, b)


def solve_triangular(a, b, lower=False):
    a, b = _pair(a, b)
    if b.ndim == a.ndim - 1:
        b = ef.expand_dims(b, axis=-1)
        return ef.squeeze(ef.linalg.solve_triangular(a, b, lower=lower), axis=-1)
    return ef.linalg.solve_triangular(a, b, lower=lower)


def _pair(a, b):
    return promoted(convert_to_tensor(a), convert_to_tensor(b), also=(float,))


def svd(x, full_matrices=True, compute_uv=True):
    x = floating(x)
    return (
        tuple(ef.linalg.svd(x, full_matrices=full_matrices)) if compute_uv else ef.linalg.svdvals(x)
    )


def lstsq(a, b, rcond=None):
    return ef.linalg.lstsq(*_pair(a, b), rcond=rcond)[0]


def matrix_rank(x, tol=None):
    x = floating(x)
    _matrices(x)
    values = ef.linalg.svdvals(x)
    if tol is None:
        largest = ef.max(values, axis=-1, keepdims=True)
        tol = ef.multiply(largest, max(x.shape[-2:]) * float(ef.finfo(x.dtype).eps))
    else:
        tol = ef.expand_dims(convert_to_tensor(tol, values.dtype), axis=-1)
    return cast(ef.count_nonzero(ef.greater(values, tol), axis=-1), "int32")


def pinv(x, rcond=None):
    x = floating(x)
    _matrices(x)
    return ef.linalg.pinv(x, rtol=rcond)


def _matrices(x):
    if x.ndim < 2:
        raise ValueError(f"Expected input to have rank >= 2. Received input with shape {x.shape}.")


def jvp(fun, primals, tangents, has_aux=False):
    primals, tangents = tuple(primals), tuple(tangents)
    if not has_aux:
        return ef.jvp(fun, primals, tangents)
    kept = []

    def value(*args):
        found, aux = fun(*args)
        kept.append(aux)
        return found

    found, moved = ef.jvp(value, primals, tangents)
    return found, moved, kept[-1]
