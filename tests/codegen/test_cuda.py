"""Regions as CUDA C: compiled for GPUs where nvcc is there, and run on the CPU through a shim."""

import dataclasses
import faulthandler
import os
import shutil
import signal
import sys
import types
import warnings

import numpy as np
import pytest

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.cuda import launch
from eagerflow.codegen.cuda.binding import Memory
from eagerflow.codegen.cuda.instructions import CudaCode, CudaEmitter, CudaOperand
from eagerflow.codegen.cuda.modules import Module
from eagerflow.codegen.cuda.nest import Code
from eagerflow.codegen.cuda.prelude import SUPPORT
from eagerflow.codegen.functions.table import FUNCTIONS
from eagerflow.codegen.instructions import INSTRUCTIONS
from eagerflow.errors import MissingExtraError, ShapeError
from tests.codegen.cuda_cases import CASES, softmax_case
from tests.codegen.cuda_cpu import Cupy, compile_for_cpu, joined, kernels_of, prepared
from tests.codegen.expected import compare, evaluate
from tests.codegen.guards import PATTERNS, Guarded, Poisoned, guard_pages_work
from tests.codegen.nvcc import called, compile_for_gpus, needs_nvcc
from tests.codegen.ways import place, seeded
from tests.internals import forget_device_kernels

RANDOM = 60
SOAK = 3_000
UNARY = [n for n in FUNCTIONS if INSTRUCTIONS[n].takes == "float" and INSTRUCTIONS[n].operands == 1]
BINARY = [
    n for n in FUNCTIONS if INSTRUCTIONS[n].takes == "float" and INSTRUCTIONS[n].operands == 2
]

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


class Borders:
    """The arrays of a named case again, in memory with guarded borders."""

    def __init__(self, case, pattern=None, kind=Poisoned):
        self.case, self.kind, self.memories, self.placed = case, kind, [], {}
        self.inputs = [self.place(a, pattern) for a in case.inputs]
        self.outputs = [self.place(a, pattern) for a in case.outputs]

    def place(self, array, pattern):
        if id(array) not in self.placed:
            given = pattern or ("offset" if array.ctypes.data % 16 else "contiguous")
            memory = self.kind(array.shape, array.dtype, given)
            memory.array[...] = array
            self.memories.append(memory)
            # Strides that the case is about stay as they are.
            special = pattern is None and not array.flags.c_contiguous
            self.placed[id(array)] = array if special else memory.array
        return self.placed[id(array)]

    @property
    def call(self):
        return self.case.region, self.inputs, self.outputs, self.case.sizes

    def touched(self):
        return sum(m.touched() for m in self.memories)


def run(cupy, monkeypatch, call):
    """Compute on the look-alike; which kernels ran."""
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    forget_device_kernels(monkeypatch)
    region, inputs, outputs, sizes = call
    cupy.launches.clear()
    launch.compute(region, [cupy.wrap(a) for a in inputs], [cupy.wrap(a) for a in outputs], sizes)
    assert cupy.touched() == 0, "bytes beside a buffer were written"
    assert cupy.device.depth == 0
    return list(cupy.launches)


def check(case, outputs):
    for got, expected in zip(outputs, case.expected, strict=True):
        if got.dtype.kind in "fV":
            with np.errstate(invalid="ignore"):  # of NaNs that signal
                got, expected = (np.asarray(x).astype(np.float64) for x in (got, expected))
            np.testing.assert_allclose(got, expected, case.rtol, case.atol)
        else:
            np.testing.assert_array_equal(got, np.asarray(expected))


# Texts, compiled together ------------------------------------------------------------------------


def function_call(name, dtype):
    """An elementary function of numbers of all magnitudes, and of special ones."""
    b = Builder(name, "n")
    count = INSTRUCTIONS[name].operands
    operands = [b.input("xyz"[i], dtype, "n") for i in range(count)]
    b.output("out", getattr(b, name)(*operands))
    rng = np.random.default_rng(7)
    bits = {"float32": np.uint32, "float64": np.uint64}[dtype]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2, 1e-40, 88, -88], dtype)
    arrays = []
    for _ in range(count):
        wild = rng.integers(0, np.iinfo(bits).max, 500, bits).view(dtype)
        near = rng.standard_normal(500).astype(dtype) * 3
        arrays.append(np.concatenate([rng.permutation(special), wild, near]))
    region = b.region()
    result = INSTRUCTIONS[name].gives
    out = np.empty(arrays[0].shape, "bool" if result == "bool" else dtype)
    return region, arrays, [out], {"n": out.size}


FUNCTION_CALLS = [(n, d) for n in (*UNARY, *BINARY) for d in ("float32", "float64")]


