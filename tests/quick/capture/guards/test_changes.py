"""What changes between two calls of a captured function is noticed: no result is ever stale.

The ledger's own table goes through ``ef.function``, and what functions alone can see comes on
top: arguments, signatures, Variables, devices, models, state of the library.
"""

import dataclasses
import enum
import functools
import importlib
from collections import Counter, namedtuple

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.errors import CaptureError
from tests.capture.guards.changes import CHANGES, Thing

for _part in "arrays attributes containers functions loops names surroundings".split():
    importlib.import_module(f"tests.capture.guards.changes.{_part}")


def seen(f, *args, **kwargs):
    """A result as numbers, or the class of the error."""
    try:
        leaves = tree.flatten(f(*args, **kwargs))[0]
    except Exception as error:
        return type(error)
    return [x if isinstance(x, str) else repr(np.asarray(x).tolist()) for x in leaves]


def fate(name):
    """What became of a row: right, refused, or stale."""
    _, make = CHANGES[name]
    f, change = make()
    step, x = ef.function(f, static=(0,)), 2.5
    first = seen(step, x)
    second = seen(step, x)
    try:
        change()
        found, wanted = seen(step, x), seen(f, x)
    finally:
        getattr(change, "undo", lambda: None)()
    if CaptureError in (first, second, found):
        return "refused"
    if "<symbolic>" in str(found):
        return "a text that shows a value"  # what it says of the value is not known while tracing
    return "right" if found == wanted else f"stale: {found} instead of {wanted}"


def test_the_ledgers_table(capsys):
    fates = {name: fate(name) for name in CHANGES}
    stale = {name: f for name, f in fates.items() if f.startswith("stale")}
    counts = Counter(f.partition(":")[0] for f in fates.values())
    with capsys.disabled():
        print(f"\n{len(fates)} changes of what functions read: {dict(counts)}")
        print("  refused:", ", ".join(n for n, f in fates.items() if f == "refused"))
    assert not stale
    assert counts["right"] >= 180


# What functions alone can see ---------------------------------------------------------------------

KINDS = {}


def kind(make):
    """Make a function that gives a step, its arguments, and a change, a kind of change."""
    KINDS[make.__name__.replace("_", " ")] = make
    return make


X = ef.tensor([1.0, 2.0, 3.0])


def with_arguments(before, after, f, more=()):
    """Another call in place of a change."""
    calls = [before, after]
    return f, lambda: calls[0], lambda: calls.pop(0), dict(more)


def with_change(f, change, args=(X,), **more):
    return f, lambda: args, change, more


Pair = namedtuple("Pair", "x rate")
Mode = enum.Enum("Mode", "SUM MEAN")
# Arguments of the first calls, those of the last one, the function, and options of ef.function.
ARGUMENTS = {
    "dtype of an input": ((X,), (X.astype("float64"),), lambda x: x / 3),
    "shape of an input": ((X,), (ef.ones((2, 2)),), lambda x: x * x.shape[-1]),
    "rank of an input": ((X,), (ef.ones((3, 1)),), lambda x: x + x.ndim),
    "weak number in place of a tensor": ((X, X), (X, 2.0), lambda x, y: x + y),
    "int in place of float": ((X, 2.0), (X, 3), lambda x, n: x * n),
    "bool in place of int": ((X, 1), (X, True), lambda x, n: x * 2 if n is True else x * n),
    "value of a bool": ((X, True), (X, False), lambda x, flag: x * 2 if flag else x),
    "value of a string": ((X, "sum"), (X, "mean"), lambda x, how: getattr(ef, how)(x)),
    "none to a tensor": ((X, None), (X, X), lambda x, y: x if y is None else x + y),
    "a tuple of sizes": ((X, (3, 1)), (X, (1, 3)), lambda x, s: ef.reshape(x, s), {"static": "s"}),
    "length of a list": (([X, X],), ([X, X, X],), lambda xs: sum(xs, X)),
    "a list in place of a tuple": (((X, X),), ([X, X],), lambda xs: xs + type(xs)([X])),
    "order of a dict argument": (({"a": X, "b": X * 2},), ({"b": X * 2, "a": X},),
                                 lambda d: next(iter(d.values())) * 10 + list(d.values())[1]),
    "a key of a dict argument": (({"a": X},), ({"b": X},), lambda d: d.get("a", X * 0.0) + 1.0),
    "a static argument": ((X, 2), (X, 3), lambda x, n: x**n + n, {"static": ("n",)}),
    "a static argument by its place": ((X, 2), (X, 3), lambda x, n: [x] * n, {"static": 1}),
    "another object of the class": ((X, Thing(r=2.0)), (X, Thing(r=3.0)), lambda x, o: x * o.r),
    "a named tuple": ((Pair(X, 2.0),), (Pair(X, 3.0),), lambda p: p.x * p.rate),
    "an enum": ((X, Mode.SUM), (X, Mode.MEAN),
                lambda x, m: ef.sum(x) if m is Mode.SUM else ef.mean(x)),
    "a function": ((X, ef.sin), (X, ef.cos), lambda x, f: f(x)),
    "what a partial holds": ((X, functools.partial(ef.pow, X)), (X, functools.partial(ef.add, X)),
                             lambda x, f: f(x)),
    "another Variable among the arguments": ((X, ef.Variable(2.0)), (X, ef.Variable(3.0)),
                                             lambda x, w: x * w),
}  # fmt: skip


