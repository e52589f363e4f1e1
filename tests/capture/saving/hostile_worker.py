"""Loads hostile files in a process of its own: watches its actions or its memory.

hostile_worker.py watch FIRST COUNT FOLDER    mutants and crafted files under an audit hook
hostile_worker.py run FIRST COUNT FOLDER      the same, and loaded graphs are run as well
hostile_worker.py memory NAME FOLDER          one crafted file, with its growth of memory
"""

import contextlib
import io
import json
import os
import resource
import sys
import threading
import time
import warnings

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.codegen.numpy import in_place
from eagerflow.devices import devices
from eagerflow.errors import EagerflowError
from eagerflow.plan import plan
from tests.capture import running
from tests.capture.saving import crafted, mutation
from tests.capture.saving.nested_op import test_call
from tests.plan import programs as plan_trees

FORBIDDEN = """
    exec compile import pickle.find_class subprocess.Popen os.system os.exec os.fork os.posix_spawn
    os.spawn socket.connect socket.bind socket.getaddrinfo socket.__new__ ctypes.dlopen
    marshal.loads code.__new__ object.__setattr__ os.remove os.rename os.mkdir os.chmod os.truncate
    shutil.rmtree
""".split()

MOST_MEMORY = 12 << 30  # bytes of addresses


def untyped(graph):
    """``running.untyped`` without what graphs print."""
    with contextlib.redirect_stdout(io.StringIO()):
        return running.untyped(graph)


class Watch:
    """The events that Python reports while ``path`` is loaded."""

    def __init__(self):
        self.path = None
        self.bad = []
        self.events = 0
        devices()  # imports the code that counts them, as the first file that names one would
        sys.addaudithook(self.hook)

    def hook(self, event, args):
        if self.path is None:
            return
        self.events += 1
        # A number is a file that was opened before, which is an event of its own.
        opened = event == "open" and not isinstance(args[0], int)
        if event in FORBIDDEN or (opened and os.fspath(args[0]) != self.path):
            self.bad.append((event, repr(args)[:200]))

    def load(self, path):
        """The graph in a file, None where it is refused."""
        self.path = path
        try:
            return file.load(path)
        except EagerflowError:
            return None
        finally:
            self.path = None

    def run(self, graph):
        """Run a graph in all ways; gives how many gave a result, and errors of other kinds."""
        self.path = "a run opens none"
        try:
            return untyped(graph)
        finally:
            self.path = None


class RunWatch(Watch):
    """Watches runs too: Python may compile and run programs of plans and kernels, nothing else."""

    def __init__(self):
        self.checked = set()  # identities of code that came out of the check
        self.kept = []
        real = plan.compiled

        def compiled(text, *more):
            code = real(text, *more)
            if not plan_trees.foreign(text):
                self.checked.add(id(code))
                self.kept.append(code)
            return code

        plan.compiled = in_place.compiled = compiled
        super().__init__()

    def is_plan(self, source):
        """Whether something that is parsed or compiled is the program of a plan."""
        path, self.path = self.path, None  # to look at it is an event too
        try:
            return plan_trees.foreign(bytes(source).decode()) == []
        finally:
            self.path = path

    def hook(self, event, args):
        if self.path is not None and (
            (event == "compile" and self.is_plan(args[0]))
            or (event == "exec" and id(args[0]) in self.checked)
        ):
            self.events += 1
            return
        super().hook(event, args)


def watch(first, count, folder):
    path = os.path.join(folder, "watched.ef")
    seen = Watch()
    small = [data for _, data in every_crafted() if len(data) < 10**6]
    for data in (*mutation.bases(), *small, *map(mutation.mutant, range(first, first + count))):
        with open(path, "wb") as stream:
            stream.write(data)
        seen.load(path)
    # Check that the hook detects a forbidden action.
    seen.path, caught = path, len(seen.bad)
    eval("1 + 1")
    with open(os.devnull):
        pass
    seen.path = None
    planted = [event for event, _ in seen.bad[caught:]]
    del seen.bad[caught:]
    print(json.dumps({"bad": seen.bad[:5], "events": seen.events, "planted": planted}))


def run(first, count, folder):
    """Load and run mutants and crafted files; failures are reported as JSON."""
    os.environ["EAGERFLOW_CACHE"] = "off"  # so that a run opens no file
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    warnings.simplefilter("ignore")
    path = os.path.join(folder, "watched.ef")
    for data in mutation.bases():  # so that lazy imports are done
        untyped(file.decode(data))
    ef.softmax(ef.ones((64, 64)))
    seen = RunWatch()
    ran, bad = 0, []
    small = [data for _, data in every_crafted() if len(data) < 10**6]
    placed = [data for _, data in crafted.places()]
    for data in (*small, *placed, *map(mutation.mutant, range(first, first + count))):
        with open(path, "wb") as stream:
            stream.write(data)
        graph = seen.load(path)
        if graph is not None:
            errors, ways = seen.run(graph)
            ran += bool(ways)
            bad += [f"{way}: {error!r}" for way, error in errors.items()]
    seen.path, caught = path, len(seen.bad)
    exec(compile("b = 'a'", "<eagerflow plan 0>", "exec"))
    seen.path = None
    planted = [event for event, _ in seen.bad[caught:]]
    del seen.bad[caught:]
    found = {"ran": ran, "untyped": bad[:20], "bad": seen.bad[:5], "planted": planted}
    print(json.dumps(found | {"programs": len(seen.kept)}))


def every_crafted():
    yield from crafted.containers()
    yield from crafted.programs()
    yield from crafted.nests()


def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(names, folder):
    """The growth of memory while each of the files is loaded, in a process of its own."""
    path = os.path.join(folder, "large.ef")
    for name, data in every_crafted():
        if name not in names:
            continue
        with open(path, "wb") as stream:
            stream.write(data)
        size = len(data)
        del data
        child = os.fork()
        if child == 0:
            print(json.dumps({"name": name, "size": size, **grown(path)}), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def grown(path):
    """How much more memory there is in use while a file is loaded, and the error."""
    before, peak, done = resident(), [0], threading.Event()

    def sample():
        while not done.is_set():
            peak[0] = max(peak[0], resident())
            time.sleep(0.001)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        file.load(path)
        error = None
    except EagerflowError as raised:
        error = type(raised).__name__
    finally:
        done.set()
        thread.join()
    return {"grown": max(peak[0], resident()) - before, "error": error}


if __name__ == "__main__":
    with test_call():
        if sys.argv[1] in ("watch", "run"):
            {"watch": watch, "run": run}[sys.argv[1]](*map(int, sys.argv[2:4]), sys.argv[4])
        else:
            memory(json.loads(sys.argv[2]), sys.argv[3])
