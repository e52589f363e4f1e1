"""Bugs put into control flow on purpose: the checks find each of them."""

import pytest

import eagerflow as ef
from eagerflow.capture import cond, scan, while_loop
from eagerflow.capture.control import bodies, branches, derived, functions, loops, scans
from eagerflow.graph.ir import Node
from eagerflow.op import ops
from tests.capture.control.tools import captured, check_close, check_same, grads, loop_scan, t
from tests.contract.checks import CHECKS
from tests.contract.planted import planted

XS = t([[0.5, 1.0], [-0.3, 0.2], [0.1, 0.7]])
H = t([0.3, -0.2])


def step(w):
    return lambda h, x: (ef.tanh(h * w + x), h * x)


def scan_gradients():
    args = H, XS, t(1.5)
    unrolled = grads(lambda h, xs, w: loop_scan(step(w), h, xs), *args)
    check_close(grads(lambda h, xs, w: scan(step(w), h, xs), *args), unrolled)


def second_gradients():
    args = H, XS, t(1.5)
    of = lambda run: lambda *args: grads(lambda h, xs, w: run(step(w), h, xs), *args)
    check_close(grads(of(scan), *args), grads(of(loop_scan), *args))


def while_gradients():
    f = lambda x: while_loop(lambda s: s < 1.0, lambda s: s * 1.7, x, maximum_iterations=9)
    check_close(captured(ef.grad(f), t(0.3)), t(1.7**3))


def each_ends():
    f = lambda x: while_loop(lambda s: s < 1.0, lambda s: s * 1.7, x)
    xs = t([0.3, 0.9, 2.0])
    check_close(ef.vmap(f)(xs), ef.stack([f(x) for x in xs]))


def carries_grow():
    f = lambda x: scan(lambda c, _: ((c[1], c[0] + x), c[0]), (t(0.0), t(0.0)), length=3)
    xs = t([1.0, 2.0])
    check_close(ef.vmap(f)(xs)[0][0], ef.stack([f(x)[0][0] for x in xs]))


def after_an_error():
    v = ef.Variable(t(1.0))
    with pytest.raises(ZeroDivisionError):
        while_loop(lambda s: True, lambda s: (v.assign_add(1.0), 1 / 0)[1], t(0.0))
    assert float(v) == 1.0


def arguments_among_results():
    x = t(2.0)
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = cond(True, lambda x: x, lambda x: x, x)
        total = y * 3.0 + x * 5.0 + y
    assert float(tape.gradient(total, x)) == 9.0
    assert y is not x


def bits_of_a_graph():
    check_same(
        captured(lambda h, xs: scan(step(1.5), h, xs, reverse=True), H, XS),
        scan(step(1.5), H, XS, reverse=True),
    )


def draws_of_examples():
    generator = ef.random.Generator(1)
    f = lambda x: scan(lambda c, _: (c, generator.uniform(())), 0.0, length=2)[1]
    assert len(set(ef.vmap(f)(t([0.0, 0.0])).numpy().ravel().tolist())) == 4


def lines_of_errors():
    def body(i, s):
        return ef.take(H, i, axis=0) + s

    with pytest.raises(ef.errors.IndexRangeError) as info, ef.GradientTape():
        ef.capture.fori_loop(0, 9, body, t(0.0))
    assert "in body" in str(info.value.at)


def rows_in_order():
    for reverse in (False, True):
        expected = loop_scan(step(1.5), H, XS, reverse)
        check_same(scan(step(1.5), H, XS, reverse=reverse), expected)


# What is changed, how, and the check that must then fail.


def forwards(old):
    return lambda *args, **named: old(*args, **named | {"reverse": False})


def first_residual_for_all(old):
    def cut(*args):
        nodes, residuals = old(*args)
        return nodes, residuals[:1] * len(residuals)

    return cut


def no_gradient_of_residuals(old):
    return lambda g, *rest: old([None] * len(g), *rest)


def endless(old):
    return lambda a, b: ef.logical_or(a, ~a)


def turned(old):
    return lambda *args: old(*args[:-1], not args[-1])


PLANTED = {
    "the way back goes forward": (scans, "recorded", forwards, scan_gradients),
    "residuals are mixed up": (derived, "cut", first_residual_for_all, scan_gradients),
    "sums start from one": (scans, "zeros_like", lambda old: ef.ones_like, scan_gradients),
    "sums forget what was": (derived, "add", lambda old: lambda total, g: g, scan_gradients),
    "residuals are constants": (scans, "_kept", no_gradient_of_residuals, second_gradients),
    "the loop never ends": (loops, "logical_and", endless, while_gradients),
    "examples go on": (loops, "where", lambda old: lambda go, new, x: new, each_ends),
    "the first example ends the loop": (loops, "any_of", lambda old: ef.all, each_ends),
    "carries do not grow": (
        scans,
        "grown",
        lambda old: lambda flags, *_: list(flags),
        carries_grow,
    ),
    "nothing is restored": (
        functions.Journal,
        "restore",
        lambda old: lambda _: None,
        after_an_error,
    ),
    "results are the arguments": (branches, "fresh", lambda old: tuple, arguments_among_results),
    "rows out of order": (scans, "stack", lambda old: lambda rows: old(rows[::-1]), rows_in_order),
    "graphs go the other way": (scans, "_as_op", turned, bits_of_a_graph),
    "one draw for all": (bodies, "draws", lambda old: lambda graph: False, draws_of_examples),
    "lines are lost": (Node, "place", lambda old: "", lines_of_errors),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name, monkeypatch):
    where, what, change, check = PLANTED[name]
    bodies.forget()
    check()
    bodies.forget()
    monkeypatch.setattr(where, what, change(getattr(where, what)))
    with pytest.raises(Exception):  # noqa: B017  whatever it is, it must not pass
        check()
    bodies.forget()


RULES = [
    (name, check, fact)
    for name in ("cond", "scan", "switch", "while_loop")
    for check, fact in (("gradient", "vjp"), ("second_order", "vjp"), ("gradient", "jvp"))
]


@pytest.mark.parametrize(("name", "check", "fact"), RULES)
def test_contract_finds_wrong_rules(name, check, fact):
    op = ops[name]
    rule = getattr(op, fact)

    def wrong(*args, **attributes):
        return tuple(p if p is None else p * 1.01 for p in rule(*args, **attributes))

    with pytest.raises(ef.errors.GradientError, match="is wrong"):
        CHECKS[check](planted(op, **{fact: wrong}))
    CHECKS[check](planted(op))


@pytest.mark.parametrize("name", ["cond", "scan", "switch", "while_loop", "custom_gradient"])
def test_contract_finds_wrong_batches_and_kernels(name):
    op = ops[name]

    def first_example(args, flags, size, **attributes):
        outs = op.batch(args, flags, size, **attributes)
        return tuple(ef.broadcast_to(y[:1], y.shape) if len(y) else y for y in outs)

    with pytest.raises(AssertionError):
        CHECKS["batch"](planted(op, batch=first_example))

    def doubled(xp, *args, **attributes):
        return tuple(y + y for y in op.kernel(xp, *args, **attributes))

    doubled.__code__ = doubled.__code__.replace(co_name=name)
    with pytest.raises(AssertionError):
        CHECKS["reference"](planted(op, kernel=doubled))
