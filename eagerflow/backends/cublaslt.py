"""Products of matrices by cuBLASLt, through nvmath-python, an optional package.

Unlike cuBLAS through CuPy, they can be recorded in a CUDA graph, and support epilogues: adding a
bias, activations, the gradient of one. A product is planned once for each combination of shapes and
strides.

cuBLASLt is column-major: it sees a row-major array as the transposed matrix. So it computes
(x1·x2)ᵀ = x2ᵀ·x1ᵀ, in which a bias over our columns is one over its rows, as it requires.

Names and signatures are those of nvmath-python 1.0. Checked with a mock that computes by NumPy; not
run on a GPU yet.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.extras import load_if_there
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked, reentrant_lock

MAX_WORKSPACE_BYTES = 32 << 20  # NVIDIA's recommendation for Hopper
ALIGNMENT_BYTES = 16  # the alignment of operands that algorithms may rely on
MAX_PLANNED = 1024
EPILOGUES = frozenset(
    "default bias relu relu_bias gelu gelu_bias gelu_aux gelu_aux_bias dgelu dgelu_bgrad".split()
)
"""Epilogues of a product, by cuBLASLt's names; gelu is the form with tanh. "aux" also
writes its argument, which "dgelu" reads; "bgrad" also computes the sums of the columns."""
AUX_MULTIPLE = 8  # the number of columns must be a multiple, if there is such an argument

_TYPES = {  # types of the data, and of sums and scales
    "float16": ("CUDA_R_16F", "CUDA_R_32F", "COMPUTE_32F"),
    "bfloat16": ("CUDA_R_16BF", "CUDA_R_32F", "COMPUTE_32F"),
    "float32": ("CUDA_R_32F", "CUDA_R_32F", "COMPUTE_32F"),
    "float64": ("CUDA_R_64F", "CUDA_R_64F", "COMPUTE_64F"),
}


class Matrices(NamedTuple):
    """An array as cuBLASLt sees it: matrices of contiguous columns, ``stride`` apart."""

    rows: int
    columns: int
    stride: int
    batch: int
    batch_stride: int
    turned: bool
    """False if they are transposed matrices of the array"""


def seen(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> Matrices | None:
    """The matrices along the last two axes of an array; None for other strides.

    >>> seen((4, 3), (12, 4), 4)
    Matrices(rows=3, columns=4, stride=3, batch=1, batch_stride=0, turned=False)
    >>> seen((4, 3), (4, 16), 4)
    Matrices(rows=4, columns=3, stride=4, batch=1, batch_stride=0, turned=True)
    >>> seen((4, 3), (24, 8), 4)
    """
    if 0 in shape or any(step % item_bytes or step < 0 for step in strides):
        return None
    *outer, (rows, row_step), (columns, column_step) = [
        (n, step // item_bytes) for n, step in zip(shape, strides, strict=True)
    ]
    stacks = [(n, step) for n, step in outer if n > 1]
    if any(step != n * inner for (_, step), (n, inner) in pairwise(stacks)):
        return None
    batch = prod(n for n, _ in stacks), stacks[-1][1] if stacks else 0
    if columns == 1 or column_step == 1:
        stride = columns if rows == 1 else row_step
        if stride >= columns:
            return Matrices(columns, rows, stride, *batch, False)
    if rows == 1 or row_step == 1:
        stride = rows if columns == 1 else column_step
        if stride >= rows:
            return Matrices(rows, columns, stride, *batch, True)
    return None


def _operands(x1: Any, x2: Any, out: Any) -> tuple[Matrices, Matrices, Matrices] | None:
    """The layouts of a product's arrays; a stack times a single matrix is one product."""
    shapes = [(x.shape, x.strides) for x in (x1, x2, out)]
    if x1.ndim > 2 and x2.ndim == 2 and x1.flags.c_contiguous:
        for i in (0, 2):
            shape, strides = shapes[i]
            shapes[i] = (prod(shape[:-1]), shape[-1]), strides[-2:]
    if min(x1.ndim, x2.ndim) < 2 or len({shape[:-2] for shape, _ in shapes}) > 1:
        return None
    found = [seen(*own, out.dtype.itemsize) for own in shapes]
    left, right, made = found
    return None if left is None or right is None or made is None else (left, right, made)


