"""An op states its formula once, in scalar instructions; which ops have another form, and why."""

import numpy as np
import pytest

from eagerflow.codegen import generated
from eagerflow.codegen.numpy.pointwise import on_numpy, whole
from eagerflow.op import ops
from tests.contract.cases import main_dtype, samples, shipped

# Beside the body for regions, these have a kernel that is another algorithm, or NumPy's own.
TWICE = {
    "adam_update": "several results, for which NumPy's steps are written one by one",
    "clip": "either bound may be left out",
    "log_softmax": "rows, in tiles of rows",
    "log_softmax_gradient": "rows, in tiles of rows",
    "logaddexp": "NumPy has it in one step",
    "momentum_update": "several results, for which NumPy's steps are written one by one",
    "multiply_no_nan": "NumPy's way looks for NaN first, which is hardly ever there",
    "positive": "the argument itself",
    "softmax": "rows, in tiles of rows",
    "softmax_gradient": "rows, in tiles of rows",
}

POINTWISE = [op for op in shipped() if op.scalar is op.kernel]


def test_formulas_stand_once():
    found = {op.name for op in shipped() if callable(op.scalar) and op.scalar is not op.kernel}
    assert found == TWICE.keys()
    assert len(POINTWISE) >= 26


def arguments(op):
    """Arrays for each sample of one shape, and its attributes."""
    for sample in samples(op, main_dtype(op)):
        arrays = np.broadcast_arrays(*(np.asarray(a, main_dtype(op)) for a in sample.args))
        yield arrays, dict(op.attributes, **sample.attributes)


@pytest.mark.parametrize("op", POINTWISE, ids=lambda op: op.name)
@pytest.mark.parametrize("tile", [False, True], ids=["whole", "tile"])
def test_programs_compute_what_the_body_says(op, tile):
    for arrays, attributes in arguments(op):
        with np.errstate(all="ignore"):
            wanted = whole(op.kernel)(np, *arrays, **attributes)
            flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
            before = [a.copy() for a in flat]
            out = np.full(flat[0].shape, np.nan, flat[0].dtype)
            generated.program(op.kernel, flat, attributes, tile)(*flat, out)
        near = 4 * np.finfo(out.dtype).eps
        np.testing.assert_allclose(out.reshape(wanted.shape), wanted, rtol=near, atol=near)
        assert all(map(np.array_equal, flat, before))


@pytest.mark.parametrize("size", [0, 1, 1_000, 5_000, 70_000])
def test_all_sizes_and_layouts(size):
    op = ops["silu_gradient"]
    kernel, general = on_numpy(op.kernel), whole(op.kernel)
    x, g = np.random.default_rng(0).standard_normal((2, 2 * size)).astype("float32")
    for a, b in ((x, g), (x[::2], g[::2]), (x[::-1], g), (x.reshape(2, -1).T, g.reshape(2, -1).T)):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(kernel(np, a, b), general(np, a, b), rtol=1e-5, atol=1e-6)


def test_planted_sharing_of_a_buffer_is_found(monkeypatch):
    """Where the output held what the last step still reads, results would be wrong."""
    from eagerflow.codegen.numpy.in_place import _FunctionWriter

    monkeypatch.setattr(_FunctionWriter, "_may_read_output", lambda self, last: True)

    def body(s, x):
        return s.select(s.greater(x, 0), s.exp(x), s.multiply(s.exp(x), x))

    x, out = np.array([1.0, -1.0, 2.0]), np.empty(3)
    generated.program(body, [x], {}, False)(x, out)
    assert not np.allclose(out, np.where(x > 0, np.exp(x), np.exp(x) * x))
