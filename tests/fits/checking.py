"""Comparison of captured training with eager training, within the effect of rounding errors.

With ``numerics="exact"`` all bits are equal. With fast numerics, rounding errors grow from step to
step. If results differ by more than a few units in the last place, each captured step is compared
with an eager step from the same state. Their difference is limited by that of eager steps in
float64, and of eager steps from states with rounding errors.
"""

import contextlib
import re

import ml_dtypes
import numpy as np

import eagerflow as ef
from eagerflow import tree
from eagerflow.errors import CaptureError
from eagerflow.masks import keeping_mask
from tests.campaigns import Failure
from tests.differences import (
    describe_difference,
    epsilon,
    largest_difference,
    largest_magnitude,
    same_bits,
    with_errors,
)
from tests.fits.generate import STEPS
from tests.fits.running import CAPTURED_MODES, Training
from tests.internals import array_of

TOLERANCE = 64  # units in the last place
SPREAD_FACTOR = 10  # limit of a difference, relative to that of eager steps
PERTURBED_STEPS = 6
SKIPPED, NEVER = ".optimizer.step_counter", np.zeros(())
"""The Variable of LossScaleOptimizer that a step sets to 0 if its gradients are not finite."""


def is_floating(array):
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def epsilon_of(array):
    return epsilon(array.dtype) if is_floating(array) else 0.0


def tolerance(expected, found, *others):
    """The size of a few units in the last place of the largest number."""
    arrays = [a for a in (expected, *others) if a.shape == expected.shape]
    largest = max(map(largest_magnitude, arrays))
    return TOLERANCE * max(epsilon_of(expected), epsilon_of(found)) * largest + 1e-30


def within_tolerance(reference, training):
    """Whether all results agree within the tolerance. Raises a Failure if bits must be equal."""
    expected, found = reference.results(), training.results()
    if list(expected) != list(found):
        names = sorted(set(expected) ^ set(found))
        raise Failure(training.mode, -1, "names", f"{names[:5]} only in one of both results")
    within = True
    for name, array in expected.items():
        other = found[name]
        if same_bits(array, other):
            continue
        if training.mode == "exact" or array.shape != other.shape or array.dtype != other.dtype:
            text = f"{name}: {describe_difference(other, array)}"
            raise Failure(training.mode, -1, "value", text)
        within = within and largest_difference(array, other) <= tolerance(array, other)
    return within


class StepComparison:
    """Compares each step of a captured training with eager steps from the same state."""

    def __init__(self, fit, mode):
        self.mode = mode
        self.recorded = Training(fit, mode, record=True).run()
        self.eager = Training(fit, "eager").run()
        self.wide = None if fit.policy == "float64" else Training(fit, "float64").run()
        if self.wide is not None and not self.is_comparable(self.wide):
            self.wide = None
        self.epsilon = max(map(epsilon, dtypes_of(fit)))

    def is_comparable(self, training):
        """Whether a training has the Variables of the eager one: casts are layers of a model."""
        shapes = [{n: v.shape for n, v in t.variables().items()} for t in (training, self.eager)]
        return training.raised is None and shapes[0] == shapes[1]

    def run(self, training):
        """Raise a Failure at the first step that is wrong."""
        again = self.recorded.state()
        for name, array in training.state().items():
            if not same_bits(array, again[name]):
                text = f"{name}: {describe_difference(again[name], array)}"
                raise Failure(self.mode, -1, "not deterministic", text)
        self.eager.model.reset_metrics()
        initial = self.eager.state()
        for at, record in enumerate(self.recorded.records):
            missing = {k: v for k, v in initial.items() if k not in record.before}
            self.compare(at, record, missing | record.before)

    def compare(self, at, record, state):
        expected = self.eager.state_after(record, state, record.args)
        if not same_bits(expected.get(SKIPPED, NEVER), record.after.get(SKIPPED, NEVER)):
            return  # float16 overflowed in one of both, where the other rounds only once
        others, known = self.other_steps(record, state), []
        for name, array in expected.items():
            found = record.after.get(name)
            if found is None or array.shape != found.shape or array.dtype != found.dtype:
                raise Failure(self.mode, at, "value", f"{name}: {found!r} instead of {array!r}")
            apart, spread = largest_difference(array, found), 0.0
            limit = tolerance(array, found, state.get(name, array))
            limit = max(limit, self.epsilon * (largest_magnitude(array) or 1.0))  # 0: cancelled
            if name.endswith(".total"):  # of a loss or metric, a small difference of logarithms
                limit = max(limit, TOLERANCE * epsilon_of(array))
            for other in iterate(known, others):
                if apart <= limit + SPREAD_FACTOR * spread:
                    break
                if name in other:
                    spread = max(spread, largest_difference(array, other[name]))
            if apart > limit + SPREAD_FACTOR * spread:
                text = f"{name}: {describe_difference(found, array)}; difference {apart:.3g}, "
                raise Failure(self.mode, at, "value", f"{text}of eager steps {spread:.3g}")

    def other_steps(self, record, state):
        """The states after eager steps in float64, and with rounding errors."""
        if self.wide is not None:
            yield self.wide.state_after(record, state, record.args)
        for n in range(PERTURBED_STEPS):
            rng = np.random.default_rng(n)
            changed = {name: perturbed(rng, array, self.epsilon) for name, array in state.items()}
            x, *rest = record.args
            x = tree.map_leaves(lambda a, r=rng: perturbed(r, np.asarray(a), self.epsilon), x)
            with contextlib.ExitStack() as stack:
                optimizer, sizes = self.eager.model.optimizer, []
                stack.enter_context(perturbed_gradients(optimizer, rng, self.epsilon, sizes))
                if n % 2:
                    stack.enter_context(perturbed_outputs(rng, self.epsilon, sizes))
                after = self.eager.state_after(record, changed, (x, *rest))
            yield after


