"""The commands for saved graphs, as a user types them."""

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.cli import main
from eagerflow.cli.run import file_names
from tests.capture.saving.saved_programs import changed


def build(activation=ef.tanh):
    w = ef.Variable(ef.ones((3, 2)), name="w")

    def f(x, scale):
        with ef.capture.scope("dense"):
            h = activation(x @ w)
        w.assign(w * 0.5)
        return {"y": h * scale, "a/b": ef.sum(h)}

    x = ef.TensorSpec(("n", 3), "float32")
    return ef.capture.trace(f, x, ef.TensorSpec((), "float32"), name="f")


@pytest.fixture
def folder(tmp_path):
    build().save(tmp_path / "old.ef")
    build().save(tmp_path / "same.ef")
    build(ef.sin).save(tmp_path / "new.ef")
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    np.save(tmp_path / "wide.npy", np.ones((2, 4), np.float32))
    np.save(tmp_path / "double.npy", np.ones((2, 3)))
    np.save(tmp_path / "complex.npy", np.ones((2, 3), np.complex64))
    (tmp_path / "broken.npy").write_bytes(b"nothing of that kind")
    (tmp_path / "broken.ef").write_bytes(b"\x08" + b"\x00" * 7 + b"{}      ")
    return tmp_path


@pytest.fixture
def command(folder, capsys, monkeypatch):
    """Runs a command in the folder; gives status, output and errors."""
    monkeypatch.chdir(folder)

    def run(*arguments):
        status = main(list(arguments))
        return status, *capsys.readouterr()

    return run


def test_in_a_process_of_its_own(folder):
    files = str(folder / "old.ef"), str(folder / "new.ef")
    call = [sys.executable, "-m", "eagerflow.cli", "diff", *files]
    result = subprocess.run(call, capture_output=True, text=True, timeout=300)
    assert result.returncode == 1, result.stderr
    assert "+  dense/sin: float32[n, 2] = sin(dense/matmul)" in result.stdout


def test_show_lists(command):
    status, out, _ = command("show", "old.ef")
    assert status == 0
    assert out.startswith("graph f(x: float32[n, 3], scale: float32[]):\n  variables\n")
    assert "# test_graph_commands.py:" in out
    assert "test_graph_commands.py" not in command("show", "old.ef", "--no-lines")[1]


def test_show_draws(command, folder):
    assert command("show", "old.ef", "--dot")[1].startswith('digraph "f" {\n')
    status, out, _ = command("show", "old.ef", "--draw", "picture.svg")
    assert status == 0 and out.strip() == str(folder.resolve() / "picture.svg")
    ElementTree.parse(folder / "picture.svg")
    status, _, err = command("show", "old.ef", "--draw", "picture.bmp")
    assert status == 2 and "no pictures of the kind '.bmp'" in err


def test_show_counts(command):
    assert "costs of f\n" in command("show", "old.ef", "--costs")[1]
    status, out, _ = command("show", "old.ef", "--costs", "--size", "n=4")
    assert status == 0 and out.startswith("costs of f for n=4\n")
    status, _, err = command("show", "old.ef", "--costs", "--size", "n=four")
    assert status == 2 and "--size n=four is not a size" in err


def test_diff_has_the_status_of_diff(command):
    assert command("diff", "old.ef", "same.ef") == (0, "", "")
    status, out, _ = command("diff", "old.ef", "new.ef")
    assert status == 1 and out.startswith("--- f\n+++ f\n@@ nodes\n")
    assert command("diff", "old.ef", "new.ef", "--quiet") == (1, "", "")
    status, out, err = command("diff", "old.ef", "gone.ef")
    assert (status, out) == (2, "") and "there is no file gone.ef" in err


def test_check_reports_the_broken_file(command):
    status, out, err = command("check", "old.ef", "new.ef")
    assert (status, err) == (0, "") and out.count("keeps all rules") == 2
    status, out, err = command("check", "broken.ef", "old.ef")
    assert status == 1 and err.startswith("broken.ef: ") and "old.ef: <Graph f(" in out
    assert command("check", "gone.ef")[0] == 2


def test_check_finds_a_fault_that_loading_would_let_pass(command, monkeypatch):
    graph = build()
    graph.nodes[1].outputs[0].shape = (7,)
    monkeypatch.setattr(ef.capture, "load", lambda path: graph)
    status, _, err = command("check", "old.ef")
    assert status == 1
    assert "old.ef: f" not in err and "dense/tanh = tanh(...): its outputs are not" in err


H = np.tanh(np.arange(6, dtype=np.float32).reshape(2, 3) @ np.ones((3, 2), np.float32))


def test_run_writes_arrays(command, folder):
    arguments = ("--feed", "x=x.npy", "--feed", "scale=2.0", "--out", "results")
    status, out, err = command("run", "old.ef", *arguments)
    assert (status, err) == (0, "")
    assert "y: float32[2, 2] in " in out
    np.testing.assert_allclose(np.load(folder / "results" / "y.npy"), H * 2, rtol=1e-6)
    np.testing.assert_allclose(np.load(folder / "results" / "a_b.npy"), H.sum(), rtol=1e-6)


