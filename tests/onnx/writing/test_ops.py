"""Every op exported from its own samples, for all dtypes, against what eagerflow computes.

``EAGERFLOW_SOAK=1`` takes all samples in place of a few.
"""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import onnx

import eagerflow as ef
from eagerflow.dtypes import COMPLEX, INTEGERS, STANDARD
from eagerflow.errors import ArgumentError, CaptureError
from eagerflow.onnx.writing.operators import NO_FLOAT64, OPSETS, UINT64
from eagerflow.op import Missing, Onnx, ops
from tests.cases import cases_of
from tests.contract.cases import (
    FAMILIES,
    FLOAT32,
    FLOAT64,
    SMALL,
    about,
    dtypes_of,
    inexact,
    main_dtype,
    samples,
    shipped,
    spread,
)
from tests.contract.values import bound, expected
from tests.onnx.writing import exported
from tests.onnx.writing.exported import NoKernel, by_reference, by_runtime, check, session_of

REAL = sorted(STANDARD - COMPLEX, key=str)
BFLOAT16 = exported.BFLOAT16

REFUSED = {op.name: op.onnx.reason for op in shipped() if isinstance(op.onnx, Missing)}
REFUSED["nonzero"] = "depends on the values"  # its trace is refused already
"""Ops that are not exported, and why."""

FINITE = frozenset({"quantize"})
"""Ops whose operator each runtime computes as it likes where numbers are not finite."""

EXPORTED = [op for op in shipped() if op.name not in REFUSED]
NAMES = [op.name for op in EXPORTED]

RUNTIME_UNITS = {"elu": 5, "gelu": 512, "hard_silu": 8, "sigmoid": 16}
"""Where ONNX Runtime's kernels are further off than the op's stated units in the last place."""

EVALUATOR_LACKS = {
    "conv_input_gradient": "groups of transposed convolutions",
    "ctc_beam_search": "elements of rows at more places than rows have",
    "gru": "scans from the end",
    "gru_gradient": "scans from the end",
    "gru_training": "scans from the end",
    "inv": "scans from the end",
    "logsumexp": "the logarithm of a sum without axes",
    "lstm": "scans from the end",
    "lstm_gradient": "scans from the end",
    "lstm_training": "scans from the end",
    "max_pool_gather": "places of the largest in padded windows",
    "max_pool_gradient": "places of the largest in padded windows",
    "quantize": "infinities as whole numbers",
    "scan": "scans from the end",
    "simple_rnn": "scans from the end",
    "simple_rnn_gradient": "scans from the end",
    "softsign": "softsign of one number",
    "solve": "scans from the end",
    "solve_triangular": "scans from the end",
}
"""What onnx's own evaluator does not compute, or computes otherwise than the standard says."""


def dtypes_for(op):
    """All dtypes but complex ones that the op's samples come in."""
    return dtypes_of(op, REAL if op.data else FAMILIES + SMALL) or [main_dtype(op)]


def few(op, dtype, count):
    """Some samples without complex results, or all of them in the soak run."""
    found = [s for s in samples(op, dtype) if not is_complex(op, s)]
    if op.name in FINITE:
        found = [s for s in found if np.isfinite(s.args[0].astype("float64")).all()]
    return spread(found, count)


def is_complex(op, sample):
    """Whether a call is told to give complex numbers."""
    dtype = sample.attributes.get("dtype")
    return dtype is not None and ef.as_dtype(dtype) in COMPLEX


@pytest.mark.sampled(20)
@pytest.mark.parametrize("op", EXPORTED, ids=NAMES)
def test_every_dtype(op):
    for dtype in dtypes_for(op):
        if dtype not in COMPLEX:
            for sample in few(op, dtype, 3):
                check(op, sample)


@pytest.mark.sampled(25)
@pytest.mark.parametrize("op", EXPORTED, ids=NAMES)
def test_every_opset(op):
    for dtype in dtypes_of(op, (FLOAT32, BFLOAT16)) or [main_dtype(op)]:
        for sample in few(op, dtype, 2):
            known = []
            for opset in (18, 20, 23, 26):
                check(op, sample, known=known, opset=opset)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("op", EXPORTED, ids=NAMES)
