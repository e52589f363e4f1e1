"""Captured functions that read state which changes between calls: right as eager, or refused.

``changes/reaches.txt`` has two tables. A *thing* is a kind of state: how it is made, how a function
reads it (as ``h``), and a statement that changes it (as ``H``). A *reach* is a way from a function
to the state (global, closure, attribute, argument): a program that holds the thing as ``H`` and
reads it where ``{r}`` stands. Each thing is tried in each reach: three calls before the change, two
after it.
"""

import itertools
import os
import random
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.errors import CaptureError
from tests.capture.guards.changes.kinds import PRELUDE

_TEXT = (Path(__file__).parent / "changes" / "reaches.txt").read_text()
_, _NAMES, _THINGS, _REACHES = re.split(r"^=== .*\n", _TEXT, flags=re.MULTILINE)
THINGS = {row[0]: row[1:] for row in (line.split(" @ ") for line in _THINGS.splitlines())}
REACHES = {}
for _part in _REACHES.split("-- ")[1:]:
    _head, _, _body = _part.partition("\n")
    REACHES[_head.split(" @ ")[0]] = _head.split(" @ ")[1], _body
PAIRS = list(itertools.product(THINGS, REACHES))
_CODE = compile(PRELUDE + _NAMES, "names.py", "exec")


def results_of(f, args, named):
    """The results as lists, or the exception raised."""
    try:
        return [np.asarray(x).tolist() for x in tree.flatten(f(*args, **named))[0]]
    except Exception as error:
        return error


def alike(a, b):
    if isinstance(a, Exception) or isinstance(b, Exception):
        return type(a) is type(b)
    return np.allclose(a, b, rtol=1e-4)


def outcome(thing, reach):
    """``right``, ``refused``, ``no program`` where eager code raises, or what is wrong.

    ``told`` is a result that is stale, where ``explain()`` lists the call as not watched.
    """
    make, read, change = THINGS[thing]
    path, body = REACHES[reach]
    read = re.sub(r"\bh\b", lambda _: path, read)
    module = types.ModuleType("reached")
    sys.modules["reached"] = module
    try:
        exec(_CODE, vars(module))
        exec(body.replace("{m}", make).replace("{r}", read), vars(module))
        args, named = [ef.tensor([2.5])], {}
        given = getattr(module, "HOLD", module.H)
        if reach == "argument kw":
            named["a"] = given
        elif reach.startswith("argument"):
            args.append(given)
        before = results_of(module.f, args, named)
        if isinstance(before, Exception):
            return "no program"
        step = ef.function(module.f)
        first = [results_of(step, args, named) for _ in range(3)]
        exec(change, vars(module))
        found, wanted = results_of(step, args, named), results_of(module.f, args, named)
        again = results_of(step, args, named)
    finally:
        del sys.modules["reached"]
    if any(isinstance(x, CaptureError) for x in (*first, found)):
        return "refused"
    if not all(alike(x, before) for x in first):
        return f"wrong at first: {first} in place of {before}"
    if alike(found, wanted) and alike(again, wanted):
        return "right"
    told = "not watched: inspect.signature()" in step.explain()
    return "told" if told else f"stale: {found} and {again} in place of {wanted}"


def check(pairs):
    outcomes = {pair: outcome(*pair) for pair in pairs}
    fine = ("right", "refused", "no program", "told")
    assert {pair: found for pair, found in outcomes.items() if found not in fine} == {}
    assert sum(f == "told" for f in outcomes.values()) <= 2
    assert sum(f == "right" for f in outcomes.values()) > 0.8 * len(pairs)


def test_some_things_in_some_reaches():
    seed = int(os.environ.get("EAGERFLOW_TEST_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    check(random.Random(seed).sample(PAIRS, 12))


@pytest.mark.soak
def test_all_things_in_all_reaches():
    check(PAIRS)