@kind
def a_keyword_that_is_left_out():
    f = lambda x, *, scale=2.0: x * scale
    calls = [{"scale": 3.0}, {}]
    return f, lambda: (X,), lambda: calls.pop(0), {"kwargs": lambda: calls[0]}


@kind
def the_order_of_keywords():
    calls = [{"a": X, "b": X * 2}, {"b": X * 2, "a": X}]
    f = lambda **d: next(iter(d.values())) - 3 * d["b"]
    return f, lambda: (), lambda: calls.pop(0), {"kwargs": lambda: calls[0]}


@kind
def a_numpy_input_changed_in_place():
    array = np.ones(3, "float32")
    return with_change(lambda x: x * 2, lambda: array.fill(5.0), (array,))


@kind
def an_object_among_the_arguments():
    own = Thing(rate=2.0)
    return with_change(lambda x, o: x * o.rate, lambda: setattr(own, "rate", 3.0), (X, own))


@kind
def a_dataclass_among_the_arguments():
    @dataclasses.dataclass
    class Settings:
        rate: float

    own = Settings(2.0)
    return with_change(lambda x, s: x * s.rate, lambda: setattr(own, "rate", 3.0), (X, own))


@kind
def a_method_that_is_replaced():
    model = Thing(call=lambda x: x * 2)
    return with_change(lambda x: model.call(x), lambda: setattr(model, "call", ef.sin))


@kind
def a_variables_value():
    w = ef.Variable(2.0)
    return with_change(lambda x: x * w, lambda: w.assign(5.0))


@kind
def another_variable():
    own = Thing(w=ef.Variable(2.0))
    return with_change(lambda x: x * own.w, lambda: setattr(own, "w", ef.Variable(3.0)))


@kind
def a_variable_in_place_of_a_number():
    own = Thing(w=2.0)
    return with_change(lambda x: x * own.w, lambda: setattr(own, "w", ef.Variable(3.0)))


@kind
def whether_a_variable_is_trained():
    w = ef.Variable(2.0)

    def f(x):
        with ef.GradientTape() as tape:
            y = ef.sum(x * w * w)
        return tape.gradient(y, w, unconnected="zero")

    return with_change(f, lambda: setattr(w, "trainable", False))


@kind
def a_global_tensor():
    own = Thing(shift=ef.tensor([1.0]))
    return with_change(lambda x: x + own.shift, lambda: setattr(own, "shift", ef.tensor([2.0])))


@kind
def the_seed():
    ef.random.seed(1)
    reset = lambda: ef.random.seed(7)
    return with_change(lambda x: x + ef.random.normal((3,)), reset, reset=reset)


@kind
def another_generator():
    own = Thing(g=ef.random.Generator(1))
    reset = lambda: setattr(own, "g", ef.random.Generator(7))
    return with_change(lambda x: x + own.g.normal((3,)), reset, reset=reset)


