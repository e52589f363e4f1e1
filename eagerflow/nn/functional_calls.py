"""Calls of models with given values in place of their weights, as functions of these values."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from eagerflow import tree
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.nn.arguments import TensorLike, require
from eagerflow.nn.module import Module
from eagerflow.nn.nests import any_symbolic
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable
from eagerflow.visitors import Secluded

__all__ = ["functional_call"]


def functional_call(model: Any, values: Mapping[str, TensorLike], *args: Any, **kwargs: Any) -> Any:
    """``model(*args, **kwargs)`` with ``values`` in place of weights, by ``named_weights``'s names.

    So the call is a function of ``values``: ``ef.grad`` and ``ef.vmap`` apply to these, and also to
    nests of models that are stacked. Weights that have no value are the model's own. Values have
    the shapes of the weights. Raises ArgumentError for unknown names, and if the call assigns one
    of these weights, as those of running means while training; ShapeError and DTypeError for values
    that do not fit.

    >>> model = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(1)])
    >>> x, zeros = ef.ones((3, 2)), {"dense/kernel": ef.zeros((2, 1))}
    >>> gradients = ef.grad(lambda values: ef.nn.functional_call(model, values, x).sum())(zeros)
    >>> gradients["dense/kernel"].tolist()
    [[3.0], [3.0]]
    >>> stacked = {"dense/kernel": ef.ones((5, 2, 1)), "dense/bias": ef.zeros((5, 1))}
    >>> ef.vmap(lambda values: ef.nn.functional_call(model, values, x))(stacked).shape
    (5, 3, 1)
    """
    require(isinstance(model, Module), model, "not a model", "functional_call", "model")
    named = model.named_weights()
    expected = "a dict such as model.named_weights()"
    require(
        isinstance(values, Mapping), values, "not a dict", "functional_call", "values", expected
    )
    if not named.keys() >= values.keys():
        raise _unknown(named, [str(name) for name in values if name not in named])
    if any_symbolic(*args, *kwargs.values()):
        raise ArgumentError(
            "a model of symbolic tensors would keep its own weights, not these values",
            op="functional_call",
            argument="inputs",
            hint="ef.function, or functional_call in the call of an ef.nn.Layer",
        )
    with _Replaced({named[name]: _fitted(named[name], name, values[name]) for name in values}):
        found = model(*args, **kwargs)
        return tree.map_leaves(lambda x: x.value if isinstance(x, Variable) else x, found)


class _Replaced(Secluded):
    """Reads given values in place of those of Variables."""

    def __init__(self, values: dict[Variable, Tensor]) -> None:
        self.values = values

    def read(self, variable: Any) -> Any:
        found = self.values.get(variable)
        return super().read(variable) if found is None else found

    def assign(self, variable: Any, value: Any) -> None:
        self._check(variable)
        super().assign(variable, value)

    def exchange(self, variable: Any, old: Any, new: Any) -> bool:
        self._check(variable)
        return self.exchange_below(variable, old, new)

    def _check(self, variable: Any) -> None:
        if variable in self.values:
            raise ArgumentError(
                "the call assigns this weight, which has a given value",
                op="functional_call",
                argument=variable.name,
                hint="leave it out of values, so that the model's own changes; or training=False",
            )


def _fitted(variable: Variable, name: str, value: Any) -> Tensor:
    if value is variable:
        return variable.value
    try:
        return variable.fitted(value.value if isinstance(value, Variable) else value)
    except EagerflowError as error:
        error.op, error.argument = "functional_call", name
        raise


def _unknown(named: dict[str, Variable], names: list[str]) -> ArgumentError:
    """The error of names that no weight has."""
    own = {variable.name: name for name, variable in named.items()}
    close = get_close_matches(names[0], named, 1, 0.4)
    return ArgumentError(
        "there is no such weight" if named else "the model has no weights yet",
        op="functional_call",
        argument="values",
        received=", ".join(names),
        expected=", ".join(named) or None,
        hint=(own.get(names[0]) or "".join(close) or None)
        if named
        else "call the model on an input first, so that it has weights",
    )
