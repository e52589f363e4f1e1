"""Captured training of random models equals eager training, and planted faults are detected."""

import dataclasses
import datetime
import os

import numpy as np
import pytest

from eagerflow.nn import layer
from tests.campaigns import Campaign, Failure
from tests.fits import checking, running
from tests.fits.__main__ import FITS
from tests.fits.fit import Fit, Output, Statement
from tests.fits.generate import generate
from tests.internals import array_in

SEED = int(os.environ.get("EAGERFLOW_FITS_SEED", datetime.date.today().toordinal() * 1000))


def test_models_of_today():
    campaign = Campaign(FITS, 30, SEED, jobs=2, seconds=25, batch=5)  # to begin a batch
    assert not campaign.run(), f"EAGERFLOW_FITS_SEED={SEED}: {campaign.failures}"
    assert campaign.programs >= 10


@pytest.mark.soak
def test_five_thousand_models():
    campaign = Campaign(FITS, 5_000, SEED, jobs=2, batch=10)
    assert not campaign.run(), f"EAGERFLOW_FITS_SEED={SEED}: {campaign.failures}"
    assert campaign.programs == 5_000


def test_a_seed_gives_one_model():
    assert generate(3) == generate(3)


def model(*steps, kind="sequence", shape=(4, 3), policy="float32"):
    """A model of layers with one output, to which a fault is added."""
    last = f"h{len(steps)}"
    return Fit(
        seed=5,
        form="functional",
        policy=policy,
        inputs=(("x0", kind, shape),),
        statements=(
            *(
                Statement((f"h{n}",), f"$({'x0' if n == 1 else f'h{n - 1}'})", layer, f"l{n}")
                for n, layer in enumerate(steps, 1)
            ),
            Statement(("end",), f"$({last})", "nn.Dense(2)", "l"),
        ),
        outputs=(Output("end", "'mse'", ("'mae'",), "rng.normal(size=(18, 2)).astype('float32')"),),
        optimizer="nn.optimizers.Adam(0.01)",
        options=(),
        examples=18,
        fit=("batch_size=4", "epochs=4", "shuffle=False"),
    )


PLAIN = model("nn.Flatten()", "nn.Dense(12)", "nn.Dropout(0.3)", "nn.Dense(12)")
MASKED = model("nn.Embedding(9, 4, mask_zero=True)", "nn.LSTM(3)", kind="ids", shape=(5,))


class Faulty:
    """A captured step with a planted fault."""

    graphs = ()

    def __init__(self, function, fault):
        self.function, self.fault = function, fault

    def __call__(self, *args):
        model = self.function.python.__self__
        before = {v: np.array(array_in(v)) for v in running.variables_of(model).values()}
        result = self.function(*args)
        self.fault(model, before)
        return result


def update_transposed(model, before):
    """Transpose the update of a weight."""
    weight = next(w for w in model.weights if w.shape == (12, 12))
    weight.assign(before[weight] + (weight.numpy() - before[weight]).T)


def update_wrong_by_a_thousandth(model, before):
    """Change the update of one row of a weight by a thousandth."""
    weight = model.trainable_weights[0]
    change = weight.numpy() - before[weight]
    change[:1] *= 1.001
    weight.assign(before[weight] + change)


def slot_not_updated(model, before):
    """Undo the update of the optimizer's state of a bias."""
    velocity = model.optimizer.variables[-1]
    if velocity in before:
        velocity.assign(before[velocity])


def metric_wrong(model, before):
    """Let a metric count an example less."""
    variables = running.variables_of(model)
    count = next(v for k, v in variables.items() if "rows" in k and "count" in k)
    count.assign(count.numpy() - 1)


def numbers_repeated(model, before):
    """Reset the generator, which then draws the same numbers."""
    running.draws.default_generator.seed(5)


FAULTS = [
    update_transposed,
    update_wrong_by_a_thousandth,
    slot_not_updated,
    metric_wrong,
    numbers_repeated,
]


@pytest.mark.parametrize("mode", running.CAPTURED_MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_detected(mode, fault, monkeypatch):
    captured = running.captured
    monkeypatch.setattr(running, "captured", lambda step, mode: Faulty(captured(step, mode), fault))
    with pytest.raises(Failure):
        checking.check(PLAIN, [mode])


def test_a_lost_mask_is_detected(monkeypatch):
    run = running.Training.run

    def run_without_masks(training):
        with monkeypatch.context() as patch:
            if training.mode in running.CAPTURED_MODES:
                patch.setattr(layer, "masks_of", lambda nest: None)
                patch.setattr(layer, "with_masks", lambda names, given, named: named)
            return run(training)

    monkeypatch.setattr(running.Training, "run", run_without_masks)
    fit = dataclasses.replace(MASKED, form="subclass")
    with pytest.raises(Failure):
        checking.check(fit, ["fast"])


@pytest.mark.parametrize("fit, policy", [(PLAIN, "float32"), (MASKED, "mixed_float16")])
def test_models_without_fault_pass(fit, policy):
    found, _ = checking.check(dataclasses.replace(fit, policy=policy))
    assert [mode for mode, _, _ in found] == list(running.CAPTURED_MODES)
    assert all(status in ("same", "each step within rounding") for _, status, _ in found)
