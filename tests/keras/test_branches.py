"""The patches to Keras's tests that make their branches for JAX ours, and no others."""

import ast
import importlib.util
import pathlib

import numpy as np
import pytest

from eagerflow.keras.sparse import SparseTensor
from tests.keras import branches, in_jax

SPARSE = """
if backend.backend() == "tensorflow":
    import tensorflow as tf
elif backend.backend() == "jax":
    import jax
    import jax.experimental.sparse as jax_sparse
    x = jax_sparse.BCOO(parts, shape=shape)
"""
GRADIENTS = """
@pytest.mark.skipif(backend.backend() not in ("jax", "torch"), reason="no `custom_gradient`")
def test_it():
    if backend.backend() == "jax":
        import jax
        y = jax.grad(f)(x)
"""
ALONE = """
@pytest.mark.skipif(backend.backend() not in ("jax", "torch"), reason="no flash attention")
def test_it():
    if backend.backend() == "jax":
        import jax
        jax.devices()
    assert backend.backend() != "jax"
    table = {"jax": 1, "other": 2}
"""


def changed(text):
    tree, count = branches.changed(ast.parse(text))
    return ast.unparse(tree), count


def test_branches_that_make_sparse_tensors_are_ours():
    text, count = changed(SPARSE)
    assert count == 1
    assert "elif backend.backend() in ('jax', 'eagerflow'):" in text
    assert "from tests.keras.in_jax import jax as jax" in text
    assert "from tests.keras.in_jax import sparse as jax_sparse" in text
    assert "if backend.backend() == 'tensorflow':\n    import tensorflow as tf" in text


def test_tests_of_gradients_are_not_skipped_and_take_ours():
    text, count = changed(GRADIENTS)
    assert count == 2
    assert "not in ('jax', 'torch', 'eagerflow')" in text
    assert "if backend.backend() in ('jax', 'eagerflow'):" in text


def test_tables_of_backends_have_ours():
    text, count = changed("{'tensorflow': 'CPU:0', 'jax': 'cpu:0'}")
    assert (text, count) == ("{'tensorflow': 'CPU:0', 'jax': 'cpu:0', 'eagerflow': 'cpu:0'}", 1)


def test_all_else_stays():
    assert changed(ALONE) == (ast.unparse(ast.parse(ALONE)), 0)


@pytest.mark.parametrize(
    ("module", "count"),
    [
        ("testing.test_case", 2),
        ("ops.numpy_test", 8),
        ("ops.core_test", 4),
        ("optimizers.optimizer_sparse_test", 2),
        ("trainers.trainer_test", 2),
        ("quantizers.quantizers_test", 2),
        ("losses.losses_test", 0),
    ],
)
def test_the_places_in_keras_are_those_that_are_known(module, count):
    path = pathlib.Path(importlib.util.find_spec(f"keras.src.{module}").origin)
    assert changed(path.read_text())[1] == count


def test_jax_replacement():
    whole = np.zeros((2, 3, 4), "float32")
    whole[[0, 0, 1], [1, 2, 0], [3, 0, 1]] = 1, 2, 3
    same = [
        in_jax.sparse.BCOO.fromdense(whole, n_batch=1),
        in_jax.sparse.BCOO(([1.0, 2, 3], [[0, 1, 3], [0, 2, 0], [1, 0, 1]]), shape=(2, 3, 4)),
        in_jax.sparse.BCOO(
            ([[1.0, 2], [3, 0]], [[[1, 3], [2, 0]], [[0, 1], [0, 0]]]), shape=(2, 3, 4)
        ),
    ]
    for x in same:
        np.testing.assert_array_equal(x.to_dense().numpy(), whole)
    every_row = in_jax.sparse.BCOO(([[1.0, 2.0]], [[[0], [2]]]), shape=(2, 3))
    assert every_row.to_dense().tolist() == [[1, 0, 2], [1, 0, 2]]
    x = in_jax.sparse.random_bcoo(0, (4, 5), dtype="float32", nse=0.25)
    assert isinstance(x, SparseTensor) and x.values.shape == (5,)
    assert in_jax.jax.grad(lambda x: x * x)(in_jax.jax.numpy.array(3.0)).item() == 6.0
