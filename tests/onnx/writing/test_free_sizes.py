"""Models of ops for any number of rows, by hypothesis."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from eagerflow.errors import CaptureError
from eagerflow.op import ops
from tests.cases.samples import Sample
from tests.contract.cases import FLOAT32, about, dtypes_of, main_dtype, shipped, spread
from tests.onnx.writing.exported import freed
from tests.onnx.writing.test_ops import REFUSED, few

KNOWN = frozenset(
    """
    band_recurrence conv conv_input_gradient ctc_beam_search cummax cummin cumulative_prod
    dequantize integer_conv linear_recurrence log_paths logcumsumexp qr quantize roll
    sparse_softmax_cross_entropy_gradient tril triu
    """.split()
)
"""Ops of which some sizes have to be known: steps, windows, classes, scales, tables."""

UNSORTED = "searchsorted"  # whose first argument is in order, which repeated rows are not


def models(op):
    """The models of some of the op's samples whose first sizes can be free."""
    dtype = (dtypes_of(op, (FLOAT32,)) or [main_dtype(op)])[0]
    found = []
    for sample in few(op, dtype, 99):
        with about(op, sample):
            try:
                model = freed(op, sample)
            except CaptureError as error:
                assert op.name in KNOWN
                assert "is not known" in str(error)
                continue
        if model is not None:
            found.append((sample, model))
    return spread(found, 3)


OPS = [op for op in shipped() if op.data and op.name not in (*REFUSED, UNSORTED)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])
def test_any_number_of_rows(op):
    found = models(op)
    if not found:
        pytest.skip("no sample has a first size that can be free")

    @settings(max_examples=4, deadline=None)
    @given(st.integers(1, 9))
    def rows(count):
        for sample, model in found:
            with about(op, sample):
                model.check(count)

    rows()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_sizes_that_have_to_be_known_do(name):
    op, refused = ops[name], 0
    dtype = (dtypes_of(op, (FLOAT32,)) or [main_dtype(op)])[0]
    for sample in few(op, dtype, 99):
        try:
            freed(op, sample)
        except CaptureError:
            refused += 1
    assert refused


def test_a_size_that_is_kept_is_found(monkeypatch):
    op = ops["square"]
    sample = Sample((np.ones((2, 3), np.float32),))
    two_rows = lambda w, x: w.Slice(w.Mul(x, x), w.integers([0]), w.integers([2]))
    monkeypatch.setattr(op, "onnx", two_rows)
    model = freed(op, sample)
    model.check(2)
    with pytest.raises(AssertionError, match="the model gives"):
        model.check(3)
