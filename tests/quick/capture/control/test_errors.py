"""What control flow refuses, and how it says so: the op, the leaf, the line, what to try."""

import functools
import inspect
import re

import pytest

import eagerflow as ef
from eagerflow.capture import cond, fori_loop, scan, switch, while_loop
from eagerflow.capture import map as ef_map
from eagerflow.errors import CaptureError, DTypeError, EagerflowError, ShapeError
from tests.capture.control.tools import captured, graph_of, t

X = t([1.0, 2.0])


def line_of(f):
    return f"{__file__}:{f.__code__.co_firstlineno} in {f.__code__.co_name}"


def narrow(carry, x):
    return {"h": (carry["h"][0][:1], carry["h"][1])}, None


def casts(state):
    return {"n": state["n"], "x": state["x"].astype("float32")}


def forgets(state):
    return {"n": state["n"]}


def returns_text(x):
    return {"x": x, "label": "words"}


STATE = {"n": 0, "x": X}
PAIR = {"h": (X, X)}
ONE = lambda: X

# Call, class of the error, words of its message, and the function whose line it names.
BOTH = {  # refused alike with and without a tape
    "pred with axes": (lambda: cond(X > 0, ONE, ONE), ShapeError, "cond: pred: it has axes", None),
    "pred is a number": (lambda: cond(X[0], ONE, ONE), DTypeError, "pred: it is not a bool", None),
    "pred is text": (lambda: cond("yes", ONE, ONE), DTypeError, "cond: pred: a str is not", None),
    "pred is an int": (lambda: cond(1, ONE, ONE), DTypeError, "x != 0, x > 0", None),
    "branch is a tensor": (lambda: cond(True, X, ONE), DTypeError, "true_fn: it cannot be", None),
    "branch takes more": (lambda: cond(True, ONE, returns_text), CaptureError,
                          "false_fn: it is called as false_fn().*argument: 'x'", returns_text),
    "branch takes less": (lambda: cond(True, ONE, ONE, X), CaptureError,
                          r"true_fn\(operands\[0\]\)", ONE),
    "result is text": (lambda: cond(True, returns_text, returns_text, X), DTypeError,
                       r"the result of true_fn\['label'\]: a str is not a tensor", returns_text),
    "no branches": (lambda: switch(0, []), DTypeError, "switch: branches: there are no", None),
    "branches is a function": (lambda: switch(0, ONE), DTypeError, "there are no branches", None),
    "a branch is text": (lambda: switch(0, [ONE, "f"]), DTypeError,
                         r"branches\[1\]: it cannot be called", None),
    "index is a float": (lambda: switch(0.5, [ONE]), DTypeError, "index: it is not an integer",
                         None),
    "index has axes": (lambda: switch(ef.tensor([0]), [ONE]), ShapeError,
                       "switch: index: it has axes", None),
    "carry changes shape": (lambda: scan(narrow, PAIR, X), ShapeError,
        r"scan: the carry\['h'\]\[0\]: its shape is not that at the start", narrow),
    "carry changes structure": (lambda: scan(lambda c, x: ((c, c), None), X, X), CaptureError,
        "scan: the carry: its structure is not that at the start(?s:.*)received: a tuple", None),
    "carry becomes None": (lambda: scan(lambda c, x: ({"a": None}, None), {"a": X}, X),
        CaptureError, r"the carry\['a'\]: its structure is not(?s:.*)expected: a tensor", None),
    "carry of other length": (lambda: scan(lambda c, x: ([X], None), [X, X], X), CaptureError,
                              "expected: 2 items", None),
    "no pair": (lambda: scan(lambda c, x: c, X, X), CaptureError, "f: it does not return a pair",
                None),
    "rows of different lengths": (lambda: scan(lambda c, x: (c, None), X, {"a": X, "b": X[:1]}),
        ShapeError, r"scan: xs\['b'\]: its length is 1, and that of the scan 2", None),
    "length and rows differ": (lambda: scan(lambda c, x: (c, None), X, X, length=3), ShapeError,
                               "of the scan 3", None),
    "no rows and no length": (lambda: scan(lambda c, x: (c, None), X), ShapeError,
                              "scan: length: without sequences", None),
    "negative length": (lambda: scan(lambda c, x: (c, None), X, length=-1), ShapeError,
                        "-1 is negative", None),
    "length is a float": (lambda: scan(lambda c, x: (c, None), X, length=2.5), ShapeError,
                          "not an integer", None),
    "rows without axes": (lambda: ef_map(lambda x: x, 3.0), ShapeError,
                          "map: xs: it has no axis to scan over", None),
    "f of rows is a tensor": (lambda: ef_map(X, X), DTypeError, "map: f: it cannot be called",
                              None),
    "f takes one": (lambda: scan(casts, X, X), CaptureError, r"f\(carry, x\), which its signature",
                    casts),
    "f is None": (lambda: scan(None, X, X), DTypeError, "scan: f: it cannot be called", None),
    "init is text": (lambda: scan(lambda c, x: (c, None), {"a": "b"}, X), DTypeError,
                     r"init\['a'\]: a str", None),
    "cond gives a float": (lambda: while_loop(lambda s: s.sum(), casts, X), DTypeError,
                           "while_loop: the result of cond: it is not a bool", None),
    "cond gives many": (lambda: while_loop(lambda s: s < 1e9, lambda s: s, X), ShapeError, "ef.any",
                        None),
    "state changes dtype": (lambda: while_loop(lambda s: s["n"] < 3, casts, STATE), DTypeError,
        r"the state\['x'\]: its dtype is not(?s:.*)try: y.astype\('float64'\), or start", casts),
    "state loses a key": (lambda: while_loop(lambda s: s["n"] < 3, forgets, STATE), CaptureError,
                          r"received: the keys \['n'\]\s+expected: the keys \['n', 'x'\]", forgets),
    "a float where an integer was": (lambda: while_loop(lambda s: s < 5, lambda s: s + 0.5, 1),
                                     DTypeError, "float32", None),
    "a number that does not fit": (lambda: while_loop(lambda s: s < 5, lambda s: 7.5, 1),
                                   DTypeError, "its dtype is not", None),
    "in TensorFlow's style": (
        lambda: while_loop(lambda a, b: a < 3, lambda a, b: (a + 1, b), (0, X)),
        CaptureError,
        "pass related values as one argument",
        None,
    ),
    "negative bound": (lambda: while_loop(lambda s: s < 5, lambda s: s, 1, maximum_iterations=-2),
                       ShapeError, "while_loop: maximum_iterations: -2 is negative", None),
    "bounds are floats": (lambda: fori_loop(0, 2.5, lambda i, s: s, X), DTypeError,
                          "hi: it is not an integer", None),
    "body takes one": (lambda: fori_loop(0, 3, forgets, X), CaptureError, r"body\(i, state\)",
                       forgets),
    "ops in bodies explain themselves": (
        lambda: fori_loop(0, 3, lambda i, s: s @ ef.zeros((3, 3)), X),
        ShapeError,
        "matmul: ",
        None,
    ),
}  # fmt: skip

