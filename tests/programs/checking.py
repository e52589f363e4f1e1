"""Comparison of a program's runs with its eager run, within the effect of rounding errors."""

import contextlib
import functools
import random
import re
import traceback

import numpy as np

import eagerflow as ef
from eagerflow.errors import CaptureError, EagerflowError, IndexRangeError, PlacementError
from eagerflow.ops import random as random_numbers
from tests.campaigns import Failure
from tests.differences import (
    describe_difference,
    differences,
    epsilon,
    largest_difference,
    largest_magnitude,
    same_bits,
    with_errors,
)
from tests.internals import array_of
from tests.programs import helpers, modes
from tests.programs.running import Run

TEN_DIGITS = re.compile(r"\d{10}")  # in a call: float32 rounds away additions to such a number
UNBOUNDED = "how often the body may run"
"""The error of an eager tape, which goes through loops over values that were watched before."""
NUMPY_ERRORS = ArithmeticError, LookupError, TypeError, ValueError
"""Errors of a program without eagerflow where eager code raises an EagerflowError."""
DEFECTIVE_PLAN = ("is used before it is computed", "is missing from")
"""Messages of errors that are never refusals."""


class Refused(Exception):
    """The mode does not support the program."""


def is_refusal(error, mode):
    if any(text in str(error) for text in DEFECTIVE_PLAN):
        return False
    return isinstance(error, CaptureError) or (
        mode == "partitioned" and isinstance(error, PlacementError)
    )


def compare(reference, run, sensitivity):
    """Raise a Failure at the first statement whose snapshot is wrong, or Refused."""
    snapshots = run.snapshots()
    for at, expected in enumerate(reference):
        if run.mode == "float64" and TEN_DIGITS.search(expected.statement):
            return
        snapshot = next(snapshots)
        error, eager_error = snapshot.raised, expected.raised
        one_raised = (error is None) != (eager_error is None)
        if one_raised and error is not None and is_refusal(error, run.mode):
            raise Refused(str(error).splitlines()[0])
        if one_raised and (run.mode == "float64" or UNBOUNDED in str(eager_error)):
            return
        if one_raised and error is None and is_of_unused(eager_error, run.program):
            return
        if one_raised or not same_error(error, eager_error, run.mode):
            kind = "raised" if one_raised else "error"
            raise Failure(run.mode, at, kind, f"{error!r} instead of eager {eager_error!r}")
        if error is not None and left_traces(reference, at, run.program):
            return
        for name, arrays in snapshot.bound.items():
            if run.mode != "float64" and len(arrays) != len(expected.bound[name]):
                text = f"{name}: {len(arrays)} instead of {len(expected.bound[name])}"
                raise Failure(run.mode, at, "number of results", text)
        compare_arrays(at, dict(expected.arrays()), snapshot, run, sensitivity)


def is_of_unused(error, program):
    """Whether an index was refused for a value that nothing uses, which graphs do not compute."""
    if not isinstance(error, IndexRangeError):
        return False
    setup = program.setup()
    lines = [f.line for f in traceback.extract_tb(error.__traceback__) if "<program" in f.filename]
    found = re.match(r"(\w+) = ", lines[-1] or "") if lines else None
    return found is not None and len(re.findall(rf"\b{found[1]}\b", setup)) == 1


def left_traces(reference, at, program):
    """Whether an eager call that raised has made Variables or drawn numbers, as no captured one."""
    made = at > 0 and reference[at].state.keys() != reference[at - 1].state.keys()
    return at == 0 or made or "ef.random.uniform" in program.setup()


def same_error(error, eager_error, mode):
    if mode in ("python", "onnx") and isinstance(error, NUMPY_ERRORS):
        return True
    return error is None or isinstance(error, EagerflowError) or type(error) is type(eager_error)


def compare_arrays(at, expected, snapshot, run, sensitivity):
    for key, array in snapshot.arrays():
        if key not in expected or agree(expected[key], array, run):
            continue
        if not sensitivity.explains(at, key, expected[key], array, run):
            text = f"{'.'.join(map(str, key))}: {describe_difference(array, expected[key])}"
            raise Failure(run.mode, at, "value", text)


