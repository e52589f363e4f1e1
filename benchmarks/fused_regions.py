"""Fused elementwise and row-wise ops, eagerly, against PyTorch, torch.compile, jax.jit and a copy.

    python benchmarks/fused_regions.py [--rounds 25] [--only softmax] [--no-compile] [--json]

float32, two threads. Backward is the gradient's kernel alone on every side, without a tape. The
first ratio is to the best of the peers, the second to two threads that copy as many bytes as the
op reads and writes at the least. A further table shows what odd row lengths cost us. First calls,
which compile, are outside of the times and have a column of their own. Peers whose threads wait for
each other in a busy loop suffer most from other processes: ``others`` is the share of the
processors that those took, and a row where it is large is not worth much.
"""

import os
import statistics
import threading
import time
import warnings
from queue import SimpleQueue

import harness
import jax
import numpy as np
import torch
import torch._inductor.config
from fused_cases import ADAM_SIZE, WORKS, adam_contestants, contestants_of, normal, our_call

THREADS = 2
PEER_TARGET, COPY_TARGET, ODD_TARGET = 0.8, 1.25, 1.15
SECONDS = 0.03  # of each timed block
PAUSE = 0.03  # between blocks: OpenMP's threads go on spinning for some milliseconds
QUIET = 0.03  # of the processors' time may go to others before a row counts as disturbed
RTOL = 2e-5  # of the largest value

ODD = ((4096, 1501), (4096, 1500), (4096, 1504))  # the first against the others
ADAM_STEPS = 3  # before the check


# The copy ----------------------------------------------------------------------------------------


