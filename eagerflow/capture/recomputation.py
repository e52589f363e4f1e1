"""checkpoint: results of a function are computed again for the gradient instead of being kept.

The ops of the first run are recorded without their results, and repeated with the same values from
outside. So the gradient is that of the first run, whatever has happened to Variables, to variables
of loops and to arrays since. Python's code does not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar
from weakref import ref

from eagerflow import tree
from eagerflow.capture.control.silence import silent_body
from eagerflow.customs import same
from eagerflow.display import function_name
from eagerflow.dtypes import is_inexact
from eagerflow.errors import GradientError
from eagerflow.graph.walk import with_bodies
from eagerflow.masks import keeping_mask
from eagerflow.op import Op
from eagerflow.recorder import below, next_key, recorder_state, with_recorder
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor
from eagerflow.transforms import same_value
from eagerflow.variable import Variable
from eagerflow.visitors import Secluded

P = ParamSpec("P")
R = TypeVar("R")


class Result(int):
    """The number of a result of the program, in place of its value."""


class Step(NamedTuple):
    """A call, with its arguments as values from outside or numbers of results.

    ``op`` is None for a function with a custom gradient, whose results are its arguments here.
    """

    op: Op | None
    args: list[Any]
    results: list[Result]
    more: Any
    """The attributes of an op; name, arguments and rule of a custom gradient."""
    kept: Any = None
    """The results, by a policy."""


class Program(Secluded):
    """Records the ops of a function below a tape, and the watched values that they use."""

    def __init__(self, tape: GradientTape, keep: Callable[[Op], bool]) -> None:
        self.tape = tape
        self.steps: list[Step] = []
        self.external: dict[int, Tensor] = {}
        """Watched values from outside, and values of Variables, by key."""
        self._keep = keep
        self._count = 0
        self._known: dict[int, tuple[Result, Any]] = {}  # results that are alive, by id
        self._first = next_key()  # values with an earlier key existed before

    def opened(self) -> None:
        self.outer = self.tape.outer  # the tape itself records nothing of this computation

    def number_of(self, x: Any) -> Result | None:
        """The number of a result."""
        found = self._known.get(id(x))
        return None if found is None else found[0]

    def source(self, x: Any) -> Any:
        """An argument as a step has it."""
        if type(x) is not Tensor:
            return x
        number = self.number_of(x)
        if number is not None:
            return number
        if x._key is not None and x._key < self._first:
            self.external.setdefault(x._key, x)
        return x

    def _numbers(self, results: Iterable[Tensor]) -> list[Result]:
        return [self._number(x) for x in results]

    def _number(self, x: Tensor) -> Result:
        number, at, known = Result(self._count), id(x), self._known
        self._count += 1
        known[at] = number, ref(x, lambda _: known.pop(at, None))  # the id may be reused then
        return number

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        sources = [self.source(x) for x in args]
        out = below(self.outer, op, args, attributes)
        results = self._numbers(out if isinstance(out, tuple) else (out,))
        kept = out if self._keep(op) else None
        self.steps.append(Step(op, sources, results, attributes, kept))
        return out

    def customized(
        self, name: str, args: tuple[Any, ...], results: tuple[Any, ...], rule: Any
    ) -> Any:
        sources = [self._computed(x) for x in results]
        more = name, [self.source(x) for x in args], rule
        outs = super().customized(name, args, results, rule)
        self.steps.append(Step(None, sources, self._numbers(outs), more))
        return outs

    def _computed(self, x: Tensor) -> Any:
        """The result that a new Tensor has the value of."""
        for number, alive in self._known.values():
            if (result := alive()) is not None and result._array is x._array:
                return number
        return x

    def read(self, variable: Any) -> Any:
        value = super().read(variable)
        self.tape.saw(variable, value)
        if variable.trainable:  # no gradient passes from a value to that which was assigned
            self._known.pop(id(value), None)
        if value._key is not None and self.number_of(value) is None:
            self.external.setdefault(value._key, value)
        return value


class Repetition(Secluded):
    """Repeats a program, below the tape that records it, and stays for the gradient.

    A rule of a custom gradient has values of the first run, which this recorder replaces.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._values: dict[Any, Any] = {}
        self._step: Step | None = None

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        step = self._step
        if step is not None and step.kept is not None and op is step.op:
            kept = step.kept  # unless the tape records another op, with additional results
            return tuple([same_value(x) for x in kept]) if type(kept) is tuple else same_value(kept)
        return below(self.outer, op, tuple([self.value(x) for x in args]), attributes)

    def value(self, x: Any) -> Any:
        """An argument with its value in this run."""
        number = x if type(x) is Result else self._program.number_of(x)
        return x if number is None else self._values.get(number, x)

    @property
    def context(self) -> Any:
        """Around the ops: nothing, so that they take their shortest path, if it can be."""
        own = any(step.op is None or step.kept is not None for step in self._program.steps)
        return self if own else nullcontext()

    def run(self, tape: GradientTape, wanted: list[Any]) -> list[Any]:
        """The values of results; each other one is released after its last use."""
        for step, unused in zip(self._program.steps, self._unused(wanted), strict=True):
            args = [self.value(x) for x in step.args]
            self._step = step
            if step.op is None:
                name, given, rule = step.more
                given = tuple([self.value(x) for x in given])
                out = tape.customized(name, given, tuple([same(x) for x in args]), rule)
            else:
                out = step.op.call(*args, **with_bodies(step.more, silent_body))
            self._step = None
            outs = out if isinstance(out, tuple) else (out,)
            self._values.update(zip(step.results, outs, strict=True))
            for number in unused:
                del self._values[number]
        return [self.value(x) for x in wanted]

    def _unused(self, wanted: list[Any]) -> list[list[Result]]:
        """For each step, the results that no later one uses; none with custom gradients."""
        steps = self._program.steps
        found: list[list[Result]] = [[] for _ in steps]
        if all(step.op is not None for step in steps):
            seen = set(numbers_in(wanted))
            for step, unused in zip(reversed(steps), reversed(found), strict=True):
                own = dict.fromkeys([*step.results, *numbers_in(step.args)])
                unused += [number for number in own if number not in seen]
                seen.update(own)
        return found


