"""Segments: neighbouring steps in one call, for any arrays and from any thread."""

import gc
import os
import threading
import weakref

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.errors import ShapeError
from eagerflow.plan import segments
from eagerflow.plan.segments import NativePart, PythonPart, Segment, SegmentStep
from eagerflow.primitives import matrix_product
from tests.internals import layouts_of, plans_of, segments_of

pytestmark = pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")


def chain(x, w, v):
    """Products and regions one after the other, with a sum along the first axis."""
    h = ef.tanh(x @ w + 1.0)
    y = ef.gelu(h @ v) * 2.0
    return y, ef.sum(y, axis=0), ef.sum(h)


def factors(rows=40, width=50, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (rows, width), (width, width), (width, 30)
    return [rng.standard_normal(s).astype("float32") for s in shapes]


def arrays_of(found):
    return [np.asarray(y) for y in found]


def own_segments(function):
    """The segments of a captured function's plans that have steps."""
    return [s for p in plans_of(function) for s in segments_of(p) if any(s.steps)]


def check(found, wanted):
    for one, other in zip(arrays_of(found), arrays_of(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 3, 40, 700])
def test_values_run_after_run(rows):
    args = [ef.tensor(a) for a in factors(rows)]
    wanted, step = chain(*args), ef.function(chain)
    for _ in range(3):
        check(step(*args), wanted)


def test_all_of_a_chain_is_one_call():
    args = [ef.tensor(a) for a in factors(200, 300)]
    step = ef.function(chain)
    for _ in range(3):
        step(*args)
    own = [s for s in own_segments(step) if len(s.steps) > 3]
    assert own, "the steps are not in one segment"
    assert [type(p) for p in layouts_of(own[-1])[0].parts] == [NativePart]


def test_arrays_that_lie_otherwise():
    x, w, v = factors(64, 64)
    step = ef.function(chain)
    for lies in (np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2]):
        args = [ef.asarray(lies(a)) for a in (x, w, v)]
        for _ in range(3):
            found = step(*args)
        check(found, chain(*map(ef.tensor, (x, w, v))))


def test_reshaped_broadcast_is_copied_after_computation():
    """Another shape of an array that is repeated by a stride of 0 is no view of it."""

    def step(k, more, q):
        rows = ef.concat(k, more, axis=2)
        often = ef.broadcast_to(ef.reshape(rows, (2, 3, 1, 18, 8)), (2, 3, 3, 18, 8))
        keys = ef.reshape(often, (2, 9, 18, 8))
        scores = ef.matmul(q * 0.5, ef.matrix_transpose(keys) * 0.5)
        return (ef.matmul(ef.softmax(scores + 1.0), keys),)

    rng = np.random.default_rng(0)
    shapes = (2, 3, 12, 8), (2, 3, 6, 8), (2, 9, 4, 8)
    given = [ef.tensor(rng.standard_normal(shape).astype("float32")) for shape in shapes]
    captured = ef.function(step)
    for _ in range(3):
        check(captured(*given), step(*given))


@pytest.mark.parametrize("reduce", [ef.mean, ef.sum, ef.max])
def test_one_sum_of_columns_for_several_results(reduce):
    """Both are made of the same parts, which only the last one clears for the next run."""
    x, w, _ = factors(rows=256)

    def centred(x):
        h = ef.tanh(x)
        flat, kept = reduce(h, axis=0), reduce(h, axis=0, keepdims=True)
        return (h - flat) @ w, (h - kept) @ w

    captured, tanh = ef.function(centred), np.tanh(x.astype("float64"))
    centre = getattr(np, reduce.__name__)(tanh, axis=0)
    for _ in range(3):
        for found in captured(x):
            np.testing.assert_allclose(found, (tanh - centre) @ w, rtol=2e-4, atol=2e-3)


def test_threads_that_run_one_plan_at_once():
    args = [ef.tensor(a) for a in factors(120, 120)]
    step, wanted, errors = ef.function(chain), chain(*[ef.tensor(a) for a in factors(120, 120)]), []
    step(*args)

    def work():
        try:
            for _ in range(30):
                check(step(*args), wanted)
        except BaseException as error:
            errors.append(error)

    team = [threading.Thread(target=work) for _ in range(4)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_goes_on():
    args = [ef.tensor(a) for a in factors(300, 300)]
    step = ef.function(chain)
    wanted = arrays_of(step(*args))
    child = os.fork()
    if not child:
        same = all(map(np.array_equal, arrays_of(step(*args)), wanted))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert all(map(np.array_equal, arrays_of(step(*args)), wanted))


def native_product(a, b, out):
    return matrix_product.fixed(a, b, out)


def product_step(call=None, native=native_product):
    def plain(inputs, outputs):
        np.matmul(*inputs, *outputs)

    return SegmentStep(None, 2, call or plain, lambda i, o: native(*i, *o))


def test_steps_without_machine_code_stand_between_the_others():
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 60, 60)).astype("float32")
    outs = np.empty((3, 60, 60), "float32")
    own = Segment([product_step(), product_step(native=lambda *_: None), product_step()])
    own(((a, b, outs[0]), (outs[0], c, outs[1]), (outs[1], a, outs[2])))
    kinds = [type(p) for p in layouts_of(own)[0].parts]
    assert kinds == [NativePart, PythonPart, NativePart]
    np.testing.assert_allclose(outs[2], a @ b @ c @ a, rtol=1e-3, atol=1e-2)


def test_arrays_of_a_subclass_go_through_python(tmp_path):
    calls = []

    def plain(inputs, outputs):
        calls.append(1)
        np.matmul(*inputs, *outputs)

    mapped = np.memmap(tmp_path / "a", "float32", "w+", shape=(30, 30))
    mapped[:] = np.arange(900).reshape(30, 30)
    b, out = np.ones((30, 30), "float32"), np.empty((30, 30), "float32")
    own = Segment([product_step(plain)])
    own(((mapped, b, out),))
    assert calls == [1]
    assert np.array_equal(out, np.asarray(mapped) @ b)
    own(((b, b, out),))
    assert calls == [1] and (out == 30).all()


def test_an_error_names_the_step(monkeypatch):
    def fail(inputs, outputs):
        raise ValueError("it would not")

    monkeypatch.setattr(
        segments.Segment,
        "layout_for",
        lambda self, rows: segments.Layout(
            [s._replace(call=fail) if s.step.op.name == "matmul" else s for s in self.steps],
            [None] * len(self.steps),
            rows,
        ),
    )
    step = ef.function(lambda x, y: (x @ y) @ y)
    with pytest.raises(ShapeError, match="it would not") as caught:
        step(ef.ones((64, 64)), ef.ones((64, 64)))
    assert caught.value.op == "matmul" and "test_segments.py" in caught.value.at


def test_plans_go_with_their_segments():
    def made():
        step = ef.function(chain)
        args = [ef.tensor(a) for a in factors(100, 100)]
        for _ in range(3):
            step(*args)
        own = own_segments(step)
        assert own
        return [weakref.ref(s) for s in own]

    left = made()
    gc.collect()
    assert not any(ref() for ref in left)
