"""Random regions in every way they run: within bounds, of the same bits, and nothing touched.

EAGERFLOW_REGIONS_FROM moves the seeds of the large counts.
"""

import ctypes
import dataclasses
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.llvm import lanes, launch, nest
from eagerflow.errors import EagerflowError
from eagerflow.runtime import threads
from eagerflow.runtime.cache import ObjectCache
from tests.codegen.expected import evaluate
from tests.codegen.guards import PATTERNS, Guarded, Poisoned, guard_pages_work, layout
from tests.codegen.regions import Case, regions
from tests.codegen.ways import check, place, run_guarded, seeded  # noqa: F401 (in_process)
from tests.internals import use_kernel_cache
from tests.structure.sources import ROOT

CHUNK = 100
COUNTS = {"llvm": 600, "numpy": 400}  # regions in a usual run
SOAK = 20_000
GUARDED = 100
COMPARED = 0.7  # of the elements at least, on average

CHUNKS = [(way, n) for way, count in COUNTS.items() for n in range(count // CHUNK)]
LARGE = 12  # of so many elements that threads share the work

# Every second chunk is run with limits so small that few arrays are one piece of work.
SMALL_PIECES = {
    launch: {
        "TASK_ELEMENTS": 512,
        "MIN_SHARED_ELEMENTS": 1,
        "MAX_OWN_WIDTH": 256,
        "BLOCK_ELEMENTS": 128,
        "MAX_COLUMN_PIECES": 4,
        "ROWS_OF_A_LINE": 4,
        "MAX_SHORT_WIDTH": 8,
    },
    nest.Nest: {"turn": 2},
    lanes.SideNest: {"turn": 3},
}


def available(way):
    if way not in kernel.ways():
        pytest.skip("machine code needs llvmlite")
    return way


@pytest.fixture(params=["llvm", "numpy"], scope="module")
def way(request):
    return available(request.param)


@pytest.fixture(autouse=True, scope="module")
def no_objects_on_disk():
    """Kernels that are run once would push those of the user out of the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EAGERFLOW_CACHE", "off")
        use_kernel_cache(patch, ObjectCache())
        yield


def cut_small(monkeypatch):
    for module, limits in SMALL_PIECES.items():
        for name, limit in limits.items():
            monkeypatch.setattr(module, name, limit)


def check_seeds(way, seeds, large=False):
    """Compare the cases of some seeds; all that are wrong are told, with their regions."""
    wrong, shares = [], []
    for seed in seeds:
        case = seeded(seed, large)
        try:
            found, outputs = check(case, way)
            problems = found.wrong + differing_bits(case, way, outputs)
        except Exception as error:
            problems = [f"{type(error).__name__}: {error}"]
        else:
            if found.elements:
                shares.append((found.compared / found.elements, found.closely / found.elements))
        if problems:
            wrong.append("\n".join([f"seed {seed}, {case.sizes}", str(case.region), *problems]))
    compared, closely = np.mean(shares, axis=0)
    print(f"{way}: {compared:.1%} of the elements compared, {closely:.1%} within a thousandth")
    assert not wrong, f"{len(wrong)} regions of {len(seeds)} are wrong\n" + "\n\n".join(wrong[:5])
    assert compared > COMPARED


def differing_bits(case, way, outputs):
    """What differs in its bits when one thread, and when two, compute the same again."""
    problems = []
    try:
        for count in (1, 2):
            threads.set_thread_count(count)
            _, again = place(case).run(way)
            for part, one, other in zip(case.region.outputs, outputs, again, strict=True):
                if one.tobytes() != other.tobytes():
                    problems.append(f"{part.name} has other bits with {count} threads")
    finally:
        threads.set_thread_count(None)
    return problems


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("way", "chunk"), CHUNKS)
def test_regions_are_within_bounds_and_of_the_same_bits(way, chunk, monkeypatch):
    if chunk % 2:
        cut_small(monkeypatch)
    check_seeds(available(way), range(CHUNK * chunk, CHUNK * (chunk + 1)))


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(SOAK // CHUNK))
def test_many_regions_are_within_bounds_and_of_the_same_bits(way, chunk, monkeypatch):
    if chunk % 2:
        cut_small(monkeypatch)
    first = int(os.environ.get("EAGERFLOW_REGIONS_FROM", "1_000_000")) + CHUNK * chunk
    check_seeds(way, range(first, first + CHUNK))


@pytest.mark.soak
def test_large_regions_are_within_bounds_and_of_the_same_bits(way):
    check_seeds(way, range(LARGE), large=True)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(20))
def test_large_random_regions_match_bitwise_within_bounds(way, chunk):
    check_seeds(way, range(100 * chunk, 100 * (chunk + 1)), large=True)


@pytest.mark.sampled(3)
@given(case=regions())
def test_regions_that_hypothesis_makes(way, case):
    found, _ = check(case, way)
    assert not found.wrong, "\n".join([str(case.region), str(case.sizes), *found.wrong])


# Planted bugs: what these tests are for must not get past them -----------------------------------


def first_way(region, inputs, outputs, sizes):
    kernel.compute(region, inputs, outputs, sizes, "numpy")


def product(size=100):
    """A case of y = x * x in the middle of floats of one magnitude."""
    b = Builder("product", "m n")
    x = b.input("x", "float32", "m n")
    b.output("y", x * x)
    array = np.random.default_rng(5).uniform(1, 2, (3, size)).astype("float32")
    patterns = {"x": "contiguous", "y": "contiguous"}
    return Case(b.region(), (array,), {"m": 3, "n": size}, patterns)


def off_by_one_unit(region, inputs, outputs, sizes):
    first_way(region, inputs, outputs, sizes)
    y = outputs[0]
    y[1, 7] = np.nextafter(y[1, 7], np.float32(np.inf))


def without_the_tail(region, inputs, outputs, sizes):
    kept = outputs[0][:, 96:].copy()
    first_way(region, inputs, outputs, sizes)
    outputs[0][:, 96:] = kept


def writing_beyond(region, inputs, outputs, sizes):
    first_way(region, inputs, outputs, sizes)
    ctypes.memmove(outputs[0].ctypes.data + outputs[0].nbytes, b"abcd", 4)


def writing_an_input(region, inputs, outputs, sizes):
    first_way(region, inputs, outputs, sizes)
    inputs[0][0, 0] += 1


def reading_beyond(region, inputs, outputs, sizes):
    """What a loop without a masked tail does; only a guard page notices."""
    first_way(region, inputs, outputs, sizes)
    ctypes.string_at(inputs[0].ctypes.data + inputs[0].nbytes, 4)


def reading_before(region, inputs, outputs, sizes):
    first_way(region, inputs, outputs, sizes)
    ctypes.string_at(inputs[0].ctypes.data - 4, 4)


@pytest.mark.parametrize("bug", [off_by_one_unit, without_the_tail])
def test_wrong_numbers_are_found(bug):
    found, _ = check(product(), bug)
    assert found.wrong and "y[" in found.wrong[0]
    assert not check(product(), first_way)[0].wrong


@pytest.mark.parametrize("bug", [writing_beyond, writing_an_input])
def test_wild_writes_are_found(bug):
    with pytest.raises(AssertionError, match="written"):
        check(product(), bug)


def with_other_instructions(wrong):
    """A way that computes another instruction than the one that is written down."""

    def compute(region, inputs, outputs, sizes):
        first_way(replaced(region, wrong), inputs, outputs, sizes)

    return compute


def replaced(region, wrong):
    """A region with other instructions, of the same types, in place of some."""
    body = tuple(
        dataclasses.replace(s, instruction=wrong.get(s.instruction, s.instruction))
        for s in region.body
    )
    return dataclasses.replace(region, body=body)


SWAPPED = {
    "add": "subtract",
    "maximum": "minimum",
    "sum": "max",
    "less": "less_equal",
    "floor": "trunc",
    "round": "floor",
    "isnan": "isinf",
    "bitwise_and": "bitwise_or",
    "all": "any",
    "power": "atan2",
}


@pytest.mark.parametrize("right", sorted(SWAPPED))
def test_a_wrong_instruction_is_found(right):
    """In one of the first regions that have it, although not every number shows it."""
    way = with_other_instructions({right: SWAPPED[right]})
    cases = (case for case in map(seeded, range(2_000)) if has(case, right))
    for _, case in zip(range(20), cases, strict=False):
        try:
            if check(case, way)[0].wrong:
                return
        except EagerflowError:  # the other instruction does not take these types
            continue
    raise AssertionError(f"20 regions give the same with {SWAPPED[right]} for {right}")


def has(case, instruction):
    return any(s.instruction == instruction for s in case.region.body)


def test_errors_grow_as_they_should():
    """The bound of exp(x) - exp(x + 1/8) is some units of its operands, not of the result."""
    b = Builder("cancel", "n")
    x = b.input("x", "float32", "n")
    b.output("y", b.exp(x) - b.exp(x + 0.125))
    x = np.linspace(1, 4, 50, dtype="float32")
    (expected,) = evaluate(b.region(), (x,), {"n": 50})
    unit = np.spacing(np.exp(x + np.float32(0.125)))
    assert not expected.unknown.any()
    assert (expected.error > 0.5 * unit).all() and (expected.error < 12 * unit).all()
    wide = np.exp(x.astype("float64"))
    np.testing.assert_allclose(expected.value, wide - np.exp(x.astype("float64") + 0.125), 1e-12)


# Guard pages: each run is a process of its own, which may die -------------------------------------

needs_guards = pytest.mark.skipif(not guard_pages_work(), reason="no guard pages on this system")


def in_process(code):
    """Run a statement of this file's in a fresh process."""
    command = f"from tests.codegen.test_random_regions import *; {code}"
    environment = {**os.environ, "EAGERFLOW_CACHE": "off"}
    return subprocess.run(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def run_planted(bug, before):
    place(product(), lambda *a: Guarded(*a, before=before)).run(bug)


def assert_lives(process):
    last = process.stdout.split()[-1:]
    assert process.returncode == 0, f"ended by {process.returncode} after {last}: {process.stderr}"


@pytest.mark.sampled(4)
@needs_guards
def test_no_byte_beyond_an_array_is_read(way):
    process = in_process(f"run_guarded({way!r}, 0, {GUARDED})")
    assert_lives(process)
    assert len(process.stdout.split()) == GUARDED


@pytest.mark.soak
@needs_guards
@pytest.mark.parametrize("chunk", range(20))
def test_no_byte_beyond_many_arrays_is_read(way, chunk):
    first = 2_000_000 + chunk * 1_000
    assert_lives(in_process(f"run_guarded({way!r}, {first}, {first + 1_000})"))


@pytest.mark.sampled(5)
@needs_guards
@pytest.mark.parametrize(
    ("bug", "before"),
    [("reading_beyond", False), ("writing_beyond", False), ("reading_before", True)],
)
def test_a_byte_beyond_ends_the_process(bug, before):
    assert_lives(in_process(f"run_planted(first_way, {before})"))
    process = in_process(f"run_planted({bug}, {before})")
    assert process.returncode == -signal.SIGSEGV


# The memory itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (4, 1, 3)])
def test_placed_arrays_hold_written_values(pattern, shape):
    for dtype in ("float64", "bool", "uint16"):
        for memory in (Poisoned, Guarded) if guard_pages_work() else (Poisoned,):
            placed = memory(shape, dtype, pattern)
            values = np.arange(placed.array.size).reshape(shape).astype(dtype)
            placed.array[...] = values
            if pattern != "broadcast":
                assert np.array_equal(placed.array, values)
            assert placed.array.shape == shape and placed.touched() == 0


def test_every_byte_beside_the_elements_is_watched():
    placed = Poisoned((3, 2), "int32", "step 2")
    strides, first, extent = layout((3, 2), 4, "step 2")
    assert (strides, first, extent) == ((16, 8), 0, 44)
    start = placed.array.ctypes.data
    for place_ in (start - 1, start + 4, start + 43 - 4, start + extent, start + extent + 100):
        old = ctypes.string_at(place_, 1)
        ctypes.memmove(place_, bytes([old[0] ^ 1]), 1)
        assert placed.touched() == 1
        ctypes.memmove(place_, old, 1)
        assert placed.touched() == 0


def test_patterns_have_the_strides_of_their_names():
    strides = {p: Poisoned((4, 6), "float32", p).array.strides for p in PATTERNS}
    assert strides["contiguous"] == (24, 4) and strides["fortran"] == (4, 16)
    assert strides["step 2"] == (48, 8) and strides["step 3"] == (72, 12)
    assert strides["negative"] == (-24, -4) and strides["broadcast"] == (0, 4)
    assert strides["column"] == (120, 20) and strides["offset"] == (28, 4)
    assert Poisoned((4, 6), "float32", "offset").array.ctypes.data % 16
