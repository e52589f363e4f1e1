"""Layers, losses, convolutions, pooling and resizing against PyTorch or plain NumPy."""

import numpy as np

import eagerflow as ef
from tests.silent_bugs.index import cases
from tests.silent_bugs.ways import WAYS, F, check, compare, floats, refused, torch


def to_torch(x):
    """Channels first, in float64."""
    return torch.tensor(np.moveaxis(x, -1, 1).copy()).double()


def from_torch(x):
    return np.moveaxis(x.numpy(), 1, -1)


def normalized(x, axis, epsilon):
    wide = x.astype("f8")
    mean = wide.mean(axis, keepdims=True)
    return (wide - mean) / np.sqrt(wide.var(axis, keepdims=True) + epsilon)


def pytorch_40302():
    """The variance of numbers around 100 that differ by 0.01 was zero."""
    x = (floats(6, 32_768) * 0.01 + 100).astype("f4")
    expected = normalized(x, -1, 1e-5)
    check(lambda x: ef.layer_norm(x), ef.tensor(x), expect=expected, rtol=2e-3, atol=2e-3)
    variance = x.astype("f8").var(-1)
    check(lambda x: ef.var(x, axis=-1), ef.tensor(x), expect=variance, rtol=1e-3)
    check(lambda x: ef.var(x, axis=0), ef.tensor(x.T), expect=variance, rtol=1e-3)


def pytorch_51102():
    """Rows around 2,000 had variances of 30,000 after they were normalized."""
    x = (floats(50, 4) + 2000).astype("f4")
    expected = normalized(x, -1, 1e-5)
    check(lambda x: ef.layer_norm(x), ef.tensor(x), expect=expected, rtol=1e-3, atol=1e-3)
    check(
        lambda x: ef.layer_norm(x, axis=0), ef.tensor(x.T), expect=expected.T, rtol=1e-3, atol=1e-3
    )


def pytorch_54293():
    """Groups of many small numbers were normalized by a sum that had lost its low digits."""
    x = np.random.default_rng(0).uniform(0, 1, (2, 64, 64, 24)).astype("f4")
    grouped = x.reshape(2, 64, 64, 3, 8)
    expected = normalized(grouped, (1, 2, 4), 1e-5).reshape(x.shape)
    check(lambda x: ef.group_norm(x, 3), ef.tensor(x), expect=expected, rtol=1e-4, atol=1e-4)


def pytorch_162489():
    """Numbers of 1e30 were normalized to zeros, as their squares are infinite."""
    x = (floats(4, 30) * 1e30).astype("f4")
    for f in (ef.layer_norm, ef.rms_norm):
        outcomes = [w(lambda x: f(x))(ef.tensor(x)).numpy() for w in WAYS.values()]
        for found in outcomes[1:]:
            np.testing.assert_allclose(found, outcomes[0], rtol=1e-4, atol=1e-6)
        right = normalized(x, -1, 0) if f is ef.layer_norm else None
        if right is not None and np.isfinite(outcomes[0]).all() and outcomes[0].any():
            np.testing.assert_allclose(outcomes[0], right, rtol=1e-3, atol=1e-3)


