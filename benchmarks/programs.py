"""A step of each program of examples/programs: eager, captured, and of its twin in PyTorch.

    python benchmarks/programs.py [--rounds 9] [--only vae hmc] [--threads 2] [--compile] [--json]

A step is what the program does from one loss to the next, with its batch, and in ``actor_critic``
with the episode that it plays. All take the same steps with the same numbers, in turn; the losses
of the first ones must agree. The twins draw normal numbers with our generator, so that they are
the same. Where torch.compile fails, it is left out with its reason.
"""

import importlib
import statistics
import sys
import warnings
from functools import partial
from itertools import islice
from pathlib import Path

import harness
import numpy as np
import torch

import eagerflow as ef

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in (ROOT / "examples" / "programs").glob("*.py"))
OURS, EAGER, PEER, COMPILED = "captured", "our eager", "PyTorch", "compiled"
FIRST = 5
"""Steps whose losses must agree, also those that warm up."""
STEPS = {"vae": 30, "hmc": 20, "physics_informed": 20, "neural_ode": 5}
"""Steps that are timed at once, 10 of the others."""
ROUNDING = {"resnet": 4e-2}
"""How far losses may lie apart, of the largest; bfloat16 has 8 bits."""
TARGET, EAGER_TARGET = 1.0, 1.1


def numbers(loss):
    """A loss of either library, or a tuple of them, as Python numbers."""
    parts = loss if isinstance(loss, tuple) else (loss,)
    return [float(p.detach() if isinstance(p, torch.Tensor) else p) for p in parts]


def take(training, steps):
    """Take some steps; gives their losses, each waited for as in a loop that prints it."""
    return [numbers(loss) for loss in islice(training, steps)]


def contestants_of(name, with_compiled):
    """Trainings that have taken their first steps, after these agreed; and what failed."""
    pair = importlib.import_module(f"examples.torch_twins.{name}")
    makers = {
        OURS: pair.ours,
        EAGER: partial(pair.ours, captured=False),
        PEER: pair.theirs,
    }
    if with_compiled:
        makers[COMPILED] = partial(pair.theirs, compiled=True)
    trainings, curves, failed = {}, {}, None
    for who, make in makers.items():
        trainings[who] = make()
        try:
            curves[who] = np.array(take(trainings[who], FIRST))
        except Exception as error:
            if who != COMPILED:
                raise
            failed = f"{name}: torch.compile fails: {str(error).strip().splitlines()[0]}"
            del trainings[who]
    scale = np.abs(curves[PEER]).max(axis=0)
    scaled = {who: [curve / scale] for who, curve in curves.items()}
    harness.agree(f"{name}, losses of {FIRST} steps", scaled, ROUNDING.get(name, 1e-5))
    return trainings, failed


def rows_of(name, options):
    """Two rows: captured steps against the best peer, and eager ones against eager PyTorch."""
    trainings, failed = contestants_of(name, options.compile)
    if failed:
        print(failed)
    steps = STEPS.get(name, 10)
    calls = {who: partial(take, training, steps) for who, training in trainings.items()}
    # Without seconds to fill, each call is timed alone, so that all take the same steps.
    times = harness.measure(calls, options.rounds, seconds=0)
    medians = {who: statistics.median(t) / steps for who, t in times.items()}
    best = min((PEER, COMPILED), key=lambda who: medians.get(who, np.inf))
    made = []
    for ours, peer, target in ((OURS, best, TARGET), (EAGER, PEER, EAGER_TARGET)):
        middle, spread = harness.ratio(times[ours], times[peer])
        made.append(
            {
                "name": f"{name}, {ours} / {peer}",
                "microseconds": {who: round(t * 1e6, 1) for who, t in medians.items()},
                "ratio": middle,
                "spread": spread,
                "peer": peer,
                "target": target,
            }
        )
    return made


def main():
    """Check and time the programs that are asked for."""
    parser = harness.parser(__doc__.splitlines()[0])
    parser.set_defaults(rounds=9)
    parser.add_argument("--only", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ef.set_threads(options.threads)
    sys.path.insert(0, str(ROOT))
    warnings.filterwarnings("ignore", category=UserWarning)
    table = []
    for name in options.only:
        table += rows_of(name, options)
        harness.report("a step (µs)", table[-2:])
    harness.report("a step of each program (µs)", table)
    if options.json:
        harness.save("programs", table, {"numpy": np.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
