"""Globals, variables of enclosing functions, defaults."""

import enum
import functools
import math

import numpy as np

import eagerflow as ef
from tests.capture.guards.changes import ignore, module, notice, setting


@notice
def a_global_number():
    return setting(0.1, 0.2)


@notice
def a_global_string():
    return setting("tanh", "exp", "return x if VALUE == 'exp' else -x")


@notice
def a_global_flag():
    return setting(True, False, "return x if VALUE else -x")


@notice
def a_global_none():
    return setting(None, 3.0, "return x if VALUE is None else VALUE")


@notice
def a_global_tuple():
    return setting((1, 2), (1, 3), "return x * VALUE[1]")


@notice
def an_integer_becomes_a_float():
    return setting(2, 2.0, "return repr(VALUE)")


@notice
def a_flag_becomes_a_number():
    return setting(True, 1, "return repr(VALUE)")


@notice
def zero_becomes_negative_zero():
    return setting(
        0.0, -0.0, "return math.copysign(x, VALUE)".replace("math", "__import__('math')")
    )


@notice
def a_numpy_scalar():
    return setting(np.float32(0.1), np.float32(0.2))


@notice
def a_numpy_scalar_of_another_type():
    return setting(np.float32(0.5), np.float64(0.5), "return str(VALUE.dtype)")


@notice
def a_dtype():
    return setting(np.dtype("float32"), np.dtype("float64"), "return np.zeros(1, VALUE).nbytes")


@notice
def a_dtype_of_eagerflow():
    return setting(ef.float32, ef.int32, "return str(ef.zeros((2,), VALUE).dtype)")


@notice
def a_global_enum():
    mode = enum.Enum("Mode", "SLOW FAST")
    return setting(mode.SLOW, mode.FAST, "return VALUE.name")


@notice
def a_global_is_deleted():
    made = module(
        "VALUE = 2\ndef f(x):\n    try:\n        return VALUE\n    except NameError:\n"
        "        return x"
    )
    return made.f, lambda: delattr(made, "VALUE")


@notice
def a_global_hides_a_builtin():
    made = module("def f(x):\n    return max(x, 1)")
    return made.f, lambda: setattr(made, "max", min)


@notice
def a_global_of_another_module():
    config = module("rate = 0.1")
    made = module("def f(x): return x * config.rate", config=config)
    return made.f, lambda: setattr(config, "rate", 0.2)


@notice
def a_module_is_replaced():
    made = module("def f(x): return x * config.rate", config=module("rate = 0.1"))
    return made.f, lambda: setattr(made, "config", module("rate = 0.2"))


@notice
def a_name_imported_in_the_function():
    import colorsys

    def f(x):
        from colorsys import ONE_THIRD

        return ONE_THIRD

    before = colorsys.ONE_THIRD

    def change():
        colorsys.ONE_THIRD = 0.5

    change.undo = lambda: setattr(colorsys, "ONE_THIRD", before)
    return f, change


@notice
def a_function_of_the_standard_library_is_replaced():
    def f(x):
        return math.floor(x)

    before = math.floor

    def change():
        math.floor = math.ceil

    change.undo = lambda: setattr(math, "floor", before)
    return f, change


@notice
def a_global_through_globals():
    made = module("VALUE = 1\ndef f(x): return x * globals()['VALUE']")
    return made.f, lambda: setattr(made, "VALUE", 2)


@notice
def a_global_in_an_evaluated_text():
    made = module("VALUE = 1\ndef f(x): return eval('x * VALUE')")
    return made.f, lambda: setattr(made, "VALUE", 2)


@notice
def a_global_in_executed_code():
    made = module(
        "VALUE = 1\ndef f(x):\n    names = {'x': x}\n    exec('y = x * VALUE', globals(),"
        " names)\n    return names['y']"
    )
    return made.f, lambda: setattr(made, "VALUE", 2)


@notice
def a_module_that_makes_up_names():
    config = module("def __getattr__(name):\n    return 1")
    made = module("def f(x): return x * config.rate", config=config)
    return made.f, lambda: setattr(config, "rate", 2)


@ignore
def a_global_that_is_not_read():
    made = module("A = 1\nB = 2\ndef f(x): return x * A")
    return made.f, lambda: setattr(made, "B", 3)


@ignore
def a_global_of_a_branch_not_taken():
    made = module("A = 1\nB = 2\ndef f(x):\n    if A == 1:\n        return x\n    return x * B")
    return made.f, lambda: setattr(made, "B", 3)


@ignore
def a_global_gets_an_equal_value():
    return setting(0.5, float("0.5"))


@ignore
def nan_stays_nan():
    return setting(float("nan"), float("nan"))


@ignore
def a_global_gets_an_equal_tuple():
    return setting((1, "a"), (int("1"), "a"), "return x * VALUE[0]")


@notice
def a_closure_number():
    rate = 0.1

    def f(x):
        return x * rate

    def change():
        nonlocal rate
        rate = 0.2

    return f, change


@notice
def a_closure_two_levels_up():
    rate = 0.1

    def middle():
        def f(x):
            def inner(y):
                return y * rate

            return inner(x)

        return f

    def change():
        nonlocal rate
        rate = 0.2

    return middle(), change


@notice
def a_closure_of_a_comprehension():
    rate = 0.1

    def f(x):
        return [x * rate for _ in range(2)]

    def change():
        nonlocal rate
        rate = 0.2

    return f, change


@notice
def a_closure_of_a_helper():
    def scaling(rate):
        def scale(x):
            return x * rate

        def change():
            nonlocal rate
            rate = 0.2

        return scale, change

    scale, change = scaling(0.1)
    return (lambda x: scale(x)), change


@ignore
def the_closure_of_another_function_from_the_same_maker():
    def scaling(rate):
        def scale(x):
            return x * rate

        def change():
            nonlocal rate
            rate = 0.5

        return scale, change

    scale, _ = scaling(0.1)
    _, change = scaling(0.2)
    return (lambda x: scale(x)), change


@notice
def a_closure_behind_a_decorator():
    rate = 0.1

    def twice(g):
        @functools.wraps(g)
        def wrapped(x):
            return g(g(x))

        return wrapped

    @twice
    def f(x):
        return x * rate

    def change():
        nonlocal rate
        rate = 0.2

    return f, change


@notice
def a_default():
    def f(x, rate=0.1):
        return x * rate

    def change():
        f.__defaults__ = (0.2,)

    return f, change


@notice
def a_keyword_default():
    def f(x, *, rate=0.1):
        return x * rate

    def change():
        f.__kwdefaults__["rate"] = 0.2

    return f, change


@notice
def a_mutable_default():
    def f(x, rates=[0.1]):  # noqa: B006 - the subject of the row
        return x * rates[0]

    def change():
        f.__defaults__[0][0] = 0.2

    return f, change


@notice
def a_default_of_a_helper():
    def helper(x, rate=0.1):
        return x * rate

    def change():
        helper.__defaults__ = (0.2,)

    return (lambda x: helper(x)), change


@notice
def keywords_of_a_partial():
    helper = functools.partial(lambda x, rate: x * rate, rate=0.1)

    def change():
        helper.keywords["rate"] = 0.2

    return (lambda x: helper(x)), change
