"""AttributeErrors that say what names of other libraries are called here.

Those of the package's modules, of tensors, modules and optimizers use the tables of equivalents.py;
a test resolves every suggested name.
"""

from __future__ import annotations

import importlib
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from eagerflow.ops.absent import absent, explain
from eagerflow.ops.equivalents import TABLES
from eagerflow.ops.late import load
from eagerflow.tensor import Operators

__all__ = ["explain_methods", "members", "table"]

PLACES = [
    "eagerflow",
    *("eagerflow.nn", "eagerflow.nn.losses", "eagerflow.nn.optimizers", "eagerflow.nn.schedules"),
    *("eagerflow.nn.metrics", "eagerflow.nn.callbacks", "eagerflow.nn.initializers"),
    *("eagerflow.capture", "eagerflow.ops.linalg", "eagerflow.ops.random", "eagerflow.ops.fft"),
    *("eagerflow.ops.signal", "eagerflow.cluster", "eagerflow.serving", "eagerflow.testing"),
]
"""Modules in which a name that is missing elsewhere is looked for."""


def _read(text: str) -> dict[str, str]:
    lines = (line.partition(": ") for line in text.replace("\\\n", "").strip().splitlines())
    return {name: answer for names, _, answer in lines for name in names.split()}


@cache
def table(where: str) -> dict[str, str]:
    """The equivalents of names in a module or class; ``where`` is "Tensor" or a module's name."""
    return _read(TABLES.get(where, ""))


def members(
    where: str, names: Sequence[str], late: Mapping[str, str] = {}
) -> tuple[Callable[[str], Any], Callable[[], Any]]:
    """``__getattr__`` and ``__dir__`` of a module that shows its public names alone.

    ``late`` names are imported from their modules on first access.
    """

    def missing(name: str) -> Any:
        if name in late:
            found = getattr(load(late[name]), name)
            setattr(sys.modules[where], name, found)
            return found
        shown = f"module {where.replace('.ops', '')!r}"
        answer = table(where).get(name) or table("eagerflow").get(name) or _elsewhere(name)
        raise absent(sys.modules[where], name, shown, answer)

    return missing, lambda: list(names)


def _elsewhere(name: str) -> str | None:
    """The public name itself in another module of the package, None if there is none.

    ``from eagerflow import primitives`` asks for the name of a module before it imports that.
    """
    if name.startswith("_") or not name.isidentifier():
        return None
    if find_spec(f"eagerflow.{name}") is not None:
        return None
    for place in PLACES:
        module = importlib.import_module(place)
        if name in module.__all__:
            return f"{place.replace('eagerflow', 'ef').replace('.ops', '')}.{name}"
    return None


def explain_methods(functions: Iterable[str]) -> None:
    """Add hints to tensors: names of other libraries, and functions that are not methods."""
    own = {name: f"ef.{name}(x, ...)" for name in functions}
    explain(Operators, {**table("functions"), **own, **table("Tensor"), "backward": _tape_in})


def _tape_in(frame: Any) -> str:
    """How a tape is used in place of ``loss.backward()``, in the names of the calling code."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    called = re.search(r"(\w+)\.backward\b", line)
    loss = called[1] if called else "loss"
    found = {}
    for name, value in {**frame.f_globals, **frame.f_locals}.items():
        for kind, attribute in (("weights", "trainable_weights"), ("optimizer", "apply_gradients")):
            if hasattr(type(value), attribute) and not name.startswith("_"):
                found[kind] = name
    weights = f"{found['weights']}.trainable_weights" if "weights" in found else "variables"
    return (
        "a tape:\n"
        f"  with ef.GradientTape() as tape: {loss} = ...\n"
        f"  gradients = tape.gradient({loss}, {weights})\n"
        f"  {found.get('optimizer', 'optimizer')}.apply(gradients, {weights})"
    )
