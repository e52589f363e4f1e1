"""Calls functions with generated arguments, good and bad, in a process of its own (test_fuzz).

    python -m tests.contract.fuzz_worker CALLS SEED OP...

Prints one JSON object for each op: how many calls succeeded and were refused, and those that
raised something else. Before each call it says on standard error what it is about to do, so that
the parent can name the call that killed or hung the process. Output of libraries goes there, too.
"""

import faulthandler
import functools
import json
import os
import re
import resource
import signal
import sys
import warnings
import zlib

import numpy as np

import eagerflow as ef
from eagerflow.errors import EagerflowError
from eagerflow.op import ops
from tests.contract.cases import dtypes_of, inexact, main_dtype, results, samples
from tests.contract.composed import ALL as COMPOSED

MEMORY = 4 << 30  # bytes of address space
SECONDS = 10  # for one call
# Sizes are either small or cannot be had at all: allocating gigabytes would only cost time.
HUGE = (2**33, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, -(2**31), -(2**63), -(10**30))
DTYPES = "bool int8 uint8 int32 int64 uint64 float16 bfloat16 float32 float64 complex64".split()

KNOWN = {ef.as_dtype(name) for name in DTYPES}

# Messages of Python itself, or of Op.bind, for calls that do not match the signature.
SIGNATURE = re.compile(
    r"unexpected (keyword )?argument|missing \d+ required|\(\) takes "
    r"|multiple values for argument|needs the argument|positional-only argument"
)


@functools.cache
def deep_list():
    """A list nested deeper than any array."""
    nest = 1.0
    for _ in range(5_000):
        nest = [nest]
    return nest


@functools.cache
def own_list():
    """A list that holds itself."""
    nest = [1.0]
    nest.append(nest)
    return nest


@functools.cache
def good_samples(op):
    """The samples of each dtype that an op takes; their arrays are never changed."""
    return [samples(op, dtype) for dtype in dtypes_of(op) or [main_dtype(op)]]


def number(rng):
    """A size, an axis, an index: mostly small, sometimes absurd."""
    if rng.random() < 0.15:
        return HUGE[rng.integers(len(HUGE))]
    return int(rng.integers(-4, 6))


def array(rng):
    """An array of any rank, shape, dtype and layout, sometimes with special floats."""
    shape = tuple(int(n) for n in rng.choice([0, 1, 1, 2, 2, 3, 5], rng.integers(0, 5)))
    dtype = ef.as_dtype(str(rng.choice(DTYPES)))
    values = rng.normal(0, 3, shape)
    if rng.random() < 0.3:
        odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, 1e308, -1e-308, 2.0**31, -1.0], shape)
        values = np.where(rng.random(shape) < 0.4, odd, values)
    with np.errstate(all="ignore"):
        found = np.asarray(values).astype(dtype)
    if found.ndim > 1 and rng.random() < 0.3:
        found = found.T[::-1]
    return found


def anything(rng):
    """A value of any kind, for any argument or attribute."""
    makers = (
        lambda: number(rng),
        lambda: number(rng),
        lambda: tuple(number(rng) for _ in range(rng.integers(0, 4))),
        lambda: tuple(number(rng) for _ in range(rng.integers(0, 4))),
        lambda: [[number(rng)] * int(rng.integers(0, 3)) for _ in range(rng.integers(0, 3))],
        lambda: (1,) * int(rng.choice([33, 65, 1000])),
        lambda: float(rng.choice([0.0, -0.5, 1.5, 1e308, np.nan, np.inf, -np.inf])),
        lambda: None,
        lambda: bool(rng.random() < 0.5),
        lambda: 1 + 2j,
        lambda: str(rng.choice(["", "a string", "float32", "same", "ij,jk->ik", "cpu:0", "\0"])),
        lambda: b"bytes",
        lambda: np.dtype(str(rng.choice(["float64", "int8", "object", "U3", "datetime64[s]"]))),
        lambda: slice(number(rng), number(rng), number(rng)),
        lambda: ...,
        lambda: object(),
        lambda: {"a": 1},
        lambda: np.float32(1.5),
        lambda: np.array(["words"]),
        lambda: np.array([None, 1]),
        lambda: array(rng),
        lambda: ef.asarray(array(rng)),
        lambda: ef.Variable(array(rng)),
        lambda: print,
        lambda: [deep_list, own_list][rng.integers(2)](),
    )
    return makers[rng.integers(len(makers))]()


