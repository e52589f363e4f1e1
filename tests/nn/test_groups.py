"""Groups of variables in optimizers: PyTorch's parameter groups, in every way of training."""

import copy
import inspect
import pickle
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import eagerflow as ef

optimizers = ef.nn.optimizers
NAMES = [
    name
    for name in optimizers.__all__
    if name not in ("LBFGS", "LossScaleOptimizer", "Optimizer", "get", "schedules")
]
VALUES = [np.array([[1.0, -2.0], [0.5, 3.0]], "float32"), np.array([0.5, -1.5], "float32")]
NAMED = ("body/w", "head/b")
STEPS = 4


def weights():
    return [ef.Variable(value, name) for value, name in zip(VALUES, NAMED, strict=True)]


def gradients(step):
    random = np.random.default_rng(step)
    return [ef.tensor(random.normal(size=v.shape).astype("float32")) for v in VALUES]


def trained(optimizer, variables, steps=STEPS, start=0, apply=None):
    for step in range(start, start + steps):
        (apply or optimizer.apply)(gradients(step), variables)
    return [v.numpy() for v in variables]


def alone(name, rate, index, **options):
    """The values of one variable that an optimizer of its own has trained."""
    optimizer, variable = getattr(optimizers, name)(rate, **options), weights()[index]
    for step in range(STEPS):
        optimizer.apply([gradients(step)[index]], [variable])
    return variable.numpy()


