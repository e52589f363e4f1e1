"""Every op's own samples, as programs that run where NumPy is all there is."""

import numpy as np
import pytest

import eagerflow as ef
import eagerflow.ops
from eagerflow.dtypes import NARROW
from eagerflow.errors import CaptureError, EagerflowError
from eagerflow.op import ops
from eagerflow.standalone import forms, program, sources
from tests.cases import cases_of
from tests.contract.cases import SOAK, spread
from tests.standalone.programs import Program, assert_close, traced

eagerflow.ops.late.load_all()
OTHERWISE = {
    "betainc_slope": "how many terms its fraction takes depends on values",
    "print": "what it shows belongs to the run of a graph",
    "nonzero": "its shape depends on values, so that no graph has it",
    "replica_concat": "a program is in one place",
    "replica_mean": "a program is in one place",
    "recv": "a program is in one place",
    "send": "a program is in one place",
}
DTYPES = "float32 float64 int64 bool complex64".split()
OTHERS = "float16 int32 int8 uint8 uint64".split()
SAMPLES = 24 if SOAK else 12
BODIES = 24 if SOAK else 3
"""Samples of an op that is written as what it consists of; samples of those ops test the forms."""
ROUNDINGS = 4  # of sums in another order, in units of the op


def samples_of(op, dtype):
    if op.data and dtype not in op.allowed(0):
        return []
    found = cases_of(op).samples(np.random.default_rng(0), dtype)
    return spread(found, SAMPLES if has_form(op) else BODIES)


def has_form(op):
    """Whether an op is written as itself, by a rule or as a function."""
    return op.name in forms.FORMS or op.name in sources.FUNCTIONS or forms.numpy_name(op)


def graph_and_results(op, sample):
    """The graph of a call with a sample, the arrays that it is given, and what eager gives."""
    args = [ef.asarray(x) if isinstance(x, np.ndarray) else x for x in sample.args]
    places = [i for i, x in enumerate(args) if isinstance(x, ef.Tensor)]

    def f(*tensors):
        given = list(args)
        for i, x in zip(places, tensors, strict=True):
            given[i] = x
        return op.call(*given, **sample.attributes)

    tensors = [args[i] for i in places]
    wanted = f(*tensors)
    arrays = [x.numpy() for x in tensors]
    wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
    return traced(f, *arrays), arrays, [y.numpy() for y in wanted]


def check(op, sample):
    compare(op, *graph_and_results(op, sample))


def compare(op, graph, arrays, wanted):
    if any(y.dtype in NARROW - {np.dtype("float16")} for y in (*arrays, *wanted)):
        with pytest.raises(CaptureError, match="NumPy has no"):
            Program(graph)
        return
    before = [x.copy() for x in arrays]
    found = Program(graph)(*arrays)
    found = found if isinstance(found, tuple | list) else (found,)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b, ROUNDINGS * op.ulp, arrays)
    for x, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, old)


@pytest.mark.sampled(9)
@pytest.mark.filterwarnings("ignore:Mean of empty slice")  # NumPy's, which errstate does not know
@pytest.mark.parametrize("name", sorted(set(ops) - set(OTHERWISE)))
def test_samples_of(name):
    op, ran = ops[name], 0
    takes_none = all(ef.as_dtype(dtype) not in op.allowed(0) for dtype in DTYPES if op.data)
    for dtype in map(ef.as_dtype, DTYPES + OTHERS if SOAK or takes_none else DTYPES):
        for sample in samples_of(op, dtype):
            try:
                made = graph_and_results(op, sample)
            except EagerflowError:
                continue  # a sample for other dtypes
            compare(op, *made)
            ran += 1
    assert ran


@pytest.mark.parametrize("name", ["betainc_slope", "recv", "send"])
def test_ops_that_no_program_can_do_are_refused(name):
    graph, _, _ = graph_and_results(ops[name], samples_of(ops[name], ef.float32)[0])
    with pytest.raises(CaptureError, match=f"{name}: it cannot be exported"):
        Program(graph)


def test_prints_are_refused():
    def f(x):
        ef.print("x", x)
        return x * 2

    graph = ef.capture.trace(f, ef.TensorSpec((2,), "float32"))
    with pytest.raises(CaptureError, match="print: it cannot be exported"):
        Program(graph)


def first(name, dtype="float32"):
    return ops[name], samples_of(ops[name], ef.as_dtype(dtype))[1]


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("permute_dims", lambda w, node, x: x),
        ("astype", lambda w, node, x: x),
        ("clip", lambda w, node, x, *limits: x),
        ("relu", lambda w, node, x: forms.call("np.minimum", x, "0")),
        ("subtract", lambda w, node, a, b: forms.binary("-", forms.SUM, b, a)),
        ("concat", lambda w, node, *xs: forms.call("np.concatenate", forms.bundle(xs[::-1]))),
    ],
)
def test_a_planted_form_is_found(name, planted, monkeypatch):
    samples = samples_of(ops[name], ef.float32)
    monkeypatch.setitem(program.FORMS, name, planted)
    failures = 0
    for sample in samples:
        try:
            check(ops[name], sample)
        except (AssertionError, ValueError):
            failures += 1
    assert failures


def test_planted_rounding_is_found(monkeypatch):
    def rounded(w, node, x):
        return forms.text(*forms.call("np.tanh", x).pieces, " * np.float32(1.00001)", level=7)

    monkeypatch.setitem(program.FORMS, "tanh", rounded)
    with pytest.raises(AssertionError):
        check(*first("tanh"))
