"""Growing regions: what comes out is what eager computes, whatever is fused, and in linear time."""

import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.errors import ArgumentError, DeviceError, IndexRangeError
from eagerflow.fusion import access, groups
from eagerflow.fusion.groups import fuse
from eagerflow.fusion.kernels import FusedKernel
from eagerflow.graph.ir import Node
from eagerflow.graph.run import evaluate
from eagerflow.op import Missing, ops
from eagerflow.ops.family import Rows
from eagerflow.runtime import threads
from eagerflow.tensor import Tensor
from tests.contract.cases import (
    about,
    check_close,
    dtypes_of,
    main_dtype,
    prepared,
    samples,
    tolerance,
)
from tests.fusion.region_programs import arrays_for, graph_of, run_steps
from tests.internals import forget_statement_counts

DTYPES = [
    np.dtype(n) for n in ("float32", "float64", "float16", "int32", "uint8", "bool", "uint64")
]
DTYPES.insert(3, ef.dtypes.as_dtype("bfloat16"))
FUSIBLE = [
    name
    for name, op in ops.items()
    if not isinstance(op.scalar, Missing) or name in ("astype", "random_keep")
]
NEVER = {"angle"}  # its rule is about complex numbers
MATRIX, LINE = ef.TensorSpec((300, 40), "float32"), ef.TensorSpec((40,), "float32")


@pytest.fixture
def greedy(monkeypatch):
    """Everything that can be a region becomes one, however small."""
    monkeypatch.setattr(groups, "MIN_SHARED_ELEMENTS", 0)


def kernels_of(graph, border=1):
    return [step for step in fuse(graph, border) if isinstance(step, FusedKernel)]


def random_arrays(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(v.shape).astype(v.dtype) for v in graph.all_inputs()]


def check_against_eager(graph, arrays, way=None, border=1, rtol=2e-4, **options):
    steps = fuse(graph, border)
    tensors = [ef.asarray(a) for a in arrays]
    outputs, assigned = evaluate(graph, tensors)
    found = run_steps(graph, steps, arrays, way, **options)
    for value, one, other in zip(graph.all_outputs(), found, [*outputs, *assigned], strict=True):
        assert (one.shape, one.dtype) == (value.shape, value.dtype)
        check_close(one, other.numpy(), rtol, value.name)
    return steps


# Every rule ---------------------------------------------------------------------------------------


def traced(op, sample):
    data, attributes, _ = prepared(op, sample)
    tensors = [x for x in data if type(x) is Tensor]

    def f(*given):
        left = iter(given)
        return op.call(*[next(left) if type(x) is Tensor else x for x in data], **attributes)

    return ef.capture.trace(f, *[ef.TensorSpec(t.shape, t.dtype) for t in tensors]), tensors


def check_samples(name, dtypes, way, most):
    op, fused = ops[name], 0
    for dtype in dtypes_of(op, dtypes) or [main_dtype(op)]:
        for sample in samples(op, dtype)[:most]:
            with about(op, sample):
                graph, tensors = traced(op, sample)
                kernels = kernels_of(graph)
                fused += bool(kernels)
                arrays = [t.numpy() for t in tensors]
                rtol = max((tolerance(v.dtype) for v in graph.outputs), default=0.0)
                check_against_eager(graph, arrays, way, rtol=rtol)
    return fused


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", FUSIBLE)
def test_every_rule_computes_its_op_in_steps(name, greedy):
    assert bool(check_samples(name, DTYPES, "numpy", 100)) is (name not in NEVER)


@pytest.mark.sampled(6)
@pytest.mark.skipif("llvm" not in kernel.ways(), reason="machine code needs llvmlite")
@pytest.mark.parametrize("name", FUSIBLE)
def test_every_rule_computes_its_op_as_machine_code(name, greedy):
    assert bool(check_samples(name, DTYPES[:1] + DTYPES[-1:], "llvm", 5)) is (name not in NEVER)


# Random programs ----------------------------------------------------------------------------------


@pytest.mark.sampled(9)
@pytest.mark.parametrize("chunk", range(10))
def test_random_programs_in_steps(chunk, greedy):
    fused = nodes = 0
    for seed in range(chunk * 40, chunk * 40 + 40):
        graph = graph_of(seed)
        steps = check_against_eager(graph, arrays_for(graph, seed), "numpy")
        nodes += len(graph.nodes)
        fused += sum(len(s.nodes) for s in steps if isinstance(s, FusedKernel))
    assert fused > nodes / 2


