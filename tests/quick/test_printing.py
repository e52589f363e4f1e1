"""The options of printed tensors."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError


@pytest.fixture(autouse=True)
def default_options():
    yield
    ef.set_printoptions()


LONG = ef.arange(200.0)


@pytest.mark.parametrize("given", [
    {"precision": 2}, {"precision": 0}, {"threshold": 300}, {"edgeitems": 1},
    {"linewidth": 40}, {"suppress": True}, {"precision": 7, "threshold": 5, "linewidth": 60},
])  # fmt: skip
def test_options_are_those_of_numpy(given):
    names = {"linewidth": "max_line_width", "suppress": "suppress_small"}
    for x in (LONG / 7.0, ef.tensor([1e-6, 0.25, 3.0])):
        ef.set_printoptions()
        before = repr(x)
        ef.set_printoptions(**given)
        how = {"precision": 4, "threshold": 100, "edgeitems": 3}
        how |= {names.get(name, name): value for name, value in given.items()}
        values = np.array2string(x.numpy(), separator=", ", prefix="Tensor(", **how)
        assert repr(x).startswith(f"Tensor({values}, ")
        ef.set_printoptions()
        assert repr(x) == before


def test_options_that_are_not_given_stay():
    ef.set_printoptions(2)
    ef.set_printoptions(threshold=3)
    assert repr(ef.tensor([1.23456, 2, 3, 4, 5, 6, 7])).startswith("Tensor([1.23, 2.  , 3.  , ...")


@pytest.mark.parametrize("name", ["precision", "threshold", "edgeitems", "linewidth"])
@pytest.mark.parametrize("value", [-1, 2.0, "3", True])
def test_other_values_are_refused(name, value):
    with pytest.raises(ArgumentError, match=f"set_printoptions: {name}: a whole number"):
        ef.set_printoptions(**{name: value})
    assert repr(ef.tensor(1.23456)) == "Tensor(1.2346, float32, cpu:0)"
