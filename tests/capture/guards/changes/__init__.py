"""Changes in Python between two calls of a function: a table for the ledger's tests.

Each row makes a function and a change; ``notice`` rows must be noticed, ``ignore`` rows must not.
A change may have an ``undo`` for effects that other tests would see.
"""

import functools
import re
import types

import numpy as np

import eagerflow as ef

CHANGES = {}
KEPT = []  # modules of the rows: their functions need their globals
IMPORTS = """
import collections, contextvars, copy, dataclasses, enum, functools, itertools, json, math
import operator, os, types, weakref
"""


class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def module(source, **names):
    """A module with globals of its own."""
    made = types.ModuleType("made")
    vars(made).update(names)
    exec(compile(source, f"made_{len(KEPT)}.py", "exec"), vars(made))
    KEPT.append(made)
    return made


NAMES = {"np": np, "ef": ef, "Thing": Thing, "module": module}
exec(IMPORTS, NAMES)


def table(text, setup="", change="", undo="", through=None):
    """Enter the rows of a text, which begin with ``== name`` or, to be ignored, ``-- name``.

    Lines with ``?`` set a row up, those with ``!`` do so as globals, ``->`` lines change something,
    ``<-`` lines undo that, and the others are the body of the function ``f(x)``, unless the setup
    defines it. Short rows are ``== name @ body @ setup @ change``. What is left out is that of the
    whole table. A variable that is named as ``through`` is an argument of a function that f calls.
    """
    for part in re.split(r"^(?===|-- )", text, flags=re.MULTILINE)[1:]:
        head, *lines = part.rstrip("\n").splitlines()
        name, *short = map(str.strip, head[3:].split("@"))
        found = {mark: [] for mark in ("?", "!", "->", "<-", "")}
        for line in lines:
            mark, _, rest = line.partition(" ")
            own = mark if mark in found else ""
            found[own].append(rest if own else line)
        for mark, field in zip(("", "?", "->"), short, strict=False):
            if field:
                found["!" if field.startswith("! ") else mark] = [field.removeprefix("! ")]
        if not found["?"] and not found["!"]:
            found["?"] = setup.splitlines()
        found["->"] = found["->"] or [change]
        found["<-"] = found["<-"] or undo.splitlines()
        expected = "notice" if head.startswith("==") else "ignore"
        CHANGES[name.replace(" ", "_")] = expected, functools.partial(make, found, through)


def make(row, through):
    """The function of a row, and its change."""
    body = row[""]
    if body and "return" not in "".join(body):
        body = [f"return {body[0]}"]
    lines = [*row["!"], "def make():", *indented(row["?"])]
    if through and re.search(rf"\b{through}\b", "\n".join(body)):
        lines += indented([f"def read({through}, x):", *indented(body)])
        body = [f"return read({through}, x)"]
    functions = {"f(x)": body, "change()": row["!"] or row["->"], "undo()": row["<-"]}
    for head, own in functions.items():
        if own:
            lines += indented([f"def {head}:", *indented(own)])
    lines += indented(["change.undo = undo"] * bool(row["<-"]) + ["return f, change"])
    made = module("\n".join(lines), **NAMES)
    f, change = made.make()
    if row["!"]:
        change = functools.partial(exec, "\n".join(row["->"]), vars(made))
    return f, change


def indented(lines):
    return [f"    {line}" for line in lines]
