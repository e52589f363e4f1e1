"""NumPy's whole namespace on tensors: each function gives what NumPy does, or says why not."""

import warnings

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import DTypeError
from eagerflow.ops import numpy_calls
from eagerflow.ops.late import load

REFUSED = load("numpy_names.refused")
NEWER = np.lib.NumpyVersion(np.__version__) >= "2.2.0"


def functions():
    """All functions of NumPy's that ask tensors first: by name, with the module in front."""
    found = {}
    for home, place in (("", np), ("linalg.", np.linalg), ("fft.", np.fft)):
        if home == "fft." and not hasattr(ef, "fft"):
            continue
        for name in dir(place):
            function = getattr(place, name)
            if name.startswith("_") or isinstance(function, type):
                continue
            if isinstance(function, np.ufunc) or hasattr(function, "_implementation"):
                found[f"{home}{name}"] = function
    return found


FUNCTIONS = functions()


def taken(function):
    if isinstance(function, np.ufunc):
        return numpy_calls.call_of(function) is not None
    return numpy_calls.counterpart(function) is not None


def test_each_function_is_taken_or_has_its_reason():
    assert len(FUNCTIONS) > 320
    refused = {name for name, function in FUNCTIONS.items() if not taken(function)}
    assert refused - WAITING == REFUSED.REASONS.keys() & FUNCTIONS.keys()
    assert not {name for name in WAITING if name in FUNCTIONS and name not in refused}
    assert all(len(reason.split()) > 3 for reason in REFUSED.REASONS.values())


# Of parts that are not there yet.
WAITING = {
    name
    for name in ("i0 linalg.cond linalg.eig linalg.eigvals linalg.lstsq linalg.multi_dot").split()
    if not hasattr(ef if "." not in name else ef.linalg, name.rpartition(".")[2])
}

X = np.array([[0.5, -1.25, 2.0, 0.25], [1.5, 0.75, -0.5, 3.0], [2.5, -2.0, 1.0, 0.125]])
V = np.array([0.5, 1.5, -0.75, 2.25, 1.0])
W = np.array([1.0, 0.5, 2.0, 0.25, 1.5])
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
N = np.array([[0.5, np.nan, 2.0, 0.25], [1.5, 0.75, np.nan, 3.0]])
I = np.array([[3, 1, 2], [0, 5, 4]])
J = np.array([7, 2, 12])
C = np.array([1 + 2j, -0.5 + 1j, 2 - 1j])
B = np.array([[True, False, True], [False, False, True]])
P = np.abs(V) + 0.25

