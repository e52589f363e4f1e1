"""The translator of ``examples/programs/seq2seq.py`` beside the same in PyTorch."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from examples.programs import seq2seq as program
from examples.programs.seq2seq import BEGIN, WIDTH
from examples.torch_twins.shared import Adam, copy_weights, trained


class Translator(nn.Module):
    """Logits of the next character of the translation."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(BEGIN + 1, 32)
        self.encoder = nn.LSTM(32, WIDTH, batch_first=True)
        self.decoder = nn.LSTM(32, WIDTH, batch_first=True)
        self.hidden, self.logits = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, BEGIN)

    def forward(self, source, shifted):
        memory, state = self.encoder(self.embedding(source))
        outputs, _ = self.decoder(self.embedding(shifted), state)
        seen = torch.softmax(outputs @ memory.mT, dim=-1) @ memory
        return self.logits(torch.tanh(self.hidden(torch.cat([outputs, seen], dim=-1))))


def ours(captured=True):
    """Train ours; yields losses."""
    return program.training(program.make_model(), captured)


def theirs(compiled=False):
    """Train PyTorch's; yields losses."""
    network = copy_weights(Translator(), program.make_model().weights)
    optimizer = Adam(trained(network), 3e-3)
    logits_of = torch.compile(network) if compiled else network
    for inputs, target in program.batches():
        optimizer.zero_grad()
        logits = logits_of(*map(torch.from_numpy, inputs))
        loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(target).flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(trained(network), 1.0)
        optimizer.step()
        yield loss
