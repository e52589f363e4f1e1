"""Memory that processes share: free blocks, loans, damaged headers, dead processes."""

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from eagerflow.runtime import shared_memory
from eagerflow.runtime.shared_memory import Incoming, Outgoing, Place, empty, is_here, settled

if not shared_memory.are_there():
    pytest.skip("the system has no files without names", allow_module_level=True)

X = np.arange(50_000, dtype="float32")
F4 = np.dtype("float32")


@pytest.fixture(autouse=True)
def own(monkeypatch):
    """Each test has a memory of its own."""
    found = shared_memory.SharedMemory()
    monkeypatch.setattr(shared_memory, "_own", found)
    yield found
    os.close(found.file)


class Ends:
    """Both ends of a connection, in one process."""

    def __init__(self, process=None):
        self.outgoing, self.incoming = Outgoing(process or os.getpid()), Incoming()

    def passed(self, array):
        """An array as the other end has it, and its place."""
        place = self.outgoing.put(array)
        new = self.outgoing.file()
        if new is not None:
            self.incoming.map(os.dup(new[0]), new[1])
        return self.incoming.array(place, array.shape, array.dtype), place


def test_arrays_in_shared_memory_are_not_copied():
    made = empty(X.shape, F4)
    made[...] = X
    found, place = Ends().passed(made)
    assert found.tobytes() == X.tobytes()
    made[7] = -1.0
    assert found[7] == -1.0
    assert not found.flags.writeable
    assert is_here(made)
    assert is_here(made[10:20])
    assert not is_here(X)
    assert not is_here(found), "it is another's"
    other, second = Ends().passed(made.reshape(2, -1))
    assert second.begin == place.begin
    assert second.loan != place.loan
    assert other[0, 7] == -1.0


def test_views_that_are_not_whole_are_copied():
    made = empty((300, 300), F4)
    made[...] = np.arange(90_000).reshape(300, 300)
    for view in (made.T, made[1:], made[:, ::2]):
        found, _ = Ends().passed(view)
        assert found.tobytes() == view.tobytes()
        made[...] = made + 0.0
        before = found.copy()
        made += 1.0
        assert (found == before).all()


def test_memory_is_free_when_the_last_array_of_it_has_gone():
    ends = Ends()
    found, first = ends.passed(X)
    assert np.array_equal(found, X)
    assert type(found) is np.ndarray
    view = found.reshape(2, -1)[1][::2]
    del found
    other, second = ends.passed(X + 1)
    assert second.begin != first.begin, "the first one is still in use"
    assert np.array_equal(view, X[25_000::2])
    del view, other
    gc.collect()
    again, third = ends.passed(X * 2)
    assert third.begin in (first.begin, second.begin)
    assert np.array_equal(again, X * 2)


def test_an_array_that_its_owner_or_one_of_two_readers_has_stays():
    one, two = Ends(), Ends()
    made = empty(X.shape, F4)
    made[...] = X
    (a, place), (b, _), (c, _) = one.passed(made), two.passed(made), one.passed(made)
    del made
    assert two.passed(X * 2)[1].begin != place.begin
    del a, b
    assert one.passed(X * 3)[1].begin != place.begin
    assert np.array_equal(c, X)
    del c
    assert place.begin in {one.passed(X * 3)[1].begin for _ in range(4)}


def test_kept_arrays_are_copied_out_of_shared_memory():
    ends = Ends()
    found, first = ends.passed(X)
    kept = settled(found[10:20])
    assert settled(X) is X
    del found
    _, second = ends.passed(X * 0)
    assert second.begin == first.begin
    assert np.array_equal(kept, X[10:20])


def test_surplus_goes_back_to_the_system(own, monkeypatch):
    """And its place is used again."""
    monkeypatch.setattr(shared_memory, "MAX_FREE_BYTES", 1 << 20)
    blocks = lambda: os.fstat(own.file).st_blocks * 512
    for round_ in range(3):
        some = [empty((1 << 22,), np.dtype("uint8")) for _ in range(4)]
        for x in some:
            x[:] = round_ + 1
        assert blocks() >= 16 << 20
        del some, x
        assert is_here(empty((1 << (16 + round_),), np.dtype("uint8")))
        assert blocks() < 2 << 20
    assert own._end < 18 << 20


def test_no_more_than_a_head_has_room_for():
    ends = Ends()
    made = empty(X.shape, F4)
    lent = [ends.passed(made) for _ in range(shared_memory.HEAD_BYTES + 5)]
    places = {place for _, place in lent}
    assert len(places) == len(lent)
    assert len({place.begin for place in places}) == 1 + 6, "each of the last ones is copied"


