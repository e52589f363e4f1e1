"""User activities, small enough to be interrupted at every bytecode, with their invariants.

An activity is a call that can be made again and again, and a check of what it has left: nothing is
held, no state is half changed, and the next calls are right.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path

import numpy as np

import eagerflow as ef
from eagerflow.capture.guards import events
from eagerflow.locks import writing
from eagerflow.recorder import process, recorder_state
from eagerflow.runtime import blas, threads
from eagerflow.scopes import scopes

BLAS = blas.thread_functions()
BLAS_THREADS = BLAS[1]() if BLAS else None
THRESHOLD = gc.get_threshold()
SIZE = 40_000  # elements: large enough for two threads, and for updates in place


class Training(ef.nn.Layer):
    """Gives whether it is called for training."""

    def call(self, inputs, training):
        return training


LAYER, NUMBER = Training(), ef.ones(())


def descriptors():
    """Open files of this process; 0 where the system does not report them."""
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


def nothing_is_held():
    """Assert that no context of eagerflow's is entered, in any thread."""
    assert recorder_state()[1] is None and not process.recorders
    assert scopes() == ""
    assert not threads._lent and not blas._users and not threads._local.alone
    assert not BLAS or BLAS[1]() == BLAS_THREADS
    assert not writing.thread
    assert not LAYER(NUMBER)
    assert (gc.get_threshold(), gc.isenabled()) == (THRESHOLD, True)
    assert not any(isinstance(signal.getsignal(s), partial) for s in signal.valid_signals())
    watch = events.current()
    assert not watch.stack and not watch.hooks
    if hasattr(sys, "monitoring"):
        assert events.TOOL not in map(sys.monitoring.get_tool, range(6))


