"""Bars of progress in notebooks and terminals; test_extension.py has them in a real notebook."""

import io
import sys
import types

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn.progress import Progress
from eagerflow.notebook import bar
from eagerflow.notebook.bar import NotebookBar, TerminalBar
from eagerflow.notebook.shell import kernel_shell
from tests.notebook.pages import HOSTILE, parsed, words


class Place:
    """Keeps what is shown in one place of a notebook."""

    def __init__(self, forms):
        self.shown = [forms]

    def update(self, forms, raw):
        assert raw
        self.shown.append(forms)

    def pages(self):
        return [parsed(forms["text/html"]) for forms in self.shown]


@pytest.fixture
def places(monkeypatch):
    """Where bars are shown, one place for each."""
    found = []

    def show(forms, raw, display_id):
        assert raw and display_id
        found.append(Place(forms))
        return found[-1]

    monkeypatch.setattr(bar, "show", show)
    return found


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(bar, "SECONDS_BETWEEN", -1.0)


def test_steps_are_counted(places, often):
    one = NotebookBar(3, "Epoch 1/2")
    for _ in range(3):
        one.step(lambda: "loss: 0.7")
    one.close("loss: 0.5")
    pages = places[0].pages()
    assert [page[0].get("value") for page in pages] == ["0", "1", "2", "3", "3"]
    assert {page[0].get("max") for page in pages} == {"3"}
    last = places[0].shown[-1]["text/plain"]
    assert last.startswith("Epoch 1/2: 3/3 steps, ") and last.endswith(" s, loss: 0.5")


def test_bars_of_unknown_length_go_on_until_they_end(places, often):
    one = NotebookBar(title="Epoch 1/1")
    one.step()
    assert [page[0].get("value") for page in places[0].pages()] == [None, None]
    one.close()
    assert places[0].pages()[-1][0].get("max") == "1"
    empty = NotebookBar()
    empty.close()
    assert words(places[1].pages()[-1]).startswith("  0 steps, ")


def test_notebook_page_is_not_updated_at_each_step(places, monkeypatch):
    monkeypatch.setattr(bar, "SECONDS_BETWEEN", 60.0)
    one = NotebookBar(total=10_000)
    for _ in range(10_000):
        one.step()
    assert len(places[0].shown) == 1


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_words_are_text(places, text):
    one = NotebookBar(2, text)
    one.close(text)
    assert len(places[0].pages()[-1]) == 1


def test_notebooks_have_bars_of_ours(places, monkeypatch):
    shell = types.SimpleNamespace(kernel=object())
    found = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", found)
    with Progress(1, 2, "fit") as progress:
        progress.begin(0, 4)
        for _ in range(4):
            progress.step(lambda: {"loss": 0.5})
        progress.end({"loss": 0.25})
        progress.begin(1, None)
    assert "Epoch 1/2 " in words(places[0].pages()[-1])
    assert "4/4 steps" in words(places[0].pages()[-1]) and "loss: 0.2500" in words(
        places[0].pages()[-1]
    )
    assert len(places) == 2
    shell.kernel = None  # a terminal
    with Progress(1, 1, "fit") as progress:
        progress.begin(0, 1)
    assert len(places) == 2


def test_a_test_runs_in_no_kernel():
    assert kernel_shell() is None


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def lines(self):
        """What was in the line, one after the other."""
        return [line.rstrip() for line in self.getvalue().split("\r")[1:]]


@pytest.fixture
def terminal(monkeypatch, often):
    """A terminal of some width: call it with that, and then read its lines."""
    stream = Terminal()

    def of(columns):
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setenv("COLUMNS", str(columns))
        return stream

    return of


WORDS = {"loss": 0.5, "accuracy": 0.25, "val_loss": 0.125}
FULL = "loss: 0.5000, accuracy: 0.2500, val_loss: 0.1250"


@pytest.mark.parametrize("columns", [120, 80, 60, 40, 20, 5])
def test_terminal_shows_one_line_of_its_width(terminal, columns):
    stream = terminal(columns)
    with Progress("auto", 2, "fit") as progress:
        progress.begin(0, 10)
        for _ in range(10):
            progress.step(lambda: WORDS)
        progress.end(WORDS)
    *during, last = stream.lines()
    assert len(during) == 11 and all(len(line) < columns for line in during)
    assert stream.getvalue().count("\n") == 1 and stream.getvalue().endswith("\n")
    assert last.startswith("Epoch 1/2 ") and last.endswith(f" s, {FULL}")
    if columns >= 60:
        assert " 5/10" in during[5] and " left, loss: 0.5000" in during[5]
    if columns == 120:
        assert "[==========..........] 5/10 steps, " in during[5] and during[5].endswith(FULL)


def test_shorter_lines_leave_nothing_of_longer_ones(terminal):
    stream = terminal(80)
    one = TerminalBar(2, "Epoch")
    one.step(lambda: "long " * 5)
    one.step(lambda: "x")
    first, second = stream.getvalue().split("\r")[2:]
    assert len(second) == len(first) and second.endswith(" ")


def test_numbers_are_asked_for_a_few_times_a_second(terminal, monkeypatch):
    terminal(80)
    monkeypatch.setattr(bar, "SECONDS_BETWEEN", 60.0)
    asked = []
    with Progress(1, 1, "fit") as progress:
        progress.begin(0, 1000)
        for _ in range(1000):
            progress.step(lambda: asked.append(1) or {})
    assert not asked


def test_the_first_step_does_not_count_for_the_time_left(terminal, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(bar.time, "perf_counter", lambda: clock[0])
    terminal(80)
    one = TerminalBar(5, "Epoch")
    for seconds in (100.0, 2.0, 4.0):
        clock[0] += seconds
        one.step()
    assert one.texts() == ["3/5 steps", "1:46 min", "6.0 s left"]


def test_where_there_is_no_terminal_epochs_are_lines(capsys):
    x = np.ones((8, 2), "float32")
    model = ef.nn.Sequential([ef.nn.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    model.fit(x, x[:, :1], batch_size=2, epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[1].startswith("Epoch 2/2 - 0.") and "mae: " in lines[1]


def test_running_numbers_change_no_training(terminal):
    x = np.random.default_rng(0).random((32, 4), "float32")
    rows = []
    for verbose in (0, 1):
        ef.random.seed(0)
        model = ef.nn.Sequential([ef.nn.Dense(4, activation="tanh"), ef.nn.Dense(1)])
        model.compile("adam", "mse", metrics=["mae"])
        stream = terminal(100)
        history = model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=verbose)
        rows.append((history.history, [w.numpy().tolist() for w in model.weights]))
    assert rows[0] == rows[1]
    shown = [line for line in stream.lines() if "4/8 steps" in line]
    assert len(shown) == 2 and all("loss: 0." in line and "mae: 0." in line for line in shown)


def test_numbers_of_an_own_step_are_shown(terminal):
    class Own(ef.nn.Sequential):
        def train_step(self, data):
            return {"seen": ef.ones(()) * 3.0, **super().train_step(data)}

    model = Own([ef.nn.Dense(1)])
    model.compile("sgd", "mse")
    stream = terminal(120)
    model.fit(np.ones((8, 2), "float32"), np.ones((8, 1), "float32"), batch_size=2)
    model.predict(np.ones((8, 2), "float32"), batch_size=2, verbose=1)
    lines = stream.lines()
    assert any("2/4 steps" in line and "seen: 3.0000" in line for line in lines)
    assert lines[-1].startswith("Predict [====================] 4/4 steps, ")
