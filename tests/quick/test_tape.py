"""GradientTape as a user meets it: one-shot, persistent, nested, closed, and its stories."""

import contextlib
import gc
import re
import sys
import types
import weakref
from functools import partial

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import EagerflowError, GradientError, ShapeError
from eagerflow.recorder import CODE, FIRST_KEY

X = np.array([1.0, -2.0, 3.0])


def test_gradient_has_the_nest_of_the_sources():
    a, b = ef.tensor(X), ef.Variable(X, name="b")
    with ef.GradientTape() as tape:
        tape.watch(a)
        loss = (a * b * b).sum()
    grads = tape.gradient(loss, {"first": [a], "second": (b,)})
    np.testing.assert_array_equal(grads["first"][0].numpy(), X**2)
    np.testing.assert_array_equal(grads["second"][0].numpy(), 2 * X**2)


def test_one_shot_tape_lets_go_and_says_so():
    x = ef.tensor(X)
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = (x * x).sum()
    tape.gradient(y, x)
    assert repr(tape).startswith("<GradientTape used up: 0 ops")
    with pytest.raises(GradientError, match=r"persistent=True"):
        tape.gradient(y, x)


def test_persistent_tape_gradients_repeat_and_of_intermediates():
    x = ef.tensor(X)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        z = (y * y).sum()
    np.testing.assert_allclose(tape.gradient(z, x).numpy(), 4 * X**3)
    np.testing.assert_allclose(tape.gradient(z, y).numpy(), 2 * X**2)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), 2 * X)


@pytest.mark.parametrize("inside", [True, False])
def test_nested_tapes_give_second_derivatives(inside):
    x = ef.tensor(X)
    with ef.GradientTape() as outer:
        outer.watch(x)
        with ef.GradientTape() as inner:
            inner.watch(x)
            y = (x * x * x).sum()
            first = inner.gradient(y, x) if inside else None
        if not inside:
            first = inner.gradient(y, x)
        total = first.sum()
    np.testing.assert_allclose(outer.gradient(total, x).numpy(), 6 * X)


@pytest.mark.parametrize("watch", [contextlib.nullcontext, ef.debug_nans])
def test_each_of_several_tapes_records_what_it_sees(watch):
    x, v = ef.tensor(X), ef.Variable(X)
    with watch(), ef.GradientTape() as outer:
        outer.watch(x)
        a = x * v
        with ef.GradientTape(persistent=True) as middle:
            middle.watch(a)
            b = ef.exp(a) * v
            with ef.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(b)
                lost = b * b
                inner.reset()
                inner.watch(lost)
                c = lost * b  # b was forgotten
            by_lost = inner.gradient(c, lost)
        by_a, by_v = middle.gradient(c, [a, v])
        d = (by_lost * by_a + by_v).sum()
        by_b = middle.gradient(c, b)
    b = np.exp(X * X) * X
    np.testing.assert_allclose(by_lost.numpy(), b, rtol=1e-6)
    np.testing.assert_allclose(by_b.numpy(), 3 * b**2, rtol=1e-6)
    np.testing.assert_allclose(by_a.numpy(), 3 * b**3, rtol=1e-6)
    np.testing.assert_allclose(by_v.numpy(), 3 * b**3 / X, rtol=1e-6)
    # d = 3 b^4 + 3 b^3 / v with b = exp(x v) v, of which x and v are moved separately
    np.testing.assert_allclose(outer.gradient(d, x).numpy(), 12 * b**4 * X + 9 * b**3, rtol=1e-5)


def test_a_tape_left_too_early_records_nothing_of_the_inner_one():
    x = ef.tensor(X)
    outer, inner = ef.GradientTape(), ef.GradientTape()
    outer.__enter__()
    outer.watch(x)
    inner.__enter__()
    with pytest.raises(EagerflowError, match="left before"):
        outer.__exit__(None, None, None)
    y = x * x
    with pytest.raises(EagerflowError, match="left before"):
        inner.__exit__(None, None, None)
    assert "0 ops" in repr(outer)
    with pytest.raises(GradientError):
        outer.gradient(y, x)


def test_third_derivative():
    f = ef.grad(ef.grad(ef.grad(lambda x: x**5)))
    assert float(f(ef.tensor(2.0, dtype="float64"))) == pytest.approx(60 * 4)


