"""Weights that Keras or PyTorch has saved, for models of the same layers."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from eagerflow import extras
from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.files import atomic
from eagerflow.graph.names import FreeNames
from eagerflow.handlers import raised_here
from eagerflow.nn import files
from eagerflow.nn.configured import snake_case
from eagerflow.nn.module import Module, named_modules
from eagerflow.nn.state import Misfits, fitted, listed, refuse
from eagerflow.variable import Variable, assign_together

__all__ = ["from_torch", "keras_weights"]

Array = np.ndarray[Any, Any]


# Keras --------------------------------------------------------------------------------------------

# Groups of one layer that are not in alphabetical order.
_FIRST = "query_dense key_dense value_dense output_dense forward_layer backward_layer".split()


def keras_weights(model: Any, wanted: Mapping[str, Variable], path: Any) -> dict[str, Array]:
    """The arrays of a file ``*.weights.h5`` of Keras 3 by the names that ``model`` has for them.

    Unmatched weights keep their names in the file. Raises MissingExtraError if h5py is not
    installed, FileFormatError for other files.
    """
    h5py = extras.load("h5py", "keras-weights", "reading weights of Keras")
    names = {id(variable): name for name, variable in wanted.items()}
    found: dict[str, Array] = {}
    try:
        with h5py.File(path, "r") as file:
            reader = _KerasReader(h5py, names, found)
            reader.visit(model, file, "", set())
    except raised_here(OSError, KeyError, ValueError, RuntimeError) as error:
        if isinstance(error, FileNotFoundError):
            error.strerror = os.strerror(errno.ENOENT)  # h5py tells its flags
            atomic.refuse(error, "read", str(path))
        raise FileFormatError(
            f"the file cannot be read: {error}",
            op="load_weights",
            argument=str(path),
            expected="a file that save_weights of Keras 3 wrote",
        ) from error
    return found


class _KerasReader:
    """Walks the groups of a file and the parts of a model side by side."""

    def __init__(self, h5py: Any, names: Mapping[int, str], found: dict[str, Array]) -> None:
        self.h5py = h5py
        self.names = names
        self.found = found
        self.done: set[int] = set()

    def visit(self, module: Any, group: Any, path: str, met: set[int]) -> None:
        """Take the arrays of a group for the weights of a Module and of those below it."""
        met.add(id(module))
        skipped = set()
        for label, part in _parts_for_keras(module):
            inner = self._group(group, label)
            if inner is not None:
                skipped.add(label)
                if id(part) not in met:
                    self.visit(part, inner, f"{path}{label}/", met)
        weights = [w for w in module.weights if id(w) not in self.done]
        arrays = list(self._arrays(group, "", skipped))
        for i, (label, dataset) in enumerate(arrays):
            variable = weights[i] if i < len(weights) else None
            name = path + label if variable is None else self.names[id(variable)]
            self.found[name] = _array(dataset, variable)
            if variable is not None:
                self.done.add(id(variable))

    def _group(self, group: Any, label: str) -> Any:
        """The group at a path within a group; None if there is none."""
        for part in label.split("/"):
            linked = isinstance(group.get(part, getlink=True), self.h5py.HardLink)
            group = group[part] if linked else None  # links to other files are not followed
            if not isinstance(group, self.h5py.Group):
                return None
        return group

    def _arrays(self, group: Any, path: str, skipped: set[str]) -> Iterator[tuple[str, Any]]:
        """The arrays in a group: its own, then those of the groups within it."""
        own = self._group(group, "vars")
        for key in sorted(own or (), key=_in_order):
            if isinstance(own.get(key, getlink=True), self.h5py.HardLink):
                yield f"{path}vars/{key}", own[key]
        for key in sorted(set(group) - {"vars", "seed_generator"}, key=_in_order):
            inner = self._group(group, key)
            if inner is not None and path + key not in skipped:
                yield from self._arrays(inner, f"{path}{key}/", skipped)


def _in_order(key: str) -> Any:
    base, number = re.fullmatch(r"_*(.*?)_?(\d*)", key).groups()  # type: ignore[union-attr]
    bare = key.lstrip("_")
    rank = _FIRST.index(bare) if bare in _FIRST else len(_FIRST)
    return rank, base, int(number or 0)


def _array(dataset: Any, variable: Variable | None) -> Array:
    """The numbers of a dataset stored in the file itself; otherwise only its shape."""
    if dataset.external or dataset.is_virtual:
        raise ValueError("an array lies outside of the file")
    if variable is None or tuple(dataset.shape) != variable.shape:
        nothing: Array = np.broadcast_to(np.float32(0), dataset.shape)
        return nothing
    found: Array = dataset[()]
    # Keras writes bfloat16 as two bytes without a name.
    return found.view(variable.dtype) if found.dtype.kind == "V" else found


def _parts_for_keras(module: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a Module, with the paths that Keras has for them.

    Layers in lists are numbered by class, others have the names of their attributes.
    """
    listed = {"layers": module.layers} if _is_chain(module) else dict(vars(module))
    for attribute, value in listed.items():
        name = attribute.lstrip("_")
        if isinstance(value, Module):
            yield name, value
        elif isinstance(value, list | tuple | dict):
            taken = FreeNames()
            for item in value.values() if isinstance(value, dict) else value:
                if isinstance(item, Module):
                    yield f"{name}/{taken.take(_keras_class(item))}", item


