"""Optimizers: steps against PyTorch, schedules, clipping, state, errors."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import optimizers, schedules
from tests.nn.peers import torch

STEPS = 8


def gradients(step):
    rng = np.random.default_rng(step)
    return [rng.standard_normal(s).astype(np.float32) for s in ((3, 4), (5,))]


def ours(optimizer):
    variables = [ef.Variable(np.full(s, 0.5, np.float32)) for s in ((3, 4), (5,))]
    for step in range(STEPS):
        optimizer.apply([ef.tensor(g) for g in gradients(step)], variables)
    return [v.numpy() for v in variables]


def theirs(make):
    values = [torch.full(s, 0.5, requires_grad=True) for s in ((3, 4), (5,))]
    optimizer = make(values)
    for step in range(STEPS):
        for value, g in zip(values, gradients(step), strict=True):
            value.grad = torch.from_numpy(g)
        optimizer.step()
    return [v.detach().numpy() for v in values]


@pytest.mark.parametrize(
    ("optimizer", "peer"),
    [
        (lambda: optimizers.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (lambda: optimizers.SGD(0.1, 0.9), lambda p: torch.optim.SGD(p, 0.1, 0.9)),
        (
            lambda: optimizers.SGD(0.1, 0.9, nesterov=True),
            lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True),
        ),
        (lambda: optimizers.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01, eps=1e-7)),
        (lambda: optimizers.Adam(0.1, 0.5, 0.9), lambda p: torch.optim.Adam(p, 0.1, (0.5, 0.9))),
        (
            lambda: optimizers.AdamW(0.01, 0.1),
            lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1, eps=1e-7),
        ),
    ],
    ids=["sgd", "momentum", "nesterov", "adam", "adam-betas", "adamw"],
)
def test_steps_are_those_of_pytorch(optimizer, peer):
    # Keras puts Adam's epsilon beside the uncorrected root, PyTorch beside the corrected one.
    for x, y in zip(ours(optimizer()), theirs(peer), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weight_decay_of_sgd_shrinks_by_the_learning_rate(momentum):
    w = ef.Variable([2.0])
    optimizers.SGD(0.1, momentum, weight_decay=0.5).apply([ef.tensor([0.0])], [w])
    assert w.numpy() == pytest.approx([2 * (1 - 0.05)])


def test_clipping():
    g = [ef.tensor([3.0, 4.0]), ef.tensor([0.0, 12.0])]
    for options, expected in (
        ({"clipvalue": 3.5}, [[3, 3.5], [0, 3.5]]),
        ({"clipnorm": 5.0}, [[3, 4], [0, 5]]),
        ({"global_clipnorm": 6.5}, [[1.5, 2], [0, 6]]),
    ):
        ws = [ef.Variable([0.0, 0.0]) for _ in g]
        optimizers.SGD(1.0, **options).apply(g, ws)
        for w, e in zip(ws, expected, strict=True):
            np.testing.assert_allclose(-w.numpy(), e, rtol=1e-6)


def test_schedules_and_learning_rates():
    schedule = schedules.PiecewiseConstantDecay([1], [1.0, 0.5])
    optimizer = optimizers.SGD(schedule)
    w = ef.Variable(0.0)
    seen = []
    for _ in range(4):
        optimizer.apply([ef.tensor(1.0)], [w])
        seen.append(float(w))
    assert seen == [-1, -2, -2.5, -3]
    with pytest.raises(ef.errors.ArgumentError, match="schedule"):
        optimizer.learning_rate = 0.1
    plain = optimizers.Adam()
    plain.learning_rate = 0.5
    assert float(plain.learning_rate) == 0.5
    cosine = schedules.CosineDecay(0.0, 10, warmup_target=1.0, warmup_steps=5)
    found = [float(cosine(step)) for step in (0, 1, 5, 10, 15, 20)]
    assert found == pytest.approx([0, 0.2, 1, 0.5, 0, 0], abs=1e-6)
    stairs = schedules.ExponentialDecay(1.0, 4, 0.5, staircase=True)
    assert [float(stairs(s)) for s in (0, 3, 4, 9)] == pytest.approx([1, 1, 0.5, 0.25])


def test_state_is_in_variables_and_resumes():
    first, second = optimizers.Adam(0.1), optimizers.Adam(0.1)
    a, b = ef.Variable([1.0, 2.0]), ef.Variable([1.0, 2.0])
    g = [ef.tensor([0.5, -1.0])]
    first.apply(g, [a])
    first.apply(g, [a])
    second.build([b])
    b.assign(a.value)
    for mine, yours in zip(second.variables, first.variables, strict=True):
        mine.assign(yours.value)
    first.apply(g, [a])
    second.apply(g, [b])
    assert (a.numpy() == b.numpy()).all()
    assert int(second.iterations) == 3
    assert not any(v.trainable for v in first.variables)


def test_missing_gradients_and_wide_variables():
    a, b = ef.Variable([1.0]), ef.Variable([1.0], dtype="float64")
    optimizers.Adam(0.1).apply([None, ef.tensor([1.0], dtype="float64")], [a, b])
    assert a.numpy() == [1]
    assert b.dtype == "float64"
    assert b.numpy() == pytest.approx([0.9], rel=1e-5)


def test_configuration_round_trip():
    made = optimizers.SGD(schedules.CosineDecay(0.1, 100), momentum=0.9, clipnorm=1.0)
    config = {"class_name": "SGD", "config": made.get_config()}
    again = optimizers.get(config)
    assert again.get_config() == made.get_config()
    assert isinstance(again.schedule, schedules.CosineDecay)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: optimizers.get("adm"), ef.errors.ArgumentError, "'adam'"),
        (lambda: optimizers.SGD(-1.0), ef.errors.ArgumentError, "learning rate"),
        (lambda: optimizers.SGD(0.1, momentum=2), ef.errors.ArgumentError, "momentum"),
        (lambda: optimizers.Adam(beta_1=1.0), ef.errors.ArgumentError, "beta_1"),
        (lambda: optimizers.Adam(clipnorm=1, clipvalue=1), ef.errors.ArgumentError, "one of"),
        (
            lambda: optimizers.SGD().apply([], [ef.Variable(1.0)]),
            ef.errors.GradientError,
            "0 gradients for 1",
        ),
        (
            lambda: optimizers.SGD().apply([ef.ones((2,))], [ef.Variable([1.0], name="w")]),
            ef.errors.ShapeError,
            "w: the gradient has another shape",
        ),
        (
            lambda: optimizers.SGD().apply([ef.ones(())], [ef.ones(())]),
            ef.errors.GradientError,
            "only Variables",
        ),
        (lambda: schedules.PiecewiseConstantDecay([1], [1.0]), ef.errors.ArgumentError, "one"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
