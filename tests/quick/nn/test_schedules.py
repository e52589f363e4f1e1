"""Schedules: known values, the same in captured functions, warm-up around any of them, errors."""

import math

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import schedules


def polynomial(step, start, steps, end, power, cycle):
    if cycle:
        steps *= max(1, math.ceil(step / steps))
    return (start - end) * (1 - min(step, steps) / steps) ** power + end


def restarts(step, start, first, longer, higher, alpha):
    begin, length, height = 0.0, float(first), 1.0
    while step >= begin + length:
        begin, length, height = begin + length, length * longer, height * higher
    wave = height * (1 + math.cos(math.pi * (step - begin) / length)) / 2
    return start * ((1 - alpha) * wave + alpha)


def cosine(step, start, steps, alpha, target, warmup):
    if target is not None:
        if step < warmup:
            return start + (target - start) * step / warmup
        step, start = step - warmup, target
    wave = (1 + math.cos(math.pi * min(step / steps, 1))) / 2
    return start * ((1 - alpha) * wave + alpha)


ROWS = [
    (schedules.ExponentialDecay(0.5, 7, 0.9), lambda t: 0.5 * 0.9 ** (t / 7)),
    (schedules.ExponentialDecay(0.5, 7, 0.9, True), lambda t: 0.5 * 0.9 ** (t // 7)),
    (schedules.InverseTimeDecay(0.5, 7, 0.9), lambda t: 0.5 / (1 + 0.9 * t / 7)),
    (schedules.InverseTimeDecay(0.5, 7, 0.9, True), lambda t: 0.5 / (1 + 0.9 * (t // 7))),
    (schedules.PolynomialDecay(0.5, 7), lambda t: polynomial(t, 0.5, 7, 1e-4, 1, False)),
    (schedules.PolynomialDecay(0.5, 7, 0.1, 2.0, cycle=True),
     lambda t: polynomial(t, 0.5, 7, 0.1, 2, True)),
    (schedules.CosineDecay(0.5, 7, 0.2), lambda t: cosine(t, 0.5, 7, 0.2, None, 0)),
    (schedules.CosineDecay(0.1, 7, 0.2, warmup_target=0.5, warmup_steps=5),
     lambda t: cosine(t, 0.1, 7, 0.2, 0.5, 5)),
    (schedules.CosineDecayRestarts(0.5, 4, 2.0, 0.8, 0.1),
     lambda t: restarts(t, 0.5, 4, 2, 0.8, 0.1)),
    (schedules.CosineDecayRestarts(0.5, 4, 1.0, 0.8), lambda t: restarts(t, 0.5, 4, 1, 0.8, 0)),
    (schedules.PiecewiseConstantDecay([3, 9], [0.5, 0.2, 0.1]),
     lambda t: [0.5, 0.2, 0.1][int(np.searchsorted([3, 9], t))]),
    (schedules.LinearWarmup(0.5, 4), lambda t: 0.5 * min(t / 4, 1)),
    (schedules.LinearWarmup(schedules.ExponentialDecay(0.5, 7, 0.9), 5, 0.1),
     lambda t: 0.1 + 0.4 * t / 5 if t < 5 else 0.5 * 0.9 ** ((t - 5) / 7)),
]  # fmt: skip
by_row = pytest.mark.parametrize(
    ("schedule", "expected"), ROWS, ids=lambda x: getattr(x, "name", "of")
)


@by_row
def test_values(schedule, expected):
    captured = ef.function(schedule)
    for step in range(40):
        wanted = pytest.approx(expected(step), rel=1e-5, abs=1e-6)
        assert float(schedule(step)) == wanted, step
        assert float(captured(ef.tensor(step))) == wanted, step


@by_row
def test_configurations(schedule, expected):
    config = {"class_name": type(schedule).__name__, "config": schedule.get_config()}
    again = schedules.get(config)
    assert again.get_config() == schedule.get_config()
    assert float(again(6)) == float(schedule(6))


@pytest.mark.parametrize(("call", "words"), [
    (lambda: schedules.PiecewiseConstantDecay([1], [1.0]), "values: 1 values for 1"),
    (lambda: schedules.CosineDecay(0.1, 0), "decay_steps: 0 is not a number of steps"),
    (lambda: schedules.ExponentialDecay(0.1, -1, 0.5), "decay_steps"),
    (lambda: schedules.CosineDecayRestarts(0.1, 0), "first_decay_steps"),
    (lambda: schedules.LinearWarmup(0.1, 0), "warmup_steps"),
    (lambda: schedules.LinearWarmup("slow", 3), "there is no 'slow'"),
    (lambda: schedules.Schedule()(3), "the class does not define __call__"),
])  # fmt: skip
def test_errors(call, words):
    with pytest.raises(ef.errors.ArgumentError, match=words):
        call()
