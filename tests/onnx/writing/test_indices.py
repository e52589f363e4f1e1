"""Reading and writing at indices of tensors whose sizes are known by name, in ONNX Runtime."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eagerflow as ef
from tests.onnx.writing.models import exported, run

SIZE = 4
slices = st.builds(
    slice, st.sampled_from([None, 0, 1, -1]), st.none(), st.sampled_from([None, 1, 2])
) | st.just(slice(None, None, -1))
arrays = st.sampled_from([(3,), (2, 1), (1, 3), ()]).flatmap(
    lambda shape: st.integers(0, 2**16).map(
        lambda seed: np.random.default_rng(seed).integers(-3, 3, shape)
    )
)
items = st.one_of(slices, st.integers(-3, 2), arrays, st.just(True))


@st.composite
def indices(draw):
    """An index of up to three axes, with new axes and perhaps dots among them."""
    found = draw(st.lists(items, min_size=1, max_size=3))
    for _ in range(draw(st.integers(0, 2))):
        found.insert(draw(st.integers(0, len(found))), None)
    if draw(st.booleans()):
        found.insert(draw(st.integers(0, len(found))), Ellipsis)
    return tuple(found)


def parts(index):
    """The arrays of an index, and what makes it of as many tensors."""
    own = [item for item in index if isinstance(item, np.ndarray)]

    def whole(given):
        rest = iter(given)
        return tuple(next(rest) if isinstance(item, np.ndarray) else item for item in index)

    return own, whole


common = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@common
@given(indices())
def test_selected(tmp_path, index):
    own, whole = parts(index)
    x = np.arange(SIZE * 5 * 3, dtype="float32").reshape(SIZE, 5, 3)
    specs = [ef.TensorSpec(a.shape, "int64") for a in own]
    graph = ef.capture.trace(
        lambda x, *arrays: x[whole(arrays)] * 1, ef.TensorSpec(("n", 5, 3), "float32"), *specs
    )
    exported(graph, tmp_path / "model.onnx")
    feeds = dict(zip(graph.inputs.names, [x, *own], strict=True))
    (found,) = run(tmp_path / "model.onnx", feeds).values()
    np.testing.assert_array_equal(found, x[whole(own)])


@common
@given(indices(), st.sampled_from(["add", "set", "multiply", "max"]))
def test_written(tmp_path, index, how):
    own, whole = parts(index)
    x = np.arange(SIZE * 5 * 3, dtype="float32").reshape(SIZE, 5, 3)
    specs = [ef.TensorSpec(a.shape, "int64") for a in own]

    def f(x, *arrays):
        return getattr(x.at[whole(arrays)], how)(2.0)

    graph = ef.capture.trace(f, ef.TensorSpec(("n", 5, 3), "float32"), *specs)
    exported(graph, tmp_path / "model.onnx")
    feeds = dict(zip(graph.inputs.names, [x, *own], strict=True))
    (found,) = run(tmp_path / "model.onnx", feeds).values()
    np.testing.assert_array_equal(found, f(ef.tensor(x), *map(ef.tensor, own)).numpy())


def test_masks(tmp_path):
    def f(x, mask):
        return x.at[mask].set(0.0), x.at[:, 1].add(1.0)

    graph = ef.capture.trace(f, ef.TensorSpec(("n", 3), "float32"), ef.TensorSpec(("n", 3), "bool"))
    exported(graph, tmp_path / "model.onnx")
    x = np.arange(12, dtype="float32").reshape(4, 3)
    found = run(tmp_path / "model.onnx", {"x": x, "mask": x % 2 == 0})
    cleared, raised = (y.numpy() for y in f(ef.tensor(x), ef.tensor(x % 2 == 0)))
    np.testing.assert_array_equal(found["output_0"], cleared)
    np.testing.assert_array_equal(found["output_1"], raised)
