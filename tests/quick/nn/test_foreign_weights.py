"""Weights of Keras and PyTorch: the model computes what theirs does, and misfits are named."""

import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, FileFormatError, MissingExtraError
from eagerflow.nn import foreign_weights as others
from tests.nn.peers import keras_on_torch, numbers, torch

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def keras():
    pytest.importorskip("h5py", reason="h5py is not installed")
    return keras_on_torch()


def image_network(nn):
    """A model with models in it, layers twice and names of its own; of Keras or of ours."""
    x = nn.Input((8, 8, 3))
    convolution = nn.Conv2D(4, 3, padding="same", name="mine")
    h = nn.BatchNormalization()(convolution(x))
    h = nn.MaxPooling2D(2)(nn.Conv2D(6, 3, activation="relu")(h))
    inner = nn.Sequential([nn.Input((3, 3, 6)), nn.Flatten(), nn.Dense(5), nn.Dense(4)])
    h = nn.LayerNormalization()(inner(h))
    other = nn.Input((4,))
    head = nn.Model(other, nn.Dense(3)(nn.Dense(7)(other)))
    return nn.Model(x, head(h))


class Names:
    """Keras's layers and models under one roof, as they are in ``ef.nn``."""

    def __init__(self, keras):
        self.__dict__.update({**vars(keras.layers), **vars(keras)})


def randomized(model):
    for w in model.weights:
        positive = "variance" in w.path
        values = RNG.uniform(0.5, 1.5, w.shape) if positive else RNG.normal(size=w.shape)
        w.assign(values.astype("float32"))
    return model


def test_a_model_of_keras(keras, tmp_path):
    path = tmp_path / "model.weights.h5"
    theirs = randomized(image_network(Names(keras)))
    theirs.save_weights(path)
    x = RNG.normal(size=(2, 8, 8, 3)).astype("float32")
    for ours in (image_network(ef.nn), image_network(ef.nn)):
        assert not any(ours.load_weights(path))
        np.testing.assert_allclose(ours.predict(x), theirs.predict(x, verbose=0), 1e-4, 1e-5)
    small = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(5)])
    with pytest.raises(FileFormatError, match=r"layers/conv2d/vars/0"):
        small.load_weights(path)


def test_a_subclass_of_keras(keras, tmp_path):
    def made(nn):
        class Own(nn.Model):
            def __init__(self):
                super().__init__()
                self.first = nn.Dense(3)
                self.blocks = [nn.Dense(5), nn.Dense(3)]
                self._last = nn.Dense(1)

            def call(self, inputs):
                h = self.first(inputs)
                for block in self.blocks:
                    h = block(h)
                return self._last(h)

        return Own()

    x = RNG.normal(size=(2, 4)).astype("float32")
    theirs, ours = made(Names(keras)), made(ef.nn)
    theirs(x), ours(x)
    randomized(theirs).save_weights(tmp_path / "own.weights.h5")
    assert not any(ours.load_weights(tmp_path / "own.weights.h5"))
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x, verbose=0), 1e-5, 1e-5)


def test_layers_of_other_parts_are_in_their_order(keras, tmp_path):
    """The arrays of layers with layers in them come in the order of Keras's own weights."""
    layers, x = keras.layers, keras.Input((6, 8))
    h = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    h = layers.Dropout(0.5)(layers.MultiHeadAttention(2, 4)(h, h))
    theirs = randomized(keras.Model(x, layers.GRU(5)(layers.TimeDistributed(layers.Dense(3))(h))))
    theirs.save_weights(tmp_path / "model.weights.h5")

    class Flat(ef.nn.Layer):
        def __init__(self, shapes):
            super().__init__()
            for shape in shapes:
                self.add_weight(shape)

    for layer in theirs.layers:
        own = [w for w in layer.weights if "seed" not in w.path]
        cls = type(layer.__class__.__name__, (Flat,), {})
        ours = ef.nn.Sequential([cls([w.shape for w in own])])
        if own:
            found = ours.load_weights(tmp_path / "model.weights.h5", strict=False)
            assert not found.missing and not found.reshaped
            for a, b in zip(ours.get_weights(), own, strict=True):
                np.testing.assert_array_equal(a, np.asarray(b))


