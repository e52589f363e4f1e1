"""Running a program in a way, with everything that it holds looked at after each statement."""

import ast
import contextlib
import functools
import itertools
import linecache
import random
import re
import shutil
import sys
import types
import warnings
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import eagerflow as ef
from eagerflow.errors import CaptureError, EagerflowError, PlacementError
from tests.campaigns import Failure, address, distance, distances, first, same_bits
from tests.programs import generate, helpers, ways
from tests.programs.helpers import torch

_numbers = itertools.count()
ef.set_logical_devices("cpu", 2)


class Snapshot(NamedTuple):
    """What is there after a statement: how it ended, what it bound, and the Variables."""

    statement: str
    raised: Any
    bound: dict
    state: dict


class Refused(Exception):
    """A way refuses the program, as it says."""


# Looking without reading: a read by the usual ways says that the value is used elsewhere. ---------


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


class Run:
    """A program that runs in one way; ``snapshots`` gives what is there after each statement."""

    def __init__(self, program, way, noise=None):
        self.program, self.way = program, way
        self.counts = {}
        self.capture = ways.decorators_of(way, self.counts)
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
        self.names.update(generate.namespace(*self.capture))
        if self.way in ways.EXPORTED:
            self.names["same"] = lambda a, b: None  # of the copies only some calls are exported
        self.known = set(self.names)
        if self.noise:
            self.names["numbers"] = numbers_with_noise(self.noise, epsilon(self.program))
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
        known = {place: copy for pairs in self.held.values() for place, _, copy in pairs}
        found = []
        for array in arrays_of(self.names.get(name)):
            place = place_of(array)
            copy = known.get(place)
            if copy is None or not same_bits(array, copy):
                copy = np.array(array)
            found.append((place, array, copy))
        if found:
            self.held[name] = found
        else:
            self.held.pop(name, None)
        return [copy for _, _, copy in found]

    def check_held(self, at):
        """Compare each piece of memory that is held with what it was; gives the copies."""
        seen = {}
        for name, pairs in self.held.items():
            for place, array, copy in pairs:
                if seen.get(place) is not copy and not same_bits(array, copy):
                    raise Failure(self.way, at, "held", f"{name} has changed: {first(array, copy)}")
                seen[place] = copy
        return seen

    def state(self, seen):
        """Copies of the Variables' values; ``seen`` has copies of memory that was looked at."""
        reached, found, self.objects = set(), {}, {}
        for name, thing in list(self.names.items()):
            if name in self.known or name.startswith("_"):
                continue
            for label, variable in variables_in(name, thing, reached):
                value = variable._current._array
                before, place = self.last.get(label), place_of(value)
                if place not in seen:
                    same = before is not None and same_bits(value, before)
                    seen[place] = before if same else np.array(value)
                found[label] = self.last[label] = seen[place]
                self.objects[label] = variable
        return found

    def snapshots(self):
        try:
            yield from self._snapshots()
        finally:  # the module was there for pickles of the program's objects
            sys.modules.pop(self.module.__name__, None)

    def _snapshots(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ef.random.seed(self.program.seed)
            self.setup()
        before, objects = self.state({}), self.objects
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
            state = self.state(self.check_held(at))
            if raised is not None:
                before = {n: a for n, a in before.items() if objects[n] is self.objects.get(n)}
                state = self.undone(at, before, state, raised)
            yield Snapshot(statement, raised, bound, state)
            before, objects = state, self.objects

    def undone(self, at, before, state, raised):
        """After an error: captured code has changed nothing; what eager code did is undone."""
        changed = [n for n in before if n in state and not same_bits(before[n], state[n])]
        if ".assign" not in self.program.statements()[at] and self.way in WHOLE and changed:
            raise Failure(self.way, at, "half done", f"{changed} changed, and {raised!r} came")
        if changed:
            seen = set()
            for name, thing in list(self.names.items()):
                if name not in self.known:
                    for label, variable in variables_in(name, thing, seen):
                        if label in changed:
                            variable.assign(before[label])
            state = self.state({})
        return state


WHOLE = ("fast", "exact", "session", "partitioned")
"""Ways in which a call happens wholly or not at all."""


@functools.lru_cache(1000)
def bound_names(statement):
    """The names of the program that a statement binds."""
    found = []
    for node in ast.walk(ast.parse(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
    return found


def numbers_with_noise(noise, eps):
    """As ``numbers``, but for errors of rounding: ``noise()`` gives a function of eps and shape."""
    error = noise()

    def numbers(rng, shape, dtype, scale=1.0):
        exact = generate.numbers(rng, shape, dtype, scale)
        return (exact.astype("f8") * (1 + error(eps, shape))).astype(dtype)

    return numbers


def rounding_noise(seed):
    """Two last places, up or down."""
    r = np.random.default_rng(seed)
    return lambda eps, shape: eps * r.uniform(-2, 2, shape)


def strong_noise(seed):
    """Some places more, so that values close to where a function jumps get to the other side."""
    r = np.random.default_rng(seed)
    return lambda eps, shape: max(2 * eps, min(64 * eps, 2**-7)) * r.uniform(-1, 1, shape)


SMALL_PERTURBATIONS = (
    ("perturbed", functools.partial(rounding_noise, 1)),
    ("perturbed", functools.partial(rounding_noise, 2)),
    ("perturbed", lambda: lambda eps, shape: 2 * eps),  # what rounds to one side adds up in sums
    ("perturbed", lambda: lambda eps, shape: -2 * eps),
    ("wide", None),
)
JUMP_SHARE = 0.01  # the share of elements that may be by chance exactly where a function jumps
STRONG_PERTURBATIONS = tuple(
    ("perturbed", functools.partial(strong_noise, seed)) for seed in range(3, 9)
)


def place_of(array):
    """What tells memory apart that is looked at as one array."""
    return address(array), array.strides, array.shape, array.dtype


# Comparing -------------------------------------------------------------------------------------


HUGE = re.compile(r"\d{10}")  # in a call: float32 keeps nothing of what is added to it
NO_REFUSALS = ("is used before it is computed", "is missing from")
"""What errors say that a right plan never gives."""


def parts(snapshot):
    for name, arrays in snapshot.bound.items():
        for k, array in enumerate(arrays):
            yield (name, k), array
    for name, array in snapshot.state.items():
        yield (name, "state"), array


def expected_error(error, way):
    if any(text in str(error) for text in NO_REFUSALS):
        return False
    return isinstance(error, CaptureError) or (
        way == "partitioned" and isinstance(error, PlacementError)
    )


def compare(reference, run, suspect):
    """Raise a Failure where a run differs; ``suspect`` says how far beyond rounding it may be."""
    snapshots = run.snapshots()
    for at, expected in enumerate(reference):
        if run.way == "wide" and HUGE.search(expected.statement):
            return
        snapshot = next(snapshots)
        if (snapshot.raised is None) != (expected.raised is None):
            if snapshot.raised is not None and expected_error(snapshot.raised, run.way):
                raise Refused(str(snapshot.raised).splitlines()[0])
            if run.way == "wide":
                return
            raise Failure(
                run.way, at, "raised", f"{snapshot.raised!r} where eager has {expected.raised!r}"
            )
        if (
            snapshot.raised is not None
            and not isinstance(snapshot.raised, EagerflowError)
            and type(snapshot.raised) is not type(expected.raised)
        ):
            raise Failure(
                run.way, at, "error", f"{snapshot.raised!r} where eager has {expected.raised!r}"
            )
        theirs = dict(parts(expected))
        if run.way != "wide":
            for name in snapshot.bound:
                if len(snapshot.bound[name]) != len(expected.bound[name]):
                    raise Failure(
                        run.way,
                        at,
                        "number of results",
                        f"{name}: {len(snapshot.bound[name])} for {len(expected.bound[name])}",
                    )
        for key, array in parts(snapshot):
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
    if "optimizers." in text and "optimizers.SGD" not in text:
        return True  # a gradient that is 0 but for rounding becomes a whole step
    if any("LBFGS" in statement for statement in program.statements()):
        return True  # a change of the gradient that is 0 but for rounding tells the curvature
    return any(x in text for x in ("view", "% 1.0", "argsort", "1e-9", "random.uniform", "dropout"))


def tolerance(a, run):
    """What a few roundings may make of values of this size."""
    eps = epsilon(run.program)
    least = 3e-6 if run.program.floats == "float16" else 1e-30  # 50 of its smallest numbers
    return (2000 if run.way == "onnx" else 200) * eps * largest(a) + least


def largest(a):
    """The largest finite absolute value, 0 if there is none."""
    a = a if a.dtype.kind == "f" and a.dtype.itemsize > 2 else a.astype("f8")
    with np.errstate(all="ignore"):
        sizes = np.abs(a)
        found = float(sizes.max(initial=0.0))
        return found if np.isfinite(found) else float(sizes[np.isfinite(sizes)].max(initial=0.0))


def epsilon(program):
    """The error of rounding to the coarsest dtype that the program uses."""
    text = program.setup()
    used = [program.floats] + [program.half] * ("(H)" in text)
    if "schedules." in text or 'dtype="float32"' in text:  # rates and draws are float32
        used.append("float32")
    return max(float(ml_dtypes.finfo(np.dtype(d)).eps) for d in used)


class Judge:
    """Tells rounding that grew from what is wrong, by eager runs with other rounding."""

    def __init__(self, program, reference):
        self.program, self.reference, self.made = program, reference, {}

    def runs(self, kinds):
        """What is there after each statement of eager runs, made once."""
        for kind in kinds:
            if kind not in self.made:
                found = []
                with contextlib.suppress(Failure):
                    found.extend(map(dict, map(parts, Run(self.program, *kind).snapshots())))
                self.made[kind] = found
            yield kind[0], self.made[kind]

    def values(self, kinds, at, key, way):
        """The value of a key in these runs; None where a run with other rounding has another."""
        own = dict(parts(self.reference[at]))[key]
        for made, found in self.runs(kinds):
            value = found[at].get(key) if at < len(found) else None
            if value is not None and value.shape == own.shape:
                if made == "perturbed" or (own.dtype.kind not in "biu" and way != "wide"):
                    yield value
            elif made == "perturbed":
                yield None

    def allows(self, at, key, expected, found, run):
        """Whether the difference is what rounding may do to this program.

        It may be up to 30 times what an error of two last places does to the largest difference;
        or, where a function jumps, at each element what larger errors do to this element; or few
        elements are exactly where a function jumps, by chance.
        """
        if run.way in ways.EXACT or expected.shape != found.shape:
            return False
        spread = 0.0
        for value in self.values(SMALL_PERTURBATIONS, at, key, run.way):
            if value is None:
                return True
            spread = max(spread, distance(expected, value))
        limit = 30 * spread + tolerance(expected, run)
        differences = distances(expected, found)
        eps = epsilon(self.program)  # values of about 1 that cancel leave their rounding
        with np.errstate(all="ignore"):
            differences[(np.abs(expected.astype("f8")) <= eps) & (differences <= eps)] = 0.0
        if (differences <= limit).all():
            return True
        spread = np.zeros(expected.shape)
        for value in self.values(STRONG_PERTURBATIONS, at, key, run.way):
            if value is None:
                return True
            spread = np.maximum(spread, distances(expected, value))
        beyond = differences > np.maximum(3 * spread, limit)
        if not beyond.any():
            return True
        return bool(beyond.mean() <= JUMP_SHARE) and self.by_chance(at, key, found, run, limit)

    def by_chance(self, at, key, found, run, limit):
        """Whether a difference comes again in the same run, but in none with other rounding."""
        (again,) = (values for _, values in self.runs([(run.way, None)]))
        if at >= len(again) or not same_bits(again[at][key], found):
            return False
        for way, noise in STRONG_PERTURBATIONS[:3]:
            pair = [v[at].get(key) for _, v in self.runs([(way, noise), (run.way, noise)])]
            if any(x is None for x in pair) or distance(*pair) > limit:
                return False
        return True

    def suspect_of(self, run):
        def suspect(at, key, expected, found):
            if not self.allows(at, key, expected, found, run):
                name = ".".join(map(str, key))
                raise Failure(run.way, at, "value", f"{name}: {first(found, expected)}")

        return suspect


def reference_of(program):
    """The snapshots of the eager run."""
    return list(Run(program, "eager").snapshots())


def choose(program):
    """The ways of a program: eager is what all are compared with."""
    r = random.Random(f"ways {program.seed}")
    found = ["fast"] if r.random() < 0.9 else ["exact"]
    half = program.floats in ("float16", "bfloat16")
    more = {
        "exact": 0.15,
        "session": 0.05,
        "fast session": 0.05,
        "loaded": 0.06,
        "partitioned": 0.08,
        "python": 0.06,
        "onnx": 0.04,
        "wide": 0.4 if half else 0.08,
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
    while helpers.FOLDERS:
        shutil.rmtree(helpers.FOLDERS.pop(), ignore_errors=True)
    return found, len(reference)
