"""Small regions, one for each number, with NumPy's results; for runs in processes."""

import gc
import threading

import numpy as np

from eagerflow.codegen import kernel
from eagerflow.codegen.builder import Builder
from eagerflow.codegen.llvm import launch

X = np.linspace(-3, 3, 40 * 33, dtype="float32").reshape(40, 33)
LARGE = np.linspace(-3, 3, 3_000 * 101, dtype="float32").reshape(3_000, 101)


def region(number):
    """A region that no other number has: the sum of each row, or each element."""
    b = Builder(f"many{number}", "m n")
    x = b.input("x", "float32", "m n")
    y = b.fma(x, x, float(number))
    b.output("y", b.sum(y, "n") if number % 3 == 0 else b.maximum(y, x))
    return b.region()


def check(number, x=X, found=None):
    """Compute the region of a number and compare; raises AssertionError."""
    (y,) = kernel.run(found or region(number), (x,))
    wide = x.astype("float64")
    expected = wide * wide + number
    expected = expected.sum(1) if number % 3 == 0 else np.maximum(expected, wide)
    np.testing.assert_allclose(y, expected, 1e-5)


def together(function, count):
    """Call ``function(0)`` and so on in threads that start at once; the first error is raised."""
    gate, errors = threading.Barrier(count), []

    def work(number):
        gate.wait(30)
        try:
            function(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


def growth(warm, rounds, leak=0):
    """The share by which memory grows while regions are compiled and dropped, after some.

    ``leak`` bytes are planted in each round.
    """
    kept = []
    for number in range(warm + rounds):
        if number == warm:
            gc.collect()
            before = resident()
        check(number, found=region(number))
        kept.append(b"x" * leak)
        launch.clear()
    gc.collect()
    return resident() / before - 1
