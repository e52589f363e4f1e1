"""Errors of programs that cannot be captured, and of replays that fail: of the right class, with
the user's own line, and with what to do."""

import gc
import importlib
import inspect
import re

import pytest

from tests.capture.wrong_programs import WRONG

importlib.import_module("tests.capture.wrong_replays")


@pytest.fixture(autouse=True, scope="module")
def seen_by_the_collector(the_collector):
    """It names the holder of a value, unless the value is frozen."""
    gc.unfreeze()


def marked(program):
    """The line with the mark, None if there is none."""
    lines, first = inspect.getsourcelines(program)
    return next((first + i for i, line in enumerate(lines) if "# here" in line), None)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", WRONG)
def test_error(name):
    program, cls, says, hint = WRONG[name]
    with pytest.raises(Exception) as caught:
        program()
    error, text = caught.value, str(caught.value)
    assert type(error) is cls, repr(error)
    assert says in text, f"{says!r} is not in:\n{text}"
    if hint:
        assert hint in text, f"{hint!r} is not in:\n{text}"
    line = marked(program)
    if line is not None:
        place = rf"{re.escape(inspect.getfile(program))}:{line}\b"
        assert re.search(place, text), f"not at line {line}:\n{text}"


def test_there_are_enough():
    assert len(WRONG) >= 40
