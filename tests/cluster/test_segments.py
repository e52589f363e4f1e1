"""Memory that two processes share: what is free, what stays, what a peer may say."""

import gc
import os

import numpy as np
import pytest

from eagerflow.cluster import segments

if not segments.are_there():
    pytest.skip("the system has no files without names", allow_module_level=True)

X = np.arange(50_000, dtype="float32")


def passed(outgoing, incoming, array):
    """An array on the other side, and the number of its segment."""
    number, size, file = outgoing.put(array)
    if file >= 0:
        incoming.add(number, size, os.dup(file))
        os.close(file)
    return incoming.array(number, array.shape, array.dtype), number


def test_a_segment_is_free_when_the_last_array_of_it_has_gone():
    outgoing, incoming = segments.Outgoing(), segments.Incoming()
    found, first = passed(outgoing, incoming, X)
    assert np.array_equal(found, X)
    assert type(found) is np.ndarray
    view = found.reshape(2, -1)[1][::2]
    del found
    other, second = passed(outgoing, incoming, X + 1)
    assert second != first, "somebody still looks at the first one"
    assert np.array_equal(view, X[25_000::2])
    del view, other
    gc.collect()
    again, third = passed(outgoing, incoming, X * 2)
    assert third in (first, second)
    assert np.array_equal(again, X * 2)


def test_what_is_kept_is_copied_out():
    outgoing, incoming = segments.Outgoing(), segments.Incoming()
    found, first = passed(outgoing, incoming, X)
    kept = segments.settled(found[10:20])
    assert segments.settled(X) is X
    del found
    _, second = passed(outgoing, incoming, X * 0)
    assert second == first
    assert np.array_equal(kept, X[10:20])


def test_small_arrays_take_no_large_segments_and_surplus_is_given_up(monkeypatch):
    outgoing, incoming = segments.Outgoing(), segments.Incoming()
    large, first = passed(outgoing, incoming, np.zeros(1 << 20, np.uint8))
    del large
    small, second = passed(outgoing, incoming, np.zeros(1 << 15, np.uint8))
    assert second != first
    del small
    assert outgoing.surplus() == []
    monkeypatch.setattr(segments, "MAX_FREE_BYTES", 1 << 17)
    dropped = outgoing.surplus()
    assert dropped == [first]
    incoming.drop(dropped)
    with pytest.raises(KeyError):
        incoming.array(first, (4,), np.dtype("uint8"))


def test_a_file_that_is_shorter_than_its_sender_says_is_refused():
    incoming = segments.Incoming()
    file = os.memfd_create("short")
    os.ftruncate(file, 100)
    with pytest.raises(EOFError, match="more of its memory than there is"):
        incoming.add(1, 1 << 20, file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_an_array_larger_than_its_segment_is_refused():
    outgoing, incoming = segments.Outgoing(), segments.Incoming()
    _, number = passed(outgoing, incoming, X)
    with pytest.raises(ValueError, match="buffer"):
        incoming.array(number, (1 << 24,), np.dtype("float32"))
