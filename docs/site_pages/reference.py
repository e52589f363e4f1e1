"""The reference: a page for each folder of ops with their facts, and one for each public module."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from eagerflow import op as ops_and_facts
from eagerflow.ops.composition import compositions
from site_pages import facts, names, text
from site_pages.folder import Folder
from site_pages.signatures import shown_signature
from tests.structure.public import own_docstring, public_modules, public_values

_OPS = "eagerflow.ops."
_FACTS_WITH_GAPS = ("vjp", "batch", "split", "onnx")
_ERRORS = "eagerflow.errors"  # a page of the reference that docs/index.md lists
_TITLES = {"fft": "FFT", "nn": "Neural networks"}  # where the name of a module is no title
_PLENTY = 30  # entries, from which a page has a section for each module that defines some


def _by_name(item: Entry) -> str:
    return item.name.lower()


class Entry(NamedTuple):
    """A public name: where users find it, what it is, and the module that defines it."""

    name: str
    value: Any
    source: str

    @property
    def doc(self) -> str:
        """The docstring, clean."""
        return own_docstring(self.value) or ""


def shown(module: str) -> str:
    """A module's name as users type it."""
    return module.replace(_OPS, "eagerflow.").replace("eagerflow", "ef", 1)


def entries() -> dict[str, list[Entry]]:
    """Public module to its entries; each value is in one of them."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for module, name, value in public_values(public_modules()):
        source = getattr(value, "__module__", None) or type(value).__module__
        found[module].append(Entry(f"{shown(module)}.{name}", value, source))
    return found


def write(folder: Folder) -> None:
    """Write the pages of ops and of all else that is public."""
    found = entries()
    by_folder: dict[str, list[Entry]] = defaultdict(list)
    pages = {}
    for module, items in found.items():
        own = []
        for item in items:
            if item.source.startswith(_OPS):
                by_folder[item.source.split(".")[2]].append(item)
            else:
                own.append(item)
        if own:
            pages[module] = own
    for name, items in by_folder.items():
        folder.write(f"ops/{name}.rst", _ops_page(name, items))
    folder.write("ops/index.rst", _ops_index(by_folder))
    for module, items in pages.items():
        folder.write(f"api/{shown(module)}.rst", _module_page(module, items))
    folder.write("api/index.rst", _api_index(pages))


@cache
def all_names() -> Mapping[int, list[str]]:
    """The identity of a public value to all names that it has."""
    found: dict[int, list[str]] = defaultdict(list)
    for module_name, module in public_modules().items():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if callable(value):
                found[id(value)].append(f"{shown(module_name)}.{name}")
                _kept_alive.append(value)
    return found


_kept_alive: list[Any] = []  # the identity of a bound method that is gone is used again


# Pages -------------------------------------------------------------------------------------------


def _module_doc(name: str) -> str:
    return text.first_sentence(importlib.import_module(name).__doc__ or "")


def _words(name: str) -> str:
    return _TITLES.get(name) or name.replace("_", " ").strip().capitalize()


def _sections(items: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Defining module to entries, in the order of their names."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for item in sorted(items, key=lambda item: (item.source, item.name.lower())):
        found[item.source].append(item)
    return found


def _ops_page(name: str, items: list[Entry]) -> str:
    parts = [text.heading(_words(name), "="), _module_doc(_OPS + name)]
    for source, members in _sections(items).items():
        if source != _OPS + name:
            title = _words(source.rpartition(".")[2])
            parts += [text.heading(title, "-"), _module_doc(source)]
        parts += [_listed(members), *map(_entry, members)]
    return "\n\n".join(parts) + "\n"


def _module_page(module: str, items: list[Entry]) -> str:
    parts = [text.heading(shown(module), "="), _module_doc(module)]
    for source, members in _sections(items).items():
        if len(items) > _PLENTY:
            title = _words(source.rpartition(".")[2])
            parts += [text.heading(title, "-"), _module_doc(source)]
        parts += [_listed(members), *map(_entry, members)]
    return "\n\n".join(parts) + "\n"


def _listed(items: Iterable[Entry]) -> str:
    """The names of entries in a row; ``links`` makes them lead to their places."""
    return ", ".join(f"``{item.name}``" for item in items)


def _api_index(pages: dict[str, list[Entry]]) -> str:
    rows = []
    for module, items in pages.items():
        listed = _listed(sorted(items, key=_by_name))
        rows.append(f":doc:`{shown(module)}`\n   {_module_doc(module)}\n\n   {listed}\n")
    parts = [
        text.heading("Names by module", "="),
        "All public names, from their docstrings. Ops and functions made of them are in the "
        ":doc:`reference of ops </generated/ops/index>`.",
        *rows,
        ".. toctree::\n   :hidden:\n\n"
        + "\n".join(f"   {shown(m)}" for m in pages if m != _ERRORS),
    ]
    return "\n\n".join(parts) + "\n"


def _ops_index(by_folder: dict[str, list[Entry]]) -> str:
    parts = [
        text.heading("Ops", "="),
        "An op is one function with its facts; what stands under each of them here is what the op "
        "itself states, and what the tests hold it to. Functions made of ops run those.",
    ]
    for name, items in sorted(by_folder.items()):
        listed = _listed(sorted(items, key=_by_name))
        parts.append(f":doc:`{name}`\n   {_module_doc(_OPS + name)}\n\n   {listed}\n")
    parts += [text.heading("What ops lack", "-"), _gaps()]
    parts += [text.heading("Ops that only graphs call", "-"), _inner_ops(by_folder)]
    parts.append(".. toctree::\n   :hidden:\n\n" + "\n".join(f"   {n}" for n in sorted(by_folder)))
    return "\n\n".join(parts) + "\n"


def _gaps() -> str:
    """A table of the facts that ops do not have, with the reasons."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for op in ops_and_facts.ops.values():
        for fact in _FACTS_WITH_GAPS:
            value = getattr(op, fact)
            if isinstance(value, ops_and_facts.Missing) and not value.reason.startswith("see "):
                found[fact, value.reason].append(op.name)
    titles = {"vjp": "gradient", "batch": "``vmap``", "split": "cuts", "onnx": "ONNX"}
    rows = (
        (titles[fact], text.plain(reason), ", ".join(f"``{n}``" for n in sorted(members)))
        for (fact, reason), members in sorted(found.items())
    )
    return text.table(("What", "Why", "Ops"), rows)


