"""A look-alike of the used part of nvmath-python's bindings of cuBLASLt, by NumPy.

Matrices are columns, as in cuBLASLt. What it would compute wrongly or refuse is an error here:
pointers of no array, operands that are not aligned, an algorithm that was chosen for something
else, a workspace that is too small, a descriptor that was destroyed.
"""

import ctypes
import enum
import itertools
import types

import ml_dtypes
import numpy as np

WORKSPACE_BYTES = 1000

CudaDataType = enum.IntEnum(
    "CudaDataType", {"CUDA_R_32F": 0, "CUDA_R_64F": 1, "CUDA_R_16F": 2, "CUDA_R_16BF": 14}
)
ComputeType = enum.IntEnum("ComputeType", {"COMPUTE_32F": 68, "COMPUTE_64F": 70})
Epilogue = enum.IntEnum(
    "Epilogue",
    {"DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_AUX": 160}
    | {"GELU_BIAS": 36, "GELU_AUX_BIAS": 164, "DGELU": 192, "DGELU_BGRAD": 208},
)
DESCRIPTION = {"TRANSA": (3, "i4"), "TRANSB": (4, "i4"), "EPILOGUE": (7, "u4")}
DESCRIPTION |= {"BIAS_POINTER": (8, "i8"), "EPILOGUE_AUX_POINTER": (11, "i8")}
DESCRIPTION |= {"EPILOGUE_AUX_LD": (12, "i8")}
LAYOUT = {"BATCH_COUNT": (5, "i4"), "STRIDED_BATCH_OFFSET": (6, "i8")}
PREFERENCE = {"MAX_WORKSPACE_BYTES": (1, "u8")}
PREFERENCE |= {f"MIN_ALIGNMENT_{x}_BYTES": (5 + i, "u4") for i, x in enumerate("ABCD")}

_TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}


class cuBLASLtError(Exception):
    pass


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_derivative(x):
    u = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + u) + 0.5 * x * (1 - u**2) * slope


