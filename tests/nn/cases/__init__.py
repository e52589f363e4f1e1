"""Tables of the objects of ``ef.nn``: a row gives their construction and their inputs.

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
    """A layer of ``ef.nn``: its class, its arguments, and the shapes or arrays that it is given.

    Among the arguments, a Case stands for the layer that it makes.
    """

    cls: str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    inputs: tuple = ((2, 4),)  # shapes of floats, or arrays
    call: dict = field(default_factory=dict)  # named arguments of the call
    named: dict = field(default_factory=dict)  # named arguments with an example in each row
    together: bool = False  # the inputs are one list
    training: bool = True  # whether it does the same in training, so that this can be compared
    random: bool = False  # in training it draws numbers, which no two libraries share
    tolerance: float = 2e-5
    gradients: bool = True
    keras: str | None = ""  # Keras's class where it has another name; None: Keras has none
    reference: object = None  # f(weights, *inputs) with NumPy alone, for inference

    def __repr__(self):
        return self.id

    @property
    def id(self):
        shown = [repr(a) for a in self.args] + [f"{k}={v}" for k, v in self.kwargs.items()]
        shown += list(self.named)
        return f"{self.cls}({', '.join(shown)})"[:80]

    def arrays(self):
        """The inputs as arrays; the same in every call."""
        rng = np.random.default_rng(len(self.cls))
        return [
            x if isinstance(x, np.ndarray) else rng.normal(size=x).astype("float32")
            for x in (*self.inputs, *self.named.values())
        ]

    def make(self, library, cls=None):
        """The layer of this class, or of another name, of ``ef.nn`` or ``keras.layers``."""

        def made(value):
            if isinstance(value, list):
                return list(map(made, value))
            return value.make(library) if isinstance(value, Case) else value

        kwargs = {key: made(value) for key, value in self.kwargs.items()}
        return getattr(library, cls or self.cls)(*map(made, self.args), **kwargs)

    def given(self, inputs):
        """Positional and named arguments of the call with these inputs."""
        inputs, count = list(inputs), len(self.inputs)
        named = dict(zip(self.named, inputs[count:], strict=True))
        args = inputs[:count]
        return ([args] if self.together else args), self.call | named


def case(cls, *args, inputs=((2, 4),), call=None, **kwargs):
    """A row: the class, its arguments, then ``inputs`` and other fields of Case, prefixed by _."""
    facts = {key[1:]: kwargs.pop(key) for key in list(kwargs) if key.startswith("_")}
    return Case(cls, args, kwargs, tuple(inputs), call or {}, **facts)


def cases():
    """The rows of all modules."""
    found = []
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        found += importlib.import_module(module.name).CASES
    return found
