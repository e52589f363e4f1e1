"""Bugs that guard pages have to find, and small programs that must run; see test_guard_pages.py.

Run on its own, each bug in a child process, so that one process has room for all of them.
"""

import ctypes
import faulthandler
import functools
import os
import signal

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.plan import segments
from eagerflow.runtime import machine_code, threads

# ``copy(from, to, begin, end)`` moves the float32 elements of a range.
COPY = """
define void @copy(ptr %from, ptr %to, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %source = getelementptr float, ptr %from, i64 %i
  %target = getelementptr float, ptr %to, i64 %i
  %x = load float, ptr %source, align 4
  store float %x, ptr %target, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
SIZES = (1, 5, 16, 1000, 5000, 1_000_003)


@pytest.fixture(scope="module")
def copy():
    library = machine_code.link(machine_code.compile_object(COPY), "copy")
    word = ctypes.c_int64
    function = library.function("copy", ctypes.c_void_p, ctypes.c_void_p, word, word)

    def copy(source, target, begin, end):
        function(source.ctypes.data, target.ctypes.data, begin, end)

    copy.held = library
    return copy


def ending(bug):
    """The signal that ends a child process that has this bug; 0 where nothing does."""
    child = os.fork()
    if not child:
        faulthandler.disable()  # it writes pages
        bug()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def arrays(size):
    """An array to read from, and one to write to that has room for more on either side."""
    return np.ones(size, "f4"), np.zeros(size + 2, "f4")[1:-1]


@pytest.mark.parametrize("size", SIZES)
def test_a_right_kernel_runs(copy, size):
    source, target = arrays(size)
    copy(source, target, 0, size)
    assert target.sum() == size
    exact = np.empty(size, "f4")
    copy(source, exact, 0, size)
    assert exact.sum() == size


@pytest.mark.parametrize("size", SIZES)
def test_one_element_beyond_is_read(copy, request, size):
    source, target = arrays(size)
    found = ending(lambda: copy(source, target, 0, size + 1))
    # Before a guard an array ends within a page, unless it fills the page.
    assert found == (signal.SIGSEGV if request.config.option.guard == "behind" else 0)


@pytest.mark.parametrize("size", SIZES)
def test_one_element_before_is_read(copy, request, size):
    source, target = arrays(size)
    found = ending(lambda: copy(source, target, -1, size))
    assert found == (signal.SIGSEGV if request.config.option.guard == "before" else 0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("begin, end", [(-1, 0), (0, 1)])
def test_one_element_beside_is_written(copy, request, size, begin, end):
    """At once where the guard is, and on the other side when the array is freed."""
    source = np.ones(size + 2, "f4")[1:-1]

    def bug():
        target = np.empty(size, "f4")
        copy(source, target, begin, size + end)
        del target

    at_guard = (begin == -1) == (request.config.option.guard == "before")
    assert ending(bug) == (signal.SIGSEGV if at_guard else signal.SIGABRT)


@pytest.mark.parametrize("size", SIZES)
def test_freed_memory_is_used(copy, size):
    def address_of_freed():
        return np.ones(size, "f4").ctypes.data

    def read():
        ctypes.c_float.from_address(address_of_freed()).value  # noqa: B018

    def write():
        ctypes.c_float.from_address(address_of_freed()).value = 1.0

    assert ending(read) == ending(write) == signal.SIGSEGV


def test_memory_of_the_pool_has_pages_too(copy):
    """A tensor of ten megabytes, of which the pool would round the size up."""
    tensor = ef.ones(2_500_001)
    address = (tensor + 1).numpy().ctypes.data

    def read():
        ctypes.c_float.from_address(address).value  # noqa: B018

    assert ending(read) == signal.SIGSEGV


def test_memory_limits_leave_the_pages():
    """Values that are made under a limit, held over its end and freed."""
    held = [ef.ones(2) + 1]
    ef.set_memory_limit("cpu", 1 << 30)
    held.append(ef.ones(2) + 1)
    ef.set_memory_limit("cpu", None)
    address = held[1].numpy().ctypes.data

    def read():
        ctypes.c_float.from_address(address - 4).value  # noqa: B018
        ctypes.c_float.from_address(address + 8).value  # noqa: B018

    assert ending(read) == signal.SIGSEGV
    held.clear()


def contents(request):
    """A check that memory has the requested contents, as float32."""
    if request.config.option.contents == "nan":
        return lambda x: np.isnan(x).all()
    return lambda x: ((x > 0) & (x < np.finfo("f4").tiny)).all()


def test_new_memory_and_scratch_hold_the_requested_contents(request):
    told = contents(request)
    for make in (np.empty, functools.partial(threads.scratch, "planted")):
        for _ in range(2):
            made = make((1001,), "f4")
            assert told(made)
            made[...] = 1.0
            del made  # scratch memory is free again, and new all the same
    assert (np.zeros(1001, "f4") == 0).all()


def test_memory_of_segments_holds_it_before_each_run(request, monkeypatch):
    told, seen, original = contents(request), [], segments.NativePart.run
    layouts = []

    def look(part, rows):
        (layout,) = [own for own in layouts if part in own.parts]
        seen.extend([bool(told(m[: m.size // 4 * 4].view("f4"))) for m in layout.scratch_memory])
        return original(part, rows)

    def note(layout, rows):
        layouts.append(layout)
        return run(layout, rows)

    run = segments.Layout.run
    # Inside of the wrapper that fills the memory first.
    monkeypatch.setattr(segments.NativePart, "run", look)
    monkeypatch.setattr(segments.Layout, "run", note)
    x, w = ef.ones((64, 64)), ef.ones((64, 64))
    step = ef.function(lambda x, w: ef.softmax(ef.tanh(x @ w) @ w, axis=1).sum(axis=0))
    for _ in range(3):
        np.testing.assert_allclose(step(x, w), np.ones(64), rtol=1e-5)
        layouts.clear()
    print(len(seen))
    assert seen and all(seen)


def test_this_one_ends_the_process(copy, request):
    """End the process; the run continues after it and reports its name."""
    if request.config.option.guard == "behind":
        copy(*arrays(5), 0, 6)


def test_the_run_goes_on():
    assert ef.ones(3).sum() == 3
