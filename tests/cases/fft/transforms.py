"""Cases of eagerflow/ops/fft/transforms.py."""

import cmath
import math

import numpy as np

from eagerflow.errors import ArgumentError, AxisError, DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    found = []
    for shape, axis, n in (
        ((4,), -1, None),
        ((5,), 0, None),
        ((2,), -1, None),
        ((6,), -1, 4),
        ((3,), -1, 6),
        ((2, 3), 0, None),
        ((2, 3, 4), 1, 5),
        ((2, 3, 4), -1, 3),
        ((0, 3), 1, None),
        ((2, 3), 1, 1),
    ):
        norm = ("backward", "ortho", "forward")[len(found) % 3]
        found.append(Sample((make(rng, dtype, shape),), {"n": n, "axis": axis, "norm": norm}))
    base = make(rng, dtype, (4, 6))
    found.append(Sample((base.T[::2],), {"axis": 0}))
    found.append(Sample((np.broadcast_to(base[0], (2, 6)),), {}))
    return found


def _errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"n": 0}, ShapeError, "a transform of 0 elements"),
        ErrorSample((x,), {"n": -2}, ShapeError, "negative"),
        ErrorSample((x,), {"n": 2.5}, ShapeError, "is not a size"),
        ErrorSample((x,), {"n": 2**62}, ShapeError, "too large"),
        ErrorSample((x,), {"norm": "unitary"}, ArgumentError, "'unitary' is not a norm"),
        ErrorSample((x,), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x[:, :0],), {}, ShapeError, "a transform of"),
    ]


def _real_errors(rng):
    x = rng.standard_normal((2, 3))
    return [*_errors(rng), ErrorSample((x * 1j,), {}, DTypeError, "complex128 is not taken")]


def _by_definition(sign):
    """A sum for each frequency, in Python's numbers."""

    def reference(x, n, axis, norm):
        rows = np.moveaxis(x, axis, -1)
        length = rows.shape[-1] if n is None else n
        scale = {"backward": -sign, "forward": sign, "ortho": 0}[norm]
        factor = {1: 1.0, -1: 1 / length, 0: 1 / math.sqrt(length)}[scale]
        roots = [cmath.exp(sign * 2j * math.pi * i / length) for i in range(length)]
        out = np.empty((*rows.shape[:-1], length), "complex128")
        for at in np.ndindex(rows.shape[:-1]):
            row = rows[at].tolist()[:length]
            out[at] = [
                factor * sum((v * roots[i * k % length] for i, v in enumerate(row)), 0j)
                for k in range(length)
            ]
        return np.moveaxis(out, -1, axis)

    return reference


def _real_reference(x, n, axis, norm):
    whole = np.moveaxis(_by_definition(-1)(x, n, axis, norm), axis, -1)
    return np.moveaxis(whole[..., : whole.shape[-1] // 2 + 1], -1, axis)


def _back_reference(x, n, axis, norm):
    rows = np.moveaxis(x, axis, -1).astype("complex128")
    length = 2 * (rows.shape[-1] - 1) if n is None else n
    whole = np.zeros((*rows.shape[:-1], length), "complex128")
    for k in range(min(rows.shape[-1], length // 2 + 1)):
        whole[..., -k] = rows[..., k].conj()
        whole[..., k] = rows[..., k] if 0 < 2 * k != length else rows[..., k].real
    return np.moveaxis(_by_definition(1)(whole, None, -1, norm).real, -1, axis)


CASES = {
    "fft": Cases(_samples, _errors, _by_definition(-1)),
    "ifft": Cases(_samples, _errors, _by_definition(1)),
    "rfft": Cases(_samples, _real_errors, _real_reference),
    "irfft": Cases(_samples, _errors, _back_reference),
}
