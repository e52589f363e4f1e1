"""Reading and changing tensors at an index: NumPy's meaning, gradients, batches and errors."""

import itertools

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, DTypeError, IndexRangeError, ShapeError
from eagerflow.op import ops
from eagerflow.ops.indexing.positions import positions
from eagerflow.spec import TensorSpec
from eagerflow.testing import check_gradients

SHAPE = (3, 4, 2, 5)


def random_index(rng, masks=True):
    """An index of any kind for a tensor of shape SHAPE."""
    meet = [(), (3,), (2, 1), (2, 3)][rng.integers(4)]
    front, back = sorted(rng.integers(0, len(SHAPE) + 1, 2))
    dots = rng.random() < 0.5
    items = [random_item(rng, size, meet, masks) for size in SHAPE[:front]]
    if dots:
        items += [..., *(random_item(rng, size, meet, masks) for size in SHAPE[back:])]
    for _ in range(rng.integers(0, 3)):
        items.insert(int(rng.integers(len(items) + 1)), None)
    return tuple(items) if len(items) != 1 or rng.random() < 0.5 else items[0]


def random_item(rng, size, meet, masks):
    """An index for one axis; arrays broadcast to the shape ``meet``."""
    kind = rng.choice(["int", "slice", "array", "scalar", "mask"])
    if kind == "int":
        return int(rng.integers(-size, size))
    if kind == "array":
        return rng.integers(-size, size, meet[rng.integers(len(meet) + 1) :])
    if kind == "scalar":
        return np.array(rng.integers(0, size))
    if kind == "mask" and masks and meet == ():
        return np.arange(size) == rng.integers(size)
    a, b = (None if rng.random() < 0.4 else int(rng.integers(-7, 8)) for _ in range(2))
    return slice(a, b, [None, 1, 2, -1, -3][rng.integers(5)])


def tensors(index):
    """The index with tensors in place of arrays."""
    if isinstance(index, tuple):
        return tuple(map(tensors, index))
    return ef.asarray(index) if isinstance(index, np.ndarray) else index


@pytest.mark.parametrize("seed", range(40))
def test_reading_is_numpys(seed):
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(SHAPE)
    x = ef.tensor(array)
    for _ in range(10):
        index = random_index(rng)
        expected = array[index]
        for form in (index, tensors(index)):
            assert np.array_equal(x[form].numpy(), expected), index
            with ef.GradientTape() as tape:
                tape.watch(x)
                y = x[form]
            assert np.array_equal(y.numpy(), expected), index
            g = rng.standard_normal(expected.shape)
            wanted = np.zeros(SHAPE)
            np.add.at(wanted, index, g)
            np.testing.assert_allclose(tape.gradient(y, x, g).numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_positions_by_the_standard_alone(seed):
    rng = np.random.default_rng(400 + seed)
    x = ef.zeros(SHAPE)
    for _ in range(15):
        index = random_index(rng)
        (_, *arrays), attributes = ops["getitem"].bind((x, index), {})
        found = positions(np, attributes["index"], SHAPE, [a.numpy() for a in arrays])
        assert np.array_equal(found, np.arange(x.size).reshape(SHAPE)[index]), index


@pytest.mark.parametrize("seed", range(20))
def test_shapes_are_inferred(seed):
    rng = np.random.default_rng(100 + seed)
    array = rng.standard_normal(SHAPE)
    op = ops["getitem"]
    for _ in range(15):
        index = random_index(rng, masks=False)
        (x, *arrays), attributes = op.bind((ef.tensor(array), index), {})
        specs = [TensorSpec(a.shape, a.dtype) for a in (x, *arrays)]
        assert op.infer(*specs, **attributes).shape == array[index].shape, index


@pytest.mark.parametrize("seed", range(20))
def test_reading_in_a_batch(seed):
    rng = np.random.default_rng(200 + seed)
    for _ in range(6):
        index = random_index(rng, masks=False)
        parts = index if isinstance(index, tuple) else (index,)
        where = [i for i, part in enumerate(parts) if isinstance(part, np.ndarray)]
        xs = rng.standard_normal((2, *SHAPE))
        for with_x, with_indices in ((True, False), (False, True), (True, True)):
            batches = [
                np.stack([rng.permutation(parts[i].ravel()).reshape(parts[i].shape)] * 2)
                for i in where
            ]
            for batch in batches:
                batch[1] = batch[1] // 2
            if not with_x and not where:
                continue

            def pick(x, *arrays, parts=parts, where=where):
                items = list(parts)
                for i, array in zip(where, arrays, strict=True):
                    items[i] = array
                return x[tuple(items)]

            axes = (0 if with_x else None, *(0 if with_indices else None for _ in where))
            args = [xs if with_x else xs[0], *(b if with_indices else b[0] for b in batches)]
            actual = ef.vmap(pick, in_axes=axes)(ef.tensor(args[0]), *map(ef.tensor, args[1:]))
            expected = [
                pick(xs[n if with_x else 0], *(b[n if with_indices else 0] for b in batches))
                for n in range(2)
            ]
            assert np.array_equal(actual.numpy(), np.stack(expected)), (index, axes)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("how", ["set", "add", "multiply", "min", "max"])
def test_changed_copies(seed, how):
    rng = np.random.default_rng(300 + seed)
    array = rng.standard_normal(SHAPE)
    x = ef.tensor(array)
    at = {"add": np.add.at, "multiply": np.multiply.at, "min": np.minimum.at, "max": np.maximum.at}
    for _ in range(8):
        index = random_index(rng)
        value = rng.standard_normal(array[index].shape[-rng.integers(0, 2) :])
        expected = array.copy()
        if how == "set":
            expected[index] = value
        else:
            at[how](expected, index, value)
        actual = getattr(x.at[tensors(index)], how)(value)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-12)
        assert np.array_equal(x.numpy(), array)