CALLS = {
    "all": [lambda t: np.all(t(B), axis=0), lambda t: np.all(t(X), where=X > 0)],
    "allclose": [lambda t: np.allclose(t(X), X + 1e-9), lambda t: np.allclose(t(X), X + 1)],
    "amax": [lambda t: np.amax(t(X), 1, initial=1.0), lambda t: np.amax(a=t(X), axis=(0, 1))],
    "amin": [lambda t: np.amin(t(X), axis=0, keepdims=True)],
    "angle": [lambda t: np.angle(t(C)), lambda t: np.angle(t(C), deg=True)],
    "any": [lambda t: np.any(t(X) > 2.2, 1)],
    "append": [lambda t: np.append(t(V), W), lambda t: np.append(t(X), t(X), axis=1)],
    "apply_along_axis": [lambda t: np.apply_along_axis(lambda r: r[::-1] * 2, 1, t(X))],
    "apply_over_axes": [lambda t: np.apply_over_axes(np.sum, t(X), [0, 1])],
    "argmax": [lambda t: np.argmax(t(X)), lambda t: np.argmax(t(X), 1, keepdims=True)],
    "argmin": [lambda t: np.argmin(t(X), axis=0)],
    "argpartition": [lambda t: np.argpartition(t(V), 4)[-1]],
    "argsort": [lambda t: np.argsort(t(X), axis=0), lambda t: np.argsort(t(X), None)],
    "argwhere": [lambda t: np.argwhere(t(B))],
    "around": [lambda t: np.around(t(X), 1)],
    "array2string": [lambda t: np.array2string(t(V), precision=2)],
    "array_equal": [lambda t: np.array_equal(t(X), X), lambda t: np.array_equal(t(X), V)],
    "array_equiv": [lambda t: np.array_equiv(t(X[:1]), np.repeat(X[:1], 2, 0))],
    "array_repr": [lambda t: np.array_repr(t(V))],
    "array_split": [lambda t: np.array_split(t(V), 3), lambda t: np.array_split(t(X), [1], 1)],
    "array_str": [lambda t: np.array_str(t(V))],
    "astype": [lambda t: np.astype(t(X), np.float32)],
    "atleast_1d": [lambda t: np.atleast_1d(t(np.array(3.0)), V)],
    "atleast_2d": [lambda t: np.atleast_2d(t(V))],
    "atleast_3d": [lambda t: np.atleast_3d(t(X))],
    "average": [
        lambda t: np.average(t(X), axis=1, weights=W[:4]),
        lambda t: np.average(t(X), 0, returned=True)[1],
    ],
    "bincount": [
        lambda t: np.bincount(t(J), minlength=15),
        lambda t: np.bincount(t(J), weights=W[:3]),
    ],
    "block": [lambda t: np.block([[t(S), np.zeros((3, 1))], [np.ones((1, 4))]])],
    "broadcast_arrays": [lambda t: np.broadcast_arrays(t(X[:, :1]), X[:1])[0]],
    "broadcast_to": [lambda t: np.broadcast_to(t(V), (2, 5))],
    "can_cast": [],
    "choose": [lambda t: np.choose(t(I), [V[:3], W[:3]], mode="wrap")],
    "clip": [lambda t: np.clip(t(X), 0, 1.1), lambda t: np.clip(t(X), a_min=None, a_max=X + 0.5)],
    "column_stack": [lambda t: np.column_stack([t(V), W]), lambda t: np.column_stack([t(X), X])],
    "common_type": [lambda t: np.common_type(t(X)).__name__],
    "compress": [lambda t: np.compress([True, False, True], t(X), axis=0)],
    "concat": [lambda t: np.concat([t(X), X], axis=None)],
    "concatenate": [
        lambda t: np.concatenate((t(X), X), 1),
        lambda t: np.concatenate([t(V), W], dtype=np.float32),
    ],
    "convolve": [lambda t: np.convolve(t(V), W[:3]), lambda t: np.convolve(t(V), W[:2], "same")],
    "copy": [lambda t: np.copy(t(X))],
    "corrcoef": [lambda t: np.corrcoef(t(X)), lambda t: np.corrcoef(t(X), rowvar=False)],
    "correlate": [
        lambda t: np.correlate(t(V), W[:2], mode="full"),
        lambda t: np.correlate(t(V[:2]), W),
    ],
    "count_nonzero": [lambda t: np.count_nonzero(t(B), axis=1)],
    "cov": [
        lambda t: np.cov(t(X)),
        lambda t: np.cov(t(V), W, ddof=0),
        lambda t: np.cov(t(X), aweights=W[:4]),
    ],
    "cross": [lambda t: np.cross(t(S), S[::-1]), lambda t: np.cross(t(S), S[::-1], axis=0)],
    "cumprod": [lambda t: np.cumprod(t(X), axis=0), lambda t: np.cumprod(t(X))],
    "cumsum": [lambda t: np.cumsum(t(X), 1), lambda t: np.cumsum(t(I), dtype=np.float64)],
    "cumulative_prod": [lambda t: np.cumulative_prod(t(V))],
    "cumulative_sum": [lambda t: np.cumulative_sum(t(X), axis=0, include_initial=True)],
    "delete": [lambda t: np.delete(t(V), [1, 3]), lambda t: np.delete(t(X), 1, axis=1)],
    "diag": [lambda t: np.diag(t(V[:0])), lambda t: np.diag(t(X)), lambda t: np.diag(t(V), 1)],
    "diag_indices_from": [lambda t: np.diag_indices_from(t(S))],
    "diagflat": [lambda t: np.diagflat(t(V), -1)],
    "diagonal": [lambda t: np.diagonal(t(X), 1)],
    "diff": [lambda t: np.diff(t(X)), lambda t: np.diff(t(X), 2, axis=0, prepend=0.0)],
    "digitize": [
        lambda t: np.digitize(t(V), [0.0, 1.0, 2.0]),
        lambda t: np.digitize(t(V), [2.0, 0.5], right=True),
    ],
    "dot": [lambda t: np.dot(t(S), S), lambda t: np.dot(t(V), W), lambda t: np.dot(t(V), 2.0)],
    "dsplit": [lambda t: np.dsplit(t(X.reshape(1, 3, 4)), 2)],
    "dstack": [lambda t: np.dstack([t(V), W]), lambda t: np.dstack([t(X), X])],
    "ediff1d": [lambda t: np.ediff1d(t(V), to_begin=1.0, to_end=[2.0, 3.0])],
    "einsum": [
        lambda t: np.einsum("ij,jk->ik", t(S), S),
        lambda t: np.einsum("ii", t(S)),
        lambda t: np.einsum(t(S), [0, 1], S, [1, 2], [0, 2]),
        lambda t: np.einsum(t(S), [0, 1], S, [1, 2]),
    ],
    "empty_like": [lambda t: np.empty_like(t(X)).shape],
    "expand_dims": [lambda t: np.expand_dims(t(X), (0, 2))],
    "extract": [lambda t: np.extract(X > 0, t(X))],
    "fix": [lambda t: np.fix(t(X))],
    "flatnonzero": [lambda t: np.flatnonzero(t(B))],
    "flip": [lambda t: np.flip(t(X)), lambda t: np.flip(t(X), 1)],
    "fliplr": [lambda t: np.fliplr(t(X))],
    "flipud": [lambda t: np.flipud(t(X))],
    "full_like": [lambda t: np.full_like(t(X), 2.5), lambda t: np.full_like(t(X), 1.0, shape=(2,))],
    "geomspace": [lambda t: np.geomspace(t(np.array(1.0)), 8.0, 4)],
    "gradient": [
        lambda t: np.gradient(t(V)),
        lambda t: np.gradient(t(X), 0.5, np.array([0.0, 1.0, 3.0, 3.5])),
        lambda t: np.gradient(t(V), 2.0, edge_order=2),
        lambda t: np.gradient(t(X), axis=1),
        lambda t: np.gradient(t([1.0, np.nan, np.inf, 2.0, 5.0])),
    ],
    "histogram": [
        lambda t: np.histogram(t(V), bins=4),
        lambda t: np.histogram(t(V), [0.0, 1.0, 3.0], density=True),
        lambda t: np.histogram(t(V), 3, (0.0, 2.0), weights=W),
        lambda t: np.histogram(t(V), bins="auto", density=True),
    ],
    "histogram2d": [lambda t: np.histogram2d(t(V), W, bins=(2, 3))],
    "histogram_bin_edges": [lambda t: np.histogram_bin_edges(t(V), bins=3, range=(0, 1))],
    "histogramdd": [lambda t: np.histogramdd(t(X), bins=2)[0]],
    "hsplit": [lambda t: np.hsplit(t(X), [1, 3])],
    "hstack": [
        lambda t: np.hstack([t(V), W], dtype=np.float64),
        lambda t: np.hstack([t(X), X[:, :2]]),
        lambda t: np.hstack([t(X.reshape(2, 3, 2)), X.reshape(2, 3, 2)]),
    ],
    "i0": [lambda t: np.i0(t(V))],
    "imag": [lambda t: np.imag(t(C))],
    "in1d": [lambda t: np.in1d(t(I), [1, 5])],
    "inner": [lambda t: np.inner(t(X), X)],
    "insert": [
        lambda t: np.insert(t(V), 2, 9.0),
        lambda t: np.insert(t(V), [0, 2, 2], [7.0, 8.0, 9.0]),
        lambda t: np.insert(t(X), 1, 5.0, axis=1),
        lambda t: np.insert(t(X), 1, V[:3], axis=1),
    ],
    "interp": [lambda t: np.interp(t(V), [0.1, 1.1, 2.05], [3.0, 5.0, 4.0], right=0.5)],
    "intersect1d": [
        lambda t: np.intersect1d(t(J), [2, 7, 9]),
        lambda t: np.intersect1d(t(I), J, return_indices=True),
    ],
    "isclose": [
        lambda t: np.isclose(t(X), X + 1e-7),
        lambda t: np.isclose(t(N), N, equal_nan=True),
    ],
    "iscomplex": [lambda t: np.iscomplex(t(C))],
    "iscomplexobj": [lambda t: np.iscomplexobj(t(C))],
    "isin": [lambda t: np.isin(t(I), [1, 5]), lambda t: np.isin(t(I), J, invert=True)],
    "isneginf": [lambda t: np.isneginf(t(np.array([-np.inf, 1.0])))],
    "isposinf": [lambda t: np.isposinf(t(np.array([np.inf, -np.inf])))],
    "isreal": [lambda t: np.isreal(t(C)), lambda t: np.isreal(t(V))],
    "isrealobj": [lambda t: np.isrealobj(t(C))],
    "ix_": [lambda t: np.ix_(t(J), [1, 2])],
    "kron": [lambda t: np.kron(t(S), V[:2])],
    "lexsort": [lambda t: np.lexsort((t(np.array([1, 0, 1, 0])), np.array([2, 2, 1, 1])))],
    "linspace": [lambda t: np.linspace(t(np.array(0.0)), 2.0, num=5)],
    "logspace": [lambda t: np.logspace(t(np.array(0.0)), 2.0, 3, base=2.0)],
    "matrix_transpose": [lambda t: np.matrix_transpose(t(X))],
    "max": [lambda t: np.max(t(X), axis=1, where=X < 2, initial=-9.0)],
    "may_share_memory": [lambda t: np.may_share_memory(t(X), np.zeros(3))],
    "mean": [lambda t: np.mean(t(X), 1), lambda t: np.mean(t(X), where=X > 0)],
    "median": [
        lambda t: np.median(t(X), overwrite_input=True),
        lambda t: np.median(t(X), axis=1, keepdims=True),
    ],
    "meshgrid": [
        lambda t: np.meshgrid(t(V), W, indexing="ij"),
        lambda t: np.meshgrid(t(V), W, t(P), sparse=True),
        lambda t: np.meshgrid(t(V), W, indexing="ij", sparse=True, copy=False),
    ],
    "min": [lambda t: np.min(t(X), 0)],
    "min_scalar_type": [],
    "moveaxis": [lambda t: np.moveaxis(t(X), 0, 1)],
    "nan_to_num": [
        lambda t: np.nan_to_num(t(N), nan=3.0),
        lambda t: np.nan_to_num(t(N / 0), copy=False),
    ],
    "nanargmax": [lambda t: np.nanargmax(t(N), axis=1)],
    "nanargmin": [lambda t: np.nanargmin(t(N))],
    "nancumprod": [lambda t: np.nancumprod(t(N), axis=1)],
    "nancumsum": [lambda t: np.nancumsum(t(N))],
    "nanmax": [lambda t: np.nanmax(t(N), 0), lambda t: np.nanmax(t(N), where=N < 2, initial=0.0)],
    "nanmean": [lambda t: np.nanmean(t(N), axis=1)],
    "nanmedian": [lambda t: np.nanmedian(t(N), axis=0), lambda t: np.nanmedian(t(N))],
    "nanmin": [lambda t: np.nanmin(t(N), axis=1, keepdims=True)],
    "nanpercentile": [lambda t: np.nanpercentile(t(N), [25, 50], axis=1)],
    "nanprod": [lambda t: np.nanprod(t(N), 0, initial=2.0)],
    "nanquantile": [lambda t: np.nanquantile(t(N), 0.3, axis=1, keepdims=True)],
    "nanstd": [
        lambda t: np.nanstd(t(N), axis=1, ddof=1),
        lambda t: np.nanstd(t(N), axis=1, ddof=3),
        lambda t: np.nanstd(t(N), axis=0, ddof=1, where=N != 0.5),
    ],
    "nansum": [lambda t: np.nansum(t(N)), lambda t: np.nansum(t(N), 1, where=N < 2)],
    "nanvar": [lambda t: np.nanvar(t(N)), lambda t: np.nanvar(t(N), 1, where=N != 2)],
    "ndim": [lambda t: np.ndim(t(X))],
    "nonzero": [lambda t: np.nonzero(t(B))],
    "ones_like": [
        lambda t: np.ones_like(t(X)),
        lambda t: np.ones_like(t(X), np.int32, shape=(2, 2)),
    ],
    "outer": [lambda t: np.outer(t(X), V)],
    "pad": [
        lambda t: np.pad(t(X), 1),
        lambda t: np.pad(t(V), (1, 2), mode="edge"),
        lambda t: np.pad(t(V), np.array([2, 1]), mode="reflect", reflect_type="even"),
        lambda t: np.pad(t(V), (1, 2), constant_values=(4, 6)),
        lambda t: np.pad(t(I), ((1, 2), (0, 3)), constant_values=((4, 6), (1, 2))),
        lambda t: np.pad(t(V), (2, 3), mode="linear_ramp", end_values=(5, -4)),
        lambda t: np.pad(t(I), 2, mode="linear_ramp", end_values=((7, -7), (0, 9))),
        lambda t: np.pad(t(C), (1, 2), mode="linear_ramp"),
        lambda t: np.pad(t(X), ((1, 0), (2, 2)), mode="maximum"),
        lambda t: np.pad(t(I), 1, mode="minimum", stat_length=2),
        lambda t: np.pad(t(X), 2, mode="mean", stat_length=((1, 2), (3, 1))),
        lambda t: np.pad(t(I), (1, 3), mode="mean"),
        lambda t: np.pad(t(J), (1, 3), mode="median"),
        lambda t: np.pad(t(X), 1, mode="empty")[1:-1, 1:-1],
    ],
    "partition": [lambda t: np.partition(t(V), 4)[4]],
    "percentile": [
        lambda t: np.percentile(t(X), 30, axis=0),
        lambda t: np.percentile(t(X), q=[10, 90]),
    ],
    "permute_dims": [lambda t: np.permute_dims(t(X), (1, 0))],
    "piecewise": [
        lambda t: np.piecewise(t(V), [V < 0, V >= 1], [lambda x: -x, 2.0, lambda x: x * x])
    ],
    "poly": [
        lambda t: np.poly(t(V[:3])),
        lambda t: np.poly(t(J)),
        lambda t: np.poly(t(S)),
        lambda t: np.poly(t(S + 1j * S.T[::-1])),
    ],
    "polyadd": [lambda t: np.polyadd(t(V), W[:2])],
    "polyder": [lambda t: np.polyder(t(V), 2)],
    "polydiv": [lambda t: np.polydiv(t(V), P[:2])[0]],
    "polyfit": [
        lambda t: np.polyfit(t(np.arange(5.0)), V, 2),
        lambda t: np.polyfit(np.arange(5.0), t(V), 1, w=W),
        lambda t: np.polyfit(np.arange(3.0), t(C), 1),
    ],
    "roots": [
        lambda t: np.sort_complex(np.roots(t(V))),
        lambda t: np.sort_complex(np.roots(t([0, 0, 1, -3, 2, 0, 0]))),
        lambda t: np.sort_complex(np.roots(t(C))),
        lambda t: np.roots(t([0.0, 0.0])).shape,
        lambda t: np.roots(t([7.0])).shape,
    ],
    "polyint": [lambda t: np.polyint(t(V), k=2.0)],
    "polymul": [lambda t: np.polymul(t(V), W[:2])],
    "polysub": [lambda t: np.polysub(t(V[:2]), W)],
    "polyval": [lambda t: np.polyval(t(V), W)],
    "prod": [lambda t: np.prod(t(X), axis=1, initial=2.0, where=X > 0)],
    "ptp": [lambda t: np.ptp(t(X), axis=0)],
    "quantile": [
        lambda t: np.quantile(t(X), 0.3),
        lambda t: np.quantile(t(X), [0.1, 0.7], axis=1, method="hazen"),
        lambda t: np.quantile(t(V), 0.4, weights=P, method="inverted_cdf"),
    ],
    "ravel": [lambda t: np.ravel(t(X)), lambda t: np.ravel(t(X), "F")],
    "ravel_multi_index": [lambda t: np.ravel_multi_index((t(J) % 2, J % 3), (2, 3))],
    "real": [lambda t: np.real(t(C))],
    "real_if_close": [lambda t: np.real_if_close(t(C)), lambda t: np.real_if_close(t(V + 0j))],
    "repeat": [lambda t: np.repeat(t(X), 2, axis=1), lambda t: np.repeat(t(J), [1, 0, 2])],
    "reshape": [lambda t: np.reshape(t(X), (2, -1)), lambda t: np.reshape(t(X), (2, 6), order="F")],
    "resize": [lambda t: np.resize(t(V), (2, 4))],
    "result_type": [],
    "roll": [lambda t: np.roll(t(X), 1), lambda t: np.roll(t(X), (1, 2), axis=(0, 1))],
    "rollaxis": [
        lambda t, axis=axis, start=start: np.rollaxis(t(X.reshape(3, 2, 2)), axis, start)
        for axis in (-1, 0, 1)
        for start in (-2, 0, 1, 3)
    ],
    "rot90": [lambda t: np.rot90(t(X)), lambda t: np.rot90(t(X), k=3, axes=(1, 0))],
    "round": [lambda t: np.round(t(X), 1)],
    "searchsorted": [lambda t: np.searchsorted(t(np.sort(V)), W, side="right")],
    "select": [lambda t: np.select([X > 1, X < 0], [t(X), t(X) ** 2], default=7.0)],
    "setdiff1d": [lambda t: np.setdiff1d(t(I), [1, 2])],
    "setxor1d": [lambda t: np.setxor1d(t(J), [2, 3])],
    "shape": [lambda t: np.shape(t(X))],
    "shares_memory": [lambda t: np.shares_memory(t(X), np.zeros(3))],
    "sinc": [lambda t: np.sinc(t(X))],
    "size": [lambda t: np.size(t(X)), lambda t: np.size(t(X), 1)],
    "sort": [lambda t: np.sort(t(X), axis=0), lambda t: np.sort(t(X), axis=None)],
    "sort_complex": [lambda t: np.sort_complex(t(C))],
    "split": [
        lambda t: np.split(t(X), 3),
        lambda t: np.split(t(V), [1, 4]),
        lambda t: np.split(t(V), (-2, 9)),
    ],
    "squeeze": [lambda t: np.squeeze(t(X[None]))],
    "stack": [lambda t: np.stack([t(V), W], axis=1)],
    "std": [lambda t: np.std(t(X), 1, ddof=1), lambda t: np.std(t(X), where=X > 0)],
    "sum": [lambda t: np.sum(t(X), (0, 1)), lambda t: np.sum(t(X), 1, where=X > 0, initial=1.0)],
    "swapaxes": [lambda t: np.swapaxes(t(X), 0, 1)],
    "take": [
        lambda t: np.take(t(X), [0, 5, -1], mode="wrap"),
        lambda t: np.take(t(X), [[1, 9]], 1, mode="clip"),
    ],
    "take_along_axis": [lambda t: np.take_along_axis(t(X), np.argsort(X, 1), 1)],
    "tensordot": [
        lambda t: np.tensordot(t(S), S),
        lambda t: np.tensordot(t(S), S, axes=([0], [1])),
    ],
    "tile": [lambda t: np.tile(t(V), (2, 2))],
    "trace": [lambda t: np.trace(t(X), 1)],
    "transpose": [lambda t: np.transpose(t(X)), lambda t: np.transpose(t(X), axes=(1, 0))],
    "trapezoid": [lambda t: np.trapezoid(t(X), dx=0.5, axis=0), lambda t: np.trapezoid(t(V), x=W)],
    "tril": [lambda t: np.tril(t(X), 1)],
    "tril_indices_from": [lambda t: np.tril_indices_from(t(X), k=1)],
    "trim_zeros": [lambda t: np.trim_zeros(t(np.array([0, 0, 3, 0, 2, 0])))],
    "triu": [lambda t: np.triu(t(X))],
    "triu_indices_from": [lambda t: np.triu_indices_from(t(S))],
    "union1d": [lambda t: np.union1d(t(J), [3, 2])],
    "unique": [
        lambda t: np.unique(t(I)),
        lambda t: np.unique(t(J), return_index=True, return_inverse=True, return_counts=True),
        lambda t: np.unique(t(I[[1, 0, 1]]), axis=0),
    ],
    "unique_all": [lambda t: np.unique_all(t(J))],
    "unique_counts": [lambda t: np.unique_counts(t(J))],
    "unique_inverse": [lambda t: np.unique_inverse(t(J))],
    "unique_values": [lambda t: np.sort(np.unique_values(t(J)))],
    "unravel_index": [
        lambda t: np.unravel_index(t(J), (4, 5)),
        lambda t: np.unravel_index(t(J), (4, 5), order="F"),
    ],
    "unstack": [lambda t: np.unstack(t(X), axis=1)],
    "unwrap": [lambda t: np.unwrap(t(V * 4)), lambda t: np.unwrap(t(X * 3), axis=0, period=4.0)],
    "vander": [lambda t: np.vander(t(V), 3, increasing=True)],
    "var": [lambda t: np.var(t(X)), lambda t: np.var(t(X), 0, where=X > 0, keepdims=True)],
    "vdot": [lambda t: np.vdot(t(C), C[::-1])],
    "vsplit": [lambda t: np.vsplit(t(X), 3)],
    "vstack": [lambda t: np.vstack([t(V), W]), lambda t: np.vstack([t(X), X[:1]])],
    "where": [lambda t: np.where(t(B), X[:2, :3], 0.0), lambda t: np.where(t(X) > 1)],
    "zeros_like": [
        lambda t: np.zeros_like(t(X), dtype=np.int8),
        lambda t: np.zeros_like(t(X[:0]), shape=(2, 3)),
    ],
    "linalg.cholesky": [lambda t: np.linalg.cholesky(t(S))],
    "linalg.cond": [lambda t: np.linalg.cond(t(S))],
    "linalg.cross": [lambda t: np.linalg.cross(t(S), S[::-1])],
    "linalg.det": [lambda t: np.linalg.det(t(S))],
    "linalg.diagonal": [lambda t: np.linalg.diagonal(t(S), offset=1)],
    "linalg.eigvals": [lambda t: np.sort_complex(np.linalg.eigvals(t(S + 0j)))],
    "linalg.eigvalsh": [lambda t: np.linalg.eigvalsh(t(S))],
    "linalg.inv": [lambda t: np.linalg.inv(t(S))],
    "linalg.matmul": [lambda t: np.linalg.matmul(t(S), S)],
    "linalg.matrix_norm": [lambda t: np.linalg.matrix_norm(t(S))],
    "linalg.matrix_power": [lambda t: np.linalg.matrix_power(t(S), 3)],
    "linalg.matrix_rank": [lambda t: np.linalg.matrix_rank(t(S))],
    "linalg.matrix_transpose": [lambda t: np.linalg.matrix_transpose(t(X))],
    "linalg.multi_dot": [lambda t: np.linalg.multi_dot([t(S), S, X])],
    "linalg.norm": [
        lambda t: np.linalg.norm(t(X)),
        lambda t: np.linalg.norm(t(X), 1, axis=1),
        lambda t: np.linalg.norm(t(S), "nuc"),
    ],
    "linalg.outer": [lambda t: np.linalg.outer(t(V), W)],
    "linalg.pinv": [lambda t: np.linalg.pinv(t(X))],
    "linalg.slogdet": [lambda t: np.linalg.slogdet(t(S))],
    "linalg.solve": [lambda t: np.linalg.solve(t(S), V[:3])],
    "linalg.svdvals": [lambda t: np.linalg.svdvals(t(X))],
    "linalg.tensordot": [lambda t: np.linalg.tensordot(t(S), S)],
    "linalg.tensorinv": [lambda t: np.linalg.tensorinv(t(np.eye(6).reshape(2, 3, 6) * 2), ind=2)],
    "linalg.tensorsolve": [
        lambda t: np.linalg.tensorsolve(t(np.eye(6).reshape(2, 3, 6) * 2), X[:2, :3])
    ],
    "linalg.trace": [lambda t: np.linalg.trace(t(S), offset=1)],
    "linalg.vecdot": [lambda t: np.linalg.vecdot(t(S), S)],
    "linalg.vector_norm": [lambda t: np.linalg.vector_norm(t(X), axis=1, ord=3)],
}
_SPECTRA = (
    "fft fft2 fftn fftshift ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftn"
)
CALLS |= {
    f"fft.{name}": [lambda t, name=name: getattr(np.fft, name)(t(V if name == "ihfft" else X))]
    for name in _SPECTRA.split()
}
CALLS["fft.hfft"] = [lambda t: np.fft.hfft(t(C), 5)]
# Compared elsewhere, by what their results are for, since signs and orders are free, or on files.
ELSEWHERE = (
    "linalg.eig linalg.eigh linalg.lstsq linalg.qr linalg.svd save savetxt savez savez_compressed"
).split()


