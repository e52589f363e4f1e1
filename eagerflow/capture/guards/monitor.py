"""Monitor: records the Python state that code relies on while it runs, as a ledger.

The interpreter reports starts, lines and returns of functions: through
``sys.monitoring`` from Python 3.12 on, ``sys.settrace`` in 3.11. User functions are watched,
as are those of installed packages and eagerflow's own layers; the standard library,
NumPy and eagerflow's ops are not. Rules for guards:

- State that existed before the trace and was read has a guard, with its value at the first read.
- State that the trace assigned before reading it has none: outside changes cannot matter.
- State that the trace read and then changed (a counter) has one with ``changed_by_trace``: it will
    not hold at the next call, and the reason for the new trace can say so.
- State assigned and never read has none, except names of plain values (globals, closure
    variables): a call that finds others there assigns them again. Values of Variables are inputs.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterable
from functools import partial
from sys import getrefcount
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.capture.guards.bytecode import Action
from eagerflow.capture.guards.categories import (
    CANNOT,
    category,
    is_class_statement,
    is_own_class,
    is_symbolic,
    is_user_class,
)
from eagerflow.capture.guards.effects import is_output
from eagerflow.capture.guards.equality import ABSENT
from eagerflow.capture.guards.evaluation import Evaluator
from eagerflow.capture.guards.events import Thread, current
from eagerflow.capture.guards.ledger import READERS, Guard, Ledger
from eagerflow.capture.guards.line_reads import Program, program_of
from eagerflow.capture.guards.lookup import (
    LAYERS,
    Changes,
    Found,
    Run,
    functions_in,
    origins,
    value_of_cell,
)
from eagerflow.capture.guards.snapshot import Snapshot, attributes_of
from eagerflow.capture.leaks import observers
from eagerflow.capture.updates import Updates
from eagerflow.cells import file_name
from eagerflow.errors import CaptureError, EagerflowError, short_repr
from eagerflow.guard import ScopeGuard
from eagerflow.number import Number
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

_ABANDONED = Exception("the run is repeated under a monitor")
_ASIDE = Exception("this code only creates lasting state")
_ALWAYS_EXTERNAL = (type, ModuleType)

Cells = dict[str, tuple[Any, ...]]


def _held_by_guards_alone(guards: list[Guard]) -> set[int]:
    """The ``id`` of each guard about an object that only such guards refer to."""
    about: dict[int, list[Guard]] = {}
    for guard in guards:
        about.setdefault(id(guard.holder), []).append(guard)
    found: set[int] = set()
    for group in about.values():
        own = len(group) + sum(g.expected is g.holder for g in group)
        if getrefcount(group[0].holder) <= own + 1:  # plus one for getrefcount itself
            found.update(map(id, group))
    return found


class Monitor(ScopeGuard):
    """A context around the run of ``function``; ``ledger`` has the state that it relied on.

    Raises CaptureError at its end if the function relied on state that cannot be compared,
    with the line that read it. Monitors nest: the outer one receives the inner one's results.

    >>> from eagerflow.capture.guards.monitor import Monitor
    >>> settings = {"rate": 0.1}
    >>> def f(x):
    ...     return x * settings["rate"]
    >>> with Monitor(f) as monitor:
    ...     y = f(2.0)
    >>> ledger = monitor.ledger()
    >>> settings["rate"] = 0.2
    >>> print(ledger.changed().change())
    item settings['rate'] changed from 0.1 to 0.2 (...)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.guards: dict[Any, Guard] = {}  # by (access, id of the holder, key)
        self._assigned: dict[Any, Any] = {}  # likewise: assigned by the trace itself
        self._external: dict[int, Any] = {}  # objects that existed before the trace
        self.mutated: dict[int, Snapshot] = {}  # containers before the trace changed them
        self.weakly_referenced: set[int] = set()  # objects with weak references to them
        self.by_identity: list[Any] = []  # values with an identity that was read
        self.trees: set[int] = set()  # dicts of attributes that eagerflow searches
        self._loose: list[Guard] = []  # about objects possibly made by the trace
        # Functions that may run, and the captured variables of those that ran, by code.
        self._functions: dict[int, dict[int, FunctionType]] = {}
        self._unfound: dict[int, Run] = {}  # runs of functions that were not known yet
        self._cells: dict[Any, Cells] = {}
        self.closures: dict[int, list[Cells]] = {}  # of functions made by watched ones
        # By a line and what it reads from: the results of its evaluation, and when that was.
        self._evaluated: dict[Any, Any] = {}
        self._seen: set[Any] = set()
        self._kept: dict[int, Any] = {}  # kept alive, so that ids stay unique
        self._collections: list[Any] = list(vars(self).values())  # all that keeps objects alive
        self._changes = self._changes_of_objects = 0  # that the trace has made so far
        self.changed_at: dict[int, str] = {}  # where the run first changed a container
        self.arguments: dict[int, Any] = {}  # objects passed, and their containers
        self._attributes: dict[int, dict[str, Any]] = {}  # of those objects, at the start
        self.remade: dict[int, Any] = {}  # Tensors, lists and dicts that replace arguments
        self._collections += [self.arguments, self._attributes, self.remade]
        self.updates = Updates()  # of the trace
        self.on_caught: Callable[[BaseException | None], None] | None = None
        self.function = function
        self.name = getattr(function, "__qualname__", None) or getattr(
            function, "__name__", type(function).__name__
        )
        self._problem: CaptureError | None = None
        self._ledger: Ledger | None = None
        self._thread: Thread | None = None
        self._outer: Monitor | None = None
        self.failure: Exception | None = None  # if set, nothing more is recorded
        self.first: Any = None  # the frame that has entered this monitor
        self._roots = {id(f.__code__) for f in functions_in(function)}
        self._place = ""  # where the function begins
        self.register(function, True)
        if isinstance(function, partial):
            for held in (*function.args, *function.keywords.values()):
                self.mark_external(held)

    def acquire(self) -> None:
        """Begin to monitor this thread."""
        if self._thread is not None:
            raise EagerflowError("this Monitor is entered already")
        self._outer = current_monitor()
        self.first = sys._getframe(2)
        self._thread = current()
        observers.update(map(id, self._collections))
        self._thread.begin(self)

    def abandon(self) -> None:
        """Stop monitoring: the code will run again, and that run will be monitored."""
        if self._outer is None and self.failure is None:  # an outer one needs the events
            self.failure = _ABANDONED

    def aside(self, f: Callable[..., Any], *args: Any) -> Any:
        """``f(...)``, without recording anything."""
        before, self.failure = self.failure, self.failure or _ASIDE
        try:
            return f(*args)
        finally:
            self.failure = before

    def release(self) -> Any:
        """End the monitoring and make the ledger; returns an error if it cannot be relied on."""
        thread = self._thread
        if thread is None:
            return None
        undisturbed = thread.end(self)
        if self._ledger is None:
            self._ledger = self._made_ledger(undisturbed)
        self._forget()
        self._thread = self.first = None
        return self._problem if self.failure in (None, _ABANDONED, _ASIDE) else self.failure

    def _made_ledger(self, undisturbed: bool) -> Ledger:
        self._hold_assigned()
        own = self.remade.keys() - self._external.keys()
        guards = [guard for guard in self.guards.values() if id(guard.holder) not in own]
        if not undisturbed:
            what = "a debugger took over while tracing"
            guards.append(Guard("watch", what, "disturbed", None, None, "not complete"))
        identities = set(map(id, self.by_identity))
        for guard in guards:
            held = guard.expected
            if identities:
                guard.by_identity = (
                    held.contains_any(identities)
                    if isinstance(held, Snapshot)
                    else id(held) in identities
                )
            guard.changed_by_trace = not guard.holds()
        if self._outer is not None:
            self._outer._absorb(self)
        made = {id(guard.holder) for guard in self._loose}
        strong = [guard for guard in self._loose if not guard.weaken(made)]
        self._forget()
        alone = _held_by_guards_alone(strong)
        return Ledger(g for g in guards if not g.gone and id(g) not in alone)

    def _forget(self) -> None:
        """Drop all data that only served the trace."""
        for held in self._collections:
            held.clear()
            observers.discard(id(held))
        self._outer = None

    def ledger(self) -> Ledger:
        """The state that the run relied on; available once the context has ended."""
        if self._ledger is None:
            raise EagerflowError("the ledger is available after the Monitor has ended")
        guards = [guard for guard in self._ledger if not guard.gone]
        if len(guards) < len(self._ledger):
            self._ledger = Ledger(guards)
        return self._ledger

    def _absorb(self, inner: Monitor) -> None:
        for ident, guard in inner.guards.items():
            if ident not in self._assigned:
                self.guards.setdefault(ident, guard)
        self._assign(inner._assigned.items())
        self.by_identity += inner.by_identity
        for key, held in inner.mutated.items():
            self.mutated.setdefault(key, held)
        self._external.update(inner._external)
        self._kept.update(inner._kept)

    def _assign(self, assignments: Iterable[tuple[Any, Any]]) -> None:
        """Note assignments of the trace, except to places that it has read before."""
        for ident, holder in assignments:
            if ident not in self.guards:
                self._assigned.setdefault(ident, holder)

    def rely(self, name: str, holder: Any, attribute: str) -> None:
        """Add a guard about an attribute that eagerflow itself has read."""
        value = getattr(holder, attribute)
        self.add("attribute", name, "attribute", holder, attribute, value, ("", None), True)

    # Results of evaluations ---------------------------------------------------------------------

    def add(
        self,
        kind: str,
        name: str,
        access: str,
        holder: Any,
        key: Any,
        value: Any,
        place: tuple[str, int | None],
        external: bool,
    ) -> bool:
        """Add a guard, unless the trace assigned the value; returns whether there is one."""
        ident = access, id(holder), key
        if ident in self.guards:
            return True
        if ident in self._assigned:
            return False
        guard = self.guards[ident] = Guard(kind, name, access, holder, key, value, *place)
        if not external or id(holder) in self.weakly_referenced:
            self._loose.append(guard)
        return True

    def covers(self, access: str, holder: Any, key: Any) -> bool:
        """Whether there is a guard, or none is needed."""
        ident = access, id(holder), key
        return ident in self.guards or ident in self._assigned

    def mark_external(self, value: Any) -> None:
        """Note that a value existed before the trace."""
        kind = category(value)
        if kind == "code":
            self.register(value, True)
        elif kind not in ("plain", "tensor"):
            self._external[id(value)] = value

    def is_external(self, value: Any) -> bool:
        """Whether a value existed before the trace."""
        return id(value) in self._external or isinstance(value, _ALWAYS_EXTERNAL)

    def register(self, value: Any, external: bool) -> None:
        """Note that functions may run, which have captured variables."""
        if not external or id(value) in self._external:
            return
        self._external[id(value)] = value
        for function in functions_in(value):
            key = id(function.__code__)
            self._functions.setdefault(key, {})[id(function)] = function
            if key in self._unfound:  # it ran in the line that leads to it
                self._guard_function(function, self._unfound[key])

    def refuse(self, kind: str, name: str, value: Any, place: str) -> None:
        """Reject a value that cannot be compared: the first one is raised as an error."""
        reason, hint = CANNOT[kind]
        self._refuse(f"{name} cannot be relied on: {reason}", value, hint, place)

    def refuse_size(self, name: str, value: Any, place: str, why: str) -> None:
        """Reject a value that is too large to be compared in every call."""
        self._refuse(
            f"{name} is too large to be compared in every call: {why}",
            value,
            "pass it as an argument, or make it an ef.tensor or an ef.Variable",
            place,
        )

    def _refuse(self, problem: str, value: Any, hint: str, place: str) -> None:
        if self._problem is None:
            self._problem = CaptureError(
                problem,
                op=self.name,
                at=place,
                received=short_repr(value),
                hint=hint,
                expected="plain values, containers of them, small arrays, Tensors, Variables",
            )

    def add_members(
        self, cls: type, name: str, place: tuple[str, int | None], after: type | None = None
    ) -> Any:
        """The attribute of a class found among its bases, with guards for the same lookup.

        ``after`` is the class after which ``super`` begins to search.
        """
        order = cls.__mro__
        if len(order) > 2:  # bases of a class with only object cannot be replaced
            label = f"{cls.__name__}.__mro__"
            self.add("class", label, "attribute", cls, "__mro__", order, place, True)
        for base in order if after is None else order[order.index(after) + 1 :]:
            raw = vars(base).get(name, ABSENT)
            if is_class_statement(base) and (raw is not ABSENT or is_user_class(base)):
                self.add("class", f"{base.__name__}.{name}", "member", base, name, raw, place, True)
            if raw is not ABSENT:
                return raw
        return ABSENT

    # Interpreter events -------------------------------------------------------------------------

    def enter(self, frame: Any, thread: Thread) -> Run | None:
        """Handle the start of a watched function."""
        code = frame.f_code
        if is_output(frame, thread.runs, self.first):
            return None
        if code.co_name == "<module>" and _is_import(frame):
            return None
        program = program_of(code)
        if program.unknown is not None:
            self._refuse(
                f"{code.co_qualname} has an unknown instruction: {program.unknown}",
                sys.version.split()[0],
                "a version of eagerflow for this Python",
                f"{file_name(code.co_filename)}:{code.co_firstlineno}",
            )
        caller = thread.runs.get(frame.f_back)
        if caller is not None and caller.changes:  # perhaps before this call
            self._count(caller.changes)
        root = id(code) in self._roots
        if root:
            self._roots.clear()
            self._place = f"{file_name(code.co_filename)}:{code.co_firstlineno}"
            # Contents of arguments existed before; the lists and dicts passed are new.
            for leaf in tree.flatten(_arguments_of(frame))[0]:
                self.mark_external(leaf)
            self._find_arguments(_arguments_of(frame))
        if origins[code.co_filename] == LAYERS:
            return self._enter_own(frame, program, thread)
        run = Run(frame, program, {})
        self._find_function(frame, run)
        run.root = root
        return run

    def _find_arguments(self, parts: Iterable[Any]) -> None:
        """Note the arguments, the contents of lists and dicts, and the containers of objects."""
        own = getattr(self.function, "__self__", self.function)
        for part in parts:
            kind = category(part)
            if is_symbolic(part):
                self.remade[id(part)] = part
            elif (inside := tree.children(part)) is not None:
                self.remade[id(part)] = part
                self._find_arguments(inside)
            elif kind in ("container", "object") and part is not own:
                self.arguments[id(part)] = part
                held = attributes_of(part) if kind == "object" else {}
                self.arguments.update(
                    {id(x): x for x in held.values() if category(x) == "container"}
                )
                if kind == "object" and not is_own_class(type(part)):
                    self._attributes[id(part)] = held

    def _hold_assigned(self) -> None:
        """Guard objects among the arguments, and variables, against changes to assigned state.

        A later call would assign the same again.
        """
        for (access, *key), holder in self._assigned.items():
            if access == "attribute" and id(holder) in self.arguments:
                self._hold(holder, key[1])
            elif access == "cell" or (
                access == "item" and isinstance(holder, dict) and "__builtins__" in holder
            ):
                value = READERS[access](holder, key[1])
                parts = value if type(value) is tuple else (value,)
                if all(x is ABSENT or category(x) == "plain" for x in parts):
                    kind, name = (
                        ("closure", "a variable") if access == "cell" else ("global", key[1])
                    )
                    self._add_held(Guard(kind, name, access, holder, key[1], value))
        for key, before in self._attributes.items():
            holder = self.arguments[key]
            now = attributes_of(holder)
            for name in [n for n, part in now.items() if before.get(n, ABSENT) is not part]:
                self._hold(holder, name)
            for name in before.keys() - now.keys():
                places = map(self.changed_at.get, (key, id(getattr(holder, "__dict__", None))))
                place = next(filter(None, places), self._place)
                self.refuse("deleted", f"{type(holder).__name__}.{name}", holder, place)

    def _hold(self, holder: Any, name: str) -> None:
        value, label = getattr(holder, name, ABSENT), f"{type(holder).__name__}.{name}"
        self._add_held(Guard("attribute", label, "attribute", holder, name, value))

    def _add_held(self, guard: Guard) -> None:
        if self.guards.setdefault((guard.access, id(guard.holder), guard.key), guard) is guard:
            self._loose.append(guard)

    def _enter_own(self, frame: Any, program: Program, thread: Thread) -> Run | None:
        """Handle the start of a function of eagerflow's layers.

        The lines of a method that only reads its own object are watched once; for other
        objects there are guards for all attributes that it may read.
        """
        code = frame.f_code
        run: Run | None = None
        first = self.is_first(id(code))
        if first or program.own_attributes is None:
            run = Run(frame, program, {})
            self._find_function(frame, run)
            run.quiet = self._has_run_with(frame, code)
            if first:
                return run
        else:
            label = code.co_varnames[0]
            own = frame.f_locals.get(label)
            if category(own) == "object" and self.is_first(
                "own", self._changes_of_objects, id(code), id(own)
            ):
                self._keep([own])
                self._guard_attributes(own, label, program.own_attributes, frame)
        caller = thread.runs.get(frame.f_back)
        if caller is None or not caller.deferred:  # its result is not needed
            return run if run is not None and not run.quiet else None
        run = run or Run(frame, program, {})
        run.quiet = run.quiet or program.own_attributes is not None
        return run

    def _guard_attributes(self, own: Any, label: str, names: tuple[str, ...], frame: Any) -> None:
        """Guards about attributes of a layer, and about the contents of containers among them."""
        held = getattr(own, "__dict__", {})
        cls = type(own)
        apart = self._apart(frame)
        add = apart.guards.add
        add("attribute", f"{label}.__class__", "attribute", own, "__class__", cls)
        for name in names:
            full = f"{label}.{name}"
            part = held.get(name, ABSENT)
            if part is ABSENT:
                # The class has it, unless the object gets its own; private ones are not overridden.
                if name[0] != "_":
                    if self.is_first(cls, name):
                        apart.attribute(Found(cls, True, cls.__name__), name)
                    add("attribute", full, "item", held, name, part)
            elif add("attribute", full, "attribute", own, name, part):
                self.mark_external(part)
                if category(part) in ("container", "array"):
                    apart.use(Found(part, True, full))

    def _apart(self, frame: Any) -> Evaluator:
        """An evaluator for values outside any line of the function that begins."""
        return Evaluator(self, Run(frame, program_of(frame.f_code), {}), {}, False)

    def is_first(self, *key: Any) -> bool:
        """Whether this key is seen for the first time."""
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _has_run_with(self, frame: Any, code: Any) -> bool:
        """Whether this function has run with the same arguments, except for tensors."""
        parts = _arguments_of(frame)
        given = [0 if type(part) is Tensor else id(part) for part in parts]
        if not self.is_first("run", self._changes_of_objects, id(code), *given):
            return True
        self._keep(parts)
        return False

    def _keep(self, parts: list[Any]) -> None:
        for part in parts:
            if type(part) is not Tensor:
                self._kept[id(part)] = part

    def step(self, frame: Any, run: Run, offset: int) -> None:
        """Handle a new line of a watched function, or a jump back to the head of a loop."""
        line = run.program.lines.get(offset) or run.program.line(offset)
        if run.deferred or run.assignments or run.changes:
            self._finish_line(frame, run, not line.caught)
        if line.caught and self.on_caught is not None:
            self.on_caught(sys.exception())
        if run.returned:
            run.returned.clear()
        if not line.actions:
            return
        # Reads with the same objects need not be repeated.
        key: Any = line.number, id(run.cells) if run.cells else 0
        parts: list[Any] = []
        values: Any = None
        if line.roots:
            values = frame.f_locals
            parts = [values.get(name) for name in (*line.roots, *line.keys)]
            for i, (name, part) in enumerate(zip((*line.roots, *line.keys), parts, strict=True)):
                cls = type(part)
                of_value = cls is Tensor or (cls is Variable and name not in line.settings)
                if run.trusted and of_value:
                    continue
                if i >= len(line.roots) or cls not in _INERT:
                    key += i, id(part)
        now = self._changes_of_objects if run.trusted else self._changes
        deferred, changes, when = self._evaluated.get(key, (None, None, None))
        if deferred is None or (line.deep and when != now):
            self._keep(parts)
            evaluator = Evaluator(self, run, values or {}, False)
            deferred, changes = evaluator.line(line), evaluator.changes
            self._evaluated[key] = deferred, changes, now
        run.deferred, run.changes = deferred, changes
        self._count(changes)

    def _count(self, changes: Changes) -> None:
        """Let later lines be evaluated again if this one changes what they read.

        That can be before, between or after calls of the line: it counts at its ends and at each.
        """
        self._changes += changes != Changes.NONE
        self._changes_of_objects += changes == Changes.OBJECTS

    def _again(self, run: Run, values: Any, deferred: Iterable[Action]) -> None:
        evaluator = Evaluator(self, run, values, True)
        evaluator.again(deferred)
        self._count(evaluator.changes)

    def _finish_line(self, frame: Any, run: Run, completed: bool) -> None:
        """Evaluate the results of the line before, and record its assignments."""
        if run.deferred:
            deferred, run.deferred = run.deferred, ()
            self._again(run, frame.f_locals, deferred)
        if completed:
            self._assign(run.assignments)
        run.assignments.clear()
        self._count(run.changes)
        run.changes = Changes.NONE

    def leave(self, frame: Any, run: Run, value: Any, thread: Thread, completed: bool) -> None:
        """Handle a watched function that returns, or yields, ``value``."""
        if run.deferred or run.assignments or run.changes:
            self._finish_line(frame, run, completed)
        caller = thread.runs.get(frame.f_back)
        if caller is not None and caller.deferred and completed:
            if value is None and run.code.co_name == "__init__":  # the result of calling the class
                value = frame.f_locals.get(run.code.co_varnames[0])
            offset = caller.program.instruction(frame.f_back.f_lasti)
            caller.returned.setdefault(offset, []).append(value)
            if category(value) not in ("plain", "tensor"):
                # The rest of the line may pass it on to functions that read it.
                self._again(caller, frame.f_back.f_locals, caller.deferred)

    # Functions and their variables --------------------------------------------------------------

    def _find_function(self, frame: Any, run: Run) -> None:
        code = run.code
        if not code.co_freevars:
            own = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            key = id(code), type(own), len(self._functions.get(id(code), ()))
            if not self.is_first(*key) and not isinstance(own, type):
                return
        found = [f for f in self._functions.get(id(code), {}).values() if _fits(f, frame)]
        method = self._find_method(frame, run)
        if method is not None and method not in found:
            found.append(method)
        if not found and id(code) in self.closures:
            # Made by the trace: take the variables captured from outside.
            rows = self.closures[id(code)]
            which = (id(code), *{id(row) for row in rows})
            if which not in self._cells:
                self._cells[which] = _cells_of(code, rows)
            run.cells = self._cells[which]
            return
        if not found and code.co_freevars:
            held = [f for f in gc.get_referrers(code) if type(f) is FunctionType]
            found = [f for f in held if f.__code__ is code and _fits(f, frame)]
        for f in found if not run.trusted else ():
            self._guard_function(f, run)
        if not found and not run.trusted:
            self._unfound[id(code)] = run
        names = code.co_freevars
        if names:
            which = tuple(map(id, found))
            if which not in self._cells:
                self._keep(list(found))
                rows = [dict(zip(names, zip(f.__closure__ or ()), strict=True)) for f in found]
                self._cells[which] = _cells_of(code, rows)
            run.cells = self._cells[which]

    def _find_method(self, frame: Any, run: Run) -> FunctionType | None:
        """The function of a method, with a guard that the class still has it."""
        code = run.code
        if not code.co_argcount or code.co_name[:1] == "<":
            return None
        own = frame.f_locals.get(code.co_varnames[0])
        cls = own if isinstance(own, type) else type(own)
        if category(own) in ("plain", "tensor") or cls.__module__ == "builtins":
            return None
        after: type | None = None
        for base in cls.__mro__:
            raw = vars(base).get(code.co_name)
            for f in functions_in(raw):
                if f.__code__ is code:
                    place = code.co_filename, code.co_firstlineno
                    self.add_members(cls, code.co_name, place, after)
                    return f
            after = base if raw is not None else after
        return None

    def _guard_function(self, f: FunctionType, run: Run) -> None:
        code, name = run.code, f.__qualname__
        place = code.co_filename, code.co_firstlineno
        self.add("function", f"{name}.__code__", "attribute", f, "__code__", code, place, True)
        for part in ("__defaults__", "__kwdefaults__"):
            held = READERS[part](f, part)
            if held:
                self.add("default", f"defaults of {name}", part, f, part, held, place, True)
        for value in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            self.mark_external(value)