def written(case):
    """Whether all instructions of a random case are written out for GPUs."""
    emitter = CudaEmitter(CudaCode())
    return all(
        s.over or s.instruction == "extent" or hasattr(emitter, s.instruction)
        for s in case.region.body
    )


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All calls of this module, and CuPy's look-alike with their kernels, compiled together."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    calls = {name: Borders(make()) for name, make in CASES.items()}
    calls |= {("like", p): Borders(softmax_case(5, 130), p) for p in PATTERNS if p != "broadcast"}
    texts = [prepared(*c.call).text for c in calls.values()]
    functions = {key: function_call(*key) for key in FUNCTION_CALLS}
    texts += [prepared(*call).text for call in functions.values()]
    randoms = [place(c) for c in map(seeded, range(RANDOM)) if written(c)]
    texts += [random_program(r).text for r in randoms]
    texts += [planted(prepared(*calls[name].call), b).text for name, b, _ in PLANTED.values()]
    guarded = [prepared(*c.call) for c in guarded_calls()]
    texts += [own.text for own in guarded]
    texts += [planted(own, PLANTED["no tail"][1]).text for own in guarded[:1]]
    cupy = Cupy(compile_for_cpu(texts, tmp_path_factory.mktemp("cuda")))
    return cupy, calls, functions, randoms


GUARDED = (
    "softmax_1_1001",
    "softmax_9_130",
    "softmax_2_20001",
    "gather",
    "layer_norm_backward",
    "integers_and_bool",
    "softmax_bfloat16",
    "add_of_broadcast_and_transposed",
)


def guarded_calls():
    """Named calls between pages that no one may read: right after an operand, or right before."""
    for name in GUARDED if guard_pages_work() else ():
        for before in (False, True):
            yield Borders(CASES[name](), "contiguous", lambda *a, b=before: Guarded(*a, before=b))


def random_program(placed):
    case = placed.case
    arrays = [[m.array for m in part] for part in (placed.inputs, placed.outputs)]
    return prepared(case.region, *arrays, case.sizes)


def planted(program, edit):
    """The program with other kernels."""
    whole = edit("\n\n".join(program.code.kernels))
    return dataclasses.replace(program, code=Code(program.code.functions, (whole,)))


def replaced(old, new):
    def edit(text):
        at = text.index("// region")
        assert old in text[at:], text[at:]
        return text[:at] + text[at:].replace(old, new)

    return edit


def waits_alone(text):
    return replaced("v_4_shared);", "v_4_shared);\nif (threadIdx.x) __syncthreads();")(text)


PLANTED = {
    "a row's place": ("softmax_9_130", replaced("o0 * in_x_o0", "o0 * in_x_o0 + 1"), "Not equal"),
    "no tail": ("softmax_1_1001", replaced("? (int)(width - first) : 4", "? 4 : 4"), "beside"),
    "a tail that counts": ("softmax_3_33", replaced("k < count ? v_3 : 0.0f", "v_3"), "Not equal"),
    "a barrier that some miss": ("softmax_2_3000", waits_alone, "in vain"),
    "half of the lanes": ("softmax_3_33", replaced("float32, 32>", "float32, 16>"), "Not equal"),
    "an argument more": ("gelu", replaced("width\n", "width, int more\n"), "takes .* arguments"),
}


# On the CPU --------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_regions_match_numpy(name, everything, monkeypatch):
    cupy, calls, _, _ = everything
    borders = calls[name]
    run(cupy, monkeypatch, borders.call)
    check(borders.case, borders.outputs)
    assert borders.touched() == 0, "bytes beside an operand were written"


@needs_compiler
def test_random_regions_are_within_bounds(everything, monkeypatch):
    cupy, _, _, randoms = everything
    assert len(randoms) > 0.8 * RANDOM
    wrong = random_problems(cupy, monkeypatch, randoms)
    assert not wrong, "\n\n".join(wrong[:5])


def random_problems(cupy, monkeypatch, randoms):
    wrong = []
    for placed in randoms:
        before, outputs = placed.run(lambda *call: run(cupy, monkeypatch, call))
        case = placed.case
        problems = compare(case.region, outputs, evaluate(case.region, before, case.sizes)).wrong
        if problems:
            wrong.append("\n".join([str(case.region), str(case.sizes), *problems]))
    return wrong


