"""Arrays of the caller that tensors share: captured code reads them anew and keeps none."""

import gc

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.backends import numpy as backend

SHARED = {
    "asarray": ef.asarray,
    "from_dlpack": ef.from_dlpack,
    "a view of an array": lambda a: ef.asarray(a[1:]),
    "a view of the tensor": lambda a: ef.asarray(a)[:-1],
    "a tensor of another view": lambda a: ef.asarray(a.reshape(3, 2)).reshape((-1,)),
}
CODE = {
    "folding": lambda x, t: ef.exp(t * 0.1).sum() * x,
    "algebra": lambda x, t: (x * t + t) / t,
    "equal constants": lambda x, t: x * ef.tensor(np.ones(t.size, np.float32)) + ef.exp(t * 0.1),
    "views": lambda x, t: x + t.reshape((1, -1)).sum(1),
    "shape alone": lambda x, t: x * ef.zeros_like(t).sum() + t[0],
    "a loop": lambda x, t: ef.fori_loop(0, 3, lambda i, s: s * t[0] + ef.exp(t * 0.1).sum(), x),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("share", SHARED)
def test_changes_of_the_owner_are_seen(share, code, numerics):
    array = np.ones(6, np.float32)
    tensor = SHARED[share](array)
    captured = ef.function(lambda x: CODE[code](x, tensor), numerics=numerics)
    graph = ef.capture.trace(lambda x: CODE[code](x, tensor), ef.TensorSpec((), "float32"))
    x = ef.tensor(2.0)
    for value in (1, 3, 5):
        array[:] = value
        wanted = CODE[code](x, tensor).numpy()
        np.testing.assert_allclose(captured(x).numpy(), wanted, rtol=1e-5)
        np.testing.assert_allclose(graph(x).numpy(), wanted, rtol=1e-5)
    assert len(captured.graphs) == 1


def test_memory_of_our_own_is_still_folded():
    array = np.ones(6, np.float32)
    made = [ef.tensor(array), ef.asarray(array, copy=True), ef.asarray(array, "float64")]
    made += [ef.asarray(np.ones(6, np.float32)), ef.asarray(np.ones((2, 3), np.float32).reshape(6))]
    for tensor in made:
        graph = ef.capture.trace(lambda x, t=tensor: x * ef.exp(t), ef.TensorSpec((6,), "float32"))
        names = [node.op.name for node in ef.capture.passes.constants(graph).nodes]
        assert "exp" not in names


def test_shared_memory_entry_is_removed_with_its_owner():
    gc.collect()
    before = len(backend.lent)
    arrays = [np.ones(3) for _ in range(10)]
    tensors = [ef.asarray(a) for a in arrays]
    assert len(backend.lent) == before + 10
    del arrays, tensors
    gc.collect()
    assert len(backend.lent) == before


RESULTS = {
    "the argument": lambda x: x,
    "views": lambda x: [x.T, x[1:], x.reshape((-1,)), ef.broadcast_to(x, (2, 2, 3))],
    "what changes nothing": lambda x: [x * 1, x + 0, x - 0.0, x / 1, x**1, ef.negative(-x)],
    "selections": lambda x: [ef.where(True, x, x * 0), ef.maximum(x, x), ef.concat([x])],
    "casts": lambda x: [x.astype("float32"), ef.stop_gradient(x), ef.real(x), ef.tensor(x)],
    "a branch": lambda x: ef.cond(ef.sum(x) > 0, lambda: x, lambda: x + 1),
    "a loop": lambda x: ef.while_loop(lambda s: ef.sum(s) < 0, lambda s: s * 2, x),
    "nested": lambda x: ef.function(lambda y: y[:])(x),
}
WAYS = {
    "fast": lambda f: ef.function(f),
    "exact": lambda f: ef.function(f, numerics="exact"),
    "graph": lambda f: ef.capture.trace(f, ef.TensorSpec((2, 3), "float32")),
    "session": lambda f: _session(ef.capture.trace(f, ef.TensorSpec((2, 3), "float32"))),
    "partition": lambda f: ef.capture.partition(
        ef.capture.trace(f, ef.TensorSpec((2, 3), "float32")), ["cpu:0"]
    ),
}


def _session(graph):
    session = ef.capture.Session(graph)
    return lambda x: session.run(list(graph.outputs.names), {"x": x})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("results", RESULTS)
@pytest.mark.parametrize(
    "given", [ef.asarray, ef.from_dlpack, np.asarray], ids=lambda f: f.__name__
)
def test_results_stay_when_the_caller_changes_the_array(given, results, way):
    captured = WAYS[way](RESULTS[results])
    for _ in range(2):
        array = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
        found = captured(given(array))
        held = found if isinstance(found, list) else [found]
        before = [x.numpy().copy() for x in held]
        array[:] = -5
        for x, value in zip(held, before, strict=True):
            np.testing.assert_array_equal(x.numpy(), value)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "complex64", "bfloat16"])
def test_copies_and_variables_keep_values_if_the_array_changes(dtype):
    array = np.ones(5, ef.as_dtype(dtype) if dtype == "bfloat16" else dtype)
    shared = ef.asarray(array)
    assigned, captured = ef.Variable(ef.tensor(array)), ef.Variable(ef.tensor(array))
    assigned.assign(shared)
    ef.function(captured.assign)(shared)
    copies = [ef.tensor(shared), ef.asarray(shared, copy=True), ef.Variable(shared)]
    array[:] = 0
    for x in (*copies, assigned, captured):
        assert x.numpy().all()
    assert not shared.numpy().any()


def test_gradients_pass_through_a_copy():
    x = ef.asarray(np.ones(3, np.float32))
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = ef.tensor(x) * 2
    np.testing.assert_array_equal(tape.gradient(y, [x])[0].numpy(), [2, 2, 2])


VIEWS = {
    "reversed": lambda a: a[..., ::-1],
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "turned": lambda a: np.ascontiguousarray(a.T).T,
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
}


@pytest.mark.parametrize("run", ["function", "session", "partition"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", [(300, 40), (12_000,)])
def test_copies_of_shared_memory_have_its_strides(shape, view, run):
    """NumPy gives other bits for other strides, and inputs are copied where results are views."""

    def f(x):
        return ef.atan2(x, ef.abs(x) + 0.5), ef.sum(x, axis=0), x.T, ef.view(x, "uint8")

    rng = np.random.default_rng(0)
    x = ef.asarray(VIEWS[view](rng.normal(size=shape).astype("f4")))
    captured = ef.function(f, numerics="exact")
    graph = captured.graph(x)
    feeds, outputs = captured.inputs_of(x), list(graph.outputs)
    session = ef.capture.Session(graph, numerics="exact")
    ways = {
        "function": lambda: captured(x),
        "session": lambda: session.run(outputs, dict(zip(graph.inputs, feeds, strict=True))),
        "partition": lambda: ef.capture.partition(graph, ["cpu:0"], numerics="exact").run(feeds),
    }
    for found, wanted in zip(ways[run](), f(x), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
