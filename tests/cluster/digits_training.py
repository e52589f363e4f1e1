"""Training on scikit-learn's digits with a parameter server, here and in another process.

``python -m tests.cluster.digits_training`` reads from its input, as JSON, how many CPU devices
there are, how many workers, a seed, numbers of epochs and examples, and a strategy's options with
a schedule; it prints the digest of the bits that it has trained.
"""

import hashlib
import json
import sys

import numpy as np
from sklearn.datasets import load_digits

import eagerflow as ef

HELD_OUT = 357
BATCH = 32


def digits():
    """Images and labels to learn from, and those held out."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    x, y = (found.data[order] / 16).astype("float32"), found.target[order]
    return (x[HELD_OUT:], y[HELD_OUT:]), (x[:HELD_OUT], y[:HELD_OUT])


def network(seed, optimizer):
    ef.random.seed(seed)
    model = ef.nn.Sequential([ef.nn.Dense(32, activation="relu"), ef.nn.Dense(10)])
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, metrics=["accuracy"])
    return model


def server(workers, **options):
    """A strategy on this process's devices, of which the last one has the weights."""
    devices = [f"cpu:{i}" for i in range(workers)]
    return ef.cluster.ParameterServer(devices=devices, servers=[f"cpu:{workers}"], **options)


def fitted(seed, epochs, strategy=None, optimizer="sgd", examples=None):
    """A model that has seen all examples, or the first ones, so many times."""
    (x, y), _ = digits()
    model = network(seed, optimizer)
    more = {"verbose": 0, "strategy": strategy}
    model.fit(x[:examples], y[:examples], BATCH, epochs, **more)
    return model


def digest(model):
    """A digest of the bits of a model, of its optimizer and its metrics."""
    variables = *model.variables, *model.optimizer.variables
    found = hashlib.sha256()
    for variable in variables:
        found.update(variable.numpy().tobytes())
    found.update(json.dumps(model.logs()).encode())
    return found.hexdigest()


def main():
    asked = json.load(sys.stdin)
    ef.set_logical_devices("cpu", asked["devices"])
    strategy = server(asked["workers"], **asked["options"])
    training = asked["seed"], asked["epochs"], strategy, asked["optimizer"], asked["examples"]
    print(digest(fitted(*training)))


if __name__ == "__main__":
    main()
