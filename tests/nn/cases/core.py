"""Dense, and layers without weights that have always been there."""

from tests.nn.cases import case


def dense(weights, x):
    kernel, bias = weights
    return x @ kernel + bias


CASES = [
    case("Dense", 3, _reference=dense),
    case("Dense", 3, activation="tanh", use_bias=False, inputs=[(2, 5, 4)]),
    case("Dense", 3, kernel_regularizer="l2", bias_regularizer="l1"),
    case("Flatten", inputs=[(2, 3, 4)], _reference=lambda weights, x: x.reshape(2, 12)),
    case("Reshape", (2, -1), inputs=[(3, 4)], _reference=lambda w, x: x.reshape(3, 2, 2)),
]