@pytest.mark.sampled(8)
@pytest.mark.skipif("llvm" not in kernel.ways(), reason="machine code needs llvmlite")
@pytest.mark.parametrize("chunk", range(4))
def test_random_programs_as_machine_code(chunk, greedy):
    for seed in range(1000 + chunk * 20, 1020 + chunk * 20):
        graph = graph_of(seed)
        check_against_eager(graph, arrays_for(graph, seed), "llvm")


def test_steps_are_topologically_ordered_and_complete(greedy):
    for seed in range(2000, 2100):
        graph = graph_of(seed)
        known = {*graph.all_inputs(), *graph.constants}
        for step in fuse(graph, 1):
            given = step.inputs if isinstance(step, FusedKernel) else step.values()
            assert known.issuperset(given)
            assert known.isdisjoint(step.outputs)
            known.update(step.outputs)
        assert known.issuperset(graph.all_outputs())


# Fused groups -------------------------------------------------------------------------------------


def layer_norm_by_hand(x, scale, offset):
    middle = x - ef.mean(x, axis=-1, keepdims=True)
    spread = ef.sqrt(ef.mean(ef.square(middle), axis=-1, keepdims=True) + 1e-5)
    return middle / spread * scale + offset


def test_chain_with_reductions_is_one_region_reading_inputs_once():
    graph = ef.capture.trace(layer_norm_by_hand, MATRIX, LINE, LINE)
    (fused,) = fuse(graph)
    assert fused.inputs == tuple(graph.inputs) and fused.outputs == tuple(graph.outputs)
    shapes = [[fused.sizes[axis] for axis in p.axes] for p in fused.region.inputs]
    assert shapes == [[300, 40], [40], [40]]
    assert fused.region.reduced_axes == ("b",)


def test_bias_activation_and_bias_gradient_fuse_after_matmul():
    def f(x, w, b, g):
        y = x @ w + b
        return ef.relu(y), ef.sum(ops["relu_gradient"].call(ef.relu(y), g), axis=0)

    square = ef.TensorSpec((40, 40), "float32")
    graph = ef.capture.trace(f, MATRIX, square, LINE, MATRIX)
    product, fused = fuse(graph)
    assert isinstance(product, Node) and product.op.name == "matmul"
    assert fused.inplace == ((0, 0), (0, 2))  # the sum of columns is in place of nothing
    check_against_eager(graph, random_arrays(graph))


def test_sums_of_few_rows_walk_beside_each_other(greedy):
    """Along the axis that stays, so that registers hold the sums."""
    graph = ef.capture.trace(
        lambda x: ef.sum(x * x, axis=0), ef.TensorSpec((4, 300, 40), "float32")
    )
    (fused,) = kernels_of(graph)
    assert fused.region.row_axes == ("a",) and not fused.region.columns
    check_against_eager(graph, random_arrays(graph))


def test_strided_rows_are_reduced_row_by_row(greedy):
    """No single stride leads through parts of a tensor, and copies of them cost more."""

    def halves(x):
        a, b = ef.split(x, 2, axis=-1)
        return ef.mean(ef.sigmoid(a) * b)

    graph = ef.capture.trace(halves, ef.TensorSpec((300, 80), "float32"))
    fused = next(f for f in kernels_of(graph) if f.region.columns)
    assert fused.region.row_axes == ("b",)
    check_against_eager(graph, random_arrays(graph))


def test_loss_and_its_gradient_share_the_exponentials():
    def f(logits, labels):
        loss = ef.mean(ef.sparse_softmax_cross_entropy(logits, labels))
        share = ef.full((300,), 1 / 300)
        gradient = ops["sparse_softmax_cross_entropy_gradient"].call(logits, labels, share)
        return loss, gradient

    graph = ef.capture.trace(f, MATRIX, ef.TensorSpec((300,), "int64"))
    (fused,) = kernels_of(graph)
    assert [s.instruction for s in fused.region.body].count("exp") == 1
    labels = np.arange(300) % 40
    arrays = [random_arrays(graph)[0], labels]
    check_against_eager(graph, arrays)
    call = fused.prepare()
    labels[7] = 40
    given = dict(zip(graph.inputs, arrays, strict=True)) | {fused.inputs[-1]: np.ones(300, "f")}
    with pytest.raises(IndexRangeError, match="class 40 is out of range"):
        call([given[v] for v in fused.inputs], [np.empty(v.shape, "f") for v in fused.outputs])


