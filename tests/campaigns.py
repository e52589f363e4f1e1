"""Many random programs in several processes: what fails is told, and made small.

A ``Subject`` says what a program is and how one is checked: ``tests/programs``, ``tests/fits``.
"""

import argparse
import collections
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

BATCH = 30  # programs of one process
LIMIT = 120  # seconds of a core for one program
SILENCE = 900.0  # seconds without a message from a process, on a machine that has other work, too
IMPORTED = [
    f"eagerflow.{name}"
    for name in ("capture", "codegen", "fusion", "graph", "nn", "ops", "plan", "primitives")
]
PASSED, FAILED, OTHER = 0, 1, 2
_memory_differs = ctypes.CDLL(None).memcmp
_memory_differs.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
SMALL = 4096  # bytes below which copies are compared, as asking for addresses takes longer
SECONDS = 20  # for one run of a program that is being made small


class Failure(Exception):
    """Something is wrong; ``kind`` tells failures apart, ``at`` is the number of a statement."""

    def __init__(self, way, at, kind, text):
        super().__init__(f"{way}, statement {at}: {text}")
        self.way, self.at, self.kind, self.text = way, at, kind, text


@dataclass
class Subject:
    """A kind of random programs."""

    generate: Any  # of a seed: a program
    check: Any  # of a program: ([(way, how it ended, counts)], steps), or Failure
    choose: Any  # of a program: its ways
    smaller: Any  # of a program: programs with a part left out
    text: Any  # of a program: what is printed of one that fails


# Arrays ----------------------------------------------------------------------------------------


def address(array):
    return array.__array_interface__["data"][0]


def same_bits(a, b):
    """Whether arrays are equal to the last bit, but for signs of zeros and kinds of NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.nbytes < SMALL or not (a.flags.c_contiguous and b.flags.c_contiguous):
        if a.tobytes() == b.tobytes():
            return True
    elif not _memory_differs(address(a), address(b), a.nbytes):
        return True
    if a.dtype.kind in "biu":
        return False
    with np.errstate(all="ignore"):
        return bool(((a == b) | ((a != a) & (b != b))).all())


def first(a, b):
    """Where two arrays differ first, in words."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
    with np.errstate(all="ignore"):
        different = np.flatnonzero((a != b).reshape(-1))
    if not len(different):
        return "signs of zeros or NaNs"
    k = different[0]
    return (
        f"{len(different)} of {a.size} elements, [{k}] is {a.reshape(-1)[k]} for {b.reshape(-1)[k]}"
    )


def distances(a, b):
    """The differences of two arrays; infinite where one has NaN, and the other has not."""
    with np.errstate(all="ignore"):
        x, y = a.astype("f8"), b.astype("f8")
        both = (np.isnan(x) & np.isnan(y)) | (x == y)
        d = np.where(both, 0.0, np.abs(x - y))
    return np.where(np.isnan(d), np.inf, d)


def distance(a, b):
    """The largest difference of two arrays."""
    if a.dtype == b.dtype == "float32":
        with np.errstate(all="ignore"):
            found = float(np.abs(a - b).max(initial=0.0))
        if np.isfinite(found):
            return found
    return float(distances(a, b).max(initial=0.0))


# Making programs small -------------------------------------------------------------------------


def outcome(subject, program, way, kind):
    """Whether a program fails in a way, tried in a child; a signal that ends it is a failure."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            subject.check(program, [way])
            code = PASSED
        except Failure as failure:
            code = FAILED if failure.way in (way, "eager") and failure.kind == kind else OTHER
        except BaseException:
            code = OTHER
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        crashed = os.WTERMSIG(status) != signal.SIGALRM
        return FAILED if crashed == (kind == "crash") else OTHER
    return os.WEXITSTATUS(status)


def shrink(subject, program, way, kind, seconds=40):
    """The smallest program found in time that still fails; None if it does not fail by itself."""
    end = time.monotonic() + seconds
    if outcome(subject, program, way, kind) != FAILED:
        return None
    found = True
    while found and time.monotonic() < end:
        found = False
        for candidate in subject.smaller(program):
            if time.monotonic() > end:
                break
            if outcome(subject, candidate, way, kind) == FAILED:
                program, found = candidate, True
                break
    return program


# Processes -------------------------------------------------------------------------------------


def batch(subject, seeds, out):
    """Run programs; one line of JSON for each."""

    def tell(**what):
        os.write(out, (json.dumps(what) + "\n").encode())

    gc.collect()
    gc.freeze()  # programs collect garbage, which should not walk through all modules
    for seed in seeds:
        tell(begin=seed)
        limit_core()
        try:
            found, steps = subject.check(subject.generate(seed))
            tell(seed=seed, steps=steps, ways=[(w, how, counts) for w, how, counts in found])
        except Failure as failure:
            tell(
                seed=seed,
                way=failure.way,
                kind=failure.kind,
                at=failure.at,
                text=failure.text[:400],
            )
        except Exception as error:
            tell(seed=seed, way="-", kind="tester", at=-1, text=repr(error)[:400])


def limit_core():
    """End the process by SIGXCPU where the next program takes too long."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = int(used.ru_utime + used.ru_stime) + LIMIT
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def import_all():
    """Import the modules of the library, so that not each process compiles and runs them again."""
    for name in IMPORTED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)


