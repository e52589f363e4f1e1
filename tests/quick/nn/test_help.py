"""What ``help`` and notebooks show of layers and of objects that are configured alike."""

import inspect
import pydoc
import re

import pytest

import eagerflow as ef
from eagerflow.nn import argument_texts
from eagerflow.nn.configured import Configured

CLASSES = {
    f"{module.__name__}.{name}": found
    for module in (
        ef.nn,
        ef.nn.losses,
        ef.nn.metrics,
        ef.nn.optimizers,
        ef.nn.initializers,
        ef.nn.schedules,
        ef.nn.callbacks,
    )
    for name in module.__all__
    if isinstance(found := getattr(module, name), type) and issubclass(found, Configured)
}
LAYERS = {
    name: cls
    for name, cls in CLASSES.items()
    if issubclass(cls, ef.nn.Layer) and hasattr(cls.__init__, "sets_attributes")
}


def test_the_walk_finds_the_classes():
    assert len(CLASSES) > 250 and len(LAYERS) > 100


@pytest.mark.parametrize("name", CLASSES)
def test_signatures_are_read_without_checks_and_aliases(name):
    cls = CLASSES[name]
    text = str(inspect.signature(cls))
    assert not re.search(r"Annotated|<function|<object|ForwardRef|typing\.|collections\.", text)
    if hasattr(cls.__init__, "sets_attributes"):
        assert not re.search(r": '|\b(Count|Rate|Float|Window|Beta|Limit)\b", text), text
        assert "->" not in text


@pytest.mark.parametrize("name", LAYERS)
def test_each_argument_of_a_layer_has_its_line(name):
    cls = LAYERS[name]
    lines = inspect.getdoc(cls.__init__).splitlines()
    assert [line.partition(": ")[0] for line in lines] == list(inspect.signature(cls).parameters)
    assert all(line.partition(": ")[2] for line in lines)
    assert lines[0] in pydoc.render_doc(cls, renderer=pydoc.plaintext)


def test_no_line_is_for_an_argument_that_does_not_exist():
    known = {name for cls in CLASSES.values() for name in inspect.signature(cls).parameters}
    assert set(argument_texts.TEXTS) <= known


def test_classes_of_users_have_their_arguments():
    class Shifted(ef.nn.Dense):
        def __init__(self, units, shift=1.0, **options):
            """Shifts by something."""
            super().__init__(units, **options)

    assert inspect.getdoc(Shifted.__init__) == "Shifts by something."
    assert str(inspect.signature(Shifted)) == "(units, shift=1.0, **options)"
