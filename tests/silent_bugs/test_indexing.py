"""Rows that are read and written by index: wrong places, other dtypes, indices out of range."""

import numpy as np

import eagerflow as ef
from eagerflow.errors import EagerflowError, IndexRangeError
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import WAYS, check, compare, differences, floats, refused


def pytorch_39565():
    """A scatter of int64 values into floats put the bytes of the integers there."""
    x = np.arange(1, 5).reshape(2, 2)
    index = np.array([[1, 0], [0, 1]])
    expected = np.zeros((2, 2), "f4")
    np.put_along_axis(expected, index, x, 0)
    columns = np.broadcast_to([0, 1], (2, 2))
    check(
        lambda x, i: ef.zeros((2, 2)).at[i, columns].set(x),
        *(ef.tensor(x), ef.tensor(index)),
        expect=expected,
    )


def pytorch_131321():
    """Compiled, a negative index of a scatter counted from the end; eagerly it was refused."""
    x = np.arange(1.0, 5.0, dtype="f4")
    source, index = np.arange(1.0, 7.0, dtype="f4"), np.array([0, 1, 0, 1, 2, -1])
    expected = x.astype("f8")
    np.add.at(expected, index, source)
    check(lambda x, i, s: x.at[i].add(s), ef.tensor(x), ef.tensor(index), source, expect=expected)
    outcomes = set()
    for apply in WAYS.values():
        try:
            run = apply(lambda x, i, s: ef.scatter_reduce(x, i, s, reduce="sum"))
            found = run(ef.tensor(x), ef.tensor(index), ef.tensor(source))
            outcomes.add(tuple(found.tolist()))
        except IndexRangeError:
            outcomes.add("refused")
    assert len(outcomes) == 1 and outcomes <= {"refused", tuple(expected)}


def pytorch_169779():
    """Compiled, -1 selected the last row; eagerly it was out of range."""
    x = floats(5, 10)
    for f in (
        lambda x, i: ef.take(x, i, axis=0),
        lambda x, i: x[i],
        lambda x, i: ef.take_along_axis(x, ef.broadcast_to(i[:, None], (1, 10)), axis=0),
    ):
        check(f, ef.tensor(x), ef.tensor([-1]), expect=x[-1:])
    gather = lambda x, i: ef.gather(x, i, axis=0)
    refused(gather, ef.tensor(x), ef.tensor([-1]), error=IndexRangeError)


def pytorch_121251():
    """Compiled, a row beyond the end was read from foreign memory."""
    x = ef.tensor(floats(2, 2, 2, 2))
    for bad in (2, -3, 10**9):
        for f in (
            lambda x, i: ef.take(x, i, axis=0),
            lambda x, i: ef.gather(x, i, axis=1),
            lambda x, i: x[:, :, i],
            lambda x, i: 2 * ef.take(x * 3, i, axis=3) + 1,
        ):
            refused(f, x, ef.tensor([0, bad]), error=IndexRangeError)


def pytorch_183769():
    """Compiled, an index beyond an axis of one element gave what lies behind it."""
    x = ef.tensor(np.arange(12.0, dtype="f4").reshape(3, 1, 4))
    refused(lambda x: ef.concat([x[:, 0], x[:, 1]], axis=1), x, error=IndexRangeError)
    refused(lambda x, i: ef.concat([x[:, 0], x[:, i]], axis=1), x, 1)
    refused(lambda x, i: x[:, i], x, ef.tensor(1), error=IndexRangeError)


def pytorch_138908():
    """Rows that were added to themselves by index became four times as large."""
    y, index = floats(2, 32), np.array([[0, 1]])
    check(
        lambda x, y: y.at[x + 10].add(y[x + 10]),
        *(ef.tensor(index - 10), ef.tensor(y)),
        expect=2.0 * y.astype("f8"),
    )
    v = ef.Variable(y)

    def step(i):
        v.assign(v.value.at[i].add(v.value[i]))

    for times, apply in enumerate(WAYS.values(), 1):
        apply(step)(ef.tensor(index))
        compare(v, y.astype("f8") * 2**times)


def pytorch_37996():
    """Indices of 32 bits were read as if they had 64: two of them made one."""
    x = np.array([[1, 2], [3, 4]])
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64"):
        index = np.array([[0, 1, 0], [1, 1, 0]], dtype)
        expected = np.take_along_axis(x, index.astype("i8"), 1)
        check(lambda x, i: ef.take_along_axis(x, i, axis=1), x, ef.tensor(index), expect=expected)
        check(lambda x, i: x[i], x[0], ef.tensor(index), expect=x[0][index.astype("i8")])


def pytorch_107540():
    """A gather by indices far below and above the axis read foreign memory."""
    x = ef.tensor(np.arange(-128, -124).reshape(2, 2))
    for bad in (-4096, 4095, -3, 2):
        index = ef.tensor([[0, bad], [1, 0]])
        refused(lambda x, i: ef.take_along_axis(x, i, axis=1), x, index, error=IndexRangeError)


def pytorch_198102():
    """Doubling each fifth column in place set the columns between to zero."""
    x = np.arange(1, 25).reshape(4, 6)
    expected = x.copy()
    expected[:, ::5] *= 2
    check(lambda x: x.at[:, ::5].add(x[:, ::5]), ef.tensor(x), expect=expected)
    check(lambda x: x.at[:, ::5].multiply(2), ef.tensor(x), expect=expected)


