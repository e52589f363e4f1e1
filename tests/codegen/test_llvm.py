"""The LLVM way: its variants and layouts against NumPy, bits by threads, narrower machines."""

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated, kernel, region
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.layout import Layout, bind, operands_of
from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.nest import Nest
from eagerflow.errors import ArgumentError
from eagerflow.runtime import machine_code, threads
from eagerflow.runtime.cache import ObjectCache
from tests.codegen import llvm_cases
from tests.codegen.llvm_cases import CASES, FEW, check, expected_variant, pairs, region_of
from tests.internals import kernel_cache, replace_method, use_kernel_cache

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not machine_code.available(), reason="llvmlite is not installed")
on_x86 = pytest.mark.skipif(
    machine_code.available() and not machine_code.host().triple.startswith("x86_64"),
    reason="x86-64 only",
)


@pytest.fixture(name="fresh")
def fixture_fresh(monkeypatch, tmp_path):
    """No kernels from before, and none left behind."""
    launch.clear()
    use_kernel_cache(monkeypatch, ObjectCache(tmp_path))
    yield
    launch.clear()


@pytest.fixture(autouse=True)
def fixture_own_regions():
    """Regions that no other test has made calls ready of."""
    forget_regions()
    yield
    forget_regions()


def forget_regions():
    region._in_use.clear()


def variant_of(own):
    (prepared,) = own.calls.values()
    return prepared.call.launch.variant


# Variants and layouts ----------------------------------------------------------------------------


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "place"), pairs())
def test_regions_match_numpy(name, place):
    bound = check(name, place)
    lanes = launch.lanes_of(bound.region, machine_code.host())
    wanted = expected_variant(CASES[name].kind, place)
    if place != "broadcast" and not (wanted == "short" and bound.sizes["n"] > lanes):
        assert variant_of(bound.region) == wanted


@pytest.mark.parametrize("place", ["rows", "short", "side"])
def test_masked_elements_that_count_are_noticed(place, fresh, monkeypatch):
    """Softmax with what lies outside of the mask in its sums."""
    monkeypatch.setattr(
        Nest,
        "_counted",
        lambda self, part, at: self.emit.splat(
            self._element(str(part.operands[0]), at), self.lanes
        ),
    )
    if place == "side":  # whole rows lie outside there, which are not compared
        check("softmax float32", place)
    else:
        with pytest.raises(AssertionError):
            check("softmax float32", place)


def test_an_output_may_have_the_name_of_an_input():
    b = Builder("same", "m n")
    x, y = b.input("x", "float32", "m n"), b.input("y", "float32", "n")
    b.output("y", x + y)
    b.output("x", b.sum(x * y, "n"))
    region = b.region()
    for order in ("C", "F"):
        x = np.asarray(np.arange(40, dtype="float32").reshape(5, 8), order=order)
        y = np.arange(8, dtype="float32")
        sums, dots = kernel.run(region, (x, y), way="llvm")
        np.testing.assert_array_equal(sums, x + y)
        np.testing.assert_array_equal(dots, x @ y)


def test_fma_rounds_once():
    x = np.full(9, 1 + 2**-12, "float32")
    b = Builder("fma", "n")
    values = [b.input(name, "float32", "n") for name in "xyz"]
    b.output("y", b.fma(*values))
    (y,) = kernel.run(b.region(), (x, x, np.full(9, -1 - 2**-11, "float32")), way="llvm")
    np.testing.assert_array_equal(y, np.float32(2**-24))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (1, 1), (1, 0)])
@pytest.mark.parametrize("name", ["softmax float32", "layer_norm_gradient", "adam float32"])
def test_empty_and_single(name, shape):
    bound = llvm_cases.bind(name, shape)
    if shape[1]:  # NumPy has no mean of nothing
        expected = bound.expected()
        kernel.compute(bound.region, bound.inputs, bound.outputs, bound.sizes, "llvm")
        llvm_cases.assert_close(bound.region, bound.outputs, expected)
        return
    kernel.compute(bound.region, bound.inputs, bound.outputs, bound.sizes, "llvm")
    for output in bound.outputs:
        assert np.isnan(output).all() or (output == 0).all() or not output.size


