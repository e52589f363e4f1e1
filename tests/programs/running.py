"""Running a program in a way, with everything that it holds looked at after each statement."""

import ast
import contextlib
import itertools
import linecache
import random
import re
import sys
import types
import warnings
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import eagerflow as ef
from eagerflow.errors import CaptureError, EagerflowError, PlacementError
from tests.campaigns import Failure, distance, first, same_bits
from tests.programs import generate, helpers, ways
from tests.programs.helpers import torch

_numbers = itertools.count()
ef.set_logical_devices("cpu", 2)


class Moment(NamedTuple):
    """What is there after a statement: how it ended, what it bound, and the Variables."""

    statement: str
    raised: Any
    bound: dict
    state: dict


class Refused(Exception):
    """A way refuses the program, as it says."""


# Looking without reading: a read by the usual ways says that the value is used elsewhere. ---------


def peeked(variable):
    """A copy of a Variable's value."""
    return np.array(variable._current._array)


def arrays_of(thing):
    """The arrays that a value is or holds, sharing its memory."""
    if isinstance(thing, ef.Tensor):
        return [thing._array] if isinstance(thing._array, np.ndarray) else [np.asarray(thing)]
    if isinstance(thing, np.generic):
        return [np.asarray(thing)]
    if isinstance(thing, np.ndarray):
        return [thing]
    if torch is not None and isinstance(thing, torch.Tensor):
        return [as_array(thing)]
    if isinstance(thing, memoryview | bytearray):
        return [np.frombuffer(thing, np.uint8)] if getattr(thing, "c_contiguous", True) else []
    if isinstance(thing, list | tuple):
        return [a for x in thing for a in arrays_of(x)]
    if isinstance(thing, dict):
        return [a for x in thing.values() for a in arrays_of(x)]
    return []


def as_array(tensor):
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


OWN = {"x", "i", "k"}


