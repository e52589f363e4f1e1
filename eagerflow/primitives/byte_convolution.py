"""Convolutions of bytes by generated kernels: choice of kernel, and division of work."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from eagerflow.codegen.generated import enabled
from eagerflow.codegen.layout import like
from eagerflow.primitives.llvm.byte_convolution import (
    ByteConvolutionRowsWriter,
    ByteConvolutionWriter,
)
from eagerflow.primitives.llvm.matrix_product import PackWriter, ProductWriter
from eagerflow.primitives.llvm.product_packing import ProductConfig
from eagerflow.primitives.llvm.staged_kernel import kept, processor
from eagerflow.primitives.matrix_product import (
    MIN_GENERATED,
    FixedProduct,
    HeldProduct,
    Matrices,
    ProductCall,
    block_for,
    terms_of,
)
from eagerflow.primitives.windows import Windows
from eagerflow.runtime import machine_code, threads
from eagerflow.spec import Array


class ByteConvolutionCall(ProductCall):
    """Convolutions of images and filters of known shapes."""

    def __init__(self, given: Matrices, windows: Windows) -> None:
        super().__init__(given, True)
        *lines, line = windows
        channels = given.depth // prod(w.kernel for w in windows)
        wide = line.size * channels  # elements of a line
        self.numbers.update(
            image_positions=prod(w.out for w in windows),
            line_positions=line.out,
            image_next=prod(w.size for w in windows) * channels,
            line_next=lines[0].stride * wide if lines else 0,
            position_next=line.stride * channels,
            run_length=line.kernel * channels,
            run_next=lines[0].dilation * wide if lines else 0,
        )

    def _chosen(self) -> tuple[ProductConfig, type[ProductWriter]]:
        given = self.given
        lanes, registers = processor(given.terms.sums)
        vectors, units = -(-given.columns // lanes), -(-given.depth // given.terms.group)
        size = machine_code.host().vector_bytes
        block = block_for(given.rows, vectors, units, registers, size)
        config = ProductConfig(given.terms, block, "copied", "packed", True)
        return config, ByteConvolutionWriter

    @property
    def writers(self) -> list[type[ProductWriter]]:
        """The writers of the kernels of its jobs."""
        return [PackWriter, ByteConvolutionRowsWriter]

    def member(self, rows: int) -> Any:
        """Not part of chains."""


class FixedByteConvolution(FixedProduct):
    """The call as a step of a plan's segment."""

    chain_rows = None

    def held(self, b: Array) -> FixedProduct:
        """The call with constant filters ``b``, packed once."""
        return HeldProduct(self.call, self.likes, self.call.packed(b))

    def repeated(self) -> FixedProduct:
        """The call itself."""
        return self


@kept
def known_call(given: Matrices, windows: Windows, thread_count: int) -> ByteConvolutionCall:
    """The call for filters and images of these sizes."""
    return ByteConvolutionCall(given, windows)


def call_for(x: Array, w: Array, windows: Windows) -> ByteConvolutionCall | None:
    """The call for images and filters in row-major order; None if no kernel supports them.

    Windows lie inside the images, along one or two axes, and are contiguous along the last.
    """
    inside = all(
        v.before == 0 and (v.out - 1) * v.stride + v.extent <= v.size and v.out for v in windows
    )
    last = windows[-1]
    fits = inside and len(windows) <= 2 and (last.dilation == 1 or last.kernel == 1)
    depth, filters = prod(w.shape[:-1]), w.shape[-1]
    work = len(x) * prod(v.out for v in windows) * depth * filters
    if not (fits and enabled() and w.dtype == np.int8 and work >= MIN_GENERATED):
        return None
    if not (x.flags.c_contiguous and w.flags.c_contiguous):
        return None
    terms = terms_of(x.dtype.name, w.dtype.name, "int32")
    assert terms is not None, "bytes are multiplied by int8"
    rows = len(x) * prod(v.out for v in windows)
    strides = (0, depth, 1), (0, filters, 1), (0, 4 * filters)
    given = Matrices(terms, 1, rows, depth, filters, *strides)
    found: ByteConvolutionCall = known_call(given, windows, threads.thread_count())
    return found


def fixed(x: Array, w: Array, out: Array, windows: Windows) -> FixedByteConvolution | None:
    """The call for a convolution of such arrays in a segment; None if no kernel supports them."""
    call = call_for(x, w, windows) if out.flags.c_contiguous else None
    return None if call is None else FixedByteConvolution(call, like(x, w, out))