def attention(q, k, v, mask):
    """In float64; a row of which all is masked gives zeros."""
    s = q.astype("f8") @ np.swapaxes(k.astype("f8"), -1, -2) / np.sqrt(q.shape[-1])
    s = np.where(mask, s, -np.inf)
    top = np.max(s, axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v.astype("f8")


def masked_rows(length=8, keys=8, seed=0):
    q, k, v = floats(1, 1, length, 8, seed=seed), *(floats(1, 1, keys, 8, seed=s) for s in (7, 8))
    mask = np.zeros((1, 1, length, keys), bool)
    mask[..., : length // 2, : keys // 2] = True
    return q, k, v, mask


def same_everywhere(f, *args):
    outcomes = [apply(f)(*args).numpy() for apply in WAYS.values()]
    for found in outcomes[1:]:
        np.testing.assert_allclose(found, outcomes[0], rtol=1e-4, atol=1e-5)
    return outcomes[0]


def pytorch_103963():
    """Rows of attention that may look at nothing were NaN or not by the mask's dtype."""
    q, k, v, mask = masked_rows()
    f = lambda q, k, v: ef.dot_product_attention(q, k, v, mask=ef.tensor(mask))
    found = same_everywhere(f, *map(ef.tensor, (q, k, v)))
    np.testing.assert_allclose(
        found[..., :4, :], attention(q, k, v, mask)[..., :4, :], rtol=1e-4, atol=1e-5
    )
    assert np.isfinite(found).all() or np.isnan(found[..., 4:, :]).all()


def pytorch_101967():
    """What is masked out made the others NaN where it was NaN itself."""
    for length, keys in ((2, 4), (20, 70)):
        q, k, v, _ = masked_rows(length, keys)
        shown = np.arange(keys) % 2 == 0
        mask = np.broadcast_to(shown, (1, 1, length, keys))
        expected = attention(q, k, v, mask)
        added = np.where(mask, 0, -np.inf).astype("f4")
        for bad in (1e10, np.nan, np.inf):
            k[..., ~shown, :] = bad
            for given in (mask, added, mask[:, :, :1]):
                check(
                    lambda q, k, v: ef.dot_product_attention(q, k, v, mask=ef.tensor(given)),
                    *map(ef.tensor, (q, k, v)),
                    expect=expected,
                    rtol=1e-4,
                    atol=1e-5,
                )


def pytorch_109517():
    """Gradients of masked attention were NaN for certain patterns of the mask."""
    rng = np.random.default_rng(0)
    q, k, v = (floats(2, 2, 33, 16, seed=s) for s in (1, 2, 3))
    mask = rng.uniform(size=(2, 1, 33, 33)) < 0.3
    mask[..., 0] = True
    mask[:, :, 5] = False

    def loss(q, k, v):
        out = ef.dot_product_attention(q, k, v, mask=ef.tensor(mask))
        rows = ef.tensor(mask.any(-1)[..., None])
        return ef.sum(ef.where(rows, out, 0.0) ** 2)

    grads = ef.grad(loss, argnums=(0, 1, 2))
    tensors = [torch.tensor(x).double().requires_grad_() for x in (q, k, v)]
    weights = tensors[0] @ tensors[1].mT / 4
    weights = weights.masked_fill(~torch.tensor(mask), -1e300)
    out = torch.softmax(weights, -1) @ tensors[2]
    (out * torch.tensor(mask.any(-1)[..., None])).pow(2).sum().backward()
    expected = tuple(t.grad.numpy() for t in tensors)
    check(grads, *map(ef.tensor, (q, k, v)), expect=expected, rtol=1e-3, atol=1e-4)


def pytorch_103749():
    """Rows that only pad a batch made a model's attention NaN."""
    q, k, v, _ = masked_rows(6, 10)
    mask = np.zeros((1, 1, 6, 10), bool)
    for i in range(5):
        mask[..., i, : i + 1] = True
    f = lambda q, k, v: ef.dot_product_attention(q, k, v, mask=ef.tensor(mask))
    found = same_everywhere(f, *map(ef.tensor, (q, k, v)))
    wide = attention(q, k, v, mask)
    np.testing.assert_allclose(found[..., :5, :], wide[..., :5, :], rtol=1e-4, atol=1e-5)
    causal = np.tril(np.ones((6, 6), bool))
    check(
        lambda q, k, v: ef.dot_product_attention(q, k, v, is_causal=True),
        *map(ef.tensor, (q, k[:, :, :6], v[:, :, :6])),
        expect=attention(q, k[:, :, :6], v[:, :, :6], causal),
        rtol=1e-4,
        atol=1e-5,
    )


def pytorch_160064():
    """With weights asked for, all heads were NaN where one of them is masked wholly."""
    layer = ef.nn.MultiHeadAttention(3, 4)
    x = ef.tensor(floats(1, 5, 12))
    layer(x, x)
    mask = np.broadcast_to(np.array([1, 1, 0], bool)[:, None, None], (1, 3, 5, 5))
    plain = layer(x, x, attention_mask=ef.tensor(mask))
    both, scores = layer(x, x, attention_mask=ef.tensor(mask), return_attention_scores=True)
    compare(both, plain.numpy(), rtol=1e-4, atol=1e-5)
    assert np.isfinite(scores.numpy()[:, :2]).all()
    compare(ef.sum(scores[:, :2], axis=-1), np.ones((1, 2, 5)))


def convolved(x, w, expected, **options):
    check(
        lambda x, w: ef.conv(x, w, **options),
        *(ef.tensor(x), ef.tensor(w)),
        expect=expected,
        rtol=1e-3,
        atol=1e-4,
    )


def pytorch_19912():
    """A convolution of two groups was zero on certain numbers of channels."""
    x, w = np.zeros((1, 1, 1, 4), "f4"), np.ones((1, 1, 2, 16), "f4")
    x[..., 3] = 1
    expected = np.zeros((1, 1, 1, 16))
    expected[..., 8:] = 1
    convolved(x, w, expected, groups=2)
    x, w = floats(2, 5, 5, 6), floats(3, 3, 2, 9)
    torch_w = torch.tensor(w).permute(3, 2, 0, 1).double()
    expected = from_torch(F.conv2d(to_torch(x), torch_w, groups=3))
    convolved(x, w, expected, groups=3, padding="valid")


def pytorch_21597():
    """A convolution of six channels was wrong, those of eight and more were right."""
    for channels in (1, 3, 6, 7, 12):
        x, w = floats(2, 9, 8, channels), floats(3, 3, channels, 5, seed=1)
        torch_w = torch.tensor(w).permute(3, 2, 0, 1).double()
        expected = from_torch(F.conv2d(to_torch(x), torch_w, padding=1))
        convolved(x, w, expected, padding=((1, 1), (1, 1)))


def pytorch_141221():
    """A dilated convolution in float64 had products of others in its sums."""
    for dtype in ("f4", "f8"):
        x, w = np.ones((2, 8, 8, 1), dtype), np.ones((3, 3, 1, 4), dtype)
        convolved(x, w, np.full((2, 4, 4, 4), 9.0), dilation=2, padding="valid")
        x, w = floats(2, 11, 9, 3, dtype=dtype), floats(3, 2, 3, 4, dtype=dtype)
        torch_w = torch.tensor(w).permute(3, 2, 0, 1).double()
        expected = from_torch(F.conv2d(to_torch(x), torch_w, dilation=(2, 3), stride=(1, 2)))
        convolved(x, w, expected, dilation=(2, 3), strides=(1, 2), padding="valid")


def pooled(x, window, strides, padding=0, **options):
    expected = from_torch(
        F.avg_pool2d(to_torch(x), window, strides, padding, count_include_pad=False, **options)
    )
    pads = "valid" if not padding else ((padding, padding),) * 2
    check(lambda x: ef.avg_pool(x, window, strides, pads, **options), ef.tensor(x), expect=expected)


def pytorch_100987():
    """Compiled, means of windows at the border were divided by the whole window's size."""
    pooled(floats(1, 7, 8, 2), 3, 2, ceil_mode=True)
    pooled(floats(1, 6, 6, 1), 3, 2, 1, ceil_mode=True)


def pytorch_36977():
    """A window wholly outside of the image gave NaN."""
    x = np.ones((1, 5, 6, 1), "f4")
    pooled(x, 2, 3, 1, ceil_mode=True)
    for n in (5, 6, 7, 8):
        pooled(floats(1, n, n, 1), 2, 4, ceil_mode=True)


def pytorch_88144():
    """How many windows there are did not follow from one rule."""
    for n, window, stride in ((32, 8, 4), (4, 3, 3), (9, 4, 4)):
        x = floats(1, n, n, 1)
        pooled(x, window, stride, ceil_mode=True)
        expected = from_torch(F.max_pool2d(to_torch(x), window, stride, ceil_mode=True))
        check(
            lambda x: ef.max_pool(x, window, stride, ceil_mode=True),
            ef.tensor(x),
            expect=expected,
        )


def resized(x, size, mode):
    options = {} if mode.startswith("nearest") else {"align_corners": False}
    expected = from_torch(F.interpolate(to_torch(x), size, mode=mode, **options))
    check(
        lambda x: ef.interpolate(x, size=size, mode=mode),
        ef.tensor(x),
        expect=expected,
        rtol=1e-3,
        atol=1e-4,
    )


def pytorch_93262():
    """Compiled, the one pixel of an image was another corner's."""
    for mode in ("bilinear", "bicubic", "nearest"):
        for size in ((1, 1), (3, 4), (14, 10), (1, 20)):
            resized(floats(2, 7, 10, 3), size, mode)


def pytorch_198201():
    """Compiled, an axis that keeps its size was sampled anew by the factor it was given."""
    x = np.arange(12.0, dtype="f4").reshape(1, 3, 4, 1)
    expected = from_torch(F.interpolate(to_torch(x), scale_factor=(1.3, 1.5), mode="nearest"))
    same_everywhere(
        lambda x: ef.interpolate(x, scale_factor=(1.3, 1.5), mode="nearest"), ef.tensor(x)
    )
    found = ef.interpolate(ef.tensor(x), scale_factor=(1.3, 1.5), mode="nearest")
    assert found.shape == expected.shape
    compare(ef.resize(ef.tensor(x), (3, 6), "nearest")[:, :, 0], x[:, :, 0])


def pytorch_175154():
    """Compiled, the second of two pixels was the first one."""
    x = np.array([1.0, 2.0]).reshape(1, 1, 2, 1)
    check(lambda x: ef.resize(x, (1, 2), "nearest"), ef.tensor(x), expect=x)
    f = lambda x: ef.interpolate(x, scale_factor=1.3, mode="nearest")
    found = same_everywhere(f, ef.tensor(x))
    assert found.shape == (1, 1, 2, 1)


def tensorflow_117803():
    """Compiled, one NaN pixel made the whole channel of a resized image NaN."""
    x = np.arange(1, 28, dtype="f4").reshape(1, 3, 3, 3)
    x[0, 1, 2, 0] = np.nan
    expected = from_torch(F.interpolate(to_torch(x), (5, 5), mode="bilinear", align_corners=False))
    found = same_everywhere(lambda x: ef.resize(x, (5, 5), "bilinear"), ef.tensor(x))
    finite = np.isfinite(expected)
    assert not np.isnan(found[..., 1:]).any() and np.isnan(found[0, 2, 4, 0])
    np.testing.assert_allclose(found[..., 1:], expected[..., 1:], rtol=1e-5)
    np.testing.assert_allclose(found[0, :, :2, 0], expected[0, :, :2, 0], rtol=1e-5)
    assert finite[0, :, :2, 0].all()


def tensorflow_118467():
    """Compiled, an image resized between two transposes was another one."""
    x = floats(2, 3, 12, 10)
    expected = F.interpolate(torch.tensor(x).double(), (24, 7), mode="bilinear", antialias=False)

    def f(x):
        image = ef.permute_dims(x, (0, 2, 3, 1))
        return ef.permute_dims(ef.resize(image, (24, 7), "bilinear"), (0, 3, 1, 2))

    check(f, ef.tensor(x), expect=expected.numpy(), rtol=1e-4, atol=1e-5)


def cross_entropies(**options):
    logits, target = floats(6, 4), np.array([0, 3, -100, 2, -100, 1])
    weight = np.array([0.2, 1.0, 3.0, 0.5], "f4")
    for reduction in ("mean", "sum", "none"):
        for given in (None, weight):
            tensor = torch.tensor(logits).double().requires_grad_()
            wide = None if given is None else torch.tensor(given).double()
            loss = F.cross_entropy(
                tensor, torch.tensor(target), wide, reduction=reduction, **options
            )
            loss.sum().backward()

            def f(x):
                return ef.cross_entropy(
                    x,
                    ef.tensor(target),
                    None if given is None else ef.tensor(given),
                    reduction=reduction,
                    **options,
                )

            check(f, ef.tensor(logits), expect=loss.detach().numpy())
            check(
                ef.grad(lambda x: ef.sum(f(x))),
                ef.tensor(logits),
                expect=tensor.grad.numpy(),
                atol=1e-6,
            )


def pytorch_73205():
    """With smoothed labels, examples to be ignored were part of the loss."""
    cross_entropies(label_smoothing=0.2)


def pytorch_91383():
    """With weights, smoothing and ignored examples, the weight of the ignored label was read."""
    cross_entropies(label_smoothing=0.0)
    cross_entropies(label_smoothing=0.7)


def pytorch_12670():
    """A label that is none of the classes and not to be ignored gave an arbitrary loss."""
    x = ef.tensor(floats(3, 5))
    for bad in (-4, 5, 99):
        refused(lambda x: ef.cross_entropy(x, ef.tensor([0, 1, bad]), ignore_index=-1), x)
        refused(lambda x: ef.nll_loss(x, ef.tensor([0, 1, bad])), x)
        refused(lambda x: ef.nll_loss(x.T, ef.tensor([0, 1, bad]), axis=0), x)
        refused(lambda x: ef.sparse_softmax_cross_entropy(x, ef.tensor([0, 1, bad])), x)
    for target in ([[0, 1, 2]], [0], [0, 1]):
        refused(lambda x: ef.nll_loss(x, ef.tensor(target)), x)
        refused(lambda x: ef.cross_entropy(x, ef.tensor(target)), x)
    check(
        lambda x: ef.cross_entropy(x, ef.tensor([0, 1, -1]), ignore_index=-1),
        x,
        expect=F.cross_entropy(torch.tensor(x.numpy()[:2]), torch.tensor([0, 1])).numpy(),
    )


def pytorch_3662():
    """The backward direction of a recurrent layer began in the padding of short sequences."""
    layer = ef.nn.Bidirectional(ef.nn.LSTM(3, return_sequences=True))
    x, lengths = floats(3, 6, 2), (6, 5, 3)
    mask = np.arange(6) < np.array(lengths)[:, None]
    padded = np.where(mask[..., None], x, 99.0).astype("f4")
    layer(ef.tensor(x))
    f = lambda x: layer(x, mask=ef.tensor(mask))
    outcomes = [apply(f)(ef.tensor(padded)).numpy() for apply in WAYS.values()]
    for row, n in enumerate(lengths):
        alone = layer(ef.tensor(x[row : row + 1, :n])).numpy()
        for found in outcomes:
            np.testing.assert_allclose(found[row, :n], alone[0], rtol=1e-4, atol=1e-5)


def pytorch_95118():
    """Of several sequences, all but one had wrong states."""
    for kind in (ef.nn.LSTM, ef.nn.GRU, ef.nn.SimpleRNN):
        layer = kind(4, return_sequences=True, return_state=True)
        x = floats(3, 5, 2)
        layer(ef.tensor(x))
        single = [layer(ef.tensor(x[i : i + 1])) for i in range(3)]
        expected = tuple(
            np.concatenate([np.asarray(p) for p in parts]) for parts in zip(*single, strict=True)
        )
        check(lambda x: tuple(layer(x)), ef.tensor(x), expect=expected, rtol=1e-4, atol=1e-6)


def tensorflow_34491():
    """A loss was averaged over steps that a mask leaves out, its metric was not."""
    x = np.array([[[1.0], [0.0], [1.0]]], "f4")
    y = np.array([[[0.0], [1.0], [1.0]]], "f4")
    model = ef.nn.Sequential([ef.nn.Masking(mask_value=0.0)])
    for eager in (True, False):
        model.compile(loss="mae", metrics=["mae"], run_eagerly=eager)
        loss, metric = model.evaluate(x, y, verbose=0)
        compare((loss, metric), (0.5, 0.5))


def tensorflow_59934():
    """Weights of steps were part of the loss, and not of weighted metrics."""
    x, y = floats(4, 5, 3), floats(4, 5, 1, seed=1)
    weight = (np.arange(5) < np.array([5, 3, 2, 4])[:, None]).astype("f4")
    model = ef.nn.Sequential([ef.nn.Dense(1)])
    for eager in (True, False):
        model.compile(loss="mse", weighted_metrics=["mae"], run_eagerly=eager)
        loss, metric = model.evaluate(x, y, sample_weight=weight, verbose=0, batch_size=4)
        error = (model(ef.tensor(x)).numpy() - y)[..., 0].astype("f8")
        compare(metric, np.sum(np.abs(error) * weight) / weight.sum(), rtol=1e-4)
        compare(loss, np.sum(error**2 * weight) / 20, rtol=1e-4)


def tensorflow_61885():
    """Compiled, a constant before a layer was added to one column only."""

    class Model(ef.nn.Model):
        def __init__(self):
            super().__init__()
            ones = {"kernel_initializer": "ones", "bias_initializer": "ones"}
            self.first, self.second = ef.nn.Dense(2, **ones), ef.nn.Dense(2, **ones)

        def call(self, x):
            x = self.second(self.first(x))
            x = ef.tensor([6.0]) + x
            return ef.tensor([7.0]) + x

    model = Model()
    x = ef.tensor([[6.0, 7.0]])
    check(lambda x: model(x), x, expect=np.array([[42.0, 42.0]]))


def tensorflow_118314():
    """Compiled twice, once inside and once outside, a layer gave other numbers."""
    layer = ef.nn.Dense(5, activation="gelu")
    x = ef.tensor(floats(7, 3))
    expected = layer(x).numpy()
    inner = ef.function(layer)
    outer = ef.function(lambda x: inner(x) * 2 + layer(x))
    exact = ef.function(lambda x: ef.function(inner)(x), numerics="exact")
    for _ in range(2):
        compare(outer(x), expected * 3.0, rtol=1e-4, atol=1e-6)
        compare(exact(x), expected, rtol=1e-5, atol=1e-6)


@cases("layers", globals())
def test_case(case):
    case()