class Run:
    """A program that runs in one way; ``moments`` gives what is there after each statement."""

    def __init__(self, program, way, noise=0):
        self.program, self.way = program, way
        self.counts = {}
        self.capture = ways.captures(way, self.counts)
        self.module = types.ModuleType(f"program_{next(_numbers)}")
        self.names = vars(self.module)
        self.noise = noise
        self.held, self.last = {}, {}

    def setup_text(self):
        text = self.program.setup()
        if self.way == "wide":
            text = re.sub(
                r"^F, H.*",
                'F, H, TORCH = "float64", "float64", getattr(torch, "float64", None)',
                text,
            )
        return text

    def setup(self):
        self.names.update(generate.world(*self.capture))
        self.known = set(self.names)
        if self.noise:
            self.names["numbers"] = noisy(self.noise)
        sys.modules[self.module.__name__] = self.module
        self.names["__name__"] = self.module.__name__
        self.execute(self.setup_text(), "setup")
        for name in set(self.names) - self.known:
            self.hold(name)

    def execute(self, text, where):
        file = f"<program {self.program.seed} {self.way} {where} {next(_numbers)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        try:
            exec(compile(text, file, "exec"), self.names)
        finally:
            if where != "setup":
                linecache.cache.pop(file, None)

    def hold(self, name):
        """Look from now on at what a name stands for; gives copies of it."""
        found = arrays_of(self.names.get(name))
        copies = [np.array(a) for a in found]
        if found:
            self.held[name] = list(zip(found, copies, strict=True))
        else:
            self.held.pop(name, None)
        return copies

    def check_held(self, at):
        for name, pairs in self.held.items():
            for array, copy in pairs:
                if not same_bits(array, copy):
                    raise Failure(self.way, at, "held", f"{name} has changed: {first(array, copy)}")

    def state(self):
        seen, found = set(), {}
        for name, thing in list(self.names.items()):
            if name in self.known or name.startswith("_"):
                continue
            for label, variable in variables_in(name, thing, seen):
                value, before = variable._current._array, self.last.get(label)
                if before is None or not same_bits(value, before):
                    before = np.array(value)
                found[label] = self.last[label] = before
        return found

    def moments(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ef.random.seed(self.program.seed)
            self.setup()
        before = self.state()
        for at, statement in enumerate(self.program.statements()):
            raised, bound = None, {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    self.execute(statement, at)
                except Exception as error:
                    raised = error
            if isinstance(raised, AssertionError):
                kind = "exported" if isinstance(raised, ways.ExportError) else "noticed"
                raise Failure(self.way, at, kind, str(raised))
            if raised is None:
                bound = {name: self.hold(name) for name in bound_names(statement)}
            self.check_held(at)
            state = self.state()
            if raised is not None:
                state = self.undone(at, before, state, raised)
            yield Moment(statement, raised, bound, state)
            before = state

    def undone(self, at, before, state, raised):
        """After an error: captured code has changed nothing; what eager code did is undone."""
        changed = [n for n in before if n in state and not same_bits(before[n], state[n])]
        if self.way in ("fast", "exact", "session", "partitioned") and changed:
            raise Failure(self.way, at, "half done", f"{changed} changed, and {raised!r} came")
        if changed:
            seen = set()
            for name, thing in list(self.names.items()):
                if name not in self.known:
                    for label, variable in variables_in(name, thing, seen):
                        if label in changed:
                            variable.assign(before[label])
            state = self.state()
        return state


def bound_names(statement):
    """The names of the program that a statement binds."""
    found = []
    for node in ast.walk(ast.parse(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
    return found


def noisy(seed):
    """As ``numbers``, but for a rounding error."""
    r = np.random.default_rng(seed)

    def numbers(rng, shape, dtype, scale=1.0):
        exact = generate.numbers(rng, shape, dtype, scale)
        eps = float(ml_dtypes.finfo(exact.dtype).eps)
        return (exact.astype("f8") * (1 + eps * r.uniform(-2, 2, shape))).astype(dtype)

    return numbers


# Comparing -------------------------------------------------------------------------------------


def parts(moment):
    for name, arrays in moment.bound.items():
        for k, array in enumerate(arrays):
            yield (name, k), array
    for name, array in moment.state.items():
        yield (name, "state"), array


def expected_error(error, way):
    return isinstance(error, CaptureError) or (
        way == "partitioned" and isinstance(error, PlacementError)
    )


def compare(reference, run, suspect):
    """Raise a Failure where a run differs; ``suspect`` says how far beyond rounding it may be."""
    moments = run.moments()
    for at, expected in enumerate(reference):
        moment = next(moments)
        if (moment.raised is None) != (expected.raised is None):
            if moment.raised is not None and expected_error(moment.raised, run.way):
                raise Refused(str(moment.raised).splitlines()[0])
            if run.way == "wide":
                return
            raise Failure(
                run.way, at, "raised", f"{moment.raised!r} where eager has {expected.raised!r}"
            )
        if (
            moment.raised is not None
            and not isinstance(moment.raised, EagerflowError)
            and type(moment.raised) is not type(expected.raised)
        ):
            raise Failure(
                run.way, at, "error", f"{moment.raised!r} where eager has {expected.raised!r}"
            )
        theirs = dict(parts(expected))
        if run.way != "wide":
            for name in moment.bound:
                if len(moment.bound[name]) != len(expected.bound[name]):
                    raise Failure(
                        run.way,
                        at,
                        "number of results",
                        f"{name}: {len(moment.bound[name])} for {len(expected.bound[name])}",
                    )
        for key, array in parts(moment):
            if key in theirs and not agree(theirs[key], array, run):
                suspect(at, key, theirs[key], array)


def agree(a, b, run):
    if same_bits(a, b):
        return True
    if run.way in ways.EXACT:
        return False
    if run.way == "wide" and (
        a.shape != b.shape or a.dtype.kind in "biu" or has_steps(run.program)
    ):
        return True
    if a.shape != b.shape or a.dtype != b.dtype:
        return run.way == "wide" and a.shape == b.shape and distance(a, b) <= tolerance(a, run)
    if a.dtype.kind in "biu":
        return a.dtype == "uint8" and shows_bits(run.program)
    return distance(a, b) <= tolerance(a, run)


def shows_bits(program):
    """Whether bytes of floats may be among the values, which any rounding changes."""
    return "uint8')" in program.setup() or "bytearray" in "".join(program.script)


def has_steps(program):
    """Whether a last bit may decide large parts of the results."""
    text = program.setup()
    return any(x in text for x in ("view", "% 1.0", "Lion", "argsort", "1e-9"))


def tolerance(a, run):
    eps = max(float(ml_dtypes.finfo(np.dtype(d)).eps) for d in used(run.program))
    with np.errstate(all="ignore"):
        scale = np.abs(a.astype("f8"))
    scale = scale[np.isfinite(scale)]
    least = 3e-6 if run.program.floats == "float16" else 1e-30  # 50 of its smallest numbers
    return 200 * eps * float(scale.max(initial=0.0)) + least


def used(program):
    names = {program.floats}
    if "(H)" in program.setup():
        names.add(program.half)
    return names


class Judge:
    """Tells rounding that grew from what is wrong, by runs with other rounding."""

    def __init__(self, program, reference):
        self.program, self.reference, self.others = program, reference, None

    def near(self, at, key):
        """How far apart eager runs are that differ by a rounding error at the beginning."""
        if self.others is None:
            self.others = []
            for way, noise in (("perturbed", 1), ("perturbed", 2), ("perturbed", 3), ("wide", 0)):
                found = []
                with contextlib.suppress(Failure):
                    found.extend(map(dict, map(parts, Run(self.program, way, noise).moments())))
                self.others.append((way, found))
        own = dict(parts(self.reference[at]))[key]
        spread = 0.0
        for way, found in self.others:
            if at >= len(found) or key not in found[at] or found[at][key].shape != own.shape:
                if way == "perturbed":
                    return float("inf")
                continue
            if way == "perturbed" or (own.dtype.kind not in "biu" and self.way != "wide"):
                spread = max(spread, distance(own, found[at][key]))
        return spread

    def suspect_of(self, run):
        def suspect(at, key, expected, found):
            self.way = run.way
            if run.way not in ways.EXACT and expected.shape == found.shape:
                allowed = 30 * self.near(at, key) + tolerance(expected, run)
                if distance(expected, found) <= allowed:
                    return
            name = ".".join(map(str, key))
            raise Failure(run.way, at, "value", f"{name}: {first(found, expected)}")

        return suspect


def reference_of(program):
    """The moments of the eager run."""
    return list(Run(program, "eager").moments())


def choose(program):
    """The ways of a program: eager is what all are compared with."""
    r = random.Random(f"ways {program.seed}")
    found = ["fast"] if r.random() < 0.9 else ["exact"]
    half = program.floats in ("float16", "bfloat16")
    more = {
        "exact": 0.3,
        "session": 0.1,
        "fast session": 0.1,
        "loaded": 0.13,
        "partitioned": 0.15,
        "python": 0.1,
        "onnx": 0.06,
        "wide": 0.6 if half else 0.15,
    }
    for way, chance in more.items():
        if way not in found and r.random() < chance and not (half and way in ("python", "onnx")):
            found.append(way)
    return found


def check(program, chosen=None):
    """Run a program in its ways; a list of (way, how it ended), or a Failure raised."""
    reference = reference_of(program)
    judge = Judge(program, reference)
    found = []
    for way in chosen or choose(program):
        run = Run(program, way)
        try:
            compare(reference, run, judge.suspect_of(run))
            found.append((way, "same", run.counts))
        except Refused as refusal:
            found.append((way, f"refused: {refusal}", run.counts))
    helpers.MEMORY.clear()
    return found, len(reference)
