"""``eagerflow run``: a saved graph, run on arrays from files."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow.cli.graphs import open_graph, pairs
from eagerflow.errors import ArgumentError, DTypeError, FileFormatError, ShapeError, printable
from eagerflow.graph.run import evaluate

__all__ = ["add_run"]


def add_run(commands: Any) -> None:
    """Add the command to the parser's commands."""
    run = commands.add_parser("run", help="run a saved graph on arrays")
    run.add_argument("file", type=Path, metavar="FILE", help="a file that graph.save wrote")
    run.add_argument(
        "--feed",
        action="append",
        default=[],
        metavar="NAME=ARRAY",
        help="a value for an input: a .npy file, a number, or a list such as [1.0, 2.0]",
    )
    run.add_argument(
        "--fetch",
        action="append",
        default=[],
        metavar="NAME",
        help="a value to compute, any of those that show lists (default: all outputs)",
    )
    run.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write each value there, as NAME.npy"
    )
    run.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    graph = open_graph(options.file)
    if options.fetch:
        graph = graph.prune(options.fetch)
    given = dict(pairs(options.feed, "--feed"))
    _check_inputs(graph, given)
    sizes: dict[str, int] = {}
    inputs = [
        _input_tensor(name, given[name], value, sizes)
        for name, value in zip(graph.inputs.names, graph.inputs, strict=True)
    ]
    cells = [ef.asarray(variable.value) for variable in graph.variables.values()]
    outputs, _ = evaluate(graph, [*inputs, *cells])
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    for name, tensor, file in zip(
        graph.outputs.names, outputs, _file_names(graph.outputs.names), strict=True
    ):
        if options.out:
            path = options.out / file
            np.save(path, tensor.numpy(), allow_pickle=False)
            kind = f"{tensor.dtype.name}{list(tensor.shape)}"
            print(printable(f"{name}: {kind} in {path}"))
        else:
            print(f"{printable(name)} = {tensor!r}")
    return 0


def _check_inputs(graph: Any, given: dict[str, str]) -> None:
    """ArgumentError for inputs without a value, and for values without an input."""
    names = graph.inputs.names
    strange = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if strange or missing:
        specs = ", ".join(f"{n}: {v.spec}" for n, v in zip(names, graph.inputs, strict=True))
        raise ArgumentError(
            f"there is no input {strange[0]!r}"
            if strange
            else f"nothing is fed to {', '.join(missing)}",
            expected=f"inputs {specs}" if specs else "no inputs",
            hint=" ".join(f"--feed {n}={n}.npy" for n in missing) or None,
        )


def _input_tensor(name: str, text: str, value: Any, sizes: dict[str, int]) -> ef.Tensor:
    """The tensor for an input, whose shape and dtype have to fit; ``sizes`` learns names."""
    array = _array(name, text)
    wanted = value.spec
    fits = len(array.shape) == len(wanted.shape)
    for own, size in zip(wanted.shape, array.shape, strict=False):
        if isinstance(own, int):
            fits = fits and own == size
        elif str(own).isidentifier():
            fits = fits and size >= 1 and sizes.setdefault(str(own), size) == size
    if not fits:
        known = f" with {', '.join(f'{n}={s}' for n, s in sizes.items())}" if sizes else ""
        raise ShapeError(
            "the array has another shape",
            argument=name,
            received=str(array.shape),
            expected=f"{wanted}{known}",
        )
    tensor = ef.asarray(array)
    if tensor.dtype == wanted.dtype:
        return tensor
    if not np.can_cast(tensor.dtype, wanted.dtype, "same_kind"):
        raise DTypeError(
            "the array has another dtype",
            argument=name,
            received=tensor.dtype.name,
            expected=wanted.dtype.name,
        )
    return tensor.astype(wanted.dtype)


def _array(name: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # it is no JSON, so it is the name of a file
        if text.endswith(".npy") or os.path.isfile(text):
            return _load_array(text)
        value = None
    try:
        found = np.asarray(value)
    except ValueError:  # rows of several lengths
        found = np.asarray(None)
    if found.dtype.kind not in "bif":
        raise ArgumentError(
            f"--feed {name}={text} is not a value",
            expected="a .npy file, a number, or a list of numbers such as [1.0, 2.0]",
        )
    return found


def _load_array(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FileFormatError(f"{path} is not an array in a .npy file: {error}") from None


def _file_names(names: Iterable[str]) -> list[str]:
    """A file for each name, with no other folder in it."""
    found: list[str] = []
    for name in names:
        plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "_"
        number, free = 0, plain
        while f"{free}.npy" in found:
            number += 1
            free = f"{plain}_{number}"
        found.append(f"{free}.npy")
    return found