def test_files_that_are_none(tmp_path, monkeypatch):
    model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2)])
    path = tmp_path / "model.weights.h5"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "h5py", None)
        with pytest.raises(MissingExtraError, match=r"(?s)h5py.*eagerflow\[keras-weights\]"):
            model.load_weights(path)
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with pytest.raises(FileFormatError, match="cannot be read"):
        model.load_weights(path)
    path.write_bytes(b"no HDF5")
    with pytest.raises(FileFormatError, match="cannot be read"):
        model.load_weights(path)
    with h5py.File(path, "w") as file, h5py.File(tmp_path / "secret.h5", "w") as secret:
        secret["secret"] = np.ones((4, 2), "float32")
        own = file.create_group("layers/dense/vars")
        own["0"] = h5py.ExternalLink("secret.h5", "/secret")
        own.create_dataset("1", shape=(10**12,), dtype="float32")
    with pytest.raises(FileFormatError, match=r"dense/bias.*\(1000000000000,\) for"):
        model.load_weights(path)
    with h5py.File(path, "w") as file:
        outside = [(str(tmp_path / "secret.h5"), 0, 32)]
        file.create_dataset("layers/dense/vars/0", (4, 2), "float32", external=outside)
    with pytest.raises(FileFormatError, match="outside of the file"):
        model.load_weights(path)


# PyTorch ------------------------------------------------------------------------------------------


def fresh(module, *shape):
    """A module with random state of every kind, in inference, and an input for it."""
    for name, tensor in module.state_dict().items():
        if "num_batches" not in name:
            values = RNG.uniform(0.2, 1.0, tuple(tensor.shape)).astype("float32")
            tensor.copy_(torch.from_numpy(values))
    return module.eval(), RNG.normal(size=shape).astype("float32")


def outputs(module, x):
    with torch.no_grad():
        found = module(torch.from_numpy(x))
    return (found[0] if isinstance(found, tuple) else found).numpy()


def images_first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def test_a_network_of_torch(tmp_path):
    nn = torch.nn
    parts = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3)]
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(4), nn.Linear(4, 2)]
    theirs, x = fresh(nn.Sequential(*parts), 2, 8, 8, 3)
    ours = ef.nn.Sequential(
        [
            ef.nn.Input((8, 8, 3)),
            ef.nn.Conv2D(4, 3, padding="same"),
            ef.nn.BatchNormalization(epsilon=1e-5),
            ef.nn.Activation("relu"),
            ef.nn.Conv2D(4, 3),
            ef.nn.GlobalAveragePooling2D(),
            ef.nn.LayerNormalization(epsilon=1e-5),
            ef.nn.Dense(2),
        ]
    )
    right = outputs(theirs, images_first(x))
    ef.nn.from_torch(ours, theirs.state_dict())
    np.testing.assert_allclose(ours.predict(x), right, 1e-4, 1e-4)
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    again = ours.clone()
    names = {"conv2d": "0", "batch_normalization": "1", "conv2d_1": "3"}
    names |= {"layer_normalization": "6", "dense": "7"}
    ef.nn.from_torch(again, tmp_path / "theirs.safetensors", names)
    np.testing.assert_allclose(again.predict(x), right, 1e-4, 1e-4)


TORCH_LAYERS = [
    ("Linear", (4, 3), {}, "Dense", (3,), (2, 4)),
    ("Conv1d", (4, 6, 3), {"groups": 2}, "Conv1D", (6, 3), (2, 8, 4)),
    ("Conv2d", (4, 6, 3), {}, "Conv2D", (6, 3), (2, 8, 7, 4)),
    ("Conv3d", (4, 6, 2), {}, "Conv3D", (6, 2), (2, 4, 5, 3, 4)),
    ("ConvTranspose1d", (4, 6, 3), {}, "Conv1DTranspose", (6, 3), (2, 8, 4)),
    ("ConvTranspose2d", (4, 6, 3), {}, "Conv2DTranspose", (6, 3), (2, 8, 7, 4)),
    ("Conv2d", (4, 8, 3), {"groups": 4}, "DepthwiseConv2D", (3,), (2, 8, 7, 4)),
    ("Embedding", (7, 3), {}, "Embedding", (7, 3), None),
    ("LSTM", (4, 3), {"batch_first": True}, "LSTM", (3,), (2, 5, 4)),
    ("GRU", (4, 3), {"batch_first": True}, "GRU", (3,), (2, 5, 4)),
    ("RNN", (4, 3), {"batch_first": True}, "SimpleRNN", (3,), (2, 5, 4)),
    ("LSTM", (4, 3), {"batch_first": True, "bidirectional": True}, "Bidirectional", (), (2, 5, 4)),
    ("MultiheadAttention", (6, 2), {"batch_first": True}, "MultiHeadAttention", (2, 3), (2, 5, 6)),
]


def arguments_of(cls):
    sequences = {"return_sequences": True}
    found = dict.fromkeys(("LSTM", "GRU", "SimpleRNN"), sequences)
    found |= {"Conv1D": {"groups": 2}, "DepthwiseConv2D": {"depth_multiplier": 2}}
    return found.get(cls, {})


