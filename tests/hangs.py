"""Ends a process in which a test hangs, with the tracebacks of all its threads.

Pytest's own watch begins anew with each test, and ends with it; for that it waits for a thread,
longer than most tests take. This one begins anew when some seconds are gone.
"""

import faulthandler
import os
import time

LIMIT = 300  # seconds that a test may take
LATE = 10  # seconds by which it may be ended before


class Watch:
    """A timer that ends the process, started for many tests at once."""

    def __init__(self):
        self.errors = os.dup(2)  # where they go while a test's own output is kept
        self.end()

    def begin(self, limited):
        """Begin with a test, which has the time or, where it is not limited, any."""
        now = time.monotonic()
        if not limited:
            self.end()
        elif now - self.begun > LATE:
            faulthandler.dump_traceback_later(LIMIT, exit=True, file=self.errors)
            self.begun = now

    def end(self):
        """Watch nothing until the next test."""
        faulthandler.cancel_dump_traceback_later()
        self.begun = -LIMIT
