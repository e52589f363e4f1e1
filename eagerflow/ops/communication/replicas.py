"""The mean over replicas: where the same step is made for several parts of a batch at once.

A captured step holds it as a mark. What runs the step on several devices puts sums over all of
them in its place (``cluster/replication.py``); where there is one replica, there is one value.
"""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import INEXACT
from eagerflow.errors import DTypeError
from eagerflow.op import Cost, ErrorSample, Missing, Sample
from eagerflow.ops.family import define
from eagerflow.ops.samples import values
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
    samples=lambda rng, dtype: [Sample((x,), {"share": 0.25}) for x in values(rng, dtype)],
    errors=lambda rng: [ErrorSample(("text",), {"share": 1.0}, DTypeError, "str")],
    reference=lambda x, share: x * x.dtype.type(share),
)
def replica_mean(xp: Any, x: Any, /, *, share: float) -> Any:
    """The sum over all replicas of a step of ``x * share``.

    ``x`` is a tensor of floats, of one shape on all replicas; ``share`` is what this replica's
    examples are of all, so that the result is the mean of all. Its gradient is the mean of the
    replicas' gradients. Raises DTypeError for what are no floats.

    >>> replica_mean(ef.tensor([2.0, 4.0]), share=1.0)
    Tensor([2., 4.], float32, cpu:0)
    """
    return x * xp.asarray(share, dtype=x.dtype)
