"""Networks whose images have channels first: one transpose is left, of the images."""

import numpy as np

from tests.onnx.reading.models import agree, imported, parsed, weights

BLOCK = """
net (float[n, 3, 8, 8] x, float[4, 3, 3, 3] w1, float[4] scale, float[4] bias, float[4] mean,
     float[4] variance, float[4, 4, 3, 3] w2, float[4] b2) => (float[n, 8] y)
{
    c = Conv <pads = [1, 1, 1, 1]> (x, w1)
    h = BatchNormalization (c, scale, bias, mean, variance)
    r = Relu (h)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    d = Conv <pads = [1, 1, 1, 1]> (p, w2, b2)
    e = Add (d, p)
    k = Concat <axis = 1> (e, d)
    s = Softmax <axis = 1> (k)
    g = GlobalAveragePool (s)
    y = Flatten (g)
}
"""


def test_transposes_of_convolutions_meet(rng):
    values = {
        "w1": weights(rng, 4, 3, 3, 3),
        **{name: rng.random(4).astype("float32") for name in ("scale", "bias", "mean", "b2")},
        "variance": 1 + rng.random(4).astype("float32"),
        "w2": weights(rng, 4, 4, 3, 3),
    }
    x = weights(rng, 2, 3, 8, 8)
    graph = imported(parsed(BLOCK), values=values).optimized()
    transposes = [node for node in graph.nodes if node.op.name == "permute_dims"]
    assert [node.inputs[0].name for node in transposes] == ["x"]
    bound = agree(parsed(BLOCK), x=x, **values)  # in ONNX's own evaluator
    found, wanted = graph(x)["y"], bound(x=x, **values)["y"]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