@kind
def a_layer_added_to_a_list():
    layers = [ef.sin, ef.tanh]
    f = lambda x: functools.reduce(lambda v, f: f(v), layers, x)
    return with_change(f, lambda: layers.append(ef.cos))


@kind
def the_rate_of_a_dropout_layer():
    layer = ef.nn.Dropout(0.0)
    f = lambda x: ef.sum(layer(x, training=True) * 0.0 + 1.0) + layer.rate
    return with_change(f, lambda: setattr(layer, "rate", 0.5))


@kind
def a_units_activation():
    layer = ef.nn.Dense(2, activation="tanh")
    layer(ef.ones((1, 3)))
    relu = ef.nn.activations.get("relu")
    return with_change(lambda x: layer(x[None]), lambda: setattr(layer, "activation", relu))


@kind
def whether_a_model_is_trained():
    model = ef.nn.Sequential([ef.nn.Dense(2)])
    model(ef.ones((1, 3)))
    f = lambda x: x * len(model.trainable_weights)
    return with_change(f, lambda: setattr(model, "trainable", False))


@kind
def what_an_optimizer_holds():
    optimizer = ef.nn.optimizers.Adam(0.1)
    w = ef.Variable([1.0, 1.0, 1.0])

    def f(x):
        optimizer.apply([x], [w])
        return w.value

    def reset():
        w.assign([1.0, 1.0, 1.0])
        for v in optimizer.variables:
            v.assign(ef.zeros_like(v.value))

    def change():
        optimizer.beta_1 = 0.5
        reset()

    return with_change(f, change, reset=reset)


@kind
def the_function_it_calls_is_captured_and_changes():
    own = Thing(rate=2.0)
    inner = ef.function(lambda x: x * own.rate)
    return with_change(lambda x: inner(x) + 1.0, lambda: setattr(own, "rate", 3.0))


@kind
def the_device():
    scopes = []

    def change():
        scope = ef.device("cpu:0")
        scope.__enter__()
        scopes.append(scope)

    change.undo = lambda: scopes.pop().__exit__(None, None, None)
    return with_change(lambda x: x + ef.ones((3,)), change)


@kind
def a_default_argument():
    def f(x, scale=2.0):
        return x * scale

    return with_change(f, lambda: setattr(f, "__defaults__", (3.0,)))


@kind
def what_the_function_does():
    def f(x):
        return x * 2.0

    def g(x):
        return x * 3.0

    return with_change(f, lambda: setattr(f, "__code__", g.__code__))


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("name", [*ARGUMENTS, *KINDS])
def test_change(name, numerics):
    f, args, change, more = KINDS[name]() if name in KINDS else with_arguments(*ARGUMENTS[name])
    kwargs = more.get("kwargs", dict)
    reset = more.get("reset", lambda: None)
    step = ef.function(f, static=more.get("static", ()), numerics=numerics)
    for _ in range(2):
        first = seen(step, *args(), **kwargs())
        assert not isinstance(first, type), f"{name}: {first}"
    try:
        change()
        found = seen(step, *args(), **kwargs())
        reset()
        wanted = seen(f, *args(), **kwargs())
    finally:
        getattr(change, "undo", lambda: None)()
    if numerics == "exact":
        assert found == wanted, f"stale: {found} instead of {wanted}"
    else:
        np.testing.assert_allclose(eval(found[0]), eval(wanted[0]), rtol=1e-5)


def test_numerics_of_two_functions_of_one_python_function():
    f = lambda x: ef.exp(x) * ef.tanh(x)
    fast, exact = ef.function(f), ef.function(f, numerics="exact")
    x = ef.tensor(np.linspace(-3, 3, 999), dtype="float32")
    assert exact(x).numpy().tobytes() == f(x).numpy().tobytes()
    np.testing.assert_allclose(fast(x).numpy(), f(x).numpy(), rtol=1e-5)


def test_there_are_enough_kinds():
    assert len({*ARGUMENTS, *KINDS}) >= 40