class Activity:
    """``call`` is interrupted; ``check`` raises if that has left an invalid state."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="eagerflow-activity-"))
        self.begin()
        self.call()
        self.check()
        self.files = descriptors()

    def begin(self):
        """Set up the objects that the calls need."""

    def call(self):
        """Do it once."""

    def check(self):
        """Assert that the state is one of those between calls."""

    def inside(self):
        """Check the invariants that hold in the middle of a call."""
        self.check()

    def after(self):
        """Check the invariants that hold after an interrupted call."""
        nothing_is_held()
        assert descriptors() <= self.files
        self.check()

    def end(self):
        """Remove the created objects."""
        shutil.rmtree(self.folder)


class Eager(Activity):
    """Ops large enough for kernels on two threads."""

    def begin(self):
        self.x = ef.tensor(np.linspace(-3, 3, SIZE, dtype="float32"))
        self.right = self.compute()

    def compute(self):
        return (ef.softmax(self.x) * 2.0 + ef.gelu(self.x)).numpy()

    def call(self):
        self.compute()

    def check(self):
        assert np.array_equal(self.compute(), self.right)


class Backward(Activity):
    """A gradient of a gradient, in scopes."""

    def begin(self):
        self.x = ef.Variable(np.linspace(0.1, 2, SIZE, dtype="float32"))
        self.right = self.compute()

    def compute(self):
        with ef.capture.scope("outer"), ef.GradientTape() as outer:
            with ef.GradientTape() as inner:
                y = (ef.sin(self.x) * self.x).sum()
            g = inner.gradient(y, self.x)
            z = (g * g).sum()
        return outer.gradient(z, self.x).numpy()

    def call(self):
        self.compute()

    def check(self):
        assert np.array_equal(self.compute(), self.right)


class Tracing(Activity):
    """The first call of a captured function: watched, traced, planned, compiled."""

    rate = 3.0

    def call(self):
        def helper(x):
            return ef.tanh(x) * self.rate

        @ef.function
        def f(x):
            return helper(x) + ef.vmap(lambda row: row @ row)(ef.ones((2, 3))).sum()

        self.f = f
        assert f(ef.zeros((2,))).tolist() == [6.0, 6.0]

    def check(self):
        assert self.f(ef.zeros((2,))).tolist() == [6.0, 6.0]
        self.rate = 4.0  # noticed by every trace
        one = ef.ones((2,))
        assert np.allclose(self.f(one).numpy(), np.tanh(1.0) * 4 + 6)
        self.rate = 3.0


class Counting(Activity):
    """Base of steps that add one to several Variables, large and small."""

    def begin(self):
        names = [f"v{i}" for i in range(3)]
        self.variables = [ef.Variable(np.zeros(SIZE, "float32"), name=n) for n in names]
        self.variables.append(ef.Variable(0.0, name="small"))
        self.one = ef.tensor(1.0)
        self.prepare()
        self.count = 0.0
        for _ in range(3):
            self.call()
        self.count = self.seen()

    def prepare(self):
        """Make the step."""

    def step(self, x):
        for variable in self.variables:
            variable.assign(variable * 1.0 + x)
        return x

    def seen(self):
        values = [v.numpy() for v in self.variables]
        low, high = min(v.min() for v in values), max(v.max() for v in values)
        assert low == high, f"values from {low} to {high}"
        return float(low)

    def check(self):
        now = self.seen()
        assert now >= self.count  # guests may step too
        self.call()
        assert self.seen() == now + 1
        self.count = now + 1


class Captured(Counting):
    """Steps of a captured function."""

    def prepare(self):
        self.f = ef.function(lambda x: self.step(x))

    def call(self):
        self.f(self.one)


class SessionRuns(Counting):
    """Steps of a session."""

    def prepare(self):
        graph = ef.capture.trace(self.step, ef.TensorSpec((), "float32"))
        self.session = ef.capture.Session(graph)

    def call(self):
        self.session.run((), {"x": self.one}, targets=self.session.graphs)


class Extending(Activity):
    """A session that gets one more graph: it has all of it, or nothing."""

    def begin(self):
        self.w = ef.Variable([1.0, 2.0], name="w")
        spec = ef.TensorSpec((2,), "float32")
        self.graphs = [
            ef.capture.trace(lambda x, i=i: {f"y{i}": self.w * x + float(i)}, spec)
            for i in range(2)
        ]
        self.session = None

    def call(self):
        self.session = session = ef.capture.Session(self.graphs[0])
        session.extend(self.graphs[1])

    def check(self):
        session = self.session
        for i, graph in enumerate(session.graphs):
            assert session.run(f"y{i}", {"x": [1.0, 1.0]}).tolist() == [1.0 + i, 2.0 + i]
            assert session.run(f"{graph.name}{f'_{i}' * bool(i)}:y{i}", {"x": [0.0, 0.0]}).shape
        if len(session.graphs) < 2:
            session.extend(self.graphs[1])
            assert session.run("y1", {"x": [1.0, 1.0]}).tolist() == [2.0, 3.0]


class Saving(Activity):
    """A graph that is saved over an older one: one of them is there, whole."""

    def begin(self):
        self.graphs = [
            ef.capture.trace(lambda x, i=i: x + float(i), ef.TensorSpec((2,), "float32"))
            for i in range(2)
        ]
        self.path = self.folder / "graph.ef"
        self.turn = 0
        self.graphs[0].save(self.path)

    def call(self):
        self.turn += 1
        self.graphs[self.turn % 2].save(self.path)

    def inside(self):  # the next file is there too, under another name
        found = ef.capture.load(self.path)
        assert found(ef.zeros((2,))).tolist() in ([0.0, 0.0], [1.0, 1.0])

    def check(self):
        self.inside()
        assert os.listdir(self.folder) == ["graph.ef"]


class Loading(Activity):
    """A graph that is loaded and run."""

    def begin(self):
        graph = ef.capture.trace(lambda x: ef.tanh(x) + 1.0, ef.TensorSpec((2,), "float32"))
        graph.save(self.folder / "graph.ef")

    def call(self):
        found = ef.capture.load(self.folder / "graph.ef")
        assert found(ef.zeros((2,))).tolist() == [1.0, 1.0]

    def check(self):
        self.call()


class Fitting(Activity):
    """Epochs of ``fit`` by SGD, whose gradients are all one: weights tell the number of steps."""

    def begin(self):
        self.model = ef.nn.Sequential([ef.nn.Dense(1, use_bias=False)])
        self.model.compile(ef.nn.optimizers.SGD(1.0), loss=lambda y, p: ef.mean(p))
        self.x = np.ones((8, 4), "float32")
        self.y = np.zeros((8, 1), "float32")
        self.model.fit(self.x, self.y, epochs=1, batch_size=4, verbose=0)
        self.start = self.model.weights[0].numpy() + self.steps()

    def steps(self):
        return float(self.model.optimizer.iterations.numpy())

    def call(self):
        self.model.fit(self.x, self.y, epochs=1, batch_size=4, verbose=0)

    def check(self):
        before = self.steps()
        assert np.allclose(self.model.weights[0].numpy(), self.start - before, atol=1e-3)
        self.call()
        assert self.steps() == before + 2


class Training(Activity):
    """A layer that gets the argument ``training``."""

    def begin(self):
        self.model = ef.nn.Sequential([ef.nn.Dense(3), ef.nn.Dropout(0.5), ef.nn.Dense(2)])
        self.x = ef.ones((4, 4))
        self.right = self.model(self.x).numpy()

    def call(self):
        self.model(self.x, training=True)

    def check(self):  # also from inside of a call, whose layers inherit its argument
        assert np.array_equal(self.model(self.x, training=False).numpy(), self.right)


class Drawing(Activity):
    """Random numbers: no draw is given twice."""

    def begin(self):
        self.source = ef.random.Generator(0)
        self.seen = set()

    def call(self):
        found = self.source.uniform((2,)).numpy().tobytes()
        assert found not in self.seen
        self.seen.add(found)

    def check(self):
        self.call()


class Verifying(Counting):
    """``verify``, which runs a step in several ways and undoes their effects."""

    def prepare(self):
        self.f = ef.function(lambda x: self.step(x))
        self.f(self.one)

    def call(self):
        before = self.seen()
        ef.capture.verify(self.f, (self.one,), modes=("eager", "captured"))
        assert self.seen() == before

    def check(self):
        assert self.seen() == self.count
        self.call()

    def inside(self):  # one of the ways assigns one Variable after the other
        assert all(np.ptp(v.numpy()) == 0 for v in self.variables)


class Partitioned(Counting):
    """Steps over two devices."""

    def prepare(self):
        graph = ef.capture.trace(self.step, ef.TensorSpec((), "float32"))
        self.session = ef.capture.Session(graph, devices=["cpu:0", "cpu:1"])

    def call(self):
        self.session.run((), {"x": self.one}, targets=self.session.graphs)


ACTIVITIES = [
    Eager,
    Backward,
    Tracing,
    Captured,
    SessionRuns,
    Extending,
    Saving,
    Loading,
    Fitting,
    Training,
    Drawing,
    Verifying,
]


class Guest:
    """An action of a signal handler or a finalizer in the middle of other work."""

    def __init__(self, traces=True):
        self.traces = traces
        self.w = ef.Variable(np.zeros(SIZE, "float32"), name="guest")
        self.f = ef.function(self.step)
        self.calls = 0
        self.seen = set()
        self()

    def step(self, x):
        self.w.assign(self.w + x)
        return ef.tanh(x)

    def __call__(self):
        self.calls += 1
        x = ef.tensor([[1.0, 2.0]])
        assert (x @ x.T).tolist() == [[5.0]]
        self.f(ef.tensor(1.0))
        assert (self.w.numpy() == self.calls).all()
        drawn = ef.random.uniform((2,)).numpy().tobytes()
        assert drawn not in self.seen
        self.seen.add(drawn)
        if self.traces:
            made = ef.function(lambda x: x * 2.0)
            assert made(x).tolist() == [[2.0, 4.0]]


def in_child(check, seconds=20):
    """Fork; whether ``check()`` ends well in the child."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        check()
        os._exit(0)
    except BaseException as error:
        os.write(2, f"in a child: {''.join(traceback.format_exception(error))}\n".encode())
    finally:
        os._exit(1)
