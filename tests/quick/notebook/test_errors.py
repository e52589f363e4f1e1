"""Errors in a notebook: the line, the causes, and no text that becomes anything else."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import EagerflowError, ShapeError
from eagerflow.notebook import errors
from tests.notebook.pages import HOSTILE, found, parsed, words


def raised(f, *args):
    with pytest.raises(EagerflowError) as caught:
        f(*args)
    return caught.value


def shown(error, **more):
    return parsed(errors.view(error, **more))


def test_the_line_is_the_user_s():
    def through_numpy():
        return np.add(ef.ones(2), ef.ones(3))

    def multiply():
        return ef.ones((2, 2)) @ ef.ones((3, 2))

    for f in (through_numpy, multiply):
        root = shown(raised(f))
        (line,) = found(found(root, "pre")[0], "strong")
        assert line.text.split(maxsplit=2)[1:] == [
            str(f.__code__.co_firstlineno + 1),
            f"return {'np.add(ef.ones(2), ef.ones(3))' if f is through_numpy else MULTIPLIED}\n",
        ]


MULTIPLIED = "ef.ones((2, 2)) @ ef.ones((3, 2))"


def test_files_have_the_names_that_are_given():
    root = shown(raised(lambda: ef.ones(2) + ef.ones(3)), name_of=lambda file: "Cell <3>")
    assert "Cell <3>, line" in words(root)


def test_error_causes_are_listed_without_cycles():
    error = ShapeError("it does not fit")
    first, second = ValueError("<first>\nmore"), KeyError("second")
    error.__cause__, first.__cause__, second.__cause__ = first, second, error
    told = [code.text for code in found(shown(error), "code")]
    assert told == ["ValueError: <first>", "KeyError: 'second'"]


def test_errors_that_were_not_raised_have_a_view():
    root = shown(ShapeError("it does not fit", received="a\n    b", hint="this"))
    assert words(root).startswith("ShapeError: it does not fitreceived: a\n    btry: this")
    assert found(root, "details")


def test_deep_tracebacks_are_cut():
    def deep(n):
        return deep(n - 1) if n else ef.ones(2) + ef.ones(3)

    assert len(errors.view(raised(deep, 900))) < 100_000


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_error_fields_are_escaped_as_text(text):
    names = "op argument received expected hint at".split()
    error = EagerflowError(text, **dict.fromkeys(names, text))
    error.__cause__ = ValueError(text)
    source = compile("def f(): raise error", text.replace("\0", "").encode(errors="ignore"), "exec")
    exec(source, names := {"error": error})
    root = shown(raised(names["f"]))
    assert words(root).count("alert") >= text.count("alert") * 8
