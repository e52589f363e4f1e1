"""The inputs of a graph from the command line: files of arrays, numbers, and random values."""

from __future__ import annotations

import argparse
import json
import os
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow.cli.graphs import numbers, pairs
from eagerflow.dims import Dim
from eagerflow.errors import ArgumentError, DTypeError, FileFormatError, ShapeError

__all__ = ["add_feeds", "inputs_of"]


def add_feeds(command: argparse.ArgumentParser) -> None:
    """Add the options for inputs."""
    command.add_argument(
        "--feed",
        action="append",
        default=[],
        metavar="NAME=ARRAY",
        help="a value for an input: a .npy file, a number, or a list such as [1.0, 2.0]; "
        "FILE.npz alone feeds each array that it holds to the input of its name",
    )
    command.add_argument(
        "--random",
        nargs="?",
        type=int,
        const=0,
        metavar="SEED",
        help="random values for all other inputs: normal numbers, integers 0 and 1",
    )
    command.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="with --random: the size of a named dimension (default: the given values', or 1)",
    )


def inputs_of(graph: Any, options: argparse.Namespace) -> list[ef.Tensor]:
    """A tensor for each input of the graph, from the options."""
    given = _given(options.feed)
    _check_names(graph, given, options.random is None)
    sizes = numbers(options.size)
    specs = {n: v.spec for n, v in zip(graph.inputs.names, graph.inputs, strict=True)}
    found = {name: _tensor(name, _array(name, given[name]), specs[name], sizes) for name in given}
    rng = np.random.default_rng(options.random)
    for name, spec in specs.items():
        if name not in found:
            found[name] = _random(rng, spec, sizes)
    return [found[name] for name in specs]


def _given(feeds: Sequence[str]) -> dict[str, Any]:
    """The given values by name: texts, and arrays that are already loaded."""
    found: dict[str, Any] = {}
    for feed in feeds:
        if feed.endswith(".npz") and "=" not in feed:
            found |= _load(feed)
        else:
            found |= dict(pairs([feed], "--feed"))
    return found


def _check_names(graph: Any, given: dict[str, Any], all_of_them: bool) -> None:
    """ArgumentError for inputs without a value, and for values without an input."""
    names = graph.inputs.names
    strange = [name for name in given if name not in names]
    missing = [name for name in names if name not in given] if all_of_them else []
    if strange or missing:
        specs = ", ".join(f"{n}: {v.spec}" for n, v in zip(names, graph.inputs, strict=True))
        hint = " ".join(f"--feed {n}={n}.npy" for n in missing)
        raise ArgumentError(
            f"there is no input {strange[0]!r}"
            if strange
            else f"no value is given for {', '.join(missing)}",
            expected=f"inputs {specs}" if specs else "no inputs",
            hint=f"{hint}, or --random" if hint else None,
        )


def _tensor(name: str, array: Any, wanted: Any, sizes: dict[str, int]) -> ef.Tensor:
    """The tensor for an input, checked against its spec; ``sizes`` collects named dimensions."""
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


def _random(rng: np.random.Generator, wanted: Any, sizes: dict[str, int]) -> ef.Tensor:
    """A random tensor that fits a spec; unknown named dimensions are 1."""
    known = defaultdict(lambda: 1, sizes)
    shape = [n.evaluate(known) if isinstance(n, Dim) else n for n in wanted.shape]
    whole = ef.isdtype(wanted.dtype, ("bool", "integral"))
    values: Any = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
    return ef.asarray(values).astype(wanted.dtype)


# Arrays ------------------------------------------------------------------------------------------


def _array(name: str, given: Any) -> Any:
    """The array that a text stands for; arrays are returned as they are."""
    if not isinstance(given, str):
        return given
    try:
        value = json.loads(given)
    except (ValueError, RecursionError):  # it is not JSON, so it is the name of a file
        if given.endswith((".npy", ".npz")) or os.path.isfile(given):
            return _one_of(_load(given), name, given)
        value = None
    try:
        found = np.asarray(value)
    except ValueError:  # rows of different lengths
        found = np.asarray(None)
    if found.dtype.kind not in "bif":
        raise ArgumentError(
            f"--feed {name}={given} is not a value",
            expected="a .npy file, a number, or a list of numbers such as [1.0, 2.0]",
        )
    return found


def _one_of(arrays: dict[str, Any], name: str, path: str) -> Any:
    """The array of this name in a file, or the only one."""
    found = arrays.get(name, next(iter(arrays.values())) if len(arrays) == 1 else None)
    if found is None:
        raise ArgumentError(
            f"{path} holds no array {name!r}", expected="one of " + ", ".join(arrays)
        )
    return found


def _load(path: str) -> dict[str, Any]:
    """The arrays in a file by name; that of a .npy file has no name."""
    try:
        with open(path, "rb") as file:
            found = np.load(file, allow_pickle=False)
            return dict(found) if hasattr(found, "files") else {"": found}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        kind = ".npz" if path.endswith(".npz") else ".npy"
        raise FileFormatError(f"{path} is not an array in a {kind} file: {error}") from None
