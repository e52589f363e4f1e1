"""Symbolic tensors: they have a shape and a dtype, and refer to the node that computes them.

A call of an op on them is a new node, which refers to its inputs. Nothing else keeps them alive, so
unused ones are freed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from eagerflow.devices import SymbolicKind, current_device
from eagerflow.dims import Dim
from eagerflow.dispatch import check, user_frame
from eagerflow.dtypes import as_dtype
from eagerflow.errors import CaptureError
from eagerflow.graph.ir import Node, Value
from eagerflow.op import Op
from eagerflow.recorder import Recorder, process, recorder_state
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable
from eagerflow.visitors import Secluded

__all__ = ["VariableRead", "infer", "is_symbolic", "symbol", "symbols"]


class _Symbols(Recorder):
    """Returns symbolic tensors from calls on symbolic tensors; each refers to its node."""

    def __init__(self) -> None:
        self.kinds: dict[Any, SymbolicKind] = {}
        self._variables: WeakValueDictionary[int, VariableRead] = WeakValueDictionary()

    @property
    def is_open(self) -> bool:
        """Whether calls are answered so now: then bodies of loops and branches may take values."""
        recorder = recorder_state()[1]
        while recorder is not None and not isinstance(recorder, _Symbols):
            recorder = recorder.outer
        return recorder is not None

    def tensor(self, value: Value) -> Tensor:
        """The Tensor of a value."""
        key = current_device(), value.dtype
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds.setdefault(key, SymbolicKind(*key, self))
        return new_tensor(value, kind)

    def value_of(self, x: Any) -> Any:
        """The input of a node: the value of a tensor, or a number."""
        if type(x) is not Tensor:
            return x
        if type(x._array) is Value:
            return x._array
        return Value("constant", x.shape, x.dtype, self, constant=x)

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        specs = check(op, args, attributes)
        found = self.results(
            op, tuple([self.value_of(x) for x in args]), attributes, specs, op.name
        )
        return found if type(specs) is tuple else found[0]

    def results(
        self, op: Op, inputs: tuple[Any, ...], attributes: dict[str, Any], specs: Any, name: str
    ) -> tuple[Tensor, ...]:
        """The result of a new node, with these specs."""
        frame = user_frame(sys._getframe(1))
        node = Node(op, inputs, attributes, name, (frame.f_code, frame.f_lasti))
        several = specs if type(specs) is tuple else (specs,)
        node.outputs = tuple(
            Value(name if len(several) == 1 else f"{name}:{i}", s.shape, s.dtype, self, node, i)
            for i, s in enumerate(several)
        )
        return tuple([self.tensor(x) for x in node.outputs])

    def read(self, variable: Any) -> Tensor:
        read = self._variables.get(id(variable))
        if read is None or read.variable is not variable:
            read = self._variables[id(variable)] = VariableRead(variable)
        return self.tensor(Value(variable.name, variable.shape, variable.dtype, read))

    def assign(self, variable: Any, value: Any) -> None:
        raise CaptureError(
            f"{variable.name} cannot be assigned a symbolic value",
            hint="a Layer that assigns it in its call",
        )

    def emit(self, name: str, sink: Callable[..., Any], tensors: Mapping[str, Any]) -> None:
        raise CaptureError(
            "a symbolic tensor has no value: it stands for the inputs of a model",
            op=name,
            hint="a Layer that writes it in its call",
        )

    def leave(self, tensor: Any, how: str) -> None:
        """Known values may leave."""

    def refusal(self, value: Value, how: str) -> CaptureError:
        """The error of code that needs the value of a symbolic tensor."""
        return CaptureError(
            f"{how} needs a number, and a symbolic tensor has no value",
            received=f"{value.name}: {value.spec}",
            hint="ops of ef on it, or a Layer that does this in its call",
        )


class VariableRead:
    """The owner of values that represent a Variable."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        self.refusal = symbols.refusal

    @property
    def is_open(self) -> bool:
        """Whether symbolic tensors are computed with now."""
        return symbols.is_open


class _Inference(Secluded, _Symbols):
    """Infers the shapes of a layer's results; assignments have no effect."""

    def assign(self, variable: Any, value: Any) -> None:
        """Assignments of known values are ignored."""

    def emit(self, name: str, sink: Callable[..., Any], tensors: Mapping[str, Any]) -> None:
        """Known values are not reported."""

    def initial(self, tensor: Any) -> Any:
        raise CaptureError(
            "initial values of weights cannot be symbolic", hint="make them in build"
        )


symbols = _Symbols()
process.of_sizes = symbols  # a size of a model's inputs, given to an op, is part of the model


def is_symbolic(x: Any) -> bool:
    """Whether ``x`` is a symbolic tensor: an input of a model, or computed from one.

    >>> from eagerflow.nn.symbols import is_symbolic
    >>> is_symbolic(ef.nn.Input((2,)) * 2.0), is_symbolic(ef.ones(2))
    (True, False)
    """
    return type(x) is Tensor and type(x._kind) is SymbolicKind


def symbol(shape: Sequence[Any], dtype: Any, name: str) -> Tensor:
    """A symbolic tensor without a node: an input. Sizes of None get names."""
    names = [f"{name}_dim{i}" if i else "batch" for i in range(len(shape))]
    sizes = [Dim(n) if s is None else s for n, s in zip(names, shape, strict=True)]
    return symbols.tensor(Value(name, tuple(sizes), as_dtype(dtype), symbols))


def infer(f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of ``f`` for such arguments, tensors without values; nothing is computed."""
    with _Inference():
        return f(*args, **kwargs)