class TwoThreadCopy:
    """Copies between arrays that exist already, each half by a thread of its own.

    An op that reads and writes ``moved`` bytes is set beside a copy of half as many, which reads
    and writes as many together. To be no more in the cache than the op, it walks over as much
    memory as the op does, ``walked`` bytes: the inputs and two results, the last and the next,
    or the inputs alone if the op works in place. So its outputs are two ends of one array, in
    turn; and where that memory is small, it copies parts of it twice.
    """

    def __init__(self, moved, walked):
        left, around = moved // 8, walked // 4  # in float32
        size = min(left, around // 2)
        self._source = np.resize(normal(1 << 16), size)
        memory = np.resize(normal(1 << 16), around - size)
        self._outputs = [memory[:size], memory[-size:]]
        self._parts = []  # of each thread: slices of source and output
        while left:
            part = min(left, size)
            self._parts.append((slice(part // 2), slice(part // 2, part)))
            left -= part
        self._asked, self._done = SimpleQueue(), SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while (output := self._asked.get()) is not None:
            self._copy(output, 1)
            self._done.put(None)

    def _copy(self, output, thread):
        for part in self._parts:
            np.copyto(output[part[thread]], self._source[part[thread]])

    def __call__(self):
        self._outputs.reverse()
        self._asked.put(self._outputs[0])
        self._copy(self._outputs[0], 0)
        self._done.get()

    def close(self):
        """Let the thread end."""
        self._asked.put(None)


# Rows --------------------------------------------------------------------------------------------


def arrays_of(result):
    """A result of any library as a list of NumPy arrays of its own."""
    many = result if isinstance(result, (tuple, list)) else (result,)
    return [
        np.array(x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)) for x in many
    ]


def processor_seconds():
    """What this process used of the processors, and what was used in all (None: not known)."""
    own = time.process_time()
    try:
        with open("/proc/stat") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except OSError:  # only Linux has it
        return own, None
    idle = fields[3] + fields[4]
    return own, (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def timed(contestants, rounds, seconds=SECONDS):
    """harness.measure, and the share of the processors that other processes took meanwhile."""
    start, (own, used) = time.perf_counter(), processor_seconds()
    times = harness.measure(contestants, rounds, seconds, PAUSE)
    own_then, used_then = processor_seconds()
    if used is None:
        return times, None
    available = (time.perf_counter() - start) * os.cpu_count()
    others = (used_then - used - (own_then - own)) / available
    return times, round(max(others, 0.0), 3)


def checked(name, calls, repeats=1):
    """Seconds of the first call of each, and the results, on which all must agree."""
    first, results = {}, {}
    for who, call in calls.items():
        start = time.perf_counter()
        result = call()
        first[who] = round(time.perf_counter() - start, 4)
        for _ in range(repeats - 1):
            result = call()
        results[who] = arrays_of(result)
    # Relative to the largest value: softmax of a long row has only tiny ones.
    scales = [np.abs(x).max() for x in results["eagerflow"]]
    if not all(0 < scale < np.inf for scale in scales):
        raise AssertionError(f"{name}: a result is all zeros, or not finite")
    relative = {
        who: [x / scale for x, scale in zip(values, scales, strict=True)]
        for who, values in results.items()
    }
    harness.agree(name, relative, RTOL)
    return first, results["eagerflow"]


def row(name, calls, read, rounds, repeats=1, in_place=False):
    """Check and time the contestants and the copy; gives the row of the report.

    ``read`` bytes are read at the least; what is written is seen from the results. ``repeats``
    calls are made before the check, and ``in_place`` tells that results may overwrite inputs.
    """
    first, results = checked(name, calls, repeats)
    written = sum(x.nbytes for x in results)
    copy = TwoThreadCopy(read + written, read if in_place else read + 2 * written)
    try:
        times, others = timed({**calls, "copy": copy}, rounds)
    finally:
        copy.close()
    medians = {who: statistics.median(t) for who, t in times.items()}
    peer = min(medians.keys() - {"eagerflow", "copy"}, key=medians.__getitem__)
    ratio, spread = harness.ratio(times["eagerflow"], times[peer])
    of_copy, copy_spread = harness.ratio(times["eagerflow"], times["copy"])
    return {
        "name": name,
        "milliseconds": {who: round(t * 1e3, 4) for who, t in medians.items()},
        "first_call_seconds": first,
        "megabytes": round((read + written) / 1e6, 3),
        "peer": peer,
        "ratio": ratio,
        "spread": spread,
        "target": PEER_TARGET,
        "of_copy": of_copy,
        "of_copy_spread": copy_spread,
        "of_copy_target": COPY_TARGET,
        "others": others,
    }


def mark(value, target):
    """What stands behind a ratio that is not as good as it should be."""
    return " missed" if value > target else ""


def ratio_cell(value, spread, target):
    """A ratio with its middle half and its mark."""
    return f"{value:>6.2f} ({spread[0]:.2f} to {spread[1]:.2f}){mark(value, target)}"


def share(line):
    """What other processes took of the processors, in percent."""
    return f"{'unknown' if line['others'] is None else format(line['others'], '.0%'):>6}"


def show_title(title, rows_of):
    """The head of a table whose contestants are these."""
    print(f"\n{title}, milliseconds")
    print(" " * 18 + "".join(f"{who:>16}" for who in rows_of), end="")
    print(f"   {'best peer':<16}{f'ratio (at most {PEER_TARGET})':<33}", end="")
    print(f"{f'to the copy (at most {COPY_TARGET})':<33}others  first calls, seconds")


def show(shape, line):
    """Print one row."""
    times = "".join(f"{t:>16.3f}" for t in line["milliseconds"].values())
    best = ratio_cell(line["ratio"], line["spread"], PEER_TARGET)
    copy = ratio_cell(line["of_copy"], line["of_copy_spread"], COPY_TARGET)
    first = ", ".join(f"{who} {t:.2f}" for who, t in line["first_call_seconds"].items())
    print(
        f"{shape:<18}{times}   {line['peer']:<16}{best:<33}{copy:<33}{share(line)}  {first}",
        flush=True,
    )


def region_rows(options):
    """All computations on all shapes."""
    rows = []
    for work, (build, shapes) in WORKS.items():
        names = {shape: f"{work} {'x'.join(map(str, shape))}" for shape in shapes}
        chosen = [shape for shape in shapes if options.only in names[shape]]
        for shape in chosen:
            case = build(shape)
            calls = contestants_of(case, options.compile)
            if shape == chosen[0]:
                show_title(work, [*calls, "copy"])
            read = sum(x.nbytes for x in case.inputs)
            rows.append(row(names[shape], calls, read, options.rounds))
            show("x".join(map(str, shape)), rows[-1])
    return rows


def adam_rows(options):
    """A step of Adam."""
    name = f"adam {ADAM_SIZE}"
    if options.only not in name:
        return []
    calls, read = adam_contestants(options.compile)
    show_title("adam", [*calls, "copy"])
    line = row(name, calls, read, options.rounds, ADAM_STEPS, in_place=True)
    show(str(ADAM_SIZE), line)
    return [line]


def odd_rows(options):
    """Our time for an element in rows of an odd length, against even ones."""
    rows = []
    for work, (build, _) in WORKS.items():
        name = f"odd rows, {work}"
        if options.only not in name:
            continue
        calls = {shape: our_call(build(shape)) for shape in ODD}
        times, others = timed(calls, options.rounds)
        per_element = {
            shape: [t / np.prod(shape) * 1e9 for t in times[shape]] for shape in calls
        }  # nanoseconds
        line = {
            "name": name,
            "nanoseconds_per_element": {
                "x".join(map(str, shape)): round(statistics.median(t), 4)
                for shape, t in per_element.items()
            },
            "target": ODD_TARGET,
            "others": others,
        }
        for even in ODD[1:]:
            ratio, spread = harness.ratio(per_element[ODD[0]], per_element[even])
            line[f"to_{even[1]}"] = {"ratio": ratio, "spread": spread}
        rows.append(line)
    return rows


def show_odd(rows):
    """Print that table."""
    if not rows:
        return
    names = list(rows[0]["nanoseconds_per_element"])
    print("\nodd rows, eagerflow, nanoseconds per element")
    print(" " * 36 + "".join(f"{name:>12}" for name in names), end="")
    print("".join(f"   {f'to {n} (at most {ODD_TARGET})':<33}" for _, n in ODD[1:]) + "   others")
    for line in rows:
        times = "".join(f"{t:>12.4f}" for t in line["nanoseconds_per_element"].values())
        ratios = (line[f"to_{n}"] for _, n in ODD[1:])
        cells = (ratio_cell(r["ratio"], r["spread"], ODD_TARGET) for r in ratios)
        ratios_text = "".join(f"   {cell:<33}" for cell in cells)
        print(f"{line['name']:<36}{times}{ratios_text}   {share(line)}")


def arguments():
    """The options of this benchmark."""
    parser = harness.parser(__doc__)
    parser.add_argument("--only", default="", help="rows with this in their name, as printed")
    parser.add_argument(
        "--no-compile", dest="compile", action="store_false", help="leave torch.compile out"
    )
    return parser.parse_args()


def main():
    options = arguments()
    if hasattr(os, "sched_setaffinity"):  # JAX has as many threads as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    torch._inductor.config.force_disable_caches = True  # so that first calls do compile
    warnings.filterwarnings("ignore", "dynamo_pgo force disabled")  # which is what we want
    regions = region_rows(options) + adam_rows(options)
    odd = odd_rows(options)
    show_odd(odd)
    if not regions + odd:
        raise SystemExit(f"no row has {options.only!r} in its name")
    met = sum(r["ratio"] <= PEER_TARGET and r["of_copy"] <= COPY_TARGET for r in regions)
    print(f"\n{met} of {len(regions)} rows meet both targets")
    disturbed = sum((r["others"] or 0) > QUIET for r in regions + odd)
    if disturbed:
        print(f"{disturbed} rows were disturbed: others took more than {QUIET:.0%}; repeat them")
    if options.json:
        versions = {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__}
        harness.save("fused_regions", regions + odd, versions)


if __name__ == "__main__":
    main()
