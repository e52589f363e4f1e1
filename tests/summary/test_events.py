"""Event files outlive their process, its threads and a full disk."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import SessionError

pytest.importorskip("tensorboard")
from tests.summary import reading

KILLED = """
import sys, time
import eagerflow as ef
w = ef.summary.Writer(sys.argv[1])
for step in range(500):
    w.scalar("loss", step / 2, step)
w.flush()
print("flushed", flush=True)
for step in range(500, 10**9):
    w.scalar("loss", step / 2, step)
"""


def test_flushed_events_survive_a_kill(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "flushed\n"
        child.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        child.wait()
    found = [(step, float(array)) for _, step, array, _ in reading.values(tmp_path)]
    assert len(found) >= 500
    assert found == [(step, step / 2) for step in range(len(found))]


UNCLOSED = """
import sys
import eagerflow as ef
w = ef.summary.Writer(sys.argv[1])
w.scalar("loss", 1.5, 3)
"""


def test_unclosed_writer_is_flushed_at_exit(tmp_path):
    subprocess.run([sys.executable, "-c", UNCLOSED, str(tmp_path)], check=True)
    assert reading.only(tmp_path, "loss")[:2] == (3, 1.5)


FULL = """
import resource, signal, sys
import eagerflow as ef
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
w = ef.summary.Writer(sys.argv[1], flush_secs=0.01)
w.scalar("first", 1.0, 0)
w.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
told = []
for step in range(100_000):
    try:
        w.scalar("more", 1.0, step)
    except ef.errors.FileFormatError as error:
        told.append(str(error))
        break
for use in (w.flush, w.close):
    try:
        use()
    except ef.errors.FileFormatError as error:
        told.append(str(error))
w.close()
print(len(told), told[0].replace(sys.argv[1], "PLACE"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits of file sizes")
def test_full_disk_raises_and_keeps_written_events(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("3 PLACE: the file cannot be written: File too large")
    assert reading.values(tmp_path, "first")[0][1:3] == (0, 1.0)


def test_several_threads_write_into_one_file(tmp_path):
    with ef.summary.Writer(tmp_path) as w:

        def write(number):
            for step in range(200):
                w.scalar(f"thread/{number}", step, step)

        threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for i in range(4):
        rows = reading.values(tmp_path, f"thread/{i}")
        assert [(step, float(array)) for _, step, array, _ in rows] == [
            (step, step) for step in range(200)
        ]


def test_captured_steps_in_several_threads_write_all(tmp_path):
    with ef.summary.Writer(tmp_path) as w:

        @ef.function
        def step(x, i):
            w.scalar("sum", x.sum(), i)
            return x

        def run(first):
            for i in range(first, 80, 4):
                step(ef.full((3,), float(i)), i)

        run(0)
        threads = [threading.Thread(target=run, args=(i,)) for i in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = sorted((step, float(array)) for _, step, array, _ in reading.values(tmp_path))
    assert found == [(i, 3 * i) for i in range(80)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_writer_in_a_forked_child_raises(tmp_path):
    with ef.summary.Writer(tmp_path) as w:
        child = os.fork()
        if not child:
            try:
                w.scalar("a", 1.0, 0)
            except SessionError:
                w.close()  # which leaves the parent's file alone
                os._exit(17)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        w.scalar("a", np.float32(2.0), 0)
    assert reading.only(tmp_path, "a")[1] == 2.0


def test_missing_package_error_has_the_pip_command(monkeypatch, tmp_path):
    from eagerflow import extras
    from eagerflow.summary import board

    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(extras.importlib, "import_module", missing)
    for cached in (board.module, board.message, board.pillow):
        cached.cache_clear()
    with pytest.raises(
        ef.errors.MissingExtraError, match=r"pip install 'eagerflow\[tensorboard\]'"
    ):
        ef.summary.Writer(tmp_path)