def same(found, expected, what):
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected), what
        for one, other in zip(found, expected, strict=True):
            same(one, other, what)
        return
    if isinstance(expected, np.ndarray) and expected.ndim:
        array = what.startswith("atleast")  # see test_numpy_habits.py
        assert isinstance(found, np.ndarray if array else ef.Tensor), what
    if isinstance(expected, np.ndarray | np.generic):
        assert np.shape(found) == expected.shape, what
        np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-6, atol=1e-6, err_msg=what)
        return
    assert found == expected, what


def dispatched():
    return [n for n, f in FUNCTIONS.items() if not isinstance(f, np.ufunc) and n not in WAITING]


@pytest.mark.parametrize("name", dispatched())
def test_values_are_those_of_numpy(name):
    if name in ELSEWHERE or name in REFUSED.REASONS:
        pytest.skip("compared elsewhere")
    calls = CALLS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, call in enumerate(calls):
            same(call(ef.tensor), call(np.asarray), f"{name}, call {i}")


def test_refused_numpy_functions_state_the_reason():
    calls = [
        lambda: np.put(ef.tensor(V), [0], [1.0]),
        lambda: np.fill_diagonal(ef.tensor(S), 1.0),
        lambda: np.add.at(ef.tensor(V), [0], 1.0),
        lambda: np.isnat(ef.tensor(V)),
    ]
    for call in calls:
        with pytest.raises(DTypeError, match=r"does not take tensors: .{15}"):
            call()