def _is_chain(module: Any) -> bool:
    """Whether Keras saves a Module as a list of layers."""
    return getattr(module, "graph", None) is not None or hasattr(module, "_chain")


def _keras_class(module: Any) -> str:
    functional = getattr(module, "graph", None) is not None and type(module).__name__ == "Model"
    return "functional" if functional else snake_case(type(module).__name__)


# PyTorch ------------------------------------------------------------------------------------------


def from_torch(model: Any, source: Any, mapping: Mapping[str, str] | None = None) -> None:
    """Load the weights of a PyTorch module with the same layers into a model.

    ``source`` is a state dict, or the path of a safetensors file of one. Layers are matched in
    order; alternatively, ``mapping`` has for each layer of the model, by its path such as
    ``"encoder/dense_1"``, the name of its module, such as ``"encoder.fc2"``. Kernels are transposed
    and gates reordered as needed. Nothing changes unless all weights fit. Raises ArgumentError if
    layers cannot be matched, FileFormatError with a list of weights that do not fit.

    A Dense after a Flatten of images needs care: PyTorch flattens channels first, so
    ``ef.nn.Permute((3, 1, 2))`` is required before the Flatten.

    >>> model = ef.nn.Sequential([ef.nn.Input((3,)), ef.nn.Dense(2, name="out")])
    >>> weight, bias = np.arange(6.0).reshape(2, 3), np.zeros(2)
    >>> ef.nn.from_torch(model, {"fc.weight": weight, "fc.bias": bias})
    >>> model(ef.tensor([[1.0, 0.0, 0.0]]))
    Tensor([[0., 3.]], shape=(1, 2), float32, cpu:0)
    """
    arrays = source if isinstance(source, Mapping) else files.read(source, "from_torch").arrays
    groups = torch_modules({name: _from_tensor(value) for name, value in arrays.items()})
    units = dict(_units(model))
    names = {id(variable): name for name, variable in model.named_weights().items()}
    values: dict[str, Any] = {}
    extra = []
    for path, prefix in _pairs(units, groups, mapping).items():
        layer = units[path]
        try:
            found = _converter(layer)(layer, groups[prefix])
        except raised_here(KeyError) as error:
            raise ArgumentError(
                f"the module {prefix!r} has no {error.args[0]!r}",
                op="from_torch",
                argument=path,
                received=", ".join(groups[prefix]),
                expected=f"the weights of a {type(layer).__name__}",
            ) from None
        own = [names[id(weight)] for weight in layer.weights]
        values |= dict(zip(own, found, strict=False))
        extra += [f"{prefix}: {a.shape}" for a in found[len(own) :]]
    wanted = {names[id(w)]: w for layer in units.values() for w in layer.weights}
    matched, misfits = fitted(wanted, values)
    refuse(Misfits(misfits.missing, extra, misfits.reshaped), model.name)
    assign_together(matched)


def _from_tensor(value: Any) -> Array:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    return np.asarray(value)