@pytest.mark.soak
@needs_compiler
@pytest.mark.parametrize("first", range(1_000, 1_000 + SOAK, 300))
def test_many_random_regions_are_within_bounds(first, tmp_path, monkeypatch):
    randoms = [place(c) for c in map(seeded, range(first, first + 300)) if written(c)]
    cupy = Cupy(compile_for_cpu([random_program(r).text for r in randoms], tmp_path))
    wrong = random_problems(cupy, monkeypatch, randoms)
    assert not wrong, "\n\n".join(wrong[:5])


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize(("name", "dtype"), FUNCTION_CALLS)
def test_functions_give_the_bits_of_the_cpu(name, dtype, everything, monkeypatch):
    if "llvm" not in kernel.ways():
        pytest.skip("machine code needs llvmlite")
    cupy, _, functions, _ = everything
    region, inputs, outputs, sizes = functions[name, dtype]
    run(cupy, monkeypatch, (region, inputs, outputs, sizes))
    expected = np.empty_like(outputs[0])
    kernel.compute(region, inputs, [expected], sizes, "llvm")
    known = expected == expected  # the bits of NaN are each machine's own
    np.testing.assert_array_equal(outputs[0] != outputs[0], ~known)
    assert outputs[0][known].tobytes() == expected[known].tobytes()


@needs_compiler
def test_bits_depend_on_neither_strides_nor_alignment(everything, monkeypatch):
    cupy, calls, _, _ = everything
    found = []
    for pattern in PATTERNS:
        if pattern != "broadcast":
            borders = calls["like", pattern]
            run(cupy, monkeypatch, borders.call)
            assert borders.touched() == 0
            found.append(borders.outputs[0].tobytes())
    assert len(set(found)) == 1