# Which variant -----------------------------------------------------------------------------------


def chosen(name, shape, how="unit", lanes=16):
    bound = llvm_cases.bind(name, shape, how)
    columns = {s.name for s in bound.region.body if bound.region.is_column_reduction(s)}
    direct = [
        o
        for o, p in zip(bound.outputs, bound.region.outputs, strict=True)
        if p.value not in columns
    ]
    parts = operands_of(bound.region)
    operands = [(a, p.axes) for a, p in zip([*bound.inputs, *direct], parts, strict=True)]
    return launch.choose(bound.region, bind(bound.region, operands, bound.sizes), lanes)


@pytest.mark.parametrize(
    ("name", "shape", "how", "variant"),
    [
        ("softmax float32", (100, 16), "unit", "short"),
        ("softmax float32", (100, 17), "unit", "group"),
        ("softmax float32", (100, launch.MAX_GROUPED_WIDTH), "unit", "group"),
        ("softmax float32", (100, launch.MAX_GROUPED_WIDTH + 1), "unit", "rows"),
        ("softmax float32", (15, launch.MAX_OWN_WIDTH), "unit", "rows"),
        ("softmax float32", (15, launch.MAX_OWN_WIDTH + 1), "unit", "stages"),
        ("softmax float32", (16, launch.MAX_OWN_WIDTH + 1), "unit", "rows"),
        ("softmax float32", (90, 17), "turned", "side"),
        ("softmax float32", (6, 17), "turned", "group"),  # three side by side do not fill a vector
        ("layer_norm_gradient", (90, 17), "turned", "group"),
        ("layer_norm_gradient", (2, launch.MAX_OWN_WIDTH + 1), "unit", "stages"),
        ("layer_norm_gradient", (100, 16), "unit", "short"),
        ("dropout", (90, 17), "turned", "group"),
        ("adam float32", (100, 16), "unit", "stages"),
        ("adam float32", (2, 200_000), "strided", "stages"),
    ],
)
def test_the_shape_alone_says_which_variant(name, shape, how, variant):
    found = set()
    for count in (1, 2, 64):
        threads.set_thread_count(count)
        found.add(chosen(name, shape, how))
    threads.set_thread_count(None)
    assert found == {variant}


# Threads -----------------------------------------------------------------------------------------


def outputs_with(name, shape, how, count):
    forget_regions()  # each count of threads has a call that is made ready for it
    bound = llvm_cases.bind(name, shape, how)
    threads.set_thread_count(count)
    try:
        kernel.compute(bound.region, bound.inputs, bound.outputs, bound.sizes, "llvm")
    finally:
        threads.set_thread_count(None)
    return [array.tobytes() for array in bound.outputs]


LARGE = [((3_000, 101), "unit"), ((8_000, 33), "turned"), ((2, 140_003), "unit")]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("shape", "how"), LARGE, ids=["rows", "side", "stages"])
@pytest.mark.parametrize("name", [n for n in CASES if "int" not in n or n == "integers int32"])
def test_bits_depend_neither_on_threads_nor_on_the_run(name, shape, how):
    first = outputs_with(name, shape, how, 1)
    assert outputs_with(name, shape, how, 2) == first
    assert outputs_with(name, shape, how, 2) == first
    assert outputs_with(name, shape, how, 5) == first


def test_cuts_that_depend_on_threads_are_noticed(monkeypatch):
    def by_threads(cut):
        def cut_by_threads(self):
            launch.BLOCK_ELEMENTS = 1 << 15 if threads.thread_count() == 1 else 1 << 12
            cut(self)

        return cut_by_threads

    monkeypatch.setattr(launch, "BLOCK_ELEMENTS", launch.BLOCK_ELEMENTS)
    replace_method(monkeypatch, launch.Launch, "_cut", by_threads)
    shape = (2, 140_003)
    first = outputs_with("softmax float32", shape, "unit", 1)
    assert outputs_with("softmax float32", shape, "unit", 2) != first


# Narrower machines -------------------------------------------------------------------------------

