"""Bars of progress in notebooks; test_extension.py has them in a real one."""

import sys
import types

import pytest

from eagerflow.nn.progress import Progress
from eagerflow.notebook import bar
from eagerflow.notebook.bar import NotebookBar
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
    one = NotebookBar(total=3, desc="Epoch 1/2", unit="step")
    for _ in range(3):
        one.update()
    one.set_postfix_str("loss: 0.5")
    one.close()
    pages = places[0].pages()
    assert [page[0].get("value") for page in pages] == ["0", "1", "2", "3", "3"]
    assert {page[0].get("max") for page in pages} == {"3"}
    last = places[0].shown[-1]["text/plain"]
    assert last.startswith("Epoch 1/2: 3/3 steps, ") and last.endswith(" s, loss: 0.5")


def test_bars_of_unknown_length_go_on_until_they_end(places, often):
    one = NotebookBar(desc="Epoch 1/1")
    one.update()
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
        one.update()
    assert len(places[0].shown) == 1


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_words_are_text(places, text):
    one = NotebookBar(total=2, desc=text)
    one.set_postfix_str(text)
    one.close()
    assert len(places[0].pages()[-1]) == 1


def test_notebooks_have_bars_of_ours(places, monkeypatch):
    shell = types.SimpleNamespace(kernel=object())
    found = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", found)
    with Progress(1, 2, "fit") as progress:
        progress.begin(0, 4)
        assert list(progress.watch(iter("abcd"))) == list("abcd")
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