class Job:
    """A process that runs a batch of seeds."""

    def __init__(self, subject, seeds):
        self.seeds, self.current, self.rest = list(seeds), None, b""
        self.read, write = os.pipe()
        self.pid = os.fork()
        self.time = time.monotonic()
        if self.pid == 0:
            os.close(self.read)
            batch(subject, self.seeds, write)
            os._exit(0)
        os.close(write)

    def messages(self):
        """What has come since; None at the end."""
        data = os.read(self.read, 1 << 16)
        if not data:
            return None
        self.time = time.monotonic()
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(x) for x in lines]


class Campaign:
    """Many programs in several processes; what fails is made small and printed."""

    def __init__(self, subject, count, seed, jobs=1, seconds=1e9, small=0, batch=BATCH):
        self.waiting = collections.deque(
            range(seed + k, seed + min(k + batch, count)) for k in range(0, count, batch)
        )
        self.subject = subject
        self.jobs, self.limit, self.small = jobs, time.monotonic() + seconds, small
        self.begun = time.monotonic()
        self.programs = self.steps = 0
        self.ways, self.failures = collections.Counter(), []

    def run(self):
        import_all()
        running = []
        while self.waiting or running:
            while self.waiting and len(running) < self.jobs and time.monotonic() < self.limit:
                running.append(Job(self.subject, self.waiting.popleft()))
            if not running:
                break
            ready, _, _ = select.select([j.read for j in running], [], [], 1.0)
            for job in list(running):
                if job.read in ready:
                    found = job.messages()
                    if found is None:
                        running.remove(job)
                        self.ended(job)
                    else:
                        for message in found:
                            self.take(job, message)
                elif time.monotonic() - job.time > SILENCE:
                    os.kill(job.pid, signal.SIGKILL)
        return self.failures

    def take(self, job, message):
        if "begin" in message:
            job.current = message["begin"]
            return
        job.current = None
        self.programs += 1
        if "kind" in message:
            self.fail(message)
            return
        self.steps += message["steps"] * len(message["ways"])
        for way, how, counts in message["ways"]:
            self.ways[way, how] += 1
            for key, n in counts.items():
                self.ways[way, key] += n
        if self.programs % 100 == 0:
            used = time.monotonic() - self.begun
            print(
                f"{self.programs} programs, {self.steps} steps, {used:.0f} s",
                flush=True,
            )

    def ended(self, job):
        _, status = os.waitpid(job.pid, 0)
        os.close(job.read)
        if os.WIFSIGNALED(status) and job.current is not None:
            hung = os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXCPU)
            kind, name = (
                ("hang", "no end") if hung else ("crash", signal.strsignal(os.WTERMSIG(status)))
            )
            self.programs += 1
            self.fail({"seed": job.current, "way": "?", "kind": kind, "at": -1, "text": name})
            left = range(job.current + 1, job.seeds[-1] + 1)
            if left:
                self.waiting.appendleft(left)

    def fail(self, message):
        self.failures.append(message)
        print(
            "FAILURE seed {seed}: {way}, statement {at}, {kind}: {text}".format_map(message),
            flush=True,
        )
        if not self.small or message["kind"] in ("hang", "tester"):
            return
        program, way = self.subject.generate(message["seed"]), message["way"]
        for tried in self.subject.choose(program) if way in ("?", "eager") else [way]:
            found = shrink(self.subject, program, tried, message["kind"], self.small)
            if found is not None:
                print(
                    f"--- seed {message['seed']}, {tried}:\n{self.subject.text(found)}\n---",
                    flush=True,
                )
                return
        print("--- not by itself: only after other programs", flush=True)


def run_from_command_line(subject, listing, description, arguments=None):
    """The command of a kind of programs; the exit status is 1 where one failed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds for each failure")
    parser.add_argument("--list", action="store_true", help="print the program of the seed alone")
    given = parser.parse_args(arguments)
    if given.list:
        print(listing(subject.generate(given.seed)))
        return 0
    campaign = Campaign(subject, given.count, given.seed, given.jobs, given.seconds, given.shrink)
    failures = campaign.run()
    print(f"{campaign.programs} programs, {campaign.steps} steps, {len(failures)} failures")
    for (way, how), n in sorted(campaign.ways.items()):
        print(f"  {way}: {how}: {n}")
    return int(bool(failures))
