"""The bodies of ops as graphs, with eagerflow's own ops as the array library.

The body of an op uses functions of any array library. With eagerflow itself as the library,
under a trace, its calls become nodes: the body is the only definition of an op's parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from eagerflow import ops
from eagerflow.backends.base import Backend
from eagerflow.capture.trace import trace
from eagerflow.codegen.instructions import instructions
from eagerflow.convert import as_tensor
from eagerflow.dtypes import NARROW, STANDARD, DType
from eagerflow.errors import CaptureError, EagerflowError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.handlers import raised_here
from eagerflow.op import Op
from eagerflow.recorder import with_recorder
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor

_DTYPES = {dtype.name: dtype for dtype in STANDARD}


class OpsLibrary:
    """eagerflow's ops and dtypes by the names of the Array API standard."""

    inf, nan, pi, newaxis = math.inf, math.nan, math.pi, None

    def __getattr__(self, name: str) -> Any:
        if name in _DTYPES:
            return _DTYPES[name]
        return getattr(ops, name)

    @staticmethod
    def asarray(obj: Any, dtype: Any = None, copy: bool | None = None) -> Tensor:
        """An object that is a tensor already, or a constant."""
        return as_tensor(obj, dtype, None, copy)


class OpsBackend(Backend):
    """The array library of bodies, with ops as its functions."""

    name = "eagerflow"
    array_type = Tensor

    def __init__(self, library: OpsLibrary) -> None:
        self.xp = library

    def body(self, op: Op, dtype: DType, formula: Any = None) -> Callable[..., Any]:
        """A function that computes an op with others: its formula, ``formula``, or its kernel."""
        steps = op.scalar if callable(op.scalar) else formula
        if op.family != "elementwise" or steps is None:
            return self.bind(op, dtype)
        found = partial(steps, instructions(self.xp))
        return partial(self._through_float32, found, dtype) if dtype in NARROW else found


_OPS = OpsBackend(OpsLibrary())


def consists_of(node: Node) -> Graph:
    """A graph of the calls in the body of a node's op; its inputs are the node's Values.

    Raises CaptureError if the body needs the values of arrays.
    """
    names = node.op.data if len(node.op.data) == len(node.inputs) else None
    specs = [
        TensorSpec(x.shape, x.dtype, names[i] if names else f"x{i}")
        for i, x in enumerate(node.inputs)
        if type(x) is Value
    ]
    dtype = next(v.dtype for v in (*node.values(), *node.outputs))

    def body(*tensors: Any) -> Any:
        given = iter(tensors)
        args = [next(given) if type(x) is Value else x for x in node.inputs]
        try:
            made = _OPS.body(node.op, dtype)(*args, **node.attributes)
        except EagerflowError:
            raise
        except raised_here(Exception) as error:
            raise CaptureError(f"its body needs arrays: {error}", op=node.op.name) from error
        return tuple(made) if isinstance(made, list) else made

    graph: Graph = with_recorder(None, trace, body, *specs, name=node.op.name)
    return graph
