"""Ends as a broken op would end the fuzz worker: killed, hanging, or out of memory."""

import os
import signal
import sys
import time

import numpy as np

from tests.contract.fuzz_worker import MEMORY, begin


def main():
    what = sys.argv[-1]
    begin()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "memory":
        np.ones(MEMORY)
    time.sleep(30)


if __name__ == "__main__":
    main()
