"""What the machine reaches: more than any product or sum here does, measured once."""

import json
import re
import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.profiling import machine
from eagerflow.runtime import threads
from eagerflow.runtime.cache import ObjectCache
from tests.internals import DamagedCache, forget_measurements


@pytest.fixture
def nothing_known(monkeypatch, tmp_path):
    forget_measurements(monkeypatch, ObjectCache(tmp_path))
    monkeypatch.setattr(machine, "TRIES", 2)
    monkeypatch.setattr(machine, "ROUNDS", 1 << 12)
    monkeypatch.setattr(machine, "MEMORY_BYTES", 3 << 18)


def test_it_is_measured_once_and_remembered(nothing_known, monkeypatch):
    first = machine.measured()
    assert first.gigaflops > 0 and first.gigabytes > 0
    for name in ("measured_peak", "memory_gigabytes"):
        monkeypatch.setattr(machine, name, lambda count: pytest.fail("measured again"))
    assert machine.measured() == first
    forget_measurements(monkeypatch)
    assert machine.measured() == first  # from disk


def test_it_is_measured_anew_when_asked_and_where_it_is_damaged(nothing_known, monkeypatch):
    machine.measured()
    monkeypatch.setattr(machine, "measured_peak", lambda count: 7.0)
    monkeypatch.setattr(machine, "memory_gigabytes", lambda count: 3.0)
    assert machine.measured(again=True) == (7.0, 3.0)
    for content in (b"", b"{", b"[1]", b'["a", 2]', json.dumps([1, 2, 3]).encode()):
        forget_measurements(monkeypatch, DamagedCache(content))
        assert machine.measured() == (7.0, 3.0)


def test_measurements_are_cached_per_thread_count(nothing_known, monkeypatch):
    machine.measured()
    monkeypatch.setattr(machine, "measured_peak", lambda count: float(count))
    monkeypatch.setattr(machine, "memory_gigabytes", lambda count: 1.0)
    monkeypatch.setattr(threads, "thread_count", lambda: 77)
    assert machine.measured().gigaflops == 77


def test_without_machine_code_a_product_says_it(nothing_known, monkeypatch):
    monkeypatch.setattr(machine.machine_code, "available", lambda: False)
    monkeypatch.setattr(machine, "PRODUCT_SIZE", 64)
    assert machine.measured().gigaflops > 0


def test_measured_bytes_match_the_numpy_operation(nothing_known, monkeypatch):
    """Bytes are those of two arrays, as the facts of an addition of an array to itself say."""
    seen = []
    real = np.add
    monkeypatch.setattr(
        machine.np, "add", lambda a, b, out: seen.append(a.nbytes) or real(a, b, out)
    )
    monkeypatch.setattr(machine, "perf_counter", iter(range(1000)).__next__)
    assert machine.memory_gigabytes(1) == pytest.approx(2 * seen[0] / 1e9)


def test_no_share_is_above_the_whole():
    x = ef.ones((64, 256))
    with ef.profile(1e-3, 1e-3) as p:  # far below any machine
        team = [threading.Thread(target=lambda: [ef.tanh(x) for _ in range(50)]) for _ in range(3)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
    text = str(p)
    shares = [float(x) for x in re.findall(r"^ *([\d.]+)%", text, re.MULTILINE)]
    assert 99.5 < sum(shares) < 100.5
    assert max(map(float, re.findall(r"([\d.]+)%", text))) <= 100
    assert "faster rates are those of caches" in text