def test_threads_take_different_memory():
    def work(i):
        x = empty((20_000,), F4)
        x[:] = i
        found, _ = Ends().passed(x)
        time.sleep(0.001)
        return (found == i).all() and (x == i).all()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(400)))


@pytest.mark.parametrize(
    "place", [Place(-1, 4096), Place(5000, 4096), Place(0, 1 << 60), Place(0, -5), Place(0, 0)]
)
def test_places_that_are_none_are_refused(place):
    ends = Ends()
    ends.passed(X)
    with pytest.raises(EOFError, match="does not have"):
        ends.incoming.array(place, (4,), F4)


def test_an_array_beyond_the_end_is_refused():
    ends = Ends()
    _, place = ends.passed(X)
    with pytest.raises(ValueError, match="uffer"):
        ends.incoming.array(place, (1 << 45,), F4)


def test_an_array_before_the_file_is_refused():
    with pytest.raises(EOFError, match="without memory"):
        Incoming().array(Place(0, 4096), (4,), F4)


def test_a_file_that_is_shorter_than_its_sender_says_is_refused():
    file = os.memfd_create("short")
    os.ftruncate(file, 100)
    with pytest.raises(EOFError, match="more memory than there is"):
        Incoming().map(file, 1 << 20)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_without_room_other_memory_is_taken(own, monkeypatch):
    def refused(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as inner:
        inner.setattr(os, "posix_fallocate", refused)
        assert not is_here(empty(X.shape, F4))
        with pytest.raises(OSError, match="No space"):
            Outgoing(os.getpid()).put(X)
    monkeypatch.setattr(own, "size", 1 << 16)
    assert not is_here(empty((1 << 20,), F4))


def test_a_child_has_memory_of_its_own(own):
    made = empty(X.shape, F4)
    found, place = Ends().passed(made)
    child = os.fork()
    if child == 0:
        ok = not is_here(made)
        del made, found  # which are still the parent's
        gc.collect()
        other = empty(X.shape, F4)
        other[:] = 5.0
        os._exit(0 if ok and is_here(other) else 1)
    assert os.waitpid(child, 0)[1] == 0
    made[:] = X
    assert own.memory[place.loan] == 1
    assert empty(X.shape, F4).__array_interface__["data"] != made.__array_interface__["data"]
    assert found.tobytes() == X.tobytes()


READER = """
import os, socket, sys
import numpy as np
from eagerflow.runtime.shared_memory import Incoming, Place
connection = socket.socket(fileno=int(sys.argv[1]))
_, files, _, _ = socket.recv_fds(connection, 1, 1)
incoming = Incoming()
incoming.map(files[0], int(sys.argv[2]))
place = Place(*map(int, sys.argv[3:5]))
found = incoming.array(place, (50_000,), np.dtype("float32"))
connection.send(b"y" if found[100] == 100.0 else b"n")
connection.recv(1)
del found
connection.send(b"d")
connection.recv(1)
"""


@pytest.mark.parametrize("kill", [False, True])
def test_another_process_reads_and_gives_back_or_dies(own, kill):
    ours, theirs = socket.socketpair()
    outgoing = Outgoing(0)
    place = outgoing.put(X)
    file, size = outgoing.file()
    words = [str(theirs.fileno()), str(size), *map(str, place)]
    process = subprocess.Popen([sys.executable, "-c", READER, *words], pass_fds=[theirs.fileno()])
    try:
        outgoing._process = process.pid
        socket.send_fds(ours, [b"f"], [file])
        assert ours.recv(1) == b"y"
        if kill:
            outgoing.close()
            own.end_orphans()
            assert own.memory[place.loan] == 1, "it cannot be reached, and may read on"
            process.send_signal(signal.SIGKILL)
            while not shared_memory.is_dead(process.pid):
                time.sleep(0.01)
            own.end_orphans()
        else:
            ours.send(b"g")
            assert ours.recv(1) == b"d"
        assert own.memory[place.loan] == 0
    finally:
        process.kill()
        process.wait()
        ours.close()
        theirs.close()


def test_reused_loan_survives_its_first_receiver(own):
    dead = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    one, two = Outgoing(dead.pid), Outgoing(os.getpid())
    made = empty(X.shape, F4)
    place = one.put(made)
    one.close()  # while the process still reads
    own.memory[place.loan] = 0  # it gives it back
    assert two.put(made) == place
    dead.kill()
    dead.wait()
    own.end_orphans()
    assert own.memory[place.loan] == 1


def test_loans_of_a_dead_receiver_are_released(own):
    """As where the message that was to bring both could not be sent."""
    dead = subprocess.Popen([sys.executable, "-c", "0"])
    dead.wait()
    outgoing = Outgoing(dead.pid)
    place = outgoing.put(X)
    outgoing.close()
    assert own.memory[place.loan] == 0
