"""Expressions within expressions: their text means what the graph says, bit for bit."""

import ast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
import eagerflow.capture
from eagerflow.standalone import expressions, program
from eagerflow.standalone.expressions import ATOM, binary, identifier, literal, quoted, text
from tests.contract.cases import SOAK
from tests.standalone.programs import Program, traced

FLOAT_OPS = [
    (ef.negative, "f"),
    (ef.abs, "f"),
    (ef.relu, "f"),
    (ef.matrix_transpose, "f"),
    *((f, "ff") for f in (ef.add, ef.subtract, ef.multiply, ef.divide, ef.remainder)),
    *((f, "fn") for f in (ef.add, ef.subtract, ef.multiply, ef.divide, ef.power)),
    *((f, "nf") for f in (ef.add, ef.subtract, ef.multiply, ef.divide)),
    (ef.floor_divide, "ff"),
    (ef.maximum, "ff"),
    (ef.matmul, "ff"),
    (ef.where, "bff"),
]
BOOL_OPS = [
    *((f, "ff") for f in (ef.less, ef.greater_equal, ef.equal, ef.not_equal)),
    *((f, "bb") for f in (ef.bitwise_and, ef.bitwise_or, ef.bitwise_xor, ef.equal)),
    (ef.bitwise_invert, "b"),
    (ef.logical_not, "b"),
    (ef.isfinite, "f"),
]
NUMBERS = st.sampled_from([-2.0, -0.5, 0.25, 3.0, 2.0])
KINDS = {"f": st.deferred(lambda: FLOATS), "b": st.deferred(lambda: BOOLS), "n": NUMBERS}


def trees(rows):
    return st.one_of(*(st.tuples(st.just(f), *map(KINDS.get, kinds)) for f, kinds in rows))


FLOATS = st.one_of(st.sampled_from("xyz"), st.sampled_from("xyz"), trees(FLOAT_OPS))
BOOLS = trees(BOOL_OPS)


def value(tree, known):
    """The value of a tree; all ops are called in one line, so that they are one expression."""
    if not isinstance(tree, tuple):
        return known[tree] if isinstance(tree, str) else tree
    op, *parts = tree
    return op(*[value(part, known) for part in parts])


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(-8, 8, (3, 3)).astype("f") / 4 for _ in range(3)]


def differs(tree):
    def f(x, y, z):
        return ef.add(value(tree, {"x": x, "y": y, "z": z}), 0.0)

    given = arrays()
    found = Program(traced(f, *given))(*given)
    wanted = f(*map(ef.tensor, given)).numpy()
    return found.dtype != wanted.dtype or found.tobytes() != wanted.tobytes()


@settings(max_examples=800 if SOAK else 25, deadline=None)
@given(FLOATS)
def test_any_expression_has_the_same_bits(tree):
    assert not differs(tree)


INTEGER_OPS = [
    *((f, "i") for f in (ef.negative, ef.bitwise_invert)),
    *((f, "ii") for f in (ef.add, ef.subtract, ef.multiply)),
    *((f, "ii") for f in (ef.bitwise_and, ef.bitwise_or, ef.bitwise_xor)),
    *((f, "is") for f in (ef.bitwise_left_shift, ef.bitwise_right_shift, ef.floor_divide)),
    *((f, "is") for f in (ef.remainder, ef.power)),
]
KINDS |= {"i": st.deferred(lambda: INTEGERS), "s": st.sampled_from([1, 2, 3])}
INTEGERS = st.one_of(st.sampled_from("xyz"), st.sampled_from("xyz"), trees(INTEGER_OPS))


@settings(max_examples=600 if SOAK else 20, deadline=None)
@given(INTEGERS)
def test_any_expression_of_integers_is_the_same(tree):
    def f(x, y, z):
        return ef.add(value(tree, {"x": x, "y": y, "z": z}), 0)

    given = [np.arange(-4, 5), np.arange(9)[::-1] - 2, np.array([7, -7, 1, 0, 2, 3, 5, -1, -2])]
    wanted = f(*map(ef.tensor, given)).numpy()
    np.testing.assert_array_equal(Program(traced(f, *given))(*given), wanted)


def test_expressions_are_written_as_one():
    tree = (ef.multiply, (ef.subtract, "x", (ef.add, "y", 3.0)), (ef.matmul, "z", "x"))
    given = arrays()
    program = Program(traced(lambda x, y, z: value(tree, {"x": x, "y": y, "z": z}), *given))
    assert "return (x - (y + 3.0)) * (z @ x)" in program.text


def test_forgotten_parentheses_are_found(monkeypatch):
    def loose(symbol, level, a, b):
        return text(a, f" {symbol} ", b, level=level)

    monkeypatch.setattr("eagerflow.standalone.forms.binary", loose)
    assert differs((ef.subtract, "x", (ef.subtract, "y", "z")))
    assert differs((ef.multiply, (ef.add, "x", "y"), "z"))


def test_a_wrong_level_is_found(monkeypatch):
    monkeypatch.setitem(expressions.OPERATORS, "subtract", ("-", expressions.POWER))
    monkeypatch.setattr(program, "OPERATORS", expressions.OPERATORS)
    assert differs((ef.multiply, (ef.subtract, "x", "y"), "z"))


@pytest.mark.parametrize(
    "number", [0, -1, 2**63, True, 0.1, -0.0, 1e-300, 1e22, float("inf"), -float("inf"), 1 - 2j]
)
def test_literals_evaluate_to_their_numbers(number):
    source = "".join(binary("*", expressions.PRODUCT, literal(number), literal(1)).pieces)
    found = eval(source, {"np": np})
    assert found == number * 1
    assert np.signbit(np.real(found)) == np.signbit(np.real(number))


def test_nan_and_nests_are_literals():
    assert np.isnan(eval("".join(literal(float("nan")).pieces), {"np": np}))
    nest = ((1, (2.5, None)), "a", True, [])
    assert eval("".join(literal(nest).pieces)) == nest
    assert literal(np.dtype("float16")).pieces == ("np.float16",)


@given(st.text(max_size=30))
def test_any_string_is_quoted(words):
    assert quoted(words).isascii()
    assert ast.literal_eval(quoted(words)) == words


@given(st.text(max_size=60))
def test_any_name_is_an_identifier(name):
    found = identifier(name)
    assert found.isidentifier() and found.isascii()
    assert found not in expressions.RESERVED
    assert len(found) <= expressions.MAX_NAME + 10


def test_levels_of_negative_numbers():
    x = text("x")
    assert "".join(binary("**", expressions.POWER, literal(-2.0), x).pieces) == "(-2.0) ** x"
    assert "".join(binary("-", expressions.SUM, x, literal(-2)).pieces) == "x - -2"
    assert literal(3).level == ATOM