def test_run_prints_and_fetches(command):
    status, out, _ = command("run", "old.ef", "--feed", "x=x.npy", "--fetch", "dense/tanh")
    assert status == 0 and out.startswith("dense/tanh = Tensor([[0.9951")
    status, out, _ = command("run", "old.ef", "--feed", "x=double.npy", "--feed", "scale=1")
    assert status == 0 and "y = Tensor(" in out
    status, out, _ = command("run", "old.ef", "--feed", "x=[[1, 2, 3]]", "--fetch", "dense/matmul")
    assert status == 0 and "[[6., 6.]]" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--feed", "x=x.npy"), "no value is given for scale\n  expected: inputs x: float32(n, 3)"),
        (("--feed", "x=x.npy", "--feed", "scale=1", "--feed", "z=1"), "there is no input 'z'"),
        (("--feed", "x"), "--feed x has no name and value"),
        (("--feed", "x=wide.npy", "--feed", "scale=1"), "x: the array has another shape"),
        (("--feed", "x=complex.npy", "--feed", "scale=1"), "x: the array has another dtype"),
        (("--feed", "x=broken.npy", "--feed", "scale=1"), "broken.npy is not an array"),
        (("--feed", "x=gone.npy", "--feed", "scale=1"), "No such file"),
        (("--feed", "x=hello", "--feed", "scale=1"), "--feed x=hello is not a value"),
        (("--feed", 'x={"a": 1}', "--feed", "scale=1"), "is not a value"),
        (("--feed", "x=[[1], [1, 2]]", "--feed", "scale=1"), "is not a value"),
        (("--feed", "x=x.npy", "--fetch", "dense/tan"), "did you mean 'dense/tanh'"),
    ],
)
def test_run_reports_invalid_arguments(command, arguments, words):
    status, out, err = command("run", "old.ef", *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize("count", [60, 500, 100_000])
def test_long_lists_are_no_names_of_files(command, folder, count):
    ef.capture.trace(lambda x: ef.sum(x), ef.TensorSpec(("n",), "float32")).save(folder / "sum.ef")
    numbers = ", ".join(["1.5"] * count)
    status, out, err = command("run", "sum.ef", "--feed", f"x=[{numbers}]")
    assert (status, err) == (0, "")
    assert out.startswith("output = Tensor(")
    status, _, err = command("run", "sum.ef", "--feed", f"x=[{numbers}")  # no end
    assert status == 2 and "is not a value" in err


def test_a_number_is_never_the_name_of_a_file(command, folder):
    for name in ("1", "[1]"):
        (folder / name).write_bytes(b"not an array")
    ef.capture.trace(lambda x: x * 2.0, ef.TensorSpec((), "float32")).save(folder / "twice.ef")
    assert command("run", "twice.ef", "--feed", "x=1")[1] == "output = Tensor(2., float32, cpu:0)\n"
    np.save(folder / "plain", np.float32(4.0))
    (folder / "plain.npy").rename(folder / "plain")
    assert command("run", "twice.ef", "--feed", "x=plain")[1].startswith("output = Tensor(8.")


@pytest.mark.parametrize(
    "odd", ["\x1b[2J\x1b]0;t\x07", "\u202e", "\r", "\n  try: rm -r", "\n    try: rm -r"]
)
def test_commands_print_no_terminal_control_characters(command, folder, odd):
    base = file.encode(build())

    def change(tables):
        tables["sources"] = [[f"{odd}.py", 1, odd] for _ in tables["sources"]]
        tables["graphs"][-1]["name"] = odd
        tables["graphs"][-1]["inputs"][0][:2] = [odd, odd]
        tables["graphs"][-1]["outputs"][0][0] = odd
        tables["nodes"][1][1] = f"dense/{odd}"

    def wrong(tables):
        change(tables)
        tables["nodes"][1][5] = [0]

    (folder / "odd.ef").write_bytes(changed(base, change))
    (folder / "wrong.ef").write_bytes(changed(base, wrong))
    feeds = ("--feed", f"{odd}=[[1, 2, 3]]", "--feed", "scale=1")
    calls = [
        ("show", "odd.ef"),
        ("show", "odd.ef", "--costs"),
        ("show", "odd.ef", "--dot"),
        ("show", "odd.ef", "--costs", "--size", "n=2"),
        ("check", "odd.ef"),
        ("check", "wrong.ef"),
        ("run", "odd.ef"),
        ("run", "odd.ef", *feeds),
        ("run", "odd.ef", *feeds, "--out", "made"),
        ("run", "odd.ef", "--fetch", "no"),
        ("diff", "old.ef", "odd.ef"),
        ("show", "wrong.ef"),
    ]
    for call in calls:
        _, out, err = command(*call)
        assert out or err
        assert all(line.isprintable() for line in (out + err).split("\n")), call
        assert "\n  try: rm -r" not in out + err, call


def test_pickles_are_not_loaded(command, folder):
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    status, _, err = command("run", "old.ef", "--feed", "x=objects.npy", "--feed", "scale=1")
    assert status == 2 and "objects.npy is not an array" in err


def test_named_sizes_have_to_agree(command, folder):
    spec = ef.TensorSpec(("n",), "float32")
    ef.capture.trace(lambda a, b: a + b, spec, spec).save(folder / "two.ef")
    arguments = ("run", "two.ef", "--feed", "a=[1, 2]", "--feed")
    assert command(*arguments, "b=[3, 4]")[1] == "output = Tensor([4., 6.], float32, cpu:0)\n"
    status, _, err = command(*arguments, "b=[3]")
    assert status == 2 and "expected: float32(n,) with n=2" in err


def test_files_stay_in_their_folder():
    names = ["../../a", "a/b", "a_b", "..", "", "ok.x"]
    assert file_names(names) == [
        "_.._a.npy",
        "a_b.npy",
        "a_b_1.npy",
        "_.npy",
        "__1.npy",
        "ok.x.npy",
    ]


@pytest.mark.parametrize("arguments", [["show"], ["diff", "a"], ["show", "a", "--dot", "--costs"]])
def test_wrong_usage_is_explained(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: eagerflow" in capsys.readouterr().err
