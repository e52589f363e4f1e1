"""Changes of a program's surroundings, and those that a function makes itself."""

from tests.capture.guards.changes import table

table(
    """
== an environment variable @ os.environ[name]
== an environment variable by getenv @ os.getenv(name)
== an environment variable by get @ os.environ.get(name, '0')
""",
    setup="name = 'EAGERFLOW_TEST_LEDGER'; os.environ[name] = '1'",
    change="os.environ[name] = '2'",
    undo="os.environ.pop(name)",
)
table(
    """
== a context variable @ x * m.get() @ m = contextvars.ContextVar('m', default=1) @ m.set(2)
== a counter of the function
? own = Thing(count=0)
own.count += 1
return x * own.count
-> pass
== a cached helper
! RATE = 1
! helper = functools.lru_cache(lambda x: x * RATE)
helper(x)
-> RATE = 2; helper.cache_clear()
"""
)
