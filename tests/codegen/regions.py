"""Random regions, with arrays to compute them on: every instruction, type and stride pattern.

``random_region`` takes its decisions from a NumPy generator, so that a seed names a case;
``regions`` takes the same ones from hypothesis, which makes the cases that fail smaller.
"""

import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from eagerflow.codegen.builder import Builder
from eagerflow.codegen.instructions import INSTRUCTIONS, MEMORY_TYPES, TYPES, is_float
from eagerflow.codegen.region import Region
from tests.codegen.guards import PATTERNS

__all__ = ["Case", "memory_dtype", "random_region", "regions"]

SIZES = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 1000)
MOST_ELEMENTS = 20_000
LARGE_SIZES = (1, 2, 3, 17, 70, 300, 1031, 20_011, 70_001, 140_003, 262_144)
LARGE_ELEMENTS = 400_000
FLOATS, INTEGERS = ("float32", "float64"), TYPES[1:9]
SPECIAL = (
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    -1e-42,
    1.2e-38,
    3e38,
    -3e38,
    1e-30,
    1e30,
    1.0,
    -1.0,
    0.5,
    2.5,
    2.0**24 + 2,
    1e-8,
)
SAME_SIZE = {
    "float32": ("int32", "uint32"),
    "float64": ("int64", "uint64"),
    "int8": ("uint8",),
    "uint8": ("int8",),
    "int16": ("uint16",),
    "uint16": ("int16",),
    "int32": ("float32", "uint32"),
    "uint32": ("float32", "int32"),
    "int64": ("float64", "uint64"),
    "uint64": ("float64", "int64"),
}


def memory_dtype(name):
    """NumPy's dtype of a memory type."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class Case(NamedTuple):
    """A region, its arrays, the size of each axis, and how each array is to lie in memory."""

    region: Region
    inputs: tuple[Any, ...]
    sizes: dict[str, int]
    patterns: dict[str, str]


def random_region(rng, large=False):
    """A Case whose decisions are those of a NumPy generator.

    ``large`` ones have so many elements that threads share the work, and rows are cut.
    """
    return _Maker(lambda n: int(rng.integers(n)), large).case()


@st.composite
def regions(draw):
    """Cases whose decisions are hypothesis's."""
    return _Maker(lambda n: draw(st.integers(0, n - 1))).case()


def _names(takes, gives="same", operands=None):
    return tuple(
        name
        for name, rule in INSTRUCTIONS.items()
        if rule.takes == takes and rule.gives == gives and operands in (None, rule.operands)
    )