WATCHED = {  # what only a graph needs
    "branches of different shapes": (lambda: cond(True, lambda: {"a": X}, lambda: {"a": X[0]}),
        ShapeError, r"the result of false_fn\['a'\]: its shape is not that of true_fn", None),
    "branches of different dtypes": (lambda: cond(True, ONE, lambda: X.astype("float32")),
                                     DTypeError, "that of true_fn", None),
    "a number of another dtype": (lambda: cond(True, lambda: X[0], lambda: 0.0), DTypeError,
                                  "received: float32", None),
    "branches of different structure": (lambda: switch(1, [ONE, lambda: (X,)]), CaptureError,
        r"the result of branches\[1\]: its structure is not that of branches\[0\]", None),
    "None in one branch": (lambda: cond(True, ONE, lambda: None), CaptureError,
                           "expected: a tensor", None),
    "if in a body": (lambda: fori_loop(0, 3, lambda i, s: s if s.sum() > 3 else s * 2, X),
        CaptureError,
        "(?s)needs a number that is not known while 'fori_loop_body' is traced.*ef.cond", None),
    "float in a body": (lambda: scan(lambda c, x: (c, float(x)), X, X), CaptureError,
                        "float.. needs a number", None),
    "a list in place of a tuple": (lambda: cond(True, lambda: (X, X), lambda: [X, X]), CaptureError,
                                   "received: a list", None),
    "no state": (lambda: while_loop(lambda s: True, lambda s: s, ()), ShapeError,
                 "nothing could end", None),
}  # fmt: skip


