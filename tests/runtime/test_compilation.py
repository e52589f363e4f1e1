"""Machine code in the making: by any thread, once, and whole after errors, interrupts and forks."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest

from eagerflow.codegen.llvm import launch
from eagerflow.runtime import machine_code, threads
from eagerflow.runtime.compilation import Compilation
from tests.internals import pending_compilations
from tests.interrupts import at_every_bytecode

SECONDS = 20.0  # after which something hangs


@pytest.fixture(autouse=True)
def two_threads():
    threads.set_thread_count(2)
    yield
    pending_compilations().clear()
    threads.set_thread_count(None)


@pytest.fixture
def busy_pool():
    """The pool's thread has something else to do."""
    done, begun = threading.Event(), threading.Event()

    def wait():
        begun.set()
        done.wait(SECONDS)

    threads.invite(wait, 1)
    assert begun.wait(SECONDS)
    yield done
    done.set()


def test_a_thread_of_the_pool_begins():
    made = threading.Event()
    names = []

    def make():
        names.append(threading.current_thread().name)
        made.set()
        return b"code"

    one = Compilation(make)
    assert made.wait(SECONDS)
    assert one.content() == b"code"
    assert names == ["eagerflow-0"]


def test_pending_compilation_runs_in_the_requesting_thread(busy_pool):
    made = []
    several = [Compilation(lambda i=i: made.append(i) or bytes([i])) for i in range(3)]
    assert several[1].content() == b"\x01"
    assert made == [1]
    assert several[0].content() == b"\x00"
    busy_pool.set()
    assert several[2].content() == b"\x02"
    assert sorted(made) == [0, 1, 2]
    assert not pending_compilations()


def test_waiting_thread_compiles_other_pending_code():
    """The one that the pool's thread is at ends only when the next one has been made."""
    begun, other_made = threading.Event(), threading.Event()

    def first():
        begun.set()
        assert other_made.wait(SECONDS)
        return b"first"

    one = Compilation(first)
    assert begun.wait(SECONDS)
    other = Compilation(lambda: other_made.set() or b"other")
    assert one.content() == b"first"
    assert other.content() == b"other"


def test_compilation_error_is_raised_to_the_requester():
    tried = threading.Semaphore(0)

    def fail():
        tried.release()
        raise MemoryError("no memory for code")

    one = Compilation(fail)
    assert tried.acquire(timeout=SECONDS)  # by the pool's thread
    for _ in range(2):
        with pytest.raises(MemoryError, match="no memory for code"):
            one.content()
    made = threading.Event()
    after = Compilation(lambda: made.set() or b"next")
    assert made.wait(SECONDS)  # whose thread goes on
    assert after.content() == b"next"


def test_single_thread_compiles_in_the_requesting_thread():
    threads.set_thread_count(1)
    made = []
    one = Compilation(lambda: made.append(threading.get_ident()) or b"code")
    assert not pending_compilations()
    assert one.content() == b"code"
    assert made == [threading.get_ident()]


def test_an_exception_at_any_bytecode_leaves_it_to_be_made():
    kept = []

    def start():
        kept[:] = [Compilation(partial(bytes, 8)), Compilation(partial(bytes, 4))]
        return [one.content() for one in kept]

    def check():
        assert [one.content() for one in kept] in ([], [bytes(8)], [bytes(8), bytes(4)])
        assert start() == [bytes(8), bytes(4)]

    assert at_every_bytecode(start, check) > 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_child_compiles_unfinished_code():
    begun, may_end = threading.Event(), threading.Event()
    home = os.getpid()

    def make():
        if os.getpid() == home:
            begun.set()
            may_end.wait(SECONDS)
        return b"code"

    one = Compilation(make)
    assert begun.wait(SECONDS)
    child = os.fork()
    if not child:
        os._exit(one.content() != b"code")
    may_end.set()
    assert os.waitpid(child, 0)[1] == 0
    assert one.content() == b"code"


# LLVM --------------------------------------------------------------------------------------------

