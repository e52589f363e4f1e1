"""How programs read: whole texts, the form that ruff gives, lines of the right length."""

import importlib.util
import re
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
import eagerflow.capture
from eagerflow.standalone.layout import broken, folded
from tests.standalone.programs import WIDTH, module_of, text_of

MLP = '''
@np.errstate(all="ignore")
def mlp(x, weights):
    """Compute scores and best from x.

    Takes
        x: float32 (batch, 4)
        weights: what load_weights gives

    Returns
        scores: float32 (batch, 3)
        best: int64 (batch,)
    """
    x = np.asarray(x, np.float32)
    # test_texts.py:0: hidden = ef.relu(x @ w1 + b1)
    hidden = np.maximum(x @ weights["hidden"]["kernel"] + weights["hidden"]["bias"], 0)
    # test_texts.py:0: scores = ef.softmax(hidden @ w2)
    scores = softmax(hidden @ weights["top"]["kernel"])
    # test_texts.py:0: return {"scores": scores, "best": ef.argmax(scores, axis=-1)}
    best = np.argmax(scores, axis=-1)
    return {"scores": scores, "best": best}


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4), np.float32)
    print(mlp(x, load_weights(WEIGHTS)))
'''

CNN = '''
def conv2d(x, w):
    """Scope cnn/conv2d."""
    return np.maximum(conv(x, w["kernel"], padding="valid") + w["bias"], 0)


def conv2d_1(x, w):
    """Scope cnn/conv2d_1."""
    return conv(x, w["kernel"]) + w["bias"]


def batch_normalization(x, w):
    """Scope cnn/batch_normalization."""
    product = (w["moving_variance"] + 0.001) ** -0.5 * w["gamma"]
    return x * product + (-w["moving_mean"] * product + w["beta"])


def dense(x, w):
    """Scope cnn/dense."""
    return x @ w["kernel"] + w["bias"]


@np.errstate(all="ignore")
def cnn(image, weights):
    """Compute output from image.

    Takes
        image: float32 (batch, 28, 28, 1)
        weights: what load_weights gives

    Returns
        output: float32 (batch, 10)
    """
    image = np.asarray(image, np.float32)
    image = conv2d(image, weights["conv2d"])
    image = max_pool(image, window=2, strides=2)
    image = conv2d_1(image, weights["conv2d_1"])
    image = batch_normalization(image, weights["batch_normalization"])
    image = np.maximum(image, 0)
    image = np.mean(image, axis=(1, 2))
    return dense(image, weights["dense"])


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 28, 28, 1), np.float32)
    print(cnn(image, load_weights(WEIGHTS)))
'''

STEP = """
    x = np.asarray(x, np.float32)
    y = np.asarray(y, np.float32)
    n = x.shape[0]
    # test_texts.py:0: guess = x @ w
    guess = x @ state["w"]
    # test_texts.py:0: loss = ef.mean(ef.square(guess - y))
    difference = guess - y
    loss = np.mean(np.square(difference))
"""


def numbered(text):
    return re.sub(r"test_texts.py:\d+", "test_texts.py:0", text)


def mlp_graph():
    w1 = ef.Variable(np.zeros((4, 8), "f"), name="hidden/kernel")
    b1 = ef.Variable(np.zeros(8, "f"), name="hidden/bias")
    w2 = ef.Variable(np.zeros((8, 3), "f"), name="top/kernel")

    def mlp(x):
        hidden = ef.relu(x @ w1 + b1)
        scores = ef.softmax(hidden @ w2)
        return {"scores": scores, "best": ef.argmax(scores, axis=-1)}

    return ef.capture.trace(mlp, ef.TensorSpec(("batch", 4), "float32"))


def cnn_graph():
    layers = [
        ef.nn.Conv2D(8, 3, activation="relu", name="conv2d"),
        ef.nn.MaxPooling2D(2),
        ef.nn.Conv2D(16, 3, padding="same", name="conv2d_1"),
        ef.nn.BatchNormalization(name="batch_normalization"),
        ef.nn.ReLU(),
        ef.nn.GlobalAveragePooling2D(),
        ef.nn.Dense(10, name="dense"),
    ]
    model = ef.nn.Sequential([ef.nn.Input((28, 28, 1), name="image"), *layers], name="cnn")
    return model.prediction_graph()