def test_reference_evaluator(op):
    if op.name in EVALUATOR_LACKS:
        pytest.skip(f"onnx's evaluator: {EVALUATOR_LACKS[op.name]}")
    for dtype in dtypes_of(op, (FLOAT32, BFLOAT16)) or [main_dtype(op)]:
        for sample in few(op, dtype, 2):
            check(op, sample, by_reference)


def test_evaluator_fails_for_all_listed_ops():
    wrong = []
    for name in EVALUATOR_LACKS:
        op = ops[name]
        for sample in samples(op, FLOAT32):
            try:
                check(op, sample, by_reference)
            except Exception:
                wrong.append(name)
                break
    assert wrong == list(EVALUATOR_LACKS)


# Units in the last place -------------------------------------------------------------------------


def units_off(op, sample):
    """How far the elements of a model's float32 results are off, in units in the last place."""
    found = exported.exported(op, sample)
    if found is None:
        return 0.0
    data, attributes = bound(op, sample)
    wide = [x.astype(FLOAT64) if inexact(x) else x for x in data]
    worst = [0.0]
    made = by_runtime(found.model, found.feeds)
    for y, wanted in zip(made, expected(op, wide, attributes), strict=True):
        if y.dtype == FLOAT32 and wanted.dtype == FLOAT64:
            with np.errstate(all="ignore"):
                unit = np.spacing(np.abs(wanted).astype(FLOAT32)).astype(FLOAT64)
                off = np.abs(y.astype(FLOAT64) - wanted) / unit
            worst.append(np.where(np.isfinite(off), off, 0).max(initial=0))
    return max(worst)


MEASURED = [
    op
    for op in EXPORTED
    if op.family == "elementwise"
    and not isinstance(cases_of(op).reference, Missing)
    and dtypes_of(op, (FLOAT32,))
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("op", MEASURED, ids=[op.name for op in MEASURED])
def test_units_in_the_last_place(op):
    most = 0.0
    for sample in samples(op, FLOAT32):
        with about(op, sample):
            most = max(most, units_off(op, sample))
    assert most <= RUNTIME_UNITS.get(op.name, op.ulp)
    if op.name in RUNTIME_UNITS:
        assert most > op.ulp, "ONNX Runtime has become as exact as the op"


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    op = ops[name]
    dtype = (dtypes_of(op, (FLOAT32,)) or [main_dtype(op)])[0]
    with pytest.raises(CaptureError) as caught:
        exported.exported(op, samples(op, dtype)[0])
    text = str(caught.value)
    assert name in text
    assert REFUSED[name] in text or "ONNX has no operators for complex numbers" in text
    assert caught.value.at is not None, "the user's line is missing"


@pytest.mark.parametrize(
    "op", [op for op in EXPORTED if op.data and dtypes_of(op, (np.dtype("complex64"),))], ids=str
)
def test_complex_numbers_are_refused(op):
    sample = next(s for s in samples(op, np.dtype("complex64")) if s.args[0].size)
    with pytest.raises(CaptureError, match="complex numbers"):
        exported.exported(op, sample)


@pytest.mark.parametrize("opset", [OPSETS[0] - 1, OPSETS[-1] + 1, "21"])
def test_other_opsets_are_refused(opset, tmp_path):
    graph = ef.capture.trace(ef.sin, ef.TensorSpec((2,), "float32"))
    with pytest.raises(ArgumentError, match="18 to 26"):
        ef.capture.export_onnx(graph, tmp_path / "model.onnx", opset=opset)


def test_random_ops_are_refused_where_asked(tmp_path):
    graph = ef.capture.trace(
        lambda state: ops["random_uniform"].call(state, (3,)), ef.TensorSpec((3,), "uint64")
    )
    ef.capture.export_onnx(graph, tmp_path / "model.onnx")
    with pytest.raises(CaptureError, match="random_uniform: it is random") as caught:
        ef.capture.export_onnx(graph, tmp_path / "model.onnx", allow_random=False)
    assert "allow_random=True" in str(caught.value)
    assert "test_ops.py" in str(caught.value)


# Random numbers ----------------------------------------------------------------------------------

SAME_BITS = "random_bits random_uniform random_keep random_integers random_permutation".split()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SAME_BITS)
def test_same_bits(name):
    op = ops[name]
    for sample in samples(op, np.dtype("uint64")):
        with about(op, sample):
            found = exported.exported(op, sample)
            (made,), (wanted,) = by_runtime(found.model, found.feeds), found.wanted
            assert made.tobytes() == wanted.tobytes()


