"""Copies and pickles of what is being trained go on as the original does, bit for bit."""

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
