"""For all tests: the same examples in every run, and no network."""

import _imp
import atexit
import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
import time

import pytest
from hypothesis import HealthCheck, settings

from tests import account, hangs, sampling

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", deadline=None, max_examples=2_000)
SOAK = os.environ.get("EAGERFLOW_SOAK") == "1"
settings.load_profile("soak" if SOAK else "ci")

# Keras, where it is the reference, computes on PyTorch, which compiles nothing.
os.environ.setdefault("KERAS_BACKEND", "torch")

# Kernels compiled here are not the user's: the folder is the run's own, with its workers.
if "EAGERFLOW_CACHE" not in os.environ:
    os.environ["EAGERFLOW_CACHE"] = tempfile.mkdtemp(prefix="eagerflow-tests-")
    atexit.register(shutil.rmtree, os.environ["EAGERFLOW_CACHE"], ignore_errors=True)

# Tests start hundreds of programs: each of them would compile all that it imports once more; and
# each run all tests, which pytest rewrites.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell ignores Ctrl-C in what it starts in the background, and programs that this starts do too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

WATCH = pytest.StashKey[hangs.Watch]()
ACCOUNT = pytest.StashKey[account.Account]()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Without walks of the collector, which find nothing: all that is made here stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out cases of sampled tests that run on other days, and tests that are not listed."""
    for_other_days, unlisted = sampling.left_for_other_days(items), sampling.left_by_list(items)
    if left := {*for_other_days, *unlisted}:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)
        config.stash[ACCOUNT].of_other_days += len(for_other_days)


def pytest_configure(config):
    """Tests that hang end their process: they fail, and others go on."""
    config.stash[WATCH] = hangs.Watch()
    config.stash[ACCOUNT] = account.Account(config)
    config.pluginmanager.register(config.stash[ACCOUNT])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Limit the time of a test, except of those run on demand and after the last one."""
    watch = item.config.stash[WATCH]
    watch.begin(limited=not (SOAK or item.get_closest_marker("soak")))
    try:
        return (yield)
    finally:
        if nextitem is None:
            watch.end()


def pytest_exception_interact(node):
    """A debugger may be at work from here on; pytest has ended the watch already."""
    node.config.stash[WATCH].end()


@pytest.fixture(autouse=True, scope="module")
def the_collector():
    """Keep objects made before a module out of each walk of the collector, which took a second.

    A module that leaves the collector's settings changed would make another one fail.
    """
    gc.collect()
    gc.freeze()
    before = gc.get_threshold(), gc.isenabled()
    yield
    assert (gc.get_threshold(), gc.isenabled()) == before


@pytest.fixture(autouse=True, scope="module")
def the_lock_of_imports():
    """No thread holds it after a module: an exception may keep it, and another test hangs."""
    yield
    end = time.monotonic() + 30
    while _imp.lock_held() and time.monotonic() < end:
        time.sleep(0.001)  # a thread in the background may import
    assert not _imp.lock_held()


@pytest.fixture(autouse=True, scope="module")
def the_programs_of_jax():
    """Release JAX's compiled programs: those of thousands of tests fill a process's memory map."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


LOCAL = ("127.0.0.1", "::1", "localhost", "")


@pytest.fixture(autouse=True, scope="session")
def no_network():
    """Connections to other machines fail; servers under test listen on this one."""

    def guarded(original):
        def connect(self, address):
            if isinstance(address, tuple) and address[0] not in LOCAL:
                raise RuntimeError(f"a test connects to {address[0]!r}; tests use no network")
            return original(self, address)

        return connect

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        yield