def cublaslt(cupy: Any) -> CublasLt | None:
    """The library for the current GPU; None if it, or nvmath-python, is missing."""
    names = ("nvmath", "nvmath.bindings.cublas", "nvmath.bindings.cublasLt")
    loaded = [load_if_there(name) for name in names]
    if None in loaded:
        return None
    nvmath, blas, bindings = loaded
    try:
        return CublasLt(cupy, bindings, nvmath.CudaDataType, blas.ComputeType)
    except raised_here(RuntimeError):  # the package is installed, but not the library that it binds
        return None


class CublasLt:
    """Products on one GPU, which is current in all calls. Several threads may call it at once."""

    def __init__(self, cupy: Any, bindings: Any, data_types: Any, compute_types: Any) -> None:
        self.cupy, self.bindings = cupy, bindings
        self.data_types, self.compute_types = data_types, compute_types
        self.handle = self.bindings.create()
        self._planned: dict[Any, Planned | None] = {}
        self._lock = reentrant_lock()
        weakref.finalize(self, self.bindings.destroy, self.handle).atexit = False

    def __call__(
        self, epilogue: str, x1: Any, x2: Any, out: Any, vector: Any = None, matrix: Any = None
    ) -> bool:
        """Start ``out = x1 @ x2`` with one of EPILOGUES on the current stream; False if
        unsupported.

        ``vector`` is a bias, or receives the sums of columns; ``matrix`` receives or holds the
        argument of gelu. Both, and ``out``, are in row-major order, and all are of one dtype.
        """
        arrays = [x for x in (x1, x2, out, vector, matrix) if x is not None]
        if any(x.data.ptr % ALIGNMENT_BYTES or x.dtype != out.dtype for x in arrays):
            return False
        key = epilogue, out.dtype, x1.shape, x1.strides, x2.shape, x2.strides
        with Locked(self._lock):
            found = self._planned.get(key)
            if found is None and key not in self._planned:
                if len(self._planned) >= MAX_PLANNED:
                    self._planned.pop(next(iter(self._planned)))
                found = self._planned[key] = self._plan(epilogue, x1, x2, out, vector, matrix)
            if found is None:
                return False
            found.point(vector, matrix)
            found.start(x1, x2, out)
        return True

    def _plan(
        self, epilogue: str, x1: Any, x2: Any, out: Any, vector: Any, matrix: Any
    ) -> Planned | None:
        operands = _operands(x1, x2, out) if out.dtype.name in _TYPES else None
        if operands is None or (epilogue != "default" and operands[2].batch > 1):
            return None
        if matrix is not None and operands[2].rows % AUX_MULTIPLE:
            return None
        found = Planned(self, epilogue, operands, out.dtype)
        found.point(vector, matrix)
        return found if found.choose() else None


