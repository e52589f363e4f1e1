"""Files from anywhere: none crashes, hangs, runs code, or takes memory that it does not fill."""

import ast
import inspect
import itertools
import json
import os
import subprocess
import sys
import time

import pytest

import eagerflow as ef
from eagerflow.capture.saving import decoding, file
from eagerflow.errors import DeviceError, EagerflowError, FileFormatError
from eagerflow.files import container
from eagerflow.graph import plain
from eagerflow.op import ops
from tests.capture.saving import crafted, mutation
from tests.capture.saving.hostile_worker import every_crafted
from tests.capture.saving.nested_op import test_call
from tests.capture.saving.saved_programs import PROGRAMS, branch, dense
from tests.structure.sources import ROOT

MUTANTS = 4_000
RUN = 400  # of them are run as well
SECONDS = 2.0  # of one core, for one file: a file of 60 MB takes 0.7 where nothing else runs
MEMORY = 64 << 20  # beside twice the file
WRITING = {"pack", "encode_plain", "_encode_dim", "encode_structure", "_encode_key"}
LARGE = (
    "a million tensors",
    "a million texts",
    "an emoji before 20 MB",
    "20 MB of quotes",
    "20 MB of blanks",
    "20 MB of brackets",
    "list of ten million",
    "list of 400,000",
    "a million keys",
    "shared rows",
    "many results of one name",
    "text with four million lines",
    "a billion parts",
    "a billion pieces",
    "sizes that explode",
    "doubled 30 times",
)


@pytest.fixture(autouse=True)
def nested():
    with test_call():
        yield


def outcome(data):
    """The error of a file, or None; and the seconds that it took."""
    start = time.process_time()
    try:
        file.decode(data)
        error = None
    except EagerflowError as raised:
        error = raised
    return error, time.process_time() - start


def check_error(name, error):
    assert isinstance(error, FileFormatError), (name, error)
    words = str(error)
    assert len(words) < 3000, name
    assert words.replace("\n", "").isprintable(), name


def test_crafted_files_are_refused():
    count, slowest, accepted = 0, (0.0, ""), []
    for name, data in every_crafted():
        error, seconds = outcome(data)
        count += 1
        slowest = max(slowest, (seconds, name))
        if error is None:
            accepted.append(name)
        else:
            check_error(name, error)
    print(f"{count} crafted files; slowest: {slowest[0]:.2f} s, {slowest[1]}")
    assert count >= 200
    assert accepted == []
    assert slowest[0] < SECONDS, slowest


def run_mutants(first, count):
    """How many mutants were right all the same; the slowest; and what was accepted."""
    slowest, right = (0.0, 0), 0
    for number in range(first, first + count):
        error, seconds = outcome(mutation.mutant(number))
        slowest = max(slowest, (seconds, number))
        right += error is None
        if error is not None and not isinstance(error, DeviceError):
            check_error(number, error)
    return right, slowest


def test_mutants_give_typed_errors():
    right, slowest = run_mutants(0, MUTANTS)
    print(f"{MUTANTS:,} mutants, {right:,} of them right; slowest: {slowest[0]:.3f} s")
    assert 0 < right < MUTANTS // 2
    assert slowest[0] < SECONDS, slowest


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_a_million_mutants(part):
    _, slowest = run_mutants(MUTANTS + part * 50_000, 50_000)
    assert slowest[0] < SECONDS, slowest


def lines_of(error):
    """File and line of every frame of an error, and of those that it came from."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
            trace = trace.tb_next
        error = error.__context__


def refusals(module):
    """(file, first line, last line) of every call that refuses something while reading."""
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(function, ast.FunctionDef) or function.name in WRITING:
            continue
        for call in ast.walk(function):
            name = (
                getattr(call.func, "attr", getattr(call.func, "id", ""))
                if isinstance(call, ast.Call)
                else ""
            )
            if name in ("fail", "_fail"):
                yield module.__file__, call.lineno, call.end_lineno


def test_every_refusal_is_met():
    """The files are worth something: each sentence that refuses one is said to some."""
    met = set()
    files = (data for _, data in every_crafted() if len(data) < 10**6 or data[8:9] != b"[")
    for data in itertools.chain(files, map(mutation.mutant, range(1000))):
        error, _ = outcome(data)
        met.update(lines_of(error))
    wanted = [place for module in (container, decoding, plain) for place in refusals(module)]
    missed = [
        f"{path}:{first}"
        for path, first, last in wanted
        if not any((path, line) in met for line in range(first, last + 1))
    ]
    print(f"{len(wanted)} places that refuse files")
    assert len(wanted) > 60
    assert missed == []


def test_errors_of_rules_that_meet_anything(monkeypatch):
    """What an op's rule raises, also one from elsewhere, becomes an error of the file."""
    data = file.encode(branch("outer", branch("inner")))
    monkeypatch.setattr(ops["test_call"], "infer", lambda x, body: 5)
    with pytest.raises(FileFormatError, match="breaks a rule"):
        file.decode(data)