def _inner_ops(by_folder: dict[str, list[Entry]]) -> str:
    """The ops without a public name: graphs show them."""
    public = {
        item.value.op.name for items in by_folder.values() for item in items if _op(item.value)
    }
    inner = sorted((op.name, op.doc) for op in ops_and_facts.ops.values() if op.name not in public)
    rows = ((f"``{name}``", text.first_sentence(doc)) for name, doc in inner)
    return text.table(("Op", "What it does"), rows)


# Entries -----------------------------------------------------------------------------------------


def _op(value: Any) -> ops_and_facts.Op | None:
    found = getattr(value, "op", None)
    return found if isinstance(found, ops_and_facts.Op) else None


def _entry(item: Entry) -> str:
    kind = "class" if isinstance(item.value, type) else "function"
    body = [text.docstring(item.doc)]
    also = [name for name in all_names().get(id(item.value), ()) if name != item.name]
    if also:
        body.append("Also " + ", ".join(f"``{name}``" for name in also) + ".")
    if isinstance(item.value, type):
        body += list(_class_body(item.value))
    if stated := text.fields(_stated(item)):
        body.append(stated)
    head = f".. py:{kind}:: {item.name}{shown_signature(item.value)}"
    return f"{head}\n\n{text.indent(chr(10).join(b + chr(10) for b in body))}"


def _stated(item: Entry) -> Iterator[tuple[str, str]]:
    op = _op(item.value)
    if op is not None:
        yield from facts.facts_of(op)
    composition = next((c for c in compositions if c.call is item.value), None)
    if composition is not None:
        yield from facts.facts_of_composition(composition)
    if item.source.startswith(_OPS):
        elsewhere = names.recorded().get(item.name.removeprefix("ef."))
        if elsewhere:
            yield "Elsewhere", ", ".join(f"``{name}``" for name in elsewhere.values())


def _class_body(cls: type) -> Iterator[str]:
    bases = [b for b in cls.__mro__[1:] if b.__module__.startswith("eagerflow")]
    public = [b for b in bases if not b.__name__.startswith("_") and _is_public(b)]
    if public and not issubclass(cls, BaseException):
        yield f"A kind of ``{_public_name(public[0])}``."
    elif issubclass(cls, BaseException):
        yield "A kind of " + ", ".join(f"``{_base_name(b)}``" for b in cls.__bases__) + "."
    hidden = [b for b in bases if b not in public]
    same_as_functions = []
    for name, member in _members(cls, hidden):
        doc = own_docstring(member)
        if not doc:
            continue
        if f"ef.{name}" in all_names().get(id(member), ()):
            same_as_functions.append(f"ef.{name}")
            continue
        yield _member(name, member, doc)
    if same_as_functions:
        listed = ", ".join(f"``{name}``" for name in same_as_functions)
        yield f"Methods that are functions of the same name: {listed}."


def _member(name: str, member: Any, doc: str) -> str:
    inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    if isinstance(member, property) or not callable(inner):
        head = f".. py:attribute:: {name}"
    else:
        head = f".. py:method:: {name}{shown_signature(inner, method=True)}"
        if isinstance(member, classmethod):
            head += "\n   :classmethod:"
        elif isinstance(member, staticmethod):
            head += "\n   :staticmethod:"
    return f"{head}\n\n{text.indent(text.docstring(doc))}"


def _members(cls: type, hidden: list[type]) -> Iterator[tuple[str, Any]]:
    """Public members of a class, and of its bases that have no public name."""
    found: dict[str, Any] = {}
    for base in (cls, *hidden):
        for name, member in vars(base).items():
            if not name.startswith("_"):
                found.setdefault(name, member)
    yield from sorted(found.items())


def _is_public(cls: type) -> bool:
    return id(cls) in all_names()


def _public_name(cls: type) -> str:
    return all_names()[id(cls)][0]


def _base_name(cls: type) -> str:
    return _public_name(cls) if _is_public(cls) else cls.__name__
