"""Programs that cannot be captured: values that are not known, leaks, shapes, control flow.

Each row is a program that raises an error: its class, its message, and its advice. The
line that it has to name is the one marked ``# here``.
"""

import functools
import random

import numpy as np

import eagerflow as ef
from eagerflow.errors import (
    ArgumentError,
    CaptureError,
    DTypeError,
    GradientError,
    IndexRangeError,
    ShapeError,
)

WRONG = {}
X = ef.tensor([1.0, 2.0, 3.0])
kept = None
rows = []


def wrong(error, says, hint=None):
    """A program that raises ``error``, whose text has ``says``, the marked line, and ``hint``."""

    def added(program):
        WRONG[program.__name__.replace("_", " ")] = program, error, says, hint
        return program

    return added


def captured(error, says, hint, *args, **options):
    """A function that raises so when it is captured and called with ``args``."""

    def added(f):
        @wrong(error, says, hint)
        @functools.wraps(f)
        def program():
            ef.function(f, **options)(*args)

        return f

    return added


# Values that are not known while tracing ----------------------------------------------------------


@captured(CaptureError, "bool() needs a number that is not known", "ef.cond", X)
def if_on_a_value(x):
    if ef.sum(x) > 0:  # here
        return x
    return -x


@captured(CaptureError, "bool() needs a number", "ef.while_loop", X)
def while_on_a_value(x):
    while ef.sum(x) < 100:  # here
        x = x * 2
    return x


@captured(CaptureError, "bool() needs a number", "ef.where", X)
def and_between_values(x):
    return (x[0] > 0) and (x[1] > 0)  # here


@captured(
    CaptureError, "iteration", "ef.scan", X, input_signature=[ef.TensorSpec((None,), "float32")]
)
def for_over_a_tensor_of_unknown_length(x):
    total = 0.0
    for row in x:  # here
        total = total + row
    return total


@captured(CaptureError, "int() needs a number", "static", X)
def int_of_a_value(x):
    return x[: int(ef.sum(x))]  # here


@captured(CaptureError, "float() needs a number", "keep it a tensor", X)
def float_of_a_value(x):
    return x * float(ef.max(x))  # here


@captured(CaptureError, "numpy() needs a number", "ef ops in place of NumPy", X)
def numpy_of_a_value(x):
    return ef.tensor(np.sort(x.numpy()))  # here


@captured(CaptureError, "item() needs a number", "return the value", X)
def item_of_a_value(x):
    return x * ef.sum(x).item()  # here


@captured(CaptureError, "tolist() needs a number", "ef ops", X)
def tolist_of_a_value(x):
    return sum(x.tolist()) * x  # here


@captured(CaptureError, "needs a number", "ef.fori_loop", X, ef.tensor(3))
def range_of_a_value(x, n):
    for _ in range(n):  # here
        x = x * 2
    return x


@captured(CaptureError, "number", "static=('n',)", X, 3)
def range_of_a_number_argument(x, n):
    for _ in range(n):  # here
        x = x * 2
    return x


@captured(CaptureError, "number", "static=('n',)", X, 3)
def if_on_a_number_argument(x, n):
    if n > 2:  # here
        return x
    return x * n


@captured(CaptureError, "a format needs a number", "ef ops", X)
def a_value_in_a_format(x):
    return x, f"the sum is {ef.sum(x):.3f}"  # here


@captured(CaptureError, "np.asarray() needs a number", "ef ops in place of NumPy", X)
def numpy_that_computes(x):
    return np.linalg.norm(np.asarray(x)) * x  # here


@captured(CaptureError, "needs a number", "static", X, ef.tensor(3))
def a_size_from_a_value(x, n):
    return ef.reshape(x, (n, -1))  # here


@captured(CaptureError, "dlpack", "return the value", X)
def a_value_given_to_another_library(x):
    return np.from_dlpack(x).sum() * x  # here


@captured(CaptureError, "dlpack", "return the value", X)
def the_place_of_a_value_asked_for_by_another_library(x):
    return x * x.__dlpack_device__()[1]  # here


@captured(CaptureError, "value", "ef.", X)
def shapes_that_depend_on_values(x):
    return ef.nonzero(x > 1)  # here


@captured(CaptureError, "in", "ef.", X)
def membership_in_a_tensor(x):
    return x if 2.0 in x else -x  # here


# Leaks --------------------------------------------------------------------------------------------


@wrong(CaptureError, "as the global 'kept'", "ef.Variable")
def a_global_keeps_a_value():
    @ef.function
    def f(x):
        global kept
        kept = x * 2  # here
        return kept + 1

    try:
        f(X)
    finally:
        globals()["kept"] = None


@wrong(CaptureError, "as the attribute 'last' of a Model", "assign")
def an_attribute_keeps_a_value():
    class Model:
        @ef.function
        def call(self, x):
            self.last = ef.tanh(x)  # here
            return self.last * 2

    own = Model()
    own.call(X)


@wrong(CaptureError, "in a list", "return it")
def a_list_keeps_a_value():
    @ef.function
    def f(x):
        rows.append(x * 2)  # here
        return rows[-1]

    try:
        f(X)
    finally:
        rows.clear()


@wrong(CaptureError, "nonlocal", "return it")
def a_closure_keeps_a_value():
    held = None

    @ef.function
    def f(x):
        nonlocal held
        held = x + 1  # here
        return held

    f(X)
    return held