@pytest.mark.parametrize("row", TORCH_LAYERS, ids=lambda row: f"{row[0]}-{row[3]}")
@pytest.mark.parametrize("library", ["ours", "keras"])
def test_a_layer_of_torch(row, library, request):
    """Also with Keras's layer of the name, whose weights ours has, where ours is not there."""
    name, args, kwargs, cls, own, shape = row
    roof = ef.nn if library == "ours" else request.getfixturevalue("keras").layers
    if not hasattr(roof, cls):
        pytest.skip(f"there is no {cls}")
    theirs, x = fresh(getattr(torch.nn, name)(*args, **kwargs), *(shape or ()))
    if cls == "Embedding":
        x = np.array([[1, 3], [0, 6]])
    if cls == "Bidirectional":
        layer = roof.Bidirectional(roof.LSTM(3, return_sequences=True))
    else:
        layer = getattr(roof, cls)(*own, **arguments_of(cls))
    several = (x, x) if cls == "MultiHeadAttention" else (x,)
    layer(*several)
    if library == "ours":
        ef.nn.from_torch(layer, theirs.state_dict())
    else:
        arrays = {k: v.numpy() for k, v in theirs.state_dict().items()}
        (group,) = others.torch_modules(arrays).values()
        layer.set_weights(others.CONVERTERS[cls](layer, group))
    given = images_first(x) if "Conv" in cls else x
    if name == "MultiheadAttention":
        with torch.no_grad():
            right = theirs(*[torch.from_numpy(x)] * 3)[0].numpy()
    else:
        right = outputs(theirs, given)
    found = numbers(layer(*several))
    right = np.moveaxis(right, 1, -1) if "Conv" in cls else right
    np.testing.assert_allclose(found, right, 1e-4, 1e-4)


def test_a_stack_of_recurrent_layers():
    arrays = {f"lstm.weight_{k}_l{i}": np.zeros((8, 2)) for i in range(2) for k in ("ih", "hh")}
    arrays["fc.weight"] = np.zeros((1, 2))
    assert {k: list(v) for k, v in others.torch_modules(arrays).items()} == {
        "lstm.l0": ["weight_ih", "weight_hh"],
        "lstm.l1": ["weight_ih", "weight_hh"],
        "fc": ["weight"],
    }


def two_layers():
    layers = [ef.nn.Input((4,)), ef.nn.Dense(3, name="a"), ef.nn.Dense(2, name="b")]
    return ef.nn.Sequential(layers)


def state_of(*shapes):
    found = {}
    for i, (rows, columns) in enumerate(shapes):
        found[f"{i}.weight"], found[f"{i}.bias"] = np.ones((rows, columns)), np.ones(rows)
    return found


@pytest.mark.parametrize(
    "shapes, mapping, error, words",
    [
        (((3, 4),), None, ArgumentError, "layers without a module: b"),
        (((3, 4), (2, 3), (1, 2)), None, ArgumentError, "weights without a layer: 2.weight"),
        (((3, 4), (2, 3)), {"a": "0"}, ArgumentError, "without a module: b.*a layer: 1.weight"),
        (((3, 4), (2, 3)), {"a": "0", "c": "9"}, ArgumentError, "unknown: c, 9"),
        (((3, 4), (3, 2)), None, FileFormatError, r"b/kernel: \(2, 3\) for \(3, 2\)"),
    ],
)
def test_mismatched_weights_are_named(shapes, mapping, error, words):
    model = two_layers()
    before = [a.tobytes() for a in model.get_weights()]
    with pytest.raises(error, match=f"(?s){words}"):
        ef.nn.from_torch(model, state_of(*shapes), mapping)
    assert [a.tobytes() for a in model.get_weights()] == before


def test_other_misfits():
    state = state_of((3, 4), (2, 3))
    with pytest.raises(ArgumentError, match="'1' has no 'weight'"):
        ef.nn.from_torch(two_layers(), {k: v for k, v in state.items() if k != "1.weight"})
    with pytest.raises(FileFormatError, match="missing: b/bias"):
        ef.nn.from_torch(two_layers(), {k: v for k, v in state.items() if k != "1.bias"})
    with pytest.raises(ArgumentError, match="call the model first"):
        ef.nn.from_torch(ef.nn.Sequential([ef.nn.Dense(3)]), state)
    bare = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3, use_bias=False)])
    with pytest.raises(FileFormatError, match=r"extra: 0: \(3,\)"):
        ef.nn.from_torch(bare, state_of((3, 4)))
    own = two_layers()
    ef.nn.from_torch(own, {k: v[..., None].repeat(1, -1)[..., 0] for k, v in state.items()})
    assert own.get_weights()[0].tolist() == np.ones((4, 3)).tolist()
