"""Linear algebra by its identities, for what has no single reference, and the compositions."""

import os
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef

DTYPES = ("float64", "complex128")


def matrix(dtype, *shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if dtype == "complex128" else x


def star(x):
    return np.conj(x.swapaxes(-1, -2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (2, 3, 4), (1, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_svd_rebuilds_the_matrix(dtype, shape, full):
    x = matrix(dtype, *shape)
    u, s, vh = (t.numpy() for t in ef.linalg.svd(x, full_matrices=full))
    k = min(shape[-2:])
    np.testing.assert_allclose(u[..., :k] * s[..., None, :] @ vh[..., :k, :], x, atol=1e-12)
    for basis in (u, star(vh)):
        unit = np.broadcast_to(np.eye(basis.shape[-1]), star(basis).shape[:-1] + basis.shape[-1:])
        np.testing.assert_allclose(star(basis) @ basis, unit, atol=1e-12)
    assert np.all(np.diff(s) <= 0)
    tops = np.take_along_axis(u, np.abs(u).argmax(-2, keepdims=True), -2)
    assert np.all(tops.real > 0)
    np.testing.assert_allclose(tops.imag, 0, atol=1e-15)
    np.testing.assert_allclose(ef.linalg.svdvals(x).numpy(), s, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_stay_finite_between_equal_values(dtype):
    x = ef.tensor(np.eye(3).astype(dtype))
    for f in (
        lambda x: ef.abs(ef.linalg.eigh(x).eigenvectors).sum(),
        lambda x: ef.linalg.eigh(x).eigenvalues.sum(),
        lambda x: ef.abs(ef.linalg.svd(x).U).sum(),
        lambda x: ef.linalg.svdvals(x).sum(),
    ):
        assert np.isfinite(ef.grad(f)(x).numpy()).all()
    trace = ef.grad(lambda x: ef.linalg.eigh(x).eigenvalues.sum())(x)
    np.testing.assert_allclose(trace.numpy(), np.eye(3), atol=1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (2, 3, 2)])
def test_gradients_of_complete_bases_follow_their_span(dtype, shape):
    x, k = matrix(dtype, *shape), min(shape[-2:])
    weight = matrix(dtype, max(shape[-2:]), max(shape[-2:]), seed=1)

    def spanned(basis):
        others = basis[..., k:]
        projection = others @ ef.conj(others.mT)
        return ef.real(projection * weight).sum(axis=(-2, -1))

    def of_svd(x):
        u, s, vh = ef.linalg.svd(x)
        return spanned(u if shape[-2] > shape[-1] else ef.conj(vh.mT)) + s.sum(axis=-1) ** 2

    def of_qr(x):
        q, r = ef.linalg.qr(x, mode="complete")
        return spanned(q) + ef.real(r * r).sum(axis=(-2, -1)) + ef.real(q[..., 0, 0])

    for f in (of_svd, of_qr) if shape[-2] > k else (of_svd,):
        ef.testing.check_gradients(f, (x,), order=2)


def test_gradient_of_the_single_completing_basis_vector():
    x = matrix("float64", 3, 2)
    ef.testing.check_gradients(lambda x: ef.linalg.qr(x, mode="complete"), (x,), order=2)
    ef.testing.check_gradients(ef.linalg.svd, (x,))
    ef.testing.check_gradients(ef.linalg.svd, (x.T,))


@pytest.mark.parametrize("ord", [1, 2, 3, 0.5, np.inf, -np.inf, 0])
def test_the_gradient_of_a_norm_at_zero_is_zero(ord):
    g = ef.grad(lambda x: ef.linalg.vector_norm(x, ord=ord))(ef.zeros((3,)))
    assert np.array_equal(g.numpy(), np.zeros(3))


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_matrix_norms_are_those_of_numpy(ord, keepdims):
    x = matrix("complex128", 2, 3, 4)
    wanted = np.linalg.matrix_norm(x, ord=ord, keepdims=keepdims)
    np.testing.assert_allclose(ef.linalg.matrix_norm(x, ord=ord, keepdims=keepdims), wanted)
    moved = ef.linalg.norm(x, ord, axis=(2, 0), keepdims=keepdims)
    np.testing.assert_allclose(moved, np.linalg.norm(x, ord, (2, 0), keepdims))


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 7])
def test_matrix_power(n):
    x = matrix("float64", 2, 3, 3)
    np.testing.assert_allclose(ef.linalg.matrix_power(x, n), np.linalg.matrix_power(x, n))


@pytest.mark.parametrize("offset", [-4, -2, 0, 1, 3])
def test_trace_cross_rank_and_outer(offset):
    x = matrix("float64", 2, 3, 4)
    np.testing.assert_allclose(ef.linalg.trace(x, offset=offset), np.linalg.trace(x, offset=offset))
    a, b = matrix("float64", 3, 1, 4), matrix("float64", 2, 4, seed=1)[:, None][[0, 1, 1]]
    np.testing.assert_allclose(ef.linalg.cross(a, b, axis=0), np.cross(a, b, axis=0))
    low = matrix("float64", 4, 2) @ matrix("float64", 2, 5)
    assert int(ef.linalg.matrix_rank(low)) == 2
    np.testing.assert_allclose(ef.linalg.outer(a[:, 0, 0], b[0, 0]), np.outer(a[:, 0, 0], b[0, 0]))


def test_integers_are_traced_in_64_bits():
    assert ef.linalg.trace(np.eye(2, dtype="int8")).dtype == ef.int64


@pytest.mark.parametrize("axes", [0, 1, 2, ((0, 1), (1, 0)), ((-1,), (0,)), (2, 0)])
def test_tensordot(axes):
    a, b = matrix("float64", 4, 3, 4), matrix("float64", 4, 3 if axes == 0 else 4, 4)
    if axes == 2:
        b = matrix("float64", 3, 4, 2)
    if axes == ((0, 1), (1, 0)):
        b = matrix("float64", 3, 4, 2)
    got = ef.tensordot(a, b, axes=axes)
    np.testing.assert_allclose(got, np.tensordot(a, b, axes), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ef.tensordot(np.ones((2, 3)), np.ones((2, 3)), axes=1), "sizes (3,)"),
        (lambda: ef.tensordot(np.ones(3), np.ones(3), axes=2), "2 axes cannot be summed"),
        (lambda: ef.outer(np.ones((2, 2)), np.ones(2)), "x1 has 2 axes"),
        (lambda: ef.linalg.cross(np.ones(2), np.ones(2)), "three elements"),
        (lambda: ef.linalg.matrix_power(np.ones((2, 3)), 2), "2 rows and 3 columns"),
        (lambda: ef.linalg.trace(np.ones(3)), "not enough for a matrix"),
        (lambda: ef.linalg.norm(np.ones((2, 2, 2)), axis=(0, 1, 2)), "3 axes hold neither"),
    ],
)
def test_wrong_shapes_are_explained(call, words):
    with pytest.raises(ef.errors.ShapeError) as caught:
        call()
    assert words in str(caught.value)


