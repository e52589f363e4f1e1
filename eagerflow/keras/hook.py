"""The import hook that adds our backend to Keras's modules that choose one by name.

Keras's files are not modified. The name of the backend comes from ``KERAS_BACKEND``, and the code
for it from chains of ``if backend() == "tensorflow": ... elif ... else: ...`` in a few modules. A
finder before Python's own loads these modules: the last ``else`` of the chain, for names unknown to
Keras, imports our classes (``CHOICES``). Functions that choose by name internally are replaced
after their module was loaded (``REPLACED``). A module of an unexpected form raises ImportError with
its name.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from eagerflow.dims import Dim, symbolic

NAME = "eagerflow"
VERSIONS = ((3, 15), (3, 16))
OURS = "eagerflow.keras.backend"

CHOICES = {
    "keras.src.backend": (
        f"from {OURS} import *",
        f"from {OURS}.core import Variable as BackendVariable",
    ),
    "keras.src.export.saved_model": (
        f"from {OURS}.export import ExportArchive as BackendSavedModelExportArchive",
    ),
    "keras.src.layers.layer": (f"from {OURS}.layer import Layer as BackendLayer",),
    "keras.src.models.model": (f"from {OURS}.trainer import Trainer",),
    "keras.src.optimizers.optimizer": (
        f"from {OURS}.optimizer import Optimizer as BackendOptimizer",
    ),
}
"""The import that replaces the last ``else`` of the chain in a module of Keras."""


class _Loader(SourceFileLoader):
    """Loads a module of Keras with our backend as an additional choice."""

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code; Python's cache of compiled files is not used for modified modules."""
        if fullname not in CHOICES:
            return super().get_code(fullname)
        tree = with_choice(ast.parse(self.get_data(self.path)), fullname)
        made: CodeType = compile(tree, self.path, "exec", dont_inherit=True)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and replace functions that choose by the names of backends."""
        super().exec_module(module)
        for path, make in REPLACED.get(module.__name__, {}).items():
            owner, name = found_part(module, path)
            setattr(owner, name, make(vars(owner)[name]))


def found_part(module: ModuleType, path: str) -> tuple[Any, str]:
    """The module or class that contains the object at ``path``, and its name there."""
    owner: Any = module
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part, None)
    if owner is None or name not in vars(owner):
        raise ImportError(f"{_unlike(module.__name__)}: there is no {path}")
    return owner, name


class Finder:
    """Finds the modules of Keras that are loaded with changes, and no others."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec with our loader in place of Python's."""
        ours = fullname in CHOICES or fullname in REPLACED
        spec = PathFinder.find_spec(fullname, path, target) if ours else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def with_choice(tree: ast.Module, name: str) -> ast.Module:
    """A module's syntax tree with our import in the last ``else`` of the chain of backends."""
    chains = [node for node in tree.body if isinstance(node, ast.If) and _backend(node.test)]
    ends = [end for end in (_last(x) for x in chains) if end is not None]
    if len(ends) != 1:
        raise ImportError(f"{_unlike(name)}: {len(ends)} chains of backends with an else")
    line = ends[0].orelse[0].lineno
    ends[0].orelse = ast.parse("\n".join(CHOICES[name])).body
    for node in (inner for part in ends[0].orelse for inner in ast.walk(part)):
        if isinstance(node, ast.stmt | ast.alias):
            node.lineno = node.end_lineno = line
    return tree


def _backend(test: ast.expr) -> bool:
    """Whether a test is ``backend() == "..."``."""
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Call)):
        return False
    called = test.left.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
    return name == "backend" and isinstance(test.comparators[0], ast.Constant)


def _last(chain: ast.If) -> ast.If | None:
    """The last ``if`` of a chain, which has the ``else``; None if there is none."""
    while len(chain.orelse) == 1 and isinstance(chain.orelse[0], ast.If):
        chain = chain.orelse[0]
    return chain if chain.orelse else None


def _unlike(name: str) -> str:
    return (
        f"eagerflow's backend does not fit this Keras, because its {name} differs from that of 3.15"
    )


# Replaced functions -------------------------------------------------------------------------------


