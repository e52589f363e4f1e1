"""Jobs run on arrays like those that they were made for, and refuse all others."""

import pickle

import numpy as np
import pytest

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.layout import like
from eagerflow.codegen.llvm.jobs import LayoutError

if not kernel.has_segments():
    pytest.skip("no machine code, or arrays do not lie open", allow_module_level=True)

OTHER = np.dtype("f4").newbyteorder()


@pytest.fixture
def call():
    """What doubles 100 numbers."""
    builder = Builder("double", "n")
    x = builder.input("x", "float32", "n")
    builder.output("y", builder.add(x, x), "float32", "n")
    x, y = np.ones(100, "f4"), np.zeros(100, "f4")
    return kernel.fixed_call(builder.region(), [x], [y], {"n": 100}, like(x, y))


def arrays(x=None, y=None):
    x = np.arange(100, dtype="f4") if x is None else x
    return x, np.zeros(100, "f4") if y is None else y


@pytest.mark.parametrize("given", [
    arrays(np.arange(100, dtype="i4")),
    arrays(np.arange(100, dtype=OTHER)),
    arrays(np.arange(100, dtype="f8")[:50].view("f4").astype("f8")),
    arrays(np.arange(200, dtype="f4")[::2]),
    arrays(y=np.zeros(100, "i4")),
    arrays(y=np.zeros(100, OTHER)),
    arrays(y=np.zeros(200, "f4")[::2]),
    arrays(np.ma.array(np.ones(100, "f4"))),
    arrays(7),
])  # fmt: skip
def test_others_are_refused_before_anything_runs(call, given):
    x, y = given
    assert call([x], [y]) == 1
    job = call.new_job()
    with pytest.raises(LayoutError):
        job.fill([x, y])
    assert job.arrays == ()
    assert not y.any()


def test_the_same_dtype_may_be_another_object(call):
    """An array that comes out of a pickle has a dtype of its own."""
    x, y = arrays()
    for same in (x, pickle.loads(pickle.dumps(x)), x.view(np.dtype("f4", metadata={"a": 1}))):
        y[:] = 0
        assert call([same], [y]) == 0
        np.testing.assert_array_equal(y, 2 * x)
