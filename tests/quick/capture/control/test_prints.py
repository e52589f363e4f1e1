"""``ef.print``: the same lines in the same order, however the code runs."""

import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, CaptureError, FileFormatError, ShapeError


def steps(x):
    """Prints in straight code, a loop, branches, a scan and a while loop; returns a number."""
    ef.print("start", x)

    def body(i, c):
        ef.print("step {} c {:.2f}", i, c)
        return ef.sin(c) * 2

    c = ef.fori_loop(0, 2, body, x)
    c = ef.cond(c > 1.5, lambda: above(c), lambda: below(c))

    def add(total, y):
        ef.print("scan", y)
        return total + y, y

    total, _ = ef.scan(add, c, ef.arange(2.0))
    n = ef.while_loop(lambda k: k < 2, again, ef.tensor(0))
    ef.print("end", n)
    return total


def above(c):
    ef.print("above")
    return c * 2


def below(c):
    ef.print("below")
    return -c


def again(k):
    ef.print("while", k)
    return k + 1


LINES = """start 1.0
step 0 c 1.00
step 1 c 1.68
above
scan 0.0
scan 1.0
while 0
while 1
end 2
"""
X = ef.tensor(1.0)
RUNS = {
    "eager": steps,
    "captured": ef.function(steps),
    "exact": ef.function(steps, numerics="exact"),
    "gradient": ef.grad(steps),
    "gradient of captured": ef.grad(ef.function(steps)),
    "captured gradient": ef.function(ef.grad(steps)),
    "second gradient": ef.grad(ef.grad(ef.function(steps))),
    "checkpoint": ef.grad(ef.checkpoint(steps)),
    "captured checkpoint": ef.function(ef.grad(ef.checkpoint(steps))),
    "tangent": lambda x: ef.jvp(steps, (x,), (x,)),
    "vjp": lambda x: ef.vjp(steps, x)[1](ef.tensor(1.0)),
    "nested": ef.function(lambda x: ef.function(steps)(x) * 1.0),
}


@pytest.mark.parametrize("way", RUNS)
def test_lines_come_once_and_in_order(way, capsys):
    for _ in range(2):
        RUNS[way](X)
        assert capsys.readouterr().out == LINES


def test_branches_print_only_where_taken(capsys):
    f = ef.function(steps)
    f(X)
    f(ef.tensor(0.1))
    first, second = capsys.readouterr().out.split("start")[1:]
    assert "above" in first and "below" not in first
    assert "below" in second and "above" not in second


def test_values_are_those_of_the_run_and_change_nothing(capsys):
    w = ef.Variable([1.0, 2.0], name="w")

    def train(x, rate):
        with ef.GradientTape() as tape:
            loss = (x * w).sum()
            ef.print("loss {:.3f}, rate {}", loss, rate)
        (gradient,) = tape.gradient(loss, [w])
        w.assign_sub(gradient * rate)
        ef.print("w", w, {"g": gradient})
        return loss

    rows = []
    for f in (train, ef.function(train)):
        w.assign([1.0, 2.0])
        for i in range(3):
            f(ef.tensor([1.0, 2.0]), 0.5 * i)
        rows.append((capsys.readouterr().out, w.numpy().tolist()))
    assert rows[0] == rows[1]
    assert rows[0][0].startswith("loss 5.000, rate 0.0\nw [1., 2.] {'g': [1., 2.]}\n")


def test_all_examples_of_vmap_are_shown_together(capsys):
    def f(x):
        ef.print("x {:.1f}", x)
        return ef.cond(x > 1.5, lambda: above(x), lambda: below(x))

    for way in (ef.vmap(f), ef.function(ef.vmap(f))):
        assert way(ef.tensor([1.0, 2.0])).numpy().tolist() == [-1.0, 4.0]
        out = capsys.readouterr().out
        assert out.startswith("x [1.0, 2.0]\n") and sorted(out.split()[3:]) == ["above", "below"]
    ef.vmap(ef.vmap(lambda x: (ef.print("x", x), x)[1]))(ef.ones((1, 2)))
    assert capsys.readouterr().out == "x [[1., 1.]]\n"
    ef.vmap(lambda x: ef.fori_loop(0, 2, lambda i, c: (ef.print(i, c), c + x)[1], x))(
        ef.arange(2.0)
    )
    assert capsys.readouterr().out == "0 [0., 1.]\n1 [0., 2.]\n"


def test_graphs_print_wherever_they_run(tmp_path, capsys):
    graph = ef.capture.trace(steps, ef.TensorSpec((), "float32"))
    graph.check()
    graph.save(tmp_path / "g.ef")
    loaded = ef.capture.load(tmp_path / "g.ef")
    ways = {
        "graph": graph,
        "optimized": graph.optimized(),
        "loaded": loaded,
        "partitioned": ef.capture.partition(graph, ["cpu:0"]),
    }
    for way in ways.values():
        way(X)
        assert capsys.readouterr().out == LINES
    assert graph.gradient("output", "x")(X)["output"].shape == ()
    assert capsys.readouterr().out == LINES
    ef.capture.Session(loaded).run("output", {"x": X})  # computes no more than that
    assert capsys.readouterr().out == LINES.partition("while")[0]