class Planned:
    """A product for given shapes and strides, with its algorithm."""

    def __init__(
        self, owner: CublasLt, epilogue: str, operands: tuple[Matrices, ...], dtype: Any
    ) -> None:
        library = owner.bindings
        self._owner, self._library = owner, library
        data, scale, sums = _TYPES[dtype.name]
        data_type, scale_type = owner.data_types[data], owner.data_types[scale]
        wide = np.float64 if dtype == np.float64 else np.float32
        self._one, self._zero = np.ones(1, wide), np.zeros(1, wide)
        self._about = library.matmul_desc_create(owner.compute_types[sums], scale_type)
        self._free(library.matmul_desc_destroy, self._about)
        left, right, made = operands
        self._describe(EPILOGUE=library.Epilogue[epilogue.upper()])
        self._describe(TRANSA=int(right.turned), TRANSB=int(left.turned))
        if "aux" in epilogue or "dgelu" in epilogue:
            self._describe(EPILOGUE_AUX_LD=made.rows)
        self._layouts = [self._layout(data_type, own) for own in (right, left, made)]
        self._chosen = np.zeros(1, library.matmul_heuristic_result_dtype)

    def _free(self, destroy: Callable[[int], None], what: int) -> None:
        weakref.finalize(self, destroy, what).atexit = False  # released with the process

    def _describe(self, **attributes: int) -> None:
        """Set attributes of the product."""
        own = self._library
        for name, value in attributes.items():
            number = own.MatmulDescAttribute[name]
            held = np.array([value], own.get_matmul_desc_attribute_dtype(number))
            own.matmul_desc_set_attribute(self._about, number, held.ctypes.data, held.nbytes)

    def _layout(self, data_type: int, matrices: Matrices) -> int:
        own = self._library
        layout: int = own.matrix_layout_create(
            data_type, matrices.rows, matrices.columns, matrices.stride
        )
        self._free(own.matrix_layout_destroy, layout)
        about = {"BATCH_COUNT": matrices.batch, "STRIDED_BATCH_OFFSET": matrices.batch_stride}
        for name, value in about.items():
            number = own.MatrixLayoutAttribute[name]
            held = np.array([value], own.get_matrix_layout_attribute_dtype(number))
            own.matrix_layout_set_attribute(layout, number, held.ctypes.data, held.nbytes)
        return layout

    def point(self, vector: Any, matrix: Any) -> None:
        """Set the addresses of the bias or the sums of columns, and of the argument of gelu."""
        if vector is not None:
            self._describe(BIAS_POINTER=vector.data.ptr)
        if matrix is not None:
            self._describe(EPILOGUE_AUX_POINTER=matrix.data.ptr)

    def choose(self) -> bool:
        """Select the best algorithm; False if there is none."""
        own = self._library
        preference = own.matmul_preference_create()
        try:
            wanted = {f"MIN_ALIGNMENT_{name}_BYTES": ALIGNMENT_BYTES for name in "ABCD"}
            for name, value in (wanted | {"MAX_WORKSPACE_BYTES": MAX_WORKSPACE_BYTES}).items():
                number = own.MatmulPreferenceAttribute[name]
                held = np.array([value], own.get_matmul_preference_attribute_dtype(number))
                own.matmul_preference_set_attribute(
                    preference, number, held.ctypes.data, held.nbytes
                )
            count = np.zeros(1, np.int32)
            a, b, d = self._layouts
            chosen, found = self._chosen.ctypes.data, count.ctypes.data
            own.matmul_algo_get_heuristic(
                self._owner.handle, self._about, a, b, d, d, preference, 1, chosen, found
            )
        except own.cuBLASLtError:  # one of the two ways in which it reports that there is none
            return False
        finally:
            own.matmul_preference_destroy(preference)
        return bool(count[0])

    def start(self, x1: Any, x2: Any, out: Any) -> None:
        """Start the product on the current stream."""
        cupy, own = self._owner.cupy, self._library
        a, b, d = self._layouts
        size = int(self._chosen["workspace_size"][0])
        # Returned to the pool at once: the next use is later in the stream.
        workspace = cupy.empty((size,), np.dtype(np.uint8)) if size else None
        own.matmul(
            self._owner.handle,
            self._about,
            self._one.ctypes.data,
            x2.data.ptr,
            a,
            x1.data.ptr,
            b,
            self._zero.ctypes.data,
            out.data.ptr,
            d,
            out.data.ptr,
            d,
            self._chosen.ctypes.data,
            0 if workspace is None else workspace.data.ptr,
            size,
            cupy.cuda.get_current_stream().ptr,
        )
