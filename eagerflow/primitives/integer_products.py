"""Products of matrices, and convolutions, of 8-bit integers: generated kernels, or exact floats.

Sums are always int32; beyond 2³¹ they wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.codegen.generated import enabled
from eagerflow.primitives import byte_convolution, matrix_product
from eagerflow.primitives.convolution import by_group, columns_of, cuts_for
from eagerflow.primitives.windows import Windows
from eagerflow.runtime import buffers, threads
from eagerflow.spec import Array

SUMS = np.dtype(np.int32)
EXACT = 1 << 24  # integers up to here are exact in float32


def multiply(a: Array, b: Array, out: Array) -> Array:
    """``a @ b`` for stacks of matrices of int8 or uint8, into ``out``, of int32."""
    work = out.size * a.shape[-1]
    if work >= matrix_product.MIN_GENERATED and enabled() and matrix_product.takes(a, b, SUMS):
        return matrix_product.multiply(a, b, out)
    multiply_floats(a, b, out)
    return out


def multiply_floats(a: Any, b: Any, out: Any) -> None:
    """Products by BLAS, in chunks of terms with exact float32 sums."""
    terms = EXACT // (_largest(a) * _largest(b))
    out[...] = 0
    threads.dismiss()
    for first in range(0, a.shape[-1], terms):
        part = slice(first, first + terms)
        left, right = a[..., part].astype(np.float32), b[..., part, :].astype(np.float32)
        out += np.matmul(left, right).astype(SUMS)


def _largest(x: Any) -> int:
    """The largest magnitude in an array's dtype."""
    limits = np.iinfo(x.dtype)
    return max(-int(limits.min), int(limits.max))


def convolve(x: Array, w: Array, windows: Windows, groups: int, out: Array | None = None) -> Array:
    """The convolution of ``x`` (batch, *spatial, channels) with ``w`` at ``windows``, as int32.

    ``out`` is C-contiguous.
    """
    shape = len(x), *(a.out for a in windows), w.shape[-1]
    y = buffers.empty(shape, SUMS) if out is None else out
    if not y.size or not w.size:
        y[...] = 0
        return y
    if groups == 1 and (call := byte_convolution.call_for(x, w, windows)):
        call.run(a=x, b=w, c=y)
        return y
    weights = np.ascontiguousarray(by_group(w.reshape(-1, w.shape[-1]), groups))
    blocks = cuts_for(len(x), windows, w[..., 0].size, w.shape[-1] // groups)

    def fill(i: int) -> None:
        block = blocks[i]
        part = y[block.images, block.rows].reshape(-1, y.shape[-1])
        columns = columns_of(x, block, windows, groups)
        if groups == 1:
            multiply(columns[0], weights[0], part)
            return
        sums = np.empty((groups, len(part), w.shape[-1] // groups), SUMS)
        by_group(part, groups)[...] = multiply(columns, weights, sums)

    threads.run(fill, len(blocks))
    return y
