"""einops on tensors: the results that it gives on NumPy's arrays, in every way of running."""

import copy
import doctest
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ShapeError

X = np.random.default_rng(0).normal(size=(4, 6, 3))


@pytest.fixture
def einops():
    return pytest.importorskip("einops")


@pytest.fixture
def layers(einops):
    from eagerflow.einops import layers

    return layers


CALLS = {
    "rearrange": lambda e, x: e.rearrange(x, "b t c -> t b c"),
    "join": lambda e, x: e.rearrange(x, "b t c -> b (t c)"),
    "split": lambda e, x: e.rearrange(x, "b (h w) c -> b c h w", h=2),
    "ellipsis": lambda e, x: e.rearrange(x, "b ... -> ... b"),
    "new axis": lambda e, x: e.rearrange(x, "b t c -> b 1 t c 1"),
    "list": lambda e, x: e.rearrange([x, x + 1], "n b t c -> b t (n c)"),
    "sum": lambda e, x: e.reduce(x, "b t c -> b c", "sum"),
    "mean": lambda e, x: e.reduce(x, "b (t 2) c -> b t c", "mean"),
    "max": lambda e, x: e.reduce(x, "b t c -> c", "max"),
    "min": lambda e, x: e.reduce(x, "b t c -> 1 t 1", "min"),
    "prod": lambda e, x: e.reduce(x, "b t c -> b", "prod"),
    "any": lambda e, x: e.reduce(x > 2, "b t c -> b", "any"),
    "all": lambda e, x: e.reduce(x > -2, "b t c -> b c", "all"),
    "function": lambda e, x: e.reduce(x, "b t c -> b c", lambda x, axes: x.sum(axis=axes) * 2),
    "repeat": lambda e, x: e.repeat(x, "b t c -> b t (c 2)"),
    "repeat axes": lambda e, x: e.repeat(x, "b t c -> p b t q c", p=2, q=3),
    "einsum": lambda e, x: e.einsum(x, x, "b t c, a t c -> b a"),
    "pack": lambda e, x: e.pack([x, x[:, 0]], "b * c")[0],
    "unpack": lambda e, x: e.unpack(x, [[2], [2, 2]], "b * c")[1],
}


@pytest.mark.parametrize("name", CALLS)
def test_functions(name, einops):
    call = CALLS[name]
    expected = call(einops, X)
    x = ef.asarray(X)
    free = ef.function(
        lambda x: call(einops, x), input_signature=[ef.TensorSpec((None, 6, 3), "float64")]
    )
    ways = {
        "eager": call(einops, x),
        "variable": call(einops, ef.Variable(x)),
        "captured": ef.function(lambda x: call(einops, x))(x),
        "free": free(x),
    }
    for way, found in ways.items():
        assert isinstance(found, ef.Tensor), way
        assert found.dtype == expected.dtype, way
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, err_msg=way)
    other = X[:2]
    np.testing.assert_allclose(free(ef.asarray(other)), call(einops, other), rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in CALLS if n not in ("any", "all")])
def test_gradients(name, einops):
    call = CALLS[name]

    def along(x):
        return (call(einops, x) ** 2).sum()

    x = ef.asarray(X)
    found = ef.grad(along)(x)
    way = np.sin(np.arange(X.size)).reshape(X.shape)
    slope = (along(x + 1e-6 * way) - along(x - 1e-6 * way)) / 2e-6
    np.testing.assert_allclose((found * way).sum(), slope, rtol=1e-5)
    np.testing.assert_allclose(ef.function(ef.grad(along))(x), found, rtol=1e-12)


def test_examples_and_facts(einops):
    x = ef.asarray(X)
    assert einops.parse_shape(x, "b _ c") == {"b": 4, "c": 3}
    packed, shapes = einops.pack([x, x[:, 0]], "b * c")
    again = einops.unpack(packed, shapes, "b * c")
    np.testing.assert_array_equal(again[1], X[:, 0])
    assert type(einops.asnumpy(x)) is np.ndarray
    each = ef.vmap(lambda x: einops.rearrange(x, "t c -> c t"))(x)
    np.testing.assert_array_equal(each, X.transpose(0, 2, 1))
    with pytest.raises(NotImplementedError, match="non-floating"):
        einops.reduce(ef.tensor([[1, 2]]), "a b -> a", "mean")
    with pytest.raises(einops.EinopsError, match="Shape mismatch"):
        einops.rearrange(x, "b (t s) c -> b t s c", s=4)
    half = einops.reduce(x.astype("bfloat16"), "b t c -> b c", "mean")
    assert half.dtype == ef.bfloat16
    for module in (einops, pytest.importorskip("einops.array_api")):
        assert module.rearrange(x, "b t c -> c (b t)").shape == (3, 24)