def test_variable_assigned_while_recording_sums_over_its_values():
    w = ef.Variable(2.0)
    with ef.GradientTape() as tape:
        a = w * 3.0
        w.assign(5.0)
        b = w * 4.0
    assert float(tape.gradient([a, b], w)) == 7.0


def test_only_trainable_variables_are_watched_by_themselves():
    w, frozen = ef.Variable(2.0), ef.Variable(2.0, trainable=False)
    with ef.GradientTape() as tape:
        y = w * frozen
    assert tape.watched_variables() == (w,)
    with pytest.raises(GradientError, match="not watched"):
        tape.gradient(y, frozen)
    with ef.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(frozen)
        y = w * frozen
    assert tape.watched_variables() == (frozen,)
    assert float(tape.gradient(y, frozen)) == 2.0


def test_output_gradients_weigh_and_are_checked():
    x = ef.tensor(X)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
    g = tape.gradient(y, x, output_gradients=[1.0, 0.0, 10.0])
    np.testing.assert_allclose(g.numpy(), [2, 0, 60])
    with pytest.raises(ShapeError, match="shape of its target"):
        tape.gradient(y, x, output_gradients=[1.0, 2.0])
    with pytest.raises(GradientError, match="structure"):
        tape.gradient([y], x, output_gradients=(1.0, 2.0))


def test_unconnected_choices():
    x, other = ef.tensor(X), ef.tensor(X)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch([x, other])
        y = (x * x).sum()
    assert tape.gradient(y, [x, other], unconnected="none")[1] is None
    np.testing.assert_array_equal(tape.gradient(y, other, unconnected="zero").numpy(), 0 * X)
    with pytest.raises(GradientError, match="does not depend"):
        tape.gradient(y, other)
    with pytest.raises(GradientError, match="not a choice"):
        tape.gradient(y, x, unconnected="nothing")


def _break_with_numpy(x):
    return ef.tensor(x.numpy()) * 2.0


def _break_with_index(x):
    return ef.argmax(x).astype("float64") * 2.0


def _break_with_stop(x):
    return ef.stop_gradient(x) * 2.0


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_break_with_numpy, "left through numpy()"),
        (_break_with_index, "argmax"),
        (_break_with_stop, "stop_gradient"),
    ],
)
def test_missing_gradient_reports_where_the_path_breaks(function, words):
    x = ef.tensor(X)
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    line = function.__code__.co_firstlineno + 1
    with pytest.raises(GradientError) as error:
        tape.gradient(y, x)
    assert words in str(error.value)
    assert f"{__file__}:{line}" in str(error.value)


def test_why_explains_the_path():
    x = ef.tensor(X)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = ef.sin(x)
        z = y.sum()
    story = tape.why(z, x)
    assert "sin" in story and "sum" in story and __file__ in story
    assert "not watched" in tape.why(z, ef.tensor(X))


def test_ops_of_a_gradient_have_the_line_of_the_call_or_of_the_rule():
    def rule(g):
        return g * ef.sign(x)

    def lines_of(story):
        return {int(n) for n in re.findall(re.escape(__file__) + r":(\d+)", story)}

    x = ef.tensor(X)
    copied = ef.custom_gradient(lambda x: (x * 1.0, rule))
    own = rule.__code__.co_firstlineno + 1
    with ef.GradientTape(persistent=True) as outer:
        outer.watch(x)
        for function in (ef.max, copied):
            with ef.GradientTape() as inner:
                inner.watch(x)
                y = function(x)
            line = sys._getframe().f_lineno + 1
            g = inner.gradient(y, x)
            found = lines_of(outer.why(g, x))
            assert line in found and found <= {line, line - 2, own}, function
    assert own in found  # of the rule


def test_memory_report_counts_kept_values_by_line():
    x = ef.tensor(np.ones((100, 100)))
    with ef.GradientTape() as tape:
        tape.watch(x)
        _ = x * x
        _ = x + 1.0
    report = tape.memory()
    assert report.total == x.nbytes  # multiply keeps x, once; add keeps nothing
    assert report.lines[0][1:] == ("multiply", x.nbytes)
    assert __file__ in str(report)


@pytest.mark.parametrize("source", [ef.tensor([1, 2]), "x", 3.0, None])
def test_sources_without_a_gradient_are_refused(source):
    with ef.GradientTape() as tape:
        y = ef.Variable(1.0) * 2.0
    with pytest.raises(GradientError):
        tape.gradient(y, source)