def _cells_of(code: CodeType, rows: list[Cells]) -> Cells:
    """The captured variables of one of several functions, each of them once."""
    return {
        name: tuple({id(cell): cell for row in rows for cell in row.get(name, ())}.values())
        for name in code.co_freevars
    }


def _is_import(frame: Any) -> bool:
    """Whether code of a module runs because it is imported."""
    return frame.f_back is None or frame.f_back.f_code.co_filename.startswith("<frozen importlib")


def _arguments_of(frame: Any) -> list[Any]:
    """The arguments of a running function, one by one."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    parts: list[Any] = [values.get(name) for name in code.co_varnames[:count]]
    more = code.co_varnames[count:]
    if code.co_flags & inspect.CO_VARARGS:
        parts += values.get(more[0], ())
        more = more[1:]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        for item in values.get(more[0], {}).items():
            parts += item
    return parts


# Types of values without parts to read.
_INERT = {Tensor, Number, int, float, complex, bool, str, type(None), np.ndarray}


def _fits(f: FunctionType, frame: Any) -> bool:
    """Whether a running function may be ``f``: its captured variables have these values."""
    cells = f.__closure__
    if not cells:
        return True
    values = frame.f_locals
    pairs = zip(f.__code__.co_freevars, cells, strict=True)
    return all(value_of_cell(cell) is values.get(name, ABSENT) for name, cell in pairs)


def current_monitor() -> Monitor | None:
    """The innermost Monitor of this thread."""
    stack = current().stack
    found: Monitor | None = stack[-1] if stack else None
    return found
