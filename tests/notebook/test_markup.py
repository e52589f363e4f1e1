"""Elements of HTML, in which no text can become anything else."""

import base64
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.errors import printable
from eagerflow.notebook import markup, views
from eagerflow.notebook.markup import Markup, element, joined, table, text_block
from tests.notebook.pages import HOSTILE, contrast, found, parsed, words
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


@pytest.mark.parametrize(
    "name", "BLUE ORANGE MAGENTA TEAL VIOLET OLIVE RED GREY".split(), ids=str.lower
)
@pytest.mark.parametrize("paper", ["#000000", "#111111", "#ffffff"])
def test_hues_are_seen_on_light_and_dark_paper(name, paper):
    assert contrast(getattr(markup, name), paper) >= 3


def test_pictures_are_images_as_well_for_notebooks_that_drop_svg():
    root = parsed(markup.picture(300, 100, "a < b", markup.label(1, 2, "words")))
    svg, image = root
    # The text that is left of a dropped SVG has no size; the SVG has its own.
    assert "font-size:0" in root.get("style") and svg.get("font-size") == "11"
    file = ElementTree.fromstring(base64.b64decode(image.get("src").partition(",")[2]))
    assert file.attrib.pop("color") == markup.GREY  # what the page's colour is in the image
    assert ElementTree.tostring(file) == ElementTree.tostring(svg).rstrip()
    assert image.get("alt") == "a < b"


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
