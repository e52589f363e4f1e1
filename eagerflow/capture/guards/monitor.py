"""Watch: notes what Python code relies on while it runs, to make a ledger of it.

The interpreter tells when a function begins, when it comes to a line, and what it returns: by
``sys.monitoring`` from Python 3.12 on, by ``sys.settrace`` in 3.11. Watched are the functions of
the user's, those of installed packages and eagerflow's own layers; not the standard library,
NumPy and eagerflow's ops. What is a fact, and what is not:

- What was there before the trace and was read, as it was when it was read first.
- What the trace itself assigned before it read it is no fact: nobody else's change can matter.
- What the trace read and changed then (a counter) is a fact with ``by_itself``: it will not hold
  at the next call, and whoever traces again and again because of it can tell why.
- What was assigned and never read is none. Values of Variables are inputs of the graph.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from sys import getrefcount
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.capture.guards.effects import is_output
from eagerflow.capture.guards.equality import ABSENT
from eagerflow.capture.guards.evaluation import Reading
from eagerflow.capture.guards.events import Thread, current
from eagerflow.capture.guards.ledger import Fact, Ledger
from eagerflow.capture.guards.line_reads import Program, program_of
from eagerflow.capture.guards.lookup import LAYERS, Found, Run, functions_in, origins
from eagerflow.capture.guards.snapshot import (
    CANNOT,
    Remembered,
    category,
    is_symbolic,
    name_of_code,
)
from eagerflow.capture.leaks import observers
from eagerflow.errors import CaptureError, EagerflowError, short_repr
from eagerflow.guard import ScopeGuard
from eagerflow.number import Number
from eagerflow.tensor import Tensor

__all__ = ["Watch", "watching"]

_ABANDONED = Exception("nobody wants to know any more")

Cells = dict[str, tuple[Any, ...]]


def _held_by_facts_alone(facts: list[Fact]) -> set[int]:
    """The ``id`` of each fact about an object that nothing but such facts refers to."""
    about: dict[int, list[Fact]] = {}
    for fact in facts:
        about.setdefault(id(fact.holder), []).append(fact)
    found: set[int] = set()
    for group in about.values():
        own = len(group) + sum(f.remembered is f.holder for f in group)
        if getrefcount(group[0].holder) <= own + 1:  # the one more is getrefcount's own
            found.update(map(id, group))
    return found


class Watch(ScopeGuard):
    """A context around the run of ``function`` whose ``ledger`` tells what it relied on.

    Raises CaptureError at its end if the function relied on something that cannot be compared,
    with the line that read it. Watches nest: the outer one learns what the inner one saw.

    >>> from eagerflow.capture.guards.monitor import Watch
    >>> settings = {"rate": 0.1}
    >>> def f(x):
    ...     return x * settings["rate"]
    >>> with Watch(f) as watch:
    ...     y = f(2.0)
    >>> ledger = watch.ledger()
    >>> settings["rate"] = 0.2
    >>> print(ledger.changed().story())
    item settings['rate'] changed from 0.1 to 0.2 (...)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = name_of_code(function)
        self.facts: dict[Any, Fact] = {}
        self.mutated: dict[int, Any] = {}  # containers that were changed, and what they held
        self.made: dict[int, list[Cells]] = {}  # code of functions made by watched ones
        self._written: dict[Any, Any] = {}
        self._known: dict[int, Any] = {}
        self.fleeting: set[int] = set()  # objects that weak references lead to
        self.exact: list[Any] = []  # values that were compared by identity
        self._loose: list[Fact] = []  # about objects that the trace may have made itself
        self._functions: dict[int, dict[int, FunctionType]] = {}
        self._cells: dict[Any, Cells] = {}
        self._read: dict[Any, Any] = {}
        self._entered: set[Any] = set()
        self.trees: set[int] = set()
        self._kept: dict[int, Any] = {}  # so that identities stay what they are
        self._problem: CaptureError | None = None
        self._ledger: Ledger | None = None
        self._thread: Thread | None = None
        self._outer: Watch | None = None
        self.failure: Exception | None = None  # after which nothing more is told
        self.first: Any = None  # the frame that has entered this watch
        self._roots = {id(f.__code__) for f in functions_in(function)}
        self.register(function, True)

    def acquire(self) -> None:
        """Begin to watch this thread."""
        if self._thread is not None:
            raise EagerflowError("this Watch is entered already")
        self._outer = watching()
        self.first = sys._getframe(2)
        self._thread = current()
        observers.update(map(id, self._dicts()))
        self._thread.begin(self)

    def abandon(self) -> None:
        """Look no further: the code will run again, and that run will be watched."""
        if self._outer is None and self.failure is None:  # an outer one wants to know
            self.failure = _ABANDONED

    def release(self) -> Any:
        """End the watch and make the ledger of it; an error if there is no relying on it."""
        thread = self._thread
        if thread is None:
            return None
        undisturbed = thread.end(self)
        if self._ledger is None:
            self._ledger = self._made(undisturbed)
        self._forget()
        self._thread = self.first = None
        return self._problem if self.failure in (None, _ABANDONED) else self.failure

    def _made(self, undisturbed: bool) -> Ledger:
        facts = list(self.facts.values())
        if not undisturbed:
            facts.append(
                Fact(
                    "watch",
                    "a debugger took over while tracing",
                    "always",
                    None,
                    None,
                    "not complete",
                )
            )
        exact = set(map(id, self.exact))
        for fact in facts:
            held = fact.remembered
            fact.exact = bool(exact) and (
                held.has_one_of(exact) if isinstance(held, Remembered) else id(held) in exact
            )
            fact.by_itself = not fact.holds()
        if self._outer is not None:
            self._outer._absorb(self)
        strong = [fact for fact in self._loose if not fact.weaken()]
        self._forget()
        alone = _held_by_facts_alone(strong)
        return Ledger(f for f in facts if not f.gone and id(f) not in alone)

    def _dicts(self) -> tuple[Any, ...]:
        """All that holds what was seen."""
        return (
            self.facts,
            self.mutated,
            self.made,
            self._written,
            self._known,
            self._functions,
            self._cells,
            self._read,
            self._kept,
            self._entered,
            self.trees,
            self.fleeting,
        )

    def _forget(self) -> None:
        """Let go of all that only served the trace."""
        for held in self._dicts():
            held.clear()
            observers.discard(id(held))
        self._loose = []
        self.exact = []
        self._outer = None

    def ledger(self) -> Ledger:
        """The facts that the run relied on; there once the context is left."""
        if self._ledger is None:
            raise EagerflowError("the ledger is there once the Watch is left")
        facts = [fact for fact in self._ledger.facts if not fact.gone]
        if len(facts) < len(self._ledger.facts):
            self._ledger = Ledger(facts)
        return self._ledger

    def _absorb(self, inner: Watch) -> None:
        for ident, fact in inner.facts.items():
            if ident not in self._written:
                self.facts.setdefault(ident, fact)
        for ident, holder in inner._written.items():
            if ident not in self.facts:
                self._written.setdefault(ident, holder)
        self.exact += inner.exact
        for key, held in inner.mutated.items():
            self.mutated.setdefault(key, held)
        self._known.update(inner._known)
        self._kept.update(inner._kept)

    def include(self, ledger: Ledger) -> None:
        """Add the facts of a function that was replayed, and not run, inside this one."""
        for fact in ledger.facts:
            ident = (fact.how, id(fact.holder), fact.key)
            if ident not in self._written:
                self.facts.setdefault(ident, fact)

    def rely(self, name: str, holder: Any, attribute: str) -> None:
        """Add a fact about an attribute that eagerflow itself has read."""
        value = getattr(holder, attribute)
        self.note("attribute", name, "attribute", holder, attribute, value, ("", None), True)

    # What readings tell -------------------------------------------------------------------------

    def note(
        self,
        kind: str,
        name: str,
        how: str,
        holder: Any,
        key: Any,
        value: Any,
        place: tuple[str, int | None],
        known: bool,
    ) -> bool:
        """Add a fact, unless the trace itself has put the value there; whether it is one."""
        ident = how, id(holder), key
        if ident in self.facts:
            return True
        if ident in self._written:
            return False
        fact = self.facts[ident] = Fact(kind, name, how, holder, key, value, *place)
        if not known or id(holder) in self.fleeting:
            self._loose.append(fact)
        return True

    def has(self, how: str, holder: Any, key: Any) -> bool:
        """Whether there is a fact, or none is needed."""
        ident = how, id(holder), key
        return ident in self.facts or ident in self._written

    def know(self, value: Any) -> None:
        """Note that a value was there before the trace."""
        kind = category(value)
        if kind == "code":
            self.register(value, True)
        elif kind not in ("plain", "tensor"):
            self._known[id(value)] = value

    def knows(self, value: Any) -> bool:
        """Whether a value was there before the trace."""
        return id(value) in self._known or isinstance(value, type | ModuleType)

    def register(self, value: Any, known: bool) -> None:
        """Note functions that may run, to find the variables that they have from outside."""
        if not known or id(value) in self._known:
            return
        self._known[id(value)] = value
        for function in functions_in(value):
            self._functions.setdefault(id(function.__code__), {})[id(function)] = function

    def partial(self, value: Any, known: bool) -> Any:
        """The function inside of a ``functools.partial``."""
        self.register(value, known)
        return value.func

    def refuse(self, kind: str, name: str, value: Any, place: str) -> None:
        """Remember the first value that the trace relied on and that cannot be compared."""
        reason, hint = CANNOT[kind]
        self._refuse(f"{name} cannot be relied on: {reason}", value, hint, place)

    def refuse_call(self, kind: str, name: str, file: str, line: int | None) -> None:
        """Remember a call that the trace cannot be sure of, of one of the kinds of ``CANNOT``."""
        reason, hint = CANNOT[kind]
        self._refuse(f"{name} cannot be relied on: {reason}", name, hint, f"{file}:{line}")

    def too_large(self, name: str, value: Any, place: str, why: str) -> None:
        """Remember that a value is too large to be compared in every call."""
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

    # What the interpreter tells -----------------------------------------------------------------

    def enter(self, frame: Any, thread: Thread) -> Run | None:
        """A watched function begins."""
        code = frame.f_code
        if is_output(frame, thread.runs):
            return None
        if code.co_name == "<module>" and _is_import(frame):
            return None
        program = program_of(code)
        if program.unknown is not None:
            self._refuse(
                f"{code.co_qualname} has an instruction that is not known: {program.unknown}",
                sys.version.split()[0],
                "a version of eagerflow for this Python",
                f"{code.co_filename}:{code.co_firstlineno}",
            )
        root = id(code) in self._roots
        if root:
            self._roots.clear()
            for value in _arguments_of(frame):
                self._argument(value)
        if origins[code.co_filename] == LAYERS:
            return self._enter_own(frame, program, thread)
        run = Run(frame, program, {})
        self._find_function(frame, run)
        run.root = root
        return run

    def _enter_own(self, frame: Any, program: Program, thread: Thread) -> Run | None:
        """A function of eagerflow's layers begins.

        The lines of a method that looks into its own object alone are watched once; for other
        objects there are facts about all that it may read from them.
        """
        code = frame.f_code
        run: Run | None = None
        if id(code) not in self._read:
            self._read[id(code)] = ()
            run = Run(frame, program, {})
            self._find_function(frame, run)
            self._again(frame, code)
            return run
        if program.own is None:
            run = Run(frame, program, {})
            self._find_function(frame, run)
            run.quiet = self._again(frame, code)
        else:
            label = code.co_varnames[0]
            own = frame.f_locals.get(label)
            key = id(code), id(own)
            if key not in self._read and category(own) == "object":
                self._read[key] = ()
                self._keep([own])
                self._look_into(own, label, program.own, frame)
        caller = thread.runs.get(frame.f_back)
        if caller is None or not caller.late:  # nobody asks what it returns
            return run if run is not None and not run.quiet else None
        run = run or Run(frame, program, {})
        run.quiet = run.quiet or program.own is not None
        return run

    def _look_into(self, own: Any, label: str, names: tuple[str, ...], frame: Any) -> None:
        """Facts about attributes of a layer, and about what containers among them hold."""
        held = getattr(own, "__dict__", {})
        cls = type(own)
        place = frame.f_code.co_filename, frame.f_code.co_firstlineno
        self.note(
            "attribute", f"{label}.__class__", "attribute", own, "__class__", cls, place, True
        )
        for name in names:
            full = f"{label}.{name}"
            part = held.get(name, ABSENT)
            if part is ABSENT:
                # The class has it, unless the object gets one of its own; its helpers do not.
                if name[0] != "_":
                    if self.once(cls, name):
                        reading = Reading(self, Run(frame, program_of(frame.f_code), {}), {}, False)
                        reading.attribute(Found(cls, True, cls.__name__), name)
                    self.note("attribute", full, "item", held, name, part, place, True)
                continue
            kind = category(part)
            if kind == "tensor" and is_symbolic(part):
                continue
            noted = self.note("attribute", full, "attribute", own, name, part, place, True)
            if noted and kind not in ("plain", "tensor"):
                self.know(part)
                if kind in ("container", "array"):
                    reading = Reading(self, Run(frame, program_of(frame.f_code), {}), {}, False)
                    reading.use(Found(part, True, full))

    def is_tree(self, value: Any) -> bool:
        """Whether a dict holds attributes that eagerflow walks over, to find layers and weights."""
        return id(value) in self.trees

    def once(self, *key: Any) -> bool:
        """Whether this is asked for the first time."""
        if key in self._entered:
            return False
        self._entered.add(key)
        return True

    def _argument(self, value: Any) -> None:
        """What an argument holds was there before; its own lists and dicts are made anew."""
        for leaf in tree.flatten(value)[0]:
            if category(leaf) not in ("plain", "tensor"):
                self.know(leaf)

    def _again(self, frame: Any, code: Any) -> bool:
        """Whether this function has been watched for the same arguments, up to tensors."""
        parts = _arguments_of(frame)
        key = (id(code), *[0 if type(part) is Tensor else id(part) for part in parts])
        if key in self._read:
            return True
        self._keep(parts)
        self._read[key] = ()
        return False

    def _keep(self, parts: list[Any]) -> None:
        for part in parts:
            if type(part) is not Tensor:
                self._kept[id(part)] = part

    def step(self, frame: Any, run: Run, offset: int) -> None:
        """A watched function comes to a line, or back to the head of a loop."""
        piece = run.program.pieces.get(offset) or run.program.piece(offset)
        if run.late or run.stores:
            self._settle(frame, run, not piece.caught)
        if run.returned:
            run.returned.clear()
        if not piece.actions:
            return
        # What has been read with the same objects need not be read again.
        key: Any = piece.number, id(run.cells)
        parts: list[Any] = []
        values: Any = None
        if piece.roots:
            values = frame.f_locals
            parts = [values.get(name) for name in piece.roots]
            key += tuple([0 if type(part) in _INERT else id(part) for part in parts])
            if piece.keys:
                more = [values.get(name) for name in piece.keys]
                key += tuple(map(id, more))
                parts += more
        late = self._read.get(key)
        if late is None:
            self._keep(parts)
            reading = Reading(self, run, values or {}, False)
            late = self._read[key] = reading.piece(piece)
        run.late = late

    def _settle(self, frame: Any, run: Run, completed: bool) -> None:
        """The line before has run: read what it computed, and note what it assigned."""
        if run.late:
            late, run.late = run.late, ()
            Reading(self, run, frame.f_locals, True).again(late)
        for ident, holder in run.stores if completed else ():
            if ident not in self.facts:
                self._written.setdefault(ident, holder)
        run.stores.clear()

    def leave(self, frame: Any, run: Run, value: Any, thread: Thread, completed: bool) -> None:
        """A watched function returns, or yields, ``value``."""
        if run.late or run.stores:
            self._settle(frame, run, completed)
        caller = thread.runs.get(frame.f_back)
        if caller is not None and caller.late and completed:
            offset = caller.program.instruction(frame.f_back.f_lasti)
            caller.returned.setdefault(offset, []).append(value)
            if category(value) not in ("plain", "tensor"):
                # The rest of the line may pass it on to functions that look into it.
                Reading(self, caller, frame.f_back.f_locals, True).again(caller.late)

    # Functions and their variables --------------------------------------------------------------

    def _find_function(self, frame: Any, run: Run) -> None:
        code = run.code
        if not code.co_freevars:
            own = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            key = id(code), type(own), len(self._functions.get(id(code), ()))
            if key in self._entered and not isinstance(own, type):
                return
            self._entered.add(key)
        found = [f for f in self._functions.get(id(code), {}).values() if _fits(f, frame)]
        method = self._find_method(frame, run)
        if method is not None and method not in found:
            found.append(method)
        if not found and id(code) in self.made:
            run.cells = self._made_here(code)
            return
        if not found and code.co_freevars:
            held = [f for f in gc.get_referrers(code) if type(f) is FunctionType]
            found = [f for f in held if f.__code__ is code and _fits(f, frame)]
        for f in found:
            if not run.trusted:
                self._note_function(f, run)
        if code.co_freevars:
            which = tuple(map(id, found))
            if which not in self._cells:
                rows = [
                    dict(zip(code.co_freevars, f.__closure__ or (), strict=True)) for f in found
                ]
                cells = {
                    n: tuple({id(row[n]): row[n] for row in rows}.values())
                    for n in code.co_freevars
                }
                self._cells[which] = cells
                self._keep(list(found))
            run.cells = self._cells[which]

    def _made_here(self, code: Any) -> Cells:
        """Of a function that the trace made: the variables that lie outside of the trace."""
        rows = self.made[id(code)]
        key = (id(code), *{id(row) for row in rows})
        if key not in self._cells:
            cells: Cells = {}
            for name in code.co_freevars:
                outside = [cell for row in rows for cell in row.get(name, ())]
                cells[name] = tuple({id(cell): cell for cell in outside}.values())
            self._cells[key] = cells
        return self._cells[key]

    def _find_method(self, frame: Any, run: Run) -> FunctionType | None:
        """The function of a method, and the fact that the class has it under its name."""
        code = run.code
        if not code.co_argcount or code.co_name[:1] == "<":
            return None
        own = frame.f_locals.get(code.co_varnames[0])
        cls = own if isinstance(own, type) else type(own)
        if category(own) in ("plain", "tensor") or cls.__module__ == "builtins":
            return None
        for base in cls.__mro__:
            raw = vars(base).get(code.co_name)
            for f in functions_in(raw):
                if f.__code__ is code:
                    name = f"{base.__name__}.{code.co_name}"
                    place = code.co_filename, code.co_firstlineno
                    self.note("function", name, "member", base, code.co_name, raw, place, True)
                    return f
        return None

    def _note_function(self, f: FunctionType, run: Run) -> None:
        code, name = run.code, f.__qualname__
        place = code.co_filename, code.co_firstlineno
        self.note("function", f"{name}.__code__", "attribute", f, "__code__", code, place, True)
        for part in ("__defaults__", "__kwdefaults__"):
            values = getattr(f, part)
            if values:
                held: Any = values if type(values) is tuple else tuple(values.items())
                self.note("default", f"defaults of {name}", part, f, part, held, place, True)
                for value in values if type(values) is tuple else values.values():
                    self.know(value)


def _is_import(frame: Any) -> bool:
    """Whether code of a module runs because it is imported."""
    return frame.f_back is None or frame.f_back.f_code.co_filename.startswith("<frozen importlib")


def _arguments_of(frame: Any) -> list[Any]:
    """What a function was called with, one by one."""
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


# Values with nothing to look into.
_INERT = {Tensor, Number, int, float, complex, bool, str, type(None), np.ndarray}


def _fits(f: FunctionType, frame: Any) -> bool:
    """Whether a running function may be ``f``: its variables from outside have these values."""
    names = f.__code__.co_freevars
    if not names:
        return True
    values = frame.f_locals
    for name, cell in zip(names, f.__closure__ or (), strict=True):
        try:
            if cell.cell_contents is not values.get(name):
                return False
        except ValueError:
            if name in values:
                return False
    return True


def watching() -> Watch | None:
    """The innermost Watch of this thread."""
    stack = current().stack
    found: Watch | None = stack[-1] if stack else None
    return found
