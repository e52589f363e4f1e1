"""Optimizers: steps against PyTorch, schedules, clipping, state, errors."""

import math

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.nn import optimizers, schedules
from eagerflow.op import ops
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


@pytest.mark.parametrize(("optimizer", "peer"), [
    (lambda: optimizers.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (lambda: optimizers.SGD(0.1, 0.9), lambda p: torch.optim.SGD(p, 0.1, 0.9)),
    (lambda: optimizers.SGD(0.1, 0.9, nesterov=True),
     lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True)),
    (lambda: optimizers.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01, eps=1e-7)),
    (lambda: optimizers.Adam(0.1, 0.5, 0.9), lambda p: torch.optim.Adam(p, 0.1, (0.5, 0.9))),
    (lambda: optimizers.AdamW(0.01, 0.1),
     lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1, eps=1e-7)),
], ids=["sgd", "momentum", "nesterov", "adam", "adam-betas", "adamw"])  # fmt: skip
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


def test_learning_rates():
    optimizer = optimizers.SGD(schedules.PiecewiseConstantDecay([1], [1.0, 0.5]))
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


ALL = [
    name
    for name in optimizers.__all__
    if isinstance(getattr(optimizers, name), type)
    and name not in ("Optimizer", "LBFGS", "LossScaleOptimizer")
]


def make(name, /, **options):
    return getattr(optimizers, name)(learning_rate=0.1, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ALL)
