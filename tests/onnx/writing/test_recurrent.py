"""Recurrent networks: the operators of ONNX where they say the same, a Scan elsewhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import eagerflow as ef
from eagerflow.op import ops
from tests.contract.cases import check_all_close
from tests.onnx.writing.exported import by_runtime, model_of

CELLS = {"lstm": (4, 2, "LSTM"), "gru": (3, 1, "GRU"), "simple_rnn": (1, 1, "RNN")}


def arguments(cell, batch, steps, units, given="", dtype="float32", lead=()):
    """Arrays for a cell: b, s and m are bias, states and mask."""
    rng = np.random.default_rng((batch, steps, units))
    gates, states, _ = CELLS[cell]
    wide = gates * units
    shapes = [(*lead, batch, steps, 3), (*lead, 3, wide), (*lead, units, wide)]
    shapes.append((*lead, 2, wide) if cell == "gru" else (*lead, wide))
    found = [rng.uniform(-1, 1, s).astype(dtype) for s in shapes]
    found[3] = found[3] if "b" in given else None
    for _ in range(states):
        start = rng.uniform(-1, 1, (*lead, batch, units)).astype(dtype)
        found.append(start if "s" in given else None)
    found.append(rng.random((*lead, batch, steps)) < 0.6 if "m" in given else None)
    return found


def compared(cell, given, reverse=False, free=False, only_first=True):
    """The operators of the model of a network, whose results are those of eagerflow."""
    op = ops[cell]
    there = [i for i, x in enumerate(given) if x is not None]

    def call(*tensors):
        args = [None] * len(given)
        for i, x in zip(there, tensors, strict=True):
            args[i] = x
        found = op.call(*args, reverse=reverse)
        found = found if isinstance(found, tuple) else (found,)
        return found[:1] if only_first else found

    arrays = [given[i] for i in there]
    rows = {0, *range(4, len(given))}
    specs = [
        ef.TensorSpec(("n", *x.shape[1:]) if free and i in rows else x.shape, x.dtype)
        for i, x in zip(there, arrays, strict=True)
    ]
    graph = ef.capture.trace(call, *specs)
    model = model_of(graph)
    made = by_runtime(model, dict(zip(graph.inputs.names, arrays, strict=True)))
    wanted = [y.numpy() for y in call(*map(ef.asarray, arrays))]
    check_all_close(made, wanted, 2e-5, cell)
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=8, deadline=None)
@given(
    batch=st.integers(1, 4),
    steps=st.integers(1, 6),
    units=st.integers(1, 5),
    parts=st.sampled_from(["", "b", "s", "bs"]),
    reverse=st.booleans(),
)
def test_operators(cell, free, batch, steps, units, parts, reverse):
    made = compared(cell, arguments(cell, batch, steps, units, parts), reverse, free)
    assert CELLS[cell][2] in made
    assert "Scan" not in made


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=4, deadline=None)
@given(batch=st.integers(1, 4), steps=st.integers(1, 6), reverse=st.booleans())
def test_masks_are_scans(cell, free, batch, steps, reverse):
    made = compared(cell, arguments(cell, batch, steps, 2, "bsm"), reverse, free)
    assert made.count("Scan") == 1
    assert CELLS[cell][2] not in made


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    "more", [{"dtype": "float64"}, {"lead": (2,)}], ids=["float64", "stacked networks"]
)
def test_recurrent_options_without_operator_use_scan(cell, more):
    assert "Scan" in compared(cell, arguments(cell, 2, 3, 2, "bs", **more))


def test_all_cell_states():
    assert "Scan" in compared("lstm", arguments("lstm", 2, 3, 2, "b"), only_first=False)


@pytest.mark.parametrize("cell", CELLS)
def test_size_does_not_grow_with_the_steps(cell):
    few, many = (compared(cell, arguments(cell, 1, n, 2, "bm")) for n in (2, 40))
    assert len(few) == len(many)