def test_classes_that_are_computed_are_checked_too(greedy):
    def f(logits, labels):
        return ef.sparse_softmax_cross_entropy(logits * 2.0, labels + 1) * 0.5

    graph = ef.capture.trace(f, MATRIX, ef.TensorSpec((300,), "int64"))
    arrays = [random_arrays(graph)[0], np.arange(300) % 39]
    check_against_eager(graph, arrays)
    arrays[1][7] = 39
    with pytest.raises(IndexRangeError, match="class 40 is out of range"):
        run_steps(graph, fuse(graph, 1), arrays)


def test_equal_clusters_have_equal_regions_despite_value_names():
    def f(x, y):
        with ef.scope("first") if hasattr(ef, "scope") else np.errstate():
            one = ef.tanh(x * 2.0 + 1.0)
        two = ef.tanh(ef.sort(y) * 2.0 + 1.0)
        return one, two

    first, second = kernels_of(ef.capture.trace(f, MATRIX, ef.TensorSpec((9, 2000), "float32")))
    assert str(first.region) == str(second.region)


def test_values_rounded_to_small_floats_are_read_from_memory():
    graph = ef.capture.trace(
        lambda x: ef.tanh(ef.astype(ef.astype(x * 3.0, "float16"), "float32")), MATRIX
    )
    first, second = kernels_of(graph)
    arrays = random_arrays(graph)
    rounded = np.tanh((arrays[0] * 3).astype("float16").astype("float32"))
    found = run_steps(graph, [first, second], arrays)[0]
    np.testing.assert_allclose(found, rounded, rtol=1e-6)


def test_regions_depend_on_nothing_that_depends_on_them(greedy):
    def f(x):
        a = ef.exp(x)
        b = ef.sort(a)  # outside, and behind a
        c = a * 2.0
        return c + b, ef.sort(c) * a

    graph = ef.capture.trace(f, MATRIX)
    steps = check_against_eager(graph, random_arrays(graph))
    assert sum(isinstance(s, Node) for s in steps) == 2


def test_numbers_are_constants_in_regions_and_arrays_outside():
    def f(x):
        z = ef.zeros_like(ef.tanh(x))
        spread = ef.broadcast_to(ef.full((40,), 3.0), (300, 40))
        return x + z + 1.0 + spread, ef.sort(z)

    graph = ef.capture.trace(f, MATRIX)
    steps = fuse(graph)
    (fused,) = [s for s in steps if isinstance(s, FusedKernel)]
    assert fused.inputs == tuple(graph.inputs)
    assert [s.op.name for s in steps if isinstance(s, Node)] == ["zeros", "sort"]
    check_against_eager(graph, random_arrays(graph))


def test_views_of_results_are_nodes_and_cost_no_second_output():
    graph = ef.capture.trace(lambda x: ef.expand_dims(ef.tanh(x) + 1.0, 1), MATRIX)
    fused, view = fuse(graph)
    assert len(fused.outputs) == 1 and view.op.name == "expand_dims"
    check_against_eager(graph, random_arrays(graph))


def test_small_arrays_and_single_calls_of_numpy_stay_nodes():
    small = ef.TensorSpec((8,), "float32")
    assert kernels_of(ef.capture.trace(layer_norm_by_hand, small, small, small), 4096) == []
    middle = ef.TensorSpec((10_000,), "float32")
    assert kernels_of(ef.capture.trace(ef.exp, middle), groups.MIN_FUSED_ELEMENTS) == []
    assert len(kernels_of(ef.capture.trace(ef.gelu, middle), groups.MIN_FUSED_ELEMENTS)) == 1
    large = ef.TensorSpec((1 << 16,), "float32")
    assert len(kernels_of(ef.capture.trace(ef.exp, large), groups.MIN_FUSED_ELEMENTS)) == 1


def test_nothing_of_size_0_and_nothing_complex_is_fused(greedy):
    def f(x):
        return ef.tanh(x * 2.0) + 1.0

    for spec in (ef.TensorSpec((0, 3), "float32"), ef.TensorSpec((3,), "complex64")):
        assert kernels_of(ef.capture.trace(f, spec)) == []