def worker(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tests.capture.saving.hostile_worker", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_loading_runs_nothing_and_opens_one_file(tmp_path):
    (found,) = worker("watch", 0, 200, tmp_path)
    print(f"{found['events']:,} events")
    assert found["bad"] == []
    assert found["events"] > 1000
    assert {"compile", "exec", "open"} <= set(found["planted"])


@pytest.mark.soak
def test_loading_runs_nothing_in_all_mutants(tmp_path):
    (found,) = worker("watch", 0, MUTANTS, tmp_path)
    assert found["bad"] == []


def run_under_watch(first, count, folder):
    """Load and run mutants: nothing happens that a run has no need of, and errors are ours."""
    (found,) = worker("run", first, count, folder)
    print(f"{found['ran']:,} ran, {found['programs']:,} programs")
    assert found["bad"] == []
    assert found["untyped"] == []
    assert {"compile", "exec"} <= set(found["planted"])
    assert found["ran"] > count // 20
    assert found["programs"] > count // 10


def test_loaded_mutants_run_nothing_but_their_plan(tmp_path):
    run_under_watch(MUTANTS, RUN, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(50))
def test_half_a_million_mutants_run(part, tmp_path):
    run_under_watch(2 * MUTANTS + part * 10_000, 10_000, tmp_path)


@pytest.mark.soak
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_memory_is_bounded_by_the_file(tmp_path):
    found = worker("memory", json.dumps(LARGE), tmp_path)
    assert sorted(f["name"] for f in found) == sorted(LARGE)
    beside = [(f["grown"] - 2 * f["size"], f["name"]) for f in found]
    print(f"most beside twice the file: {max(beside)[0] / 2**20:.1f} MB, {max(beside)[1]}")
    assert {f["error"] for f in found} == {"FileFormatError"}
    assert max(f["grown"] for f in found) > 10 << 20  # else nothing is measured
    assert max(beside)[0] <= MEMORY, max(beside)


# What stands in the place of a file --------------------------------------------------------------


def refused(path):
    with pytest.raises(FileFormatError) as caught:
        ef.capture.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_folder(tmp_path):
    words = refused(tmp_path)
    assert "Is a directory" in words and "try: give the name of a file in it" in words


def test_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "model.ef")
    assert "pipe" in refused(tmp_path / "model.ef")


def test_device_is_no_file():
    assert "device" in refused("/dev/zero")


def test_missing_file(tmp_path):
    words = refused(tmp_path / "nothing.ef")
    assert "No such file" in words and "try: check the path" in words


def test_symlink_is_followed_and_dangling_or_circular_refused(tmp_path):
    dense().save(tmp_path / "model.ef")
    (tmp_path / "link.ef").symlink_to("model.ef")
    assert ef.capture.load(tmp_path / "link.ef").name == "program"
    (tmp_path / "dangling.ef").symlink_to("nothing.ef")
    (tmp_path / "circle.ef").symlink_to("circle.ef")
    refused(tmp_path / "dangling.ef")
    refused(tmp_path / "circle.ef")


@pytest.mark.parametrize("path", ["", "a\0b", 5, None, ["a"]])
def test_paths_that_are_none(path):
    with pytest.raises(FileFormatError, match="is not a path"):
        ef.capture.load(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zip", "a zip archive, as .npz, .keras and .pt files are"),
        ("pickle 4", "a pickle"),
        ("HDF5", "HDF5"),
        ("npy", "a NumPy array"),
        ("JSON", "JSON"),
        ("gzip", "gzip"),
        ("script", "no safetensors file, or it is cut off"),
    ],
)
def test_other_formats_are_named(name, words, tmp_path):
    (tmp_path / "model.ef").write_bytes(dict(crafted.strangers())[name])
    assert words in refused(tmp_path / "model.ef")


@pytest.mark.parametrize("program", PROGRAMS)
def test_file_that_shrinks_while_it_is_read(program):
    """Every read may find less than there was."""
    data = file.encode(PROGRAMS[program]())
    for stop in range(0, len(data), 97):

        def fill(start, memory, stop=stop):
            part = data[start : min(stop, start + len(memory))]
            memory[: len(part)] = part
            return len(part)

        with pytest.raises(FileFormatError):
            file.read_graph(len(data), fill)
