"""One eager training step of the demo's network: forward, gradient, Adam; against PyTorch.

    python benchmarks/training_step.py [--rounds 15] [--json]

Same network, same weights, same batch of the digits, two threads. PyTorch runs as its own
documentation says for speed: channels_last, ``zero_grad(set_to_none=True)``, fused Adam where it
is faster.
"""

import harness
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import eagerflow as ef
from eagerflow.cli.demo import build_network

BATCH = 64
# Long enough that the threads of one library, which go on spinning for some 20 ms after their
# last matrix product, take little from the next one's time.
SECONDS = 0.5


class TorchNetwork(nn.Module):
    """The demo's network, in PyTorch."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding="same", bias=False),
            nn.BatchNorm2d(32, eps=1e-3, momentum=0.1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding="same", bias=False),
            nn.BatchNorm2d(64, eps=1e-3, momentum=0.1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(4 * 4 * 64, 10)

    def forward(self, x):
        # Flattened channels-last, as our weights are.
        return self.head(self.features(x).permute(0, 2, 3, 1).flatten(1))


def copy_weights(model, peer):
    """Give PyTorch the weights that our network starts from."""
    ours = [np.array(w.numpy()) for w in model.trainable_weights]
    with torch.no_grad():
        for parameter, value in zip(peer.parameters(), ours, strict=True):
            if value.ndim == 4:  # HWIO to OIHW
                value = value.transpose(3, 2, 0, 1)
            elif value.ndim == 2:
                value = value.T
            parameter.copy_(torch.tensor(np.ascontiguousarray(value)))


def our_step(model, x, labels):
    """A function that trains one step and returns the loss."""
    optimizer = ef.nn.optimizers.Adam(learning_rate=1e-3)
    x, labels = ef.tensor(x), ef.tensor(labels)

    def step():
        with ef.GradientTape() as tape:
            logits = model(x, training=True)
            loss = ef.mean(ef.sparse_softmax_cross_entropy(logits, labels))
        weights = model.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return step


def torch_step(peer, x, labels, fused):
    """The same in PyTorch."""
    peer = peer.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(peer.parameters(), lr=1e-3, eps=1e-7, fused=fused)
    images = torch.tensor(x).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    targets = torch.tensor(labels)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(peer(images), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    options = harness.arguments(__doc__)
    torch.set_num_threads(2)
    images, labels = load_digits(return_X_y=True)
    x = (images[:BATCH].reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    y = labels[:BATCH].astype(np.int64)
    ef.random.seed(0)
    model = build_network()
    # Without dropout, whose random numbers differ, both must compute the same.
    model.layers = [layer for layer in model.layers if not isinstance(layer, ef.nn.Dropout)]
    model(ef.tensor(x))
    contestants = {}
    for name, fused in (("PyTorch", False), ("PyTorch fused", True)):
        peer = TorchNetwork()
        copy_weights(model, peer)
        contestants[name] = torch_step(peer, x, y, fused)
    contestants = {"eagerflow": our_step(model, x, y)} | contestants
    losses = {who: [[step().item() for _ in range(5)]] for who, step in contestants.items()}
    harness.agree("losses of 5 steps", losses, 1e-4)
    rows = [
        harness.compare(
            f"step, batch {BATCH}, against {peer}",
            contestants,
            "eagerflow",
            peer,
            options.rounds,
            seconds=SECONDS,
            target=1.2,
        )
        for peer in ("PyTorch", "PyTorch fused")
    ]
    harness.report("eager training step of the demo's network (µs)", rows)
    if options.json:
        harness.save("training_step", rows, {"numpy": np.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
