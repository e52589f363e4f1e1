"""Loops, branches and mapped functions: their values and the gradients through them."""

import numpy as np

import eagerflow as ef
from eagerflow.errors import EagerflowError, GradientError
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import check, compare, floats, refused


def jax_5900():
    """The gradient of a scan with a branch inside was three times the right one."""

    def power(x, rounds):
        def step(carry, _):
            value, go = carry
            new = ef.cond(go, lambda v: (v * x, True), lambda v: (v, False), value)
            return new, new[0]

        return ef.scan(step, (ef.ones(()), ef.tensor(True)), None, length=rounds)[0][0]

    check(lambda x: power(x, 4), ef.tensor(3.0), expect=np.array(81.0))
    check(ef.grad(lambda x: power(x, 4)), ef.tensor(3.0), expect=np.array(108.0))
    check(ef.grad(ef.grad(lambda x: power(x, 4))), ef.tensor(3.0), expect=np.array(108.0))


def jax_1534():
    """A scan whose carry changes its structure gave all carries instead of an error."""
    for init in (None, (), {"a": ef.zeros(())}):
        refused(lambda xs: ef.scan(lambda c, x: (x * 0, (x, 2 * x)), init, xs), ef.arange(5))
    x = np.arange(5)
    check(
        lambda xs: ef.scan(lambda c, x: (None, (x, 2 * x)), None, xs)[1],
        ef.tensor(x),
        expect=(x, 2 * x),
    )


def tensorflow_1093():
    """The gradient through a loop that changes nothing was none, and nothing was trained."""

    def through(v, most=5):
        return ef.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, s[1]), (0, v), most)[1]

    refused(ef.grad(lambda v: through(v, None) ** 2), ef.tensor(2.0), error=GradientError)

    check(ef.grad(lambda v: through(v) ** 2), ef.tensor(2.0), expect=np.array(4.0))
    v = ef.Variable(2.0)

    @ef.function
    def step():
        with ef.GradientTape() as tape:
            loss = through(v.value) ** 2
        v.assign_sub(0.1 * tape.gradient(loss, v))
        return loss

    compare([step() for _ in range(3)], [4.0, 2.56, 1.6384])


def tensorflow_16504():
    """Two conditions of a loop joined by ``and`` cut the gradient."""

    def solve(x):
        def go(state):
            k, _, change = state
            return ef.logical_and(k < 50, change > 1e-9)

        def step(state):
            k, w, _ = state
            new = 0.5 * (w + x / w)
            return k + 1, new, ef.abs(new - w)

        start = ef.ones((), dtype="float64")
        return ef.while_loop(go, step, (0, start, start), 50)[1]

    x = ef.tensor(np.array(7.0))
    check(solve, x, expect=np.sqrt(7.0))
    check(ef.grad(solve), x, expect=0.5 / np.sqrt(7.0), rtol=1e-6)


def tensorflow_16333():
    """Inside of a loop, the gradient of a loop variable by another was none."""

    def run(x):
        def step(state):
            i, v = state
            with ef.GradientTape() as tape:
                tape.watch(v)
                y = v**3
            return i + 1, tape.gradient(y, v)

        return ef.while_loop(lambda s: s[0] < 2, step, (0, x), 3)[1]

    check(run, ef.tensor(0.5), expect=np.array(3 * (3 * 0.25) ** 2))
    check(ef.grad(run), ef.tensor(0.5), expect=np.array(2 * 3 * 0.75 * 6 * 0.5))


def jax_4173():
    """Scan, gradient, vmap and a custom rule together failed or lost an axis."""

    @ef.custom_gradient
    def total(x):
        return ef.sum(x), lambda g: g * 3 * ef.ones_like(x)

    x = ef.tensor(floats(10, 3))

    def loss(x):
        return ef.sum(ef.vmap(total)(x))

    check(ef.grad(loss), x, expect=np.full((10, 3), 3.0))

    def scanned(x):
        return ef.scan(lambda c, row: (c, ef.grad(loss)(ef.stack([row, row]))), 0.0, x)[1]

    check(scanned, x, expect=np.full((10, 2, 3), 3.0))
    outer = lambda x: ef.sum(ef.scan(lambda c, row: (c + total(row), None), 0.0, x)[0])
    check(ef.grad(outer), x, expect=np.full((10, 3), 3.0))


def jax_6452():
    """The gradient by a number was a vector where vmap had spread the number."""
    y = np.ones((3, 2), "f4")

    def f(z):
        return ef.sum(ef.vmap(lambda row: ef.logaddexp(z, ef.sum(row) + z))(ef.tensor(y)))

    check(f, ef.tensor(0.1), expect=3 * np.logaddexp(0.1, 2.1))
    check(ef.grad(f), ef.tensor(0.1), expect=np.array(3.0))
    check(ef.grad(f), 0.1, expect=np.array(3.0))


def jax_34228():
    """Under vmap, the gradient of an index that is clipped to the axis was zero."""
    x = ef.tensor([2.0, 5.0])
    index = ef.tensor([0, 1, 1])

    def f(x, i):
        return x[ef.clip(i + 1, 0, 1)] * 3

    check(ef.vmap(f, in_axes=(None, 0)), x, index, expect=np.array([15.0, 15.0, 15.0]))
    jacobian = ef.jacobian(ef.vmap(f, in_axes=(None, 0)))
    check(jacobian, x, index, expect=np.array([[0.0, 3.0]] * 3))
    refused(ef.vmap(lambda x, i: x[i], in_axes=(None, 0)), x, ef.tensor([0, 2]))


def row_by_row(f, x):
    """Under vmap, a function gives what it gives row by row, or is refused as it is there."""
    try:
        rows = [f(ef.tensor(row)).numpy() for row in x]
    except EagerflowError:
        refused(ef.vmap(f), ef.tensor(x))
    else:
        check(ef.vmap(f), ef.tensor(x), expect=np.stack(rows))


def pytorch_91403():
    """Under vmap, triangles of vectors were taken across the mapped axis."""
    x = floats(4, 3, 5)
    for k in (-1, 0, 2):
        check(ef.vmap(lambda m: ef.tril(m, k=k)), ef.tensor(x), expect=np.tril(x, k))
        check(ef.vmap(lambda m: ef.triu(m, k=k)), ef.tensor(x), expect=np.triu(x, k))
    for f in (lambda v: ef.tril(v), lambda v: ef.triu(v)):
        row_by_row(f, x[0])


def pytorch_91404():
    """Under vmap, the trace of an array of three axes was taken without a word."""
    x = floats(6, 3, 3, 3)
    row_by_row(lambda m: ef.trace(m), x)
    check(ef.vmap(lambda m: ef.trace(m)), ef.tensor(x[0]), expect=np.trace(x[0], axis1=1, axis2=2))
    check(
        ef.vmap(lambda m: ef.trace(m), in_axes=2),
        ef.tensor(x[0]),
        expect=np.trace(x[0], axis1=0, axis2=1),
    )


@cases("control", globals())
def test_case(case):
    case()
