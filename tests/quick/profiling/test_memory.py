"""Memory over time: allocations with their lines, and when they are freed."""

import gc
import os
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.profiling.memory import MIN_WATCHED_BYTES
from tests.internals import watched_arrays

SIZE = 256 * 256 * 4
X = ef.ones((256, 256))


def here():
    return f"{os.path.basename(__file__)}:{sys._getframe(1).f_lineno}"


def test_bytes_begin_with_a_result_and_end_with_its_last_view():
    with ef.profile() as p:
        y = ef.exp(X)
        view = y[:1]
        z = ef.sin(y)
        del y  # the view holds all of it
        z = ef.cos(z)
        del view
        gc.collect()
    totals = [total / SIZE for total in p.memory.totals]
    assert totals == [1, 2, 3, 2, 1]
    assert p.memory.peak == 3 * SIZE
    assert p.memory.times == sorted(p.memory.times)
    del z


def test_lines_report_memory_at_the_peak_and_at_the_end():
    with ef.profile() as p:
        kept, first = ef.exp(X), here()
        gone, second = ef.sin(ef.tanh(X)), here()
        del gone
        gc.collect()
    held = {(x.place, x.name): (x.bytes, x.left) for x in p.memory.lines()}
    assert held[first, "exp"] == (SIZE, SIZE)
    assert held[second, "tanh"] == (SIZE, 0)
    assert held[second, "sin"] == (SIZE, 0)
    assert "memory: 768.0 KiB at most" in str(p)
    assert f"by exp {first}" in str(p)
    del kept


def test_memory_allocated_before_or_freed_later_is_ignored():
    with ef.profile():
        before = ef.exp(X)
        with ef.profile() as p:
            del before
            after = ef.sin(X)
            gc.collect()
        total = p.memory.totals[-1]
        del after
    assert p.memory.totals == [SIZE] == [total]
    assert not watched_arrays()


def test_small_arrays_and_views_are_left_out():
    few = MIN_WATCHED_BYTES // 4 - 1
    with ef.profile() as p:
        y = ef.exp(X[0, :1] * ef.ones((few,)))
        view = X.reshape((-1,)).reshape((256, 256)).T
    assert p.memory.totals == [] and p.memory.peak == 0 and p.memory.lines() == []
    assert "at most" not in str(p)
    del y, view


def test_results_and_buffers_of_captured_functions_are_held():
    f = ef.function(lambda x: ef.tanh(x @ x) @ x)
    f(X)
    with ef.profile() as p:
        y, line = f(X), here()
    held = {x.name: x.bytes for x in p.memory.lines()}
    assert held["call of lambda"] == SIZE
    assert held["buffers of lambda"] >= SIZE
    assert {x.place for x in p.memory.lines()} == {line}
    del y


@pytest.mark.parametrize("several", [False, True])
def test_each_of_several_results_counts(several):
    with ef.profile() as p:
        y = ef.split(ef.exp(X), 2) if not several else ef.linalg.svd(X)
    totals = p.memory.totals
    sizes = sorted(b - a for a, b in zip([0, *totals], totals, strict=False) if b > a)
    assert sizes == ([SIZE] if not several else [SIZE, SIZE])
    del y


def test_arrays_of_others_are_no_results():
    array = np.ones((300, 300), "float32")
    with ef.profile() as p:
        y = ef.asarray(array)
    assert p.memory.totals == []
    del y
