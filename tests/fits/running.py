"""Training a random model in several ways, and telling rounding from what is wrong.

Captured with ``numerics="exact"``, a model has to have the bits of eager training. Captured as
users have it, numbers may differ by rounding, which grows from step to step: where they differ by
more than a few units in the last place, each step is looked at alone. An eager step is made from
the very state that the captured step began with, and what both give may differ by no more than
eager steps do that begin a rounding error beside it, or that compute in float64.
"""

import contextlib
import dataclasses
import itertools
import re
import warnings
from typing import NamedTuple

import ml_dtypes
import numpy as np

import eagerflow as ef
from eagerflow import tree
from eagerflow.capture.function import Function
from eagerflow.errors import CaptureError, EagerflowError
from eagerflow.nn import compiled_layer, configured
from eagerflow.ops import random as draws
from tests.campaigns import Failure, distance, first, same_bits

WAYS = ("exact", "fast")
TIGHT, NEAR, NEIGHBOURS = 64, 10, 6  # units in the last place; times the spread of eager steps


def captured(step, way):
    """The function that stands for a step of a model in a way."""
    return Function(step, numerics=way)


class Moment(NamedTuple):
    """A step: the method of the model, its arguments, all Variables before and after it."""

    name: str
    args: tuple
    before: dict
    after: dict


class Training:
    """A model that is made and trained in a way; "wide" is eager training in float64."""

    def __init__(self, fit, way, record=False):
        self.fit, self.way, self.record = fit, way, record
        self.moments, self.logs, self.held = [], [], []
        self.history, self.predictions, self.raised = {}, (), None

    def run(self):
        before = compiled_layer._captured
        compiled_layer._captured = lambda step: captured(step, self.way)
        policy = "float64" if self.way == "wide" else self.fit.policy
        configured._counters.clear()  # layers and their Variables have the same names in all ways
        ef.nn.set_dtype_policy(policy)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                self.train()
        except EagerflowError as error:
            self.raised = error
        finally:
            compiled_layer._captured = before
            ef.nn.set_dtype_policy("float32")
        return self

    def train(self):
        names = {"EAGER": self.way not in WAYS}
        fit = self.fit
        if self.way == "wide" and fit.policy in ("float16", "mixed_float16"):  # as in float16
            scaled = f"nn.optimizers.LossScaleOptimizer({fit.optimizer})"
            fit = dataclasses.replace(fit, optimizer=scaled)
        exec(compile(fit.text(), f"<fit {self.fit.seed} {self.way}>", "exec"), names)
        self.model = names["model"]
        self.model._step = self.step_of(self.model._step)
        call = self.fit.call()
        if self.fit.look and "callbacks" not in call:
            names["look"] = ef.nn.callbacks.LambdaCallback(on_train_batch_end=self.look)
            call = f"{call[:-1]}, callbacks=look)"
        self.history = eval(call, names).history
        for array, copy in self.held:
            if not same_bits(array, copy):
                raise Failure(self.way, -1, "held", f"a value has changed: {first(array, copy)}")
        if self.fit.predicts:
            found = tree.flatten(self.model.predict(names["x"], batch_size=5, verbose=0))[0]
            self.predictions = tuple(map(np.asarray, found))

    def look(self, number, logs):
        self.logs.append({name: np.asarray(value, "f4") for name, value in logs.items()})
        if self.fit.look == "held":
            arrays = [w.numpy() for w in (*self.model.weights, *self.model.optimizer.variables)]
            self.held += [(array, array.copy()) for array in arrays]

    def step_of(self, original):
        """What gives the steps of the model, and records them."""

        def step_named(name):
            step = original(name)
            if not self.record:
                return step

            def recorded(*args):
                if not self.moments:
                    self.build(args[0])
                before = self.state()
                result = step(*args)
                self.moments.append(Moment(name, args, before, self.state() | outputs(result)))
                return result

            return recorded

        return step_named

    def build(self, x):
        """Make all weights and their state before the first step, which would make them."""
        if not self.model.built:
            like = tree.map_leaves(lambda a: ef.nn.Input(a.shape[1:], dtype=a.dtype), x)
            self.model.compute_output_spec(like)
        self.model.optimizer.build(self.model.trainable_weights)

    def variables(self):
        found = variables_in(self.model)
        found["random"] = draws.default_generator.state
        return found

    def state(self):
        return {name: np.array(v._current._array) for name, v in self.variables().items()}

    def after(self, moment, state, args):
        """The state after the eager step from a state, with other arguments."""
        for name, variable in self.variables().items():
            if name in state:
                variable.assign(state[name].astype(variable.dtype))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = getattr(self.model, moment.name)(*args)
        return self.state() | outputs(result)

    def results(self):
        """All that a user gets, by name."""
        found = {f"history {name}": np.asarray(v, "f4") for name, v in self.history.items()}
        for n, logs in enumerate(self.logs):
            found |= {f"log {n} {name}": v for name, v in logs.items()}
        found |= {f"prediction {n}": v for n, v in enumerate(self.predictions)}
        return found | self.state()


