"""Tables of what ``ef.nn`` has: a row says how a thing is made and what it is given.

Each module here has a list ``CASES`` for one subject. ``tests/nn/test_cases.py`` tries every row in
all ways that a layer can run, and ``tests/nn/test_against_keras.py`` compares it with Keras, which
has the same names and arguments.
"""

import importlib
import pkgutil
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Case:
    """A layer of ``ef.nn``: its class, its arguments, and the shapes or arrays that it is given."""

    cls: str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    inputs: tuple = ((2, 4),)  # shapes of floats, or arrays
    call: dict = field(default_factory=dict)  # named arguments of the call
    together: bool = False  # the inputs are one list
    training: bool = True  # whether it does the same in training, so that this can be compared
    random: bool = False  # in training it draws numbers, which no two libraries share
    tolerance: float = 2e-5
    gradients: bool = True
    keras: str | None = ""  # Keras's class where it has another name; None: Keras has none
    reference: object = None  # f(weights, *inputs) with NumPy alone, for inference

    @property
    def id(self):
        shown = [repr(a) for a in self.args] + [f"{k}={v}" for k, v in self.kwargs.items()]
        return f"{self.cls}({', '.join(shown)})"[:80]

    def arrays(self):
        """The inputs as arrays; the same in every call."""
        rng = np.random.default_rng(len(self.cls))
        return [
            x if isinstance(x, np.ndarray) else rng.normal(size=x).astype("float32")
            for x in self.inputs
        ]


def case(cls, *args, inputs=((2, 4),), call=None, **kwargs):
    """A row: the class, its arguments, then ``inputs`` and what else Case has, with a _ before."""
    facts = {key[1:]: kwargs.pop(key) for key in list(kwargs) if key.startswith("_")}
    return Case(cls, args, kwargs, tuple(inputs), call or {}, **facts)


def cases():
    """The rows of all modules."""
    found = []
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        found += importlib.import_module(module.name).CASES
    return found
