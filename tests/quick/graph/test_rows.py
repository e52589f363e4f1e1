"""What ``mixing`` lets pass has rows that do not depend on each other; what mixes them is told."""

import itertools
import random
import re

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import EagerflowError
from eagerflow.graph.rows import mixing
from tests.capture.programs import ROUGH, SMOOTH

ROWS = ef.TensorSpec(("batch", 4), "float64")
ROW = re.compile(r"\{b\}|\{a\}")
EXPRESSIONS = [
    text.strip()
    for text in (SMOOTH + ROUGH).replace("\\\n", "").replace("\n", "|").split("|")
    if text.strip()
    and not re.search(r"state|scale|random|\bk\b|OFFSET|TABLE|bfloat16|float16", text)
]
APART = """
ef.softmax({a}, axis=-1) | ef.layer_norm({a}) | {a} @ ef.ones((4, 3)) | {a}[:, ::-1] | {a}[..., 1:3]
ef.reshape({a}, ({a}.shape[0], 2, 2)) | ef.concat([{a}, {b}], axis=1) | {a} * ef.arange(4)
ef.pad({a}, ((0, 0), (1, 2))) | ef.take(ef.arange(9.0), ef.astype(ef.abs({a}), "int64") % 9)
ef.take({a}, [1, 0], axis=1) | ef.sum({a}, axis=1, keepdims=True) | {a} + ef.zeros_like({b})
ef.reshape(ef.reshape({a}[:, 0], (1, -1)), (-1,)) | ef.broadcast_to({a}[:, :1], ({a}.shape[0], 3))
ef.take_along_axis({a}, ef.argmax({b}, axis=1, keepdims=True), axis=1)
{a}[:, None] * ef.ones_like({a}[:1])[None] | ef.where({a} > 0, {a}, {b}) | {a}[:, [0, 1]]
""".replace("\n", "|")
MIXED = """
ef.softmax({a}, axis=0) | {a} - ef.mean({a}) | {a}[::-1] | ef.flip({a})
ef.cumulative_sum({a}, axis=0)
ef.broadcast_to({a}[:, :1], ({a}.shape[0], {a}.shape[0]))
ef.take_along_axis({a}, ef.argmax({b}, axis=0, keepdims=True), axis=0)
{a} * {a}[0] | ef.sort({a}, axis=0) | {a} @ {a}.mT | ef.roll({a}, 1, axis=0)
{a} * ef.expand_dims(ef.cumulative_sum(ef.ones_like({a}[:, 0])), axis=1)
ef.reshape(ef.reshape({a}, (4, -1)), (-1, 4)) | {a} + {a}[-1:] | ef.permute_dims({a})
""".replace("\n", "|")


def graph_of(text):
    """The graph of an expression of ``a`` and ``b``; None where it is refused for a free size."""
    f = eval(f"lambda a, b: {text}", {"ef": ef, "np": np})
    try:
        return ef.capture.trace(f, ROWS, ROWS)
    except EagerflowError:
        return None


def texts(table):
    return [text.strip().format(a="a", b="b") for text in table.split("|") if text.strip()]


def has_rows_apart(graph):
    """Whether each row of the result is that of a run of this row alone."""
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((2, 5, 4))
    whole = graph(a, b).numpy()
    alone = [graph(a[i : i + 1], b[i : i + 1]).numpy() for i in range(5)]
    return all(x.shape == (1, *whole.shape[1:]) for x in alone) and np.allclose(
        whole, np.concatenate(alone), rtol=1e-9, atol=1e-12, equal_nan=True
    )


@pytest.mark.parametrize("text", texts(APART))
def test_rows_apart_are_proved(text):
    graph = graph_of(text)
    assert mixing(graph, "batch") is None
    assert has_rows_apart(graph)


@pytest.mark.parametrize("text", texts(MIXED))
def test_mixed_rows_are_detected(text):
    assert mixing(graph_of(text), "batch")


def test_accepted_graphs_have_independent_rows():
    """Random compositions of expressions of all kinds: a proof is never wrong."""
    random.seed(3)
    passed = tried = 0
    singles = [text.format(a="a", b="b") for text in EXPRESSIONS]
    pairs = [
        random.choice(EXPRESSIONS).format(a=f"({random.choice(singles)})", b="b")
        for _ in range(250)
    ]
    for text in itertools.chain(singles, pairs):
        graph = graph_of(text)
        if graph is None or len(graph.outputs) != 1:
            continue
        tried += 1
        if mixing(graph, "batch") is None:
            passed += 1
            assert has_rows_apart(graph), f"{text} mixes rows"
    assert passed > 60 and tried - passed > 60, (passed, tried)


def test_assigned_variable_is_reported():
    count = ef.Variable(0.0)

    def step(a):
        count.assign_add(1.0)
        return a + count

    why = mixing(ef.capture.trace(step, ROWS), "batch")
    assert why is not None and "Variable" in why and "assigned" in why