def outputs(result):
    """The tensors that a step gives."""
    leaves = [x for x in tree.flatten(result)[0] if isinstance(x, ef.Tensor)]
    return {f"output {n}": np.array(x._array) for n, x in enumerate(leaves)}


def variables_in(thing):
    """All Variables that can be reached from a model, by the way to them."""
    found, seen, waiting = {}, set(), [("", thing)]
    while waiting:
        path, thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, ef.Variable):
            found[path] = thing
        elif isinstance(thing, draws.Generator):
            waiting.append((f"{path}.state", thing.state))
        elif isinstance(thing, list | tuple):
            waiting += [(f"{path}[{n}]", x) for n, x in enumerate(thing)]
        elif isinstance(thing, dict):
            waiting += [(f"{path}[{label(key)}]", x) for key, x in thing.items()]
        elif isinstance(thing, configured.Configured):
            waiting += [(f"{path}.{name}", x) for name, x in vars(thing).items()]
    return dict(sorted(found.items()))


def label(key):
    return key.name if isinstance(key, ef.Variable) else key


# Comparing -------------------------------------------------------------------------------------


def eps_of(array):
    return float(ml_dtypes.finfo(array.dtype).eps) if is_floating(array) else 0.0


def is_floating(array):
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def few_units(expected, found, *others):
    """The difference of two arrays that is rounding of the last places."""
    with np.errstate(all="ignore"):
        sizes = [np.abs(a.astype("f8")) for a in (expected, *others) if a.shape == expected.shape]
    finite = [s[np.isfinite(s)].max(initial=0.0) for s in sizes]
    return TIGHT * max(eps_of(expected), eps_of(found)) * max(finite) + 1e-30


def rounded_size(array):
    """The size of what was rounded once: the largest value, or 1 where all has cancelled."""
    with np.errstate(all="ignore"):
        sizes = np.abs(array.astype("f8"))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0)) or 1.0


def same_but_nans(a, b):
    """Whether arrays have the same bits where they are numbers; which NaN there is may differ."""
    numbers = ~np.isnan(a)
    return np.array_equal(numbers, ~np.isnan(b)) and same_bits(a[numbers], b[numbers])


def compare(reference, training):
    """The names of results that differ by more than the last places; Failure for other shapes."""
    expected, found = reference.results(), training.results()
    if list(expected) != list(found):
        missing = sorted(set(expected) ^ set(found))
        raise Failure(training.way, -1, "names", f"{missing[:5]} in one of both")
    suspects = []
    for name, array in expected.items():
        other = found[name]
        if same_bits(array, other):
            continue
        where = f"{name}: {first(other, array)}"
        if training.way == "exact" and same_but_nans(array, other):
            continue
        if training.way == "exact" or array.shape != other.shape or array.dtype != other.dtype:
            raise Failure(training.way, -1, "value", where)
        if distance(array, other) > few_units(array, other):
            suspects.append(where)
    return suspects