def test_each_makes_a_loss_small(name, dtype):
    w = ef.Variable([[1.0, -0.5], [0.25, 1.0], [0.5, -1.0]], dtype=dtype)
    optimizer = make(name)
    if name == "Adadelta":
        optimizer.learning_rate = 100.0
    losses = [float(optimizer.minimize(lambda: (w * w).sum())) for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]
    assert w.dtype == dtype
    assert int(optimizer.iterations) == 30


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ALL)
def test_captured_steps_are_those_of_eager_code(name):
    shapes = [(3, 4), (5,), (), (2, 2, 3), (7,), (1,), (2, 1)]
    options = {"weight_decay": 0.01, "clipnorm": 3.0, "use_ema": True, "ema_overwrite_frequency": 2}
    found = []
    for wrap in (ef.function, lambda f: f):
        rng = np.random.default_rng(0)
        weights = [ef.Variable(rng.normal(size=s).astype("float32")) for s in shapes]
        optimizer = make(name, **options)
        apply = wrap(optimizer.apply)
        for _ in range(5):
            apply([ef.tensor(rng.normal(size=s).astype("float32")) for s in shapes], weights)
        found.append([v.numpy() for v in (*weights, *optimizer.variables)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shapes", [((3, 2), (), (4,)), ((70, 300), (5, 3), (1,), (2, 0))])
def test_variables_at_once_together_and_alone(name, shapes, monkeypatch):
    """One call of machine code, one of an op, and one for each variable: the same bits."""
    found = []
    one_op = optimizers.one_op
    at_once, seen = one_op.joint_step, []
    for way in ("at once", "together", "alone"):
        step = at_once if way == "at once" else lambda *facts: None
        monkeypatch.setattr(
            one_op, "joint_step", lambda *facts, step=step: seen.append(step(*facts)) or seen[-1]
        )
        monkeypatch.setattr(one_op, "MIN_SMALL_VARIABLES", 1000 if way == "alone" else 2)
        rng = np.random.default_rng(0)
        weights = [ef.Variable(rng.normal(size=s).astype("float32")) for s in shapes]
        optimizer = make(name, weight_decay=0.1)
        optimizer.exclude_from_weight_decay([weights[2]])
        for _ in range(3):
            grads = [ef.tensor(rng.normal(size=w.shape), "float32") for w in weights]
            grads[0] = ef.permute_dims(ef.tensor(grads[0].numpy().T.copy()))  # not in row order
            optimizer.apply(grads, weights)
        found.append([v.numpy() for v in (*weights, *optimizer.variables)])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    native = generated.enabled() and 0 not in map(math.prod, shapes)
    if native and name in ("adam", "adamw", "sgd", "rmsprop"):
        assert any(step is not None for step in seen)


def test_formulas_that_round_otherwise_are_no_joint_steps():
    """Only instructions with the same bits in NumPy and in machine code."""
    attributes = {"update": ops["ftrl_update"], "exact": ops["adam_update"]}
    step, row = optimizers.joint_steps.joint_step, (np.dtype("float32"), (3, 4))
    found = {name: step(op, dict(op.attributes), *row) for name, op in attributes.items()}
    assert found["update"] is None
    assert (found["exact"] is not None) == generated.enabled()


@pytest.mark.parametrize("name", ALL)
def test_configurations(name):
    options = {"clipvalue": 2.0, "use_ema": True, "gradient_accumulation_steps": 4, "name": "mine"}
    made = make(name, **options)
    config = made.get_config()
    assert config["learning_rate"] == 0.1
    again = optimizers.get({"class_name": name, "config": config})
    assert type(again) is type(made)
    assert again.get_config() == config
    made.learning_rate = 0.25
    assert made.get_config()["learning_rate"] == 0.25


def test_names_of_keras():
    for name in ("adam", "adamw", "rmsprop", "sgd", "adafactor", "Lion", "RMSprop", "AdamW"):
        assert type(optimizers.get(name)).__name__.lower() == name.lower()
    assert optimizers.schedules is schedules


def test_rates_that_functions_give():
    rates = iter([0.5, 0.25])
    optimizer = optimizers.SGD(lambda: next(rates))
    w = ef.Variable(0.0)
    for _ in range(2):
        optimizer.apply([ef.tensor(1.0)], [w])
    assert float(w) == -0.75
    plain = optimizers.SGD(0.5)
    plain.learning_rate = schedules.PiecewiseConstantDecay([0], [1.0, 0.25])
    assert float(plain.learning_rate) == 1.0
    assert [v.name for v in plain.variables] == ["sgd/iterations"]


def test_pairs_and_variables_of_before():
    w = ef.Variable([1.0])
    optimizer = optimizers.SGD(0.5)
    assert int(optimizer.apply_gradients([(ef.tensor([1.0]), w)])) == 1
    optimizer.apply([ef.tensor([1.0])])
    assert w.numpy() == [0]
    assert optimizer.has_changed(w)
    assert not optimizer.has_changed(ef.Variable(0.0))


def test_constraints_come_last():
    w = ef.Variable([1.0, 1.0])
    w.constraint = ef.nn.constraints.NonNeg()
    optimizers.SGD(1.0).apply([ef.tensor([2.0, 0.5])], [w])
    assert w.numpy().tolist() == [0, 0.5]


def test_accumulated_gradients_are_one_step_along_their_mean():
    one, many = ef.Variable([1.0, 2.0]), ef.Variable([1.0, 2.0])
    slow = optimizers.Adam(0.1, gradient_accumulation_steps=3)
    for g in ([1.0, 0.0], [2.0, 3.0], [0.0, 0.0]):
        assert many.numpy().tolist() == [1, 2]
        slow.apply([ef.tensor(g)], [many])
    optimizers.Adam(0.1).apply([ef.tensor([1.0, 1.0])], [one])
    np.testing.assert_array_equal(one.numpy(), many.numpy())
    assert int(slow.iterations) == 1


def test_means_of_weights():
    w = ef.Variable([0.0])
    optimizer = optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5)
    for _ in range(3):
        optimizer.apply([ef.tensor([-1.0])], [w])
    assert w.numpy() == [3]
    optimizer.finalize_variable_values([w])
    assert w.numpy() == [2.25]  # 1, then halfway to 2, and halfway from there to 3


def test_a_scaled_loss_gives_the_same_steps():
    v, w = ef.Variable([3.0, -1.0]), ef.Variable([3.0, -1.0])
    assert float(optimizers.SGD(0.1).minimize(lambda: (v * v).sum())) == 10
    scaling = optimizers.SGD(0.1, loss_scale_factor=1024.0)
    assert float(scaling.minimize(lambda: (w * w).sum())) == 10
    np.testing.assert_array_equal(v.numpy(), w.numpy())


def test_dynamic_scale_in_float16():
    """A gradient too small for float16 arrives, and one too large is not applied."""
    w = ef.Variable([1.0])
    optimizer = optimizers.LossScaleOptimizer("sgd", dynamic_growth_steps=2)
    optimizer.learning_rate = 1000.0
    assert float(optimizer.learning_rate) == 1000

    def small():
        return (w.astype("float16") * ef.tensor([1e-4], "float16") * 1e-4).sum()

    optimizer.minimize(lambda: small().astype("float32"))
    assert float(w) < 1
    before = w.numpy()
    assert optimizer.has_changed(w)
    optimizer.minimize(lambda: (w.astype("float16") * ef.tensor([100.0], "float16")).sum())
    np.testing.assert_array_equal(w.numpy(), before)
    assert float(optimizer.dynamic_scale) == 2.0**14
    config = {"class_name": "LossScaleOptimizer", "config": optimizer.get_config()}
    assert optimizers.get(config).get_config() == optimizer.get_config()


def test_adafactor_keeps_rows_and_columns():
    w, b = ef.Variable(np.ones((3, 4), "float32")), ef.Variable(np.ones(5, "float32"))
    optimizer = optimizers.Adafactor()
    optimizer.build([w, b])
    assert [v.shape for v in optimizer.variables] == [(), (), (3,), (4,), (3, 4), (), (), (5,)]


def test_steps_of_muon_are_orthogonal():
    rng = np.random.default_rng(0)
    for shape in ((4, 4), (8, 3), (3, 8)):
        w = ef.Variable(np.zeros(shape, "float32"))
        optimizer = optimizers.Muon(1.0, weight_decay=None, rms_rate=None, ns_steps=6)
        optimizer.apply([ef.tensor(rng.normal(size=shape), "float32")], [w])
        values = np.linalg.svd(w.numpy(), compute_uv=False)
        assert 0.6 < values.min() <= values.max() < 1.3


def test_which_weights_muon_gives_to_adam():
    muon = optimizers.Muon(exclude_layers=["^output"])
    square, line = np.ones((2, 2)), np.ones(2)
    for name, value, expected in (
        ("dense/kernel", square, False),
        ("dense/bias", line, True),
        ("my_Embedding/table", square, True),
        ("output/kernel", square, True),
        ("hidden/output", square, False),
    ):
        assert muon.uses_adam(ef.Variable(value, name)) == expected


def test_weights_that_do_not_matter_become_zero():
    w = ef.Variable([0.5, 0.5])
    optimizer = optimizers.Ftrl(1.0, l1_regularization_strength=1.0)
    for _ in range(50):
        optimizer.minimize(lambda: (w[0] - 2.0) ** 2 + 0.01 * w[1])
    assert float(w[1]) == 0
    assert float(w[0]) > 0.5


def built():
    optimizer = optimizers.Adam()
    optimizer.build([ef.Variable(1.0)])
    return optimizer


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: optimizers.get("adm"), ef.errors.ArgumentError, "'adam'"),
    (lambda: optimizers.SGD(-1.0), ef.errors.ArgumentError, "learning rate"),
    (lambda: optimizers.SGD(0.1, momentum=2), ef.errors.ArgumentError, "momentum"),
    (lambda: optimizers.Adam(beta_1=1.0), ef.errors.ArgumentError, "beta_1"),
    (lambda: optimizers.Adam(clipnorm=1, clipvalue=1), ef.errors.ArgumentError, "one of"),
    (lambda: optimizers.SGD().apply([], [ef.Variable(1.0)]), ef.errors.GradientError,
     "0 gradients for 1"),
    (lambda: optimizers.SGD().apply([ef.ones((2,))], [ef.Variable([1.0], name="w")]),
     ef.errors.ShapeError, "w: the gradient and its variable differ in shape"),
    (lambda: optimizers.SGD().apply([ef.ones(())], [ef.ones(())]), ef.errors.GradientError,
     "only Variables"),
    (lambda: optimizers.Adam(clipnorm=-1.0), ef.errors.ArgumentError, "clipnorm: -1.0 is not"),
    (lambda: optimizers.Adam(ema_momentum=2.0), ef.errors.ArgumentError, "ema_momentum"),
    (lambda: optimizers.Adam(ema_overwrite_frequency=0), ef.errors.ArgumentError,
     "ema_overwrite_frequency"),
    (lambda: optimizers.Adam(gradient_accumulation_steps=1), ef.errors.ArgumentError,
     "gradient_accumulation_steps: 1 is out of range"),
    (lambda: optimizers.AdamW(weight_decay=None), ef.errors.ArgumentError, "there is none"),
    (lambda: optimizers.Lion(beta_1=0.0), ef.errors.ArgumentError, "beta_1"),
    (lambda: optimizers.Ftrl(l1_regularization_strength=-1.0), ef.errors.ArgumentError,
     "l1_regularization_strength: -1.0 is negative"),
    (lambda: optimizers.Ftrl(learning_rate_power=1.0), ef.errors.ArgumentError, "positive"),
    (lambda: optimizers.LossScaleOptimizer(3), ef.errors.ArgumentError, "int is not"),
    (lambda: optimizers.LossScaleOptimizer("sgd", initial_scale=0.0), ef.errors.ArgumentError,
     "initial_scale"),
    (lambda: built().exclude_from_weight_decay(), ef.errors.ArgumentError, "built already"),
])  # fmt: skip
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_groups_by_every_kind_of_part():
    layers = [ef.nn.Dense(2, name=f"part{i}") for i in range(4)]
    model = ef.nn.Sequential([ef.nn.Input((2,)), *layers])
    optimizer = optimizers.SGD(0.5, weight_decay=0.25)
    optimizer.add_group("part", multiplier=0.5)
    optimizer.add_group(layers[0], multiplier=2.0)
    optimizer.add_group([layers[1].kernel, r"part2.*bias"], multiplier=4.0, weight_decay=0.5)
    optimizer.add_group(layers[3].bias, weight_decay=0.0)
    multipliers = {"part0/kernel": 2, "part0/bias": 2, "part1/kernel": 4, "part2/bias": 4}
    decays = {"part1/kernel": 0.5, "part2/bias": 0.5, "part3/bias": 0.0}
    weights = model.trainable_weights
    for w in weights:
        w.assign(np.ones(w.shape))
    optimizer.apply([ef.ones(w.shape) for w in weights], weights)
    for w in weights:
        rate = 0.5 * multipliers.get(w.name, 0.5)
        right = 1.0 - rate - rate * decays.get(w.name, 0.25)
        np.testing.assert_allclose(w.numpy(), right, 1e-6, err_msg=w.name)


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (2, 3, 4)])
def test_adafactor_is_its_formula(shape):
    """Algorithm 4 of Shazeer and Stern, with the mean of each matrix of a stack."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape).astype("f4")
    value, (row, column, whole) = np.float64(x), np.zeros(3)
    variable, optimizer = ef.Variable(x), optimizers.Adafactor(0.3)
    for step in range(1, 5):
        g = np.asarray(rng.standard_normal(shape), "f4")
        optimizer.apply([ef.tensor(g)], [variable])
        kept, square = 1.0 - step**-0.8, np.float64(g) ** 2 + 1e-30
        if len(shape) < 2:
            v = whole = whole * kept + square * (1 - kept)
        else:
            row = row * kept + square.mean(-1, keepdims=True) * (1 - kept)
            column = column * kept + square.mean(-2, keepdims=True) * (1 - kept)
            v = row * column / row.mean(-2, keepdims=True)
        u = g / np.sqrt(v)
        u /= max(1.0, np.sqrt((u**2).mean()))
        size = max(1e-3, np.sqrt((value**2).mean()))
        value = value - min(0.3, 1 / np.sqrt(step)) * size * u
    np.testing.assert_allclose(variable.numpy(), value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("warmup", [0, 5])
def test_schedule_free_adamw_is_its_formula(warmup):
    """z takes the steps of Adam, x is the mean of z, and the weights lie between them."""
    start = gradients(100)[0]
    variable = ef.Variable(start)
    optimizer = optimizers.ScheduleFreeAdamW(0.05, warmup_steps=warmup)
    x = y = z = np.float64(start)
    v = 0.0
    for step in range(1, STEPS + 1):
        g = gradients(step)[0]
        optimizer.apply([ef.tensor(g)], [variable])
        rate = 0.05 * min(step / warmup, 1) if warmup else 0.05
        v = 0.999 * v + 0.001 * np.float64(g) ** 2
        z = z - rate * g / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        x = x + (z - x) / step
        y = 0.1 * z + 0.9 * x
    np.testing.assert_allclose(variable.numpy(), y, rtol=1e-4, atol=1e-6)
