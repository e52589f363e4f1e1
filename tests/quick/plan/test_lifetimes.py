"""The memory of plans: buffers taken at the same time never overlap, and little is lost."""

from hypothesis import given
from hypothesis import strategies as st

from eagerflow.plan.lifetimes import ALIGNMENT_BYTES, Pool

MEGABYTE = 1 << 20


def rounded(size):
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def check_apart(taken, size):
    """Ranges of memory do not overlap, and lie in the block."""
    end = 0
    for start, length in sorted(taken):
        assert start % ALIGNMENT_BYTES == 0
        assert start >= end
        end = start + length
    assert end <= size


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 1000)), max_size=60))
def test_buffers_that_are_taken_lie_apart(steps):
    pool, held, most = Pool(), [], 0
    for is_taken, number in steps:
        if is_taken or not held:
            held.append((pool.take(number), number))
        else:
            pool.give(held.pop(number % len(held))[0])
        check_apart([(b.start, size) for b, size in held], pool.size)
        assert len({id(b) for b, _ in held}) == len(held)
        most = max(most, sum(rounded(size) for _, size in held))
    assert pool.size >= most
    for buffer, _ in held:
        pool.give(buffer)
    if pool.size:
        whole = pool.size
        assert pool.take(whole).start == 0  # all that is free is one part again
        assert pool.size == whole


def test_small_buffers_become_a_large_one():
    pool = Pool()
    small = [pool.take(MEGABYTE) for _ in range(4)]
    for i in (2, 0, 3, 1):
        pool.give(small[i])
    assert pool.take(4 * MEGABYTE).start == 0
    assert pool.size == 4 * MEGABYTE


def test_the_smallest_part_that_fits_is_taken():
    pool = Pool()
    large, _, small, _ = (pool.take(n * MEGABYTE) for n in (4, 1, 2, 1))
    pool.give(large)
    pool.give(small)
    assert pool.take(2 * MEGABYTE) is small
    assert pool.take(3 * MEGABYTE) is large
    assert pool.size == 8 * MEGABYTE


def test_the_last_part_grows():
    pool = Pool()
    pool.take(MEGABYTE)
    pool.give(pool.take(MEGABYTE))
    assert pool.take(3 * MEGABYTE).start == MEGABYTE
    assert pool.size == 4 * MEGABYTE
