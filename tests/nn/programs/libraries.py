"""The two libraries that programs are run with."""

import contextlib
from types import SimpleNamespace

import numpy as np

import eagerflow as ef
from tests.nn.peers import torch

_OPS = {
    "concatenate": "concat",
    "cast": "astype",
    "transpose": "permute_dims",
    "absolute": "abs",
    "cumsum": "cumulative_sum",
    "convert_to_tensor": "asarray",
}


class _Ops:
    """``keras.ops``; where the standard of arrays has other names, these."""

    def __getattr__(self, name):
        return getattr(ef, _OPS.get(name, name))

    shape = staticmethod(lambda x: x.shape)
    norm = staticmethod(lambda x, axis: ef.linalg.vector_norm(x, axis=axis))


class _Library:
    def start(self, model):
        """Give the weights of a model values that depend on their shapes and order alone."""
        rng = np.random.default_rng(7)
        for weight in model.weights:
            name, shape = weight.name.split("/")[-1], tuple(weight.shape)
            if name in ("mean", "variance", "count"):  # of Normalization: its statistics
                continue
            if "variance" in name:
                weight.assign(rng.uniform(0.5, 1.5, shape).astype("float32"))
            else:
                weight.assign((0.4 * rng.normal(size=shape)).astype("float32"))
        return model


class Eagerflow(_Library):
    """eagerflow under the names of Keras."""

    ending = ".ef"
    ops = _Ops()
    saving = SimpleNamespace(
        register_keras_serializable=lambda package: lambda cls: cls,
        load_model=ef.nn.load_model,
    )
    models = SimpleNamespace(
        clone_model=ef.nn.clone_model,
        load_model=ef.nn.load_model,
        model_from_json=ef.nn.model_from_json,
    )

    def __getattr__(self, name):
        return getattr(ef.nn, name)

    def gradients(self, function, variables):
        """The value of ``function()`` and its gradients."""
        with ef.GradientTape() as tape:
            value = function()
        return value, tape.gradient(value, variables, unconnected="zero")

    def input_gradient(self, function, x):
        """The gradient of ``function(x)``, a tensor of the shape of ``x``."""
        return ef.grad(function)(x if isinstance(x, ef.Tensor) else ef.tensor(x))

    def from_batches(self, batches):
        """An object that is indexed by the number of a batch, as ``fit`` takes it."""
        return ef.nn.Loader(batches, batch_size=None)


class Keras(_Library):
    """Keras, on PyTorch."""

    ending = ".keras"

    def __init__(self, keras):
        self.keras = keras

    def __getattr__(self, name):
        return getattr(self.keras, name)

    def gradients(self, function, variables):
        value = function()
        sources = [v.value for v in variables]
        found = torch.autograd.grad(value, sources, allow_unused=True, materialize_grads=True)
        return value.detach(), found

    def input_gradient(self, function, x):
        x = torch.as_tensor(x).requires_grad_()
        return torch.autograd.grad(function(x), x, create_graph=True)[0]

    def from_batches(self, batches):
        class Dataset(self.keras.utils.PyDataset):
            def __len__(self):
                return len(batches)

            def __getitem__(self, index):
                return batches[index]

        return Dataset()


@contextlib.contextmanager
def policy(keras, name):
    """Layers that are made meanwhile have this policy of dtypes."""
    where = keras if isinstance(keras, Eagerflow) else keras.config
    before = where.dtype_policy()
    where.set_dtype_policy(name)
    try:
        yield
    finally:
        where.set_dtype_policy(before)
