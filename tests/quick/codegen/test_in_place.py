"""Programs of NumPy's steps compute what a body says, wherever their values share places."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import NUMPY, RowInstructions
from eagerflow.codegen.numpy import in_place

SHAPE = (3, 5)
UNARY = ("negative", "abs", "square", "tanh", "sigmoid", "exp")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "divide")


@st.composite
def bodies(draw, rows):
    """A body of two arrays, with instructions on any earlier values, and several results."""
    kinds = ["unary", "binary", "select", *["reduction", "reduction"] * rows]
    steps = []
    for count in range(2, 2 + draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(kinds))
        values = st.integers(0, count - 1)
        names = {
            "unary": st.sampled_from(UNARY),
            "binary": st.sampled_from(BINARY),
            "select": st.just("select"),
            "reduction": st.sampled_from(("sum", "max", "mean")),
        }
        steps.append((kind, draw(names[kind]), draw(st.tuples(values, values, values))))
    results = draw(st.lists(st.integers(0, 1 + len(steps)), min_size=1, max_size=4))

    def body(s, x, y):
        # All values are kept small, and those that are reduced have all axes.
        values, whole = [s.tanh(x), s.tanh(y)], [True, True]
        for kind, name, (i, j, k) in steps:
            a, b, c = values[i], values[j], values[k]
            if kind == "unary":
                made = getattr(s, name)(a)
            elif kind == "binary":
                made = getattr(s, name)(a, s.add(s.square(b), 1.0) if name == "divide" else b)
            elif kind == "select":
                made = s.select(s.greater(a, b), b, c)
            else:
                made = getattr(s, name)(a if whole[i] else s.add(a, x), "n")
            values.append(s.tanh(made))
            whole.append(kind != "reduction" and any(whole[n] for n in (i, j, k)[: ARITY[kind]]))
        return tuple(values[i] if whole[i] else s.add(values[i], x) for i in results)

    return body


ARITY = {"unary": 1, "binary": 2, "select": 3, "reduction": 1}


def check(body, axes):
    x, y = (np.random.default_rng(seed).standard_normal(SHAPE) for seed in (1, 2))
    region = generated.region(body, axes, (("float64", axes),) * 2)
    rows = len(region.axes) > 1
    wanted = body(RowInstructions(np, x, (1,)) if rows else NUMPY, x, y)
    before = x.copy(), y.copy()
    outs = [np.full(SHAPE, np.nan) for _ in wanted]
    shown = (lambda a: a) if rows else np.ravel
    fill = in_place.program_of(region)
    fill(*[1] * rows, *map(shown, (x, y, *outs)))
    for out, right in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(out, right, rtol=1e-10, atol=1e-10)
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])


@given(bodies(rows=False))
def test_bodies_of_elements(body):
    check(body, "n")


@given(bodies(rows=True))
def test_bodies_of_rows(body):
    check(body, "m n")


def test_columns_are_summed_up_as_well():
    def body(s, x, y):
        return s.multiply(x, y), s.sum(s.multiply(x, y), "m"), s.sum(x, "n")

    region = generated.region(body, "m n", (("float64", "m n"),) * 2)
    x, y = np.random.default_rng(0).standard_normal((2, *SHAPE))
    out, columns, rows = np.empty(SHAPE), np.empty((1, 5)), np.empty((3, 1))
    in_place.program_of(region)(1, x, y, out, columns, rows)
    np.testing.assert_allclose(out, x * y)
    np.testing.assert_allclose(columns, (x * y).sum(0, keepdims=True))
    np.testing.assert_allclose(rows, x.sum(1, keepdims=True))


@pytest.mark.parametrize("rule", ["_is_free_until", "_may_read_place"])
def test_planted_sharing_of_places_is_found(monkeypatch, rule):
    """Where an output held what is still needed, results would be wrong."""
    monkeypatch.setattr(in_place.FunctionWriter, rule, lambda *args: True)

    def body(s, x, y):
        powers = s.exp(x)
        return (s.select(s.greater(x, y), powers, s.multiply(powers, x)),)

    with pytest.raises(AssertionError):
        check(body, "n")


@given(bodies(rows=False))
def test_programs_that_make_their_results(body):
    x, y = (np.random.default_rng(seed).standard_normal(SHAPE) for seed in (1, 2))
    region = generated.region(body, "n", (("float64", "n"),) * 2)
    wanted, before = body(NUMPY, x, y), (x.copy(), y.copy())
    for order in ("C", "F"):
        own = [np.array(a, order=order) for a in (x, y)]
        made = in_place.program_of(region, makes=True)(*own)
        made = made if isinstance(made, tuple) else (made,)
        for out, right in zip(made, wanted, strict=True):
            assert out.flags.f_contiguous == (order == "F")
            np.testing.assert_allclose(out, right, rtol=1e-10, atol=1e-10)
            assert not any(np.may_share_memory(out, a) for a in own)
        assert all(map(np.array_equal, own, before))
