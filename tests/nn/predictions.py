"""The networks of the literature as graphs that predict."""

import eagerflow as ef
from eagerflow import tree
from tests.nn.test_networks import ROWS


def prediction(name):
    """The graph of a network for any number of examples, and a batch as a list of tensors."""
    row = ROWS[name]
    ef.random.seed(0)
    model = row.make()
    x = tree.map_leaves(ef.tensor, row.x)
    model(x, training=False)  # makes the weights

    def free(t):
        return ef.TensorSpec(("n", *t.shape[1:]), t.dtype)

    specs = tree.map_leaves(free, x)
    graph = ef.capture.trace(lambda x: model(x, training=False), specs, name="network")
    return graph, tree.flatten(x)[0]
