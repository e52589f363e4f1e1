"""Order between values without a data dependency."""

from __future__ import annotations

from typing import Any

from eagerflow.op import Cost, Missing
from eagerflow.ops.family import ANY, define
from eagerflow.spec import TensorSpec


@define(
    "communication",
    views="some",
    dtypes=ANY,
    together=(),
    infer=lambda x, other: TensorSpec(x.shape, x.dtype),
    vjp=(lambda g, y, x, other: g, None),
    jvp=lambda tangents, y, x, other: tangents[0],
    batch=Missing("it orders the tasks of a graph, which are not computed for each example"),
    split=Missing("it orders whole tasks"),
    cost=lambda x, other: Cost(0, 0),
    onnx=lambda w, x, other: x,
)
def after(xp: Any, x: Any, other: Any, /) -> Any:
    """The values of ``x``, available only after ``other``.

    ``x`` and ``other`` are tensors. Readers of the result wait for both; so the order of parts is a
    property of the graph, on any devices.

    >>> after(ef.tensor([1.0, 2.0]), ef.tensor(3))
    Tensor([1., 2.], float32, cpu:0)
    """
    return x
