"""Copies and pickles of models in training continue as the original does, bit for bit."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import eagerflow as ef

RNG = np.random.default_rng(7)
X = RNG.normal(size=(16, 4)).astype("float32")
Y = RNG.normal(size=(16, 2)).astype("float32")

OPTIMIZERS = sorted(
    name
    for name, cls in vars(ef.nn.optimizers).items()
    if inspect.isclass(cls) and issubclass(cls, ef.nn.optimizers.Optimizer) and name != "Optimizer"
)
OPTIONS = {
    "plain": {},
    "means": {"use_ema": True, "ema_overwrite_frequency": 3},
    "in turn": {"gradient_accumulation_steps": 2},
    "decay": {"weight_decay": 0.1},
}
COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "both": lambda x: copy.deepcopy(pickle.loads(pickle.dumps(x))),
}
QUICK = [("Adam", "means"), ("SGD", "in turn"), ("LossScaleOptimizer", "decay")]


def optimizer_of(name, options):
    cls = getattr(ef.nn.optimizers, name)
    if name != "LossScaleOptimizer":
        return cls(0.01, **options)
    return cls(ef.nn.optimizers.Adam(0.01, **options))


def fitted(model):
    """The weights, the state of the optimizer and the numbers after two more epochs."""
    ef.random.seed(3)
    history = model.fit(X, Y, epochs=2, batch_size=8, verbose=0, shuffle=False).history
    variables = [*model.weights, *model.optimizer.variables]
    return [*history.values(), *(np.array(v.numpy()) for v in variables)]


def assert_same_bits(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        pytest.param(n, o, marks=() if (n, o) in QUICK else pytest.mark.soak)
        for n in OPTIMIZERS
        for o in OPTIONS
    ],
)
def test_copies_of_a_trained_model_go_on_alike(name, option):
    optimizer = optimizer_of(name, OPTIONS[option])
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model = ef.nn.Sequential([ef.nn.Dense(3, activation="tanh"), ef.nn.Dense(2)])
    model.compile(optimizer, loss="mse", metrics=["mae"])
    fitted(model)
    copies = [make(model) for make in COPIES.values()]
    for made in copies:
        assert len(made.optimizer.variables) == len(optimizer.variables)
    first = fitted(copies[0])  # which must leave the original and the others as they were
    expected = fitted(model)
    assert_same_bits(first, expected)
    for other in copies[1:]:
        assert_same_bits(fitted(other), expected)


@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_variables_and_their_optimizer_are_copied_together(name, kind):
    """Also where the optimizer comes first, and excluded Variables stay excluded."""
    a, b = (ef.Variable(RNG.normal(size=(3, 2)).astype("float32"), name="w") for _ in range(2))
    optimizer = optimizer_of(name, {"weight_decay": 0.1})
    optimizer.exclude_from_weight_decay([b])
    nest = {"optimizer": optimizer, "weights": [a, b], "again": a}

    def step(nest):
        grads = [w.value * 0.5 + 1.0 for w in nest["weights"]]
        nest["optimizer"].apply(grads, nest["weights"])
        return [np.array(w.numpy()) for w in nest["weights"]]

    step(nest)
    made = COPIES[kind](nest)
    assert made["again"] is made["weights"][0] and a is not made["again"]
    inner = getattr(made["optimizer"], "inner_optimizer", made["optimizer"])
    assert [inner.is_excluded(w) for w in made["weights"]] == [False, True]
    for _ in range(3):
        assert_same_bits(step(made), step(nest))


def keys_by_identity(root):
    """Tables and sets below ``root`` that have the ``id`` of one of its Variables or Modules."""
    met, waiting = {}, [root]
    while waiting:
        held = waiting.pop()
        if id(held) in met or isinstance(held, (type, ef.Tensor, np.ndarray)):
            continue
        met[id(held)] = held
        slots = [s for c in type(held).__mro__ for s in getattr(c, "__slots__", ())]
        if isinstance(held, dict):
            waiting += [*held, *held.values()]
        elif isinstance(held, list | tuple | set | frozenset):
            waiting += held
        elif type(held).__module__.startswith("eagerflow.nn"):
            waiting.append(getattr(held, "__dict__", {}))
            waiting += [getattr(held, s) for s in slots if s != "__weakref__" and hasattr(held, s)]
    kept = [x for x in met.values() if isinstance(x, ef.Variable | ef.nn.Module)]
    identities = {id(x) for x in kept}
    tables = [x for x in met.values() if isinstance(x, dict | set | frozenset)]
    return [t for t in tables if any(type(k) is int and k in identities for k in t)]


@pytest.mark.parametrize("name", ["Adam", "LossScaleOptimizer", "Muon"])
def test_nothing_that_travels_is_kept_by_identity(name):
    optimizer = optimizer_of(name, {"use_ema": True})
    model = ef.nn.Sequential([ef.nn.Dense(3), ef.nn.Dense(2)])
    model.compile(optimizer, loss="mse")
    fitted(model)
    optimizer.__dict__["planted"] = {id(model.weights[0]): 1}
    assert keys_by_identity(model) == [optimizer.planted]  # the search finds what there is
    del optimizer.planted
    assert keys_by_identity(model) == []


@pytest.mark.parametrize("kind", COPIES)
def test_an_optimizer_copied_alone_refuses_other_variables(kind):
    """Its state is that of copies: for the originals it would begin anew without a word."""
    w = ef.Variable([1.0, 2.0], name="w")
    optimizer = ef.nn.optimizers.Adam(0.1)
    optimizer.apply([ef.ones(2)], [w])
    alone = COPIES[kind](optimizer)
    with pytest.raises(ef.errors.ArgumentError, match="copy of an optimizer"):
        alone.apply([ef.ones(2)], [w])
    alone.apply([ef.ones(2)])
    alone.apply([ef.ones(3)], [ef.Variable([1.0, 2.0, 3.0], name="other")])
    optimizer.apply([ef.ones(2)], [w])
    np.testing.assert_array_equal(alone.variables[2].numpy(), optimizer.variables[2].numpy())


class Nested(ef.nn.Model):
    """Layers in lists and dicts, of which one is used twice."""

    def __init__(self):
        super().__init__()
        self.row = [ef.nn.Dense(4, "relu"), ef.nn.BatchNormalization(), ef.nn.Dropout(0.3)]
        self.named = {"out": ef.nn.Dense(2)}
        self.again = self.row[0]

    def call(self, x, training=False):
        for layer in self.row:
            x = layer(x)
        return self.named["out"](self.again(x))


def shared_layers():
    x = ef.nn.Input((4,))
    dense = ef.nn.Dense(4, "tanh")
    return ef.nn.Model(x, ef.nn.Dense(2)(ef.nn.Dropout(0.2)(dense(dense(x)))))


def slower(epoch, rate):
    return rate * 0.9


CALLBACKS = {
    "none": lambda: [],
    "stops early": lambda: [
        ef.nn.callbacks.EarlyStopping(monitor="loss", patience=0, restore_best_weights=True)
    ],
    "plateau": lambda: [
        ef.nn.callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=10.0)
    ],
    "rates": lambda: [ef.nn.callbacks.LearningRateScheduler(slower)],
    "means": lambda: [ef.nn.callbacks.SwapEMAWeights(swap_on_epoch=True)],
}


@pytest.mark.parametrize(
    ("make", "callbacks"),
    [
        (shared_layers, "plateau"),
        *(pytest.param(Nested, name, marks=pytest.mark.soak) for name in CALLBACKS),
    ],
)
def test_copies_and_originals_train_like_an_uncopied_model(make, callbacks):
    def trained():
        ef.random.seed(1)
        model = make()
        rate = ef.nn.schedules.ExponentialDecay(0.01, 2, 0.9) if callbacks == "none" else 0.01
        adam = ef.nn.optimizers.Adam(rate, use_ema=callbacks == "means")
        model.compile(adam, "mse", metrics=["mae", ef.nn.metrics.RootMeanSquaredError()])
        nest = {"callbacks": CALLBACKS[callbacks](), "model": model}
        goes_on(nest)
        return nest

    def goes_on(nest):
        ef.random.seed(3)
        model = nest["model"]
        history = model.fit(
            X, Y, epochs=2, batch_size=8, verbose=0, shuffle=False, callbacks=nest["callbacks"]
        ).history
        return [*history.values(), *(np.array(v.numpy()) for v in model.weights)]

    original, twin = trained(), trained()
    copies = [made(original) for made in COPIES.values()]
    first, own, expected = goes_on(copies[0]), goes_on(original), goes_on(twin)
    for found in (first, own, *map(goes_on, copies[1:])):
        assert_same_bits(found, expected)


@pytest.mark.parametrize("kind", COPIES)
def test_metrics_and_generators_go_on_alike(kind):
    metrics = [ef.nn.metrics.MeanSquaredError(), ef.nn.metrics.AUC(), ef.nn.metrics.Mean()]
    generator = ef.random.Generator(3)
    labels = (Y > 0).astype("float32")

    def step(nest):
        for metric in nest["metrics"][:2]:
            metric.update_state(labels, np.abs(Y) / 4)
        nest["metrics"][2].update_state(nest["generator"].normal((3,)))
        return [np.array(metric.result()) for metric in nest["metrics"]]

    nest = {"metrics": metrics, "generator": generator}
    step(nest)
    made, twin = COPIES[kind](nest), copy.deepcopy(nest)
    for _ in range(2):
        expected = step(twin)
        assert_same_bits(step(made), expected)
        assert_same_bits(step(nest), expected)
