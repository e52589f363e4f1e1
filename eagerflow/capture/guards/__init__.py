"""Python state that a trace relied on: watched while it runs, and checked at each call.

While a function is traced, from the interpreter to the ledger:

- ``events``: interpreter events for starts, lines and returns of functions.
- ``bytecode``, ``line_reads``: the reads of a function's instructions, line by line.
- ``monitor``: the state of one run, with an evaluation for each line.
- ``evaluation``, ``calls``: the values that a line reads, and their uses.
- ``recording``: the resulting guards, or an error.
- ``ledger``: guards, and whether they still hold.

Facts about Python shared by these modules:

- ``categories``: categories of values and classes.
- ``callables``: state read by functions in C, the standard library and NumPy.
- ``effects``: functions that write, log or start threads.
- ``lookup``: attributes and functions, and the origin of source files.
- ``equality``, ``snapshot``: equality of values, and past contents of containers.
"""
