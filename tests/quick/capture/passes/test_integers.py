"""Convolutions and products of dequantized numbers: those of integers give the same values."""

import itertools

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.graph.run import evaluate

RNG = np.random.default_rng(4)


def drawn(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def check(f, x, op):
    """Compare a function of an image or a matrix with its graph that has an op of integers."""
    graph = ef.capture.trace(f, ef.TensorSpec(x.shape, x.dtype.name))
    changed = graph.optimized(final=True)
    assert [node.op.name for node in changed.nodes].count(op) == 1
    (wanted,), _ = evaluate(graph, [ef.tensor(x)])
    (found,), _ = evaluate(changed, [ef.tensor(x)])
    np.testing.assert_allclose(
        found.numpy(), wanted.numpy(), 1e-4, 1e-4 * abs(wanted.numpy()).max()
    )


@pytest.mark.parametrize("padding", ["same", "valid", ((1, 0), (2, 3))], ids=str)
@pytest.mark.parametrize("strides", [1, 2, (2, 3)], ids=str)
def test_convolutions(strides, padding):
    w, scale = drawn("int8", 3, 2, 2, 3), np.array([0.5, 0.25, 2.0], "f4")
    for dilation, (zero, dtype), size in itertools.product(
        (1, 2), ((None, "int8"), (-5, "int8"), (130, "uint8")), ((7, 6), (8, 9))
    ):
        zeros = () if zero is None else (ef.tensor(zero, dtype),)

        def f(x, zeros=zeros, dilation=dilation):
            x, kernel = ef.dequantize(x, 0.1, *zeros), ef.dequantize(ef.tensor(w), scale)
            return ef.conv(x, kernel, strides=strides, padding=padding, dilation=dilation)

        check(f, drawn(dtype, 1, *size, 2), "integer_conv")


@pytest.mark.parametrize("zero", [None, 3, [[3], [-2], [100]]], ids=str)
@pytest.mark.parametrize("scale", [0.5, [[0.5, 0.25, 2.0, 1.0]]], ids=str)
def test_products(zero, scale):
    w = drawn("int8", 5, 4)
    zeros = () if zero is None else (ef.tensor(zero, "int8"),)

    def f(x):
        return ef.dequantize(x, 0.1, *zeros) @ ef.dequantize(ef.tensor(w), ef.tensor(scale))

    check(f, drawn("int8", 3, 5), "integer_matmul")