def eager(f):
    return f()


def taped(f):
    with ef.GradientTape():
        return f()


def check(run, call, kind, words, function):
    with pytest.raises(EagerflowError) as info:
        run(call)
    error = info.value
    assert type(error) is kind, f"{type(error).__name__}: {error}"
    assert re.search(words, str(error)), f"{error}"
    if function is not None:
        assert error.at == line_of(function)
    if error.at is not None:
        assert error.at.startswith(__file__), error.at


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("run", [eager, taped, captured])
def test_refused_with_and_without_watching(name, run):
    check(run, *BOTH[name])


@pytest.mark.parametrize("name", WATCHED)
@pytest.mark.parametrize("run", [taped, captured])
def test_refused_where_it_becomes_a_graph(name, run):
    check(run, *WATCHED[name])


def test_the_place_is_that_of_the_function_behind_wrappers():
    class Step:
        def __call__(self, c, x):
            return c[:1], None

    @functools.wraps(narrow)
    def wrapped(*args):
        return narrow(*args)

    line = inspect.getsourcelines(Step.__call__)[1]
    for f, init, place in (
        (functools.partial(narrow), PAIR, line_of(narrow)),
        (wrapped, PAIR, line_of(narrow)),
        (Step(), X, f"{__file__}:{line} in __call__"),
    ):
        with pytest.raises(ShapeError) as info:
            scan(f, init, X)
        assert info.value.at == place


def test_errors_inside_a_loop_name_the_line_in_the_body():
    def body(i, s):
        return s + ef.take(X, i * 2, axis=0)  # out of range in the second step

    line = body.__code__.co_firstlineno + 1
    with pytest.raises(ef.errors.IndexRangeError) as info, ef.GradientTape():
        fori_loop(0, 3, body, t(0.0))
    assert info.value.at == f"{__file__}:{line} in body"
    with pytest.raises(ef.errors.IndexRangeError) as info:
        captured(lambda s: fori_loop(0, 3, body, s), t(0.0))
    assert info.value.at == f"{__file__}:{line} in body"


def test_a_gradient_without_a_bound_names_the_line():
    with ef.GradientTape() as tape:
        x = t(1.0)
        tape.watch(x)
        y = while_loop(lambda s: s < 5.0, lambda s: s * 2.0, x)
    with pytest.raises(ef.errors.GradientError, match="upper bound") as info:
        tape.gradient(y, x)
    assert any("while computing the gradient of while_loop" in n for n in info.value.__notes__)


def test_a_refused_call_leaves_nothing_behind():
    from eagerflow.recorder import process, recorder_state

    before = recorder_state(), len(process.recorders)
    for run in (eager, taped, captured):
        for call, kind, *_ in BOTH.values():
            with pytest.raises(kind):
                run(call)
    assert (recorder_state(), len(process.recorders)) == before


def test_values_of_one_branch_are_no_use_in_another():
    kept = []

    def first():
        kept.append(X * 2.0)
        return kept[0]

    with pytest.raises(CaptureError, match="is kept outside of it"), ef.GradientTape():
        cond(True, first, lambda: kept[0])


def test_a_dict_outside_holds_a_value_of_a_body():
    holder = {}

    def step(c, x):
        holder["c"] = c
        return c, None

    with pytest.raises(CaptureError, match="kept outside of it"):
        graph_of(lambda x: scan(step, x, length=2)[0], X)
