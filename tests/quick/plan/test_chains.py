"""Chains: steps of a segment that go through their rows together."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.plan import chains, segments

pytestmark = pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")

WIDTH = 24


@pytest.fixture(autouse=True, scope="module")
def of_any_size():
    """Chains of arrays that are small enough for tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "MIN_PASSED_BYTES", 0)
        yield


def chains_of(monkeypatch):
    """The numbers of steps of all chains that are made from now on."""
    found = []
    make = segments.chain_job

    def noted(members, own, threads):
        found.append(len(members))
        made = make(members, own, threads)
        assert made.scratch == max(job.scratch for job in own)  # they share each thread's memory
        return made

    monkeypatch.setattr(segments, "chain_job", noted)
    return found


def alone(f, *args):
    """What a captured function gives whose steps are done one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "MIN_PASSED_BYTES", float("inf"))
        return ef.function(f)(*args)


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def weights(number):
    return drawn(number, WIDTH, WIDTH) / 5


def perceptron(x):
    for i in range(3):
        h = ef.gelu(ef.layer_norm(x) @ weights(i) + weights(i)[0])
        x = x + h @ weights(i + 3)
    return x


@pytest.mark.parametrize("rows", [257, 300, 1024, 1500])
def test_chains_match_single_steps(monkeypatch, rows):
    found = chains_of(monkeypatch)
    x = ef.tensor(drawn(0, rows, WIDTH))
    captured = ef.function(perceptron)
    one = captured(x)
    assert found and max(found) >= 3
    assert one.numpy().tobytes() == alone(perceptron, x).numpy().tobytes()
    np.testing.assert_allclose(one.numpy(), perceptron(x).numpy(), rtol=1e-4, atol=1e-4)
    for _ in range(3):
        assert captured(x).numpy().tobytes() == one.numpy().tobytes()


def test_training_steps(monkeypatch):
    """With sums over all rows beside them, and products that need all rows."""
    found = chains_of(monkeypatch)
    w = [ef.tensor(weights(i)) for i in range(3)]
    b = [ef.tensor(drawn(9 + i, WIDTH)) for i in range(3)]

    def gradients(x, *parameters):
        with ef.GradientTape() as tape:
            for p in parameters:
                tape.watch(p)
            h = x
            for matrix, row in zip(parameters[:3], parameters[3:], strict=True):
                h = h + ef.tanh(ef.layer_norm(h) @ matrix + row)
            loss = ef.mean(h**2)
        return loss, *tape.gradient(loss, list(parameters))

    x = ef.tensor(drawn(1, 640, WIDTH))
    one = ef.function(gradients)(x, *w, *b)
    assert found
    for a, c, e in zip(one, alone(gradients, x, *w, *b), gradients(x, *w, *b), strict=True):
        assert a.numpy().tobytes() == c.numpy().tobytes()
        np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=2e-4, atol=2e-4)


def product(x, other, number):
    return x @ weights(number)


def turned_product(x, other, number):
    return (x @ weights(number).T) * 0.5


def of_both(x, other, number):
    return ef.tanh(x + other)


def of_rows(x, other, number):
    return ef.layer_norm(x) + other * 0.25


def of_columns(x, other, number):
    return x - ef.mean(other, 0) * 0.5


def slices(x, other, number):
    left, right = ef.split(x, 2, axis=-1)
    return ef.concat([ef.sin(right), left], axis=-1)


def with_all_rows(x, other, number):
    return x @ ef.tanh(x.T @ other / 50)


def other_rows(x, other, number):
    return ef.concat([x[1:], other[:1]], axis=0) * 0.9


def backwards(x, other, number):
    return ef.flip(x, axis=0) + other


KINDS = (
    *(product, product, product, turned_product, of_both, of_rows, of_columns, slices),
    *(with_all_rows, other_rows, backwards),
)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 3)), max_size=12),
    st.integers(257, 700),
)
@settings(max_examples=40)
def test_chains_of_random_programs_match_single_ops(program, rows):
    def f(x):
        values = [x @ weights(1), ef.tanh(x)]
        for number, (kind, a, b) in enumerate(program):
            x, other = values[-1 - a % len(values)], values[-1 - b % len(values)]
            values.append(kind(x, other, number))
        return values[-1], values[len(values) // 2]

    x = ef.tensor(drawn(rows, rows, WIDTH))
    for one, other in zip(ef.function(f)(x), alone(f, x), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


# Steps on memory of their own ---------------------------------------------------------------------

ROWS, ROW_BYTES = 4, 8


class Step(NamedTuple):
    """A step that computes bytes of each row of an array from those of a row of another one."""

    number: int
    places: tuple[int, int]
    """Where the two arrays begin in memory; they have a row for each eight bytes."""
    parts: tuple[tuple[int, int], tuple[int, int]]
    """Offset and number of the bytes of a row that it reads and writes."""
    whole: bool
    """Whether a row needs all rows of the first array."""
    joins: bool
    movable = True
    chain_rows = ROWS

    def member(self, rows):
        read, written = self.parts
        row = None if self.whole else ROW_BYTES
        accesses = (
            chains.Access(0, read[0], row, read[1], False),
            chains.Access(1, written[0], ROW_BYTES, written[1], True),
        )
        return chains.Member(rows, 0, 0, 1, accesses, None) if self.joins else None

    def bytes_of(self, which, row):
        offset, count = self.parts[which]
        start = self.places[which] + offset + ROW_BYTES * row
        return set(range(start, start + count))

    def reads(self, row):
        if self.whole:
            return set(range(self.places[0], self.places[0] + ROWS * ROW_BYTES))
        return self.bytes_of(0, row)

    def is_sound(self):
        """Whether its own rows do not depend on each other."""
        return not any(
            self.reads(i) & self.bytes_of(1, k) for i in range(ROWS) for k in range(ROWS) if i != k
        )

    def run(self, memory, row):
        read, written = (sorted(x) for x in (self.reads(row), self.bytes_of(1, row)))
        memory[written] = (memory[read] @ np.arange(1, len(read) + 1) + self.number + 1) % 251


PLACES = st.integers(0, 16).map(lambda n: 4 * n)
PARTS = st.sampled_from([(0, 8), (0, 4), (4, 4), (2, 4)])
STEPS = st.builds(
    Step,
    st.integers(0, 250),
    st.tuples(PLACES, PLACES),
    st.tuples(PARTS, PARTS),
    st.integers(0, 5).map(lambda n: n == 0),
    st.integers(0, 5).map(lambda n: n > 0),
).filter(Step.is_sound)


@given(st.lists(STEPS, min_size=2, max_size=6))
@settings(max_examples=40)
def test_chains_compute_what_their_steps_do_for_any_order_of_rows(steps):
    memory = np.arange(100)
    places = [[slice(p, p + ROWS * ROW_BYTES) for p in step.places] for step in steps]
    shared = np.zeros(100, "u1")
    arrays = [[shared[where] for where in pair] for pair in places]
    wanted = memory.copy()
    for step in steps:
        for row in range(ROWS):
            step.run(wanted, row)
    parts = list(chains.chains(steps, arrays, [1] * len(steps), 1))
    assert sorted(number for part in parts for number in part.steps) == list(range(len(steps)))
    for rows in (range(ROWS), range(ROWS)[::-1]):
        found = memory.copy()
        for part in parts:
            for row in rows:
                for number in part.steps:
                    steps[number].run(found, row)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "later, together",
    [
        ({}, True),
        ({"place": 16}, True),  # the other half of each row
        ({"place": 40, "size": 32}, False),  # and some of the next one
        ({"place": 64}, False),
        ({"row": 32}, False),
        ({"row": None}, False),
        ({"row": None, "when": 1}, True),
        ({"row": None, "when": -1}, False),
        ({"place": 6400}, True),
    ],
)
def test_rows_that_depend_on_the_same_rows(later, together):
    def touched(place=0, row=64, size=32, writes=False, when=0):
        access = chains.Access(0, 0, row, size, writes, when)
        return chains.Touched(place, place + 64 * 9 + size, access)

    assert chains.in_step(touched(size=64, writes=True), touched(**later)) is together
    assert chains.in_step(touched(size=64), touched(**later))  # both read


def test_steps_that_wait_keep_their_order(monkeypatch):
    """A product of all rows waits behind a chain, unless the chain writes what it reads."""
    found = chains_of(monkeypatch)

    def f(x):
        h = x @ weights(1)
        square = x.T @ h
        h = ef.tanh(h) @ weights(2)
        return ef.tanh(h) @ weights(3), square, ef.sum(square)

    x = ef.tensor(drawn(3, 512, WIDTH))
    for one, other in zip(ef.function(f)(x), alone(f, x), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert sum(found) == 5  # its buffer is asked for behind the first two