# Element-wise functions -------------------------------------------------------------------------

OPERANDS = {
    "gcd": (I, J),
    "lcm": (I, J),
    "ldexp": (X[:2, :3], I),
    "bitwise_count": (I,),
    "matmul": (S, S),
    "matvec": (S, V[:3]),
    "vecmat": (V[:3], S),
    "vecdot": (S, S),
    "nextafter": (X, X + 1),
    "acosh": (P + 1,),
    "arccosh": (P + 1,),
    "logical_not": (X - 0.5,),
}
_SMALL = {"arcsin", "arccos", "arctanh", "asin", "acos", "atanh"}


def operands(name, ufunc):
    if name in OPERANDS:
        return OPERANDS[name]
    integral = "bitwise" in name or "shift" in name or name in ("invert",)
    if integral:
        return (I, J % 5)[: ufunc.nin]
    x = np.abs(X) + 0.25 if "log" in name or "sqrt" in name or "pow" in name else X
    x = X / 4 if name in _SMALL else x
    return (x, np.abs(X[::-1]) + 0.5)[: ufunc.nin]


UFUNCS = {n: f for n, f in FUNCTIONS.items() if isinstance(f, np.ufunc) and n != "isnat"}


@pytest.mark.parametrize("name", UFUNCS)
def test_element_wise_functions(name):
    args = operands(name, UFUNCS[name])
    found, expected = UFUNCS[name](*map(ef.tensor, args)), UFUNCS[name](*args)
    same(found, expected, name)


