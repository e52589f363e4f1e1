"""checkpoint: results of a function are computed again for the gradient instead of being kept.

The ops of the first run are recorded without their results, and repeated with the same values from
outside. So the gradient is that of the first run, whatever has happened to Variables, to variables
of loops and to arrays since. Python's code does not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial, wraps
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


class Call(NamedTuple):
    """A call of an op; arguments are values from outside or numbers of results."""

    args: list[Any]
    results: list[Result]
    op: Op
    attributes: dict[str, Any]
    kept: Any
    """The results, by a policy; else None."""


class Custom(NamedTuple):
    """A function with a custom gradient, after its ops: ``args`` are what it has computed."""

    args: list[Any]
    results: list[Result]
    name: str
    given: list[Any]
    rule: Any


class Block(NamedTuple):
    """The steps of a checkpoint within the other one, which is one in the repetition, too."""

    args: list[Any]
    results: list[Result]
    steps: list[Any]
    keep: Callable[[Op], bool]


class Program(Secluded):
    """Records the ops of a function below a tape, and the watched values that they use."""

    def __init__(self, tape: GradientTape, keep: Callable[[Op], bool]) -> None:
        self.tape = tape
        self.steps: list[Call | Custom | Block] = []
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
        self.steps.append(Call(sources, results, op, attributes, kept))
        return out

    def customized(
        self, name: str, args: tuple[Any, ...], results: tuple[Any, ...], rule: Any
    ) -> Any:
        sources = [self._computed(x) for x in results]
        given = [self.source(x) for x in args]
        outs = super().customized(name, args, results, rule)
        self.steps.append(Custom(sources, self._numbers(outs), name, given, rule))
        return outs

    def _computed(self, x: Tensor) -> Any:
        """The result that a new Tensor has the value of."""
        for number, alive in list(self._known.values()):
            if (result := alive()) is not None and result._array is x._array:
                return number
        return x

    def block(self, keep: Callable[[Op], bool], f: Callable[[], Any]) -> Any:
        """``f()``, whose steps are a block."""
        before, self.steps = self.steps, []
        try:
            return f()
        finally:
            steps, self.steps = self.steps, before
            own = dict.fromkeys(number for step in steps for number in step.results)
            used = dict.fromkeys(numbers_in(x for step in steps for x in step.args))
            args = [number for number in used if number not in own]
            self.steps.append(Block(args, [*own], steps, keep))

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
        self._customs = any(type(step) is Custom for step in within(program.steps))
        self._plain = not self._customs and all(
            type(step) is not Call or step.kept is None for step in within(program.steps)
        )
        self._values: dict[Any, Any] = {}
        self._step: Call | None = None

    @property
    def context(self) -> Any:
        """Around the ops: nothing, so that they take their shortest path, if it can be."""
        return nullcontext() if self._plain else self

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

    def run(self, steps: list[Any], wanted: list[Any]) -> list[Any]:
        """The values of results; each other one is released after its last use."""
        for step, unused in zip(steps, self._unused(steps, wanted), strict=True):
            if type(step) is Block:
                dropped = set(unused)
                outputs = [number for number in step.results if number not in dropped]
                outs = checkpointed(self.run, step.keep)(step.steps, outputs)
            else:
                outputs, outs = step.results, self._one(step)
            self._values.update(zip(outputs, outs, strict=True))
            for number in unused:
                self._values.pop(number, None)
        return [self.value(x) for x in wanted]

    def _one(self, step: Call | Custom) -> Any:
        """The results of a call."""
        args = [self.value(x) for x in step.args]
        if type(step) is Custom:
            given = tuple([self.value(x) for x in step.given])
            tape: Any = recorder_state()[1]
            return tape.customized(step.name, given, tuple([same(x) for x in args]), step.rule)
        assert type(step) is Call
        self._step = step
        out = step.op.call(*args, **with_bodies(step.attributes, silent_body))
        self._step = None
        return out if isinstance(out, tuple) else (out,)

    def _unused(self, steps: list[Any], wanted: list[Any]) -> list[list[Result]]:
        """For each step, the results that no later one uses; none with custom gradients."""
        found: list[list[Result]] = [[] for _ in steps]
        if not self._customs:
            made = {number for step in steps for number in step.results}
            seen = set(numbers_in(wanted))
            for step, unused in zip(reversed(steps), reversed(found), strict=True):
                own = dict.fromkeys([*step.results, *numbers_in(step.args)])
                unused += [number for number in own if number in made and number not in seen]
                seen.update(own)
        return found


def within(steps: list[Any]) -> Iterator[Any]:
    """Steps, and those of blocks among them."""
    for step in steps:
        yield step
        if type(step) is Block:
            yield from within(step.steps)


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

    return checkpointed(f, keep)


def checkpointed(f: Callable[P, R], keep: Callable[[Op], bool]) -> Callable[P, R]:
    """The same, with a function that says which ops' results are kept."""

    @wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        tape = recorder_state()[1]
        if type(tape) is Program:
            return tape.block(keep, partial(f, *args, **kwargs))
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
                targets = repetition.run(program.steps, wanted)
            with repetition.context:
                return again.gradient(targets, external, list(gradients), unconnected="zero")

        calls = (step for step in within(program.steps) if type(step) is Call)
        # For the memory report.
        rule.kept = [x.kept for x in calls if x.kept is not None]  # type: ignore[attr-defined]
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
