"""Campaigns: random programs of many seeds, checked in parallel processes, failures shrunk."""

import argparse
import collections
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

BATCH = 30  # programs of one process
CPU_SECONDS = 120  # for one program
SHRINK_SECONDS = 20  # for one run of a program that is being shrunk
MESSAGE_SECONDS = 900.0  # between messages of a process; the machine may have other work
IMPORTED = [
    f"eagerflow.{name}"
    for name in ("capture", "codegen", "fusion", "graph", "nn", "ops", "plan", "primitives")
]


class Failure(Exception):
    """A wrong result of a program in a mode, at the statement with this index."""

    def __init__(self, mode, statement, kind, text):
        super().__init__(f"{mode}, statement {statement}: {text}")
        self.mode, self.statement, self.kind, self.text = mode, statement, kind, text


@dataclass
class ProgramTester:
    """The functions of one kind of random programs."""

    generate: Any  # seed -> program
    check: Any  # program, modes -> [(mode, status, counts)], number of steps; or a Failure
    choose_modes: Any  # program -> modes
    smaller: Any  # program -> candidates of shrinking
    text: Any  # program -> text without helpers, for reports
    listing: Any  # program -> text that runs alone


# Shrinking -------------------------------------------------------------------------------------


def fails(tester, program, mode, kind):
    """Whether a program has a failure of this kind in a mode or in eager mode, run in a child."""
    child = os.fork()
    if child == 0:
        failed = False
        signal.alarm(SHRINK_SECONDS)
        try:
            tester.check(program, [mode])
        except Failure as failure:
            failed = failure.mode in (mode, "eager") and failure.kind == kind
        finally:
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return kind == "crash" and os.WTERMSIG(status) != signal.SIGALRM
    return bool(os.WEXITSTATUS(status))


def shrink(tester, program, mode, kind, seconds):
    """The smallest failing program found in time. None if the program does not fail alone."""
    end = time.monotonic() + seconds
    if not fails(tester, program, mode, kind):
        return None
    found = True
    while found and time.monotonic() < end:
        found = False
        for candidate in tester.smaller(program):
            if time.monotonic() > end:
                break
            if fails(tester, candidate, mode, kind):
                program, found = candidate, True
                break
    return program


# Processes -------------------------------------------------------------------------------------


def run_batch(tester, seeds, pipe):
    """Check the programs of seeds. Writes a line of JSON at the start and the end of each."""

    def send(**message):
        os.write(pipe, (json.dumps(message) + "\n").encode())

    def send_failure(mode, statement, kind, text):
        send(seed=seed, mode=mode, statement=statement, kind=kind, text=text[:400])

    gc.collect()
    gc.freeze()  # collections in programs skip the objects of all modules
    for seed in seeds:
        send(begin=seed)
        limit_cpu_time()
        try:
            modes, steps = tester.check(tester.generate(seed))
            send(seed=seed, steps=steps, modes=modes)
        except Failure as failure:
            send_failure(failure.mode, failure.statement, failure.kind, failure.text)
        except Exception as error:
            send_failure("-", -1, "tester", repr(error))


