"""The origin of a model's nodes: scope and source line in the producer, if recorded.

Models exported by eagerflow have it in the metadata of their nodes (``onnx/writing``).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from eagerflow.graph.ir import Source
from eagerflow.onnx.reading.unsupported import label_of

_PLACE = re.compile(r"(.{1,4096}):(\d{1,9}) in (.{1,256})")


class Origin(NamedTuple):
    """The scope of a node's ops, and the place for error messages."""

    scope: str
    place: Source


def origin_of(node: Any, number: int, label: str, is_ours: bool) -> Origin:
    """The origin of a node of the model in the file ``label``."""
    told = {p.key: p.value for p in node.metadata_props} if is_ours else {}
    if "op" not in told:
        name = (node.name or node.op_type).strip("/") or "node"
        return Origin(name, (label, number, label_of(node)))
    found = _PLACE.fullmatch(told.get("source", ""))
    place = (found[1], int(found[2]), found[3]) if found else (label, number, label_of(node))
    return Origin(told.get("scope", "").strip("/"), place)