def step_graph():
    w = ef.Variable(np.zeros((4, 1), "f"), name="w")
    optimizer = ef.nn.optimizers.Adam(0.01)

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            guess = x @ w
            loss = ef.mean(ef.square(guess - y))
        optimizer.apply(tape.gradient(loss, [w]), [w])
        return loss

    specs = [ef.TensorSpec(("n", k), "float32") for k in (4, 1)]
    return step.graph(*specs)


def loop_graph():
    def loop(x, n):
        total = ef.fori_loop(0, n, lambda i, a: a + i, x)
        last, rows = ef.scan(lambda c, row: (c + row, c * row), x[0], x)
        chosen = ef.cond(n > 2, lambda: total, lambda: x)
        return {"chosen": chosen, "last": last, "rows": rows}

    return ef.capture.trace(loop, ef.TensorSpec((3, 2), "float32"), ef.TensorSpec((), "int64"))


def gpt_graph():
    model = ef.nn.networks.GPT(20, 16, 16, 2, 2)
    model(ef.zeros((1, 9), dtype="int64"))
    return model.prediction_graph()


GRAPHS = {f.__name__: f for f in (mlp_graph, cnn_graph, step_graph, loop_graph, gpt_graph)}


def test_dense_layers_written_by_hand():
    assert numbered(text_of(mlp_graph())).endswith(MLP)


def test_convolutional_layers_of_ef_nn():
    assert text_of(cnn_graph()).endswith(CNN)


def test_a_training_step():
    text = numbered(text_of(step_graph()))
    assert STEP in text
    assert 'state["w"] = w\n' in text
    assert text.rstrip().endswith("print(step(x, y, load_weights(WEIGHTS)))")


@pytest.mark.parametrize("name", GRAPHS)
def test_ruff_has_nothing_to_say(name, tmp_path):
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed")
    path = tmp_path / "model.py"
    path.write_text(text_of(GRAPHS[name]()))
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--no-cache", "--line-length", str(WIDTH), str(path)]
    for command in (["check", "--select", "E,F,W,I,UP,D2,D3"], ["format", "--diff"]):
        ran = subprocess.run([*ruff, *command, *options], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", GRAPHS)
def test_program_defines_only_used_functions(name):
    text = text_of(GRAPHS[name]())
    for function in re.findall(r"^def (\w+)", text, re.MULTILINE):
        assert len(re.findall(rf"\b{function}\(", text)) > 1, function


def test_text_does_not_depend_on_when_it_is_asked_for():
    module = module_of(mlp_graph())
    assert module.text() == module.text()


CALL = f"    found = f({', '.join(['argument'] * 12)})"


def test_lines_are_broken_at_the_last_bracket():
    assert broken("    x = 1") == ["    x = 1"]
    inner = ", ".join(["argument"] * 12)
    several = [f"        {'argument'},"] * 12
    assert broken(CALL) == ["    found = f(", *several, "    )"]
    short = CALL.replace(inner, inner[:82])
    assert broken(f"{short}.astype(np.float16)") == [
        "    found = f(",
        f"        {inner[:82]}",
        "    ).astype(np.float16)",
    ]


def test_results_and_targets_get_brackets():
    names = [f"a_rather_long_name_{i}" for i in range(6)]
    lines = broken(f"    return {', '.join(names)}")
    assert lines == ["    return (", *(f"        {x}," for x in names), "    )"]
    lines = broken(f"    {', '.join(names)} = f(x)")
    assert lines == ["    (", *(f"        {x}," for x in names), "    ) = f(x)"]
    lines = broken(f"    for {', '.join(names)} in zip(x, y):")
    assert lines == ["    for (", *(f"        {x}," for x in names), "    ) in zip(x, y):"]


def test_brackets_and_commas_in_strings_are_none():
    key = "a, (b" * 12
    assert broken(f'    x = f("{key}", ["{key}", 1])')[0] == "    x = f("
    assert broken(f'    x = f("{key}", ["{key}", 1])')[1] == f'        "{key}",'


def test_long_sentences_are_folded():
    lines = folded("word " * 40)
    assert len(lines) > 1 and all(len(line) <= WIDTH - 4 for line in lines)
    assert folded("") == [""]