class Library:
    """``nvmath.bindings.cublasLt`` beside a look-alike of CuPy; ``started`` are its epilogues."""

    cuBLASLtError = cuBLASLtError
    Epilogue = Epilogue
    MatmulDescAttribute = enum.IntEnum("D", {k: v[0] for k, v in DESCRIPTION.items()})
    MatrixLayoutAttribute = enum.IntEnum("L", {k: v[0] for k, v in LAYOUT.items()})
    MatmulPreferenceAttribute = enum.IntEnum("P", {k: v[0] for k, v in PREFERENCE.items()})
    matmul_heuristic_result_dtype = np.dtype(
        [
            ("algo", [("data_", "<u8", (8,))]),
            ("workspace_size", "<u8"),
            ("state", "<i4"),
            ("waves_count", "<f4"),
            ("reserved", "<i4", (4,)),
        ]
    )

    def __init__(self, cupy, works=True):
        self.cupy, self.works, self.started = cupy, works, []
        self.things, self.numbers = {}, itertools.count(1)
        for name, known in (
            ("matmul_desc", DESCRIPTION),
            ("matrix_layout", LAYOUT),
            ("matmul_preference", PREFERENCE),
        ):
            setattr(self, f"{name}_set_attribute", self._setter(known))
            setattr(self, f"get_{name}_attribute_dtype", self._types(known))
            setattr(self, f"{name}_destroy", self.destroy)

    def _add(self, **about):
        number = next(self.numbers)
        self.things[number] = about
        return number

    def _types(self, known):
        return lambda attribute: {n: np.dtype(t).type for n, t in known.values()}[attribute]

    def _setter(self, known):
        names = {number: (name, np.dtype(t)) for name, (number, t) in known.items()}

        def set_attribute(thing, attribute, buffer, size):
            name, dtype = names[attribute]
            assert size == dtype.itemsize
            value = np.frombuffer(ctypes.string_at(buffer, size), dtype)[0]
            self.things[thing][name] = int(value)

        return set_attribute

    def create(self):
        if not self.works:
            raise RuntimeError("libcublasLt.so.12: cannot open shared object file")
        return self._add(device=self.cupy.thread.device)

    def destroy(self, thing):
        del self.things[thing]

    def matmul_desc_create(self, compute_type, scale_type):
        assert (compute_type, scale_type) in ((68, 0), (70, 1))
        return self._add(compute=compute_type, TRANSA=0, TRANSB=0, EPILOGUE=1)

    def matrix_layout_create(self, kind, rows, columns, stride):
        assert stride >= rows > 0 < columns
        return self._add(dtype=np.dtype(_TYPES[int(kind)]), shape=(rows, columns), stride=stride)

    def matmul_preference_create(self):
        return self._add()

    def _about(self, description, a, b, d):
        """The problem that an algorithm is chosen for."""
        own = {k: v for k, v in self.things[description].items() if "POINTER" not in k}
        return repr((own, [self.things[x] for x in (a, b, d)]))

    def matmul_algo_get_heuristic(self, handle, about, a, b, c, d, preference, wanted, into, count):
        assert c == d and wanted == 1 and self.things[handle]["device"] == self.cupy.thread.device
        limits = self.things[preference]
        assert limits["MAX_WORKSPACE_BYTES"] >= WORKSPACE_BYTES
        assert all(limits[f"MIN_ALIGNMENT_{x}_BYTES"] == 16 for x in "ABCD")
        found = np.zeros(1, self.matmul_heuristic_result_dtype)
        found["algo"]["data_"][0, 0] = self._add(about=self._about(about, a, b, d))
        found["workspace_size"] = WORKSPACE_BYTES
        ctypes.memmove(into, found.ctypes.data, found.nbytes)
        ctypes.memmove(count, np.ones(1, np.int32).ctypes.data, 4)

    def matmul(
        self, handle, about, one, x, a, y, b, zero, c, _, into, d, algo, memory, size, stream
    ):
        assert c == into and size >= WORKSPACE_BYTES
        assert stream == self.cupy.streams.current.ptr
        assert self.things[handle]["device"] == self.cupy.thread.device
        chosen = np.frombuffer(ctypes.string_at(algo, 64), "u8")[0]
        assert self.things[chosen]["about"] == self._about(about, a, b, d)
        wide = np.float64 if self.things[about]["compute"] == 70 else np.float32
        scales = [np.frombuffer(ctypes.string_at(p, 8), wide)[0] for p in (one, zero)]
        assert scales == [1, 0]
        operands = [(p, dict(self.things[t])) for p, t in ((x, a), (y, b), (into, d))]
        own = dict(self.things[about])
        self.cupy.work(lambda: self._compute(own, operands, memory, size))

    def _compute(self, about, operands, memory, size):
        for pointer in (memory, memory + size - 1):
            self.cupy.check_address(pointer)
        left, right, made = (self._matrices(*operand) for operand in operands)
        wide = np.float64 if about["compute"] == 70 else np.float32
        left = left.astype(wide).mT if about["TRANSA"] else left.astype(wide)
        right = right.astype(wide).mT if about["TRANSB"] else right.astype(wide)
        name = Epilogue(about["EPILOGUE"]).name
        self.started.append(name.lower())
        made[...] = self._after(name, about, left @ right, made)

    def _after(self, name, about, values, made):
        """The epilogue of a product of columns."""
        if name == "DEFAULT":
            return values
        assert len(made) == 1
        dtype, rows = made.dtype, made.shape[1]
        if "BIAS" in name:
            values = values + self._at(about["BIAS_POINTER"], dtype, (rows,), (1,))[:, None]
        if "GELU_AUX" in name or "DGELU" in name:
            stride = about["EPILOGUE_AUX_LD"]
            assert stride % 8 == 0 and stride >= rows
            argument = self._at(about["EPILOGUE_AUX_POINTER"], dtype, made.shape[1:], (1, stride))
        if "GELU_AUX" in name:
            argument[...] = values[0]
        if name == "DGELU_BGRAD":
            values = values * gelu_derivative(argument.astype(values.dtype))
            sums = self._at(about["BIAS_POINTER"], dtype, (rows,), (1,))
            sums[...] = values[0].sum(axis=1)
            return values
        if name == "DGELU":
            return values * gelu_derivative(argument.astype(values.dtype))
        if "RELU" in name:
            return np.maximum(values, 0)
        return gelu(values) if "GELU" in name else values

    def _matrices(self, pointer, layout):
        batch, (rows, columns) = layout["BATCH_COUNT"], layout["shape"]
        steps = (layout["STRIDED_BATCH_OFFSET"], 1, layout["stride"])
        return self._at(pointer, layout["dtype"], (batch, rows, columns), steps)

    def _at(self, pointer, dtype, shape, steps):
        assert pointer % 16 == 0
        last = sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        for place in (pointer, pointer + last * dtype.itemsize):
            self.cupy.check_address(place)
        buffer = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(pointer)
        return np.ndarray(shape, dtype, buffer, 0, [step * dtype.itemsize for step in steps])


def modules(cupy, works=True):
    """The modules by name."""
    library = Library(cupy, works)
    bindings = types.ModuleType("nvmath.bindings")
    nvmath = types.ModuleType("nvmath")
    bindings.cublasLt, nvmath.bindings = library, bindings
    bindings.cublas = types.ModuleType("nvmath.bindings.cublas")
    bindings.cublas.ComputeType, nvmath.CudaDataType = ComputeType, CudaDataType
    inside = {f"nvmath.bindings.{name}": getattr(bindings, name) for name in ("cublas", "cublasLt")}
    return {"nvmath": nvmath, "nvmath.bindings": bindings, **inside}
