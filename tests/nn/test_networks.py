"""Networks of the literature: their sizes, and that each learns, is captured and saved."""

import numpy as np

import eagerflow as ef
from eagerflow.nn import networks


def same(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


def test_a_cache_generates_what_the_whole_sequence_does():
    ef.random.seed(0)
    model = networks.GPT(vocabulary=50, context=12, width=8, depth=2, heads=2)
    tokens = ef.tensor([[1, 2, 3], [4, 5, 6]])
    found = model.generate(tokens, 9, temperature=0)
    for _ in range(9):
        last = ef.argmax(model(tokens)[:, -1], axis=-1)
        tokens = ef.concat([tokens, last[:, None]], axis=1)
    assert found.tolist() == tokens.tolist()
