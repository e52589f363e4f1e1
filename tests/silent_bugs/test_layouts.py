"""Memory: views, transposed and overlapping arrays, buffers that are shared or written early."""

import ctypes

import numpy as np

import eagerflow as ef
from eagerflow.errors import EagerflowError
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import WAYS, F, array, check, compare, floats, refused, torch


def pytorch_18948():
    """A convolution of the last column of an image by the last of a filter read other columns."""
    x = np.array([[0, 2, 2], [0, 0, 1], [2, 0, 0]], "f4")
    w = np.array([[1, 1, 0], [1, 0, 3], [0, 3, 1]], "f4")
    column = ef.asarray(x[None, :, 2:, None])
    kernel = ef.asarray(w[:, 2:, None, None])
    check(
        lambda x, w: ef.conv(x, w, padding="valid"), column, kernel, expect=np.full((1,) * 4, 3.0)
    )
    large = floats(2, 9, 12, 6)
    part, filters = large[:, ::2, 3::3, 1:4], floats(3, 2, 4, 8)[:, :, :3, ::2]
    expected = F.conv2d(
        torch.tensor(part.copy()).permute(0, 3, 1, 2).double(),
        torch.tensor(filters.copy()).permute(3, 2, 0, 1).double(),
    )
    check(
        lambda x, w: ef.conv(x, w, padding="valid"),
        *(ef.asarray(part), ef.asarray(filters)),
        expect=expected.permute(0, 2, 3, 1).numpy(),
        rtol=1e-4,
        atol=1e-5,
    )


def pytorch_15297():
    """A filter that was broadcast over groups was read as if it filled its memory."""
    x, w = floats(1, 5, 5, 8), np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], "f4") / 8
    wide = np.broadcast_to(w[:, :, None, None], (3, 3, 1, 8))
    assert 0 in wide.strides
    expected = np.zeros((1, 3, 3, 8))
    for i in range(3):
        for j in range(3):
            expected += w[i, j] * x[:, i : i + 3, j : j + 3].astype("f8")
    for kernel in (ef.asarray(wide), ef.broadcast_to(ef.tensor(w)[:, :, None, None], (3, 3, 1, 8))):
        check(
            lambda x, w: ef.conv(x, w, padding="valid", groups=8),
            *(ef.tensor(x), kernel),
            expect=expected,
        )


def pytorch_195320():
    """Compiled, keys that were made in their transposed layout were transposed again."""
    b, t, h, d = 2, 6, 2, 8
    x, (wq, wk, wv) = floats(b, t, h * d), (floats(h * d, h * d, seed=s) * 0.3 for s in (1, 2, 3))

    def attention(x, wq, wk, wv, turn, softmax):
        q = turn((x @ wq).reshape((b, t, h, d)), (0, 2, 1, 3))
        k = turn((x @ wk).reshape((b, t, h, d)), (0, 2, 3, 1))
        v = turn((x @ wv).reshape((b, t, h, d)), (0, 2, 1, 3))
        return softmax((q @ k) * d**-0.5) @ v

    def softmax(s):
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    args = (x, wq, wk, wv)
    expected = attention(*(a.astype("f8") for a in args), np.transpose, softmax)
    check(
        lambda *args: attention(*args, ef.permute_dims, lambda s: ef.softmax(s, axis=-1)),
        *map(ef.tensor, args),
        expect=expected,
        rtol=1e-4,
        atol=1e-5,
    )


def pytorch_198280():
    """Compiled, matrices that replace themselves transposed were read after they were written."""
    for shape in ((40, 5, 5), (3, 130, 130)):
        x = floats(*shape)
        v = ef.Variable(x)

        @ef.function
        def step():
            v.assign(v.value.mT * 1.0)
            return ef.sum(v)

        for n in range(1, 6):
            total = step()
            expected = x.swapaxes(1, 2) if n % 2 else x
            compare(v, expected, rtol=0, atol=0)
            compare(total, x.sum(dtype="f8"), rtol=1e-3, atol=1e-2)


def pytorch_177839():
    """Compiled, the tail of rows that do not fill a vector had another value."""
    for rows in (1, 2, 3):
        for width in (1, 7, 15, 16, 17, 19, 33):
            x = np.full((rows, width + 3), 0.3, "f4")[:, :width]
            expected = np.full((rows, width), np.log(0.3 / 0.7) + np.tanh(0.3))
            check(lambda x: ef.logit(x) + ef.tanh(x), ef.asarray(x), expect=expected)


def pytorch_33467():
    """A matrix was forgotten that is added to a product over an empty axis."""
    a, b, c = np.zeros((2, 1, 0), "f4"), np.zeros((2, 0, 1), "f4"), np.ones((2, 1, 1), "f4")
    check(lambda a, b, c: a @ b + c, *map(ef.tensor, (a, b, c)), expect=np.ones((2, 1, 1)))
    check(
        lambda a, b, c: ef.einsum("bij,bjk->bik", a, b) - c,
        *map(ef.tensor, (a, b, c)),
        expect=-np.ones((2, 1, 1)),
    )
    layer = ef.nn.Dense(3, bias_initializer="ones")
    check(layer, ef.zeros((2, 0)), expect=np.ones((2, 3)))