def iterate(known, others):
    """Iterate over the known items, then over others, which are added to the known ones."""
    yield from known
    for other in others:
        known.append(other)
        yield other


def dtypes_of(fit):
    """The dtypes of a model; rates of schedules and Nadam's product are float32."""
    named = re.findall(r"\bdtype='(?:mixed_)?(\w+)'\)", fit.text())
    named += ["float32"] * ("schedules." in fit.optimizer or "Nadam" in fit.optimizer)
    return {fit.policy.removeprefix("mixed_"), *named} - {"int64"}


def perturbed(rng, array, eps):
    """An array with rounding errors."""
    if not is_floating(array):
        return array
    with np.errstate(all="ignore"):
        wide = array.astype("f8") * (1 + eps * rng.uniform(-2, 2, array.shape))
        return wide.astype(array.dtype)


@contextlib.contextmanager
def perturbed_gradients(optimizer, rng, eps, more):
    """Give the optimizer gradients with rounding errors.

    ``more`` are sizes of further gradients of the step: those of outputs are large beside those of
    weights where a softmax is saturated.
    """

    def to_array(gradient):
        dense = gradient.to_dense() if isinstance(gradient, ef.IndexedSlices) else gradient
        return None if dense is None else np.asarray(array_of(dense))

    def apply(gradients, variables):
        arrays = with_errors([to_array(g) for g in gradients], eps, rng, more)
        changed = [None if a is None else ef.asarray(a) for a in arrays]
        type(optimizer).apply(optimizer, changed, variables)

    optimizer.apply = apply
    try:
        yield
    finally:
        del optimizer.apply


@contextlib.contextmanager
def perturbed_outputs(rng, eps, sizes):
    """Give the outputs of layers rounding errors, as those of ops inside of a layer.

    The sizes of the gradients by these outputs are appended to ``sizes``.
    """
    call = ef.nn.Layer.__call__

    def with_error(x):
        if not (isinstance(x, ef.Tensor) and is_floating(array_of(x))):
            return x
        error = ef.asarray((1 + eps * rng.uniform(-1, 1, x.shape)).astype(x.dtype))

        def scaled(x):
            def gradient(g):
                if isinstance(array_of(g), np.ndarray):
                    sizes.append(largest_magnitude(array_of(g)))
                return g * error

            return x * error, gradient

        return keeping_mask(x, ef.custom_gradient(scaled)(x))

    def perturbed_call(self, *args, **kwargs):
        return tree.map_leaves(with_error, call(self, *args, **kwargs))

    ef.nn.Layer.__call__ = perturbed_call
    try:
        yield
    finally:
        ef.nn.Layer.__call__ = call


def choose_modes(fit):
    return CAPTURED_MODES


def check(fit, modes=CAPTURED_MODES):
    """Train a model in modes. Returns [(mode, status, counts)] and the number of steps."""
    ef.random.seed(fit.seed)
    reference = Training(fit, "eager").run()
    found = []
    for mode in modes:
        training = Training(fit, mode).run()
        status = compare(fit, reference, training)
        compared = status in ("same", "each step within rounding")
        found.append((mode, status, parts_of(fit) if mode == "fast" and compared else {}))
    return found, STEPS


def compare(fit, reference, training):
    """The status of a captured training. Raises a Failure if it is wrong."""
    error, eager_error = training.raised, reference.raised
    if isinstance(error, CaptureError) and eager_error is None:
        return f"refused: {str(error).splitlines()[0]}"
    if type(error) is not type(eager_error):
        raise Failure(training.mode, -1, "raised", f"{error!r} instead of eager {eager_error!r}")
    if error is not None:
        return f"raises as eager does: {type(error).__name__}"
    if within_tolerance(reference, training):
        return "same"
    StepComparison(fit, training.mode).run(training)
    return "each step within rounding"


def parts_of(fit):
    """Counts of the classes, the form and the dtype policy of a model."""
    names = set(re.findall(r"nn\.((?:\w+\.)?[A-Z]\w+)\(", fit.text()))
    return dict.fromkeys(sorted(names | {f"form {fit.form}", f"policy {fit.policy}"}), 1)
