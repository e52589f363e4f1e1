"""Random programs give the same numbers in all ways of running; planted faults are found."""

import datetime
import os

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
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


def in_each_tensor(change):
    """A fault: ``change`` is applied to each tensor of the results."""

    def wrong(result, args):
        return tree.map_leaves(lambda x: change(x) if isinstance(x, ef.Tensor) else x, result)

    return wrong


def last_element_wrong(tensor):
    if tensor.size > 1 and tensor.dtype.kind == "f":
        return tensor.reshape(-1).at[-1].set(7.0).reshape(tensor.shape)
    return tensor


def axis_reversed(tensor):
    return ef.flip(tensor, axis=0) if tensor.ndim > 1 else tensor


def wrong_by_a_thousandth(tensor):
    return tensor * 1.001 if tensor.dtype.kind == "f" else tensor


BUFFERS = {}


def in_a_shared_buffer(tensor):
    """Results of one shape share memory, which the next call overwrites."""
    value = np.array(tensor)
    buffer = BUFFERS.setdefault((value.shape, value.dtype), np.empty_like(value))
    buffer[...] = value
    return ef.from_dlpack(buffer) if value.dtype.name == "float32" else tensor


def argument_overwritten(result, args):
    """An update in place of memory that the caller owns."""
    for x in args:
        if type(x) is np.ndarray and x.size and x.flags.writeable:
            x.reshape(-1)[:1] = 3
    return result


FAULTS = {
    change.__name__: in_each_tensor(change)
    for change in (last_element_wrong, axis_reversed, wrong_by_a_thousandth, in_a_shared_buffer)
} | {"argument_overwritten": argument_overwritten}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault, monkeypatch):
    assert planted("fast", range(5_000, 5_008), monkeypatch, FAULTS[fault])


def test_a_commit_that_writes_over_values_that_were_read_is_found(monkeypatch):
    monkeypatch.setattr(in_place, "taken", lambda *_: bool)  # bool() is False: none is taken
    monkeypatch.setattr(replay, "owned", lambda variables, values: [True] * len(values))
    assert planted("fast", range(5_012, 5_040), monkeypatch, lambda result, args: result)
