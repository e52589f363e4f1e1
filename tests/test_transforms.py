"""grad, vjp, jvp, jacobian, hessian, vmap, checkpoint, custom_gradient: any order, any nesting."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, GradientError, ShapeError

A = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def f(x):
    return (ef.sin(x) * ef.exp(x * 0.5)).sum()


def test_grad_of_nests_and_argnums():
    g = ef.grad(lambda p, s: (p["w"] * s + p["b"]).sum())({"w": A, "b": A}, 2.0)
    assert g["w"].dtype == np.float64
    np.testing.assert_allclose(g["w"].numpy(), 2 * np.ones_like(A))
    both = ef.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(ef.tensor(A), ef.tensor(A))
    np.testing.assert_allclose(both[0].numpy(), A)
    with pytest.raises(GradientError, match="no argument 3"):
        ef.grad(f, argnums=3)(A)


def test_same_tensor_in_two_arguments_has_separate_gradients():
    x = ef.tensor(3.0)
    a, b = ef.grad(lambda a, b: a * a * b, argnums=(0, 1))(x, x)
    assert (float(a), float(b)) == (18.0, 9.0)


def test_grad_wants_one_element():
    with pytest.raises(ShapeError, match="one element"):
        ef.grad(lambda x: x * 2.0)(A)


def test_has_aux():
    value, g = ef.value_and_grad(lambda x: (f(x), "aux"), has_aux=True)(A)
    assert value[1] == "aux"
    g2, aux = ef.grad(lambda x: (f(x), "aux"), has_aux=True)(A)
    assert aux == "aux"
    np.testing.assert_array_equal(g.numpy(), g2.numpy())


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobian_modes_agree_with_differences(mode):
    def h(x):
        return ef.stack([(x * x).sum(), ef.cos(x).sum()])

    jac = ef.jacobian(h, mode=mode)(A).numpy()
    assert jac.shape == (2, 2, 3)
    np.testing.assert_allclose(jac[0], 2 * A)
    np.testing.assert_allclose(jac[1], -np.sin(A))


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobian_of_nests(mode):
    def h(p):
        return {"s": p[0] * p[1], "t": p[0].sum()}

    jac = ef.jacobian(h, mode=mode)((ef.tensor(A), ef.tensor(A + 1)))
    assert jac["s"][1].shape == (2, 3, 2, 3)
    np.testing.assert_allclose(jac["t"][0].numpy(), np.ones_like(A))
    np.testing.assert_allclose(jac["t"][1].numpy(), np.zeros_like(A))


def test_hessian_is_symmetric_and_right():
    x = np.array([0.3, -0.4, 0.8])
    hess = ef.hessian(lambda x: (x[0] * x[1] * x[2]) ** 2)(ef.tensor(x)).numpy()
    np.testing.assert_allclose(hess, hess.T)
    assert hess[0, 0] == pytest.approx(2 * (x[1] * x[2]) ** 2)
    assert hess[0, 1] == pytest.approx(4 * x[0] * x[1] * x[2] ** 2)


def test_jvp_against_vjp():
    x, t = ef.tensor(A), ef.tensor(np.cos(A))
    _, moved = ef.jvp(lambda x: ef.tanh(x @ x.T), (x,), (t,))
    _, pull = ef.vjp(lambda x: ef.tanh(x @ x.T), x)
    w = ef.tensor(np.arange(4.0).reshape(2, 2))
    assert float((moved * w).sum()) == pytest.approx(float((pull(w)[0] * t).sum()))
    with pytest.raises(ShapeError):
        ef.jvp(f, (x,), (ef.tensor(1.0),))


def test_jvp_of_jvp_and_of_grad():
    cube = lambda x: x**3
    first = lambda x: ef.jvp(cube, (x,), (1.0,))[1]
    assert float(ef.jvp(first, (2.0,), (1.0,))[1]) == 12.0
    assert float(ef.jvp(ef.grad(cube), (2.0,), (1.0,))[1]) == 12.0
    assert float(ef.grad(first)(2.0)) == 12.0


def test_vmap_axes_and_nesting():
    x = ef.tensor(np.arange(24.0).reshape(2, 3, 4))
    one = lambda a: a.sum(axis=0) * 2.0
    np.testing.assert_allclose(ef.vmap(one)(x).numpy(), 2 * x.numpy().sum(1))
    np.testing.assert_allclose(ef.vmap(one, in_axes=2)(x).numpy(), 2 * x.numpy().sum(0).T)
    np.testing.assert_allclose(
        ef.vmap(one, in_axes=-1, out_axes=1)(x).numpy(), 2 * x.numpy().sum(0)
    )
    twice = ef.vmap(ef.vmap(lambda a: (a * a).sum()))
    np.testing.assert_allclose(twice(x).numpy(), (x.numpy() ** 2).sum(-1))


def test_vmap_of_nests_constants_and_errors():
    g = ef.vmap(lambda p, s: {"y": p["a"] * s, "c": ef.tensor(1.0)}, in_axes=(0, None))
    out = g({"a": ef.tensor(A)}, 3.0)
    np.testing.assert_allclose(out["y"].numpy(), 3 * A)
    assert out["c"].shape == (2,)
    with pytest.raises(ShapeError, match="different numbers"):
        ef.vmap(lambda a, b: a)(ef.tensor(A), ef.zeros((3,)))
    with pytest.raises(CaptureError, match="inside vmap"):
        ef.vmap(lambda a: a if a.sum() > 0 else -a)(ef.tensor(A))
    w = ef.Variable(0.0)
    with pytest.raises(CaptureError, match="differs between examples"):
        ef.vmap(lambda a: w.assign(a.sum()))(ef.tensor(A))


def test_per_example_gradients_and_gradient_of_vmap():
    w = ef.tensor([0.5, -1.0, 2.0])
    loss = lambda w, x: ef.tanh((w * x).sum())
    x = ef.tensor(A, dtype="float32")
    each = ef.vmap(ef.grad(loss), in_axes=(None, 0))(w, x)
    loop = np.stack([ef.grad(loss)(w, row).numpy() for row in x])
    np.testing.assert_allclose(each.numpy(), loop, rtol=1e-6)
    total = ef.grad(lambda w: ef.vmap(loss, in_axes=(None, 0))(w, x).sum())(w)
    np.testing.assert_allclose(total.numpy(), loop.sum(0), rtol=1e-5)


def test_nothing_is_recorded_after_an_exception():
    with pytest.raises(ZeroDivisionError), ef.GradientTape():
        1 / 0  # noqa: B018
    with pytest.raises(ShapeError):
        ef.vmap(lambda a: a.reshape((7,)))(ef.tensor(A))
    from eagerflow.recorder import process, recorder_state

    assert recorder_state()[1] is None and not process.recorders


@pytest.mark.parametrize("policy", [None, "nothing", "contractions"])
def test_checkpoint_gives_the_same_gradient_and_keeps_less(policy):
    w = ef.Variable(np.linspace(-1, 1, 9).reshape(3, 3), name="w")
    block = lambda x: ef.tanh(ef.tanh(x @ w) @ w)
    x = ef.tensor(np.random.default_rng(0).standard_normal((200, 3)))
    kept = {}
    grads = {}
    for name, g in (("plain", block), ("saved", ef.checkpoint(block, policy))):
        with ef.GradientTape() as tape:
            tape.watch(x)
            loss = g(x).sum()
        kept[name] = tape.memory().total
        grads[name] = tape.gradient(loss, [x, w])
    for a, b in zip(grads["plain"], grads["saved"], strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert kept["saved"] < kept["plain"]
    with pytest.raises(GradientError, match="not a policy"):
        ef.checkpoint(block, "some")


def test_checkpoint_recomputes_with_the_values_of_the_first_run():
    w = ef.Variable(2.0)
    count = ef.Variable(0.0, trainable=False)

    def step(x):
        count.assign_add(1.0)
        return x * w * count

    with ef.GradientTape() as tape:
        y = ef.checkpoint(step)(ef.tensor(3.0))
        w.assign(100.0)
    assert float(tape.gradient(y, w)) == 3.0
    assert float(count) == 1.0


def test_custom_gradient_in_every_mode():
    @ef.custom_gradient
    def scaled(x):
        return x * 1.0, lambda g: g * 10.0

    assert float(ef.grad(scaled)(1.0)) == 10.0
    assert float(ef.jvp(scaled, (1.0,), (1.0,))[1]) == 10.0
    np.testing.assert_array_equal(ef.vmap(ef.grad(scaled))(ef.ones((3,))).numpy(), [10.0] * 3)
    g = ef.grad(lambda x: ef.vmap(scaled)(x).sum())(ef.ones((3,)))
    np.testing.assert_array_equal(g.numpy(), [10.0] * 3)

    @ef.custom_gradient
    def cube(x):
        return x**3, lambda g: g * 3 * x**2

    assert float(ef.grad(ef.grad(cube))(2.0)) == 12.0

    @ef.custom_gradient
    def wrong(a, b):
        return a * b, lambda g: g

    with pytest.raises(GradientError, match="1 gradients"):
        ef.grad(wrong)(1.0, 2.0)


def test_transforms_reach_closed_over_variables():
    w = ef.Variable([1.0, 2.0])
    with ef.GradientTape() as tape:
        y = ef.vmap(lambda x: (w * x).sum())(ef.tensor([[1.0, 1.0], [2.0, 3.0]])).sum()
    np.testing.assert_array_equal(tape.gradient(y, w).numpy(), [3.0, 4.0])
