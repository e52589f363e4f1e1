"""The state of a model and of its training, by names that do not depend on the process.

Weights have the names of ``Module.named_weights``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.graph.names import FreeNames
from eagerflow.nn.module import named_modules
from eagerflow.ops import random
from eagerflow.variable import Variable, assign_together

__all__ = [
    "Misfits",
    "fitted",
    "listed",
    "named_state",
    "refuse",
    "restore",
    "snapshot",
]

MAX_SHOWN = 5  # names in an error
_GLOBAL = "random/global"


class Misfits(NamedTuple):
    """The mismatches between a file and a model, by name."""

    missing: list[str]
    """Weights of the model that the file does not have."""
    extra: list[str]
    """Weights in the file that the model lacks."""
    reshaped: list[str]
    """Weights of different shapes, with both shapes."""


# Names --------------------------------------------------------------------------------------------


def _generators(model: Any) -> dict[str, Variable]:
    """The states of the random generators of layers, by name."""
    return {
        f"random/{path}{i}": generator.state
        for path, module in named_modules(model)
        for i, generator in enumerate(tree.instances(vars(module), (random.Generator,)))
        if isinstance(generator.state, Variable)
    }


def _optimizer_state(optimizer: Any, weights: Mapping[str, Variable]) -> dict[str, Variable]:
    """The Variables of an optimizer by name: slots have the name of their weight.

    An optimizer names them ``<its name>/<name of the weight>/<slot>``.
    """
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for path, weight in weights.items():
        paths[weight.name].append(path)
    met: Counter[str] = Counter()
    names = FreeNames()
    found = {}
    for variable in optimizer.variables:
        own = variable.name.partition("/")[2]
        owner, _, slot = own.rpartition("/")
        known = paths[owner][met[own] :] or [owner]  # weights may share a name
        met[own] += 1
        found["optimizer/" + names.take(f"{known[0]}/{slot}".lstrip("/"))] = variable
    return found


# All of it ----------------------------------------------------------------------------------------


def snapshot(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Weights, the optimizer's state and that of random generators, as arrays by name."""
    return {name: variable.numpy() for name, variable in named_state(model).items()}


def named_state(model: Any) -> dict[str, Variable]:
    """The Variables with the state of a training, by name."""
    weights = model.named_weights()
    found = {f"weights/{name}": weight for name, weight in weights.items()} | _generators(model)
    found[_GLOBAL] = random.default_generator.state
    if model.optimizer is not None:
        model.optimizer.build(model.trainable_weights)
        found |= _optimizer_state(model.optimizer, weights)
    return found


def restore(model: Any, arrays: Mapping[str, np.ndarray[Any, Any]], training: bool = True) -> None:
    """Set a model's state from a ``snapshot`` of a similar one; completely or not at all.

    Without ``training`` it is the weights and the generators of layers alone. Raises
    FileFormatError where the state is that of another model.
    """
    weights = model.named_weights()
    wanted: dict[str, Any] = {f"weights/{name}": weight for name, weight in weights.items()}
    wanted |= _generators(model)
    if training:
        wanted[_GLOBAL] = random.default_generator.state
        if model.optimizer is not None:
            given = {n.removeprefix("optimizer/").rpartition("/")[0] for n in arrays}
            model.optimizer.build([weight for name, weight in weights.items() if name in given])
            wanted |= _optimizer_state(model.optimizer, weights)
        elif any(name.startswith("optimizer/") for name in arrays):
            raise ArgumentError(
                "the model has no optimizer for the state that was saved",
                op=model.name,
                hint="model.compile(...) as before, and then restore",
            )
    kept = ("weights/", "random/", "optimizer/") if training else ("weights/",)
    found = {n: a for n, a in arrays.items() if n in wanted or n.startswith(kept)}
    values, misfits = fitted(wanted, found)
    refuse(misfits, model.name)
    assign_together(values)


# What goes together -------------------------------------------------------------------------------


def fitted(
    wanted: Mapping[str, Variable], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> tuple[dict[Variable, Any], Misfits]:
    """The new values of Variables from arrays by name, and the mismatches."""
    values: dict[Variable, Any] = {}
    reshaped = []
    for name, variable in wanted.items():
        if name in arrays:
            array = _complex(arrays[name], variable)
            if array.shape == tuple(variable.shape):
                values[variable] = array
            else:
                reshaped.append(f"{name}: {array.shape} for {tuple(variable.shape)}")
    missing = [name for name in wanted if name not in arrays]
    extra = [name for name in arrays if name not in wanted]
    return values, Misfits(missing, extra, reshaped)


def _complex(array: np.ndarray[Any, Any], variable: Variable) -> Any:
    """An array; pairs of float64 represent complex128, which the format lacks."""
    pairs = array.dtype == np.float64 and array.shape[-1:] == (2,)
    return array.view(variable.dtype)[..., 0] if pairs and variable.dtype.kind == "c" else array


def refuse(misfits: Misfits, model: str, hint: str | None = None) -> None:
    """Raise FileFormatError for mismatches, with a list of all."""
    if any(misfits):
        raise FileFormatError(
            "the file does not fit the model",
            op=model,
            received="; ".join(
                f"{kind}: {listed(names)}" for kind, names in misfits._asdict().items() if names
            ),
            expected="the same weights, by name and shape",
            hint=hint,
        )


def listed(names: list[str]) -> str:
    """The first names, and the number of others."""
    more = len(names) - MAX_SHOWN
    return ", ".join(names[:MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")
