"""Function: a Python callable with its cache from signature to graph.

A call looks its arguments' signature up, asks the ledger whether any Python state that the
trace relied on has changed, and replays the graph's plan. If no graph fits, it traces a new one.
"""

from __future__ import annotations

import copy
import math
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial, update_wrapper
from itertools import count
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import numpy as np

from eagerflow.capture.arguments import (
    PLAIN,
    BoundArguments,
    as_input,
    by_identity,
    home_of,
    identity,
    is_ours,
    is_ready,
    kind_of_array,
    spec_key,
    spec_of,
)
from eagerflow.capture.assumptions import NumbersNeededError
from eagerflow.capture.captured import Captured
from eagerflow.capture.graph_calls import call_recorded, only_tapes
from eagerflow.capture.guards.events import current
from eagerflow.capture.history import NUMBERS, History, described, refusal
from eagerflow.capture.methods import PLACE, Bindings
from eagerflow.capture.parameters import Parameters
from eagerflow.capture.trace import paths, plain_name
from eagerflow.capture.tracing import NoValuesError, traced
from eagerflow.capture.varying import MAX_SIDES, Varying
from eagerflow.convert import as_tensor
from eagerflow.debugging import nans_are_watched
from eagerflow.devices import Device, current_device
from eagerflow.display import html, summary
from eagerflow.errors import ArgumentError, CaptureError, printable, short_repr
from eagerflow.graph.graph import Graph
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.masks import has_masks
from eagerflow.ops.arguments_of_others import explains_arguments
from eagerflow.plan.replay import NUMERICS, check_inputs, replay_of
from eagerflow.profiling.profile import Profile
from eagerflow.recorder import process, recorder_state
from eagerflow.runtime.clock_cache import DEFAULT_MAX_ITEMS, ClockCache, checked_bound
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor, known_masks
from eagerflow.tracebacks import hide_internal_frames

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
_NOTHING: dict[str, Any] = {}
_NONE: set[int] = set()


