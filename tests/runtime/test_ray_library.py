"""What Ray's processes are told, and which clusters are of this machine alone."""

import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from eagerflow import extras
from eagerflow.cluster.ray_hosts import RayHosts
from eagerflow.errors import SessionError
from eagerflow.runtime import blas, ray_library
from eagerflow.runtime.ray_library import begin_ray, end_ray, told_by_environment
from eagerflow.serving import deployment

needs_ray = pytest.mark.skipif(extras.load_if_there("ray") is None, reason="Ray is not installed")
NEAR = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@pytest.mark.parametrize("near", [True, False])
def test_blas_core_type_is_passed_to_processes(monkeypatch, near):
    if not blas.kernels():
        pytest.skip("NumPy computes products with another library than OpenBLAS")
    monkeypatch.delenv(blas.CORE_TYPE, raising=False)
    assert told_by_environment(near)[blas.CORE_TYPE] == blas.kernels()
    monkeypatch.setenv(blas.CORE_TYPE, "Prescott")
    assert told_by_environment(near)[blas.CORE_TYPE] == "Prescott"


@pytest.fixture
def started(monkeypatch):
    """What Ray is started with: its arguments, and the environment at that moment."""
    ray, found = pytest.importorskip("ray"), []
    constants = extras.load("ray._private.ray_constants", "cluster", "a test")
    monkeypatch.setattr(constants, "ENABLE_RAY_CLUSTER", constants.ENABLE_RAY_CLUSTER)
    monkeypatch.delenv(NEAR, raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def init(address, **options):
        near = not constants.ENABLE_RAY_CLUSTER
        found.append(SimpleNamespace(address=address, near=near, environment=dict(os.environ)))

    monkeypatch.setattr(ray, "init", init)
    return found


STARTS = {
    "a cluster": lambda address: RayHosts(b"", address, 1),
    "a deployment": deployment.connect,
}
ADDRESSES = {"10.7.0.1:6398": False, "127.0.0.1:6398": True, "localhost:6398": True}


@needs_ray
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("is_found", [False, True])
def test_the_address_says_whether_a_cluster_is_of_this_machine(
    monkeypatch, started, start, address, is_found
):
    """Also that of the one that is found here: it may have other machines."""
    if is_found:
        monkeypatch.setenv("RAY_ADDRESS", address)
    start("auto" if is_found else address)
    (one,) = started
    assert (one.address, one.near) == (address, ADDRESSES[address])
    told = told_by_environment(one.near)
    assert {name: one.environment.get(name) for name in told} == told
    assert (NEAR in one.environment) == one.near


@needs_ray
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_local_ray_cluster_is_marked_as_near(monkeypatch, started, start):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    start("10.7.0.1:6398")
    start(None)
    assert [(one.address, one.near) for one in started] == [
        ("10.7.0.1:6398", False),
        ("local", True),
    ]


# Starts that are interrupted ---------------------------------------------------------------------


@pytest.fixture
def interrupts():
    """Lets Ctrl-C come to a call of the main thread while another thread is in a call."""

    def call(wanted, entered, *args):
        def interrupt():
            if entered.wait(10.0):
                time.sleep(0.2)  # Python may miss one that comes just before it waits
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        timer = threading.Thread(target=interrupt)
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                wanted(*args)
        finally:
            timer.join()

    return call


def test_an_interrupted_start_ends_ray_before_it_starts_again(interrupts):
    """A start that is cut short would leave Ray's processes behind."""
    entered, goes_on, said = threading.Event(), threading.Event(), []

    def begin():
        entered.set()
        goes_on.wait(10.0)
        said.append("begun")
        return True

    interrupts(begin_ray, entered, begin, lambda: said.append("ended"))
    assert said == []
    goes_on.set()
    assert begin_ray(lambda: not said.append("begun again"), lambda: None)
    assert said == ["begun", "ended", "begun again"]


def test_one_that_has_joined_nothing_ends_nothing(interrupts):
    entered, goes_on, said = threading.Event(), threading.Event(), []
    interrupts(begin_ray, entered, lambda: entered.set() or not goes_on.wait(10.0), said.append)
    goes_on.set()
    assert begin_ray(lambda: True, lambda: None)
    assert said == []


def test_an_interrupted_import_of_ray_goes_on(interrupts, monkeypatch):
    entered, goes_on, said = threading.Event(), threading.Event(), []

    def load(*names):
        entered.set()
        goes_on.wait(10.0)
        said.append(names)
        return ray_library

    monkeypatch.setattr(extras, "load", load)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    interrupts(ray_library.load_ray, entered, "cluster", "a test")
    goes_on.set()
    assert ray_library.load_ray("cluster", "a test") is ray_library
    assert said == [("ray", "cluster", "a test")] * 2


def test_ray_starts_and_ends_in_one_thread_that_stays():
    """Its processes end with the thread that has started them."""
    found = []
    begin_ray(lambda: not found.append(threading.current_thread()), lambda: None)
    end_ray(lambda: found.append(threading.current_thread()), 10.0)
    assert found[0] is found[1] is not threading.current_thread()
    assert found[0].is_alive()
    assert found[0].daemon


def test_errors_of_a_start_are_raised():
    with pytest.raises(ZeroDivisionError):
        begin_ray(lambda: 1 // 0, lambda: None)


def test_a_ray_that_hangs_is_not_waited_for(monkeypatch):
    goes_on, said = threading.Event(), []
    monkeypatch.setattr(ray_library, "BEGIN_SECONDS", 0.05)
    try:
        with pytest.raises(SessionError, match=r"Ray has not started within 0\.05 s"):
            begin_ray(lambda: goes_on.wait(10.0), lambda: said.append("ended"))
        end_ray(lambda: None, 0.05)
    finally:
        goes_on.set()
    monkeypatch.undo()
    assert begin_ray(lambda: True, lambda: None)
    assert said == ["ended"]


def test_a_child_of_a_fork_has_a_thread_of_its_own():
    thread = ray_library._thread
    assert thread.result(lambda: 1) == 1
    child = os.fork()
    if child == 0:
        os._exit(0 if thread.result(lambda: 2, seconds=10) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
