"""Training of a model in a mode, with records of its steps, results and Variables."""

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from eagerflow.capture.function import Function
from eagerflow.errors import EagerflowError
from eagerflow.nn import compiled_layer, configured
from eagerflow.ops import random as draws
from tests.campaigns import Failure
from tests.differences import describe_difference, same_bits
from tests.internals import array_in, array_of, replace_method

CAPTURED_MODES = ("exact", "fast")


def captured(step, mode):
    """The captured function of a training step in a mode."""
    return Function(step, numerics=mode)


class StepRecord(NamedTuple):
    """A step: the method's name, its arguments, and all Variables before and after it."""

    name: str
    args: tuple
    before: dict
    after: dict


class Training:
    """A training in a mode: a captured one, "eager", or "float64" (eager in this dtype)."""

    def __init__(self, fit, mode, record=False):
        self.fit, self.mode, self.record = fit, mode, record
        self.records, self.logs, self.held = [], [], []
        self.history, self.predictions, self.raised = {}, (), None

    def run(self):
        before = compiled_layer.captured_step
        compiled_layer.captured_step = lambda step: captured(step, self.mode)
        configured._counters.clear()  # names of layers and Variables are equal in all modes
        ef.nn.set_dtype_policy("float64" if self.mode == "float64" else self.fit.policy)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                self.train()
        except EagerflowError as error:
            self.raised = error
        finally:
            compiled_layer.captured_step = before
            ef.nn.set_dtype_policy("float32")
        return self

    def train(self):
        names = {"EAGER": self.mode not in CAPTURED_MODES}
        fit = self.fit
        if self.mode == "float64" and fit.policy in ("float16", "mixed_float16"):
            scaled = f"nn.optimizers.LossScaleOptimizer({fit.optimizer})"  # as compile has it there
            fit = dataclasses.replace(fit, optimizer=scaled)
        exec(compile(fit.text(), f"<fit {fit.seed} {self.mode}>", "exec"), names)
        self.model = names["model"]
        if self.record:
            replace_method(pytest.MonkeyPatch(), self.model, "_step", self.recorded)
        call = fit.call()
        if fit.callback and "callbacks" not in call:
            names["callback"] = ef.nn.callbacks.LambdaCallback(on_train_batch_end=self.read)
            call = f"{call[:-1]}, callbacks=callback)"
        self.history = eval(call, names).history
        for array, copy in self.held:
            if not same_bits(array, copy):
                text = f"a value has changed: {describe_difference(array, copy)}"
                raise Failure(self.mode, -1, "held", text)
        if fit.predicts:
            nest = self.model.predict(names["x"], batch_size=5, verbose=0)
            self.predictions = tuple(map(np.asarray, tree.flatten(nest)[0]))

    def read(self, number, logs):
        """Keep the values that a user reads after a training step."""
        self.logs.append({name: np.asarray(value, "f4") for name, value in logs.items()})
        if self.fit.callback == "weights":
            arrays = [w.numpy() for w in (*self.model.weights, *self.model.optimizer.variables)]
            self.held += [(array, array.copy()) for array in arrays]

    def recorded(self, step_named):
        """The method ``_step`` of a model whose steps are recorded."""

        def recorded_step_named(name):
            step = step_named(name)

            def recorded_step(*args):
                if not self.records:
                    self.build(args[0])
                before = self.state()
                result = step(*args)
                after = self.state() | outputs(result)
                self.records.append(StepRecord(name, args, before, after))
                return result

            return recorded_step

        return recorded_step_named

    def build(self, x):
        """Create all weights and the optimizer's state, which the first step would create."""
        if not self.model.built:
            inputs = tree.map_leaves(lambda a: ef.nn.Input(a.shape[1:], dtype=a.dtype), x)
            self.model.compute_output_spec(inputs)
        self.model.optimizer.build(self.model.trainable_weights)

    def variables(self):
        return variables_of(self.model) | {"random": draws.default_generator.state}

    def state(self):
        return {name: np.array(array_in(v)) for name, v in self.variables().items()}

    def state_after(self, record, state, args):
        """The state after an eager step from a state, with arguments."""
        for name, variable in self.variables().items():
            if name in state:
                variable.assign(state[name].astype(variable.dtype))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = getattr(self.model, record.name)(*args)
        return self.state() | outputs(result)

    def results(self):
        """History, logs, predictions and Variables by name."""
        found = {f"history {name}": np.asarray(v, "f4") for name, v in self.history.items()}
        for n, logs in enumerate(self.logs):
            found |= {f"log {n} {name}": v for name, v in logs.items()}
        found |= {f"prediction {n}": v for n, v in enumerate(self.predictions)}
        return found | self.state()


def outputs(result):
    """The tensors of a step's result."""
    leaves = [x for x in tree.flatten(result)[0] if isinstance(x, ef.Tensor)]
    return {f"output {n}": np.array(array_of(x)) for n, x in enumerate(leaves)}


def variables_of(model):
    """All Variables that can be reached from a model, by their paths."""
    found, seen, waiting = {}, set(), [("", model)]
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
