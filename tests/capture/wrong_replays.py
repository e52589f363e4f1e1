"""Programs with state, gradients, replays and sessions that fail, as in ``wrong_programs``."""

import eagerflow as ef
from eagerflow.errors import (
    CaptureError,
    DTypeError,
    EagerflowError,
    GradientError,
    IndexRangeError,
    SessionError,
    ShapeError,
)
from tests.capture.wrong_programs import X, wrong

# State --------------------------------------------------------------------------------------------


@wrong(CaptureError, "the function itself changes values that it reads", "ef.Variable")
def a_counter_in_python():
    class Model:
        count = 0

        @ef.function
        def call(self, x):
            self.count += 1  # here
            return x * self.count

    own = Model()
    own.call(X)


@wrong(ShapeError, "the value has another shape", None)
def a_variable_is_assigned_another_shape():
    w = ef.Variable([1.0, 2.0])

    @ef.function
    def f(x):
        w.assign(x)  # here
        return x

    f(X)


@wrong(CaptureError, "generator", None)
def a_generator_that_is_used_up():
    values = (i * 1.0 for i in range(100))

    @ef.function
    def f(x):
        return x * next(values)  # here

    f(X)


@wrong(CaptureError, "cannot be relied on", None)
def an_object_that_cannot_be_compared():
    lines = iter([1.0, 2.0])

    @ef.function
    def f(x):
        for line in lines:  # here
            x = x * line
        return x

    f(X)


# Gradients ----------------------------------------------------------------------------------------


@wrong(GradientError, "y: the target does not depend", "unconnected='zero'")
def a_gradient_of_a_graph_that_is_not_connected():
    ef.capture.trace(lambda x, y: {"z": ef.sum(x), "y": y * 2}, X, X).gradient("z", "y")


@wrong(SessionError, "there is no value 'los'", "loss")
def a_gradient_of_an_unknown_name():
    ef.capture.trace(lambda x: {"loss": ef.sum(x)}, X).gradient("los", "x")


# Replay -------------------------------------------------------------------------------------------


@wrong(IndexRangeError, "out of", None)
def an_index_out_of_range_at_replay():
    @ef.function
    def f(x, i):
        y = ef.sin(x)
        return ef.take(y, i) * 2  # here

    f(X, ef.tensor([0, 2]))
    f(X, ef.tensor([0, 7]))


@wrong(IndexRangeError, "class", None)
def a_class_out_of_range_at_replay():
    @ef.function
    def f(x, labels):
        return ef.sparse_softmax_cross_entropy(x, labels) * 2  # here

    f(ef.ones((2, 3)), ef.tensor([0, 1]))
    f(ef.ones((2, 3)), ef.tensor([0, 5]))


@wrong(EagerflowError, "a matrix is singular", "ef.linalg.pinv")
def a_singular_matrix_at_replay():
    @ef.function
    def f(a, b):
        y = a * 1.0
        return ef.linalg.solve(y, b)  # here

    f(ef.eye(2), ef.ones((2,)))
    f(ef.zeros((2, 2)), ef.ones((2,)))


# Sessions -----------------------------------------------------------------------------------------


def session():
    w = ef.Variable(2.0, name="w")
    return ef.capture.Session(ef.capture.trace(lambda x: {"y": x * w, "z": x + 1.0}, X))


@wrong(SessionError, "there is no value named 'yy'", None)
def an_unknown_fetch():
    session().run("yy", {"x": X})


@wrong(SessionError, "the input 'x' is needed and not fed", "feeds={'x': ...}")
def a_feed_is_missing():
    session().run("y")


@wrong(SessionError, "there is no value named 'q'", None)
def an_unknown_feed():
    session().run("y", {"x": X, "q": X})


@wrong(ShapeError, "shape mismatch", None)
def a_feed_of_another_shape():
    session().run("y", {"x": ef.ones((4,))})


@wrong(DTypeError, "dtype mismatch", "astype")
def a_feed_of_another_dtype():
    session().run("y", {"x": ef.ones((3,), dtype="float64")})


@wrong(SessionError, "a name in several graphs", None)
def an_ambiguous_fetch():
    own = session()
    own.extend(ef.capture.trace(lambda v: {"y": v * 2}, X))
    own.run("y", {"x": X, "v": X})


@wrong(SessionError, "the session is closed", None)
def a_closed_session():
    own = session()
    own.close()
    own.run("y", {"x": X})


@wrong(SessionError, "there is a different Variable 'w' already", "another name")
def two_variables_of_one_name():
    own = session()
    w = ef.Variable([1.0, 2.0], name="w")
    own.extend(ef.capture.trace(lambda v: v * w, ef.ones((2,))))