def test_batched_matmul_is_bitwise_independent_of_partitioning():
    a, b = matrix("float64", 64, 48, 40), matrix("float64", 64, 40, 72)
    whole = ef.matmul(a, b).numpy()
    assert all(
        np.array_equal(whole[i : i + 1], ef.matmul(a[i : i + 1], b[i : i + 1]).numpy())
        for i in (0, 9, 63)
    )
    with pytest.raises(ef.errors.ShapeError, match="inner dimensions"):
        ef.matmul(np.ones((64, 48, 40)), np.ones((64, 1, 72)))


def test_attention_in_tiles_is_attention():
    q, k, v = (matrix("float64", 2, 4, 300, 8, seed=i) for i in range(3))
    k, v = k[:, :2], v[:, :2]
    for causal in (False, True):
        whole = ef.dot_product_attention(q, k, v, is_causal=causal).numpy()
        scores = np.einsum("bhqd,bhkd->bhqk", q, k.repeat(2, 1)) / np.sqrt(8)
        if causal:
            scores = np.where(np.tri(300, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(whole, weights @ v.repeat(2, 1), atol=1e-12)
        own = ef.dot_product_attention(q[:, :2], k, v, is_causal=causal).numpy()
        np.testing.assert_allclose(own[:, 0], whole[:, 0], atol=1e-12)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(("dtype", "bound"), [("bfloat16", 0.01), ("float16", 0.002)])
def test_gradients_of_attention_in_16_bits_have_scores_in_float32(dtype, bound, captured):
    arrays = [matrix("float64", 2, 2, 16, 32, seed=i) for i in range(4)]
    small = [ef.tensor(x, dtype=dtype) for x in arrays]

    def gradients(q, k, v, weight):
        attend = lambda q, k, v: (ef.dot_product_attention(q, k, v, scale=2.0) * weight).sum()
        return ef.grad(attend, argnums=(0, 1, 2))(q, k, v)

    expected = gradients(*(x.astype("float64") for x in small))
    found = (ef.function(gradients) if captured else gradients)(*small)
    for g, wanted in zip(found, expected, strict=True):
        off = np.abs(g.astype("float64").numpy() - wanted.numpy()).max()
        assert off < bound * np.abs(wanted.numpy()).max()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 3), (0, 2, 2)])