def _dynamic(original: Callable[..., Any]) -> Callable[..., Any]:
    """``DynamicBackend.__getattr__``, which looks up a backend's functions by name."""

    @wraps(original)
    def attribute(self: Any, name: str) -> Any:
        if self._backend == NAME:
            return getattr(sys.modules[OURS], name)
        return original(self, name)

    return attribute


def _settable(original: Callable[..., Any]) -> Callable[..., Any]:
    """``DynamicBackend.set_backend``, extended by our name."""

    @wraps(original)
    def set_backend(self: Any, backend: str) -> None:
        if backend == NAME:
            self._backend = NAME
        else:
            original(self, backend)

    return set_backend


def _export(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Model.export``, with our formats."""

    @wraps(original)
    def export(
        self: Any, filepath: Any, format: str = "tf_saved_model", *args: Any, **kwargs: Any
    ) -> Any:
        written = sys.modules[f"{OURS}.export"].FORMATS.get(format)
        if written is None:
            return original(self, filepath, format, *args, **kwargs)
        return written(self, filepath, *args, **kwargs)

    return export


def _standard(original: Callable[..., Any]) -> Callable[..., Any]:
    """``standardize_shape``, which also takes named dimensions of graphs as free sizes."""

    @wraps(original)
    def standardize_shape(shape: Any) -> Any:
        if isinstance(shape, tuple | list) and symbolic(shape):
            shape = tuple(None if isinstance(size, Dim) else size for size in shape)
        return original(shape)

    return standardize_shape


def _can_slice(original: Callable[..., Any]) -> Callable[..., Any]:
    """``can_slice_array``, which decides whether ``fit`` takes data: also for sparse tensors."""

    @wraps(original)
    def can_slice_array(x: Any) -> Any:
        return original(x) or sys.modules[OURS].is_tensor(x)

    return can_slice_array


def _sliceable(original: Callable[..., Any]) -> Callable[..., Any]:
    """``convert_to_sliceable``, which prepares data for slicing into batches."""

    def cut(x: Any, target_backend: Any) -> Any:
        rows = sys.modules[f"{OURS}.sparse"].rows_of(x) if target_backend != "tensorflow" else None
        return original(x, target_backend) if rows is None else rows

    @wraps(original)
    def convert_to_sliceable(arrays: Any, target_backend: Any = None) -> Any:
        mapped = sys.modules["keras.src.tree"].map_structure
        return mapped(lambda x: cut(x, target_backend), arrays)

    return convert_to_sliceable


REPLACED: dict[str, dict[str, Callable[[Any], Any]]] = {
    "keras.src.backend.common.variables": {"standardize_shape": _standard},
    "keras.src.utils.backend_utils": {
        "DynamicBackend.__getattr__": _dynamic,
        "DynamicBackend.set_backend": _settable,
    },
    "keras.src.models.model": {"Model.export": _export},
    "keras.src.trainers.data_adapters.array_slicing": {
        "can_slice_array": _can_slice,
        "convert_to_sliceable": _sliceable,
    },
}
"""Functions of Keras's modules by path, with the wrappers that replace them."""


# In place -----------------------------------------------------------------------------------------


def install() -> None:
    """Install the hook; ImportError if Keras is missing, of another version, or loaded."""
    if any(finder is Finder for finder in sys.meta_path):
        return
    loaded = sys.modules.get("keras.src.backend.config")
    if loaded is not None:
        raise ImportError(
            f"Keras is loaded already, with the backend {loaded.backend()!r}: "
            "import eagerflow.keras before it"
        )
    _check_version()
    os.environ["KERAS_BACKEND"] = NAME
    sys.meta_path.insert(0, Finder)


def _check_version() -> None:
    try:
        version = importlib.metadata.version("keras")
    except importlib.metadata.PackageNotFoundError:
        hint = "pip install 'eagerflow[keras]'"
        raise ImportError(f"eagerflow.keras needs Keras: {hint}", name="keras") from None
    found = tuple(int(part) for part in version.split(".")[:2])
    if not VERSIONS[0] <= found < VERSIONS[1]:
        first, past = (".".join(map(str, numbers)) for numbers in VERSIONS)
        raise ImportError(f"eagerflow.keras is for Keras from {first} to below {past}: {version}")
