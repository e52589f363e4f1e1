"""Products of floats with quantized weights: generated kernels, or dequantized weights.

The weights are bytes of the shape (groups, rows of bytes, columns): int8, or uint8 with two
numbers of 4 bits in each byte, the upper row in the lower bits. Scales are (groups, 1, columns).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from eagerflow.codegen.generated import enabled
from eagerflow.codegen.layout import like
from eagerflow.primitives.llvm.matrix_product import ProductWriter
from eagerflow.primitives.llvm.product_packing import ProductConfig
from eagerflow.primitives.llvm.product_terms import Terms
from eagerflow.primitives.llvm.staged_kernel import Operand, processor
from eagerflow.primitives.llvm.weight_product import WRITERS
from eagerflow.primitives.matrix_product import (
    MIN_GENERATED,
    FixedProduct,
    Matrices,
    ProductCall,
    block_for,
    kept,
)
from eagerflow.runtime import machine_code, threads
from eagerflow.spec import Array


class WeightProductCall(ProductCall):
    """Products of rows of floats with weights of known shapes and strides."""

    def __init__(self, given: Matrices, b_row: int, scale_row: int, group_rows: int) -> None:
        super().__init__(given)
        more = {"b_row": b_row, "scale_row": scale_row, "group_rows": group_rows}
        self.numbers.update(more)

    def _chosen(self) -> tuple[ProductConfig, type[ProductWriter]]:
        given, size = self.given, machine_code.host().vector_bytes
        lanes, registers = processor("float32")
        vectors = -(-given.columns // lanes)
        block = block_for(given.rows, vectors, given.depth, registers, size)
        config = ProductConfig(given.terms, block, "direct", "packed", False)
        return config, WRITERS[given.terms.b]

    def new_jobs(self, step: int, workspace: int, likes: Any, panels: Any = None) -> list[Any]:
        """The job of a segment's step, on the arrays rows, bytes, scales and result."""
        names = ("a", "b", "scales", "c")
        own = {name: Operand(i, likes[i]) for i, name in enumerate(names)}
        return [self._job(self.writer, own, step, workspace)]


class FixedWeightProduct(FixedProduct):
    """The call as a step of a plan's segment."""

    def held(self, b: Array) -> FixedProduct:
        """The call itself: packing in advance would produce floats."""
        return self

    def repeated(self) -> FixedProduct:
        """The call itself."""
        return self


@kept
def known_call(
    dtype: str,
    sizes: tuple[int, int, int],
    rows: tuple[int, int],
    group_rows: int,
    scale_row: int,
    thread_count: int,
) -> WeightProductCall:
    """The call for the numbers of rows, terms and columns, and the strides."""
    (m, k, n), (a_row, b_row) = sizes, rows
    terms = Terms("float32", dtype, "float32", "float32")
    given = Matrices(terms, 1, m, k, n, (0, a_row, 4), (0, 0, 1), (0, 4 * n))
    return WeightProductCall(given, b_row, scale_row, group_rows)


def _prepared(x: Array, w: Array, scale: Array, out: Array) -> WeightProductCall | None:
    """The call for arrays of these layouts; None if no kernel supports them."""
    straight = all(a.flags.c_contiguous for a in (x, w, scale, out))
    k, n = x.shape[-1], out.shape[-1]
    m = prod(x.shape[:-1])
    if not (enabled() and straight and m * k * n and x.dtype == scale.dtype == np.float32):
        return None
    sizes, rows = (m, k, n), (4 * k, n)
    return known_call(w.dtype.name, sizes, rows, k // len(w), 4 * n, threads.thread_count())  # type: ignore[no-any-return]


def multiply(x: Array, w: Array, scale: Array, out: Array) -> Array:
    """``x @ weights`` for rows of float32, into ``out``, which is contiguous."""
    x, w, scale = (np.ascontiguousarray(a) for a in (x, w, scale))
    call = _prepared(x, w, scale, out) if out.size * x.shape[-1] >= MIN_GENERATED else None
    if call is None:
        flat = x.reshape(prod(x.shape[:-1]), x.shape[-1])
        out[...] = np.dot(flat, whole(w, scale)).reshape(out.shape)
    else:
        call.run(a=x, b=w, scales=scale, c=out)
    return out


def whole(w: Array, scale: Array) -> Array:
    """The dequantized weights, as one matrix."""
    if w.dtype == np.uint8:
        w = np.stack([w & 15, w >> 4], axis=2).reshape(len(w), 2 * w.shape[1], w.shape[2])
        w = (w ^ 8).astype(np.int8) - np.int8(8)
    found: Array = (w.astype(scale.dtype) * scale).reshape(-1, w.shape[-1])
    return found


def fixed(x: Array, w: Array, scale: Array, out: Array) -> FixedWeightProduct | None:
    """The call for a product of such arrays in a segment; None if no kernel supports them."""
    call = _prepared(x, w, scale, out)
    return None if call is None else FixedWeightProduct(call, like(x, w, scale, out))
