"""Changes in Python between two calls of a function: a table for the ledger's tests.

Each row makes a function and a change; ``notice`` rows must be noticed, ``ignore`` rows must not.
A change may have an ``undo`` for effects that other tests would see.
"""

import types

import numpy as np

import eagerflow as ef

CHANGES = {}
KEPT = []  # modules of the rows: their functions need their globals


def row(expected):
    def added(make):
        CHANGES[make.__name__] = expected, make
        return make

    return added


notice, ignore = row("notice"), row("ignore")


def module(source, **names):
    """A module with globals of its own."""
    made = types.ModuleType("made")
    vars(made).update(names)
    exec(compile(source, f"made_{len(KEPT)}.py", "exec"), vars(made))
    KEPT.append(made)
    return made


def setting(before, after, body="return x * VALUE"):
    """A function that reads the global VALUE, which changes."""
    made = module(f"def f(x):\n    {body}", VALUE=before, ef=ef, np=np)
    return made.f, lambda: setattr(made, "VALUE", after)


class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)
