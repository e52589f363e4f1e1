"""Parameters: what a captured function takes, and how the arguments of a call are bound to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from operator import is_not
from typing import Any

from eagerflow import tree
from eagerflow.capture.arguments import BoundArguments, callee_of, is_own, is_steady, wrapped_in
from eagerflow.capture.history import NUMBERS
from eagerflow.capture.trace import bind
from eagerflow.convert import as_tensor, is_foreign_array
from eagerflow.display import function_name
from eagerflow.errors import ArgumentError, CaptureError
from eagerflow.handlers import raised_here
from eagerflow.masks import has_masks, opened
from eagerflow.tensor import known_masks


class Parameters:
    """The parameters of a Python function and their defaults, as they were when it was read.

    ``static`` are the names of arguments, or their indices, whose numbers are constants.
    """

    def __init__(self, python: Callable[..., Any], static: Any, input_signature: Any) -> None:
        self.python = python
        self.input_signature = input_signature
        self._literal = is_own(python)
        f = self.callee = callee_of(python)
        more = getattr(f, "__kwdefaults__", None)
        self._defaults = getattr(f, "__defaults__", None), more and dict(more)
        self._wrapped = wrapped_in(f)
        try:
            self._signature = inspect.signature(python)
        except raised_here(ValueError, TypeError):
            raise CaptureError(
                "the arguments of the function are not known",
                op="ef.function",
                hint="wrap it in a Python function: lambda x: f(x)",
            ) from None
        parameters = self._signature.parameters
        self.are_steady = all(is_steady(p.default) for p in parameters.values())
        self._names = list(parameters)
        self._number_defaults = {
            name
            for name, p in parameters.items()
            if any(type(x) in NUMBERS for x in tree.flatten(p.default)[0])
        }
        self._fixed = all(
            p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters.values()
        )
        self.static = self._checked_static(static)

    def _checked_static(self, static: Any) -> set[str]:
        names = self._names
        unknown = [
            s for s in static if (s not in names if isinstance(s, str) else not 0 <= s < len(names))
        ]
        if unknown:
            raise ArgumentError(
                f"there is no argument {unknown[0]!r}",
                op=self.name,
                argument="static",
                expected="one of " + ", ".join(names),
            )
        return {s if isinstance(s, str) else names[s] for s in static}

    @property
    def name(self) -> str:
        """The name of the function in errors and graphs."""
        return function_name(self.python)

    def have_same_defaults(self) -> bool:
        """Whether the function has the defaults with which it was read."""
        f = self.callee
        known, names = self._defaults
        if self._wrapped:
            now = wrapped_in(f)
            if len(now) != len(self._wrapped) or any(map(is_not, now, self._wrapped)):
                return False
        if getattr(f, "__defaults__", None) is not known:
            return False
        more = getattr(f, "__kwdefaults__", None)
        if not more or not names:
            return more == names
        return len(more) == len(names) and all(more.get(k, names) is v for k, v in names.items())

    def are_current(self) -> bool:
        """Whether the function still has these parameters, with these defaults."""
        return self.have_same_defaults() and callee_of(self.python) is self.callee

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundArguments:
        """All arguments of a call, with the defaults of omitted ones."""
        if kwargs or not self._fixed or len(args) != len(self._names):
            try:
                bound = bind(self._signature, args, kwargs, self._literal)
            except raised_here(TypeError) as error:
                raise TypeError(f"{self.name}{self._signature}: {error}") from None
            omitted = frozenset(self._number_defaults.difference(bound.arguments))
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        else:
            omitted = frozenset()
        if known_masks:
            self._refuse_masks(args, kwargs)
            args, kwargs = opened((args, kwargs))
        leaves, structure = tree.flatten((args, kwargs))
        tensors = [as_tensor(x, copy=True) if is_foreign_array(type(x)) else x for x in leaves]
        return BoundArguments(args, kwargs, tensors, structure, self._literal, omitted)

    def _refuse_masks(self, *given: Any) -> None:
        if self.input_signature is not None and has_masks(given):
            raise ArgumentError(
                "an argument has a mask, which the input_signature does not allow",
                op=self.name,
                expected="tensors without masks",
                hint="leave out input_signature, or pass the mask as an argument of its own",
            )

    def labelled(self, given: BoundArguments) -> Iterator[tuple[str, Any]]:
        """The values with the arguments that they belong to, ``rest_0`` in ``*rest``."""
        kinds = [p.kind for p in self._signature.parameters.values()]
        many = inspect.Parameter.VAR_POSITIONAL
        rest = kinds.index(many) if many in kinds else len(kinds)
        for i, value in enumerate(given.args):
            name = self._names[min(i, rest)]
            yield name if i < rest else f"{name}_{i - rest}", value
        yield from given.kwargs.items()

    def static_leaves(self, given: BoundArguments) -> frozenset[int] | set[int]:
        """Indices of leaves whose numbers are constants."""
        if not (self.static or given.literal or given.omitted):
            return frozenset()
        found: set[int] = set()
        at = 0
        for name, value in self.labelled(given):
            count = len(tree.flatten(value)[0])
            if name in self.static or name in given.omitted:
                found.update(range(at, at + count))
            at += count
        if given.literal:
            found.update(i for i, x in enumerate(given.leaves) if type(x) in NUMBERS)
        return found

    def specs(self, leaves: list[Any]) -> list[Any]:
        """What the ``input_signature`` has for each leaf; None for all if there is none."""
        if self.input_signature is None:
            return [None] * len(leaves)
        specs = tree.flatten(self.input_signature)[0]
        if len(specs) != len(leaves):
            raise ArgumentError(
                f"{len(leaves)} arguments were given, and the signature has {len(specs)}",
                op=self.name,
                expected=", ".join(map(str, specs)),
            )
        return specs
