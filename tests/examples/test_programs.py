"""The programs of examples/programs: eager, captured and in PyTorch they compute the same."""

import importlib
import itertools
from itertools import islice

import numpy as np
import pytest

import eagerflow as ef
from tests.structure.sources import ROOT

NAMES = (
    "actor_critic character_gpt dcgan hmc neural_ode physics_informed resnet seq2seq vae"
).split()
FITTED = "resnet", "seq2seq"
STEPS = 6
ROUNDING = {"resnet": 4e-2}
"""How far curves may lie apart, of their largest value; bfloat16 has 8 bits."""
LENGTHS = 4
"""Different lengths of the first episodes of the actor-critic."""


def program(name):
    if name in ("dcgan", "resnet", "vae"):
        pytest.importorskip("sklearn")
    return importlib.import_module(f"examples.programs.{name}")


def twin(name):
    program(name)
    pytest.importorskip("torch")
    return importlib.import_module(f"examples.torch_twins.{name}")


def number(loss):
    """A loss of either library, or a tuple of them, in Python numbers."""
    if isinstance(loss, tuple):
        return [number(part) for part in loss]
    return float(loss.detach() if hasattr(loss, "detach") else loss)


def curve(training, steps=STEPS):
    return np.array([number(loss) for loss in islice(training, steps)])


def agree(name, found, expected):
    scale = np.abs(expected).max(axis=0)
    np.testing.assert_allclose(found / scale, expected / scale, atol=ROUNDING.get(name, 2e-6))


@pytest.fixture
def functions(monkeypatch):
    """The functions that ``ef.function`` has captured."""
    found, function = [], ef.function

    def noted(*args, **options):
        found.append(function(*args, **options))
        return found[-1]

    monkeypatch.setattr(ef, "function", noted)
    return found


def test_the_folders_hold_these_programs():
    for folder, more in (("programs", []), ("torch_twins", ["shared"])):
        found = sorted(path.stem for path in (ROOT / "examples" / folder).glob("*.py"))
        assert found == sorted([*NAMES, *more])


def test_programs_are_short():
    for name in NAMES:
        lines = (ROOT / "examples" / "programs" / f"{name}.py").read_text().splitlines()
        assert len(lines) < 150, name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:'step' was traced for 5 sizes")
def test_eager_captured_and_in_torch(name, functions):
    pair = twin(name)
    expected = curve(pair.theirs())
    assert np.isfinite(expected).all() and np.ptp(expected, axis=0).min() > 0
    agree(name, curve(pair.ours(captured=False)), expected)
    assert not functions
    agree(name, curve(pair.ours(captured=True)), expected)
    traced = {f.__name__: len(f.graphs) for f in functions}
    if name == "actor_critic":
        assert traced.pop("policy") == 1 and 1 <= traced.pop("step") <= LENGTHS
    assert set(traced.values()) == (set() if name in (*FITTED, "actor_critic") else {1})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:'step' was traced for 5 sizes")
def test_main(name, capsys):
    found = np.array(program(name).main(steps=STEPS, verbose=True))
    assert len(found) == STEPS and np.isfinite(found).all()
    assert name in ("actor_critic", "neural_ode", "physics_informed") or capsys.readouterr().out


@pytest.mark.parametrize("name", FITTED)
def test_fit_takes_the_steps_of_the_curve(name):
    losses = curve(twin(name).ours())
    means = np.cumsum(losses) / np.arange(1, STEPS + 1)
    agree(name, np.array(program(name).main(STEPS)), means)


def log_probability(model, text, translation):
    """The logarithm of the probability of a translation, from all of its letters at once."""
    seq2seq = program("seq2seq")
    source = np.array([seq2seq.encode(text, seq2seq.READ)])
    target = np.array([seq2seq.encode(translation, seq2seq.WRITTEN)])
    shifted = np.concatenate([[[seq2seq.BEGIN]], target[:, :-1]], axis=1)
    return -float(ef.cross_entropy(model((source, shifted)), target, reduction="sum"))


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_beam_search(captured):
    seq2seq = program("seq2seq")
    model = seq2seq.make_model()
    training = seq2seq.training(model)
    for _ in range(40):
        next(training)
    decode = ef.function(model.decode) if captured else model.decode
    text = "3 march 1987"
    found = [seq2seq.beam_search(model, decode, text, width) for width in (1, 4, 30)]
    for translation, score in found:
        assert score == pytest.approx(log_probability(model, text, translation), abs=1e-4)
    scores = [score for _, score in found]
    assert scores[0] < scores[-1]
    assert all(wide > narrow - 1e-4 for narrow, wide in itertools.pairwise(scores))


def test_adjoint_gradients_are_those_through_the_solver():
    ode = program("neural_ode")
    weights = ode.make_weights()
    start = ef.tensor([[2.0, 0.0], [1.0, -0.5]])

    def solve(y, *weights):
        for _ in range(ode.STEPS):
            (y,) = ode.runge_kutta(lambda s: [ode.velocity(s[0], weights)], [y], 0.05)
        return ef.sum(y * y)

    def adjoint(y, *weights):
        return ef.sum(ode.integrate(y, list(weights), 0.05) ** 2)

    arguments = (start, *(w.value for w in weights))
    argnums = tuple(range(len(arguments)))
    found, expected = (ef.grad(f, argnums=argnums)(*arguments) for f in (adjoint, solve))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4)


LEARNED = {
    "actor_critic": lambda curve: np.mean([length for length, _ in curve[-25:]]) > 150,
    "character_gpt": lambda curve: np.mean(curve[-50:]) < 2,
    "dcgan": lambda curve: 0.5 < np.mean(curve[-100:], axis=0)[0] < 1.38,
    "hmc": lambda curve: abs(np.mean(curve[200:]) - np.max(curve) + 2) < 0.5,  # 4 weights: 4 / 2
    "neural_ode": lambda curve: np.mean(curve[-50:]) < 0.06,
    "physics_informed": lambda curve: curve[-1] < 0.02,
    "resnet": lambda curve: curve[-1] < 0.02,
    "seq2seq": lambda curve: curve[-1] < 0.4,
    "vae": lambda curve: np.mean(curve[-100:]) < 26,
}


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:'step' was traced for 5 sizes")
def test_what_is_learned(name):
    assert LEARNED[name](program(name).main())
