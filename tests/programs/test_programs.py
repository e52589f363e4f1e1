"""Random programs with a user's behaviour are right in all ways; and the tester finds faults."""

import datetime
import os

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.plan import in_place, replay
from tests.campaigns import Campaign, Failure
from tests.programs import ways
from tests.programs.__main__ import PROGRAMS, text
from tests.programs.generate import generate
from tests.programs.running import check

COUNT = 60
SEED = int(os.environ.get("EAGERFLOW_PROGRAMS_SEED", datetime.date.today().toordinal() * 1000))


def failures(count, seed, jobs=1, seconds=1e9):
    campaign = Campaign(PROGRAMS, count, seed, jobs, seconds)
    return campaign.run(), campaign


def test_programs_of_today():
    found, campaign = failures(COUNT, SEED, 2, seconds=25)  # no new batch begins after that
    assert campaign.programs >= 20
    assert not found, f"EAGERFLOW_PROGRAMS_SEED={SEED}: {found}"


@pytest.mark.soak
def test_ten_thousand_programs():
    found, campaign = failures(10_000, SEED, jobs=2)
    assert campaign.programs == 10_000
    assert not found, f"EAGERFLOW_PROGRAMS_SEED={SEED}: {found}"


def test_a_seed_gives_one_program():
    assert text(generate(3)) == text(generate(3))


def planted(way, seeds, monkeypatch, wrong):
    """Whether one of the programs fails whose captured functions give results through ``wrong``."""
    decorators_of = ways.decorators_of

    def changed(name, counts):
        capture, nested = decorators_of(name, counts)
        if name != way:
            return capture, nested
        return (lambda f: Through(capture(f), wrong)), nested

    monkeypatch.setattr(ways, "decorators_of", changed)
    for seed in seeds:
        try:
            check(generate(seed), [way])
        except Failure:
            return True
    return False


class Through:
    """A captured function with a fault planted into what it gives or does."""

    def __init__(self, f, wrong):
        self.f, self.wrong = f, wrong

    def __get__(self, instance, owner=None):
        return Through(self.f.__get__(instance, owner), self.wrong)

    def __call__(self, *args):
        return self.wrong(self.f(*args), args)

    def __deepcopy__(self, memo):
        return self


def off_in_the_last_element(result, args):
    """A kernel that leaves out its last element."""
    if isinstance(result, ef.Tensor) and result.size > 1 and result.dtype.kind == "f":
        return result.reshape(-1).at[-1].set(7.0).reshape(result.shape)
    if isinstance(result, tuple):
        return tuple(off_in_the_last_element(x, args) for x in result)
    if isinstance(result, dict):
        return {k: off_in_the_last_element(v, args) for k, v in result.items()}
    return result


def writes_into_the_argument(result, args):
    """An update in place that ignores who holds the memory."""
    for x in args:
        if type(x) is np.ndarray and x.size and x.flags.writeable:
            x.reshape(-1)[:1] = 3
    return result


def transposes(result, args):
    """The second of two results has its axes changed."""
    if isinstance(result, ef.Tensor) and result.ndim > 1:
        return ef.flip(result, axis=0)
    if isinstance(result, tuple):
        return tuple(transposes(x, args) for x in result)
    if isinstance(result, dict):
        return {k: transposes(v, args) for k, v in result.items()}
    return result


def slightly_off(result, args):
    """A kernel that is wrong by a thousandth."""
    if isinstance(result, ef.Tensor) and result.dtype.kind == "f":
        return result * 1.001
    if isinstance(result, tuple):
        return tuple(slightly_off(x, args) for x in result)
    if isinstance(result, dict):
        return {k: slightly_off(v, args) for k, v in result.items()}
    return result


BUFFERS = {}


def gives_one_buffer(result, args):
    """Results that share the memory of the plan: the next call overwrites them."""
    if isinstance(result, ef.Tensor):
        value = np.array(result)
        buffer = BUFFERS.setdefault((value.shape, value.dtype), np.empty_like(value))
        buffer[...] = value
        return ef.from_dlpack(buffer) if value.dtype.name == "float32" else result
    if isinstance(result, tuple):
        return tuple(gives_one_buffer(x, args) for x in result)
    if isinstance(result, dict):
        return {k: gives_one_buffer(v, args) for k, v in result.items()}
    return result


WRONG = [off_in_the_last_element, writes_into_the_argument, transposes]


@pytest.mark.parametrize("wrong", [*WRONG, slightly_off, gives_one_buffer])
def test_planted_faults_are_found(wrong, monkeypatch):
    assert planted("fast", range(5_000, 5_008), monkeypatch, wrong)


def test_a_commit_that_writes_over_values_that_were_read_is_found(monkeypatch):
    monkeypatch.setattr(in_place, "taken", lambda *_: bool)  # bool() is False: none is taken
    monkeypatch.setattr(replay, "owned", lambda variables, values: [True] * len(values))
    assert planted("fast", range(5_012, 5_040), monkeypatch, lambda result, args: result)
