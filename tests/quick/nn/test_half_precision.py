"""Layers under the policy mixed_bfloat16: they compute in bfloat16, their weights stay float32."""

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.cases import Case, activation, einsum_dense, masking, merging, noise, normalization
from tests.nn.test_cases import made, run

MODULES = activation, einsum_dense, masking, merging, noise, normalization
# Without gradients means too steep, also for rounding; layers within have policies of theirs.
CASES = [
    row
    for module in MODULES
    for row in module.CASES
    if row.gradients and not any(isinstance(x, Case) for x in row.args)
]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.id)
def test_mixed_bfloat16(row):
    full, inputs = made(row)
    wanted = run(row, full, inputs, training=False)
    mixed = getattr(ef.nn, row.cls)(*row.args, **row.kwargs, dtype="mixed_bfloat16")
    run(row, mixed, inputs)
    mixed.set_weights(full.get_weights())
    found = run(row, mixed, inputs, training=False)
    assert found.dtype == ef.bfloat16
    np.testing.assert_allclose(found.astype("float32"), wanted, rtol=0.05, atol=0.05)
    with ef.GradientTape() as tape:
        outputs = run(row, mixed, inputs, training=True)
        loss = ef.sum(outputs * outputs)
    assert outputs.dtype == ef.bfloat16
    gradients = tape.gradient(loss, mixed.trainable_weights, unconnected="zero")
    for weight, gradient in zip(mixed.trainable_weights, gradients, strict=True):
        assert weight.dtype == gradient.dtype == ef.float32
