"""EinsumDense, by equations of each form."""

import numpy as np

from tests.nn.cases import case


def by(equation, bias=None):
    """The definition, with NumPy's einsum; the bias has the axes that broadcast."""

    def reference(weights, x):
        found = np.einsum(equation, x, weights[0])
        return found + weights[1] if len(weights) > 1 else found

    return reference


def einsum(equation, output_shape, shape, **kwargs):
    return case(
        "EinsumDense", equation, output_shape, inputs=[shape], _reference=by(equation), **kwargs
    )


CASES = [
    einsum("ab,bc->ac", 3, (2, 4), bias_axes="c"),
    einsum("abc,cd->abd", (None, 3), (2, 5, 4), bias_axes="d"),
    einsum("abc,cd->abd", (5, 3), (2, 5, 4), bias_axes="bd"),
    einsum("abc,cde->abde", (None, 2, 3), (2, 5, 4), bias_axes="de", kernel_initializer="ones"),
    einsum("abcd,cde->abe", (None, 3), (2, 5, 4, 2)),
    einsum("abc,cbd->adb", (3, 5), (2, 5, 4), bias_axes="d"),
    einsum("...x,xy->...y", 3, (2, 5, 4), bias_axes="y"),
    einsum("...x,xyz->...yz", (2, 3), (2, 5, 4), bias_axes="yz"),
    einsum("...x,xy->...y", 3, (2, 4), bias_axes="y"),
    einsum("ab...,bc->ac...", 3, (2, 4, 5), bias_axes="c"),
    einsum("abc...,cd->abd...", (5, 3), (2, 5, 4, 3, 2), bias_axes="bd", bias_initializer="ones"),
    case("EinsumDense", "abc,cd->abd", (None, 3), "tanh", "d", inputs=[(2, 5, 4)]),
    case(
        "EinsumDense",
        "ab,bc->ac",
        3,
        bias_axes="c",
        kernel_regularizer="l2",
        bias_regularizer="l1",
        kernel_constraint="non_neg",
        bias_constraint="non_neg",
    ),
]
