"""verify compares what users run: results of fast arithmetic too."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.verify import ROUNDING, agree
from eagerflow.plan.replay import Replay


def program(x):
    return {"rows": ef.softmax(x, axis=-1).sum(0), "flag": x > 0, "small": x.astype("bfloat16")}


X = np.random.default_rng(0).standard_normal((6, 40)).astype("float32")


def test_all_ways_run_with_both_kinds_of_arithmetic():
    found = ef.capture.verify(program, [X])
    assert found
    ways = [line.split(":")[0] for line in found.lines]
    modes = ["captured", "loaded", "partitioned"]
    assert ways == ["eager", *modes, *(f"{mode}, fast" for mode in modes)]


@pytest.mark.parametrize("kind", ["fast", "exact"])
def test_a_wrong_number_of_either_kind_is_found(kind, monkeypatch):
    run = Replay.run

    def wrong(self, inputs):
        found = run(self, inputs)
        if self.numerics == kind:
            found[0] = found[0] * 1.01
        return found

    monkeypatch.setattr(Replay, "run", wrong)
    found = ef.capture.verify(program, [X], modes=["eager", "captured"])
    assert not found
    own = "captured, fast" if kind == "fast" else "captured"
    assert [d.mode for d in found.differences] == [own]


def test_one_kind_may_be_chosen_and_other_ways_be_the_first():
    found = ef.capture.verify(program, [X], ["captured", "eager"], "fast", rtol=1e-4)
    assert found and [line.split(":")[0] for line in found.lines] == ["captured", "eager"]
    found = ef.capture.verify(program, [X], ["captured", "eager"])
    assert [line.split(":")[0] for line in found.lines] == ["captured", "eager", "captured, fast"]


def test_tolerances_are_those_of_dtypes():
    for dtype, rtol in ROUNDING.items():
        a = np.ones(3, np.dtype(dtype) if dtype != "bfloat16" else ef.bfloat16)
        assert agree(a, a * (1 + rtol / 2), None) or dtype == "bfloat16"
        assert not agree(a, (a * (1 + 4 * rtol)).astype(a.dtype), None)