def test_regions_end_before_they_are_too_long():
    def f(x):
        for _ in range(200):
            x = ef.tanh(x) * 0.5
        return x

    graph = ef.capture.trace(f, MATRIX)
    kernels = kernels_of(graph)
    assert len(kernels) >= 3
    assert all(len(c.region.body) <= groups.MAX_STATEMENTS for c in kernels)
    check_against_eager(graph, random_arrays(graph))


def test_broadcast_values_are_not_reduced_in_the_same_region(greedy):
    def f(x, y):
        same = ef.add(ef.tanh(ef.mean(x, axis=1, keepdims=True)), ef.zeros((300, 40)))
        return ef.var(same, axis=1), ef.var(same + 0.5, axis=0, keepdims=True) * ef.exp(y)

    graph = ef.capture.trace(f, MATRIX, MATRIX)
    check_against_eager(graph, random_arrays(graph))


def test_fused_dropout_draws_the_same_mask(greedy):
    shape = (64, 40)

    def f(x, state):
        mask = ops["random_keep"].call(state, shape=shape, rate=0.25)
        return ef.sum(ef.tanh(x) * mask, axis=1), mask

    graph = ef.capture.trace(f, ef.TensorSpec(shape, "float32"), ef.TensorSpec((3,), "uint64"))
    (fused,) = fuse(graph, 1)
    arrays = [random_arrays(graph)[0], np.array([5, 6, 7], "uint64")]
    for way in kernel.ways():
        check_against_eager(graph, arrays, way)
    assert len(fused.inputs) == 4  # each word of the state is one


# The optimizer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", kernel.ways())
def test_adam_replaces_its_state_in_place(way):
    def f(p, g, m, s, rate, step):
        return ef.adam_update(p, g * 0.5, m, s, rate, step, weight_decay=0.01)

    number = ef.TensorSpec((), "float32")
    graph = ef.capture.trace(f, MATRIX, MATRIX, MATRIX, MATRIX, number, number)
    (fused,) = fuse(graph)
    rng = np.random.default_rng(0)
    arrays = [rng.random((300, 40)).astype("f") + 0.1 for _ in range(4)]
    arrays += [np.array(0.1, "f"), np.array(1, "f")]
    wanted = [t.numpy() for t in evaluate(graph, [ef.asarray(a) for a in arrays])[0]]
    names = [v.name for v in fused.inputs]
    pairs = [(k, names.index(name)) for k, name in enumerate(["p", "m", "s"])]
    assert set(pairs) <= set(fused.inplace)
    call = fused.prepare(inplace=pairs, way=way)
    given = dict(zip(graph.inputs, arrays, strict=True))
    inputs = [given[v] for v in fused.inputs]
    call(inputs, [inputs[i] for _, i in pairs])
    for (_, i), expected in zip(pairs, wanted, strict=True):
        np.testing.assert_allclose(inputs[i], expected, rtol=3e-6)


def test_pairs_that_cannot_be_one_array_are_refused():
    (fused,) = fuse(ef.capture.trace(lambda x, y: (ef.tanh(x) + y, x * y), MATRIX, MATRIX))
    for pairs in ([(0, 5)], [(0, 0), (1, 0)], [(0, 0), (0, 1)]):
        with pytest.raises(ArgumentError, match="cannot be one array each"):
            fused.region_inplace(pairs)
    assert "in place of x0" in str(fused.region_inplace([(0, 0)]))


# Calls --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", kernel.ways())
def test_calls_take_arrays_of_any_strides(way):
    graph = ef.capture.trace(layer_norm_by_hand, MATRIX, LINE, LINE)
    (fused,) = fuse(graph)
    call = fused.prepare(way=way)
    assert call.source().startswith("region ")
    arrays = random_arrays(graph)
    wanted = evaluate(graph, [ef.asarray(a) for a in arrays])[0][0].numpy()
    for turn in (np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, -1)[..., ::2]):
        out = np.empty((300, 40), "f")
        call([turn(a) for a in arrays], [out])
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", kernel.ways())
def test_non_arrays_are_refused(way):
    graph = ef.capture.trace(
        lambda x, y: ef.tanh(x * y) + 1.0, MATRIX, ef.TensorSpec((), "float32")
    )
    (fused,) = fuse(graph)
    (x, _), out = random_arrays(graph), np.empty((300, 40), "f")
    call = fused.prepare(way=way)
    for wrong in (np.float32(2.0), 2.0):  # NumPy's scalars too
        with pytest.raises((DeviceError, AttributeError)):
            call([x, wrong], [out])
    call([x.view(np.memmap), np.array(2.0, "f")], [out])  # a kind of array
    np.testing.assert_allclose(out, np.tanh(x * 2) + 1, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1000, 400_000])
