"""Running random regions in each way that a region can run, in guarded memory."""

from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import kernel
from tests.codegen.expected import compare, evaluate
from tests.codegen.guards import Guarded, Poisoned
from tests.codegen.regions import memory_dtype, random_region

# NumPy's own elementary functions are off by up to four units.
LEAST_UNITS = {"numpy": 4.0, "llvm": 0.0}


class Placed(NamedTuple):
    """A case's arrays, each in memory of its own; an output in place is its input's memory."""

    case: Any
    inputs: list[Any]
    outputs: list[Any]

    def run(self, way):
        """Compute the outputs; raises AssertionError if bytes were touched that should not be."""
        case = self.case
        before = [memory.array.copy() for memory in self.inputs]
        compute = way if callable(way) else kernel.compute
        more = {} if callable(way) else {"way": way}
        arrays = [[memory.array for memory in part] for part in (self.inputs, self.outputs)]
        compute(case.region, *arrays, case.sizes, **more)
        replaced = {part.inplace for part in case.region.outputs}
        for part, memory, array in zip(case.region.inputs, self.inputs, before, strict=True):
            assert memory.touched() == 0, f"bytes beside {part.name} were written"
            if part.name not in replaced:
                assert memory.array.tobytes() == array.tobytes(), f"{part.name} was written"
        for part, memory in zip(case.region.outputs, self.outputs, strict=True):
            assert memory.touched() == 0, f"bytes beside {part.name} were written"
        return before, [memory.array.copy() for memory in self.outputs]


def seeded(seed, large=False):
    """The random case of a number."""
    return random_region(np.random.default_rng(seed), large)


def place(case, memory=Poisoned):
    """The arrays of a case in memory of a kind."""
    placed = {}
    for part, array in zip(case.region.inputs, case.inputs, strict=True):
        placed[part.name] = memory(array.shape, array.dtype, case.patterns[part.name])
        placed[part.name].array[...] = array
    outputs = []
    for part in case.region.outputs:
        if part.inplace is None:
            shape = tuple(case.sizes[a] for a in part.axes)
            outputs.append(memory(shape, memory_dtype(part.dtype), case.patterns[part.name]))
        else:
            outputs.append(placed[part.inplace])
    return Placed(case, list(placed.values()), outputs)


def check(case, way, least=None):
    """Run a case in poisoned memory and compare: its Comparison, and the outputs."""
    inputs, outputs = place(case).run(way)
    least = LEAST_UNITS.get(way, 4.0) if least is None else least
    expected = evaluate(case.region, inputs, case.sizes, least)
    return compare(case.region, outputs, expected), outputs


def run_guarded(way, first, last):
    """Run the cases of some seeds between guard pages, and print each seed before it is run."""
    for seed in range(first, last):
        print(seed, flush=True)
        case = seeded(seed)
        for before in (False, True):
            place(case, lambda *a, before=before: Guarded(*a, before=before)).run(way)
