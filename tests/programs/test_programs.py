"""Random programs give the same results in all modes, and planted faults are detected."""

import datetime
import os
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.plan import in_place, replay
from tests.campaigns import Campaign, Failure
from tests.programs import modes
from tests.programs.__main__ import PROGRAMS
from tests.programs.checking import check
from tests.programs.generate import generate
from tests.structure.sources import ROOT

SEED = int(os.environ.get("EAGERFLOW_PROGRAMS_SEED", datetime.date.today().toordinal() * 1000))


def test_programs_of_today():
    campaign = Campaign(PROGRAMS, 60, SEED, jobs=2, seconds=25)  # to begin a batch
    assert not campaign.run(), f"EAGERFLOW_PROGRAMS_SEED={SEED}: {campaign.failures}"
    assert campaign.programs >= 20


@pytest.mark.soak
def test_ten_thousand_programs():
    campaign = Campaign(PROGRAMS, 10_000, SEED, jobs=2)
    assert not campaign.run(), f"EAGERFLOW_PROGRAMS_SEED={SEED}: {campaign.failures}"
    assert campaign.programs == 10_000


def test_a_seed_gives_one_program():
    assert generate(3).text() == generate(3).text()


SHARED_MEMORY = """
import os
import numpy as np
from tests.programs import helpers

x = helpers.in_shared_memory(np.zeros(3))
if os.fork() == 0:
    x[1] = 2.0
    os._exit(0)
os.wait()
print(x, flush=True)
os._exit(0)
"""


def test_shared_memory_is_released_without_exit_handlers():
    command = [sys.executable, "-c", SHARED_MEMORY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[0. 2. 0.]\n"
    assert done.stderr == ""


def detects(mode, seeds, monkeypatch, fault):
    """Whether a program fails if ``fault(result, arguments)`` changes results in a mode."""
    decorators_of = modes.decorators_of

    def with_fault(name, counts):
        capture, nested = decorators_of(name, counts)
        return (lambda f: Faulty(capture(f), fault)) if name == mode else capture, nested

    monkeypatch.setattr(modes, "decorators_of", with_fault)
    for seed in seeds:
        try:
            check(generate(seed), [mode])
        except Failure:
            return True
    return False


class Faulty:
    """A captured function with a planted fault."""

    def __init__(self, f, fault):
        self.f, self.fault = f, fault

    def __get__(self, instance, owner=None):
        return Faulty(self.f.__get__(instance, owner), self.fault)

    def __call__(self, *args):
        return self.fault(self.f(*args), args)

    def __deepcopy__(self, memo):
        return self


def in_each_tensor(change):
    """The fault that ``change`` is applied to each tensor of a result."""

    def fault(result, args):
        return tree.map_leaves(lambda x: change(x) if isinstance(x, ef.Tensor) else x, result)

    return fault


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
    """Share memory among results of one shape: the next call overwrites it."""
    value = np.array(tensor)
    buffer = BUFFERS.setdefault((value.shape, value.dtype), np.empty_like(value))
    buffer[...] = value
    return ef.from_dlpack(buffer) if value.dtype.name == "float32" else tensor


def argument_overwritten(result, args):
    """Overwrite memory that the caller owns."""
    for x in args:
        if type(x) is np.ndarray and x.size and x.flags.writeable:
            x.reshape(-1)[:1] = 3
    return result


FAULTS = {
    change.__name__: in_each_tensor(change)
    for change in (last_element_wrong, axis_reversed, wrong_by_a_thousandth, in_a_shared_buffer)
} | {"argument_overwritten": argument_overwritten}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_detected(fault, monkeypatch):
    assert detects("fast", range(5_000, 5_008), monkeypatch, FAULTS[fault])


def test_commits_that_overwrite_values_in_use_are_detected(monkeypatch):
    monkeypatch.setattr(in_place, "taken", lambda *_: bool)  # bool() is False: none is in use
    monkeypatch.setattr(replay, "owned", lambda variables, values: [True] * len(values))
    assert detects("fast", range(5_012, 5_040), monkeypatch, lambda result, args: result)
