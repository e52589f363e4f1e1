"""A function that is traced for size after size says which axis changes, and what to write."""

import re
import warnings

import numpy as np
import pytest

import eagerflow as ef


def loss(x, mask, k):
    assert str(len(x.shape)) != f"{x.shape[0]} rows"  # a text: sizes are not free by themselves
    return ef.sum(x * mask * k, axis=0)


def batch(n):
    return ef.ones((n, 4)), np.full((n, 1), 2.0, "float32"), 3.0


def told_by(call, sizes):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in sizes:
            call(n)
    assert all(w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def test_the_warning_has_a_signature_that_works():
    f = ef.function(loss)
    assert told_by(lambda n: f(*batch(n)), [1, 2, 3, 4, 4, 3]) == []
    (text,) = told_by(lambda n: f(*batch(n)), range(5, 12))
    assert text.startswith("'loss' was traced for 5 sizes of axis 0 of 'x' and axis 0 of 'mask'")
    signature = eval(re.search(r"input_signature=(\[.*\])", text)[1], {"ef": ef})
    one = ef.function(loss, input_signature=signature)
    assert told_by(lambda n: one(*batch(n)), range(1, 12)) == []
    assert len(one.graphs) == 1 and one(*batch(3)).tolist() == f(*batch(3)).tolist()


def test_nests_and_several_sizes():
    f = ef.function(lambda d, rest: d["x"].sum() + rest[0].sum() + len(f"{d['x'].shape}") * 0)
    (text,) = told_by(lambda n: f({"x": ef.ones((2, n))}, [ef.ones(n + 1), "k"]), range(1, 9))
    signature = eval(re.search(r"input_signature=(\[.*\])", text)[1], {"ef": ef})
    assert signature == [
        {"x": ef.TensorSpec((2, "n0"), "float32")},
        [ef.TensorSpec(("n1",), "float32"), None],
    ]
    named = ef.function(lambda *, x: x + 1.0 * bool(str(x.shape)))
    (text,) = told_by(lambda n: named(x=ef.ones(n)), range(1, 9))
    assert "@ef.function(input_signature)" in text
    assert text.endswith("a trace with free sizes failed: it depends on the text of a size")


@pytest.mark.parametrize("call", [
    lambda f, n: f(ef.ones(2), str(n)),
    lambda f, n: f(ef.ones((2,) * n), "k"),
    lambda f, n: f(ef.ones(2, dtype=["float32", "float64", "int32", "int64", "int8"][n % 5]), "k"),
])  # fmt: skip
def test_other_retraces_have_no_warning_about_sizes(call):
    f = ef.function(lambda x, name: x + 1)
    assert told_by(lambda n: call(f, n), range(1, 8)) == []


def test_fit_does_not_warn_of_its_own_step():
    model = ef.nn.Sequential([ef.nn.Dense(1)])
    model.compile("sgd", "mse")
    fit = lambda n: model.fit(ef.ones((n, 2)), ef.ones((n, 1)), batch_size=n, verbose=0)
    assert told_by(fit, range(1, 8)) == []
