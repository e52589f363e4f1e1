"""The base of metrics: a state of Variables, and a result computed from it."""

from __future__ import annotations

from typing import Any, TypedDict

from eagerflow import ops
from eagerflow.dtypes import DType, as_dtype
from eagerflow.errors import ArgumentError
from eagerflow.nn import initializers
from eagerflow.nn.configured import Configured, arguments, snake_case
from eagerflow.nn.losses.loss import Precision
from eagerflow.ops.absent import explain
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.ops.other_names import table
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, assign_together

__all__ = ["Metric", "MetricOptions", "ratio"]


class MetricOptions(TypedDict, total=False):
    """The arguments that every metric takes, for the signatures of its subclasses."""

    name: str | None
    dtype: Precision


class Metric(Configured):
    """Base of metrics: ``update_state`` adds a batch, ``result`` returns the number so far.

    A subclass creates its state with ``add_variable``; ``reset_state`` resets it to zero. ``dtype``
    is that of the state; None is float32.

    >>> class Count(ef.nn.metrics.Metric):
    ...     def __init__(self, name="count"):
    ...         super().__init__(name)
    ...         self.count = self.add_variable(name="count")
    ...     def update_state(self, y_true, y_pred, sample_weight=None):
    ...         self.count.assign_add(len(y_true))
    ...     def result(self):
    ...         return self.count.value
    >>> count = Count()
    >>> count.update_state([1, 2, 3], None)
    >>> count.result()
    Tensor(3., float32, cpu:0)
    """

    name: str
    dtype: DType
    _default_dtype = "float32"

    @arguments
    def __init__(self, name: str | None = None, dtype: Precision = None) -> None:
        self.name = name or snake_case(type(self).__name__)
        self.dtype = self.dtype or as_dtype(self._default_dtype)
        self.variables: list[Variable] = []

    def add_variable(
        self,
        shape: Sizes = (),
        initializer: Any = "zeros",
        dtype: DTypeLike = None,
        name: str | None = None,
    ) -> Variable:
        """A piece of state of this shape, in the metric's dtype if no other is given."""
        value = initializers.get(initializer)(shape, dtype or self.dtype)
        made = Variable(value, f"{self.name}/{name or 'state'}", trainable=False)
        made.aggregation = "sum"
        self.variables.append(made)
        return made

    add_weight = add_variable

    def reset_state(self) -> None:
        """Forget all batches."""
        assign_together({v: ops.zeros(v.shape, v.dtype, str(v.device)) for v in self.variables})

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Take in a batch; every subclass has its own."""
        raise ArgumentError("the class does not define update_state", op=type(self).__name__)

    def result(self) -> Tensor:
        """The number so far; every subclass has its own."""
        raise ArgumentError("the class does not define result", op=type(self).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        self.update_state(*args, **kwargs)
        return self.result()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def ratio(x: Any, y: Any) -> Any:
    """``x / y``, and 0 where ``y`` is 0."""
    empty = ops.equal(y, 0.0)
    return ops.where(empty, 0.0, x / ops.where(empty, 1.0, y))


explain(Metric, table("Metric"))