def limit_cpu_time():
    """Let SIGXCPU end the process if the next program takes too long."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def import_all():
    """Import the modules of the library once, before processes are forked."""
    for name in IMPORTED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)


class Job:
    """A forked process that checks a batch of seeds."""

    def __init__(self, tester, seeds):
        self.seeds, self.current, self.incomplete = list(seeds), seeds[0], b""
        self.checked = False  # whether the current program is
        self.read, write = os.pipe()
        self.pid = os.fork()
        self.time = time.monotonic()
        if self.pid == 0:
            os.close(self.read)
            run_batch(tester, self.seeds, write)
            os._exit(0)
        os.close(write)

    def messages(self):
        """The new messages, None at the end of the process."""
        data = os.read(self.read, 1 << 16)
        if not data:
            return None
        self.time = time.monotonic()
        *lines, self.incomplete = (self.incomplete + data).split(b"\n")
        return [json.loads(x) for x in lines]


class Campaign:
    """Checks ``count`` programs from ``seed`` on, and prints progress and failures."""

    def __init__(self, tester, count, seed, jobs=1, seconds=1e9, shrink_seconds=0, batch=BATCH):
        self.tester, self.jobs, self.shrink_seconds = tester, jobs, shrink_seconds
        self.waiting = collections.deque(
            range(seed + k, seed + min(k + batch, count)) for k in range(0, count, batch)
        )
        self.begun = time.monotonic()
        self.end = self.begun + seconds
        self.programs = self.steps = 0
        self.modes, self.failures = collections.Counter(), []

    def run(self):
        """Run all batches that begin in time. Returns the failures."""
        import_all()
        running = []
        while self.waiting or running:
            while self.waiting and len(running) < self.jobs and time.monotonic() < self.end:
                running.append(Job(self.tester, self.waiting.popleft()))
            if not running:
                break
            ready, _, _ = select.select([j.read for j in running], [], [], 1.0)
            for job in list(running):
                if job.read in ready:
                    messages = job.messages()
                    if messages is None:
                        running.remove(job)
                        self.finish(job)
                    else:
                        for message in messages:
                            self.receive(job, message)
                elif time.monotonic() - job.time > MESSAGE_SECONDS:
                    os.kill(job.pid, signal.SIGKILL)
        return self.failures

    def receive(self, job, message):
        job.checked = "begin" not in message
        if not job.checked:
            job.current = message["begin"]
            return
        self.programs += 1
        if "kind" in message:
            self.fail(message)
            return
        self.steps += message["steps"] * len(message["modes"])
        for mode, status, counts in message["modes"]:
            self.modes[mode, status] += 1
            for key, n in counts.items():
                self.modes[mode, key] += n
        if self.programs % 100 == 0:
            used = time.monotonic() - self.begun
            print(f"{self.programs} programs, {self.steps} steps, {used:.0f} s", flush=True)

    def finish(self, job):
        """Record the crash or timeout of a process, and queue its remaining seeds."""
        _, status = os.waitpid(job.pid, 0)
        os.close(job.read)
        if status == 0:
            return
        number = os.WTERMSIG(status)
        if not number:
            kind, text = "crash", f"exit status {os.WEXITSTATUS(status)}"
        elif number in (signal.SIGKILL, signal.SIGXCPU):
            kind, text = "hang", "time limit exceeded"
        else:
            kind, text = "crash", signal.strsignal(number)
        if job.checked:
            text = f"{text}, after the program was checked"
        else:
            self.programs += 1
        self.fail({"seed": job.current, "mode": "?", "kind": kind, "statement": -1, "text": text})
        rest = range(job.current + 1, job.seeds[-1] + 1)
        if rest:
            self.waiting.appendleft(rest)

    def fail(self, message):
        """Print a failure and its shrunk program."""
        self.failures.append(message)
        text = "FAILURE seed {seed}: {mode}, statement {statement}, {kind}: {text}"
        print(text.format_map(message), flush=True)
        if not self.shrink_seconds or message["kind"] in ("hang", "tester"):
            return
        program, mode = self.tester.generate(message["seed"]), message["mode"]
        modes = self.tester.choose_modes(program) if mode in ("?", "eager") else [mode]
        for mode in modes:
            found = shrink(self.tester, program, mode, message["kind"], self.shrink_seconds)
            if found is not None:
                text = self.tester.text(found)
                print(f"--- seed {message['seed']}, {mode}:\n{text}\n---", flush=True)
                return
        print("--- does not fail alone, only after other programs", flush=True)


def run_from_command_line(tester, description, arguments=None):
    """Run the command of a tester. Returns the exit status: 1 if a program failed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds for each failure")
    parser.add_argument("--list", action="store_true", help="only print the program of the seed")
    given = parser.parse_args(arguments)
    if given.list:
        print(tester.listing(tester.generate(given.seed)))
        return 0
    campaign = Campaign(tester, given.count, given.seed, given.jobs, given.seconds, given.shrink)
    failures = campaign.run()
    print(f"{campaign.programs} programs, {campaign.steps} steps, {len(failures)} failures")
    for (mode, status), n in sorted(campaign.modes.items()):
        print(f"  {mode}: {status}: {n}")
    return int(bool(failures))