def test_bits_depend_on_neither_threads_nor_runs(size):
    def f(x):
        y = ef.tanh(x) * 1.5
        return y - ef.mean(y, axis=1, keepdims=True), ef.sum(y, axis=0), ef.max(y)

    graph = ef.capture.trace(f, ef.TensorSpec((size // 20, 20), "float32"))
    arrays, steps, found = random_arrays(graph), fuse(graph, 1), []
    try:
        for count in (1, 2, 4, None):
            threads.set_thread_count(count)
            found.append([a.tobytes() for a in run_steps(graph, steps, arrays)])
    finally:
        threads.set_thread_count(None)
    assert found[0] == found[1] == found[2] == found[3]


def test_several_threads_may_call_at_once():
    def f(x):
        return ef.tanh(x) * 2.0 + ef.sum(x, axis=1, keepdims=True), ef.sum(x * x, axis=0)

    graph = ef.capture.trace(f, MATRIX)
    (fused,) = fuse(graph)
    call = fused.prepare()
    wrong = []

    def work(seed):
        (x,) = random_arrays(graph, seed)
        outputs = [np.empty(v.shape, "f") for v in fused.outputs]
        for _ in range(50):
            call([x], outputs)
            if not np.allclose(outputs[1], (x * x).sum(0), rtol=1e-4):
                wrong.append(seed)

    import threading

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


# Time ---------------------------------------------------------------------------------------------


def long_program(count):
    def f(x, w):
        for i in range(count):
            y = ef.tanh(x * 0.5 + w)
            x = y * ef.sum(y, axis=1, keepdims=True)
            if i % 7 == 0:
                x = ef.sort(x)
        return x

    return ef.capture.trace(
        f, ef.TensorSpec((64, 128), "float32"), ef.TensorSpec((128,), "float32")
    )


@pytest.mark.soak
def test_time_is_linear_in_the_number_of_nodes():
    taken = []
    for count in (200, 1600):
        graph = long_program(count)
        runs = []
        for _ in range(3):
            start = time.thread_time()  # what other programs do meanwhile does not count
            fuse(graph)
            runs.append(time.thread_time() - start)
        taken.append(min(runs) / len(graph.nodes))
    assert taken[1] < 3 * taken[0]


# The checks can fail ------------------------------------------------------------------------------


def wrong_rule(monkeypatch):
    body = Rows(lambda s, x: s.max(x, "n"), columns=True)
    monkeypatch.setattr(ops["sum"], "scalar", body._replace(body=lambda s, x, dtype: s.max(x, "n")))


def axes_by_size_alone(monkeypatch):
    """A row's axis is looked for from the wrong side."""
    monkeypatch.setattr(
        access,
        "from_right",
        lambda shape, sizes: tuple(i if n != 1 else -1 for i, n in enumerate(shape)),
    )


def columns_read_too_early(monkeypatch):
    add = groups.FusionGroup.add

    def early(self, *args):
        add(self, *args)
        self.complete.clear()

    monkeypatch.setattr(groups.FusionGroup, "add", early)


def levels_forgotten(monkeypatch):
    class Forgetful(dict):
        def get(self, key, default=None):
            return 0

    init = groups.Grouping.__init__

    def begin(self, graph):
        init(self, graph)
        self.levels = Forgetful()

    monkeypatch.setattr(groups.Grouping, "__init__", begin)
    monkeypatch.setattr(groups, "ordered", lambda graph, nodes, kernels: [*nodes[::-1], *kernels])


@pytest.mark.parametrize(
    "bug", [wrong_rule, axes_by_size_alone, columns_read_too_early, levels_forgotten]
)
def test_planted_bugs_are_found(bug, greedy, monkeypatch):
    bug(monkeypatch)
    forget_statement_counts(monkeypatch)
    wrong = 0
    for seed in range(60):
        graph = graph_of(seed)
        try:
            check_against_eager(graph, arrays_for(graph, seed), "numpy")
        except Exception:
            wrong += 1
    assert wrong