def agree(expected, found, run):
    """Whether arrays are equal within the tolerance of the mode."""
    if same_bits(expected, found):
        return True
    if run.mode in modes.BIT_EXACT:
        return False
    integers = expected.dtype.kind in "biu"
    if run.mode == "float64":
        if expected.shape != found.shape or integers or amplifies_rounding(run.program):
            return True
    elif expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    elif integers:
        return expected.dtype == "uint8" and may_show_bits(run.program)
    return largest_difference(expected, found) <= tolerance(expected, run)


def may_show_bits(program):
    """Whether bytes of floats may be among the values; any rounding changes them."""
    return "uint8')" in program.setup() or "bytearray" in "".join(program.script)


def amplifies_rounding(program):
    """Whether one unit in the last place may decide large parts of the results."""
    text = program.setup()
    if "optimizers." in text and "optimizers.SGD" not in text:
        return True  # a gradient of nothing but rounding errors becomes a whole step
    if "LBFGS" in "".join(program.script):
        return True  # as does a change of gradients, from which LBFGS computes the curvature
    return any(x in text for x in ("view", "% 1.0", "argsort", "1e-9", "random.uniform", "dropout"))


def tolerance(array, run):
    """The size of a few rounding errors of values of this size."""
    least = 3e-6 if run.program.dtype == "float16" else 1e-30  # 50 of its smallest numbers
    factor = 2000 if run.mode == "onnx" else 200
    eps = epsilon_of(run.program)
    if array.dtype == "float32":  # as distances of integers in a program of float64
        eps = max(eps, epsilon("float32"))
    return factor * eps * largest_magnitude(array) + least


def epsilon_of(program):
    """The rounding error of the coarsest dtype that a program uses."""
    text = program.setup()
    used = [program.dtype] + [program.second_dtype] * ("(H)" in text)
    if any(x in text for x in ("schedules.", "Nadam", 'dtype="float32"')):
        # rates, Nadam's product and draws
        used.append("float32")
    return max(map(epsilon, used))


# Sensitivity -----------------------------------------------------------------------------------


@contextlib.contextmanager
def keeping_random_state():
    """Keep the state of the default generator, which the run under comparison goes on with."""
    state = random_numbers.default_generator.state
    before = state.value
    try:
        yield
    finally:
        state.assign(before)


@contextlib.contextmanager
def perturbed_gradients(eps, seed):
    """Give optimizers gradients with rounding errors."""
    rng, own = np.random.default_rng(seed), ef.nn.optimizers.Optimizer.apply

    def is_plain(gradient):
        return isinstance(gradient, ef.Tensor) and type(array_of(gradient)) is np.ndarray

    def apply(self, gradients, variables):
        if all(g is None or is_plain(g) for g in gradients):  # else rows of a table, or a trace
            arrays = [None if g is None else np.asarray(array_of(g)) for g in gradients]
            changed = with_errors(arrays, eps, rng)
            gradients = [None if a is None else ef.asarray(a) for a in changed]
        own(self, gradients, variables)

    ef.nn.optimizers.Optimizer.apply = apply
    try:
        yield
    finally:
        ef.nn.optimizers.Optimizer.apply = own


def rounding_noise(seed):
    """Errors of at most two units in the last place."""
    r = np.random.default_rng(seed)
    return lambda eps, shape: eps * r.uniform(-2, 2, shape)


def strong_noise(seed):
    """Larger errors, which move values across the jump of a function."""
    r = np.random.default_rng(seed)
    return lambda eps, shape: max(2 * eps, min(64 * eps, 2**-7)) * r.uniform(-1, 1, shape)


SMALL_PERTURBATIONS = (
    ("perturbed", functools.partial(rounding_noise, 1)),
    ("perturbed", functools.partial(rounding_noise, 2)),
    ("perturbed", lambda: lambda eps, shape: 2 * eps),  # errors of one sign add up in sums
    ("perturbed", lambda: lambda eps, shape: -2 * eps),
    ("float64", None),
)
STRONG_NOISE = tuple(functools.partial(strong_noise, seed) for seed in range(3, 9))
STRONG_PERTURBATIONS = tuple(("perturbed", noise) for noise in STRONG_NOISE)
JUMP_SHARE = 0.01  # the largest share of elements that may lie exactly at the jump of a function


