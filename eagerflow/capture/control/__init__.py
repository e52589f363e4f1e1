"""Control flow over tensors: branches, loops and scans, eagerly and in captured code."""

from eagerflow.capture.control import customs as customs  # attaches itself to traces
from eagerflow.capture.control.branches import cond, switch
from eagerflow.capture.control.loops import fori_loop, while_loop
from eagerflow.capture.control.mapping import map
from eagerflow.capture.control.prints import print
from eagerflow.capture.control.scans import scan

__all__ = ["cond", "fori_loop", "map", "print", "scan", "switch", "while_loop"]