def test_several_free_sizes(einops):
    def joined(x):
        return einops.repeat(x, "b t c -> (b t) (k c)", k=2)

    free = ef.function(joined, input_signature=[ef.TensorSpec((None, None, None), "float64")])
    for x in (X, X[:2, :4], X[:, :, :1]):
        np.testing.assert_array_equal(free(ef.asarray(x)), joined(x))
    halves = ef.function(
        lambda x: einops.rearrange(x, "(s b) t c -> s b t c", s=2),
        input_signature=[ef.TensorSpec((None, 6, 3), "float64")],
    )
    with pytest.raises(ShapeError, match="do not fit"):  # an odd size would not
        halves(ef.asarray(X))


# Layers -------------------------------------------------------------------------------------------


def network(layers):
    ef.random.seed(0)
    return ef.nn.Sequential(
        [
            layers.Rearrange("b (h w) c -> b h w c", h=2),
            layers.EinMix("b h w (g c) -> b h w (g d)", "g c d", "g d", g=3, c=1, d=2),
            layers.Reduce("b h w c -> b c", "mean"),
            layers.EinMix("b c -> b k", "c k", c=6, k=2, name="last"),
        ]
    )


def test_layers(layers, einops, tmp_path):
    model = network(layers)
    x = X.astype("float32")
    assert [w.name for w in model(x) is not None and model.weights] == [
        "ein_mix/weight",
        "ein_mix/bias",
        "last/weight",
    ]
    first, bias, last = (np.asarray(w) for w in model.weights)
    h = einops.rearrange(x, "b (h w) g -> b h w g 1", h=2)
    h = np.einsum("bhwgc,gcd->bhwgd", h, first) + bias
    expected = einops.rearrange(h, "b h w g d -> b h w (g d)").mean(axis=(1, 2)) @ last
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-6)
    assert np.abs(first).max() <= 3**0.5 and np.abs(last).max() <= (3 / 6) ** 0.5
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again(x), model(x))
    model.save(tmp_path / "model.ef")
    np.testing.assert_array_equal(ef.nn.load_model(tmp_path / "model.ef")(x), model(x))
    copied = type(model).from_config(model.get_config())
    assert [layer.name for layer in copied.layers] == [layer.name for layer in model.layers]
    assert ef.function(model)(x).shape == (4, 2)


def test_examples_of_layers(layers):
    found = doctest.testmod(layers, extraglobs={"ef": ef})
    assert found.attempted >= 6 and not found.failed


def test_layers_train(layers):
    model = network(layers)
    model.compile(ef.nn.optimizers.Adam(0.05), "mse")
    x = X.astype("float32")
    y = x.sum(axis=1)[:, :2]
    losses = model.fit(x, y, epochs=200, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_layers_of_wrong_patterns(layers, einops):
    with pytest.raises(einops.EinopsError):
        layers.EinMix("b c -> b d", "c d", c=3)
    with pytest.raises(einops.EinopsError):
        layers.Rearrange("b t c -> b (t c)")(ef.ones((2, 3)))
    functional = ef.nn.Input((6, 3))
    assert layers.Rearrange("b t c -> b (t c)")(functional).shape[1:] == (18,)


# Imports ------------------------------------------------------------------------------------------

USE = "print(einops.rearrange(ef.ones((2, 3)), 'a b -> b a').shape)"
ORDERS = {
    "before": f"import einops; import eagerflow as ef; {USE}",
    "after": f"import eagerflow as ef; import einops; {USE}",
    "used before": "import einops, numpy; einops.rearrange(numpy.ones((2, 3)), 'a b -> b a'); "
    f"import eagerflow as ef; {USE}",
    "late": f"import eagerflow as ef\nx = ef.ones((2, 3))\ndef f():\n    import einops; {USE}\nf()",
    "layers first": "from eagerflow.einops.layers import Reduce; import einops; "
    f"import eagerflow as ef; {USE}",
    "twice": "import eagerflow as ef, einops, sys\nfor name in [n for n in sys.modules if "
    f"n.startswith('einops')]: del sys.modules[name]\nimport einops; {USE}",
    "threads": "import eagerflow as ef, threading, importlib\n"
    "ts = [threading.Thread(target=importlib.import_module, args=('einops',)) for _ in range(8)]\n"
    f"for t in ts: t.start()\nfor t in ts: t.join()\nimport einops; {USE}",
}


def run(program):
    root = pathlib.Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_imports(order, einops):
    assert run(ORDERS[order]) == "(3, 2)"


def test_einops_is_not_imported():
    assert run("import eagerflow, sys; print('einops' in sys.modules)") == "False"


def test_an_unknown_einops_is_left_alone(tmp_path):
    (tmp_path / "einops").mkdir()
    (tmp_path / "einops" / "__init__.py").write_text("from . import _backends\n")
    (tmp_path / "einops" / "_backends.py").write_text("other = 1\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    program += "import eagerflow, einops; print(einops._backends.other)"
    assert run(program) == "1"
