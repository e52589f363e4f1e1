"""Signatures in the file of a graph: named subsets of its values to compute.

They are texts beside the graph. All signatures share the graph's nodes and Variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eagerflow.capture.saving.decoding import Rows
from eagerflow.capture.saving.encoding import dumps
from eagerflow.errors import ArgumentError
from eagerflow.files.container import fail
from eagerflow.graph.graph import Graph
from eagerflow.graph.names import find_value

MAX_SIGNATURES = 100
MAX_NAME = 200

Signatures = dict[str, dict[str, str]]
"""By the signature's name: its outputs' names, and the corresponding values of the graph."""


def made(graph: Graph, given: Any) -> Signatures:
    """Signatures of a graph, from a mapping of names to lists or mappings of value names.

    Raises ArgumentError for anything else, SessionError for a value that does not exist.
    """
    if not isinstance(given, Mapping) or len(given) > MAX_SIGNATURES:
        _refuse(given, f"a mapping of {MAX_SIGNATURES} names at most")
    found: Signatures = {}
    for name, outputs in given.items():
        if isinstance(outputs, str) or not isinstance(outputs, Iterable):
            _refuse(outputs, f"the names of the outputs of {name!r:.80}, as a list or a mapping")
        named = dict(outputs if isinstance(outputs, Mapping) else {x: x for x in outputs})
        texts = [name, *named, *named.values()]
        if not named or not all(isinstance(x, str) and 0 < len(x) <= MAX_NAME for x in texts):
            _refuse(given, f"texts of 1 to {MAX_NAME} letters")
        for value in named.values():
            find_value(graph, value)
        found[name] = named
    return found


def _refuse(given: Any, expected: str) -> None:
    raise ArgumentError(
        "these are not signatures",
        op="save",
        argument="signatures",
        received=f"{given!r:.200}",
        expected=expected,
        hint='signatures={"classify": ["scores"], "embed": {"features": "dense/relu"}}',
    )


# In files ----------------------------------------------------------------------------------------


def encode(signatures: Signatures) -> str:
    """The text of signatures: each name with pairs of names and values, on one line."""
    rows = [dumps([name, list(outputs.items())]) for name, outputs in signatures.items()]
    return "[\n" + ",\n".join(rows) + "\n]"


def decode(text: str, graph: Graph) -> Signatures:
    """The signatures in a text, checked against the graph."""
    if not text.startswith("[\n") or not text.endswith("\n]") or len(text) < 5:
        fail("the signatures are not a list")
    rows = Rows("signatures", text, 2, len(text) - 2)
    if len(rows) > MAX_SIGNATURES:
        fail("the file has too many signatures", expected=f"at most {MAX_SIGNATURES}")
    found: dict[str, Any] = {}
    for number in range(len(rows)):
        row, _ = rows.read(number)
        if type(row) is not list or len(row) != 2 or type(row[0]) is not str or row[0] in found:
            rows.fail(number, "it is no pair of another name and outputs")
        pairs = row[1]
        fits = type(pairs) is list and all(
            type(pair) is list and [type(x) for x in pair] == [str, str] for pair in pairs
        )
        if not fits or len(dict(pairs)) < len(pairs):
            rows.fail(number, "its outputs are no pairs of texts")
        found[row[0]] = dict(pairs)
    return made(graph, found)
