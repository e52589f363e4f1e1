"""The commands for graphs that come and go as ONNX models, as a user types them."""

from pathlib import Path

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cli import main

pytest.importorskip("onnx", reason="onnx is not installed")

H = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def build(activation=ef.tanh):
    w = ef.Variable(H, name="w")

    def f(x, scale):
        with ef.capture.scope("dense"):
            h = activation(x @ w)
        return {"y": h * scale, "rows": ef.sum(h, axis=0)}

    specs = [ef.TensorSpec(shape, "float32") for shape in (("n", 3), ())]
    return ef.capture.trace(f, *specs, name="f")


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """Runs a command in a folder with files; gives status, output and errors."""
    build().save(tmp_path / "old.ef")
    ef.capture.export_onnx(build(), tmp_path / "old.onnx")
    ef.capture.export_onnx(build(ef.sin), tmp_path / "new.onnx")
    model = ef.nn.Sequential([ef.nn.Input((3,), name="x"), ef.nn.Dense(2, name="out")], name="net")
    model.save(tmp_path / "model.ef")
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 8
    np.savez(tmp_path / "both.npz", x=x, scale=np.float32(2.0))
    np.savez(tmp_path / "x.npz", values=x)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "broken.onnx").write_bytes(b"nothing of that kind")
    np.save(tmp_path / "x.npy", x)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = main(list(arguments))
        return status, *capsys.readouterr()

    return run


X = np.arange(6, dtype=np.float32).reshape(2, 3) / 8
Y = np.tanh(X @ np.array(H, np.float32)) * 2


def arrays(command, *arguments):
    """What a run writes, by name."""
    status, _, err = command("run", *arguments, "--out", "made")
    assert (status, err) == (0, "")
    return {path.stem: np.load(path) for path in Path("made").glob("*.npy")}


# Export -------------------------------------------------------------------------------------------


def test_export_makes_a_model_that_gives_the_same(command, tmp_path):
    status, out, err = command("export", "old.ef", "--to", "onnx", "-o", "made.onnx")
    assert (status, err) == (0, "")
    size = (tmp_path / "made.onnx").stat().st_size
    assert out.startswith("made.onnx: <Graph f(") and out.endswith(f"{size:,} bytes\n")
    feeds = ("--feed", "x=x.npy", "--feed", "scale=2")
    for file in ("old.ef", "made.onnx"):
        found = arrays(command, file, *feeds)
        np.testing.assert_allclose(found["y"], Y, rtol=1e-5)
        np.testing.assert_allclose(found["rows"], Y.sum(axis=0) / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (("old.ef", "--to", "onnx"), "old.onnx"),
        (("old.ef", "-o", "other.onnx"), "other.onnx"),
        (("old.ef", "--to", "onnx", "-o", "plain"), "plain"),
        (("new.onnx", "--to", "ef"), "new.ef"),
        (("model.ef", "--to", "onnx"), "model.onnx"),
        (("old.ef", "--to", "onnx", "--opset", "18"), "old.onnx"),
    ],
)
def test_format_and_name_follow_from_each_other(command, tmp_path, arguments, made):
    status, out, err = command("export", *arguments)
    assert (status, err) == (0, "") and out.startswith(f"{made}: <Graph")
    data = (tmp_path / made).read_bytes()
    is_ours = data[8:9] == b"{"
    assert is_ours == made.endswith(".ef")


def test_the_opset_is_the_one_asked_for(command, tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    assert command("export", "old.ef", "-o", "made.onnx", "--opset", "19")[0] == 0
    assert onnx.load(tmp_path / "made.onnx").opset_import[0].version == 19


def test_a_saved_model_is_exported_for_any_batch(command):
    assert command("export", "model.ef", "-o", "net.onnx")[0] == 0
    assert "graph net(x: float32[batch, 3])" in command("show", "net.onnx")[1]
    assert command("run", "net.onnx", "--random", "--size", "batch=5")[1].count("[") >= 5


def test_export_to_python(command, tmp_path):
    status, _, err = command("export", "old.ef", "--to", "python")
    assert (status, err) == (0, "")
    assert "import numpy" in (tmp_path / "old.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("old.ef",), "no output format is given"),
        (("gone.ef", "--to", "onnx"), "there is no file gone.ef"),
        (("old.ef", "--to", "ef"), "old.ef is the file itself"),
        (("old.ef", "-o", "made.ef", "--opset", "21"), "--opset does not apply to the format 'ef'"),
        (("old.ef", "-o", "no/folder.onnx"), "No such file or directory"),
        (("broken.onnx", "--to", "ef"), "this is not an ONNX model"),
    ],
)
def test_export_reports_invalid_arguments(command, arguments, words):
    status, out, err = command("export", *arguments)
    assert (status, out) == (2, "")
    assert words in err and "Traceback" not in err


def test_unsupported_onnx_export_is_reported_in_one_sentence(command, tmp_path):
    spec = ef.TensorSpec(("n",), "complex64")
    ef.capture.trace(lambda x: x * x, spec).save(tmp_path / "complex.ef")
    status, out, err = command("export", "complex.ef", "--to", "onnx")
    assert (status, out) == (2, "")
    assert "ONNX has no operators for complex numbers" in err
    assert not (tmp_path / "complex.onnx").exists()


# Reading ------------------------------------------------------------------------------------------


def test_show(command):
    status, out, _ = command("show", "old.onnx")
    assert status == 0
    assert out.startswith("graph f(x: float32[n, 3], scale: float32[]):\n")
    assert "= tanh(" in out
    assert command("show", "old.onnx", "--costs", "--size", "n=4")[1].startswith("costs of f for")
    status, out, err = command("show", "broken.onnx")
    assert (status, out) == (2, "") and "this is not an ONNX model" in err


