"""The collector of a process that has begun its work."""

import subprocess
import sys

APART = """
import gc
from eagerflow.runtime import collector

class Held: pass

begun = [[] for _ in range(1000)]
garbage = Held()
garbage.itself = garbage
del garbage
collector.set_apart()
assert gc.get_freeze_count() > 1000
assert not any(isinstance(x, Held) for x in gc.get_objects())  # collected, not kept
walked = {id(x) for x in gc.get_objects()}
assert not walked & set(map(id, begun))
later = Held()
later.itself = later
del later
assert gc.collect() >= 1  # what came later is collected as before
"""


def test_existing_objects_are_frozen_for_the_collector():
    subprocess.run([sys.executable, "-c", APART], check=True)