class _Maker:
    """Builds one case; ``below(n)`` decides between n possibilities."""

    def __init__(self, below, large=False):
        self.below, self.large = below, large
        self.rng = np.random.default_rng(below(2**32))  # for the elements of arrays
        self.patterns = {}
        self.arrays = {}

    def one(self, things):
        return things[self.below(len(things))]

    def chance(self, percent):
        return self.below(100) >= 100 - percent  # the simplest decision is against

    def case(self):
        self.axes = ("a", "b", "c")[: self.one((2, 1, 2, 3, 2, 1))]
        self.row = self.axes[-self.one((1, 1, 1, len(self.axes))) :]
        self.sizes = self.some_sizes()
        fixed = {a: n for a, n in self.sizes.items() if self.chance(15)}
        self.builder = Builder("case", " ".join(self.axes), **fixed)
        self.values, self.columns, self.rows_left = [], [], self.below(4)
        self.inputs = {}
        for number in range(1 + self.below(4)):
            self.values.append(self.input(f"x{number}"))
        if len(self.axes) > 1 and self.chance(15):
            self.values.append(self.gathered())
        for _ in range(2 + self.below(14)):
            value = self.one(self.ACTIONS)(self)
            if value is not None:
                self.values.append(value)
        self.outputs()
        region = self.builder.region()
        arrays = tuple(self.arrays[part.name] for part in region.inputs)
        return Case(region, arrays, self.sizes, self.patterns)

    def some_sizes(self):
        choices, left = SIZES, MOST_ELEMENTS if self.chance(20) else 2_000
        if self.large:
            choices, left = LARGE_SIZES, LARGE_ELEMENTS
        sizes = {}
        for axis in self.axes:
            sizes[axis] = self.one([n for n in choices if n <= left])
            left //= max(sizes[axis], 1)
        if self.chance(50):  # rows are as often long as short
            sizes = dict(zip(self.axes, sorted(sizes.values()), strict=True))
        return sizes

    # Arrays --------------------------------------------------------------------------------------

    def input(self, name):
        dtype = "float32" if self.chance(65) else self.one(MEMORY_TYPES)
        along = self.axes if self.chance(55) else self.some_axes()
        return self.add_input(name, dtype, along, tuple(self.sizes[a] for a in along))

    def add_input(self, name, dtype, along, shape, array=None, gather=None):
        self.arrays[name] = self.elements(dtype, shape) if array is None else array
        self.patterns[name] = "contiguous" if self.chance(40) else self.one(PATTERNS)
        self.inputs[name] = dtype, along, gather
        return self.builder.input(name, dtype, " ".join(along), gather)

    def some_axes(self):
        return tuple(a for a in self.axes if self.chance(50))

    def gathered(self):
        """An array whose rows are looked up by a second one."""
        axis = self.one(self.axes[:-1])
        rows, dtype = self.one((1, 2, 5, 17)), self.one(("int64", "int32"))
        along = (axis,) if self.chance(80) else ()
        shape = tuple(self.sizes[a] for a in along)
        index = self.rng.integers(0, rows, shape).astype(dtype)
        self.add_input("index", dtype, along, shape, index)
        after = self.axes[self.axes.index(axis) + 1 :]
        after = after if self.chance(80) else ()
        shape = (rows, *(self.sizes[a] for a in after))
        return self.add_input("table", "float32", (axis, *after), shape, gather="index")

    def elements(self, dtype, shape):
        if dtype == "bool":
            return self.rng.random(shape) < self.one((0.5, 0.03, 0.97))
        if is_float(dtype) or dtype in ("float16", "bfloat16"):
            with np.errstate(over="ignore"):
                return self.numbers(shape).astype(memory_dtype(dtype))
        ends = np.iinfo(dtype)
        whole = self.rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
        if self.chance(70):
            whole = self.rng.integers(max(ends.min, -9), 10, shape).astype(dtype)
        self.sprinkle(whole, (0, 1, ends.min, ends.max, ends.max - 1))
        return whole

    def numbers(self, shape):
        """Floats of one or of many magnitudes, with special ones among them."""
        x = np.asarray(self.rng.standard_normal(shape))
        style = self.one(("near one", "near one", "mixed", "whole", "wild"))
        if style == "mixed":
            x = x * 10 ** self.rng.uniform(-4, 4, shape)
        elif style == "wild":
            x = x * 10 ** self.rng.uniform(-38, 38, shape)
        elif style == "whole":
            x = np.round(x * 3)
        x = np.asarray(x)
        self.sprinkle(x, SPECIAL if style != "near one" else SPECIAL[:10])
        return x

    def sprinkle(self, x, special):
        share = self.one((0, 0, 0.01, 0.1))
        where = self.rng.random(x.shape) < share
        x[where] = self.rng.choice(np.array(special, x.dtype), int(where.sum()))

    # Values --------------------------------------------------------------------------------------

    def of_type(self, dtype):
        """A value of a type; one of another type is converted where there is none."""
        found = [v for v in self.values if v.dtype == dtype]
        if found and not self.chance(10):
            return self.one(found[-2:] if self.chance(70) else found)
        return self.converted(self.one(self.values), dtype)

    def converted(self, value, dtype):
        return value if value.dtype == dtype else self.builder.convert(value, dtype)

    def of(self, takes):
        """A value that instructions take; the types are as frequent as they are among values."""
        types = {
            "float": FLOATS,
            "number": FLOATS + INTEGERS,
            "integer": (*INTEGERS, "bool"),
            "bool": ("bool",),
            "any": TYPES,
        }[takes]
        found = [v for v in self.values if v.dtype in types]
        if found and not self.chance(10):
            return self.one(found[-2:] if self.chance(70) else found)
        like = {"float": "float32", "number": "float32", "bool": "bool"}
        return self.of_type(like.get(takes) or self.one(types))

    def second(self, first):
        """Another operand of the type of the first: a constant, or any value."""
        if self.chance(70):
            return self.of_type(first.dtype)
        return self.number(first.dtype)

    def number(self, dtype):
        if dtype == "bool":
            return self.builder.constant(self.chance(50), dtype)
        if is_float(dtype):
            value = self.one((0.5, 1.0, 2.0, -1.0, 0.0, 3.0, 1e-3, -0.3, 100.0, *SPECIAL[2:5]))
            return self.builder.constant(value, dtype)
        return self.builder.constant(self.one((1, 2, 3, 0, 7, 100)), dtype)

    # Actions -------------------------------------------------------------------------------------

    def unary(self):
        takes = self.one(("float", "float", "float", "number"))
        return getattr(self.builder, self.one(_names(takes, operands=1)))(self.of(takes))

    def binary(self):
        name = self.one(_names("number", operands=2))
        first = self.of("number")
        if first.dtype in ("int8", "uint8") or not self.chance(10):
            return getattr(self.builder, name)(first, self.second(first))
        return getattr(self.builder, name)(self.number(first.dtype), first)

    def binary_float(self):
        first = self.of("float")
        return getattr(self.builder, self.one(_names("float", operands=2)))(
            first, self.second(first)
        )

    def fma(self):
        first = self.of("float")
        return self.builder.fma(first, self.second(first), self.second(first))

    def compare(self):
        first = self.of("any")
        name = self.one(_names("any", "bool"))
        return getattr(self.builder, name)(first, self.second(first))

    def question(self):
        return getattr(self.builder, self.one(_names("float", "bool")))(self.of("float"))

    def logic(self):
        name = self.one(_names("bool", "bool"))
        operands = [self.of("bool") for _ in range(INSTRUCTIONS[name].operands)]
        return getattr(self.builder, name)(*operands)

    def bits(self):
        name, value = self.one(_names("integer")), self.of("integer")
        if name.endswith(("shift", "quotient")) and value.dtype == "bool":
            value = self.converted(value, "int32")
        if INSTRUCTIONS[name].operands == 1:
            return getattr(self.builder, name)(value)
        return getattr(self.builder, name)(value, self.second(value))

    def select(self):
        first = self.of("any")
        return self.builder.select(self.of("bool"), first, self.second(first))

    def convert(self):
        return self.converted(self.one(self.values), self.one(("float32", *TYPES)))

    def bitcast(self):
        value = self.one(self.values)
        targets = SAME_SIZE.get(value.dtype)
        return self.builder.bitcast(value, self.one(targets)) if targets else None

    def generator(self):
        what = self.one(("position", "extent", "random_bits", "uniform"))
        if what == "position":
            return self.builder.position(self.one(self.axes))
        if what == "extent":
            dtype = self.one(("float32", "float64", "int64", "int32"))
            return self.builder.extent(self.one(self.axes), dtype)
        if "state0" not in self.arrays:
            self.state = tuple(
                self.add_input(f"state{i}", "uint64", (), (), self.elements("uint64", ()))
                for i in range(3)
            )
        if what == "uniform":
            return self.builder.uniform(self.state)
        return self.builder.random_bits(self.state, self.one(("uint32", "uint64")))

    def along(self, axes):
        """A value that varies along axes, None where there is none."""
        found = [v for v in self.values if set(v.axes) >= set(axes)]
        return self.one(found[-4:] if self.chance(60) else found) if found else None

    def reduced(self, value, over):
        """A sum, product and so on of a value, of bool only where that means something."""
        names = ("any", "all") if value.dtype == "bool" else ("sum", "max", "min", "product")
        name = self.one(("sum", "max", *names) if value.dtype != "bool" else names)
        return getattr(self.builder, name)(value, " ".join(over))

    def reduce_row(self):
        value = self.along(self.row)
        if value is None or not self.rows_left:
            return None
        self.rows_left -= 1
        kind = self.one(("plain", "plain", "plain", "mean", "variance", "argmax", "argmin"))
        if kind == "plain" or value.dtype == "bool":
            return self.reduced(value, self.row)
        if kind in ("mean", "variance"):
            value = value if is_float(value.dtype) else self.converted(value, "float32")
            return getattr(self.builder, kind)(value, " ".join(self.row))
        if len(self.row) == 1:
            return getattr(self.builder, kind)(value, self.row[0])
        return None

    def reduce_column(self):
        if len(self.axes) > 1:
            over = self.axes[: 1 + self.below(len(self.axes) - 1)]
            value = self.along(over)
            if value is not None:
                self.columns.append(self.reduced(value, over))

    ACTIONS = (
        *[unary] * 9,
        *[binary] * 8,
        *[binary_float] * 3,
        fma,
        *[compare] * 2,
        question,
        logic,
        *[bits] * 2,
        *[select] * 2,
        *[convert] * 2,
        bitcast,
        generator,
        *[reduce_row] * 7,
        *[reduce_column] * 2,
    )

    # Outputs -------------------------------------------------------------------------------------

    def outputs(self):
        wanted = 1 + self.below(3)
        used = {o for s in self.builder._body.values() for o in s.operands}
        ends = [v for v in self.values if v.name not in used]  # else much would be left out
        values = self.columns[-2:] + ends[::-1] + self.values[::-1]
        taken = set()
        for number, value in enumerate(values[:wanted]):
            self.output(f"y{number}", value, taken)

    def output(self, name, value, taken):
        dtype = value.dtype
        if dtype == "float32" and self.chance(20):
            dtype = self.one(("float16", "bfloat16"))
        along = value.axes
        if self.chance(15):  # the same numbers along an axis more
            more = self.one(self.axes)
            along = tuple(a for a in self.axes if a in (*value.axes, more))
        inplace = None
        for part, declared in self.inputs.items():
            fits = declared == (dtype, along, None)
            if fits and part not in taken and self.chance(40):
                inplace = part
                taken.add(inplace)
                self.patterns[inplace] = self.without_overlap()
                break
        self.patterns[name] = self.patterns[inplace] if inplace else self.without_overlap()
        self.builder.output(name, value, dtype, " ".join(along), inplace)

    def without_overlap(self):
        pattern = "contiguous" if self.chance(40) else self.one(PATTERNS)
        return "contiguous" if pattern == "broadcast" else pattern