METHODS = {
    "add.reduce": lambda t: np.add.reduce(t(X)),
    "add.reduce axis": lambda t: np.add.reduce(t(X), axis=1, keepdims=True, initial=2.0),
    "add.reduce all": lambda t: np.add.reduce(t(X), None, where=X > 0),
    "multiply.reduce": lambda t: np.multiply.reduce(t(X), 1),
    "maximum.reduce": lambda t: np.maximum.reduce(t(X)),
    "logical_or.reduce": lambda t: np.logical_or.reduce(t(X) > 2, axis=0),
    "subtract.reduce": lambda t: np.subtract.reduce(t(X), axis=0),
    "hypot.reduce": lambda t: np.hypot.reduce(t(X), axis=(0, 1)),
    "bitwise_or.reduce": lambda t: np.bitwise_or.reduce(t(I), axis=1, keepdims=True),
    "logaddexp.reduce": lambda t: np.logaddexp.reduce(t(X), axis=1),
    "fmax.reduce": lambda t: np.fmax.reduce(t(N), axis=1),
    "add.accumulate": lambda t: np.add.accumulate(t(X), axis=1),
    "maximum.accumulate": lambda t: np.maximum.accumulate(t(X)),
    "subtract.accumulate": lambda t: np.subtract.accumulate(t(X), axis=1),
    "multiply.outer": lambda t: np.multiply.outer(t(V), X),
    "subtract.outer": lambda t: np.subtract.outer(t(X), W),
    "add.reduceat": lambda t: np.add.reduceat(t(V), [0, 2, 4]),
    "add dtype": lambda t: np.add(t(V), 1, dtype=np.float32),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_element_wise_functions(name):
    same(METHODS[name](ef.tensor), METHODS[name](np.asarray), name)


# Gradients ----------------------------------------------------------------------------------------

MOVING = (
    "append apply_along_axis average clip column_stack compress convolve corrcoef correlate cov"
    " cross cumprod cumsum delete diagflat diff dot dstack ediff1d einsum extract gradient"
    " hstack inner insert interp kron max mean median nanmax nanmean nanmedian nanpercentile"
    " nanprod nanquantile nanstd nansum nanvar outer pad partition percentile piecewise poly"
    " polyadd polyder polydiv polyfit polyint polymul polysub polyval prod ptp quantile repeat"
    " resize rollaxis rot90 select sinc sort std sum take tensordot tile trace trapezoid unwrap"
    " vander var vdot where linalg.det linalg.inv linalg.norm linalg.solve linalg.tensorinv"
    " linalg.tensorsolve"
).split()


def flat_sum(out):
    """One number of all results, each weighted differently."""
    parts = list(out) if isinstance(out, tuple | list) else [out]
    total = 0.0
    for part in parts:
        part = np.real(part)
        total = total + np.sum(
            part * np.cos(np.arange(np.size(part)).reshape(np.shape(part)) + 1.0)
        )
    return total


@pytest.mark.parametrize("name", MOVING)
def test_gradients_pass(name):
    """The derivative along one direction is that of a difference quotient with NumPy's function."""
    call = CALLS[name][0]
    base = []
    call(lambda x: base.append(np.asarray(x)) or np.asarray(x))
    origin = base[0]
    if origin.dtype.kind not in "f":
        pytest.skip("of whole numbers and conditions")
    way = np.sin(np.arange(origin.size).reshape(origin.shape) + 0.5)

    def along(x):
        return flat_sum(call(lambda value: x))

    gradient = ef.grad(along)(ef.tensor(origin)).numpy()
    step = 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quotient = (along(origin + step * way) - along(origin - step * way)) / (2 * step)
    np.testing.assert_allclose((gradient * way).sum(), quotient, rtol=1e-4, atol=1e-6)