def torch_modules(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """The arrays of each module that has some, in their order.

    An attention includes its output layer; each layer of a recurrent stack is a module.
    """
    groups: dict[str, dict[str, Array]] = {}
    stacked = {n.rpartition(".")[0] for n in arrays if re.search(r"_l1(_reverse)?$", n)}
    for name, array in arrays.items():
        prefix, _, leaf = name.rpartition(".")
        if prefix.endswith("out_proj") and prefix[:-9] in groups:
            prefix, leaf = prefix[:-9], f"out_proj.{leaf}"
        level = re.search(r"_l(\d+)(_reverse)?$", leaf)
        if level is not None:
            leaf = leaf.replace(f"_l{level[1]}", "")
            prefix += f".l{level[1]}" if prefix in stacked else ""
        if leaf != "num_batches_tracked":
            groups.setdefault(prefix, {})[leaf] = array
    return groups


def _units(model: Any) -> Iterator[tuple[str, Any]]:
    """The layers that correspond to single modules of PyTorch, by path."""
    inside: set[int] = set()
    for path, module in named_modules(model):
        if id(module) in inside:
            continue
        if _name_of(module) is not None:
            inside |= set(map(id, module.walk()))
        elif not any(isinstance(part, Variable) for part in module._parts()):
            continue
        if module.weights:
            yield path.rstrip("/"), module


def _pairs(
    units: Mapping[str, Any], groups: Mapping[str, Any], mapping: Mapping[str, str] | None
) -> dict[str, str]:
    """The name of a module of PyTorch for the path of each layer."""
    if mapping is None:
        mapping = dict(zip(units, groups, strict=False))
    lonely = [path for path in units if path not in mapping]
    unknown = [path for path in mapping if path not in units]
    unknown += [prefix for prefix in mapping.values() if prefix not in groups]
    taken = set(mapping.values())
    unused = [
        f"{prefix}.{leaf}".lstrip(".")
        for prefix in groups
        for leaf in groups[prefix]
        if prefix not in taken
    ]
    if lonely or unknown or unused:
        raise ArgumentError(
            f"{len(units)} layers and {len(groups)} modules do not go together",
            op="from_torch",
            argument="mapping",
            received="; ".join(
                f"{words}: {listed(names)}"
                for words, names in (
                    ("layers without a module", lonely),
                    ("unknown", unknown),
                    ("weights without a layer", unused),
                )
                if names
            ),
            expected="one module for each layer with weights",
            hint="call the model first, so that it has weights"
            if not units
            else "leave weights that no layer needs out of source, or mapping={layer: module}",
        )
    return dict(mapping)


def _kernel(layer: Any, arrays: Mapping[str, Array]) -> list[Array]:
    weight = arrays["weight"]
    axes = (*range(2, weight.ndim), 1, 0)
    return [weight.transpose(axes), *([arrays["bias"]] if "bias" in arrays else [])]


def _depthwise(layer: Any, arrays: Mapping[str, Array]) -> list[Array]:
    weight = arrays["weight"]
    whole = weight.reshape(layer.weights[0].shape[-2], -1, *weight.shape[2:])
    kernel = whole.transpose((*range(2, whole.ndim), 0, 1))
    return [kernel, *([arrays["bias"]] if "bias" in arrays else [])]


def _scale(layer: Any, arrays: Mapping[str, Array]) -> list[Array]:
    order = ("weight", "bias", "running_mean", "running_var")
    return [arrays[name] for name in order if name in arrays]


def _recurrent(gates: Callable[[Array], Array], separate: bool) -> Any:
    """The weights of a recurrent layer, with its gates in order; one bias, or two rows of it."""

    def convert(layer: Any, arrays: Mapping[str, Array], suffix: str = "") -> list[Array]:
        ours = [arrays[f"{kind}{suffix}"] for kind in ("weight_ih", "weight_hh")]
        found = [gates(weight).T for weight in ours]
        if f"bias_ih{suffix}" in arrays:
            biases = [gates(arrays[f"{kind}{suffix}"]) for kind in ("bias_ih", "bias_hh")]
            found.append(np.stack(biases) if separate else biases[0] + biases[1])
        return found

    return convert


def _as_they_are(weight: Array) -> Array:
    return weight


def _update_first(weight: Array) -> Array:
    """Gates of a GRU: reset, update, new in PyTorch, and update, reset, new here."""
    reset, update, new = np.split(weight, 3)
    return np.concatenate([update, reset, new])


def _both_ways(layer: Any, arrays: Mapping[str, Array]) -> list[Array]:
    convert = _converter(layer.forward_layer)
    return [*convert(layer, arrays), *convert(layer, arrays, "_reverse")]


def _attention(layer: Any, arrays: Mapping[str, Array]) -> list[Array]:
    weights = [*np.split(arrays["in_proj_weight"], 3), arrays["out_proj.weight"]]
    found = [weight.T for weight in weights]
    if "in_proj_bias" in arrays:
        biases = [*np.split(arrays["in_proj_bias"], 3), arrays["out_proj.bias"]]
        found = [array for pair in zip(found, biases, strict=True) for array in pair]
    shapes = [tuple(weight.shape) for weight in layer.weights]
    if [math.prod(shape) for shape in shapes] != [array.size for array in found]:
        return found
    return [array.reshape(shape) for array, shape in zip(found, shapes, strict=True)]


_lstm = _recurrent(_as_they_are, separate=False)
CONVERTERS: dict[str, Callable[..., list[Array]]] = {
    **dict.fromkeys(["Dense", "Conv1D", "Conv2D", "Conv3D"], _kernel),
    **dict.fromkeys(["Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"], _kernel),
    **dict.fromkeys(["DepthwiseConv1D", "DepthwiseConv2D"], _depthwise),
    **dict.fromkeys(["BatchNormalization", "LayerNormalization", "GroupNormalization"], _scale),
    **dict.fromkeys(["RMSNormalization", "Embedding", "PReLU"], _scale),
    **dict.fromkeys(["LSTM", "SimpleRNN"], _lstm),
    "GRU": _recurrent(_update_first, separate=True),
    "Bidirectional": _both_ways,
    "MultiHeadAttention": _attention,
}


def _name_of(module: Any) -> str | None:
    """The class name under which a Module has a converter; None if it has none."""
    return next((c.__name__ for c in type(module).__mro__ if c.__name__ in CONVERTERS), None)


def _converter(layer: Any) -> Callable[..., list[Array]]:
    name = _name_of(layer)
    if name is None:
        return lambda layer, arrays: list(arrays.values())
    return CONVERTERS[name]
