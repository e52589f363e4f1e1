"""Changes of a program's surroundings, and those that a function makes itself."""

import contextvars
import functools
import os

from tests.capture.guards.changes import KEPT, Thing, module, notice


def environment(read):
    name = "EAGERFLOW_TEST_LEDGER"
    os.environ[name] = "1"

    def change():
        os.environ[name] = "2"

    change.undo = lambda: os.environ.pop(name)
    return (lambda x: read(name, x)), change


@notice
def an_environment_variable():
    return environment(lambda name, x: os.environ[name])


@notice
def an_environment_variable_by_getenv():
    return environment(lambda name, x: os.getenv(name))


@notice
def an_environment_variable_by_get():
    return environment(lambda name, x: os.environ.get(name, "0"))


@notice
def a_context_variable():
    mode = contextvars.ContextVar("mode", default=1)
    KEPT.append(mode)
    return (lambda x: x * mode.get()), lambda: mode.set(2)


@notice
def a_counter_of_the_function():
    own = Thing(count=0)

    def f(x):
        own.count += 1
        return x * own.count

    return f, lambda: None


@notice
def a_cached_helper():
    made = module("RATE = 1\ndef f(x): return helper(x)")
    made.helper = functools.lru_cache(module("RATE = 1\ndef h(x): return x * RATE").h)
    inner = KEPT[-1]

    def change():
        inner.RATE = 2
        made.helper.cache_clear()

    return made.f, change
