"""Programs as users of Keras write them; ``keras`` is Keras, or eagerflow under Keras's names.

``@trained`` marks a program that gives a compiled model and arguments of ``fit``; it is trained by
the tests. ``@script`` marks one that does all by itself and gives numbers by name. Both begin from
the same weights, whichever library runs them: see ``libraries``.
"""

import importlib
import pkgutil

import numpy as np

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 6)).astype("float32")
Y = RNG.normal(size=(48, 1)).astype("float32")
LABELS = RNG.integers(0, 3, 48)
ONE_HOT = np.eye(3, dtype="float32")[LABELS]
MANY = (RNG.uniform(size=(48, 4)) < 0.4).astype("float32")  # several labels for an example
SERIES = RNG.normal(size=(48, 7, 3)).astype("float32")
IMAGES = RNG.normal(size=(48, 8, 8, 3)).astype("float32")
LENGTHS = RNG.integers(1, 8, 48)
WORDS = np.where(np.arange(7) < LENGTHS[:, None], RNG.integers(1, 11, (48, 7)), 0)  # 0 is padding
WEIGHTS = np.linspace(0.1, 2.0, 48).astype("float32")

TRAINED, SCRIPTS = [], []


def trained(f):
    TRAINED.append(f)
    return f


def script(f):
    SCRIPTS.append(f)
    return f


for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