class Judge:
    """Looks at each captured step alone, beside eager steps from where it began."""

    def __init__(self, fit, way):
        self.fit = fit
        self.recorded = Training(fit, way, record=True).run()
        self.eager = Training(fit, "eager").run()
        self.wide = None if fit.policy == "float64" else Training(fit, "wide").run()
        if self.wide is not None and self.wide.raised is not None:
            self.wide = None
        self.eps = max(float(ml_dtypes.finfo(name).eps) for name in self.dtypes())

    def look(self, training):
        """Raise a Failure at the first step that is wrong."""
        final, again = training.state(), self.recorded.state()
        for name, array in final.items():
            if not same_bits(array, again[name]):
                raise Failure(training.way, -1, "unsteady", f"{name}: {first(again[name], array)}")
        self.eager.model.reset_metrics()
        fresh = self.eager.state()
        for at, moment in enumerate(self.recorded.moments):
            begin = {k: v for k, v in fresh.items() if k not in moment.before} | moment.before
            self.look_at(at, moment, begin, training.way)

    def look_at(self, at, moment, begin, way):
        expected = self.eager.after(moment, begin, moment.args)
        others, known = self.others(moment, begin), []
        for name, array in expected.items():
            found = moment.after.get(name)
            if found is None or array.shape != found.shape or array.dtype != found.dtype:
                raise Failure(way, at, "value", f"{name}: {found!r} for {array!r}")
            apart, spread = distance(array, found), 0.0
            near = few_units(array, found, begin.get(name, array))
            near = max(near, self.eps * rounded_size(array))
            for other in itertools.chain(known, kept(others, known)):
                if apart <= near + NEAR * spread:
                    break
                if name in other:
                    spread = max(spread, distance(array, other[name]))
            if apart > near + NEAR * spread:
                text = f"{name}: {first(found, array)}; they are {apart:.3g} apart, and eager "
                raise Failure(way, at, "value", f"{text}steps {spread:.3g}")

    def others(self, moment, begin):
        """Where eager steps end in float64, and from a rounding error beside a state."""
        if self.wide is not None:
            yield self.wide.after(moment, begin, moment.args)
        for n in range(NEIGHBOURS):
            rng = np.random.default_rng(n)
            state = {name: noisy(rng, array, self.eps) for name, array in begin.items()}
            x, *rest = moment.args
            x = tree.map_leaves(lambda a, r=rng: noisy(r, np.asarray(a), self.eps), x)
            with noisy_gradients(self.eager.model.optimizer, rng, self.eps):
                yield self.eager.after(moment, state, (x, *rest))

    def dtypes(self):
        """The dtypes that the model computes in; schedules compute the learning rate in float32."""
        named = re.findall(r", dtype='(?:mixed_)?(\w+)'\)", self.fit.text())
        named += ["float32"] * ("schedules." in self.fit.optimizer)
        return {self.fit.policy.removeprefix("mixed_"), *named} - {"int64"}


def kept(items, known):
    """The items, each of which is added to a list."""
    for item in items:
        known.append(item)
        yield item


def noisy(rng, array, eps):
    """An array with rounding errors."""
    if not is_floating(array):
        return array
    with np.errstate(all="ignore"):
        wide = array.astype("f8") * (1 + eps * rng.uniform(-2, 2, array.shape))
        return wide.astype(array.dtype)


@contextlib.contextmanager
def noisy_gradients(optimizer, rng, eps):
    """Give the optimizer gradients with the rounding errors of the largest one.

    An exact gradient of 0 is computed as the rounding of terms that cancel, from which some
    optimizers make a whole step.
    """

    def dense(gradient):
        whole = gradient.to_dense() if isinstance(gradient, ef.IndexedSlices) else gradient
        return None if whole is None else np.asarray(whole._array)

    def apply(grads, variables):
        arrays = [dense(g) for g in grads]
        largest = max((rounded_size(a) for a in arrays if a is not None and a.any()), default=0.0)

        def noisy(a):
            return (a + eps * largest * rng.uniform(-2, 2, a.shape)).astype(a.dtype)

        changed = [None if a is None else ef.asarray(noisy(a)) for a in arrays]
        type(optimizer).apply(optimizer, changed, variables)

    optimizer.apply = apply
    try:
        yield
    finally:
        del optimizer.apply


def choose(fit):
    return WAYS


def check(fit, ways=WAYS):
    """Train a model in all ways; a list of (way, how it ended, counts), and the number of steps."""
    ef.random.seed(fit.seed)
    reference = Training(fit, "eager").run()
    found = []
    for way in ways:
        training = Training(fit, way).run()
        if isinstance(training.raised, CaptureError) and reference.raised is None:
            found.append((way, f"refused: {str(training.raised).splitlines()[0]}", {}))
            continue
        if type(training.raised) is not type(reference.raised):
            raise Failure(
                way, -1, "raised", f"{training.raised!r} where eager has {reference.raised!r}"
            )
        if reference.raised is not None:
            name = type(reference.raised).__name__
            found.append((way, f"raises as eager does: {name}", {}))
            continue
        how = "same"
        if compare(reference, training):
            Judge(fit, way).look(training)
            how = "each step within rounding"
        found.append((way, how, counts(fit) if way == "fast" else {}))
    return found, 20


def counts(fit):
    """What there is in a model, for the table of a campaign."""
    text = fit.text()
    names = set(re.findall(r"nn\.((?:\w+\.)?[A-Z]\w+)\(", text))
    return dict.fromkeys(sorted(names | {f"form {fit.form}", f"policy {fit.policy}"}), 1)
