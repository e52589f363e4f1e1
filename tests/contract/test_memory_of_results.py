"""What captured ops give is theirs: no later call writes it, no array of the caller's is in it."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from tests.contract.cases import SOAK, dtypes_of, main_dtype, samples, shipped
from tests.internals import array_of

KILOBYTES_400 = 100_000
OPS = [op for op in shipped() if op.data]


def kept_bytes(tensor):
    array = array_of(tensor)
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.nbytes


def tensors_in(nest):
    return [x for x in tree.flatten(nest)[0] if type(x) is ef.Tensor]


def computed(x):
    """The same values, in an array that a plan computes."""
    is_array = isinstance(x, ef.Tensor | np.ndarray)
    return ef.asarray(x).at[...].set(ef.asarray(x)) if is_array else x


def called(f, *args):
    """The tensors that a call gives; none where its values are refused."""
    try:
        return tensors_in(f(*args))
    except ef.errors.EagerflowError:
        return []


def ways_to_call(op, attributes):
    """An op on arrays that a plan computes, and on those that come."""
    return (
        lambda *x: op.call(*tree.map_leaves(computed, x), **attributes),
        lambda *x: op.call(*x, **attributes),
    )


def own_memory(op, dtype, many, numerics="fast"):
    """Captured calls of samples, with arrays that a plan computes, and with those of NumPy."""
    checked = 0
    pairs = list(zip(samples(op, dtype), samples(op, dtype, 1), strict=False))[:many]
    for first, second in pairs:
        for way in ways_to_call(op, first.attributes):
            f = ef.function(way, numerics=numerics)
            args = tree.map_leaves(
                lambda x: x.copy() if isinstance(x, np.ndarray) else x, first.args
            )
            own = called(f, *args)
            before = [y.numpy().tobytes() for y in own]
            others = called(f, *second.args)
            check_apart(
                op, own, others, [x for x in tree.flatten(args)[0] if type(x) is np.ndarray]
            )
            for x in tree.flatten(args)[0]:
                if type(x) is np.ndarray and x.flags.writeable:
                    x[...] = np.zeros((), x.dtype)
            called(f, *args)
            assert [y.numpy().tobytes() for y in own] == before, f"{op.name}: a result was written"
            checked += len(own)
    return checked


def check_apart(op, own, others, arrays):
    """No result shares memory with an argument, with one of another call, or with another one."""
    own, others = ([array_of(y) for y in part] for part in (own, others))
    for i, y in enumerate(own):
        for x in arrays:
            assert not np.may_share_memory(y, x), f"{op.name}: an argument's memory"
        for z in others:
            assert not np.may_share_memory(y, z), f"{op.name}: another call's memory"
        for z in own[:i] if op.aliases is False else ():
            assert not np.shares_memory(y, z), f"{op.name}: another result's memory"


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.soak
def test_results_of_all_ops_are_their_own(op, numerics):
    for dtype in dtypes_of(op) or [main_dtype(op)]:
        checked = own_memory(op, dtype, 100, numerics)
    assert checked or op.name == "nonzero"  # which cannot be captured


VIEWS = [op for op in OPS if op.aliases and op.family in ("shape", "indexing", "creation")]
SAMPLE = [op for op in OPS if op not in VIEWS][::12]


@pytest.mark.parametrize("op", VIEWS, ids=lambda op: op.name)
def test_results_of_ops_that_alias_are_their_own(op):
    own_memory(op, main_dtype(op), 2)


@pytest.mark.parametrize("op", SAMPLE, ids=lambda op: op.name)
def test_results_of_other_ops_are_their_own(op):
    assert own_memory(op, main_dtype(op), 1, "exact")


@pytest.mark.parametrize("dtype", ["int32", "uint8", "complex64", "float16", "float32"])
def test_bits_of_another_dtype_are_not_those_of_a_buffer(dtype):
    captured = ef.function(lambda x: ef.view(x * 2.0, dtype))
    first = captured(ef.ones(1000))
    before = first.numpy().copy()
    captured(ef.ones(1000) * 3.0)
    assert first.numpy().tobytes() == before.tobytes()
    array = np.ones(1000, np.float32)
    bits = ef.function(lambda x: ef.view(x, dtype))(array)
    before = bits.numpy().copy()
    array[:] = 7
    assert bits.numpy().tobytes() == before.tobytes()


SMALL = {
    "the last row": lambda x: (x * 2.0)[-1],
    "the first of several": lambda x: ef.split(x * 2.0, 100)[0],
    "a row of an argument": lambda x: x[3],
    "unstack": lambda x: ef.unstack((x * 2.0).reshape((100, -1)))[0],
    "a reshaped row": lambda x: (x * 2.0)[:4].reshape((2, 2)).T,
    "the last state of a scan": lambda x: ef.scan(lambda c, e: (c + e, c), x[0], x)[0],
    "both results of a scan": lambda x: ef.scan(lambda c, e: (c + e, c), x[:2], x)[0],
    "a branch": lambda x: ef.cond(x[0] > 0, lambda: (x * 2.0)[1], lambda: (x * 3.0)[2]),
    "a loop": lambda x: ef.fori_loop(0, 3, lambda i, s: s * 2.0, x)[5],
}


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("name", SMALL)
def test_small_results_keep_no_large_array(name, numerics):
    x = ef.ones(KILOBYTES_400 if "scan" not in name or SOAK else 3_000)
    found = ef.function(SMALL[name], numerics=numerics)(x)
    assert kept_bytes(found) <= 4 * found.nbytes + 4096
    np.testing.assert_allclose(found.numpy(), SMALL[name](x).numpy(), rtol=1e-5)


def test_values_of_variables_keep_no_large_array():
    v = ef.Variable(ef.zeros(3))

    @ef.function
    def step(x):
        v.assign((x * 2.0)[:3])
        return v.value.sum()

    assert float(step(ef.ones(KILOBYTES_400))) == 6.0
    assert kept_bytes(v.value) <= 12 + 4096


HELD = ef.tensor(np.ones(5, "float32"))
CONSTANTS = {
    "zeros_like": lambda x: ef.zeros_like(x),
    "ones": lambda x: (ef.ones((5,)), x * 2.0),
    "what is folded": lambda x: {"y": ef.arange(5.0) * 2.0 + 1.0, "z": x * 2.0},
    "one constant twice": lambda x: [c := ef.full((5,), 3.0), ef.stop_gradient(c)],
    "a tensor of a closure": lambda x: (HELD, x * 2.0),
    "a part of one": lambda x: (HELD[1:], HELD[::-1], HELD.reshape((5, 1)), x * 2.0),
    "what is broadcast": lambda x: ef.broadcast_to(ef.ones((1,)), (5,)),
    "a gradient": lambda x: ef.grad(ef.sum)(x),
    "a branch": lambda x: ef.cond(x[0] > 0, lambda: ef.ones((5,)), lambda: x * 2.0),
    "a held branch": lambda x: ef.cond(x[0] > 0, lambda: HELD, lambda: x * 2.0),
    "one of several": lambda x: ef.switch(1, [lambda: x, lambda: ef.ones((5,))]),
    "a branch of a branch": lambda x: ef.cond(
        x[0] > 0, lambda: ef.cond(x[1] > 0, lambda: HELD[:3], lambda: x[:3]), lambda: x[2:]
    ),
    "no iteration": lambda x: ef.fori_loop(0, 0, lambda i, s: s + 1.0, ef.ones((5,))),
    "a condition that is false": lambda x: ef.while_loop(
        lambda s: ef.sum(s) < -1.0, lambda s: s + x, ef.ones((5,))
    ),
    "the state of a scan": lambda x: ef.scan(lambda c, e: (ef.ones((5,)), None), x, x)[0],
    "a checkpoint": lambda x: ef.checkpoint(lambda x: ef.ones((5,)))(x),
    "a vmap": lambda x: ef.vmap(lambda e: ef.ones((2,)))(x),
}


def ways_to_run(f):
    """A function of one argument as captured, traced, loaded and placed graphs give its results."""
    graph = ef.capture.trace(f, ef.TensorSpec((5,), "float32", name="x"))
    names = graph.outputs.names
    yield ef.function(f)
    yield ef.function(f, numerics="exact")
    yield graph
    session = ef.capture.Session(graph)
    yield lambda x: session.run(list(names), {"x": x})
    yield ef.capture.partition(graph, ["cpu:0"])


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_that_are_results_are_new_in_each_call(name):
    x = ef.tensor(np.arange(1, 6, dtype="float32"))
    for call in ways_to_run(CONSTANTS[name]):
        first = tensors_in(call(x))
        before = [y.numpy().copy() for y in first]
        for y in first:  # as PyTorch writes to what it gets through DLPack
            written = y.numpy()
            if written.base is not None and not written.base.flags.writeable:
                continue
            written.flags.writeable = True
            written[...] = 7
        for y, right in zip(tensors_in(call(x)), before, strict=True):
            np.testing.assert_array_equal(y.numpy(), right)
    np.testing.assert_array_equal(HELD.numpy(), np.ones(5))


def test_reset_variable_shares_no_memory_with_the_constant():
    v, w = ef.Variable(ef.ones(5)), ef.Variable(ef.ones(5))

    @ef.function
    def reset():
        zero = ef.zeros(5)
        v.assign(zero)
        w.assign(zero)
        return zero

    for _ in range(3):
        result = reset()
        for y in (v.value, result):
            written = y.numpy()
            written.flags.writeable = True
            written[...] = 7
        reset()
        assert v.numpy().tolist() == w.numpy().tolist() == [0.0] * 5


def test_view_of_an_argument_shares_memory_as_in_eager():
    x = ef.tensor(np.arange(5.0))
    assert np.shares_memory(ef.function(lambda x: x)(x).numpy(), x.numpy())