def changed_array(rng, x):
    """An array that is nearly valid for the op."""
    ways = (
        lambda: x[..., None],
        lambda: x[None],
        lambda: x.reshape(-1)[: rng.integers(0, 3)],
        lambda: x.T,
        lambda: x.astype(ef.as_dtype(str(rng.choice(DTYPES)))),
        lambda: np.where(rng.random(x.shape) < 0.3, x.dtype.type(np.nan), x) if inexact(x) else x,
        lambda: ~x if x.dtype.kind in "biu" else -x,
        lambda: x * x.dtype.type(100) if x.dtype.kind in "ifc" else x,
        lambda: x[:0] if x.ndim else x,
        lambda: np.zeros((0,) * 5),
    )
    with np.errstate(all="ignore"):
        return ways[rng.integers(len(ways))]()


def generated(op, rng):
    """Arguments and attributes of one call."""
    way = rng.random()
    if way < 0.25:
        count = len(op.data) if rng.random() < 0.8 else int(rng.integers(0, 5))
        make = array if rng.random() < 0.7 else anything
        args = [make(rng) for _ in range(count)]
        named = {n: anything(rng) for n in op.attributes if rng.random() < 0.6}
        return args, named
    of_dtypes = good_samples(op)
    good = of_dtypes[rng.integers(len(of_dtypes))]
    sample = good[rng.integers(len(good))]
    args, named = list(sample.args), dict(sample.attributes)
    for _ in range(int(rng.integers(1, 3))):
        if named and (rng.random() < 0.5 or not args):
            named[list(named)[rng.integers(len(named))]] = anything(rng)
        elif args:
            i = int(rng.integers(len(args)))
            near = isinstance(args[i], np.ndarray) and args[i].dtype in KNOWN and rng.random() < 0.7
            args[i] = changed_array(rng, args[i]) if near else anything(rng)
    if op.attributes and rng.random() < 0.2:
        names = list(op.attributes)
        named[names[rng.integers(len(names))]] = anything(rng)
    if rng.random() < 0.03:
        named["surprise"] = anything(rng)
    return args, named


def attempt(op, args, named, differentiate):
    """One call, with its values read and perhaps a gradient taken."""
    if not differentiate:
        results(op.call(*args, **named))
        return
    xs = [ef.asarray(x) if inexact(x) else x for x in args]
    sources = [x for x in xs if isinstance(x, ef.Tensor)]
    with ef.GradientTape() as tape:
        tape.watch(sources)
        out = op.call(*xs, **named)
    ys = [y for y in (out if isinstance(out, tuple) else (out,)) if inexact(y.numpy())]
    if ys and sources:
        results(tuple(tape.gradient(ys, sources, unconnected="zero")))


def short(value):
    """An argument as it is shown in reports."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    if isinstance(value, list):
        return f"list of {len(value)}"
    return repr(value)[:60].replace("\n", " ")


def fuzz(op, calls, seed):
    """All calls of one op: counts of outcomes, and the calls that violated the contract."""
    warnings.simplefilter("ignore")  # NumPy's, about the odd arguments made here
    rng = np.random.default_rng([seed, zlib.crc32(op.name.encode())])
    found = {"op": op.name, "calls": calls, "succeeded": 0, "refused": 0, "broken": []}
    for number_of_call in range(calls):
        args, named = generated(op, rng)
        differentiate = op.differentiable and rng.random() < 0.3
        shown = [*map(short, args), *(f"{k}={short(v)}" for k, v in named.items())]
        text = f"{op.name}({', '.join(shown)}){' with gradient' if differentiate else ''}"
        os.write(2, f"{number_of_call} {text}\n".encode(errors="replace"))
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            attempt(op, args, named, differentiate)
            found["succeeded"] += 1
        except EagerflowError as error:
            str(error)
            found["refused"] += 1
        except Exception as error:
            if isinstance(error, TypeError) and SIGNATURE.search(str(error)):
                found["refused"] += 1
            else:
                message = f"{type(error).__name__}: {error}"
                found["broken"].append({"call": text, "error": message[:200]})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def begin():
    """Limit the memory of calls, and their time by an alarm, which ends the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.register(signal.SIGALRM, chain=True)  # the traceback, and then the end


def main():
    calls, seed, *names = sys.argv[1:]
    begin()
    composed = {op.name: op for op in COMPOSED}
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in names:
        found = fuzz(composed.get(name) or ops[name], int(calls), int(seed))
        print(json.dumps(found), file=report, flush=True)


if __name__ == "__main__":
    main()