class Sensitivity:
    """The effect of rounding errors on a program, measured by runs with perturbed inputs."""

    def __init__(self, program, reference):
        self.program, self.reference, self.runs = program, reference, {}
        self.epsilon = epsilon_of(program)

    def snapshots(self, mode, noise):
        """The arrays after each statement of a run, which is cached."""
        if (mode, noise) not in self.runs:
            found = self.runs[mode, noise] = []
            error = noise and functools.partial(noise(), self.epsilon)
            with contextlib.ExitStack() as stack:
                stack.enter_context(keeping_random_state())
                stack.enter_context(contextlib.suppress(Failure))
                if noise in STRONG_NOISE:
                    stack.enter_context(perturbed_gradients(self.epsilon, noise.args[0]))
                for snapshot in Run(self.program, mode, error).snapshots():
                    found.append(dict(snapshot.arrays()))
        return self.runs[mode, noise]

    def value(self, mode, noise, at, key):
        """The value of a key after a statement of a run, None if there is none."""
        found = self.snapshots(mode, noise)
        return found[at].get(key) if at < len(found) else None

    def values(self, perturbations, at, key, mode):
        """The values of a key in perturbed runs; None if it is missing or has another shape."""
        own = dict(self.reference[at].arrays())[key]
        for other, noise in perturbations:
            value = self.value(other, noise, at, key)
            if value is not None and value.shape == own.shape:
                if other == "perturbed" or (own.dtype.kind not in "biu" and mode != "float64"):
                    yield value
            elif other == "perturbed":
                yield None

    def explains(self, at, key, expected, found, run):
        """Whether a difference can be an effect of rounding.

        Its limit is 30 times the largest effect of errors of two units in the last place. It may
        be larger at elements that larger errors change as much, and at a few elements that lie
        exactly at the jump of a function.
        """
        if run.mode in modes.BIT_EXACT or expected.shape != found.shape:
            return False
        if self.epsilon > 1e-4 and "% 1.0" in self.program.setup():
            return True  # one unit in the last place of a mean moves all elements over the jump
        spread = 0.0
        for value in self.values(SMALL_PERTURBATIONS, at, key, run.mode):
            if value is None:
                return True
            spread = max(spread, largest_difference(expected, value))
        limit = 30 * spread + tolerance(expected, run)
        apart = differences(expected, found)
        with np.errstate(all="ignore"):  # values of about 1 that cancel leave their rounding errors
            cancelled = (np.abs(expected.astype("f8")) <= self.epsilon) & (apart <= self.epsilon)
        apart[cancelled] = 0.0
        if (apart <= limit).all():
            return True
        spread = np.zeros(expected.shape)
        for value in self.values(STRONG_PERTURBATIONS, at, key, run.mode):
            if value is None:
                return True
            spread = np.maximum(spread, differences(expected, value))
        beyond = apart > np.maximum(3 * spread, limit)
        if not beyond.any():
            return True
        return bool(beyond.mean() <= JUMP_SHARE) and self.is_jump(at, key, found, run, limit)

    def is_jump(self, at, key, found, run, limit):
        """Whether a difference is reproducible, and absent with perturbed inputs."""
        again = self.value(run.mode, None, at, key)
        if again is None or not same_bits(again, found):
            return False
        for mode, noise in STRONG_PERTURBATIONS[:3]:
            pair = [self.value(m, noise, at, key) for m in (mode, run.mode)]
            if any(x is None for x in pair) or largest_difference(*pair) > limit:
                return False
        return True


def choose_modes(program):
    """The modes in which a program is compared with its eager run."""
    r = random.Random(f"ways {program.seed}")
    found = ["fast"] if r.random() < 0.9 else ["exact"]
    half = program.dtype in ("float16", "bfloat16")
    probabilities = {
        "exact": 0.15,
        "session": 0.05,
        "fast session": 0.05,
        "loaded": 0.06,
        "partitioned": 0.08,
        "python": 0.06,
        "onnx": 0.04,
        "float64": 0.4 if half else 0.08,
    }
    for mode, p in probabilities.items():
        if mode not in found and r.random() < p and not (half and mode in ("python", "onnx")):
            found.append(mode)
    return found


def check(program, chosen=None):
    """Run a program in modes. Returns [(mode, status, counts)] and the number of statements."""
    try:
        reference = list(Run(program, "eager").snapshots())
        sensitivity = Sensitivity(program, reference)
        found = []
        for mode in chosen or choose_modes(program):
            run, status = Run(program, mode), "same"
            try:
                compare(reference, run, sensitivity)
            except Refused as refusal:
                status = f"refused: {refusal}"
            found.append((mode, status, run.counts))
        return found, len(reference)
    finally:
        helpers.remove_folders()
