"""Module: a named tree of Variables.

Parts are found by walking the attributes (also through lists, tuples and dicts) on access, so
nothing has to be registered and plain attributes stay plain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.graph.names import FreeNames
from eagerflow.nn.arguments import TensorLike
from eagerflow.nn.configured import Configured, snake_case
from eagerflow.ops.absent import explain
from eagerflow.ops.other_names import table
from eagerflow.variable import Variable, assign_together

__all__ = ["Module", "named_modules"]


class Module(Configured):
    """Base of objects that hold Variables, in themselves and in further Modules.

    >>> class Pair(ef.nn.Module):
    ...     def __init__(self):
    ...         self.parts = [ef.Variable(1.0), ef.Variable([2.0, 3.0], trainable=False)]
    >>> pair = Pair()
    >>> pair.count_params(), len(pair.trainable_weights)
    (3, 1)
    """

    name = "module"
    _trainable = True
    _frozen: list[Variable]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls) and not any("__call__" in vars(base) for base in cls.__mro__):
            cls.__call__ = _refuse_call  # type: ignore[method-assign]

    def _parts(self) -> list[Any]:
        """The Variables and Modules that this one holds itself, each once."""
        return tree.instances(vars(self), (Module, Variable))

    def _below(self) -> tuple[dict[int, Module], dict[int, Variable]]:
        """This Module and those below it, parents first, and their Variables; each once."""
        modules: dict[int, Module] = {}
        variables: dict[int, Variable] = {}
        waiting = [self]
        while waiting:
            module = waiting.pop()
            if id(module) not in modules:
                modules[id(module)] = module
                parts = module._parts()
                variables |= {id(part): part for part in parts if isinstance(part, Variable)}
                waiting += [part for part in reversed(parts) if isinstance(part, Module)]
        return modules, variables

    def walk(self) -> Iterator[Any]:
        """This Module and all below it, parents first, each once."""
        return iter(self._below()[0].values())

    @property
    def weights(self) -> list[Variable]:
        """All Variables of this Module and of those below it."""
        return list(self._below()[1].values())

    @property
    def trainable_weights(self) -> list[Variable]:
        """The Variables that training changes."""
        return [w for w in self.weights if w.trainable]

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The Variables that training leaves to the layers: running means, frozen weights."""
        return [w for w in self.weights if not w.trainable]

    def named_weights(self) -> dict[str, Variable]:
        """The weights by name, in the order of ``weights``.

        A name is the path of the layers and the weight's own name, as in files. Layers without a
        user's name are numbered within their parent, so two constructions have the same names.

        >>> layers = [ef.nn.Input((4,)), ef.nn.Dense(2), ef.nn.Dense(1)]
        >>> list(ef.nn.Sequential(layers).named_weights())
        ['dense/kernel', 'dense/bias', 'dense_1/kernel', 'dense_1/bias']
        """
        return {
            name: variable
            for path, module in named_modules(self)
            for name, variable in _own(path, module)
        }

    variables = weights
    trainable_variables = trainable_weights
    non_trainable_variables = non_trainable_weights

    @property
    def trainable(self) -> bool:
        """Whether training changes the weights; setting it freezes or frees all below."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for module in self.walk():
            module._trainable = bool(value)
            if value:
                for variable in getattr(module, "_frozen", ()):
                    variable.trainable = True
                module._frozen = []
            else:
                own = [p for p in module._parts() if isinstance(p, Variable) and p.trainable]
                module._frozen = [*getattr(module, "_frozen", ()), *own]
                for variable in own:
                    variable.trainable = False

    def count_params(self) -> int:
        """Number of elements of all weights."""
        return sum(w.size for w in self.weights)

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """The values of all weights as NumPy arrays of their own."""
        return [np.array(w.numpy()) for w in self.weights]

    def set_weights(self, values: Iterable[TensorLike]) -> None:
        """Set all weights, in the order of ``weights``; ShapeError for mismatched values."""
        values = list(values)
        own = self.weights
        if len(values) != len(own):
            raise ShapeError(
                f"{len(values)} arrays for {len(own)} weights",
                op=self.name,
                argument="values",
                expected=", ".join(f"{w.name}{w.shape}" for w in own) or "none: build it first",
            )
        for variable, value in zip(own, values, strict=True):
            array = as_tensor(value, copy=True)
            if array.shape != variable.shape:
                raise ShapeError(
                    "the value has another shape than the weight",
                    op=self.name,
                    argument=variable.name,
                    received=summary(array),
                    expected=summary(variable),
                )
        assign_together(dict(zip(own, values, strict=True)))


def named_modules(model: Any) -> Iterator[tuple[str, Any]]:
    """A Module and those below it, parents first, each once, with paths that end in a slash."""
    return _walk(model, "", set())


def _walk(module: Any, path: str, met: set[int]) -> Iterator[tuple[str, Any]]:
    met.add(id(module))
    yield path, module
    names = FreeNames()
    for part in module._parts():
        if isinstance(part, Module):
            label = names.take(_label(part))
            if id(part) not in met:
                yield from _walk(part, f"{path}{label}/", met)


def _own(path: str, module: Any) -> Iterator[tuple[str, Variable]]:
    names = FreeNames()
    for part in module._parts():
        if isinstance(part, Variable):
            name = part.name.rpartition("/")[2]
            yield path + names.take(re.sub(r"^variable_\d+$", "variable", name)), part


def _label(module: Any) -> str:
    """A Module's name, without the number that makes it unique in the process."""
    usual = snake_case(type(module).__name__)
    name = str(module.name).replace("/", "_")
    return usual if re.fullmatch(rf"{re.escape(usual)}(_\d+)?", name) else name


def _refuse_call(self: Module, *args: Any, **kwargs: Any) -> NoReturn:
    raise ArgumentError(
        "an ef.nn.Module only holds Variables, so its forward is not called",
        op=type(self).__name__,
        hint="derive from ef.nn.Layer or ef.nn.Model, and rename forward to call",
    )


explain(Module, table("Module"))