class Function(Generic[P, R]):
    """A Python function that is captured once for each signature, and then replayed.

    Made by ``ef.function``. ``graphs`` are the graphs so far, ``graph(*args)`` the one for these
    arguments or TensorSpecs, ``ledger()`` lists what the traces relied on, and ``explain()`` why
    each of them was made. ``python`` is the original function, which runs op by op. At most
    ``max_graphs`` graphs are kept, and as many plans of each: the most recently used. Objects
    among the arguments are held weakly, and their graphs are dropped with them. Raises
    ArgumentError for a function that cannot be captured; calls raise CaptureError as
    ``ef.function`` says, and the errors of the ops, with the user's line.

    >>> half = ef.function(lambda x: x * 0.5)
    >>> half(ef.tensor([1.0, 3.0]))
    Tensor([0.5, 1.5], float32, cpu:0)
    >>> half.graphs, half.python(ef.tensor(3.0))
    ([<Graph lambda(x: float32(2,)), 1 nodes>], Tensor(1.5, float32, cpu:0))
    """

    def __init__(
        self,
        f: Callable[P, R],
        input_signature: Any = None,
        static: Any = (),
        numerics: str = "fast",
        max_graphs: int = DEFAULT_MAX_ITEMS,
    ) -> None:
        if not callable(f):
            raise ArgumentError(
                f"{short_repr(f)} cannot be captured", op="ef.function", expected="a function"
            )
        if isinstance(input_signature, TensorSpec):
            raise ArgumentError(
                "one TensorSpec stands for one argument",
                op="ef.function",
                argument="input_signature",
                received=str(input_signature),
                expected="a sequence with a TensorSpec for each argument",
                hint="input_signature=[spec]",
            )
        if numerics not in NUMERICS:
            raise ArgumentError(
                f"{numerics!r} is not a choice",
                op="ef.function",
                argument="numerics",
                expected="'fast' or 'exact'",
            )
        self.python = f
        self.numerics = numerics
        self.static = (static,) if isinstance(static, str | int) else tuple(static)
        self.input_signature = None if input_signature is None else tuple(input_signature)
        self._entries: ClockCache[Captured] = ClockCache(
            checked_bound(max_graphs, "ef.function", "max_graphs")
        )
        # By kinds and shapes, if all arguments are tensors:
        self._quick: dict[Any, Captured] = {}
        # By signatures, for graphs with free sizes:
        self._sized: dict[Any, Captured] = {}
        self._varying: ClockCache[Varying] = ClockCache(self._entries.bound)
        self._history = History()
        self._lock = reentrant_lock()
        self._bindings = Bindings()
        self._parameters = Parameters(f, self.static, self.input_signature)
        update_wrapper(self, f, updated=())

    @property
    def _name(self) -> str:
        return self._parameters.name

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Function[P, R]: ...

    @overload
    def __get__(
        self: Function[Concatenate[Any, Q], R], instance: object, owner: Any = None
    ) -> Function[Q, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        methods = getattr(instance, "__dict__", _NOTHING).get(PLACE)
        if methods is not None and methods.owner is instance:
            found = methods.bound.get(self)
            if found is not None:
                return found
        return self._bindings.find(self, instance, partial(self._bound_to, instance, owner))

    def _options(self) -> tuple[Any, ...]:
        return self.input_signature, tuple(self._parameters.static), self.numerics, self.max_graphs

    @property
    def max_graphs(self) -> int:
        """How many graphs are kept, and how many plans of each for free sizes."""
        return self._entries.bound

    def _bound_to(self, instance: Any, owner: Any) -> Function:
        bound = self.python.__get__(instance, owner)  # type: ignore[attr-defined]
        return Function(bound, *self._options())

    def __deepcopy__(self, memo: Any) -> Function:
        return Function(copy.deepcopy(self.python, memo), *self._options())

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.python.__module__)
        for part in self.python.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is self:
            return self.python.__qualname__  # by its name, like any other function
        return _restored, (self.python, *self._options())

    # Calls -----------------------------------------------------------------------------------

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = None
        if not process.recorders and not kwargs and not (known_masks and has_masks(args)):
            try:  # only tensors, seen before: no need to walk the nest
                key = (current_device(), *[(x._kind, x._array.shape) for x in args])  # type: ignore[attr-defined]
                entry = self._quick.get(key)
            except raised_here(Exception):  # objects may raise any error for unknown names
                entry = None
            if (
                entry is not None
                and entry.ledger.changed() is None
                and self._parameters.have_same_defaults()
            ):
                entry.used = True
                if entry.idle is None:
                    return entry.nest(entry.replay.run(args))
                return entry.run(args)
        elif not only_tapes():
            return self.python(*args, **kwargs)  # other recorders see the ops themselves
        given = self._arguments(args, kwargs)
        try:
            entry = self._captured(self._key(given), given)
        except NoValuesError:
            return self.python(*args, **kwargs)  # symbolic tensors depend on the ops themselves
        except raised_here(Exception) as error:
            hide_internal_frames(error)
            raise
        inputs = [given.leaves[i] for i in entry.places]
        if self.input_signature is not None:
            inputs, key = check_inputs(entry.graph, inputs), None
        else:
            inputs = [x if is_ready(x) else as_input(x) for x in inputs]
        if process.recorders and recorder_state()[1] is not None:
            tensors = [as_tensor(x, copy=True) for x in inputs]
            return entry.nest(call_recorded(entry.graph, self.numerics, tensors))
        found = entry.run(inputs)
        if (
            key is not None
            and self._parameters.are_steady
            and entry.kept
            and entry.places == tuple(range(len(key) - 1))
        ):
            entry.add_alias(self._quick, key)
        return found

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundArguments:
        """All arguments, with the current defaults of omitted ones."""
        if not self._parameters.are_current():
            self._parameters = Parameters(self.python, self.static, self.input_signature)
            self._quick.clear()
            self._sized.clear()
        return self._parameters.bound(args, kwargs)

    def _captured(
        self, key: Any, given: BoundArguments, reason: str | None = None, free: bool = True
    ) -> Captured:
        """The graph that fits and is still valid, traced if there is none.

        If it is not valid for the numbers given, another graph is traced for exactly these numbers.
        ``free`` allows sizes that vary between calls to be free.
        """
        try:
            entry = self._found(key, given, reason, free)
            is_right = entry.is_right_for(given.leaves)
        except NumbersNeededError:
            is_right = False
        if not is_right:
            given = given._replace(literal=True)
            reason = "numbers for which the other graph is not valid"
            entry = self._found(self._key(given), given, reason, free)
        for i, place in entry.updated.items():
            if isinstance(given.leaves[i], np.ndarray):
                raise CaptureError(
                    "the function itself changes an array among its arguments",
                    op=self._name,
                    at=place,
                    received=summary(given.leaves[i]),
                    expected="arguments that stay as they are, as in replayed calls",
                    hint="x = x + 1 in place of x += 1, or ef.tensor(array) as the argument",
                )
        return entry

    def _found(self, key: Any, given: BoundArguments, reason: str | None, free: bool) -> Captured:
        leaves = given.leaves
        entry = (self._sized.get(key) if free else None) or self._entries.items.get(key)
        if (
            entry is not None
            and (entry.sizes is None or entry.aliases)
            and entry.is_for(leaves)
            and entry.ledger.changed() is None
        ):
            entry.used = True
            return entry
        with Locked(self._lock):
            if self.input_signature is not None:
                found = self._sides(key, given, reason)
            else:
                found = self._free(key, given) if free else None
            return found or self._kept(key, given, reason)

    def _free(self, key: Any, given: BoundArguments) -> Captured | None:
        """The graph for a call in which sizes are free, as they have varied; None if none is."""
        leaves = given.leaves
        at = [i for i, x in enumerate(leaves) if type(x) is Tensor or isinstance(x, np.ndarray)]
        shapes = tuple(leaves[i].shape for i in at)
        if not any(shapes):
            return None
        plain = self._key(given, sized=False)
        varying = self._varying.items.get(plain)
        if varying is None:
            varying = Varying(given.structure, 3 if is_ours(self.python) else 2)
            self._varying.add(plain, varying)
        labels = [plain_name(path) for path in paths(self._parameters.labelled(given))]
        pattern = varying.pattern(shapes, [labels[i] for i in at])
        if pattern is None:
            return None
        specs: list[TensorSpec | None] = [None] * len(leaves)
        for i, shape in zip(at, pattern, strict=True):
            specs[i] = spec_of(leaves[i], shape, home_of(leaves))
        named = given._replace(specs=tuple(specs))
        try:
            entry = self._sides((plain, pattern), named, "sizes that vary are free", MAX_SIDES)
        except (NoValuesError, NumbersNeededError):
            raise
        except raised_here(Exception) as error:  # the numbers of the call may succeed
            varying.refuse(pattern)
            self._history.refused = refusal(error)
            return None
        if entry is not None and entry.kept:
            entry.add_alias(self._sized, (varying.structure, *key[1:]))
        return entry

    def _sides(
        self, key: Any, given: BoundArguments, reason: str | None, bound: float = math.inf
    ) -> Captured | None:
        """The graph whose answers about sizes hold for a call, traced if there is none.

        None if there are ``bound`` others, or if no graph with free sizes is valid.
        """
        for side in count():
            own = (key, side) if side else key
            entry = self._entries.items.get(own)
            fits = True if entry is None else entry.fits(given.leaves)
            if fits is None or side >= bound:
                return None
            if fits:
                found = self._kept(own, given, reason)
                return found if found.fits(given.leaves) else None
            reason = "other answers about sizes"
        return None

    def _kept(self, key: Any, given: BoundArguments, reason: str | None) -> Captured:
        """The graph with this key, traced if there is none or its state has changed."""
        entries, leaves = self._entries, given.leaves
        entry = entries.items.get(key)
        if entry is not None and entry.is_for(leaves):
            guard = entry.ledger.changed()
            if guard is None:
                entry.used = True
                return entry
            reason = guard.change()
        entry = self._trace(given, reason)
        if current().is_blind():
            return entry  # the trace was not fully watched
        entry.kept = True
        self._hold_weakly(entry, key, leaves)
        for old in entries.add(key, entry):
            self._forget(old)
        return entry

    def _hold_weakly(self, entry: Captured, key: Any, leaves: list[Any]) -> None:
        """Drop a graph when one of the objects that identify its key is deleted."""
        gone = partial(_let_go, weakref.ref(self), key)
        for i, x in enumerate(leaves):
            if i in entry.places or not by_identity(x):
                continue
            try:
                held = weakref.ref(x, gone)
            except raised_here(TypeError):  # then it is held strongly, and its id stays unique
                held = x
            else:
                entry.ledger.hold_weakly(x)
            entry.known.append((i, held))

    def _forget(self, entry: Captured) -> None:
        """Drop cached data that only serves calls; frees plans and buffers without a collection."""
        entry.drop_aliases()
        entry.graph.cache.clear()

    def _key(self, given: BoundArguments, sized: bool = True) -> Any:
        """The signature that selects the graph: shapes, dtypes, devices, and static values.

        Without ``sized`` it has ranks in place of shapes.
        """
        watched = bool(process.recorders) and nans_are_watched()
        parts: list[Any] = [given.structure, watched]
        if self.input_signature is not None:
            told = {
                i for i, spec in enumerate(self._parameters.specs(given.leaves)) if spec is not None
            }
        else:
            told = _NONE
        static = self._parameters.static_leaves(given)
        own: Device | None = None  # of arrays
        for i, x in enumerate(given.leaves):
            cls = type(x)
            if i in told:  # values are checked against the spec
                continue
            if cls is Tensor:
                parts.append(x._kind)
                parts.append(x._array.shape if sized else x.ndim)
            elif cls in PLAIN:
                parts.append(identity(x))
            elif cls in NUMBERS and i not in static:
                parts.append(cls)
            elif isinstance(x, np.ndarray) or (isinstance(x, np.generic) and i not in static):
                if own is None:
                    own = home_of(given.leaves)
                parts.append(kind_of_array(x.dtype, own))
                parts.append(x.shape if sized else x.ndim)
            else:
                parts.append(identity(x))
        parts.append(current_device())
        return tuple(parts)

    def _trace(self, given: BoundArguments, reason: str | None) -> Captured:
        started, parameters = time.perf_counter(), self._parameters
        found = traced(parameters, given)
        seconds = time.perf_counter() - started
        shown = given.leaves
        if given.specs is not None:
            shown = [s or x for s, x in zip(given.specs, given.leaves, strict=True)]
        arguments = described(shown, found.places, paths(parameters.labelled(given)))
        replay = replay_of(found.graph, self.numerics)
        replay.plans.bound = self.max_graphs
        told = self._history.add(found.graph, arguments, reason, seconds, found.ledger.unwatched())
        if self.input_signature is None and not is_ours(self.python):
            self._history.advise(self._name, given.structure)
        return Captured(found, replay, told, given.leaves)

    # Inspection ------------------------------------------------------------------------------

    @property
    def graphs(self) -> list[Graph]:
        """The graphs in the cache, the latest last."""
        return [entry.graph for entry in list(self._entries.items.values())]

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph for arguments like these, or for TensorSpecs; traced if there is none.

        >>> double = ef.function(lambda x: x * 2.0)
        >>> len(double.graph(ef.TensorSpec(("n",), "float32")).nodes)
        1
        """
        if self.input_signature is not None and not args and not kwargs:
            args = self.input_signature
        given = self._arguments(args, kwargs)
        key, why = self._key(given), None
        if self.input_signature is None and any(isinstance(x, TensorSpec) for x in given.leaves):
            specs = given._replace(leaves=[spec_key(x) for x in given.leaves])
            key, why = ("specs", self._key(specs)), "asked for by graph()"
        return self._captured(key, given, why, free=False).graph

    def inputs_of(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """The values that the graph for these arguments takes, in the order of its inputs.

        >>> scale = ef.function(lambda x, rate, name: x * rate)
        >>> scale.inputs_of(ef.ones(2), 0.5, "w")
        [Tensor([1., 1.], float32, cpu:0), Tensor(0.5, float64, cpu:0)]
        """
        given = self._arguments(args, kwargs)
        entry = self._captured(self._key(given), given)
        return [as_input(given.leaves[i]) for i in entry.places]

    def profile(self, *args: Any, rounds: int = 10, **kwargs: Any) -> Profile:
        """A profile of a call with these arguments: steps, times, the user's lines.

        The call runs ``rounds`` times, and the table has the figures of one. Variables keep their
        values. Raises ArgumentError for less than one round.

        >>> scale = ef.function(lambda x: ef.tanh(x) * 2.0)
        >>> sorted(row.name for row in scale.profile(ef.ones(100_000)).by("op"))
        ['call of lambda', 'tanh_multiply']
        """
        given = self._arguments(args, kwargs)
        entry = self._captured(self._key(given), given)
        return entry.replay.profile([as_input(given.leaves[i]) for i in entry.places], rounds)

    def ledger(self) -> str:
        """Python state that the graphs rely on: globals, closures, attributes, with their values.

        >>> rate = 0.1
        >>> decay = ef.function(lambda x: x * rate)
        >>> y = decay(ef.ones(3))
        >>> print(decay.ledger())
        (float32(3,))
        kind      name               value     read at
        function  <lambda>.__code__  <code ...
        global    rate               0.1       ...:1
        """
        entries = list(self._entries.items.values())
        return "\n\n".join(f"{entry.told.signature}\n{entry.ledger}" for entry in entries)

    def explain(self) -> str:
        """Why each trace was made, its duration, and the size of its graph.

        ``not watched`` are calls whose results may change without being noticed, as of clocks.

        >>> double = ef.function(lambda x: x * 2.0)
        >>> y = double(ef.ones((3,)))
        >>> print(double.explain())
        lambda was traced 1 time
          1. (float32(3,)): the first call; 1 nodes, ... ms
        """
        plans = [entry.replay.plans for entry in list(self._entries.items.values())]
        return self._history.text(self._name, self._entries, plans)

    def _repr_html_(self) -> str:
        return html(self, "functions")

    def __repr__(self) -> str:
        return printable(f"<Function {self._name}: {len(self._entries.items)} graphs>")


def _let_go(owner: Any, key: Any, dead: Any) -> None:
    """Drop the graphs of a deleted object; called by finalizers, in any thread."""
    function = owner()
    entry = None if function is None else function._entries.items.get(key)
    if entry is not None and any(held is dead for _, held in entry.known):
        function._entries.items.pop(key, None)
        function._forget(entry)


def _restored(python: Any, *more: Any) -> Function:
    """A function from a pickle: that of a method, which comes with its instance, or a new one."""
    return python if isinstance(python, Function) else Function(python, *more)


@overload
def function(
    f: Callable[P, R],
    *,
    input_signature: Any = None,
    static: Any = (),
    numerics: str = "fast",
    max_graphs: int = DEFAULT_MAX_ITEMS,
) -> Function[P, R]: ...
@overload
def function(
    f: None = None,
    *,
    input_signature: Any = None,
    static: Any = (),
    numerics: str = "fast",
    max_graphs: int = DEFAULT_MAX_ITEMS,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
@explains_arguments(
    jit_compile="nothing: machine code is made of each graph",
    static_argnums="static=names",
    static_argnames="static=names",
)
def function(
    f: Callable[..., Any] | None = None,
    *,
    input_signature: Any = None,
    static: Any = (),
    numerics: str = "fast",
    max_graphs: int = DEFAULT_MAX_ITEMS,
) -> Any:
    """A function that is captured as a graph at its first call, and replayed from then on.

    ``f`` takes and returns nests of tensors; Python numbers are inputs unless their arguments
    are named in ``static``; bools, strings and other objects are part of the signature.
    ``input_signature`` is a sequence of TensorSpecs, whose sizes may be free (None) or named:
    then one graph serves all. ``numerics="exact"`` replays the same kernels as eager code, bit for
    bit; ``"fast"`` compiles regions, each op within its stated accuracy. The ``max_graphs`` most
    recently used graphs are kept, and as many plans of each. Works as a decorator, with
    or without arguments, and on methods. Raises CaptureError for code that needs values which
    are not known while tracing, with the user's line.

    >>> @ef.function
    ... def squared_distance(a, b):
    ...     return ((a - b) ** 2).sum()
    >>> squared_distance(ef.tensor([1.0, 2.0]), ef.tensor([3.0, 5.0]))
    Tensor(13., float32, cpu:0)
    """
    if f is None:
        return lambda g: Function(g, input_signature, static, numerics, max_graphs)
    return Function(f, input_signature, static, numerics, max_graphs)