def pytorch_42418():
    """Matrices that overlap in memory were multiplied as if they did not."""
    x = np.arange(1.0, 31.0, dtype="f4")
    overlapping = np.lib.stride_tricks.as_strided(x, (2, 2, 2), (12, 4, 4))
    expected = np.einsum("...ab,...bc->...ac", overlapping, overlapping)
    c = ef.asarray(overlapping)
    check(lambda c: ef.einsum("...ab,...bc->...ac", c, c), c, expect=expected)
    check(lambda c, d: c @ d, c, ef.asarray(overlapping), expect=expected)
    windows = np.lib.stride_tricks.sliding_window_view(x, 16)
    check(lambda c, d: c @ d.T, *(ef.asarray(windows),) * 2, expect=windows @ windows.T)
    check(
        lambda c: ef.sum(c * 2 + 1, axis=0), ef.asarray(windows), expect=(windows * 2.0 + 1).sum(0)
    )


def pytorch_35737():
    """The same sum of products was another one than NumPy's, by the order of its letters."""
    a, b = floats(2, 6, 4), floats(2, 3, 4, seed=1)
    for letters in ("noq,npq->nop", "noq,npq->pon", "noq,npq->no", "noq,npq->q", "noq,npq->"):
        expected = np.einsum(letters, b.astype("f8"), a)
        check(
            lambda b, a: ef.einsum(letters, b, a),
            *(ef.tensor(b), ef.tensor(a)),
            expect=expected,
            rtol=1e-4,
            atol=1e-5,
        )


def pytorch_99803():
    """An axis of one element came back with another stride from DLPack, and rows were mixed up."""
    x = np.arange(77.0, dtype="f4").reshape(1, 77)
    for tensor in (
        ef.from_dlpack(torch.tensor(x)),
        ef.from_dlpack(ef.tensor(x)),
        ef.from_dlpack(x),
    ):
        check(lambda x: x * 2, tensor, expect=x * 2.0)
        np.testing.assert_array_equal(torch.from_dlpack(tensor).numpy(), x)
    part = np.arange(60.0).reshape(3, 20)[1:2, ::3]
    np.testing.assert_array_equal(torch.from_dlpack(ef.asarray(part)).numpy(), part)
    check(lambda x: x + 1, ef.from_dlpack(torch.tensor(x).T), expect=x.T + 1.0)

    x = np.arange(12.0).reshape(3, 4)
    for turned in (x[:, ::-1], x[::-1], x[::-2, ::-1]):
        check(lambda x: x * 2 - 1, ef.asarray(turned), expect=turned * 2 - 1)
        try:
            tensor = ef.from_dlpack(turned)
        except EagerflowError:
            continue
        check(lambda x: x * 2 - 1, tensor, expect=turned * 2 - 1)


def jax_37830():
    """A tensor changed with the NumPy array that it was made of."""
    for n in (3, 100, 100_000):
        x = np.arange(n, dtype="f4")
        kept, copied = ef.tensor(x), ef.asarray(x, copy=True)
        v = ef.Variable(x)
        result = ef.function(lambda x: x)(ef.tensor(x))
        x[0] = -1
        for tensor in (kept, copied, v, result):
            assert array(tensor)[0] == 0


def jax_3412():
    """A copy was none: it ended with the buffer that was given away."""
    x = ef.Variable(np.arange(50_000, dtype="f4"))
    before = ef.tensor(x.value)
    view = ef.asarray(x.value, copy=True)

    @ef.function
    def step():
        x.assign_add(ef.ones(50_000))

    for _ in range(4):
        step()
    for tensor in (before, view):
        np.testing.assert_array_equal(tensor.numpy(), np.arange(50_000))
    assert x.numpy()[0] == 4


def jax_19123():
    """What a tensor of another library wrote showed or not, as the tensor had been printed."""
    x = ef.tensor([[0, 1], [2, 3]])
    str(x)
    other = np.from_dlpack(x)
    assert not other.flags.writeable
    y = ef.tensor([[0, 1], [2, 3]])
    np.testing.assert_array_equal(x, y)


def pytorch_139789():
    """Compiled for arguments apart from each other, a step was run for two that overlap."""
    base = np.ones(40_008, "f4")
    expected = base[:40_000] * 2 + base[8:]
    v, w = ef.Variable(base[:40_000]), ef.Variable(base[8:])

    @ef.function
    def step(a, b):
        a.assign(a * 2)
        return a + b

    compare(step(v, w), expected)
    compare(step(v, v), 2 * 4 * np.ones(40_000))
    compare(v, 4 * np.ones(40_000))
    compare(step(w, v), 2 + 4 * np.ones(40_000))


def pytorch_198101():
    """Compiled, a value that was read as another dtype was read after a later write."""
    x = np.arange(-12, 12).reshape(4, 6)

    def step(v):
        y = ef.view(v.value, "int32") * 2
        y = y + 4
        v.assign(v.value.at[:, 2:5].set(2))
        return ef.view(y, "int64")

    expected = (x.view("i4") * np.int32(2) + np.int32(4)).view("i8")
    for apply in WAYS.values():
        v = ef.Variable(x)
        run = apply(step)
        first = run(v)
        compare(first, expected)
        v.assign(x)
        second = run(v)
        v.assign(x * 0)
        run(v)
        compare((first, second), (expected, expected))


