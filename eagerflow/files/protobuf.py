"""Protocol buffers described as data: classes of messages without generated files.

Source of the format: Google, "Protocol Buffers: Descriptors", ``descriptor.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagerflow import extras

__all__ = ["message_classes"]


def message_classes(
    package: str, messages: Mapping[str, str], extra: str, feature: str
) -> dict[str, Any]:
    """The class of each message by its name.

    ``messages`` has the fields of each one, as a text: ``type name``, separated by ``; ``. They are
    numbered in order, from 1 or from ``name=4`` on. A type is a scalar type or the name of a
    message; ``*`` before it marks a repeated field, ``%`` a map from texts, ``%int64:`` one from
    integers. ``oneof name: `` before fields makes all of them alternatives. MissingExtraError, for
    the ``feature`` of an ``extra``, without protobuf.

    >>> from eagerflow.files.protobuf import message_classes
    >>> Point = message_classes("p", {"Point": "int32 x; int32 y=4"}, "serving", "it")["Point"]
    >>> Point(x=1, y=2).SerializeToString().hex()
    '08012002'
    """
    descriptors = extras.load("google.protobuf.descriptor_pb2", extra, feature)
    pools = extras.load("google.protobuf.descriptor_pool", extra, feature)
    factory = extras.load("google.protobuf.message_factory", extra, feature)
    file = descriptors.FileDescriptorProto(
        name=f"eagerflow/{package}.proto", package=package, syntax="proto3"
    )
    described: dict[str, Any] = {}
    for name in sorted(messages, key=lambda name: name.count(".")):
        outer, _, own = name.rpartition(".")
        rows = described[outer].nested_type if outer else file.message_type
        described[name] = rows.add(name=own or name)
        _describe(described[name], package, name, messages[name])
    pool = pools.DescriptorPool()  # a pool of our own: programs may have these messages already
    pool.Add(file)
    return {
        name: factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


def _describe(message: Any, package: str, path: str, fields: str) -> None:
    """Add the fields of a message."""
    choice, _, rest = fields.rpartition(": ")
    if choice:
        message.oneof_decl.add(name=choice.removeprefix("oneof "))
    number = 0
    for field in filter(None, rest.split("; ")):
        kind, name = field.split()
        name, _, said = name.partition("=")
        number = int(said) if said else number + 1
        made = message.field.add(name=name, number=number)
        made.label = made.LABEL_REPEATED if kind[0] in "*%" else made.LABEL_OPTIONAL
        if choice:
            made.oneof_index = 0
        if kind[0] == "%":  # a map is a list of messages with a key and a value
            key, _, value = kind[1:].rpartition(":")
            words = "".join(word.capitalize() for word in name.split("_"))
            entry = message.nested_type.add(name=f"{words}Entry")
            entry.options.map_entry = True
            for i, (label, inner) in enumerate((("key", key or "string"), ("value", value)), 1):
                part = entry.field.add(name=label, number=i, label=made.LABEL_OPTIONAL)
                _set_type(part, package, inner)
            kind = f"{path}.{entry.name}"
        _set_type(made, package, kind.lstrip("*"))


def _set_type(field: Any, package: str, kind: str) -> None:
    if kind[0].isupper():
        field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
