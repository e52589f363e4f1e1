"""Steps of optimizers on arrays so large that generated kernels take them, beside NumPy's steps."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated
from eagerflow.codegen.bodies import region_of
from eagerflow.codegen.numpy.numbers import numbers_of
from eagerflow.nn import optimizers
from eagerflow.nn.optimizers import one_op
from eagerflow.op import ops

SIZE = (1 << 14) + 37


@pytest.fixture(params=[True, False], ids=["generated", "numpy"], autouse=True)
def compiled(request, monkeypatch):
    if request.param and not generated.enabled():
        pytest.skip("needs llvmlite")
    monkeypatch.setattr(generated, "enabled", lambda: request.param)
    return request.param


def adam(p, g, m, v, rate, t, beta_1=0.9, beta_2=0.999, epsilon=1e-7, weight_decay=0.0):
    """The algorithm as the paper has it, in float64, its epsilon beside the uncorrected root."""
    m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g * g
    scale = rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
    return p * (1 - rate * weight_decay) - scale * m / (np.sqrt(v) + epsilon), m, v


def momentum(p, g, v, rate, momentum=0.9, nesterov=False, weight_decay=0.0):
    v = momentum * v - rate * g
    return p * (1 - rate * weight_decay) + (momentum * v - rate * g if nesterov else v), v


def operands(count, dtype, shape=SIZE):
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 2, shape).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"beta_1": 0.5, "epsilon": 1e-3}, {"weight_decay": 0.01}])
def test_adam(dtype, options):
    arrays = operands(4, dtype)
    found = ef.adam_update(*arrays, 0.1, 3, **options)
    expected = adam(*(a.astype(np.float64) for a in arrays), 0.1, 3, **options)
    for actual, wanted in zip(found, expected, strict=True):
        assert actual.dtype.name == dtype
        np.testing.assert_allclose(actual.numpy(), wanted, rtol=16 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_momentum(dtype, nesterov, weight_decay):
    arrays = operands(3, dtype)
    options = {"nesterov": nesterov, "weight_decay": weight_decay}
    found = ef.momentum_update(*arrays, 0.1, **options)
    expected = momentum(*(a.astype(np.float64) for a in arrays), 0.1, **options)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual.numpy(), wanted, rtol=16 * np.finfo(dtype).eps)


def test_numbers_that_change_need_no_new_kernel(compiled):
    """A rate and a step of their own in each call, and one region for all of them."""
    arrays = operands(4, "float32")
    ef.adam_update(*arrays, 0.1, 1)
    before = region_of.cache_info().misses
    for step in range(2, 5):
        new = ef.adam_update(*arrays, 0.1 / step, step)[0].numpy()
        wanted = adam(*(a.astype(np.float64) for a in arrays), 0.1 / step, step)[0]
        np.testing.assert_allclose(new, wanted, rtol=2e-6)
    assert region_of.cache_info().misses == before


def test_operands_stay_as_they_are():
    arrays = operands(4, "float32")
    tensors = [ef.tensor(a) for a in arrays]
    ef.adam_update(*tensors, 0.1, 1)
    ef.momentum_update(*tensors[:3], 0.1)
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_other_layouts():
    p, g, m, v = operands(4, "float32", (130, 140))
    views = p.T, g[:, ::-1].T, np.asfortranarray(m.T), np.broadcast_to(v[0, :130], (140, 130))
    found = ef.adam_update(*views, 0.1, 2)
    expected = adam(*(a.astype(np.float64) for a in views), 0.1, 2)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual.numpy(), wanted, rtol=2e-6)


def test_special_values():
    p, g, m, v = operands(4, "float32")
    g[:5] = np.nan, np.inf, -np.inf, 1e30, 0.0
    m[4] = v[4] = 0.0
    new_p, new_m, new_v = (x.numpy() for x in ef.adam_update(p, g, m, v, 0.1, 1))
    assert np.isnan(new_p[:3]).all()
    assert np.isnan(new_m[0])
    assert (new_m[1:3] == [np.inf, -np.inf]).all()
    assert (new_v[1:4] == np.inf).all()  # the square of 1e30 overflows
    assert new_p[3] == p[3]
    assert (new_p[4], new_m[4], new_v[4]) == (p[4], 0, 0)
    assert np.isfinite(new_p[4:]).all()


def test_both_ways_give_the_same_bits(monkeypatch):
    """So a run does not depend on whether a compiler is installed."""
    arrays = operands(4, "float32")
    first = [x.numpy() for x in ef.adam_update(*arrays, 0.1, 3, weight_decay=0.01)]
    monkeypatch.setattr(generated, "enabled", lambda: False)
    second = [x.numpy() for x in ef.adam_update(*arrays, 0.1, 3, weight_decay=0.01)]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


SHAPES = [(3, 4), (5,), (), (130, 140), (2, 0), (64, 64), (7,), (1, 1), (9,), (130,)]


def steps(optimizer, shapes=SHAPES, dtypes=("float32",)):
    """The weights and the state of an optimizer after three steps."""
    rng = np.random.default_rng(1)
    weights = [ef.Variable(rng.standard_normal(s).astype(d)) for s in shapes for d in dtypes]
    for step in range(3):
        gradients = [ef.tensor(rng.standard_normal(w.shape).astype(w.dtype)) for w in weights]
        if step == 1:
            gradients[1] = None
        optimizer.apply(gradients, weights)
    return [v.numpy() for v in (*weights, *optimizer.variables)]


@pytest.mark.parametrize("dtypes", [("float32",), ("float64", "float32")])
def test_small_parameters_are_changed_together(dtypes, monkeypatch):
    """With the results that each one has alone, bit for bit."""
    joined = []
    original = one_op.joined_update
    spied = lambda *a, **o: joined.append(len(a)) or original(*a, **o)
    monkeypatch.setattr(one_op, "joined_update", spied)
    together = steps(optimizers.AdamW(0.01), dtypes=dtypes)
    assert len(joined) == 3 * len(dtypes)
    assert max(joined) == 2 + 4 * (len(SHAPES) - 1)  # all but the large one
    monkeypatch.setattr(one_op, "MIN_SMALL_VARIABLES", 1000)
    alone = steps(optimizers.AdamW(0.01), dtypes=dtypes)
    assert len(joined) == 3 * len(dtypes)
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_update_of_ones_own_is_called_for_each_parameter():
    class Half(optimizers.Adam):
        def update(self, value, gradient, state, rate, step):
            return value * 0.5, *state

    weights = [ef.Variable([1.0, 2.0]) for _ in range(8)]
    Half().apply([ef.tensor([1.0, 1.0])] * 8, weights)
    assert all((w.numpy() == [0.5, 1.0]).all() for w in weights)


def test_thirty_steps_of_the_optimizer():
    start, pull = operands(2, "float32")
    weight = ef.Variable(start)
    optimizer = ef.nn.optimizers.AdamW(learning_rate=0.01)
    p, m, v = start.astype(np.float64), 0.0, 0.0
    for step in range(1, 31):
        gradient = (pull * np.cos(step)).astype("float32")
        optimizer.apply([ef.tensor(gradient)], [weight])
        options = {"weight_decay": optimizer.weight_decay}
        p, m, v = adam(p, gradient.astype(np.float64), m, v, 0.01, step, **options)
    np.testing.assert_allclose(weight.numpy(), p, rtol=1e-5)


def test_numbers_are_computed_once_and_apart():
    from_numbers = numbers_of(ops["adam_update"].scalar, 4, 2, ADAM)
    rate, step = 0.1, 3
    left, length = 1 - rate * 0.01, rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    assert sorted(from_numbers(rate, step)) == pytest.approx(sorted([left, length]))
    assert any(map(np.isnan, from_numbers(rate, 0)))


ADAM = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "weight_decay": 0.01}
