"""Training steps as programs: the state is updated as captured runs update Variables."""

import numpy as np

import eagerflow as ef
import eagerflow.capture
from tests.standalone.programs import Program, assert_close

STEPS = 20


def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((16, 6)).astype("f"), rng.integers(0, 3, 16)


def training_of(model, optimizer):
    losses = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = losses(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
        return loss

    return step


def compare(model, optimizer, units):
    x, y = data()
    model(ef.tensor(x))
    step = training_of(model, optimizer)
    graph = step.graph(ef.TensorSpec(x.shape, x.dtype), ef.TensorSpec(y.shape, y.dtype))
    program = Program(graph)
    losses = []
    for _ in range(STEPS):
        found, wanted = program(x, y), step(ef.tensor(x), ef.tensor(y)).numpy()
        assert_close(found, wanted, units)
        losses.append(float(found))
    assert losses[-1] < losses[0]
    for name, variable in graph.variables.items():
        place = program.weights
        for part in name.split("/"):
            place = place[part]
        assert_close(place, variable.numpy(), units * 16)
    return program


def test_adam_on_dense_layers():
    model = ef.nn.Sequential([ef.nn.Dense(8, "tanh"), ef.nn.Dense(3)])
    program = compare(model, ef.nn.optimizers.Adam(0.01), 64)
    assert 'state["adam"]["iterations"] =' in program.text


def test_momentum_with_batch_normalization():
    model = ef.nn.Sequential(
        [ef.nn.Dense(8, use_bias=False), ef.nn.BatchNormalization(), ef.nn.Dense(3)]
    )
    compare(model, ef.nn.optimizers.SGD(0.05, momentum=0.9), 256)


def test_dropout_draws_the_same_numbers():
    ef.random.seed(3)
    model = ef.nn.Sequential([ef.nn.Dense(8, "relu"), ef.nn.Dropout(0.5), ef.nn.Dense(3)])
    program = compare(model, ef.nn.optimizers.SGD(0.05), 64)
    assert "np.random.Philox" in program.text


def test_program_reads_the_state_before_assignments():
    a, b = ef.Variable([1.0, 2.0], name="a"), ef.Variable([3.0, 4.0], name="b")

    @ef.function
    def swap(x):
        before = a.value
        a.assign(b.value + x)
        b.assign(before)
        return before, a.value

    graph = swap.graph(ef.TensorSpec((2,), "float32"))
    program = Program(graph)
    found = program([1.0, 1.0])
    np.testing.assert_array_equal(found, [[1, 2], [4, 5]])
    np.testing.assert_array_equal(program.weights["a"], [4, 5])
    np.testing.assert_array_equal(program.weights["b"], [1, 2])


def test_a_step_that_fails_changes_nothing():
    a, b = ef.Variable([1.0, 2.0], name="a"), ef.Variable([3.0, 4.0], name="b")

    @ef.function
    def step(x):
        a.assign(a + 1)
        b.assign(ef.take(b, x))
        return a.value

    program = Program(step.graph(ef.TensorSpec((2,), "int64")))
    try:
        program([0, 7])
    except IndexError:
        pass
    else:
        raise AssertionError("7 is no index")
    np.testing.assert_array_equal(program.weights["a"], [1, 2])
