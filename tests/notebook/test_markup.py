"""Elements of HTML, in which no text can become anything else."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.errors import printable
from eagerflow.notebook import markup, views
from eagerflow.notebook.markup import Markup, element, joined, table, text_block
from tests.notebook.pages import HOSTILE, found, parsed, words
from tests.structure.sources import ROOT

TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text())


@given(TEXTS, TEXTS)
def test_text_is_text_wherever_it_stands(inside, value):
    root = parsed(element("div", inside, element("code", inside), title=value))
    shown = printable(inside, "\n\t")
    assert root.text == (shown or None) and root[0].text == (shown or None)
    # What is between quotes has its line ends and tabs as blanks, says XML.
    assert root.get("title") == printable(value, "\n\t").replace("\n", " ").replace("\t", " ")
    assert len(list(root.iter())) == 2


def test_markup_is_not_escaped_twice():
    assert element("b", Markup("<i>x</i>"), "<i>") == "<b><i>x</i>&lt;i&gt;</b>"
    assert joined(["a<", element("br")]) == "a&lt;<br />"
    # What is put together by other means is text again.
    assert element("b", "<i>" + element("i")) == "<b>&lt;i&gt;&lt;i&gt;&lt;/i&gt;</b>"


def test_planted_markup_of_a_name_is_found():
    with pytest.raises(AssertionError, match="script"):
        parsed(element("div", Markup("<script></script>")))
    with pytest.raises(AssertionError, match="onerror"):
        parsed(element("div", onerror="alert(1)"))


def test_attributes_have_hyphens_and_can_be_left_out():
    assert element("i", stroke_width=2, max_=3, title=None) == '<i stroke-width="2" max="3"></i>'


def test_tables_have_all_cells():
    root = parsed(table(("a", "b"), [("1", "<2>"), ("3", element("b", "4"))], "<>"))
    assert [words(cell) for cell in found(root, "td")] == ["1", "<2>", "3", "4"]
    assert [words(cell) for cell in found(root, "th")] == ["a", "b"]
    with pytest.raises(ValueError, match="zip"):
        table(("a", "b"), [("1",)], "<>")


def test_long_texts_are_cut():
    assert "… 5 letters more" in text_block("x" * 25, limit=20)
    assert "more" not in text_block("x" * 20, limit=20)


@pytest.mark.parametrize("colour", [markup.BLUE, markup.ORANGE, markup.MAGENTA])
@pytest.mark.parametrize("paper", [0.0, 1.0])
def test_hues_are_seen_on_light_and_dark_paper(colour, paper):
    assert contrast(colour, paper) >= 3


def contrast(colour, paper):
    """The contrast of WCAG 2.2 between a colour and black (0) or white (1) paper."""
    levels = np.array(list(bytes.fromhex(colour[1:]))) / 255
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    light = float(linear @ [0.2126, 0.7152, 0.0722])
    return (max(light, paper) + 0.05) / (min(light, paper) + 0.05)


def test_failing_view_falls_back_to_repr():
    class Odd:
        def __repr__(self):
            raise RuntimeError("no words")

    for thing, shown in ((3, "3"), ("<b>", "'<b>'"), (Odd(), "<tests.notebook.test_markup")):
        root = parsed(views.html(thing, "tensors"))
        assert root.get("title").startswith("no view: AttributeError")
        assert root.text.startswith(shown)
    with pytest.raises(KeyboardInterrupt):  # which is none of the things that fail
        views.html(Interrupting(), "tensors")


LOADED = """
import sys
import eagerflow as ef
before = [name for name in sys.modules if name.startswith("eagerflow.notebook")]
ef.ones(3)._repr_html_()
print(before, [name for name in ("eagerflow.capture", "eagerflow.nn") if name in sys.modules])
"""


def test_views_are_loaded_late_and_alone():
    done = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[] []\n", "")


class Interrupting:
    @property
    def shape(self):
        raise KeyboardInterrupt


def test_symbols_of_all_recorders_have_views():
    seen = []
    ef.vmap(lambda x: (seen.append(x._repr_html_()), x)[1])(ef.ones((3, 2)))
    ef.capture.trace(lambda x: (seen.append(x._repr_html_()), x)[1], ef.TensorSpec((None,), "int8"))
    seen.append(ef.nn.Input((4,), name="<b>")._repr_html_())
    for page in seen:
        assert "symbolic" in words(parsed(page))
        assert 'title="no view' not in page
    assert "float32(2,) on cpu:0" in seen[0]
