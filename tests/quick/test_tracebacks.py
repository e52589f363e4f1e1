"""Tracebacks of errors in captured code and in layers show the users' frames."""

import traceback

import pytest

import eagerflow as ef
from eagerflow.capture import tracing
from eagerflow.errors import ShapeError


def check(x):
    if x.shape[0] != 3:
        raise ValueError("three, please")
    return x


class Checked(ef.nn.Layer):
    def call(self, x):
        return check(x)


class Model:
    @ef.function
    def step(self, x):
        return check(x) * 2


def nested(x):
    return ef.function(check)(x) + 1


def in_branch(x):
    return ef.cond(ef.sum(x) > 0, check, lambda x: x, x)


CALLS = {
    "function": ef.function(check),
    "method": Model().step,
    "nested": ef.function(nested),
    "branch": ef.function(in_branch),
    "gradient": ef.function(lambda x: ef.grad(lambda x: check(x).sum())(x)),
    "loss scaled by a number": ef.function(lambda x, n=2: check(x) * n),
    "layer": ef.function(Checked()),
    "signature": ef.function(check, input_signature=[ef.TensorSpec((2,), "float32")]),
}


def files(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("name", CALLS)
def test_errors_of_users_in_captured_code(name):
    for _ in range(2):  # a trace that failed leaves nothing
        with pytest.raises(ValueError, match="three, please") as caught:
            CALLS[name](ef.ones(2))
        assert set(files(caught.value)) == {__file__}
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "check"


def test_errors_of_ops_in_captured_code():
    product = ef.function(lambda x: x @ ef.ones((3, 4)))
    with pytest.raises(ShapeError) as caught:
        product(ef.ones(2))
    assert files(caught.value) == [__file__, __file__]
    assert caught.value.at.startswith(__file__)


def test_layers_in_layers():
    model = ef.nn.Sequential([ef.nn.Sequential([Checked()])])
    with pytest.raises(ValueError, match="three, please") as caught:
        model(ef.ones(2))
    inner = files(caught.value)
    assert inner.count(__file__) == 3
    assert len(inner) <= 5  # of eagerflow only the call of the outermost layer
    (note,) = caught.value.__notes__
    assert note.startswith("in layer 'checked")


def test_errors_that_are_not_foreseen_keep_all_frames(monkeypatch):
    def broken(*args):
        return {}["missing"]

    broken.__code__ = broken.__code__.replace(co_filename=tracing.__file__)  # as if it were ours
    monkeypatch.setattr(tracing, "refuse_leaks", broken)
    with pytest.raises(KeyError, match="missing") as caught:
        ef.function(check)(ef.ones(3))
    assert tracing.__file__ in files(caught.value)
    assert len(files(caught.value)) > 5
