"""Random models are trained alike eagerly and captured; and the tester finds faults."""

import dataclasses
import datetime
import os

import numpy as np
import pytest

from eagerflow.nn import layer
from tests.campaigns import Campaign, Failure
from tests.fits import running
from tests.fits.__main__ import FITS
from tests.fits.generate import Fit, Output, Step, generate, short

COUNT = 30
SEED = int(os.environ.get("EAGERFLOW_FITS_SEED", datetime.date.today().toordinal() * 1000))


def failures(count, seed, jobs=1, seconds=1e9, batch=10):
    campaign = Campaign(FITS, count, seed, jobs, seconds, batch=batch)
    return campaign.run(), campaign


def test_models_of_today():
    # No new batch begins after these seconds.
    found, campaign = failures(COUNT, SEED, 2, seconds=25, batch=5)
    assert campaign.programs >= 10
    assert not found, f"EAGERFLOW_FITS_SEED={SEED}: {found}"


@pytest.mark.soak
def test_five_thousand_models():
    found, campaign = failures(5_000, SEED, jobs=2)
    assert campaign.programs == 5_000
    assert not found, f"EAGERFLOW_FITS_SEED={SEED}: {found}"


def test_a_seed_gives_one_model():
    assert short(generate(3)) == short(generate(3))


def model(*steps, kind="sequence", shape=(4, 3), policy="float32"):
    """A model with Adam and dropout, for planting faults."""
    last = f"h{len(steps)}"
    return Fit(
        seed=5,
        form="functional",
        policy=policy,
        inputs=(("x0", kind, shape),),
        steps=(
            *(
                Step((f"h{n}",), f"$({'x0' if n == 1 else f'h{n - 1}'})", layer, f"l{n}")
                for n, layer in enumerate(steps, 1)
            ),
            Step(("end",), f"$({last})", "nn.Dense(2)", "l"),
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
    """A captured step with a fault planted behind it."""

    graphs = ()

    def __init__(self, function, wrong):
        self.function, self.wrong = function, wrong

    def __call__(self, *args):
        trained = self.function.python.__self__
        before = {v: np.array(v._current._array) for v in running.variables_in(trained).values()}
        result = self.function(*args)
        self.wrong(trained, before)
        return result


def transposed(trained, before):
    """One weight gets its update transposed."""
    weight = next(w for w in trained.weights if w.shape == (12, 12))
    weight.assign(before[weight] + (weight.numpy() - before[weight]).T)


def a_little_off(trained, before):
    """One row of a weight gets an update that is off by a thousandth."""
    weight = trained.trainable_weights[0]
    change = weight.numpy() - before[weight]
    change[:1] *= 1.001
    weight.assign(before[weight] + change)


def slot_lost(trained, before):
    """The state of a bias stays as it was."""
    velocity = trained.optimizer.variables[-1]
    if velocity in before:
        velocity.assign(before[velocity])


def metric_behind(trained, before):
    """A metric counts an example less."""
    count = next(
        v for k, v in running.variables_in(trained).items() if "rows" in k and "count" in k
    )
    count.assign(count.numpy() - 1)


def draws_again(trained, before):
    """The generator is put back, and draws the same numbers once more."""
    running.draws.default_generator.seed(5)


@pytest.mark.parametrize("way", running.WAYS)
@pytest.mark.parametrize("wrong", [transposed, a_little_off, slot_lost, metric_behind, draws_again])
def test_planted_faults_are_found(way, wrong, monkeypatch):
    captured = running.captured
    monkeypatch.setattr(running, "captured", lambda step, way: Faulty(captured(step, way), wrong))
    with pytest.raises(Failure):
        running.check(PLAIN, [way])


def test_a_mask_that_is_lost_is_found(monkeypatch):
    run = running.Training.run

    def run_without_masks(training):
        with monkeypatch.context() as patch:
            if training.way in running.WAYS:
                patch.setattr(layer, "masks_of", lambda nest: None)
                patch.setattr(layer, "with_masks", lambda names, given, named: named)
            return run(training)

    monkeypatch.setattr(running.Training, "run", run_without_masks)
    fit = dataclasses.replace(MASKED, form="subclass")
    with pytest.raises(Failure):
        running.check(fit, ["fast"])


@pytest.mark.parametrize("fit, policy", [(PLAIN, "float32"), (MASKED, "mixed_float16")])
def test_what_is_right_passes(fit, policy):
    found, _ = running.check(dataclasses.replace(fit, policy=policy))
    assert [way for way, _, _ in found] == list(running.WAYS)
    assert all(how in ("same", "each step within rounding") for _, how, _ in found)
