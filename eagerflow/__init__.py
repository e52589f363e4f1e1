"""eagerflow: tensors that compute at once, gradients from a tape, and graphs by capture.

>>> import eagerflow as ef
>>> x = ef.tensor([1.0, 2.0, 3.0])
>>> ef.grad(lambda x: (x * x).sum())(x)
Tensor([2., 4., 6.], float32, cpu:0)
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

_collects = gc.isenabled()
gc.disable()  # importing creates no garbage, and collections take a sixth of the time
try:
    # First, and from here: deep in our own chain of imports, NumPy's took 15 ms longer.
    import numpy

    from eagerflow import backends, display, dtypes, errors, ops
    from eagerflow.batching import vmap
    from eagerflow.convert import as_tensor
    from eagerflow.debugging import debug_nans
    from eagerflow.devices import (
        Device,
        device,
        devices,
        empty_cache,
        memory_stats,
        register_device_type,
        set_logical_devices,
        set_memory_limit,
    )
    from eagerflow.dims import Dim
    from eagerflow.dtypes import as_dtype
    from eagerflow.einops import wait_for_einops
    from eagerflow.ops import *
    from eagerflow.ops import linalg, random
    from eagerflow.ops.arguments_of_others import explains_arguments
    from eagerflow.ops.other_names import members
    from eagerflow.printing import set_printoptions
    from eagerflow.runtime import blas
    from eagerflow.runtime.threads import set_threads
    from eagerflow.spec import TensorSpec
    from eagerflow.tape import GradientTape
    from eagerflow.tensor import Tensor, set_namespace
    from eagerflow.transforms import (
        custom_gradient,
        grad,
        hessian,
        jacobian,
        jvp,
        value_and_grad,
        vjp,
    )
    from eagerflow.variable import Variable
finally:
    if _collects:
        if not gc.get_freeze_count():
            # Imported objects move to the oldest generation; otherwise all would be scanned now.
            gc.freeze()
            gc.unfreeze()
        gc.enable()

__version__ = "0.2.0"
__array_api_version__ = "2025.12"

e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793

_DTYPES = {dtype.name: dtype for dtype in (*dtypes.STANDARD, *dtypes.FLOAT8)}
globals().update(_DTYPES)


@explains_arguments(requires_grad="ef.Variable(values), or tape.watch(x)")
def tensor(obj: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A Tensor with a copy of the values of ``obj``.

    ``obj`` is a number, a nested list of numbers, a NumPy array, a Tensor, a data frame, or
    anything with ``__dlpack__`` or ``__array__``. Without ``dtype``, Python floats become float32,
    ints int64, and arrays keep theirs. ``device`` is a name such as ``"cpu:0"``. Raises
    DTypeError, ShapeError (ragged lists) or DeviceError.

    >>> ef.tensor([[1, 2], [3, 4]], dtype="float32").shape
    (2, 2)
    """
    return as_tensor(obj, dtype, device, copy=True)


def asarray(obj: Any, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A Tensor of the values of ``obj``, sharing memory if possible.

    ``obj``, ``dtype`` and ``device`` are as for ``ef.tensor``. ``copy=True`` always copies,
    ``copy=False`` raises if a copy is needed, None copies only then. Writes to a
    shared array are visible in the tensor, including in captured code; a tape may have used the
    old values.

    >>> ef.asarray(np.arange(3)).dtype
    dtype('int64')
    """
    return as_tensor(obj, dtype, device, copy)


_LAZY = (
    "capture",
    "cluster",
    "kernels",
    "nn",
    "serving",
    "summary",
    "testing",
)  # loaded at first use, to keep the import short
_OPS = ("fft", "signal")  # modules of functions, loaded late as well
_NOTEBOOK = ("load_ipython_extension", "unload_ipython_extension")  # IPython asks for them
_NORMS = ("clip_by_global_norm", "global_norm")
_CAPTURE = (
    "cond",
    "fori_loop",
    "function",
    "map",
    "print",
    "scan",
    "switch",
    "while_loop",
)


def __getattr__(name: str) -> Any:
    """Load an attribute at first use; then the module has it.

    If this were called at each use, ``getattr`` with a default would take the AttributeError of a
    signal handler in here for a missing name.
    """
    found = globals()[name] = _loaded(name)
    return found


def _loaded(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _OPS:
        return importlib.import_module(f"{__name__}.ops.{name}")
    if name in _CAPTURE:
        return getattr(importlib.import_module(f"{__name__}.capture"), name)
    if name in _NOTEBOOK:
        return getattr(importlib.import_module(f"{__name__}.notebook.extension"), name)
    if name in _NORMS:
        return getattr(importlib.import_module(f"{__name__}.global_norms"), name)
    if name == "checkpoint":
        return importlib.import_module(f"{__name__}.capture.recomputation").checkpoint
    if name == "profile":
        return importlib.import_module(f"{__name__}.profiling.profile").profile
    return getattr(ops, name) if name in ops.LATE else _missing(name)


__all__ = sorted(
    [
        "Device",
        "Dim",
        "GradientTape",
        "Tensor",
        "TensorSpec",
        "Variable",
        "as_dtype",
        "asarray",
        "checkpoint",
        "clip_by_global_norm",
        "custom_gradient",
        "debug_nans",
        "device",
        "devices",
        "e",
        "empty_cache",
        "errors",
        "global_norm",
        "grad",
        "hessian",
        "inf",
        "jacobian",
        "jvp",
        "linalg",
        "memory_stats",
        "nan",
        "newaxis",
        "pi",
        "profile",
        "random",
        "register_device_type",
        "set_logical_devices",
        "set_memory_limit",
        "set_printoptions",
        "set_threads",
        "tensor",
        "value_and_grad",
        "vjp",
        "vmap",
        *_CAPTURE,
        *_LAZY,
        *_OPS,
        *_DTYPES,
        *ops.__all__,
        *ops.LATE,
    ]
)


def _view(thing: Any, kind: str) -> str:
    found: str = importlib.import_module(f"{__name__}.notebook.views").html(thing, kind)
    return found


def _traceback(error: errors.EagerflowError) -> list[str]:
    found: list[str] = importlib.import_module(f"{__name__}.notebook.errors").lines(error)
    return found


_missing, __dir__ = members(__name__, __all__)
set_namespace(sys.modules[__name__])
display.set_view(_view)
errors.EagerflowError._render_traceback_ = _traceback
blas.choose_kernels()
wait_for_einops()