SSE2 = "-avx* -fma* -f16c -sse3 -ssse3 -sse4* -xop -gfni -vaes -vpclmulqdq"
CHECKS = """
from eagerflow.runtime import machine_code
from tests.codegen.llvm_cases import check
from tests.codegen.llvm_cases import pairs
from tests.internals import kernel_cache, use_kernel_cache
wanted = pairs({places})
for name, place in wanted:
    check(name, place)
print(len(wanted), machine_code.host().vector_bytes, machine_code.host().has_halves)
"""


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.sampled(4)
@on_x86
@pytest.mark.parametrize(
    ("features", "vector_bytes", "places"),
    [
        ("-avx512*", 32, ("rows", "side")),
        (SSE2, 16, FEW),
        ("-avx512* -f16c", 32, ("short",)),
        ("-avx512* -fma", 32, ("short",)),
    ],
    ids=["AVX2", "SSE2", "AVX2 without F16C", "AVX2 without FMA"],
)
def test_narrower_machines(features, vector_bytes, places):
    if machine_code.host().vector_bytes < vector_bytes:
        pytest.skip("this machine is narrower")
    done = python(CHECKS.format(places=places), EAGERFLOW_LLVM_FEATURES=features)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    count, width, halves = done.stdout.split()
    assert int(count) == len(pairs(places))
    assert int(width) == vector_bytes
    assert halves == str("f16c" not in features and "+f16c" in machine_code.host().features)


def assembly(name, target, variant="rows", inner=1):
    region = region_of(name)
    kinds = tuple(inner if "n" in part.axes else 0 for part in operands_of(region))
    return launch.assembly(region, Layout(1, kinds), variant, target)


def x86(cpu, vector_bytes):
    """A target of x86-64; skips the test where this LLVM cannot write code for it."""
    _initialize("x86_64-unknown-linux-gnu")
    features = "+f16c" if vector_bytes > 16 else ""
    return machine_code.Target("x86_64-unknown-linux-gnu", cpu, features, vector_bytes)


def _initialize(triple):
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        binding.Target.from_triple(triple)
    except RuntimeError as error:
        pytest.skip(f"this LLVM does not know {triple}: {error}")


@pytest.mark.parametrize("cpu", ["skylake-avx512", "icelake-server", "znver4", "x86-64-v4"])
def test_avx512_uses_all_of_its_vectors(cpu):
    text = assembly("softmax float32", x86(cpu, 64))
    assert re.search(r"vfmadd\w+ps.*%zmm", text)
    assert re.search(r"vmovups.*%zmm\d+ {%k\d}", text)  # the masked end of a row
    assert "fmaf" not in text


def test_avx2_has_vectors_of_32_bytes():
    text = assembly("softmax float16", x86("x86-64-v3", 32))
    assert re.search(r"vfmadd\w+ps.*%ymm", text)
    assert "vcvtph2ps" in text and "vcvtps2ph" in text
    assert "zmm" not in text


def test_the_oldest_machines_have_vectors_of_16_bytes():
    text = assembly("softmax float32", x86("x86-64", 16))
    assert re.search(r"mulps.*%xmm", text)
    assert "ymm" not in text and "zmm" not in text
    own = set(re.findall(r"^(\w+):", text, re.M))
    assert set(re.findall(r"call\w*\s+(\w+)", text)) - own == {"fmaf"}  # of the C library
    assert "__" not in assembly("softmax float16", x86("x86-64", 16))  # helpers of compilers


@on_x86
def test_this_machines_vectors_are_used_in_full():
    wide = machine_code.host().vector_bytes == 64
    text = ef.kernels.show(ef.softmax, ef.ones((40, 100)), code="assembly")
    assert ("zmm" in text) == wide


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx13.0"])
def test_neon(triple):
    _initialize(triple)
    target = machine_code.Target(
        triple, "generic" if "linux" in triple else "apple-m1", "+neon", 16
    )
    text = assembly("softmax float16", target)
    assert re.search(r"\bfml[as](\.4s)?\s+v\d+", text)
    assert re.search(r"\bfcvtl(\.4s)?\s+v\d+", text)  # float16 is converted by the processor
    assert "fmaf" not in text and "extendhf" not in text