def test_check(command):
    status, out, err = command("check", "old.onnx", "old.ef", "model.ef", "broken.onnx")
    assert status == 1 and out.count("keeps all rules") == 3
    assert err.startswith("broken.onnx: ")


def test_check_reports_unsupported_ops(command, tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    text = '<ir_version: 10, opset_import: ["" : 21, "odd" : 1]> g (float[2] x) => (float[2] y)'
    model = onnx.parser.parse_model(text + " { y = odd.Dance(x) }")
    onnx.save(model, tmp_path / "odd.onnx")
    status, _, err = command("check", "odd.onnx")
    assert status == 1 and "Dance" in err


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("old.ef", "old.onnx", 1),  # Variables are constants there, and names longer
        ("old.onnx", "new.onnx", 1),
        ("old.onnx", "old.onnx", 0),
        ("model.ef", "old.onnx", 1),
    ],
)
def test_diff_of_any_two(command, old, new, status):
    found, out, err = command("diff", old, new)
    assert (found, err) == (status, "")
    assert bool(out) == bool(status)


# Running ------------------------------------------------------------------------------------------


def test_feeds_of_one_file(command):
    for feeds in (["both.npz"], ["x=x.npz", "scale=2"], ["x=both.npz", "scale=both.npz"]):
        found = arrays(command, "old.onnx", *(word for f in feeds for word in ("--feed", f)))
        np.testing.assert_allclose(found["y"], Y, rtol=1e-5)


def test_random_values_fit_and_are_the_same_again(command):
    first = arrays(command, "old.onnx", "--random")
    assert first["y"].shape == (1, 2)
    again = arrays(command, "old.ef", "--random", "0")
    np.testing.assert_allclose(again["y"], first["y"], rtol=1e-5)
    other = arrays(command, "old.ef", "--random", "1", "--size", "n=4")
    assert other["y"].shape == (4, 2) and other["y"][0, 0] != first["y"][0, 0]
    fed = arrays(command, "old.ef", "--random", "--feed", "x=x.npy")
    assert fed["y"].shape == (2, 2)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64", "complex64"])
def test_random_values_of_each_kind(command, tmp_path, dtype):
    spec = ef.TensorSpec(("n", 40), dtype)
    ef.capture.trace(lambda x: {"x": ef.concat([x, x])}, spec).save(tmp_path / "any.ef")
    assert command("run", "any.ef", "--random", "--out", "made")[0] == 0
    found = np.load("made/x.npy")
    assert found.shape == (2, 40) and len(np.unique(found[0].astype("complex64"))) >= 2
    if dtype in ("bool", "uint8", "int64"):
        assert set(np.unique(found)) == {0, 1}


@pytest.mark.parametrize(("arguments", "words"), [
    (("old.onnx", "--feed", "x=x.npy"), "--feed scale=scale.npy, or --random"),
    (("old.onnx", "--feed", "broken.npz"), "broken.npz is not an array in a .npz file"),
    (("old.onnx", "--feed", "gone.npz"), "No such file"),
    (("old.onnx", "--feed", "x.npz"), "there is no input 'values'"),
    (("old.onnx", "--feed", "z=1", "--random"), "there is no input 'z'"),
    (("old.onnx", "--random", "--feed", "x=x.npy", "--size", "n=3"), "another shape"),
    (("old.onnx", "--random", "--size", "n=many"), "--size n=many is not a size"),
    (("old.ef", "--feed", "scale=1", "--feed", "x=both.npz", "--feed", "x"), "no name"),
    (("model.ef", "--feed", "x=both.npz", "--fetch", "no"), "no"),
])  # fmt: skip
def test_run_reports_invalid_arguments(command, arguments, words):
    status, out, err = command("run", *arguments)
    assert (status, out) == (2, "")
    assert words in err and "Traceback" not in err


def test_random_values_of_a_dtype_that_files_lack(command, tmp_path):
    spec = ef.TensorSpec((2,), "bfloat16")
    ef.capture.trace(lambda x: x, spec).save(tmp_path / "small.ef")
    assert command("run", "small.ef", "--random")[1].endswith("bfloat16, cpu:0)\n")


def test_a_file_of_several_arrays_names_them(command, tmp_path):
    np.savez(tmp_path / "others.npz", a=X, b=X)
    status, _, err = command("run", "old.onnx", "--random", "--feed", "x=others.npz")
    assert status == 2 and "others.npz holds no array 'x'" in err and "one of a, b" in err


def test_sizes_in_attributes_are_those_that_are_fed(command):
    layers = [ef.nn.Input((2, 3), name="x"), ef.nn.Flatten(), ef.nn.Dense(2)]
    graph = ef.nn.Sequential(layers, name="flat").prediction_graph()
    graph.save("flat.ef")
    ef.capture.export_onnx(graph, "flat.onnx")
    first = arrays(command, "flat.ef", "--random", "--size", "batch=3")
    again = arrays(command, "flat.onnx", "--random", "--size", "batch=3")
    assert first["output"].shape == (3, 2)
    np.testing.assert_allclose(again["output"], first["output"], rtol=1e-5)


def test_a_model_comes_back_with_its_names_and_lines(command):
    layers = [ef.nn.Input((8, 8, 3), name="x"), ef.nn.Conv2D(4, 3, name="c"), ef.nn.MaxPooling2D(2)]
    layers += [ef.nn.Flatten(), ef.nn.Dense(2)]
    graph = ef.nn.Sequential(layers, name="net").prediction_graph()
    graph.save("net.ef")
    ef.capture.export_onnx(graph, "net.onnx")
    found = [command("show", name)[1].partition("return")[0] for name in ("net.ef", "net.onnx")]
    assert found[0] == found[1] and "in net/c:" in found[0]