@wrong(CaptureError, "after its tracing has ended", "return it")
def a_value_is_used_after_tracing():
    box = []
    try:
        ef.capture.trace(lambda x: box.append(ef.sin(x)), X)
    except CaptureError:
        pass
    box[0] + 1.0  # here


# Shapes, dtypes, arguments ------------------------------------------------------------------------


@wrong(ShapeError, "matmul", "")
def the_third_layer_does_not_fit():
    weights = [ef.ones((3, 4)), ef.ones((4, 5)), ef.ones((6, 2))]

    @ef.function
    def model(x):
        for w in weights:
            x = ef.tanh(x @ w)  # here
        return x

    model(ef.ones((2, 3)))


@captured(ShapeError, "broadcast", None, X, ef.ones((2,)))
def shapes_that_do_not_broadcast(x, y):
    z = x * 2
    return z + y  # here


@captured(DTypeError, "bitwise", None, X)
def a_dtype_that_an_op_does_not_take(x):
    return ef.bitwise_and(x, 1)  # here


@wrong(ShapeError, "shape mismatch", None)
def a_shape_outside_of_the_signature():
    @ef.function(input_signature=[ef.TensorSpec((None, 3), "float32")])
    def f(x):
        return x * 2

    f(ef.ones((2, 3)))
    f(ef.ones((2, 4)))


@captured(
    *(DTypeError, "dtype mismatch", "astype('float32')", X.astype("float64")),
    input_signature=[ef.TensorSpec((None,), "float32")],
)
def a_dtype_outside_of_the_signature(x):
    return x * 2


@captured(
    *(ArgumentError, "2 arguments were given, and the signature has 1", None, X),
    input_signature=[ef.TensorSpec((3,), "float32")],
)
def more_arguments_than_the_signature_has(x, y=1.0):
    return x * y


@wrong(ArgumentError, "there is no argument 'm'", None)
def a_static_name_that_is_no_argument():
    ef.function(lambda x, n: x * n, static=("m",))


@wrong(ArgumentError, "'quick' is not a choice", None)
def an_unknown_kind_of_numerics():
    ef.function(lambda x: x, numerics="quick")


@wrong(ArgumentError, "3 cannot be captured", None)
def no_function_at_all():
    ef.function(3)


@wrong(TypeError, "missing a required argument: 'y'", None)
def an_argument_is_missing():
    ef.function(lambda x, y: x + y)(X)


@wrong(ArgumentError, "1 arguments for 2 inputs", None)
def a_graph_with_too_few_arguments():
    ef.capture.trace(lambda x, y: x + y, X, X)(X)


# Control flow -------------------------------------------------------------------------------------


@captured(DTypeError, "while_loop", "astype", X)
def the_dtype_changes_in_a_loop(x):
    return ef.while_loop(lambda i: i < 3, lambda i: i * 1.5, ef.tensor(0))  # here


@captured(ShapeError, "scan", None, X)
def the_shape_changes_in_a_scan(xs):
    step = lambda c, x: (ef.concat([c, c]), x)  # here
    return ef.scan(step, xs[:1], xs)


@captured(CaptureError, "cond", None, X)
def branches_give_other_structures(x):
    return ef.cond(ef.sum(x) > 0, lambda: (x, x), lambda: x)  # here


@captured(ShapeError, "cond", None, X)
def branches_give_other_shapes(x):
    return ef.cond(ef.sum(x) > 0, lambda: x, lambda: x[:2])  # here


@captured(CaptureError, "bool() needs a number", "ef.cond", X)
def if_in_the_body_of_a_loop(x):
    def body(i, c):
        if c[0] > 0:  # here
            return c * 2
        return c

    return ef.fori_loop(0, 3, body, x)


# State and gradients ------------------------------------------------------------------------------


@captured(CaptureError, "creates persistent state at every call", "once", X)
def a_variable_in_each_call(x):
    w = ef.Variable(1.0, name="w")  # here
    return x * w


@captured(CaptureError, "Variable", "values that are known", X)
def a_variable_from_a_value(x):
    return ef.Variable(x * 2).value  # here


@captured(CaptureError, "random", "ef.random", X)
def random_numbers_of_python(x):
    return x * random.random()  # here


@captured(CaptureError, "random", "ef.random", X)
def random_numbers_of_numpy(x):
    return x * np.random.normal(size=3).astype("float32")  # here


@captured(GradientError, "y: the target does not depend", "unconnected='zero'", X, X)
def a_gradient_of_what_is_not_connected(x, y):
    with ef.GradientTape() as tape:
        tape.watch([x, y])
        z = ef.sum(x)
    return tape.gradient(z, y)  # here


@captured(GradientError, "int64 values", "astype('float32')", ef.tensor([1, 2]))
def a_gradient_by_integers(n):
    with ef.GradientTape() as tape:
        tape.watch(n)  # here
        z = ef.sum(n * 2.0)
    return tape.gradient(z, n)


# Arguments of a kernel ----------------------------------------------------------------------------


@captured(IndexRangeError, "7", None, X, ef.tensor([0, 7]), numerics="exact")
def advanced_indexing_out_of_range(x, i):
    return x[i] * 2  # here


@captured(
    *(ShapeError, "float32(n,) where n=3", None, X, ef.ones((2,))),
    input_signature=[ef.TensorSpec(("n",), "float32")] * 2,
)
def sizes_that_do_not_fit(x, y):
    return x + y