NEON = machine_code.Target("aarch64-unknown-linux-gnu", "generic", "+neon", 16)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [n for n in CASES if "int" not in n or n == "integers uint64"])
def test_all_variants_are_written_for_neon(name):
    _initialize(NEON.triple)
    variants = {"elements": ["stages"], "columns": ["rows", "stages"]}
    for variant in variants.get(CASES[name].kind, ["rows", "group", "short", "stages"]):
        assert re.search(r"\bret\b", assembly(name, NEON, variant))
    if CASES[name].kind == "rows":
        assert re.search(r"\bret\b", assembly(name, NEON, "side", inner=2))


# Looking at kernels ------------------------------------------------------------------------------


def test_all_codes_of_a_call():
    show, x = ef.kernels.show, ef.tensor([[1.0, 2.0, 4.0], [3.0, 0.0, 1.0]])
    region = show(ef.softmax, x)
    assert repr(region) == str(region) == region
    assert region.startswith("region softmax[m, n]\n  in x0: float32[m, n]")
    assert region.splitlines()[-1].startswith("  out y0: float32[m, n] = %")
    code = show(ef.softmax, x, code="llvm")
    assert "define void @kernel(" in code and "; region softmax[m, n]" in code
    text = show(ef.softmax, x, code="assembly")
    assert "kernel:" in text and re.search(r"\bret", text)
    cuda = show(ef.softmax, x, code="cuda")
    assert "__global__" in cuda and "expf(" not in cuda


def test_each_kernel_is_shown_once():
    x = ef.ones((3, 5))
    text = ef.kernels.show(lambda: ef.log_softmax(ef.softmax(ef.softmax(x))))
    assert [line for line in text.splitlines() if line.startswith("region")] == [
        "region softmax[m, n]",
        "region log_softmax[m, n]",
    ]
    assert "over n" in ef.kernels.show(ef.softmax, x, axis=0)


@pytest.mark.parametrize("code", ["", "c", "LLVM", None])
def test_codes_that_do_not_exist(code):
    called = []
    with pytest.raises(ArgumentError, match="one of"):
        ef.kernels.show(called.append, 1, code=code)
    assert not called


def test_calls_without_kernels():
    with pytest.raises(ArgumentError, match="no generated kernel"):
        ef.kernels.show(lambda: None)
    with pytest.raises(ArgumentError, match="no generated kernel"):
        ef.kernels.show(ef.matmul, ef.ones((2, 2)), ef.ones((2, 2)))


def test_a_call_that_fails_ends_the_watching():
    with pytest.raises(ZeroDivisionError):
        ef.kernels.show(lambda: 1 / 0)
    assert generated.calls is None and kernel.listed is None
    assert ef.softmax(ef.tensor([0.0, 0.0])).tolist() == [0.5, 0.5]


# How long it takes -------------------------------------------------------------------------------


def test_thirty_regions_are_compiled(fresh):
    """Prints the time; machines differ too much to say what it must be."""
    times = []
    for name in CASES:
        bound = llvm_cases.bind(name, (37, 101))
        start = time.perf_counter()
        launch.KernelCall(bound.region, bound.inputs, bound.outputs, bound.sizes)
        times.append(time.perf_counter() - start)
    print(f"cold, median of {len(times)} regions: {1e3 * statistics.median(times):.0f} ms")
    assert kernel_cache().misses == len(times) == 30


# Column reductions -------------------------------------------------------------------------------


def summed_columns(rows, inplace):
    """Sums of columns for two outputs, perhaps in place of an input that rows are added to."""
    b = Builder("columns", "m n")
    x, y = b.input("x", "float32", "m n"), b.input("y", "float32", "n")
    total = b.sum(x + y, "m")
    b.output("first", total, inplace="y" if inplace else None)
    b.output("second", total)
    b.output("wide", total, axes="m n")
    rng = np.random.default_rng(rows)
    values = rng.standard_normal((rows, 7)).astype("f4"), rng.standard_normal(7).astype("f4")
    return b.region(), values


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 40_000])
def test_column_reductions_of_several_outputs_and_in_place(rows, inplace):
    region, (x, y) = summed_columns(rows, inplace)
    expected = (x.astype("f8") + y).sum(0)
    for found in kernel.run(region, (x, y), way="llvm"):
        np.testing.assert_allclose(
            found, np.broadcast_to(expected, found.shape), rtol=2e-4, atol=2e-3
        )
