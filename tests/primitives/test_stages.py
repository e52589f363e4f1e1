"""Kernels of stages: those that are done turn by turn, with any number of threads."""

import numpy as np
import pytest

from eagerflow.codegen import generated
from eagerflow.primitives.llvm.stage_writer import StageWriter
from eagerflow.primitives.llvm.staged_kernel import Prepared, StagedKernel
from eagerflow.runtime import threads

pytestmark = pytest.mark.skipif(not generated.enabled(), reason="needs llvmlite")

SIZE = 24


class SumsWriter(StageWriter):
    """Each element of a line is the sum of the line before, plus its place: turn after turn."""

    stages = ("begin", "turns", "end")
    repeated = frozenset({"turns"})
    slots = ("lines", "total")

    def __init__(self, llvm, frame):
        super().__init__(llvm, frame, "float64", 2)

    def _each(self, value):
        """Fill a piece of a line with ``value(place)``."""
        with self.code.loop("place", "%c0", "%c1") as (place, _):
            value(place)

    def _begin(self):
        lines = self.pointer("lines")
        one = self.s.constant(1, "float64")
        self._each(lambda at: self.v.memory.store_one(self.v.step(lines, at, 8), one, "float64"))

    def _sum(self, line):
        nothing = [self.s.constant(0, "float64")]
        with self.code.loop("from", 0, SIZE, 1, nothing) as (k, held):
            held[0] = self.s.add(
                held[0], self.v.memory.load_one(self.v.step(line, k, 8), "float64")
            )
        return held[0]

    def _turns(self):
        v = self.v
        line = v.step(self.pointer("lines"), "%turn", SIZE * 8)
        after = v.at(line, SIZE * 8)

        def place(at):
            total = self.s.add(self._sum(line), self.s.convert(v.count(at), "float64"))
            total = self.s.multiply(total, 1 / SIZE)
            v.memory.store_one(v.step(after, at, 8), total, "float64")

        self._each(place)

    def _end(self):
        v = self.v
        last = v.step(self.pointer("lines"), self.argument("turns"), SIZE * 8)
        total = self._sum(last)
        self._each(
            lambda at: v.memory.store_one(v.step(self.pointer("total"), at, 8), total, "float64")
        )


@pytest.fixture(scope="module")
def kernel():
    yield StagedKernel(SumsWriter)
    threads.set_thread_count(None)


def run(kernel, span, turns, parallel):
    lines, total = np.zeros((turns + 1, SIZE)), np.zeros(SIZE)
    Prepared(kernel, (1, SIZE, 1, span), parallel, turns).on(lines=lines, total=total).run()
    return lines, total


@pytest.mark.parametrize("turns", [0, 1, 7, 300])
@pytest.mark.parametrize("span", [1, 5, 24])
def test_a_turn_begins_when_the_one_before_is_complete(kernel, span, turns):
    right, _ = run(kernel, SIZE, turns, False)
    line = np.ones(SIZE)
    for found in right[1:]:
        line = (line.sum() + np.arange(SIZE)) / SIZE
        np.testing.assert_allclose(found, line, rtol=1e-12)
    for count in (1, 2, 3, 5) * 4:
        threads.set_thread_count(count)
        lines, total = run(kernel, span, turns, True)
        assert lines.tobytes() == right.tobytes()
        assert (total == total[0]).all()
        np.testing.assert_allclose(total[0], right[-1].sum(), rtol=1e-12)


def test_helpers_that_never_come(kernel, monkeypatch):
    right, _ = run(kernel, SIZE, 50, False)
    monkeypatch.setattr(threads, "invite", lambda call, count: None)
    threads.set_thread_count(4)
    assert run(kernel, 3, 50, True)[0].tobytes() == right.tobytes()


def test_a_helper_that_comes_when_all_is_done(kernel, monkeypatch):
    right, _ = run(kernel, SIZE, 50, False)
    late = []
    monkeypatch.setattr(threads, "invite", lambda call, count: late.append(call))
    threads.set_thread_count(2)
    lines, _ = run(kernel, 3, 50, True)
    lines[:] = 0
    late[0]()
    assert not lines.any()
    assert right.any()