def pytorch_94773():
    """Compiled, a view of the old value changed with the new one."""
    x = floats(40_000)
    v = ef.Variable(x)

    @ef.function
    def step():
        old = v.value[1:]
        v.assign(v * 2)
        return old, v.value[1:]

    held = [step() for _ in range(4)]
    for n, (old, new) in enumerate(held):
        compare((old, new), (x[1:] * 2.0**n, x[1:] * 2.0 ** (n + 1)), rtol=0)


def tinygrad_14689():
    """Compiled, a large buffer that is shifted onto itself was read where it was written."""
    n = 2**16
    v = ef.Variable(np.zeros(n, "i4"))

    @ef.function
    def shift(buffer, new):
        return ef.concat([buffer[n // 2 :], new])

    @ef.function
    def push(new):
        v.assign(ef.concat([v.value[n // 2 :], new]))

    buffer = ef.zeros(n, dtype="int32")
    for i in range(8):
        new = ef.tensor(np.full(n // 2, i + 1, "i4"))
        buffer = shift(buffer, new)
        push(new)
        for found in (buffer.numpy(), v.numpy()):
            assert (found[: n // 2] == i).all() and (found[n // 2 :] == i + 1).all(), i


def tinygrad_6803():
    """Compiled, a result was overwritten by the next call, which two calls of one step need."""
    w = floats(300, 300)

    @ef.function
    def run(x, c):
        return ef.tanh(x @ ef.tensor(w) / 20) * c + x

    xs = [floats(64, 300, seed=s) for s in range(1, 4)]
    found = [run(ef.tensor(x), 0.5) for x in xs]
    guided = found[0] + 2 * (found[1] - found[0])
    wide = [np.tanh(x.astype("f8") @ w / 20) * 0.5 + x for x in xs]
    compare((*found, guided), (*wide, wide[0] + 2 * (wide[1] - wide[0])), rtol=1e-4, atol=1e-4)


def pytorch_146416():
    """Compiled, a transpose was moved into ops that read rows."""
    g, w = floats(48, 64), floats(64, 32, seed=1)

    def f(g, w):
        scale = 1 / ef.max(ef.abs(g), axis=-1, keepdims=True)
        turned = ef.permute_dims(g * scale, (1, 0))
        return (g * scale) @ w, turned @ g, ef.sum(turned, axis=1)

    wide = g.astype("f8")
    scaled = wide / np.abs(wide).max(-1, keepdims=True)
    expected = (scaled @ w, scaled.T @ wide, scaled.sum(0))
    check(f, ef.tensor(g), ef.tensor(w), expect=expected, rtol=1e-4, atol=1e-4)


def pytorch_179568():
    """Compiled, arithmetic on channels that were picked and spread had those of another one."""
    x = floats(2, 5, 5, 8)

    def f(x, stack):
        parts = [x[..., k : k + 1] for k in (0, 3, 5)]
        wide = [p + x[..., :4] * 0 for p in parts]
        return stack([wide[0] + wide[1], wide[1] * wide[2], wide[0] - 0.5 * wide[2]])

    check(lambda x: f(x, ef.stack), ef.tensor(x), expect=f(x.astype("f8"), np.stack))


def pytorch_96064():
    """Compiled, rounds of an unrolled loop that write rows in turn used the same one."""
    x = floats(6, 5)

    def f(x):
        for k in range(1, 6):
            x = x.at[k].set(x[k] - 0.5 * x[k - 1] + ef.sum(x[:k], axis=0))
        return x

    expected = x.astype("f8")
    for k in range(1, 6):
        expected[k] = expected[k] - 0.5 * expected[k - 1] + expected[:k].sum(0)
    check(f, ef.tensor(x), expect=expected, rtol=1e-4)


def pytorch_168177():
    """The offset of a foreign array's first element was ignored."""
    x = torch.arange(40, dtype=torch.int16)
    for part in (x[7:], x[3::5], x.reshape(5, 8)[2:, 1:]):
        check(lambda x: x + 1, ef.from_dlpack(part), expect=part.numpy() + np.int16(1))
    memory = (ctypes.c_uint8 * 17)(*range(17))
    unaligned = np.frombuffer(memory, "i4", count=4, offset=1)
    assert not unaligned.flags.aligned
    check(lambda x: x * 2, ef.asarray(unaligned), expect=unaligned * 2)


def pytorch_71085():
    """In place, a product was added to an array of another shape."""
    x, a, b = ef.zeros((10, 3, 5, 0)), ef.ones((10, 3, 4)), ef.ones((10, 4, 5))
    refused(lambda x, a, b: x + a @ b, x, a, b)
    v = ef.Variable(np.zeros((10, 3, 5, 0), "f4"))
    refused(lambda a, b: v.assign_add(a @ b), a, b)
    assert v.shape == (10, 3, 5, 0)


@cases("layouts", globals())
def test_case(case):
    case()
