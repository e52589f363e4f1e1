"""``python -m tests.programs --count 1000 --seed 1``: random programs, run in all ways."""

import argparse
import collections
import gc
import inspect
import json
import os
import select
import signal
import sys
import time

from tests.programs import generate as generating
from tests.programs import helpers
from tests.programs.generate import generate
from tests.programs.running import Failure, check, choose
from tests.programs.shrinking import shrink

BATCH = 10  # programs of one process
LIMIT = 120.0  # seconds without a word from a process


def listing(program, way):
    """A program as text that runs by itself; ``capture`` is what fails."""
    helps = inspect.getsource(helpers)
    for f in (generating.numbers, generating.filled):
        helps += "\n\n" + inspect.getsource(f)
    how = "ef.function" if "fast" in way else 'functools.partial(ef.function, numerics="exact")'
    head = f"import functools\ncapture = nested = {how}  # {way}\n"
    return f"{helps}\n\n{head}{text(program)}"


def text(program):
    return program.setup() + "\n" + "\n".join(program.statements())


def batch(seeds, out):
    """Run programs; one line of JSON for each."""

    def tell(**what):
        os.write(out, (json.dumps(what) + "\n").encode())

    gc.collect()
    gc.freeze()  # programs collect garbage, which should not walk through all modules
    for seed in seeds:
        tell(begin=seed)
        program = generate(seed)
        try:
            found, steps = check(program)
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


class Job:
    """A process that runs a batch of seeds."""

    def __init__(self, seeds):
        self.seeds, self.current, self.rest = list(seeds), None, b""
        self.read, write = os.pipe()
        self.pid = os.fork()
        self.time = time.monotonic()
        if self.pid == 0:
            os.close(self.read)
            batch(self.seeds, write)
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

    def __init__(self, count, seed, jobs, seconds, small):
        self.waiting = collections.deque(
            range(seed + k, seed + min(k + BATCH, count)) for k in range(0, count, BATCH)
        )
        self.jobs, self.limit, self.small = jobs, time.monotonic() + seconds, small
        self.begun = time.monotonic()
        self.programs = self.steps = 0
        self.ways, self.failures = collections.Counter(), []

    def run(self):
        running = []
        while self.waiting or running:
            while self.waiting and len(running) < self.jobs and time.monotonic() < self.limit:
                running.append(Job(self.waiting.popleft()))
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
                elif time.monotonic() - job.time > LIMIT:
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
            hung = os.WTERMSIG(status) == signal.SIGKILL
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
        program = generate(message["seed"])
        for way in choose(program) if message["way"] in ("?", "eager") else [message["way"]]:
            found = shrink(program, way, message["kind"], self.small)
            if found is not None:
                print(f"--- seed {message['seed']}, {way}:\n{text(found)}\n---", flush=True)
                return
        print("--- not by itself: only after other programs", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds for each failure")
    parser.add_argument("--list", action="store_true", help="print the program of the seed alone")
    given = parser.parse_args(arguments)
    if given.list:
        print(listing(generate(given.seed), "fast"))
        return 0
    campaign = Campaign(given.count, given.seed, given.jobs, given.seconds, given.shrink)
    failures = campaign.run()
    print(f"{campaign.programs} programs, {campaign.steps} steps, {len(failures)} failures")
    for (way, how), n in sorted(campaign.ways.items()):
        print(f"  {way}: {how}: {n}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