def test_jacobian_of_the_tape():
    x = ef.tensor(X)
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = ef.stack([x * x, x * 3.0])
    jac = tape.jacobian(y, x).numpy()
    np.testing.assert_allclose(jac[0], np.diag(2 * X))
    np.testing.assert_allclose(jac[1], np.diag([3.0] * 3))
    with pytest.raises(GradientError, match="has computed its gradient"):
        tape.jacobian(y, x)


def test_complex_gradient_is_the_direction_of_ascent():
    z = ef.tensor(3 + 4j, dtype="complex128")
    g = ef.grad(lambda z: ef.real(z * ef.conj(z)))(z)
    assert complex(g) == pytest.approx(2 * (3 + 4j))


def test_tape_cannot_be_entered_twice():
    tape = ef.GradientTape()
    with tape, pytest.raises(EagerflowError, match="entered already"), tape:
        pass


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_target_computed_behind_the_block(is_captured):
    """Under a tape around it, which records what this one did not, too."""

    def slope(x):
        with ef.GradientTape() as outer:
            outer.watch(x)
            with ef.GradientTape() as inner:
                inner.watch(x)
                y = x * x
            slopes = inner.gradient(y.sum(), x)
        return outer.gradient(slopes, x)

    with pytest.raises(GradientError, match="inside of the `with` block"):
        (ef.function(slope) if is_captured else slope)(ef.tensor([1.0, 2.0]))
    with ef.GradientTape() as tape:
        tape.watch(x := ef.tensor([1.0, 2.0]))
        y = x * x
    with pytest.raises(GradientError, match="inside of the `with` block"):
        tape.gradient(y.sum(), x)


@pytest.mark.parametrize("is_captured", [False, True])
def test_the_reason_for_a_variable_that_the_tape_did_not_record(is_captured):
    read, other = ef.Variable([1.0, 2.0]), ef.Variable([1.0, 2.0], name="other")
    fixed = ef.Variable([1.0, 2.0], trainable=False, name="fixed")

    def gradient(source, **options):
        with ef.GradientTape(**options) as tape:
            loss = (read * fixed).sum()
        return tape.gradient(loss, source)

    for source, options, reason in (
        (other, {}, "recorded no use"),
        (fixed, {}, "was not watched"),
    ):
        call = partial(gradient, source, **options)
        with pytest.raises(GradientError, match=reason):
            (ef.function(call) if is_captured else call)()

    @ef.custom_gradient
    def scaled(x):
        return x * read, lambda g: g

    with ef.GradientTape() as tape:
        loss = scaled(ef.ones(2)).sum()
    with pytest.raises(GradientError, match="functions with custom gradients need it"):
        tape.gradient(loss, read)


def test_gradient_of_unconnected_target_is_refused():
    x = ef.tensor(X)
    with ef.GradientTape() as tape:
        tape.watch(x)
    with pytest.raises(GradientError, match="not computed from watched values"):
        tape.gradient(x * 2.0, x)


def test_no_tape_entries_survive_a_gradient():
    x = ef.tensor(X)
    for _ in range(3):
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = (ef.sin(x) * x).sum()
        tape.gradient(y, x)
    gc.collect()
    tuples = [o for o in gc.get_objects() if type(o) is tuple and len(o) > FIRST_KEY]
    # A traced program's tables begin with ops too, but have no code in the third place.
    entries = [o for o in tuples if o[0] is ef.sin.op and isinstance(o[CODE], types.CodeType)]
    assert entries == []


def test_gradients_below_another_tape_leave_nothing_to_the_collector():
    x = ef.tensor(X)
    enabled = gc.isenabled()
    gc.disable()
    try:
        with ef.GradientTape() as outer:
            outer.watch(x)
            with ef.GradientTape() as inner:
                inner.watch(x)
                y = x * x
                z = y.sum()
            g = inner.gradient(z, x)
            kept = [weakref.ref(y), weakref.ref(g)]
            total = g.sum()
        outer.gradient(total, x)
        del y, z, g, total, inner, outer
        assert [ref() for ref in kept] == [None, None]
    finally:
        if enabled:
            gc.enable()


def test_errors_in_rules_say_which_op_and_line():
    @ef.custom_gradient
    def bad(x):
        return x * 1.0, lambda g: g.reshape((7,))

    with pytest.raises(ShapeError) as error:
        ef.grad(lambda x: bad(x).sum())(ef.tensor(X))
    assert any("gradient of bad" in note for note in error.value.__notes__)
