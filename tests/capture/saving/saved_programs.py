"""Programs whose graphs are saved and loaded in the tests, and the pieces of their files."""

import json

import numpy as np

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.op import ops

FLOAT32 = np.dtype("float32")


def spec(*shape, dtype="float32", name=None):
    return ef.TensorSpec(shape, dtype, name)


def dense():
    """A layer with a Variable that it assigns, a constant, scopes, and a nest as its result."""
    kernel = ef.Variable(np.arange(6.0).reshape(3, 2), name="dense/kernel", dtype="float32")
    shift = ef.tensor([1.0, 2.5])

    def program(x, flag):
        with ef.capture.scope("dense"):
            y = ef.tanh(x @ kernel) + shift
        kernel.assign(kernel * 0.5)
        return {"y": y, "n": 3, "z": [y[..., :1].sum(), None]}

    return ef.capture.trace(program, spec("batch", 3), True)


def attention():
    """Ops with several results, symbolic sizes, and attributes of many kinds."""
    scale = ef.Variable(0.5, name="scale")

    def program(q, k):
        weights = ef.softmax(q @ k.mT * scale, axis=-1)
        top, places = ef.top_k(weights, 2)
        whole = ef.concat([weights, ef.pad(weights, ((0, 0), (1, 2)))], axis=1)
        flat = ef.reshape(whole, (-1,))
        return top, places, flat[::2], ef.where(weights > 0.1, weights, float("-inf"))

    return ef.capture.trace(program, spec("n", 4), spec("m", 4))


def training_step():
    """A step of gradient descent: a captured gradient, several Variables, random numbers."""
    w = ef.Variable(np.linspace(-1, 1, 12).reshape(4, 3), name="w", dtype="float32")
    b = ef.Variable(np.zeros(3), name="b", dtype="float32")
    steps = ef.Variable(0, name="steps", dtype="int64")

    def step(x, labels):
        with ef.GradientTape() as tape:
            loss = ef.softmax_cross_entropy(x @ w + b, ef.one_hot(labels, 3)).mean()
        for variable, gradient in zip((w, b), tape.gradient(loss, [w, b]), strict=True):
            variable.assign_sub(0.1 * gradient)
        steps.assign_add(1)
        return {"loss": loss}

    return ef.capture.trace(step, spec(8, 4, name="x"), spec(8, dtype="int64", name="labels"))


def flags():
    """A program with a constant and a Variable of truth values."""
    shown = ef.Variable([True, False, True], name="shown")
    wanted = ef.tensor([False, True, True])
    return ef.capture.trace(lambda x: x & shown & wanted, spec(3, dtype="bool"))


def loops():
    """Ops that hold graphs, one in another."""
    w = ef.Variable([[0.5, 0.1], [0.2, 0.3]], name="w")

    def step(carry, x):
        made = ef.cond(x.sum() > 0.0, lambda: ef.tanh(carry @ w + x), lambda: carry * 0.5)
        return made, made.sum()

    def program(start, xs):
        last, sums = ef.scan(step, start, xs)
        return last, sums, ef.fori_loop(0, 3, lambda i, x: x * 2.0 + 1.0, last)

    return ef.capture.trace(program, spec(2), spec("n", 2))


PROGRAMS = {f.__name__: f for f in (dense, attention, training_step, flags, loops)}


def branch(name="body", inner=None):
    """A graph of one input, made by hand, that may hold another one in its node."""
    x = Value("x", (2,), FLOAT32)
    if inner is None:
        node = Node(ops["tanh"], (x,), {}, "tanh", ("body.py", 3, "body"))
    else:
        node = Node(ops["test_call"], (x,), {"body": inner}, "call")
    node.outputs = (Value(node.name, (2,), FLOAT32, None, node),)
    return Graph(name, Values([x], ["x"]), [node], Values(node.outputs, ["y"]))


def pieces(data):
    """The header, as a dict, and the arrays' bytes of a file."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header, arrays=b""):
    """A file of a header, which is a dict or text or bytes, and bytes."""
    if not isinstance(header, str | bytes):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode("utf-8", "surrogatepass")
    return len(header).to_bytes(8, "little") + header + arrays


def sections(data):
    """The tables of the graph in a file, each a list of parsed rows."""
    return json.loads(pieces(data)[0]["__metadata__"]["graph"])


def text_of(tables):
    """Tables as the text that a file holds; rows may be text already."""
    rows = {
        name: ",\n".join(
            r if isinstance(r, str) else json.dumps(r, separators=(",", ":")) for r in part
        )
        for name, part in tables.items()
    }
    ends = {name: "\n]" if part else "]" for name, part in rows.items()}
    return "{" + ",\n".join(f'"{name}":[\n{rows[name]}{ends[name]}' for name in rows) + "}"


def with_text(data, text):
    """A file with another text of its graph."""
    header, arrays = pieces(data)
    header["__metadata__"]["graph"] = text
    return joined(header, arrays)


def changed(data, change):
    """A file whose tables were changed by ``change(tables)``."""
    tables = sections(data)
    change(tables)
    return with_text(data, text_of(tables))


def loaded(graph):
    return file.decode(file.encode(graph))


def cell(name, variable):
    """A cell of a graph that is made by hand."""
    return Cell(name, variable, Value(name, variable.shape, variable.dtype, device="cpu:0"))
