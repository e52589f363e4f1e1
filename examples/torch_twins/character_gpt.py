"""The GPT of ``examples/programs/character_gpt.py`` beside the same in PyTorch."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from examples.programs import character_gpt as program
from examples.programs.character_gpt import CONTEXT, DEPTH, HEADS, WIDTH
from examples.torch_twins.shared import AdamW, copy_weights


class Block(nn.Module):
    """Attention and a perceptron."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = (nn.LayerNorm(WIDTH, eps=1e-3) for _ in range(2))
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.output_projection = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        parts = self.queries_keys_values(self.norm_1(x))
        q, k, v = parts.unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output_projection(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """Logits of the next token."""

    def __init__(self, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.logits = nn.LayerNorm(WIDTH, eps=1e-3), nn.Linear(WIDTH, vocabulary)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def ours(captured=True):
    """Train ours; yields losses."""
    tokens, characters = program.load_text()
    return program.training(program.make_model(len(characters)), tokens, captured)


def theirs(compiled=False):
    """Train PyTorch's; yields losses."""
    tokens, characters = program.load_text()
    weights = program.make_model(len(characters)).weights
    network = copy_weights(GPT(len(characters)), weights)
    optimizer = AdamW(network.parameters(), 3e-3, weight_decay=0.01)
    logits_of = torch.compile(network) if compiled else network
    for x, y in program.batches(tokens):
        optimizer.zero_grad()
        logits = logits_of(torch.from_numpy(x))
        loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(y).flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        yield loss