def status_of(action):
    """How a process of its own ends in which something is done."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which do nothing here
        child = os.fork()
    if not child:
        faulthandler.disable()  # it would tell at length what is expected
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_compiler
def test_nothing_outside_the_operands_is_read(everything, monkeypatch):
    if not guard_pages_work():
        pytest.skip("pages cannot be guarded here")
    cupy, _, _, _ = everything

    def all_calls():
        for borders in guarded_calls():
            run(cupy, monkeypatch, borders.call)
            check(borders.case, borders.outputs)

    assert status_of(all_calls) == 0
    borders = next(guarded_calls())
    program = prepared(*borders.call)
    wrong = planted(program, PLANTED["no tail"][1])
    monkeypatch.setattr(launch, "prepared_program", lambda *_: wrong)
    assert status_of(lambda: run(cupy, monkeypatch, borders.call)) == -signal.SIGSEGV


@needs_compiler
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug, everything, monkeypatch):
    cupy, _, _, _ = everything
    name, edit, message = PLANTED[bug]
    borders = Borders(CASES[name]())
    program = prepared(*borders.call)
    wrong = planted(program, edit)
    monkeypatch.setattr(launch, "prepared_program", lambda *_: wrong)
    with pytest.raises(AssertionError, match=message):
        run(cupy, monkeypatch, borders.call)
        assert borders.touched() == 0, "bytes beside an operand were written"
        check(borders.case, borders.outputs)


# Launches ----------------------------------------------------------------------------------------


def program_of(name):
    case = CASES[name]()
    return prepared(case.region, case.inputs, case.outputs, case.sizes)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("softmax_4_1001", 1),  # all passes over a row in one kernel
        ("softmax_3_70001", 5),  # maximum and sum in two stages each, then the quotients
        ("layer_norm_backward_in_one_stage", 2),
        ("layer_norm_backward", 3),
        ("layer_norm_backward_in_place", 4),
        ("adam", 1),
        ("cross_entropy", 2),
    ],
)
def test_kernels_of_a_region(name, count):
    program = program_of(name)
    assert len(program.launches) == len(kernels_of(program.text)) == count


def test_packs_are_used_where_operands_allow_it():
    text = program_of("gelu").text.partition("// region")[2]
    assert "load_pack<4>(v_x_pack, in_x + first, count);" in text
    text = program_of("softmax_strided").text.partition("// region")[2]
    assert "load_each<4>" in text and "load_pack" not in text
    # Rows of an odd length begin at no multiple of a pack: neighbouring threads take neighbours.
    assert "load_pack<1>" in program_of("softmax_9_130").text.partition("// region")[2]


def test_costly_values_are_computed_once_if_a_row_fits_registers():
    assert program_of("softmax_1_1001").text.count("exp_float32(v_2)") == 1
    assert program_of("softmax_2_20001").text.count("exp_float32(v_2)") == 2


def test_the_region_stands_above_its_kernels():
    case = CASES["gelu"]()
    text = program_of("gelu").text
    for line in str(case.region).splitlines():
        assert f"\n// {line}\n" in text


def test_an_input_that_is_overwritten_too_early_is_copied():
    assert program_of("inputs_that_overwrite_what_others_read").copied == ("v",)
    assert program_of("layer_norm_backward_in_place").copied == ()


def test_large_index_spaces_are_counted_in_64_bits():
    region = CASES["gelu"]().region
    places = [Memory(0, (4,)), Memory(0, (4,))]
    small, large = (launch.prepare(region, places, {"n": n}).text for n in (2**30, 2**32))
    assert "const unsigned int items" in small
    assert "const long long items" in large


def test_strides_between_elements_are_refused():
    region = CASES["gelu"]().region
    with pytest.raises(ShapeError, match="strides of"):
        launch.prepare(region, [Memory(0, (6,)), Memory(0, (4,))], {"n": 5})


def test_calls_of_the_same_kind_are_prepared_once(monkeypatch):
    case = CASES["gelu"]()
    prepared = {}
    monkeypatch.setattr(launch, "_programs", prepared)
    monkeypatch.setattr(launch, "MAX_PREPARED_CALLS", 2)
    places = [Memory(0, (4,)), Memory(0, (4,))]
    first = launch.prepared_program(case.region, places, {"n": 8})
    assert launch.prepared_program(case.region, places, {"n": 8}) is first
    for n in (9, 10, 11):
        launch.prepared_program(case.region, places, {"n": n})
    assert len(prepared) == 2
    assert launch.prepared_program(case.region, places, {"n": 8}) is not first


def test_kernels_of_a_module_are_compiled_once_for_each_device():
    made = []

    def raw_module(code, options):
        made.append(code)
        number = len(made)
        return types.SimpleNamespace(get_function=lambda name: (number, name))

    cupy = types.SimpleNamespace(RawModule=raw_module)
    programs = [program_of(name) for name in ("gelu", "adam", "gelu", "softmax_4_1001")]
    module = Module(cupy)
    assert all(module.add(p.code) is module for p in programs)
    found = [module.function(device, "name") for device in (0, 1, 0, 1)]
    assert found == [(1, "name"), (2, "name"), (1, "name"), (2, "name")]
    assert made[0] == made[1]
    names = kernels_of(made[0])
    assert len(names) == len(set(names)) == 3, "the same kernel is in the text once"
    assert made[0].count(SUPPORT.rstrip()) == 1
    assert module.add(programs[0].code) is not module, "what was compiled stays as it is"


def test_kernels_of_other_layouts_have_other_names():
    case = CASES["softmax_4_1001"]()
    turned = [np.asfortranarray(a) for a in case.inputs]
    one = prepared(case.region, case.inputs, case.outputs, case.sizes)
    other = prepared(case.region, turned, case.outputs, case.sizes)
    assert one.code != other.code
    assert set(kernels_of(one.text)).isdisjoint(kernels_of(other.text))


def test_without_cupy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    case = CASES["gelu"]()
    with pytest.raises(MissingExtraError, match="cupy"):
        launch.compute(case.region, case.inputs, case.outputs, case.sizes)


def test_every_instruction_is_written():
    emitter = CudaEmitter(CudaCode())
    assert [n for n in INSTRUCTIONS if not hasattr(emitter, n)] == []
    assert not hasattr(emitter, "no instruction")


def test_functions_are_written_once_and_before_they_are_called():
    code = CudaCode()
    emitter = CudaEmitter(code)
    x = CudaOperand("x", "float32")
    emitter.exp(emitter.exp(x))
    assert [line.split("= ")[1] for line in code.lines] == ["exp_float32(x);", "exp_float32(t1);"]
    assert list(code.functions) == ["exp_float32"]


# For GPUs ----------------------------------------------------------------------------------------


@pytest.mark.soak
@needs_nvcc
def test_all_texts_compile_for_gpus(tmp_path):
    calls = [make() for make in CASES.values()]
    texts = [prepared(c.region, c.inputs, c.outputs, c.sizes).text for c in calls]
    texts += [random_program(place(c)).text for c in map(seeded, range(8)) if written(c)]
    functions = [f for f in FUNCTION_CALLS if f[0] in ("exp", "erf", "tanh", "power")]
    texts += [prepared(*function_call(*f)).text for f in functions]
    texts = list(dict.fromkeys(texts))
    ptx = compile_for_gpus(texts, tmp_path)
    assert "ld.global.nc.v4" in ptx and "st.global.v4" in ptx, "packs are single accesses"
    if shutil.which("ptxas"):
        for level, architecture in (("-O0", "80"), ("-O1", "90")):
            called(["ptxas", level, f"-arch=sm_{architecture}", "all.ptx", "-o", "all.o"], tmp_path)


@needs_nvcc
def test_nvcc_finds_a_wrong_text(tmp_path):
    text = program_of("gelu").text.replace("erf_float32(v_", "erf_float32(v_none_", 1)
    (tmp_path / "all.cu").write_text(joined([text]))
    with pytest.raises(AssertionError, match="undefined"):
        called(["nvcc", "-std=c++17", "-ptx", "all.cu"], tmp_path)
