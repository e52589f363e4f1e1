"""One run of a program in a mode: a snapshot of results and Variables after each statement."""

import ast
import functools
import itertools
import linecache
import re
import sys
import types
import warnings
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import eagerflow as ef
from tests.campaigns import Failure
from tests.differences import address, describe_difference, same_bits
from tests.internals import array_in, array_of
from tests.programs import helpers, modes
from tests.programs.helpers import torch

_numbers = itertools.count()
ef.set_logical_devices("cpu", 2)


class Snapshot(NamedTuple):
    """A statement, its error, and copies of the arrays that it binds and of all Variables."""

    statement: str
    raised: Any
    bound: dict
    state: dict

    def arrays(self):
        """Pairs of a key and an array."""
        for name, arrays in self.bound.items():
            for k, array in enumerate(arrays):
                yield (name, k), array
        for name, array in self.state.items():
            yield (name, "state"), array


# Arrays are found without public reads, which would mark the values as used elsewhere. ------------


def arrays_in(thing):
    """The arrays of a value, which share its memory."""
    if isinstance(thing, ef.Tensor):
        return [array_of(thing)] if isinstance(array_of(thing), np.ndarray) else [np.asarray(thing)]
    if isinstance(thing, np.generic):
        return [np.asarray(thing)]
    if isinstance(thing, np.ndarray):
        return [thing]
    if torch is not None and isinstance(thing, torch.Tensor):
        return [from_torch(thing)]
    if isinstance(thing, memoryview | bytearray):
        return [np.frombuffer(thing, np.uint8)] if getattr(thing, "c_contiguous", True) else []
    if isinstance(thing, list | tuple):
        return [a for x in thing for a in arrays_in(x)]
    if isinstance(thing, dict):
        return [a for x in thing.values() for a in arrays_in(x)]
    return []