def numbers_in(values: Iterable[Any]) -> list[Result]:
    """The numbers of results among values."""
    return [x for x in values if type(x) is Result]


_POLICIES: dict[str | None, Callable[[Op], bool]] = {
    None: lambda op: False,
    "nothing": lambda op: False,
    "contractions": lambda op: op.family == "contraction",
}


def checkpoint(f: Callable[P, R], policy: str | None = None) -> Callable[P, R]:
    """``f``, whose ops are repeated for the gradient instead of keeping intermediate values.

    ``policy`` names values to keep all the same: ``"nothing"`` (the default), or
    ``"contractions"`` (results of matrix products and convolutions, which cost the most).
    Everything that ``f`` reads has the values of the first run in the repetition.
    Raises GradientError for an unknown policy.

    >>> f = ef.checkpoint(lambda x: ef.sin(ef.sin(x)))
    >>> bool(ef.grad(f)(1.0) == ef.grad(lambda x: ef.sin(ef.sin(x)))(1.0))
    True
    """
    keep = _POLICIES.get(policy)
    if keep is None:
        raise GradientError(
            f"{policy!r} is not a policy",
            op="checkpoint",
            argument="policy",
            expected="one of " + ", ".join(repr(p) for p in _POLICIES if p),
        )

    @wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        tape = recorder_state()[1]
        if not isinstance(tape, GradientTape):
            return f(*args, **kwargs)
        with Program(tape, keep) as program:
            y = f(*args, **kwargs)
            leaves, structure = tree.flatten(y)
            leaves = [x.value if isinstance(x, Variable) else x for x in leaves]
            results = [program.source(x) for x in leaves]
        smooth = [type(x) is Tensor and is_inexact(x.dtype) for x in leaves]
        external = [x for x in program.external.values() if is_inexact(x.dtype)]

        def rule(gradients: Any) -> Any:
            repetition = Repetition(program)
            wanted = [x for x, moves in zip(results, smooth, strict=True) if moves]
            with repetition.context, GradientTape(persistent=True) as again:
                again.watch(external)
                targets = repetition.run(again, wanted)
            with repetition.context:
                return again.gradient(targets, external, list(gradients), unconnected="zero")

        # For the memory report.
        rule.kept = [x.kept for x in program.steps if x.kept is not None]  # type: ignore[attr-defined]
        outs = [
            keeping_mask(x, with_recorder(tape.outer, same_value, x))
            for x, moves in zip(leaves, smooth, strict=True)
            if moves
        ]
        tape.record_custom(function_name(f), tuple(external), tuple(outs), rule)
        found = iter(outs)
        return tree.unflatten(
            structure,
            [next(found) if moves else x for x, moves in zip(leaves, smooth, strict=True)],
        )

    return called
