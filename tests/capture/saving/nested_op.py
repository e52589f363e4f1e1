"""An op that holds a graph, as those of control flow do, while a test needs it."""

from contextlib import contextmanager

import numpy as np

from eagerflow.op import Missing, Op
from tests.internals import op_table


@contextmanager
def test_call():
    none = Missing("for tests")
    op = Op(
        "test_call",
        "control",
        lambda xp, x, body: x,
        "Calls a graph.",
        ("x",),
        {"body": None},
        False,
        (frozenset({np.dtype("float32")}),),
        (),
        lambda x, body: x.like(x.shape),
        none,
        none,
        none,
        frozenset(),
        none,
        none,
        lambda *a, **k: None,
        none,
        none,
        lambda rng, dtype: [],
        lambda rng: [],
        none,
    )
    op_table()["test_call"] = op
    try:
        yield op
    finally:
        del op_table()["test_call"]


test_call.__test__ = False
