"""Means and rows over all replicas, for steps that run on several parts of a batch at once.

In a captured step they are markers. A run of the step on several devices replaces them by
collective operations (``cluster/replication.py``); with a single replica they are the identity.
"""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import INEXACT
from eagerflow.errors import ShapeError
from eagerflow.op import Cost, Missing
from eagerflow.ops.family import ANY, define
from eagerflow.ops.operands import whole_number
from eagerflow.spec import TensorSpec


@define(
    "communication",
    dtypes=INEXACT,
    infer=lambda x, share: TensorSpec(x.shape, x.dtype),
    vjp=(lambda g, y, x, share: replica_mean(g, share=share),),
    jvp="linear",
    batch=lambda args, batched, size, share: replica_mean(args[0], share=share),
    split=Missing("each replica makes a whole step"),
    cost=lambda x, share: Cost(x.size, 2 * x.size * x.dtype.itemsize),
    onnx=Missing("ONNX has no operators between machines; the step of one replica has none"),
)
def replica_mean(xp: Any, x: Any, /, *, share: float) -> Any:
    """The sum over all replicas of a step of ``x * share``.

    ``x`` is a tensor of floats, of one shape on all replicas; ``share`` is this replica's fraction
    of all examples, so that the result is the mean of all. Its gradient is the mean of the
    replicas' gradients. Raises DTypeError for other dtypes than floats.

    >>> replica_mean(ef.tensor([2.0, 4.0]), share=1.0)
    Tensor([2., 4.], float32, cpu:0)
    """
    return x * xp.asarray(share, dtype=x.dtype)


def _joined_spec(x: TensorSpec, rows: int) -> TensorSpec:
    """The spec of the rows of all replicas; ShapeError if one replica has more than all."""
    rows = whole_number(rows, "rows", 0)
    if not x.shape or x.shape[0] > rows:
        raise ShapeError(
            f"a part of {rows} rows cannot have the shape {x.shape}",
            op="replica_concat",
            argument="rows",
            received=str(rows),
            expected="as many rows as all replicas have",
        )
    return TensorSpec((rows, *x.shape[1:]), x.dtype)


def _with_zeros(xp: Any, x: Any, rows: int) -> Any:
    """The rows of one replica, and zeros for those of other replicas."""
    more = xp.zeros((rows - x.shape[0], *x.shape[1:]), dtype=x.dtype)
    return xp.concat([x, more])


@define(
    "communication",
    dtypes=ANY,
    infer=_joined_spec,
    vjp=Missing("one replica does not know which of the rows of all are its own"),
    jvp="linear",
    batch=Missing("each replica makes a whole step"),
    split=Missing("each replica makes a whole step"),
    cost=lambda x, rows: Cost(0, (x.size + rows) * x.dtype.itemsize),
    onnx=Missing("ONNX has no operators between machines; the step of one replica has none"),
)
def replica_concat(xp: Any, x: Any, /, *, rows: int) -> Any:
    """The rows of ``x`` of all replicas of a step, one replica after the other.

    ``x`` is a tensor, whose replicas differ only in the length of the first axis; ``rows`` is their
    total number of rows. A single replica is padded with zeros. Raises ShapeError if it has more
    rows than all, ArgumentError for an invalid ``rows``.

    >>> replica_concat(ef.tensor([2.0, 4.0]), rows=3)
    Tensor([2., 4., 0.], float32, cpu:0)
    """
    return x if x.shape[0] == rows else _with_zeros(xp, x, rows)
