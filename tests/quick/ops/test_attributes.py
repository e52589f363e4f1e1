"""Ops declare which attributes are valid: these run, and all others raise."""

import itertools
import json

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.dims import Dim
from eagerflow.errors import CaptureError, FileFormatError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value
from eagerflow.op import freeze, ops
from eagerflow.ops.attributes import is_stated, unfit
from tests.capture import running
from tests.capture.saving.mutation import op_graphs
from tests.capture.saving.saved_programs import changed, dense
from tests.contract.cases import SOAK, main_dtype, samples, shipped

STRANGE = [
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 1000, 2**31, 2**62, -(2**63), 2**63, 2**64, 10**30,
    10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), 1j, "", "x", "same", "valid", "float64",
    "left", "constant", "cpu:0", "a->b", "array", (), (0,), (-1,), (0, 0), (1, 2), (2, 3), ("x",),
    (None,), (1.5,), ((1, 2),), ((0, 1), (1, 0)), ((),), (True,), (2**62,), (0,) * 70,
    np.dtype("float32"), np.dtype("int8"), np.dtype("bool"), np.dtype("complex64"), Dim("n"),
    slice(None), slice(None, None, 0), slice(0, 2, -1), slice("a"), (slice(None), None, Ellipsis),
    Ellipsis, (Ellipsis, Ellipsis),
]  # fmt: skip


def stated():
    """Every attribute of every op that can be in a saved graph."""
    return [(op, name) for op in shipped() for name in op.attributes]


def test_each_op_states_each_of_its_attributes():
    assert len(stated()) > 230
    assert [f"{op.name}.{name}" for op, name in stated() if not is_stated(op, name)] == []


def test_defaults_and_samples_are_valid_attributes():
    seen = 0
    for op in shipped():
        for sample in samples(op, main_dtype(op)):
            given = {
                name: freeze(sample.attributes.get(name, default))
                for name, default in op.attributes.items()
                if name in sample.attributes or default in (None, 0, 1, False, True, "")
            }
            given = op.attributes | {
                name: np.dtype(value) if name == "dtype" and isinstance(value, str) else value
                for name, value in given.items()
            }
            assert unfit(op, given) is None, (op.name, given)
            seen += 1
    assert seen > 1000


def inferred(node):
    """Give the outputs of a node the types that follow from its attributes, if any do."""
    specs = [x.spec if type(x) is Value else x for x in node.inputs]
    try:
        found = node.op.infer(*specs, **node.attributes)
        found = found if type(found) is tuple else (found,)
        if len(found) == len(node.outputs):
            for value, spec in zip(node.outputs, found, strict=True):
                value.shape, value.dtype = spec.shape, spec.dtype
    except Exception:
        return


STEP = 1 if SOAK else 16
"""Of the strange values each attribute is given every third, in turn, or all of them."""


def mutants():
    """Graphs of one call with one attribute in another form; the types around it fit it."""
    turns = itertools.cycle(range(STEP))
    for op, _, graph in op_graphs(1):
        places = [(i, name) for i, node in enumerate(graph.nodes) for name in node.attributes]
        for i, name in places:
            if isinstance(graph.nodes[i].attributes[name], Graph):
                continue
            for value in STRANGE[next(turns) :: STEP]:
                node = graph.nodes[i]
                before = node.attributes
                types = [(v.shape, v.dtype) for v in node.outputs]
                node.attributes = before | {name: value}
                inferred(node)
                graph.cache.clear()
                yield f"{op.name}.{name}={value!r:.60}", graph
                node.attributes = before
                for made, (shape, dtype) in zip(node.outputs, types, strict=True):
                    made.shape, made.dtype = shape, dtype


@pytest.mark.filterwarnings("ignore")  # numbers out of range are cast
def test_mutated_attributes_are_refused_or_raise_typed_errors():
    tried = accepted = 0
    bad = []
    for name, graph in mutants():
        tried += 1
        try:
            graph.check()
        except CaptureError:
            continue
        accepted += 1
        errors, _ = running.untyped(graph)
        bad += [f"{name} {way}: {error!r}" for way, error in errors.items()]
    print(f"{tried:,} mutants, {accepted:,} accepted")
    assert bad == []
    assert tried > 10_000 // STEP
    assert accepted > 500 // STEP


@pytest.mark.parametrize(
    ("op", "name", "value", "words"),
    [
        ("sum", "axis", "0", "an axis, a tuple of axes or None"),
        ("sum", "keepdims", "yes", "True or False"),
        ("sum", "dtype", "float32", "a dtype or None"),
        ("searchsorted", "side", "middle", "one of left, right"),
        ("leaky_relu", "negative_slope", 10**400, "a number"),
        ("getitem", "index", (1, "x"), "integers, slices"),
    ],
)
def test_errors_name_the_attribute_and_allowed_values(op, name, value, words):
    attributes = ops[op].attributes | {"index": (0,), "axis": None} | {name: value}
    found = unfit(ops[op], {n: attributes[n] for n in ops[op].attributes})
    assert found is not None and found[0] == name and words in found[1]
    graph = ef.capture.trace(lambda x: ef.sum(x, axis=0), ef.TensorSpec((3,), "float32"))
    graph.nodes[0].attributes["axis"] = "0"
    with pytest.raises(CaptureError) as caught:
        graph.check()
    assert "the attribute axis is not valid for the op" in str(caught.value)
    assert "received: '0'" in str(caught.value) and "test_attributes.py:" in str(caught.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1E+999"])
@pytest.mark.parametrize("part", ["nodes", "attributes", "graphs"])
def test_numbers_that_json_does_not_have_are_refused(part, number):
    base = file.encode(dense())

    def change(tables):
        row = tables[part][0]
        if part == "nodes":
            row = next(r for r in tables[part] if any(type(x) is list for x in r[2]))
            row[2] = [x if type(x) is int else ["THE NUMBER"] for x in row[2]]
        elif part == "attributes":
            row["index"] = "THE NUMBER"
        else:
            row["results"][1] = "THE NUMBER"
        words = json.dumps(row, separators=(",", ":"))
        at = tables[part].index(row)
        tables[part][at] = words.replace('"THE NUMBER"', number)

    with pytest.raises(FileFormatError, match="it is not JSON"):
        file.decode(changed(base, change))