REPEATED = np.array([0, 2, 2, 0])


@pytest.mark.parametrize("how", ["set", "add", "multiply", "min", "max"])
@pytest.mark.parametrize(
    "index", [REPEATED, np.array([True, False, True]), slice(None, None, 2), 1]
)
def test_gradients_of_changed_copies(how, index):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 2))
    value = rng.standard_normal(np.shape(x[index]))
    # With repeated positions min and max have kinks that the value 9 keeps away from.
    f = lambda x, v: getattr(x.at[index], how)(v)
    check_gradients(f, (x, value), order=2 if how != "multiply" else 1)
    check_gradients(f, (x, value[..., :1] * 0.7), order=1)


def test_last_value_stays_and_has_the_gradient():
    x, v = ef.zeros(3), ef.tensor([1.0, 2.0, 3.0])
    with ef.GradientTape() as tape:
        tape.watch([x, v])
        y = x.at[[1, 1, 0]].set(v)
    assert y.tolist() == [3.0, 2.0, 0.0]
    gx, gv = tape.gradient(y, [x, v])
    assert (gx.tolist(), gv.tolist()) == ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])


def test_products_with_zeros():
    x, v = ef.tensor([2.0, 1.0]), ef.tensor([0.0, 3.0, 0.0])
    with ef.GradientTape() as tape:
        tape.watch(v)
        y = x.at[[0, 0, 1]].multiply(v)
    assert tape.gradient(y, v).tolist() == [6.0, 0.0, 1.0]


def test_masks():
    x = ef.tensor([[1.0, -2.0], [-3.0, 4.0]])
    assert x[x > 0].tolist() == [1.0, 4.0]
    assert ef.grad(lambda x: (x[x > 0] ** 2).sum())(x).tolist() == [[2.0, 0.0], [0.0, 8.0]]
    assert x.at[x < 0].set(0.0).tolist() == [[1.0, 0.0], [0.0, 4.0]]
    assert x[ef.tensor([True, False]), [1]].tolist() == [-2.0]
    assert x[True].shape == (1, 2, 2)
    assert x[np.array(False)].shape == (0, 2, 2)
    assert ef.masked_select(x, x > 0).tolist() == [1.0, 4.0]
    mask = ef.tensor([True, False])
    assert ef.vmap(lambda row: row[mask])(x).tolist() == [[1.0], [-3.0]]
    with pytest.raises(CaptureError, match=r"ef\.where"):
        ef.vmap(lambda row: row[row > 0])(x)
    with pytest.raises(CaptureError, match=r"ef\.where"):
        spec = TensorSpec((2, 2), "float32")
        ops["getitem"].infer(spec, TensorSpec((2, 2), "bool"), index=("mask",))


class HasIndex:
    def __index__(self):
        return 1


def test_kinds_of_integers_and_lists():
    x = ef.tensor([1.0, 2.0, 3.0])
    one = (1, np.int8(1), np.uint64(1), HasIndex(), ef.tensor(1), np.array(1), ef.Variable(1), -2)
    for index in one:
        assert x[index].tolist() == 2.0
        assert x[index:].tolist() == x.numpy()[int(index) :].tolist()
    for index in ([1, 1], (np.array([1, 1]),), range(1, 2), [ef.tensor(1)], np.array([1], "u8")):
        assert set(x[index].tolist()) == {2.0}
    assert x[[]].shape == (0,)
    assert ef.Variable([1.0, 2.0])[1].tolist() == 2.0