def assert_close(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_group_is_an_optimizer_of_its_own(name, captured):
    options = {"weight_decay": 0.02}
    optimizer, variables = getattr(optimizers, name)(0.01, **options), weights()
    optimizer.add_group(variables[0], multiplier=0.25, weight_decay=0.3)
    apply = ef.function(lambda g, v=variables: optimizer.apply(g, v)) if captured else None
    found = trained(optimizer, variables, apply=apply and (lambda g, v: apply(g)))
    expected = [alone(name, 0.0025, 0, weight_decay=0.3), alone(name, 0.01, 1, **options)]
    assert_close(found, expected)
    assert not np.allclose(found[0], alone(name, 0.01, 0, **options), rtol=1e-4)


def test_every_optimizer_takes_groups():
    assert len(NAMES) == 14 and all(inspect.isclass(getattr(optimizers, x)) for x in NAMES)


@pytest.mark.parametrize(
    ("peer", "options", "own"),
    [
        ("SGD", {"momentum": 0.9}, optimizers.SGD(0.1, momentum=0.9)),
        ("SGD", {}, optimizers.SGD(0.1)),
        ("AdamW", {"eps": 1e-7}, optimizers.AdamW(0.1, weight_decay=0.0)),
        ("Adagrad", {"eps": 1e-7}, optimizers.Adagrad(0.1, 0.0)),
    ],
)
def test_pytorch_has_the_same_groups(peer, options, own):
    torch = pytest.importorskip("torch")
    theirs = [torch.tensor(value.copy(), requires_grad=True) for value in VALUES]
    decays = {"weight_decay": 0.5} if peer == "AdamW" else {}
    groups = [{"params": theirs[:1], "lr": 0.02, **decays}, {"params": theirs[1:]}]
    options = options | ({"weight_decay": 0.0} if decays else {})
    optimizer = getattr(torch.optim, peer)(groups, lr=0.1, **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    variables = weights()
    own.add_group("^body/", multiplier=0.2, **decays)
    for step in range(STEPS):
        for parameter, gradient in zip(theirs, gradients(step), strict=True):
            parameter.grad = torch.tensor(gradient.numpy())
        optimizer.step()
        own.apply(gradients(step), variables)
        if peer != "SGD" or not options:  # Keras's velocity contains the rate
            schedule.step()
            own.learning_rate = float(own.learning_rate) * 0.5
    assert_close([v.numpy() for v in variables], [p.detach().numpy() for p in theirs])


def test_schedules_drive_all_groups():
    schedule = ef.nn.schedules.ExponentialDecay(0.1, 2, 0.5)
    optimizer, variables = optimizers.Adam(schedule), weights()
    optimizer.add_group(variables[:1], multiplier=0.5)
    half = ef.nn.schedules.ExponentialDecay(0.05, 2, 0.5)
    assert_close(
        trained(optimizer, variables), [alone("Adam", half, 0), alone("Adam", schedule, 1)]
    )


def test_rows_of_a_table_have_the_rate_of_their_group():
    table, other = ef.Variable(np.ones((3, 2), "float32")), ef.Variable(np.ones((3, 2), "float32"))
    optimizer = optimizers.SGD(0.5, weight_decay=0.1)
    optimizer.add_group(table, multiplier=0.5, weight_decay=0.0)
    slices = ef.IndexedSlices(ef.ones((1, 2)), ef.tensor([1]), (3, 2))
    optimizer.apply([slices, slices], [table, other])
    np.testing.assert_allclose(table.numpy()[:, 0], [1, 0.75, 1])
    np.testing.assert_allclose(other.numpy()[:, 0], [1, 0.45, 1], rtol=1e-6)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_groups_of_copies(how):
    variables = weights()
    optimizer = optimizers.Adam(0.1)
    optimizer.add_group(variables[0], multiplier=0.1)
    untrained, its_variables = how((optimizer, variables))
    trained(optimizer, variables, 2)
    again, copies = how((optimizer, variables))
    expected = trained(optimizer, variables, 2, 2)
    assert_close(trained(again, copies, 2, 2), expected)
    assert_close(trained(untrained, its_variables, 4), expected)


def model_of(optimizer):
    ef.random.seed(3)
    body = ef.nn.Sequential([ef.nn.Dense(4, activation="tanh")], name="body")
    model = ef.nn.Sequential([ef.nn.Input((3,)), body, ef.nn.Dense(1)])
    optimizer.add_group(body, multiplier=0.1, weight_decay=0.5)
    optimizer.add_group("bias", weight_decay=0.0)
    model.compile(optimizer, "mse")
    return model


X = np.linspace(-1, 1, 24, dtype="float32").reshape(8, 3)
Y = X[:, :1] * 2


@pytest.mark.parametrize("wrap", [lambda x: x, optimizers.LossScaleOptimizer])
def test_fit_saved_and_resumed(wrap):
    model = model_of(wrap(optimizers.AdamW(0.01)))
    kinds = [model.optimizer.group_of(w) for w in model.weights]
    assert kinds == [(0.1, 0.5), (0.1, 0.0), (None, None), (None, 0.0)]
    model.fit(X, Y, epochs=1, batch_size=4, verbose=0, shuffle=False)
    with TemporaryDirectory() as folder:
        model.save(f"{folder}/model.ef")
        ef.nn.Checkpoint(folder).save(model)
        expected = model.fit(X, Y, epochs=2, batch_size=4, verbose=0, shuffle=False).history
        loaded = ef.nn.load_model(f"{folder}/model.ef")
        restored = model_of(wrap(optimizers.AdamW(0.01)))
        ef.nn.Checkpoint(folder).restore(restored)
    assert [loaded.optimizer.group_of(w) for w in loaded.weights] == kinds
    for again in (loaded, restored):
        history = again.fit(X, Y, epochs=2, batch_size=4, verbose=0, shuffle=False).history
        assert history == expected
        for x, y in zip(again.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"use_ema": True}, {"gradient_accumulation_steps": 2}, {"global_clipnorm": 0.1}],
    ids=str,
)
def test_own_loop_equals_fit(options, captured):
    fitted = model_of(optimizers.Adam(0.1, **options))
    fitted.fit(X, Y, epochs=3, batch_size=8, verbose=0, shuffle=False)
    model = model_of(optimizers.Adam(0.1, **options))

    def step(x, y):
        with ef.GradientTape() as tape:
            loss = ef.nn.losses.MeanSquaredError()(y, model(x, training=True))
        model.optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)

    for _ in range(3):
        (ef.function(step) if captured else step)(X, Y)
    model.optimizer.finalize_variable_values(model.trainable_weights)
    for one, other in zip(model.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda o, w: o.add_group(w), "expected: multiplier or weight_decay"),
        (lambda o, w: o.add_group(w, 0.0), "multiplier: 0.0 is not a multiplier"),
        (lambda o, w: o.add_group(w, float("inf")), "multiplier: inf is not a multiplier"),
        (lambda o, w: o.add_group(w, "0.1"), "layer.trainable = False"),
        (lambda o, w: o.add_group(w, 1.0, -1.0), "weight_decay: -1.0 is not a weight decay"),
        (lambda o, w: o.add_group([ef.ones(2)], 0.1), "layers, Variables, and regular"),
        (lambda o, w: o.add_group(3, 0.1), "parts: 3 is not a part of a model"),
        (lambda o, w: (o.build(w), o.add_group(w, 0.1)), "built already"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ef.errors.ArgumentError) as raised:
        call(optimizers.Adam(), weights())
    assert words in str(raised.value)
