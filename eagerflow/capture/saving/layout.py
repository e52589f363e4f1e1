"""The layout of a saved graph's text: its sections, and the fields of each kind of row.

Readers and writers of rows take names, order and types of the fields from here;
``docs/saved-graphs-format.md`` explains their meaning, under the same names.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, get_args

FORMAT = "1"  # of the text; an incompatible change needs a new one
SECTIONS = ("attributes", "graphs", "nodes", "ops", "sources", "types", "variables")
MAX_NODES = 1_000_000  # in all graphs together, a body counted at each use
MAX_ITEMS = 500_000  # brackets and commas in one row


class Row:
    """A kind of row: the names of its fields, and the allowed JSON classes of each.

    A last field that is ``optional`` is omitted if it is None.
    """

    def __init__(self, optional: bool = False, /, **fields: Any) -> None:
        self.record: Any = namedtuple("record", fields)  # type: ignore[misc]
        self.fields = tuple(fields)
        self.classes = [frozenset(get_args(kind) or (kind,)) for kind in fields.values()]
        self.optional = optional

    def write(self, *values: Any) -> Any:
        """The values of the fields as JSON."""
        row = self.record(*values)
        return row[:-1] if self.optional and row[-1] is None else row

    def read(self, row: Any) -> Any:
        """A JSON list as a record with field names; None if it does not have the fields."""
        if type(row) is not list:
            return None
        if self.optional and len(row) == len(self.fields) - 1:
            row = [*row, None]
        elif len(row) != len(self.fields) or (self.optional and row[-1] is None):
            return None
        for item, classes in zip(row, self.classes, strict=True):
            if type(item) not in classes:
                return None
        return self.record(*row)


# Integers are numbers of rows of other sections, or of values of the graph.
OP = Row(name=str, version=int)
TYPE = Row(dtype=str, shape=list)
SOURCE = Row(file=str, line=int, function=str)
VARIABLE = Row(True, name=str, tensor=str, type=int, trainable=bool, device=str, random=bool | None)
NODE = Row(
    True,
    op=str,
    name=str,
    inputs=list,
    attributes=int | None,
    source=int | None,
    results=list,
    device=str | None,
)
RESULT = Row(type=int, name=str | None, device=str | None)
GRAPH = Row(  # an object with these keys
    arguments=object,
    cells=list,
    constants=list,
    inputs=list,
    name=str,
    nodes=int,
    outputs=list,
    results=list,
    structure=object,
)
INPUT = Row(name=str, value=str, type=int, device=str | None)
CELL = Row(name=str, variable=int, value=str, assigned=int | None)
CONSTANT = Row(name=str, type=int, tensor=str, tensor_device=str, device=str | None)
OUTPUT = Row(name=str, value=int)