def test_exports_print_nothing(tmp_path, capsys):
    graph = ef.capture.trace(steps, ef.TensorSpec((), "float32"), name="f")
    ef.capture.export_python(graph, tmp_path / "f.py")
    names = {}
    exec((tmp_path / "f.py").read_text(), names)
    want = float(steps(X))
    capsys.readouterr()
    assert float(names["f"](np.float32(1.0))) == pytest.approx(want)
    pytest.importorskip("onnx")
    ef.capture.export_onnx(graph, tmp_path / "f.onnx")
    back = ef.capture.import_onnx(tmp_path / "f.onnx")
    assert back.inputs.names == ("x",) and not back.cells
    assert float(back(X)["output"]) == pytest.approx(want)
    assert capsys.readouterr().out == ""


def test_layers_print_in_models(capsys):
    class Shown(ef.nn.Layer):
        def call(self, x):
            ef.print("rows {}", x.shape[0])
            return x * 2.0

    inputs = ef.nn.Input((3,))
    model = ef.nn.Model(inputs, ef.nn.Dense(1)(Shown()(inputs)))
    assert capsys.readouterr().out == ""
    model.compile("sgd", "mse")
    x, y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
    model.fit(x, y, batch_size=2, epochs=1, verbose=0)
    assert capsys.readouterr().out == "rows 2\nrows 2\n"
    with pytest.raises(CaptureError, match="a symbolic tensor has no value"):
        ef.print(inputs)


def test_what_is_printed_before_an_error_stays(capsys):
    @ef.function
    def f(x):
        ef.print("before", x.sum())
        return ef.linalg.inv(x)

    with pytest.raises(ef.errors.EagerflowError, match="singular"):
        f(ef.zeros((2, 2)))
    assert capsys.readouterr().out == "before 0.0\n"


def test_threads_print_whole_lines(capsys):
    f = ef.function(lambda x: (ef.print("x {}\nand {}", x, x), x)[1])
    team = [threading.Thread(target=f, args=(ef.tensor(float(i)),)) for i in range(8)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 16
    for one, other in zip(lines[::2], lines[1::2], strict=True):
        assert one.removeprefix("x") == other.removeprefix("and")


@pytest.mark.parametrize("capture", [lambda f: f, ef.function], ids=["eager", "captured"])
def test_text_is_that_of_print(capture, capsys):
    x, b = ef.tensor([1.5, 2.0]), ef.tensor(True)
    cases = [
        (("a", x, 3), {"sep": "|"}, "a|[1.5, 2. ]|3\n"),
        ((), {}, "\n"),
        (("{}",), {"end": "!"}, "{}!"),
        (("{:>4} {{}}", b), {}, "   1 {}\n"),
        (("{1} {0:.1f}", x, b), {}, "True [1.5, 2.0]\n"),
        (("{name}", b), {}, "{name} True\n"),
        (("{", x), {}, "{ [1.5, 2. ]\n"),
        (({"a": x, "b": [b, None]},), {}, "{'a': [1.5, 2. ], 'b': [True, None]}\n"),
        ((ef.tensor(1.5, dtype="bfloat16"), ef.tensor(1 + 2j)), {}, "1.5 (1+2j)\n"),
        ((np.arange(3), np.float32(2)), {}, "[0, 1, 2] 2.0\n"),
        (("\x1b[31m\0",), {}, "\\x1b[31m\\0\n"),
        ((ef.arange(200),), {}, "[  0,   1,   2, ..., 197, 198, 199]\n"),
        ((ef.zeros((0, 2)),), {}, "[]\n"),
        (("x", ef.ones((2, 2))), {}, "x [[1., 1.],\n   [1., 1.]]\n"),
    ]
    for values, more, want in cases:
        capture(lambda values=values, more=more: ef.print(*values, **more))()
        assert capsys.readouterr().out == want


def test_templates_and_formats_that_do_not_fit():
    with pytest.raises(ArgumentError, match="the text has 2 places for 1 values"):
        ef.print("{} {}", ef.ones(2))
    with pytest.raises(ArgumentError, match="a format does not fit float32"):
        ef.print("{:d}", ef.ones(2))


def test_graphs_from_files_with_wrong_texts_are_refused(tmp_path):
    graph = ef.capture.trace(lambda x: (ef.print("x", x), x)[1], ef.TensorSpec((), "float32"))
    (node,) = [node for node in graph.nodes if node.op.name == "print"]
    node.attributes["texts"] = ("x",)
    with pytest.raises((ShapeError, CaptureError, FileFormatError)):
        graph.check()
