"""Machine code in memory: what loads it keeps what belongs together in one place."""

import subprocess
import sys

import pytest

from eagerflow.runtime import machine_code

pytestmark = pytest.mark.skipif(not machine_code.available(), reason="there is no compiler")

FAR_APART = """
import ctypes, sys
import numpy as np
from eagerflow.runtime import machine_code

GIB, HOLES = 1 << 30, 40
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def reserve(size):
    return libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, anonymous, without memory behind it


content = machine_code.compile_object('''
define void @f(ptr %x) {
  %v = load <4 x float>, ptr %x, align 4
  %w = fmul <4 x float> %v, <float 2.0, float 3.0, float 5.0, float 7.0>
  store <4 x float> %w, ptr %x, align 4
  ret void
}
''')
machine_code.link(content, "f")
whole = reserve(HOLES * 4 * GIB)
if whole in (None, ctypes.c_void_p(-1).value):
    sys.exit(77)
size = 1 << 26  # the gaps above are used up
while size >= 4096:
    while (place := reserve(size)) > whole:
        pass
    libc.munmap(place, size)
    size //= 2
for i in range(HOLES):
    libc.munmap(whole + (4 * i + 2) * GIB, 4096)
held = []
for i in range(8):
    held.append(machine_code.link(content, "f"))
    x = np.ones(4, np.float32)
    held[-1].function("f", ctypes.c_void_p)(x.ctypes.data)
    assert x.tolist() == [2, 3, 5, 7]
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes addresses as Linux gives them")
def test_code_and_constants_are_loaded_together():
    """Also where free memory lies in places that are far from each other."""
    ran = subprocess.run([sys.executable, "-c", FAR_APART], capture_output=True, text=True)
    if ran.returncode == 77:
        pytest.skip("the system does not reserve so many addresses")
    assert ran.stdout == "done\n", ran.stderr[-500:]


AHEAD = """
import os, sys, time
import eagerflow as ef
from eagerflow.runtime import machine_code, threads

def is_there():
    with open("/proc/self/maps") as maps:
        return "libllvmlite" in maps.read()

assert not is_there()
threads.set_thread_count(2)
machine_code.load_ahead()
if sys.argv[1] == "fork":
    child = os.fork()
    if not child:
        f = ef.function(lambda x: ef.tanh(x) * 2.0 + x)
        os._exit(0 if f(ef.ones(5000)).shape == (5000,) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
end = time.monotonic() + 20
while not is_there() and time.monotonic() < end:
    time.sleep(0.001)
assert is_there()
assert "llvmlite.binding" not in sys.modules
"""


@pytest.mark.sampled(2)
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize("way", ["plain", "fork"])
def test_the_library_is_loaded_ahead(way):
    subprocess.run([sys.executable, "-c", AHEAD, way], check=True, timeout=60)
