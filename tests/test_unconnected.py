"""No gradient is lost without a word: ends of ranges, and all transforms tell the same story."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, DTypeError, GradientError, ShapeError

BROKEN = {
    "not used": (lambda x: ef.ones(2).sum(), "no path|not computed|not used"),
    "an index": (lambda x: ef.argmax(x) * ef.ones(()), "the path breaks at (argmax|astype)"),
    "numpy": (lambda x: ef.tensor(x.numpy()).sum(), r"left through numpy\(\)"),
    "a number": (lambda x: ef.ones(()) * float(x[0]), r"left through float\(\)"),
    "a range's end": (lambda x: ef.arange(0.0, x[0]).sum(), r"left through item\(\)"),
    "stopped": (lambda x: ef.stop_gradient(x).sum(), "the path breaks at stop_gradient"),
}
TRANSFORMS = {
    "grad": lambda f, **more: ef.grad(f, **more),
    "value_and_grad": lambda f, **more: lambda x: ef.value_and_grad(f, **more)(x)[1],
    "vjp": lambda f, **more: lambda x: ef.vjp(f, x, **more)[1](1.0)[0],
    "jvp": lambda f, **more: lambda x: ef.jvp(f, (x,), (ef.ones(x.shape),), **more)[1],
    "jacobian": lambda f, **more: ef.jacobian(f, **more),
    "jacobian forward": lambda f, **more: ef.jacobian(f, mode="forward", **more),
    "hessian": lambda f, **more: ef.hessian(f, **more),
}
X = ef.tensor([3.0, 2.0])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("broken", BROKEN)
def test_all_transforms_tell_where_the_path_breaks(broken, transform):
    f, words = BROKEN[broken]
    if transform.startswith("jacobian") and broken in ("numpy", "a number", "a range's end"):
        words += "|vmap"  # forward mode runs in one batch, where values cannot leave at all
    with pytest.raises((GradientError, CaptureError), match=words):
        TRANSFORMS[transform](f)(X)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_zeros_where_they_are_asked_for(transform):
    shape = {"jvp": (), "hessian": (2, 2)}.get(transform, (2,))
    found = TRANSFORMS[transform](lambda x: ef.ones(2).sum(), unconnected="zero")(X)
    assert (found.shape, float(abs(found).sum())) == (shape, 0.0)
    with pytest.raises(GradientError, match="not a choice"):
        TRANSFORMS[transform](lambda x: x.sum(), unconnected="never")(X)


def test_the_argument_that_is_not_used_is_named():
    f = lambda a, b: a * 2
    with pytest.raises(GradientError, match=r"shape \(3,\)"):
        ef.jvp(f, (X, ef.ones(3)), (X, ef.ones(3)))
    with pytest.raises(GradientError, match=r"shape \(3,\)"):
        ef.vjp(f, X, ef.ones(3))[1](X)
    for mode in ("reverse", "forward"):
        with pytest.raises(GradientError, match=r"shape \(3,\)"):
            ef.jacobian(f, argnums=(0, 1), mode=mode)(X, ef.ones(3))
        found = ef.jacobian(f, argnums=(0, 1), mode=mode, unconnected="zero")(X, ef.ones(3))
        assert [j.shape for j in found] == [(2, 2), (2, 3)]
    assert ef.vjp(f, X, ef.ones(3), unconnected="none")[1](X)[1] is None


def test_independent_results_have_zero_tangents():
    _, moved = ef.jvp(lambda x: (x * 2, ef.ones(2), ef.argmax(x)), (X,), (X,))
    assert [t.tolist() for t in moved] == [[6.0, 4.0], [0.0, 0.0], 0]


def test_hessians_of_linear_functions():
    with pytest.raises(GradientError):
        ef.hessian(lambda x: (x * 3).sum())(X)
    assert ef.hessian(lambda x: (x * 3).sum(), unconnected="zero")(X).tolist() == [[0, 0], [0, 0]]
    assert ef.hessian(lambda x: x[0] * x[1])(X).tolist() == [[0, 1], [1, 0]]


def test_forward_mode_by_variables():
    v = ef.Variable([1.0, 2.0])
    _, moved = ef.jvp(lambda v: v * v, (v,), (ef.ones(2),))
    assert moved.tolist() == [2.0, 4.0]
    assert ef.jacobian(lambda v: v * v, mode="forward")(v).tolist() == [[2, 0], [0, 4]]


# Ranges -------------------------------------------------------------------------------------------


def test_linspace_between_tensors():
    weights = ef.arange(5.0)
    f = lambda a, b: (ef.linspace(a, b, 5) * weights).sum()
    a, b = ef.tensor(1.0), ef.tensor(3.0)
    wanted = [2.5, 7.5]
    assert [float(g) for g in ef.grad(f, (0, 1))(a, b)] == wanted
    assert [float(g) for g in ef.function(ef.grad(f, (0, 1)))(a, b)] == wanted
    assert float(ef.jvp(f, (a, b), (1.0, 0.0))[1]) == 2.5
    assert float(ef.function(f)(a, b)) == float(f(a, b)) == float(f(1.0, 3.0))
    assert float(ef.function(f)(1.0, 3.0)) == float(f(a, b))
    rows = ef.vmap(lambda a: ef.linspace(a, 5, 3))(ef.tensor([1.0, 2.0]))
    assert rows.tolist() == [[1, 3, 5], [2, 3.5, 5]]
    ef.testing.check_gradients(lambda a, b: ef.linspace(a, b, 4, endpoint=False), (a, b))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_keeps_the_dtype_of_tensors(dtype, endpoint):
    a, b = ef.tensor(0.125, dtype=dtype), ef.tensor(2, dtype=dtype)
    for num in (0, 1, 2, 7):
        found = ef.linspace(a, b, num, endpoint=endpoint)
        wanted = ef.linspace(0.125, 2, num, dtype=dtype, endpoint=endpoint)
        assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.tolist())
        assert ef.linspace(a, 2.0, num).dtype == dtype
    assert ef.linspace(ef.tensor(0.1, dtype="float64"), 1, 2).tolist() == [0.1, 1.0]
    assert ef.linspace(np.array(0.1), np.float32(1), 2).tolist() == [0.1, 1.0]


def test_linspace_of_integers_and_other_dtypes():
    assert ef.linspace(ef.tensor(1), ef.tensor(4), 3).dtype == "float32"
    assert ef.linspace(ef.tensor([1]), 4, 4, "int8").tolist() == [1, 2, 3, 4]
    for wrong, error in (
        (lambda: ef.linspace(ef.tensor([1.0, 2.0]), 3, 3), ShapeError),
        (lambda: ef.linspace(ef.tensor(1j), 3, 3, dtype="float32"), DTypeError),
        (lambda: ef.linspace(ef.tensor(1.0), "x", 3), DTypeError),
        (lambda: ef.linspace(ef.tensor(1.0), 2, -1), ShapeError),
        (lambda: ef.linspace(ef.tensor(1.0), 2, 2.5), ShapeError),
    ):
        with pytest.raises(error, match="linspace"):
            wrong()


def test_arange_with_tensors():
    assert float(ef.grad(lambda s: ef.arange(s, 4).sum())(1.0)) == 3.0
    assert float(ef.grad(lambda s: ef.arange(0, 1, s).sum())(0.25)) == 6.0
    wide = ef.tensor(3, dtype="float64")
    assert (
        ef.arange(wide).dtype == ef.arange(0, wide).dtype == ef.arange(wide, 5).dtype == "float64"
    )
    assert ef.arange(ef.tensor(3, dtype="int8")).dtype == "int8"
    assert ef.arange(ef.tensor(3)).tolist() == [0, 1, 2]
    for wrong, error in (
        (lambda: ef.arange(ef.tensor(1.0), 2, 0), ShapeError),
        (lambda: ef.arange(ef.tensor(1j)), DTypeError),
        (lambda: ef.arange(ef.tensor(1.0), "x"), DTypeError),
        (lambda: ef.arange(ef.ones(2)), ShapeError),
        (lambda: ef.function(lambda n: ef.arange(n))(ef.tensor(3.0)), CaptureError),
        (lambda: ef.function(lambda n: ef.arange(n))(3), CaptureError),
    ):
        with pytest.raises(error):
            wrong()


def test_drawn_numbers_pass_gradients_and_keep_a_given_dtype():
    generator = ef.random.Generator(0)
    for draw in (
        lambda a, b: generator.uniform((3,), a, b),
        lambda a, b: generator.normal((3,), a, b),
        lambda a, b: generator.truncated_normal((3,), a, b),
    ):
        for g in ef.grad(lambda a, b, draw=draw: (draw(a, b) ** 2).sum(), (0, 1))(1.0, 2.0):
            assert float(g) != 0.0
    wide = ef.tensor(2.0, dtype="float64")
    assert generator.normal((3,), wide, wide, dtype="float32").dtype == "float32"
    assert generator.uniform((3,), 0, wide, dtype="float16").dtype == "float16"
    assert generator.exponential((3,), wide, dtype="float32").dtype == "float32"
    assert generator.uniform((2,), [0, 10], [1, 11]).shape == (2,)


def test_other_numbers_that_tensors_cannot_be_are_refused():
    x = ef.ones(3)
    for wrong in (
        lambda t: ef.leaky_relu(x, t).sum(),
        lambda t: ef.layer_norm(x, epsilon=t).sum(),
    ):
        with pytest.raises(DTypeError):
            ef.grad(wrong)(0.5)
    assert float(ef.grad(lambda t: ef.full((3,), t).sum())(0.5)) == 3.0
    assert float(ef.grad(lambda t: ef.pad(x, ((1, 1),), constant_values=t).sum())(0.5)) == 2.0
    low = lambda t: ef.clip(x, t, None).sum()
    assert float(ef.grad(low)(2.0)) == 3.0


def test_non_trainable_variable_needs_no_gradient():
    w, x = ef.Variable([1.0, 2.0]), ef.tensor([1.0, 2.0])
    w.trainable = False

    def gradient(x):
        with ef.GradientTape() as tape:
            state = ef.tensor(0), x * w
            y = ef.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, ef.sin(c[1])), state)[1]
            loss = ef.sum(y * w)
        return tape.gradient(loss, w, unconnected="zero")

    for f in (gradient, ef.function(gradient)):
        assert f(x).tolist() == [0.0, 0.0]
