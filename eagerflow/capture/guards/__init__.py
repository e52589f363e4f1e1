"""What a trace relied on in Python: watched while it runs, kept in a ledger, checked at each call.

While a function is traced, from the interpreter to the ledger:

- ``events``: the interpreter tells when functions begin, come to a line and return.
- ``bytecode``, ``line_reads``: what the instructions of a function read, line by line.
- ``monitor``: what is known of one run; for each line an evaluation.
- ``evaluation``, ``calls``: the values that a line reads, and what is done with them.
- ``recording``: the guards that follow, or a refusal.
- ``ledger``: guards, and whether they still hold.

Facts about Python that these share:

- ``categories``: what kind of thing a value or a class is.
- ``callables``: what functions in C, the standard library and NumPy read besides their arguments.
- ``effects``: functions that write, log or start threads.
- ``lookup``: attributes and functions, and whose code a file is.
- ``equality``, ``snapshot``: when two values are the same, and what containers held.
"""