def pytorch_108963():
    """Of two uses of a row addition, the second gave zero."""
    x, rows, index = floats(4, 3), floats(3, 3, seed=1), np.array([2, 0, 2])
    added = x.astype("f8")
    np.add.at(added, index, rows)

    def f(x, i, rows):
        out = x.at[i].add(rows)
        return out / 2, out, ef.zeros_like(out).at[i].add(2 * rows) / 2

    third = np.zeros((4, 3))
    np.add.at(third, index, rows)
    check(f, ef.tensor(x), ef.tensor(index), ef.tensor(rows), expect=(added / 2, added, third))


def pytorch_571():
    """On one device, ids beyond a table gave arbitrary rows without an error."""
    layer = ef.nn.Embedding(5, 3)
    layer(ef.tensor([0]))
    for bad in (5, -1 - 5, 2**31):
        refused(layer, ef.tensor([[1, bad]]), error=IndexRangeError)
    compare(layer(ef.tensor([4])), layer.weights[0].numpy()[4:])


def jax_10129():
    """Compiled, a row that was rolled and written back overlapped its own source."""
    x = floats(2, 100)
    expected = x.copy()
    expected[0] = np.roll(x[0], 5)
    check(lambda x: x.at[0].set(ef.roll(x[0], 5)), ef.tensor(x), expect=expected)
    v = ef.Variable(x)

    @ef.function
    def step():
        v.assign(v.value.at[0].set(ef.roll(v.value[0], 5)))

    for n in range(1, 4):
        step()
        expected[0] = np.roll(x[0], 5 * n)
        compare(v, expected)


def jax_16655():
    """Under vmap, elements that were changed by index had other values than row by row."""
    x = np.arange(12).reshape(2, 6)
    index = np.array([3, 1])
    for name, change in (("add", -1), ("multiply", 5), ("set", 7), ("max", 8), ("min", 2)):

        def f(row, i):
            return getattr(row.at[i], name)(change)

        ufunc = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}
        both, one = x.copy(), x.copy()
        for k, row in enumerate(both):
            row[index] = ufunc[name](row[index], change) if name in ufunc else change
            i = index[k]
            one[k, i] = ufunc[name](one[k, i], change) if name in ufunc else change
        whole = ef.vmap(f, in_axes=(0, None))
        check(whole, ef.tensor(x), ef.tensor(index), expect=both)
        check(ef.vmap(f), ef.tensor(x), ef.tensor(index), expect=one)


def jax_26888():
    """Corners of a pad with two constants had the first where the second belongs."""
    x = np.arange(1, 10).reshape(3, 3)
    expected = np.pad(x, 3, constant_values=(1, 2))
    refused_or_right(lambda x: ef.pad(x, 3, constant_values=(1, 2)), x, expected)
    expected = np.pad(x, ((1, 2), (0, 3)), constant_values=7)
    check(lambda x: ef.pad(x, ((1, 2), (0, 3)), constant_values=7), ef.tensor(x), expect=expected)


def refused_or_right(f, x, expected):
    try:
        found = f(ef.tensor(x))
    except EagerflowError:
        refused(f, ef.tensor(x))
    else:
        compare(found, expected)
        check(f, ef.tensor(x), expect=expected)


def jax_3326():
    """Columns were put one after the other instead of side by side."""
    x, y = np.array([1.0, 1.0]), np.array([2.0, 2.0])
    z = np.arange(6.0).reshape(2, 3)
    expected = np.column_stack([x, z, y])
    check(lambda *a: ef.column_stack(a), ef.tensor(x), ef.tensor(z), ef.tensor(y), expect=expected)


def jax_37822():
    """With a NaN among the sorted values, all places behind it were told to be its own."""
    x = np.array([1.0, 2.0, 4.0, np.nan, np.nan], "f4")
    values = np.array([3.5, 5.0, np.nan, 1.0, -np.inf, np.inf], "f4")
    for side in ("left", "right"):
        expected = np.searchsorted(x, values, side=side)
        check(
            lambda x, v: ef.searchsorted(x, v, side=side),
            *(ef.tensor(x), ef.tensor(values)),
            expect=expected,
        )


def tensorflow_27526():
    """The gradient through elements that are selected by lists of indices was missing."""
    x, index = floats(3, 4), np.array([[0, 1], [2, 3], [0, 1], [1, 0]])

    def reference(x):
        return np.sum(x[tuple(index.T)] ** 2 * np.arange(1, 5))

    expected = differences(reference, x)
    weights = ef.tensor([1.0, 2.0, 3.0, 4.0])
    for f in (
        lambda x: ef.sum(ef.gather_nd(x, ef.tensor(index)) ** 2 * weights),
        lambda x: ef.sum(x[ef.tensor(index[:, 0]), ef.tensor(index[:, 1])] ** 2 * weights),
    ):
        check(ef.grad(f), ef.tensor(x), expect=expected, rtol=1e-4, atol=1e-5)


def tensorflow_64081():
    """A range of int32 had one element too few, as the difference of its ends overflowed."""
    start, stop, step = 1136033460, -2110457150, -1849827689
    expected = np.arange(start, stop, step, dtype="i4")
    assert len(expected) == 2
    check(lambda: ef.arange(start, stop, step, dtype="int32"), expect=expected)
    check(
        lambda: ef.arange(-(2**63), 2**63 - 1, 2**62),
        expect=np.array([-(2**63), -(2**62), 0, 2**62]),
    )


def tensorflow_5847():
    """Ids beyond the table gave rows of zeros."""
    table = np.linspace(1, 10, 10)[:, None] * np.array([1.0, 2.0, 3.0])
    check(
        ef.embedding_lookup,
        *(ef.tensor(table), ef.tensor([9, 0])),
        expect=table[[9, 0]],
    )
    for ids in ([0, 10], [19], [-11]):
        refused(ef.embedding_lookup, ef.tensor(table), ef.tensor(ids), error=IndexRangeError)


@cases("indexing", globals())
def test_case(case):
    case()
