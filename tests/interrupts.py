"""Exceptions raised at every bytecode of a call, as Ctrl-C or a signal handler may raise them."""

import sys
import threading
from pathlib import Path

import eagerflow

PACKAGE = str(Path(eagerflow.__file__).parent)


class Interrupted(BaseException):
    """What is raised, so that nothing takes it for an error of its own."""


class _Raiser:
    """Counts the bytecodes of eagerflow's functions, and raises at one of them, once."""

    def __init__(self, at):
        self.left = at
        self.place = None

    def count(self, code, offset):
        self.left -= 1
        if self.left == 0:
            self.place = code.co_filename, code.co_qualname, offset
            raise Interrupted(self.place)


def _by_trace(raiser, call):
    """Python 3.11: a trace function hears of every bytecode."""

    def trace(frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            raiser.count(code, frame.f_lasti)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)


def _by_monitoring(raiser, call):
    monitoring, tool = sys.monitoring, sys.monitoring.DEBUGGER_ID
    caller = threading.get_ident()  # events come from all threads
    events = monitoring.events.INSTRUCTION

    def instruction(code, offset):
        if not code.co_filename.startswith(PACKAGE):
            return monitoring.DISABLE
        if threading.get_ident() == caller:
            raiser.count(code, offset)
        return None

    monitoring.use_tool_id(tool, "interrupts")
    monitoring.register_callback(tool, events, instruction)
    monitoring.restart_events()
    monitoring.set_events(tool, events)
    try:
        return call()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


def raised_at(call, at):
    """Call, and raise at that bytecode: where it was, or None where the call ended before.

    What the call itself raises in answer, such as a note added to the exception, is its own.
    """
    raiser = _Raiser(at)
    run = _by_monitoring if hasattr(sys, "monitoring") else _by_trace
    try:
        run(raiser, call)
    except Interrupted:
        pass
    return raiser.place


def at_every_bytecode(call, check, step=1, most=100_000):
    """Make a call again and again, raise at its next bytecode each time, and check what is left.

    ``check(place)`` raises where something is wrong. Gives how many bytecodes there were.
    """
    at = 1
    while at < most:
        place = raised_at(call, at)
        if place is None:
            return at - 1
        try:
            check()
        except Exception as error:
            error.add_note(f"after an exception at bytecode {at}: {place}")
            raise
        at += step
    return at