compiler = pytest.mark.skipif(not machine_code.available(), reason="there is no compiler")


def text(number):
    """A module that takes LLVM some milliseconds."""
    lines = ["define double @f(double %x0) {"]
    for i in range(300):
        given = f"double %x{i}, double {number}.0, double %x0"
        lines.append(f"  %x{i + 1} = call double @llvm.fma.f64({given})")
    lines += ["  ret double %x300", "}", "declare double @llvm.fma.f64(double, double, double)"]
    return "\n".join(lines)


@compiler
def test_code_that_is_made_at_once_is_that_made_alone():
    texts = [text(i) for i in range(12)]
    alone = [machine_code.compile_object(x) for x in texts]
    assert len(set(alone)) == len(texts)
    found = [None] * len(texts)

    def make(own):
        for i in own:
            found[i] = machine_code.compile_object(texts[i])

    users = [threading.Thread(target=make, args=(range(i, len(texts), 4),)) for i in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert found == alone


@compiler
def test_code_is_made_without_the_lock_of_the_bindings(monkeypatch):
    """While one thread makes code, another one comes in: else neither would end."""
    emit, together = machine_code.emitter(), threading.Barrier(2)
    if emit is None:
        pytest.skip("llvmlite hides the function")

    local = machine_code._local
    own = local.place

    def meet(*given):
        together.wait(SECONDS)
        return emit(*given)

    def compile_elsewhere():
        local.place = (own + 1) % machine_code.MAX_PLACES
        machine_code.compile_object(text(1))

    monkeypatch.setattr(machine_code, "emitter", lambda: meet)
    user = threading.Thread(target=compile_elsewhere)
    user.start()
    machine_code.compile_object(text(2))
    user.join()
    assert not together.broken


@compiler
def test_compilation_without_the_emitter_gives_the_same_code(monkeypatch):
    wanted = machine_code.compile_object(text(3))
    monkeypatch.setattr(machine_code, "emitter", lambda: None)
    assert machine_code.compile_object(text(3)) == wanted


@compiler
def test_code_that_is_none_is_refused():
    with pytest.raises(RuntimeError, match="expected"):
        machine_code.compile_object("define void @f() { no }")


@compiler
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_waits_for_code_that_is_made():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            machine_code.compile_object(text(1))

    user = threading.Thread(target=work)
    user.start()
    try:
        for _ in range(20):
            child = os.fork()
            if not child:
                signal.alarm(int(SECONDS))  # a place that another thread left behind
                os._exit(not machine_code.compile_object(text(2)))
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        user.join()


ENDS = """
import atexit, sys, threading, time
inside, begun = [], threading.Event()
atexit.register(lambda: print("inside:", len(inside)))  # when all others have run
from eagerflow.codegen.llvm import launch
from eagerflow.runtime import compilation, machine_code, threads
from tests.runtime.test_compilation import text
threads.set_thread_count(2)
machine_code.compile_object(text(0))
emit = machine_code.emitter()

def slow(*given):
    inside.append(1)
    begun.set()
    time.sleep(0.2)
    found = emit(*given)
    inside.pop()
    return found

machine_code.emitter = lambda: slow
compilation.Compilation(lambda: machine_code.compile_object(text(1)))
begun.wait(20)
"""


@compiler
def test_a_process_ends_when_none_makes_code():
    ran = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"inside: 0\n", b"")


def test_threads_that_link_code_at_once_have_the_same_functions():
    """Jobs keep the addresses of functions, so none may be freed."""
    target = machine_code.host()
    head = f'target triple = "{target.triple}"\n'
    text = head + "define void @run(ptr %a, ptr %b, ptr %c) { ret void }"
    code = machine_code.compile_object(text, target)
    together = threading.Barrier(2)

    def content():
        together.wait(SECONDS)
        return code

    linked, found = launch.Linked(content, ["run"]), []
    several = [threading.Thread(target=lambda: found.append(linked.run)) for _ in range(2)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join(SECONDS)
    assert found == [linked.run] * 2 and found[0] is found[1]
    found[0](None, None, None)
