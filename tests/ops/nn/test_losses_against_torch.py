"""Losses of ``ef``, and their gradients, are those of PyTorch's functions of the same names."""

import numpy as np
import pytest

import eagerflow as ef

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
functional = torch.nn.functional

RNG = np.random.default_rng(0)
X, Y, Z = RNG.normal(size=(3, 4, 5))
P, Q = RNG.uniform(0.1, 0.9, (2, 4, 5))
SIDES = np.where(RNG.random((4, 5)) < 0.5, -1.0, 1.0)
CLASSES = np.array([1, 0, 4, 2])
WEIGHT = RNG.uniform(0.5, 2, 5)
LISTED = np.array([[1, 2, -1, 0, -1], [-1] * 5, [0, 1, 2, 3, 4], [4, -1, 4, 4, 4]])
ROW_SIDES = np.array([1, -1, 1, -1])

CALLS = [
    ("l1_loss", (X, Y), {}),
    ("l1_loss", (X + 1j * Y, Z - 1j * X), {}),
    ("mse_loss", (X, Y), {}),
    ("huber_loss", (X, Y), {"delta": 0.5}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.5}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.0}),
    ("kl_div", (np.log(P), Q), {}),
    ("kl_div", (np.log(P), np.log(Q)), {"log_target": True}),
    ("poisson_nll_loss", (X, 3 * P), {"full": True}),
    ("poisson_nll_loss", (P, 3 * Q), {"log_input": False}),
    ("gaussian_nll_loss", (X, Y, P), {"full": True}),
    ("gaussian_nll_loss", (X, Y[0], P[:, 0]), {}),
    ("gaussian_nll_loss", (X, Y[:, :1], P[:, :1]), {"eps": 0.3}),
    ("hinge_embedding_loss", (X, SIDES), {"margin": 0.7}),
    ("soft_margin_loss", (X, SIDES), {}),
    ("margin_ranking_loss", (X, Y, SIDES), {"margin": 0.2}),
    ("multi_margin_loss", (X, CLASSES), {"p": 2, "margin": 0.8}),
    ("multi_margin_loss", (X, CLASSES), {"weight": WEIGHT}),
    ("multilabel_margin_loss", (X, LISTED), {}),
    ("multilabel_soft_margin_loss", (X, P), {"weight": WEIGHT}),
    ("cosine_embedding_loss", (X, Y, ROW_SIDES), {"margin": 0.1}),
    ("triplet_margin_loss", (X, Y, Z), {"p": 3.0, "swap": True}),
    ("binary_cross_entropy", (P, Q), {"weight": WEIGHT}),
    ("binary_cross_entropy_with_logits", (X, P), {"weight": WEIGHT, "pos_weight": WEIGHT}),
    ("cross_entropy", (X, CLASSES), {"weight": WEIGHT, "ignore_index": 2, "label_smoothing": 0.1}),
    ("cross_entropy", (X, CLASSES), {"label_smoothing": 0.3}),
    ("cross_entropy", (X, P), {"weight": WEIGHT, "label_smoothing": 0.1}),
    ("nll_loss", (np.log(P), CLASSES), {"weight": WEIGHT, "ignore_index": 0}),
]
NAMES = [f"{name}-{'-'.join(more)}" for name, _, more in CALLS]


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "args", "more"), CALLS, ids=NAMES)
def test_values_and_gradients_are_those_of_torch(name, args, more, reduction):
    x = torch.tensor(args[0], requires_grad=True)
    others = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in more.items()}
    theirs = getattr(functional, name)
    wanted = theirs(x, *map(torch.tensor, args[1:]), reduction=reduction, **others)
    wanted.sum().backward()

    def ours(x):
        return getattr(ef, name)(x, *map(ef.tensor, args[1:]), reduction=reduction, **more)

    found = ours(ef.tensor(args[0]))
    np.testing.assert_allclose(found, wanted.detach(), rtol=1e-9, atol=1e-12)
    slope = ef.grad(lambda x: ef.sum(ours(x)))(ef.tensor(args[0]))
    np.testing.assert_allclose(slope, x.grad, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "more"),
    [("cosine_similarity", {}), ("pairwise_distance", {}), ("pairwise_distance", {"p": 1.0})],
)
def test_similarities_are_those_of_torch(name, more):
    wanted = getattr(functional, name)(torch.tensor(X), torch.tensor(Y), **more)
    np.testing.assert_allclose(getattr(ef, name)(X, Y, **more), wanted, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("celu", (0.5,)),
        ("glu", ()),
        ("hardshrink", (0.3,)),
        ("hardtanh", (-0.5, 0.7)),
        ("softshrink", (0.3,)),
        ("softmin", (-1,)),
        ("tanhshrink", ()),
        ("threshold", (0.1, -3.0)),
    ],
)
def test_activations_are_those_of_torch(name, args):
    ours = {
        "hardshrink": "hard_shrink",
        "hardtanh": "hard_tanh",
        "softshrink": "soft_shrink",
        "tanhshrink": "tanh_shrink",
    }
    x = X[:, :4]
    wanted = getattr(functional, name)(torch.tensor(x), *args)
    np.testing.assert_allclose(getattr(ef, ours.get(name, name))(x, *args), wanted, rtol=1e-9)


def test_where_no_class_counts_the_mean_is_0():
    x = ef.tensor(X)
    with ef.GradientTape() as tape:
        tape.watch(x)
        loss = ef.cross_entropy(x, ef.full((4,), -100, dtype="int64"))
    assert float(loss) == 0
    assert not np.asarray(tape.gradient(loss, x)).any()
