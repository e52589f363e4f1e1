"""What a captured function read and what has changed since: functions, attributes, defaults."""

import random

import numpy as np

import eagerflow as ef
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import compare, floats

X = np.array([1.0, 2.0, 3.0], "f4")


def some_function(x):
    return ef.sin(x) + 20


def pytorch_108898():
    """Compiled, a global function that was replaced was still the old one."""

    @ef.function
    def run(x):
        return some_function(x) + 1

    compare(run(ef.tensor(X)), np.sin(X) + 21.0)
    old = globals()["some_function"]
    try:
        globals()["some_function"] = ef.cos
        compare(run(ef.tensor(X)), np.cos(X) + 1.0)
    finally:
        globals()["some_function"] = old
    compare(run(ef.tensor(X)), np.sin(X) + 21.0)


def pytorch_197859():
    """Compiled, a layer that was put into the instance's dictionary was not seen."""

    class Wrapper(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.sub = ef.nn.Dense(3, kernel_initializer="identity", use_bias=False)

        def call(self, x):
            return self.sub(x)

    model = Wrapper()
    x = ef.tensor(np.arange(6.0, dtype="f4").reshape(2, 3))
    run = ef.function(model)
    compare(run(x), x.numpy())
    new = ef.nn.Dense(3, kernel_initializer=ef.nn.initializers.Constant(5.0), use_bias=False)
    new(x)
    object.__setattr__(model, "sub", new)
    expected = x.numpy() @ np.full((3, 3), 5.0)
    compare(model(x), expected)
    compare(run(x), expected)


def pytorch_98928():
    """Compiled, attributes of a module that changed were still those of the first call."""

    class Block(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.scale, self.flags = 2.0, {"shift": True}

        def call(self, x):
            return x * self.scale + (1 if self.flags["shift"] else 0)

    block = Block()
    run = ef.function(block)
    compare(run(ef.tensor(X)), X * 2 + 1.0)
    block.scale = 3.0
    compare(run(ef.tensor(X)), X * 3 + 1.0)
    block.flags["shift"] = False
    compare(run(ef.tensor(X)), X * 3.0)


def pytorch_197811():
    """Two closures of one code, over different methods, shared what was compiled first."""

    def make(op):
        def f(x, y):
            return op(x, y)

        return f

    x, y = ef.tensor(6.0), ef.tensor(3.0)
    pairs = [(ef.Tensor.__add__, 9.0), (ef.Tensor.__mul__, 18.0), (ef.subtract, 3.0)]
    runs = [(ef.function(make(op)), value) for op, value in pairs]
    for _ in range(2):
        for run, value in runs:
            assert run(x, y).item() == value

    op = ef.Tensor.__add__
    run = ef.function(lambda x, y: op(x, y))
    assert run(x, y).item() == 9
    op = ef.Tensor.__mul__
    assert run(x, y).item() == 18


def pytorch_124357():
    """Compiled, a number in an instance of a plain class was that of the first call."""

    class Settings:
        def __init__(self):
            self.number, self.parts = 1, [1, 2]

    settings = Settings()
    run = ef.function(lambda x: x * settings.number + sum(settings.parts))
    compare(run(ef.tensor(X)), X + 3.0)
    settings.number = 4
    compare(run(ef.tensor(X)), X * 4 + 3.0)
    settings.parts.append(10)
    compare(run(ef.tensor(X)), X * 4 + 13.0)


def pytorch_176851():
    """Compiled, an attribute of a class was that of the first call."""

    class State:
        factor = 1.0

    class Child(State):
        pass

    run = ef.function(lambda x: x * State.factor + Child.factor + Child().factor)
    for factor in (1.0, 10.0, -2.0):
        State.factor = factor
        compare(run(ef.tensor(X)), X * factor + 2 * factor)
    Child.factor = 7.0
    compare(run(ef.tensor(X)), X * -2.0 + 14)


def pytorch_178365():
    """Functions of one code with other defaults used those of the first."""

    def make(offset):
        def shifted(x, offset=offset, *, scale=offset * 2):
            return x * scale + offset

        return shifted

    apply = ef.function(lambda f, x: f(x), static=("f",))
    for offset in (1, 5, -3, 1):
        compare(apply(make(offset), ef.tensor(X)), X * (offset * 2.0) + offset)
    inner = make(1)
    run = ef.function(lambda x: inner(x))
    compare(run(ef.tensor(X)), X * 2.0 + 1)
    inner.__defaults__ = (8,)
    compare(run(ef.tensor(X)), X * 2.0 + 8)
    inner.__kwdefaults__["scale"] = 3
    compare(run(ef.tensor(X)), X * 3.0 + 8)


def pytorch_139476():
    """Compiled, a layer that was frozen later was still trained."""
    model = ef.nn.Sequential([ef.nn.Dense(4, name="first"), ef.nn.Dense(1, name="second")])
    x, y = floats(8, 3), floats(8, 1, seed=1)
    model.compile(optimizer=ef.nn.optimizers.SGD(0.1), loss="mse")
    model.train_on_batch(x, y)
    frozen = model.layers[0]
    for trainable in (False, True, False):
        frozen.trainable = trainable
        before = frozen.weights[0].numpy().copy(), model.layers[1].weights[0].numpy().copy()
        model.compile(optimizer=ef.nn.optimizers.SGD(0.1), loss="mse")
        model.train_on_batch(x, y)
        assert np.array_equal(before[0], frozen.weights[0].numpy()) is not trainable
        assert not np.array_equal(before[1], model.layers[1].weights[0].numpy())

    @ef.function
    def step():
        with ef.GradientTape() as tape:
            loss = ef.mean((model(ef.tensor(x)) - y) ** 2)
        return len(tape.gradient(loss, list(model.trainable_weights)))

    for trainable, number in ((True, 4), (False, 2), (True, 4)):
        frozen.trainable = trainable
        assert int(step()) == number


def pytorch_93782():
    """Compiled, a lambda that was given another body was still the old one."""
    rows = [ef.ones(10), ef.ones(10), ef.ones(10)]
    total = lambda rows: sum(rows)

    @ef.function
    def run(rows):
        result = 0
        for _ in range(5):
            result = result + total(rows)
        return result

    compare(run(rows), np.full(10, 15.0))
    total = lambda rows: rows[0]
    compare(run(rows), np.full(10, 5.0))


def pytorch_185382():
    """Compiled, an inner function used a number that was read out in one of the first rounds."""
    p0, g = floats(50), floats(50, seed=1)
    variables = [ef.Variable(p0), ef.Variable(np.zeros(50, "f4")), ef.Variable(np.zeros(50, "f4"))]
    count = ef.Variable(np.zeros((), "i8"))

    @ef.function
    def moments(g):
        m, v = variables[1:]
        m.assign(m * 0.9 + 0.1 * g)
        v.assign(v * 0.999 + 0.001 * g * g)

    @ef.function
    def update(size, correction):
        p, m, v = variables
        p.assign(p - size * m / (ef.sqrt(v) / correction**0.5 + 1e-8))

    expected, m, v = p0.astype("f8"), np.zeros(50), np.zeros(50)
    for step in range(1, 7):
        count.assign_add(1)
        moments(ef.tensor(g))
        n = count.value.item()
        update(0.001 / (1 - 0.9**n), 1 - 0.999**n)
        m, v = m * 0.9 + 0.1 * g, v * 0.999 + 0.001 * g.astype("f8") ** 2
        expected -= 0.001 / (1 - 0.9**step) * m / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        compare(variables[0], expected, rtol=1e-4, atol=1e-6)


def pytorch_197085():
    """Compiled, a list that is shuffled had the order of the first call ever after."""

    def f(x):
        order = [0, 1, 2, 3, 4, 5, 6, 7]
        random.shuffle(order)
        return x[np.array(order)]

    x = ef.arange(8)
    run = ef.function(f)
    state = random.getstate()
    try:
        random.seed(0)
        outcomes = set()
        for _ in range(6):
            outcomes.add(tuple(run(x).tolist()))
    except ef.errors.EagerflowError:
        outcomes = "refused"
    finally:
        random.setstate(state)
    assert outcomes == "refused" or len(outcomes) > 1


@cases("changes", globals())
def test_case(case):
    case()