def from_torch(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def variables_in(name, thing, seen):
    """Names and Variables that can be reached from a value of the program."""
    if isinstance(thing, ef.Variable):
        if id(thing) not in seen:
            seen.add(id(thing))
            yield name, thing
    elif isinstance(thing, list | tuple):
        for n, x in enumerate(thing):
            yield from variables_in(f"{name}[{n}]", x, seen)
    elif type(thing).__name__ == "Program":
        for key, value in vars(thing).items():
            yield from variables_in(f"{name}.{key}", value, seen)
    elif isinstance(thing, ef.random.Generator):
        yield from variables_in(f"{name}.state", getattr(thing, "state", None), seen)
    elif isinstance(thing, ef.nn.Layer | ef.nn.optimizers.Optimizer):
        yield from variables_in(f"{name}.variables", list(thing.variables), seen)


def with_error(array, error):
    """An array with relative errors."""
    with np.errstate(all="ignore"):
        return (array.astype("f8") * (1 + error(array.shape))).astype(array.dtype)


def memory_key(array):
    return address(array), array.strides, array.shape, array.dtype


@functools.lru_cache(1000)
def bound_names(statement):
    """The names that a statement binds."""
    nodes = ast.walk(ast.parse(statement))
    return [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


class Run:
    """A run of a program; ``error(shape)`` gives rounding errors for its numbers and Variables."""

    def __init__(self, program, mode, error=None):
        self.program, self.mode, self.error = program, mode, error
        self.counts = {}
        self.module = types.ModuleType(f"program_{next(_numbers)}")
        self.names = vars(self.module)
        self.names.update(modes.namespace(mode, self.counts))
        if error is not None:
            self.names["numbers"] = lambda *given: with_error(helpers.numbers(*given), error)
        if mode in modes.EXPORTED:
            self.names["same"] = lambda *given, **named: (
                None
            )  # not all calls of copies are exported
        self.predefined = set(self.names)
        self.held, self.copies = {}, {}

    def setup(self):
        text = self.program.setup()
        if self.mode == "float64":
            wide = 'F, H, TORCH = "float64", "float64", getattr(torch, "float64", None)'
            text = re.sub(r"^F, H.*", wide, text)
        sys.modules[self.module.__name__] = self.module
        self.names["__name__"] = self.module.__name__
        ef.random.seed(self.program.seed)
        self.execute(text, "setup")
        for name in set(self.names) - self.predefined:
            self.hold(name)

    def execute(self, text, label):
        file = f"<program {self.program.seed} {self.mode} {label} {next(_numbers)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(text, file, "exec"), self.names)
        finally:
            if label != "setup":
                linecache.cache.pop(file, None)

    def hold(self, name):
        """Keep the arrays of a name, which must not change any more. Returns copies of them."""
        known = {key: copy for arrays in self.held.values() for key, _, copy in arrays}
        found = []
        for array in arrays_in(self.names.get(name)):
            key = memory_key(array)
            copy = known.get(key)
            if copy is None or not same_bits(array, copy):
                copy = np.array(array)
            found.append((key, array, copy))
        self.held[name] = found
        return [copy for _, _, copy in found]

    def check_held(self, at):
        """Compare all held arrays with their copies. Returns the copies by memory key."""
        seen = {}
        for name, arrays in self.held.items():
            for key, array, copy in arrays:
                if seen.get(key) is not copy and not same_bits(array, copy):
                    text = f"{name} has changed: {describe_difference(array, copy)}"
                    raise Failure(self.mode, at, "held", text)
                seen[key] = copy
        return seen

    def variables(self):
        """Names and Variables that can be reached from the names of the program."""
        seen = set()
        for name, thing in list(self.names.items()):
            if name not in self.predefined and not name.startswith("_"):
                yield from variables_in(name, thing, seen)

    def state(self, seen):
        """Copies of the values of all Variables; ``seen`` has known copies by memory key."""
        found, self.objects = {}, {}
        for name, variable in self.variables():
            value = array_in(variable)
            before, key = self.copies.get(name), memory_key(value)
            if key not in seen:
                same = before is not None and same_bits(value, before)
                seen[key] = before if same else np.array(value)
            found[name] = self.copies[name] = seen[key]
            self.objects[name] = variable
        return found

    def snapshots(self):
        """Run the program. Yields a Snapshot after each statement."""
        try:
            self.setup()
            before, objects = self.state({}), self.objects
            for at, statement in enumerate(self.program.statements()):
                if self.error is not None:
                    self.add_errors()
                raised = self.error_of(statement, at)
                names = bound_names(statement) if raised is None else ()
                bound = {name: self.hold(name) for name in names}
                state = self.state(self.check_held(at))
                if raised is not None:
                    before = {n: a for n, a in before.items() if objects[n] is self.objects.get(n)}
                    state = self.roll_back(at, statement, before, state, raised)
                yield Snapshot(statement, raised, bound, state)
                before, objects = state, self.objects
        finally:  # which pickles of the program's objects need
            sys.modules.pop(self.module.__name__, None)

    def add_errors(self):
        """Give Variables rounding errors: those of the numbers alone may vanish in a loop."""
        for _, variable in self.variables():
            value = array_in(variable)
            if value.dtype.kind == "f" or value.dtype == ml_dtypes.bfloat16:
                variable.assign(with_error(np.asarray(value), self.error))

    def error_of(self, statement, at):
        """Execute a statement. Returns its error or None."""
        try:
            self.execute(statement, at)
        except AssertionError as error:
            kind = "exported" if isinstance(error, modes.ExportError) else "assertion"
            raise Failure(self.mode, at, kind, str(error)) from error
        except Exception as error:
            return error
        return None

    def roll_back(self, at, statement, before, state, raised):
        """Undo updates of eager code after an error; captured calls must have made none."""
        changed = [n for n in before if n in state and not same_bits(before[n], state[n])]
        if not changed:
            return state
        if ".assign" not in statement and self.mode in modes.ATOMIC:
            raise Failure(self.mode, at, "partial update", f"{changed} changed before {raised!r}")
        for name, variable in self.variables():
            if name in changed:
                variable.assign(before[name])
        return self.state({})
