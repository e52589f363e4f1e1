"""Derivatives by nests of arguments and of nests of results: against matrices that are known."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import GradientError

RNG = np.random.default_rng(3)
SOURCES = {"a": (2,), "b": ((1, 3), ())}
RESULTS = [(2, 2), {"z": ()}, (3,)]


def is_shape(x):
    return isinstance(x, tuple) and all(isinstance(n, int) for n in x)


def of_shapes(make, nest):
    """A nest with what ``make`` gives for each shape."""
    if is_shape(nest):
        return make(nest)
    if isinstance(nest, dict):
        return {k: of_shapes(make, v) for k, v in nest.items()}
    return type(nest)([of_shapes(make, v) for v in nest])


def drawn(shape):
    return RNG.standard_normal(shape)


MATRICES = of_shapes(lambda y: of_shapes(lambda x: drawn((*y, *x)), SOURCES), RESULTS)
"""For each result its derivative by each source."""
POINT, DIRECTION = (of_shapes(drawn, SOURCES) for _ in range(2))


def leaves(nest):
    return [np.asarray(x) for x in ef.tree.flatten(nest)[0]]


def times(parts, nest):
    """The sum of the products of derivatives by each source with the source."""
    pairs = zip(leaves(parts), leaves(nest), strict=True)
    return sum(np.tensordot(part, x, x.ndim) for part, x in pairs)


def linear(p):
    """The function whose derivatives are the matrices."""

    def result(parts):
        pairs = zip(ef.tree.flatten(parts)[0], ef.tree.flatten(p)[0], strict=True)
        return sum(ef.tensordot(ef.tensor(part), x, axes=x.ndim) for part, x in pairs)

    return [result(MATRICES[0]), {"z": result(MATRICES[1]["z"])}, result(MATRICES[2])]


def check(found, wanted):
    a, structure = ef.tree.flatten(found)
    b, other = ef.tree.flatten(wanted)
    assert structure == other
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobians(mode):
    check(ef.jacobian(linear, mode=mode)(POINT), MATRICES)


def test_products_from_both_sides():
    value, moved = ef.jvp(linear, (POINT,), (DIRECTION,))
    check(value, linear(ef.tree.map_leaves(ef.tensor, POINT)))
    rows = [MATRICES[0], MATRICES[1]["z"], MATRICES[2]]
    first, second, third = [times(row, DIRECTION) for row in rows]
    check(moved, [first, {"z": second}, third])
    value, pull = ef.vjp(linear, POINT)
    weights = of_shapes(drawn, RESULTS)
    parts = zip(leaves(weights), rows, strict=True)
    each = [[np.tensordot(w, m, w.ndim) for m in leaves(row)] for w, row in parts]
    structure = ef.tree.flatten(POINT)[1]
    check(pull(weights), (ef.tree.unflatten(structure, [sum(x) for x in zip(*each, strict=True)]),))


@pytest.mark.parametrize("argnums", [0, 1, (0, 2), (2, 1), -1])
def test_chosen_arguments(argnums):
    def f(x, y, z):
        return (x * y**2 * z**3).sum(), "text"

    values = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])]
    x, y, z = values
    partials = [y**2 * z**3, 2 * x * y * z**3, 3 * x * y**2 * z**2]
    several = isinstance(argnums, tuple)
    wanted = tuple(partials[n] for n in argnums) if several else partials[argnums]
    (value, text), found = ef.value_and_grad(f, argnums, has_aux=True)(*values)
    check([value, found], [(x * y**2 * z**3).sum(), wanted])
    found, aux = ef.grad(f, argnums, has_aux=True)(*values)
    check(found, wanted)
    assert text == aux == "text"


def test_second_derivatives_of_a_product():
    def f(p):
        return (p["a"] * p["b"] ** 2).sum()

    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    found = ef.hessian(f, unconnected="zero")({"a": a, "b": b})
    by_both = np.diag(2 * b)
    check(found, {"a": {"a": 0 * by_both, "b": by_both}, "b": {"a": by_both, "b": np.diag(2 * a)}})


def first(x, y):
    return x.sum()


WAYS = {
    "grad": lambda choice: ef.grad(first, (0, 1), unconnected=choice)(1.0, 2.0),
    "vjp": lambda choice: ef.vjp(first, 1.0, 2.0, unconnected=choice)[1](1.0),
    "jvp": lambda choice: ef.jvp(first, (1.0, 2.0), (1.0, 1.0), unconnected=choice),
    "reverse": lambda choice: ef.jacobian(first, (0, 1), unconnected=choice)(1.0, 2.0),
    "forward": lambda choice: ef.jacobian(first, (0, 1), "forward", choice)(1.0, 2.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_choices_for_arguments_without_effect(way):
    derivative = WAYS[way]
    wanted = [1.0, 1.0] if way == "jvp" else [1.0, 0.0]
    np.testing.assert_array_equal(leaves(derivative("zero")), wanted)
    for wrong in ("raise", "nothing"):
        with pytest.raises(GradientError):
            derivative(wrong)


def test_other_modes_and_choices_are_refused():
    with pytest.raises(GradientError, match="'sideways' is not a mode"):
        ef.jacobian(first, mode="sideways")
    with pytest.raises(GradientError, match="'none' is not a choice"):
        ef.jacobian(first, unconnected="none")


def test_parts_of_a_result_without_gradient_are_zeros_on_its_device():
    ef.set_logical_devices("cpu", 2)
    x = ef.tensor([1.0, 2.0, 3.0], device="cpu:1")
    found = ef.grad(lambda x: (ef.split(x, [1])[1] ** 2).sum())(x)
    assert str(found.device) == "cpu:1"
    np.testing.assert_array_equal(found.numpy(), [0.0, 4.0, 6.0])