def test_integers_that_are_drawn_again():
    """Half of all words are beyond the last multiple of the size, so that most are retried."""
    op = ops["random_integers"]
    sample = samples(op, np.dtype("uint64"))[0]
    more = {"shape": (50,), "low": 0, "high": 2**63 + 1, "dtype": "uint64"}
    check(op, sample._replace(attributes=more))


# Tables of what ONNX Runtime computes ------------------------------------------------------------


def session(operator, dtype, inputs=1, gives=None):
    """A session of one operator on vectors of a dtype."""
    kind, result = (
        onnx.helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in (dtype, gives or dtype)
    )
    names = [f"x{i}" for i in range(inputs)]
    attributes = {"direction": "LEFT"} if operator == "BitShift" else {}
    if operator == "AveragePool":
        attributes = {"kernel_shape": [1]}
    rank = {"Conv": 3, "ConvTranspose": 3, "AveragePool": 3, "Det": 2}.get(operator, 1)
    node = onnx.helper.make_node(operator, names, ["y"], **attributes)
    infos = [onnx.helper.make_tensor_value_info(n, kind, [1] * rank) for n in names]
    end = onnx.helper.make_tensor_value_info("y", result, None)
    graph = onnx.helper.make_graph([node], "one", infos, [end])
    opsets = [onnx.helper.make_opsetid("", 21)]
    return session_of(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize("operator", sorted(NO_FLOAT64))
def test_operators_without_float64(operator):
    inputs = 2 if operator in ("Conv", "ConvTranspose") else 1
    with pytest.raises(NoKernel):
        session(operator, "float64", inputs)


COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}


@pytest.mark.parametrize("operator", sorted(UINT64))
def test_operators_of_unsigned_integers(operator):
    inputs = 1 if operator in ("Abs", "Sign", "BitwiseNot") else 2
    session(operator, "uint64", inputs, "bool" if operator in COMPARISONS else None)


@pytest.mark.parametrize(
    "name", ["less", "greater_equal", "maximum", "minimum", "remainder", "floor_divide"]
)
def test_large_unsigned_integers(name):
    a = np.array([2**64 - 1, 2**63, 5], np.uint64)
    b = np.array([3, 2**63 + 1, 2**64 - 2], np.uint64)
    check(ops[name], samples(ops[name], np.dtype("uint64"))[0]._replace(args=(a, b)))


@pytest.mark.parametrize("dtype", sorted(INTEGERS, key=str), ids=str)
@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts_of_all_bits(name, dtype):
    limits, bits = np.iinfo(dtype), 8 * dtype.itemsize
    x = np.array([limits.min, limits.max, 1, 77], dtype)[:, None]
    places = np.array([0, 1, bits - 1, bits, min(2 * bits, 100)], dtype)
    check(ops[name], samples(ops[name], dtype)[0]._replace(args=(x, places)))


# The checks find bugs ----------------------------------------------------------------------------

BUGS = {
    "another operator": ("sin", Onnx("Cos"), AssertionError),
    "an operator that is not there": ("sin", Onnx("Sine"), CaptureError),
    "another dtype": ("argmax", lambda w, x, **_: w.constant(np.zeros((), np.int32)), Exception),
    "another axis": ("softmax", lambda w, x, *, axis: w.Softmax(x, axis=0), AssertionError),
    "a result short": ("top_k", lambda w, x, *, k, axis: (x,), ValueError),
    "rounded": ("exp", lambda w, x: w.Round(w.Exp(x)), AssertionError),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug, monkeypatch):
    name, rule, error = BUGS[bug]
    op = ops[name]
    monkeypatch.setattr(op, "onnx", rule)
    with pytest.raises(error):
        for sample in samples(op, FLOAT32):
            check(op, sample)


def test_a_planted_rounding_is_found(monkeypatch):
    """One unit more than the op states is too much, also where the tolerance lets it pass."""
    op = ops["exp"]
    rule = lambda w, x: w.Mul(w.Exp(x), w.constant(1 + 1e-6, x.dtype))
    monkeypatch.setattr(op, "onnx", rule)
    for sample in samples(op, FLOAT32):
        check(op, sample)
    assert max(units_off(op, sample) for sample in samples(op, FLOAT32)) > op.ulp