@pytest.mark.parametrize(("index", "error", "words"), [
    (5, IndexRangeError, "index 5 is out of range for axis 0 of length 2"),
    ((0, -4), IndexRangeError, "index -4 is out of range for axis 1 of length 3"),
    ([0, 2], IndexRangeError, "index 2 is out of range for axis 0 of length 2"),
    ((slice(None), [[0, 7]]), IndexRangeError, "index 7 is out of range for axis 1"),
    (np.array([2**64 - 1], "u8"), IndexRangeError, "is out of range"),
    ((0, 0, 0), IndexRangeError, "there are 3 indices for 2 axes"),
    ((..., ...), IndexRangeError, "only one"),
    ([True, False, True], IndexRangeError, "a mask of shape"),
    ([[0, 1, 1], [0, 1]], ShapeError, "ragged"),
    (([0, 1, 1], [0, 1]), ShapeError, "do not broadcast"),
    (1.5, DTypeError, "float32 values cannot be indices"),
    (np.array([1.5]), DTypeError, "float64 values cannot be indices"),
    (slice(0.5, None), DTypeError, "a float cannot bound a slice"),
    (slice(None, None, 0), ShapeError, "step of a slice is 0"),
    ("rows", DTypeError, "a str is not"),
    ("array", DTypeError, "a str is not"),
    ({"a": 1}, DTypeError, "a dict is not"),
])  # fmt: skip
def test_errors(index, error, words):
    x = ef.zeros((2, 3))
    for call in (lambda: x[index], lambda: x.at[index].set(1.0)):
        with pytest.raises(error) as caught:
            call()
        assert words in str(caught.value)
    with ef.GradientTape() as tape, pytest.raises(error):
        tape.watch(x)
        x[index]


def test_values_that_do_not_fit():
    x = ef.zeros((2, 3))
    with pytest.raises(ShapeError, match="does not broadcast to the selected part"):
        x.at[0].set([1.0, 2.0])
    with pytest.raises(DTypeError, match="float32 values do not fit into a tensor of int64"):
        ef.arange(3).at[0].set(0.5)
    with pytest.raises(DTypeError, match="in place"):
        x[0] = 1.0
    assert ef.arange(3).at[0].set(True).dtype == ef.int64
    assert x.at[0].set(np.ones(3)).dtype == ef.float32


def test_symbolic_slices():
    n = ef.Dim("n")
    infer = ops["getitem"].infer
    x = TensorSpec((n, 4), "float32")
    cases = (
        (slice(None), n),
        (slice(None, None, -1), n),
        (slice(1, None), n - 1),
        (slice(None, -1), n - 1),
        (slice(None, 1), 1),
        (slice(-1, None), 1),
        (slice(None, n), n),
        (slice(None, None, 2), (n + 1) // 2),
    )
    for index, size in cases:
        assert infer(x, index=index).shape == (size, 4)
    for index in (slice(2, None), slice(None, 5), slice(1, None, -1)):
        with pytest.raises(CaptureError, match="not known"):
            infer(x, index=index)
    assert infer(x, index=(0, 1)).shape == ()
    assert infer(x, TensorSpec((n, 2), "int64"), index=(slice(None), "array")).shape == (n, n, 2)


def test_gradients_of_rows_in_all_dtypes():
    """The flat way of adding, its float32 sums of 16-bit floats, and the general way agree."""
    rng = np.random.default_rng(5)
    ids = rng.integers(-7, 7, (100, 3))
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "int32"):
        g = ef.tensor(rng.integers(0, 2, (100, 3, 4)), dtype)
        wanted = np.zeros((7, 4))
        wide = g.numpy().real if dtype == "complex64" else g.astype("float64").numpy()
        np.add.at(wanted, ids, wide)
        y = ef.index_scatter(g, shape=(7, 4), index=ids)
        assert y.dtype == g.dtype
        assert np.array_equal(y.numpy().astype(complex), wanted)


def test_quick_lane_does_not_differ():
    x = ef.reshape(ef.arange(24), (2, 3, 4))
    slow = ops["getitem"].call
    pool = [0, -1, slice(1, None), slice(None, None, -2), None, ...]
    for index in itertools.product(pool, repeat=2):
        if index.count(...) < 2:
            assert np.array_equal(x[index].numpy(), slow(x, index).numpy())
    assert x[ef.tensor([1, 0])].shape == (2, 3, 4)
