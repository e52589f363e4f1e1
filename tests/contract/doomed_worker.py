"""Ends as a broken op would end the fuzz worker: killed, hanging, or out of memory."""

import faulthandler
import os
import resource
import signal
import sys
import time

import numpy as np

from tests.contract.fuzz_worker import MEMORY


def main():
    what = sys.argv[-1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.dump_traceback_later(0.2, exit=True)
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "memory":
        np.ones(MEMORY)
    time.sleep(30)


if __name__ == "__main__":
    main()