@pytest.mark.parametrize("ord", ["fro", "nuc", 1, 2, np.inf])
def test_norms_of_empty_matrices_are_0(shape, ord):
    x = np.zeros(shape)
    np.testing.assert_array_equal(ef.linalg.matrix_norm(x, ord=ord), np.zeros(shape[:-2]))
    kept = ef.linalg.matrix_norm(x, ord=ord, keepdims=True)
    assert kept.shape == (*shape[:-2], 1, 1)
    if len(shape) == 2:
        assert float(ef.linalg.norm(x, ord)) == 0
        captured = ef.function(lambda x: ef.linalg.norm(x, ord))
        assert float(captured(ef.tensor(x))) == 0


@pytest.mark.parametrize("ord", [-1, -2, -np.inf])
def test_an_empty_matrix_has_no_smallest(ord):
    with pytest.raises(ef.errors.ShapeError, match="matrix_norm: x: an empty matrix"):
        ef.linalg.matrix_norm(np.zeros((0, 0)), ord=ord)


PRODUCTS = """
import hashlib
import numpy as np
import eagerflow as ef

rng = np.random.default_rng(0)
draw = lambda dtype, *shape: ef.tensor(rng.standard_normal(shape).astype(dtype))
found = hashlib.sha256()
for dtype in ("float32", "float64"):
    for a, b in [
        ((200, 200), (200, 200)), ((5, 256), (256, 513)), ((2, 513), (513, 513)),
        ((31, 1000), (1000, 64)), ((1, 513), (513, 1000)), ((513, 1000), (1000, 1)),
        ((1000, 513), (513,)), ((513,), (513, 1000)), ((20001,), (20001,)),
        ((3, 64, 300), (300, 64)), ((3, 64, 300), (3, 300, 64)), ((300,), (3, 300, 900)),
        ((12, 90, 90), (12, 90, 90)), ((6, 150, 150), (6, 150, 150)), ((2, 100, 400), (400,)),
    ]:
        x, y = draw(dtype, *a), draw(dtype, *b)
        captured = ef.function(lambda x, y: ef.tanh(x @ y))
        for result in (x @ y, captured(x, y), captured(x, y)):
            found.update(result.numpy().tobytes())
    images = draw(dtype, 2, 12, 12, 24)
    for result in (
        ef.vecdot(draw(dtype, 2, 30001), draw(dtype, 30001)),
        ef.einsum("bij,bkj->ik", draw(dtype, 4, 60, 90), draw(dtype, 4, 70, 90)),
        ef.dot_product_attention(*(draw(dtype, 1, 2, 120, 48) for _ in range(3))),
        ef.conv(images, draw(dtype, 3, 3, 24, 40)),
        ef.grad(lambda w: (ef.conv(images, w) ** 2).sum())(draw(dtype, 3, 3, 24, 40)),
    ):
        found.update(result.numpy().tobytes())
z = draw("float32", 300, 31) * (1 + 2j)
found.update((z @ draw("float32", 31)).numpy().tobytes() + (z.mT @ z).numpy().tobytes())
print(found.hexdigest())
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("machine_code", ["1", "0"])
def test_bits_of_products_do_not_depend_on_the_threads_of_blas(machine_code):
    """Of fewer than 2**23 multiplications each, as docs/numerics.md has it."""
    found = set()
    for count in ("1", "3"):
        more = {"OPENBLAS_NUM_THREADS": count, "EAGERFLOW_LLVM": machine_code}
        run = subprocess.run(
            [sys.executable, "-c", PRODUCTS], env=os.environ | more, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        found.add(run.stdout)
    assert len(found) == 1


def test_large_products_of_shapes_that_differ_are_refused():
    for a, b in (((300, 300), (299, 300)), ((9, 200, 300), (9, 299, 200)), ((300, 300), (300,))):
        if len(b) > 1:
            with pytest.raises(ef.errors.ShapeError, match="inner dimensions"):
                ef.matmul(np.ones(a, "float32"), np.ones(b, "float32"))
        else:
            assert ef.matmul(np.ones(a, "float32"), np.ones(b, "float32")).shape == (300,)
