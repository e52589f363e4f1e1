"""The public gradient check: what it takes, what it finds, and how it says so."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import GradientError
from eagerflow.testing import check_gradients


def with_rule(rule, value=lambda x: x * x):
    """A function with a gradient of its own."""

    @ef.custom_gradient
    def f(x):
        return value(x), lambda g: rule(g, x)

    return f


RIGHT = with_rule(lambda g, x: g * x * 2.0)
X = np.array([[1.0, 2.0], [3.0, -4.0]])


def test_right_gradients_pass():
    check_gradients(RIGHT, (X,), order=3)
    check_gradients(lambda x, y: x * y + x, (X, X[0]))
    check_gradients(lambda x: ef.sum(x * x, axis=0), (X.T[::-1],))


def test_nests_numbers_variables_and_nondifferentiable_values():
    nest = {"a": [X, 2.0], "b": (ef.Variable(X[0]), ef.asarray(np.arange(2)), "name", None, 3)}

    def f(nest, scale):
        assert nest["b"][2:] == ("name", None, 3)
        a, number = nest["a"]
        return {"y": a * number * scale, "n": nest["b"][1] + 1, "z": [nest["b"][0] * a]}

    check_gradients(f, (nest, 0.5))


def test_single_precision_is_widened():
    seen = []

    def f(x):
        seen.append(x.dtype)
        return x * x

    check_gradients(f, (X.astype("float32"),), order=1)
    assert set(seen) == {np.dtype("float64")}


def test_complex_functions_analytic_or_not():
    z = X + 1j * X[::-1]
    check_gradients(lambda z: z * z, (z,))
    check_gradients(lambda z: z * ef.conj(z) * 2.0, (z,))


def test_same_argument_twice():
    x = ef.asarray(X)
    check_gradients(lambda a, b: a * b, (x, x))


def test_size_zero():
    check_gradients(lambda x: x * 2.0, (np.zeros((0, 3)),))


def message(f, args, **options):
    with pytest.raises(GradientError) as error:
        check_gradients(f, args, **options)
    return str(error.value)


def test_message_names_input_element_and_both_values():
    wrong = with_rule(lambda g, x: g * x * np.array([[2.0, 2.0], [2.0, 3.0]]))
    text = message(lambda nest: wrong(nest["w"]), ({"w": X},), mode="reverse")
    assert "args[0]['w'][1, 1]: the reverse derivative of output[1, 1] is wrong" in text
    assert "received: -12.0" in text
    assert "expected: -8.0" in text
    assert "by central differences" in text
    assert "1 of 16 elements are wrong" in text


def test_wrong_in_forward_mode_only():
    # The tangent comes from the rule by transposition, which a rule may break: it is affine.
    affine = with_rule(lambda g, x: g * x * 2.0 + ef.zeros_like(x))
    check_gradients(affine, (X,), mode="forward", order=1)
    jumps = with_rule(lambda g, x: ef.stop_gradient(g) * x * 2.0)
    check_gradients(jumps, (X,), mode="reverse", order=1)
    assert "the forward derivative" in message(jumps, (X,), mode="forward", order=1)


def test_wrong_second_derivative_only():
    fixed = with_rule(lambda g, x: g * ef.stop_gradient(x) * 2.0)
    check_gradients(fixed, (X,), order=1)
    assert "second derivative of the gradient by args[0]" in message(fixed, (X,))


def test_wrong_shape_and_dtype():
    with pytest.raises(ef.errors.ShapeError, match="gradient of a different shape"):
        check_gradients(with_rule(lambda g, x: ef.sum(g)), (X,))
    narrow = with_rule(lambda g, x: ef.astype(g * x * 2.0, "float32"))
    assert "derivative of the gradient by args[0]" in message(narrow, (X,))  # it is rounded


def test_random_function_is_refused():
    count = iter(range(100))
    text = message(lambda x: x * float(next(count)), (X,))
    assert "different results" in text


def test_outside_of_the_domain():
    text = message(lambda x: x * ef.inf, (X,))
    assert "not finite" in text


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((X,), {"mode": "sideways"}, "is not a mode"),
        ((X,), {"order": 0}, "is not an order"),
        (X, {}, "not a list of arguments"),
        ((np.arange(3),), {}, "nothing to differentiate by"),
    ],
)
def test_wrong_use(args, options, words):
    assert words in message(RIGHT, args, **options)


def test_function_that_returns_no_tensor():
    assert "the function returned" in message(lambda x: 1.0, (X,))
