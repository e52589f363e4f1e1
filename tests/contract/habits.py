"""Operations that users repeat, each as a function of the number of earlier repetitions.

A habit leaves nothing behind: it drops all its objects. Most of them make new functions, models and
tensors each time, since caches may keep data of live objects, but not of dead ones.
"""

import copy
import io
import pickle
from contextlib import redirect_stdout, suppress

import numpy as np

import eagerflow as ef

nn = ef.nn
SIZE = 2_000  # elements: a tensor that is kept is noticed, wherever it is kept
HABITS = {}


def habit(f):
    """Add a function to the table, by its name in words."""
    HABITS[f.__name__.replace("_", " ")] = f
    return f


def new(*shape):
    """A tensor of its own."""
    return ef.tensor(np.linspace(0.1, 1, int(np.prod(shape)), dtype="float32").reshape(shape))


LASTING = {}


def lasting(make):
    """State kept between repetitions, made the first time; identified by its line."""
    key = make.__code__
    if key not in LASTING:
        LASTING[key] = make()
    return LASTING[key]


X = new(SIZE)
ROWS = new(8, 6)
LABELS = np.arange(8) % 3


# Functions ---------------------------------------------------------------------------------------


@habit
def a_captured_function_is_made_called_and_dropped(i):
    held = new(SIZE)
    f = ef.function(lambda x: ef.tanh(x * held) + i)
    f(X)
    f(X)


@habit
def a_captured_function_is_traced_for_each_new_object(i):
    f = lasting(lambda: ef.function(lambda x, k: x * k.factor, max_graphs=4))

    class Settings:
        factor = i + 0.5

    f(X, Settings())


@habit
def a_captured_function_is_traced_for_each_new_number(i):
    f = lasting(lambda: ef.function(lambda x, k: x[: k % 99], static=("k",), max_graphs=4))
    f(X, i)


@habit
def a_captured_function_is_traced_for_each_new_shape(i):
    f = lasting(lambda: ef.function(lambda x: ef.sum(x) * 2, max_graphs=4))
    f(ef.ones((i + 1, 2)))


@habit
def a_captured_function_gets_new_callables(i):
    f = lasting(lambda: ef.function(lambda g, x: g(x) + 1, max_graphs=4))
    f(lambda x: x * 2.0, X)


@habit
def a_method_of_a_new_object_is_captured(i):
    class Model:
        def __init__(self):
            self.w = ef.Variable(new(SIZE))

        @ef.function
        def step(self, x):
            self.w.assign_add(x)
            return self.w * x

    Model().step(X)


class Kept:
    def __init__(self):
        self.w = ef.Variable(new(SIZE))

    @ef.function
    def step(self, x):
        self.w.assign_add(x)
        return self.w * x


@habit
def a_captured_method_is_called_on_a_new_object(i):
    Kept().step(X)


@habit
def a_step_with_a_new_variable_and_optimizer_is_captured(i):
    w, opt = ef.Variable(new(SIZE)), nn.optimizers.Adam(1e-3)

    @ef.function
    def step(x):
        with ef.GradientTape() as tape:
            loss = ef.sum(w * w * x)
        opt.apply(tape.gradient(loss, [w]), [w])
        return loss

    step(X)
    step(X)


@habit
def a_captured_function_raises(i):
    f = lasting(lambda: ef.function(lambda x: x @ ef.ones((3, 3))))
    try:
        f(new(SIZE))
    except ef.errors.ShapeError as error:
        str(error)


@habit
def a_new_captured_function_raises_an_error_of_its_own(i):
    def body(x):
        raise KeyError(f"number {i}")

    with suppress(KeyError):
        ef.function(body)(new(SIZE))


@habit
def a_kernel_of_a_captured_function_raises(i):
    f = lasting(lambda: ef.function(lambda x, k: ef.take(x, k, axis=0)))
    with suppress(ef.errors.IndexRangeError):
        f(new(SIZE), np.array([SIZE + i]))


@habit
def names_and_texts_are_new_each_time(i):
    v = ef.Variable(new(SIZE), name=f"variable {i}")
    with ef.capture.scope(f"scope{i}"):
        f = ef.function(lambda x: {f"result{i}": x * v})
        f(X)
    with suppress(ef.errors.EagerflowError):
        ef.sum(X, axis=i + 5)
    with suppress(AttributeError):
        getattr(ef, f"unknown_{i}")
    with suppress(AttributeError):
        getattr(X, f"unknown_{i}")
    with suppress(ef.errors.EagerflowError, TypeError):
        ef.zeros(3, dtype=f"float{i}")
    with suppress(ef.errors.EagerflowError):
        ef.device(f"gpu:{i}")
    with suppress(ef.errors.EagerflowError, ValueError):
        ef.einsum(f"a{i},b->c", X, X)


@habit
def a_captured_function_is_explained_and_verified(i):
    w = ef.Variable(new(6))
    f = ef.function(lambda x: ef.sum(x * w, axis=1) + i)
    f(ROWS)
    f.explain()
    f.ledger()
    str(f.graphs[0])
    ef.capture.verify(f, (ROWS,), modes=("eager", "captured"))


# Graphs ------------------------------------------------------------------------------------------


def traced(i):
    w = ef.Variable(new(6), name="w")
    return ef.capture.trace(
        lambda x: {"y": ef.tanh(x * w) + i, "n": w.assign_add(ef.ones(6))},
        ef.TensorSpec(("rows", 6), "float32"),
    )


GRAPH = traced(0)


@habit
def a_new_session_runs_one_graph(i):
    with ef.capture.Session(GRAPH) as session:
        session.run("y", {"x": ROWS})


@habit
def a_session_runs_a_new_graph(i):
    session = ef.capture.Session(traced(i))
    session.run(["y", "n"], {"x": ROWS})


@habit
def a_session_is_asked_for_other_fetches(i):
    session = lasting(lambda: ef.capture.Session(GRAPH))
    nodes = GRAPH.nodes
    session.run([nodes[i % len(nodes)].name], {"x": ROWS})


@habit
def a_session_runs_over_devices(i):
    with ef.capture.Session(traced(i), devices=["cpu:0", "cpu:1"]) as session:
        session.run("y", {"x": ROWS})


@habit
def a_graph_is_partitioned_drawn_and_changed(i):
    graph = traced(i)
    plan = ef.capture.partition(graph, ["cpu:0", "cpu:1"])
    str(plan), str(graph), graph.to_dot()
    graph.check()
    graph(ROWS)


@habit
def gradients_of_a_graph(i):
    graph = ef.capture.trace(
        lambda x: {"y": ef.sum(ef.tanh(x) * i)}, ef.TensorSpec((6,), "float32")
    )
    graph.gradient(graph.outputs, graph.inputs)(X[:6])


@habit
def a_graph_is_saved_and_loaded(i, folder):
    traced(i).save(folder / "graph.ef")
    ef.capture.load(folder / "graph.ef")(ROWS)


@habit
def a_graph_is_exported_and_imported(i, folder):
    graph = ef.capture.trace(lambda x: {"y": ef.tanh(x) * i}, ef.TensorSpec((8, 6), "float32"))
    ef.capture.export_onnx(graph, folder / "m.onnx")
    ef.capture.import_onnx(folder / "m.onnx")(ROWS)
    ef.capture.export_python(graph, folder / "m.py")


# Models ------------------------------------------------------------------------------------------


def small_model(*more):
    return nn.Sequential([nn.Dense(4, activation="tanh"), *more, nn.Dense(3)])


def fitted(i, **options):
    model = small_model(nn.Dropout(0.1))
    model.compile("adam", nn.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"])
    model.fit(ROWS, LABELS, batch_size=4, epochs=2, verbose=0, **options)
    return model


@habit
def a_model_is_compiled_fitted_and_evaluated(i):
    model = fitted(i)
    model.predict(ROWS, verbose=0)
    model.evaluate(ROWS, LABELS, verbose=0)
    model.train_on_batch(ROWS, LABELS)


@habit
def one_model_is_fitted_again(i):
    model = lasting(lambda: fitted(0))
    model.fit(ROWS, LABELS, epochs=1, verbose=0)
    model.predict(ROWS, verbose=0)


@habit
def one_model_is_compiled_again(i):
    model = lasting(lambda: fitted(0))
    model.compile("sgd", "mse")
    model.fit(ROWS, ef.zeros((8, 3)), epochs=1, verbose=0)


@habit
def a_model_is_fitted_with_callbacks(i, folder):
    c = nn.callbacks
    fitted(
        i,
        validation_split=0.25,
        callbacks=[
            c.EarlyStopping(patience=1, restore_best_weights=True),
            c.ReduceLROnPlateau(),
            c.CSVLogger(folder / "log.csv"),
            c.ModelCheckpoint(folder / "m.ef"),
            c.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
            c.LambdaCallback(on_epoch_end=lambda *_: None),
            c.BackupAndRestore(folder / "backup"),
        ],
    )


@habit
def a_functional_model_is_made_and_summarized(i):
    x = nn.Input((6,))
    y = nn.Dense(3)(nn.LayerNormalization()(nn.Dense(4, activation="gelu")(x)))
    model = nn.Model(x, y)
    with redirect_stdout(io.StringIO()):
        model.summary()
    model(ROWS)


@habit
def a_model_is_saved_and_loaded(i, folder):
    model = fitted(i)
    model.save(folder / "model.ef")
    nn.load_model(folder / "model.ef")(ROWS)
    model.save_weights(folder / "weights.ef")
    model.load_weights(folder / "weights.ef")


@habit
def a_model_is_copied_and_pickled(i):
    model = fitted(i)
    copy.deepcopy(model)(ROWS)
    pickle.loads(pickle.dumps(model))(ROWS)
    nn.clone_model(model)


@habit
def layers_are_made_and_called_at_once(i):
    images, steps, words = new(1, 6, 6, 2), new(2, 3, 6), ef.asarray(np.array([[1, 2, 0]]))
    nn.Dense(3, kernel_regularizer="l2")(ROWS)
    nn.Conv2D(2, 3)(images)
    nn.DepthwiseConv2D(3)(images)
    nn.BatchNormalization()(images, training=True)
    nn.MaxPooling2D()(images)
    nn.LSTM(3)(steps)
    nn.Bidirectional(nn.GRU(3))(steps)
    nn.MultiHeadAttention(2, 4)(steps, steps)
    nn.SimpleRNN(2)(nn.Embedding(5, 4, mask_zero=True)(words))
    nn.TimeDistributed(nn.Dense(2))(steps)
    nn.Lambda(lambda x: x * 2.0)(ROWS)
    nn.StringLookup(vocabulary=["a", "b"])
    nn.Hashing(5)


@habit
def a_class_of_layers_is_defined(i):
    class Scaled(nn.Layer):
        def build(self, shape):
            self.scale = self.add_weight((shape[-1],), "ones", name="scale")

        def call(self, x):
            return x * self.scale

    model = nn.Sequential([Scaled(), nn.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(ROWS, ef.zeros((8, 2)), epochs=1, verbose=0)


@habit
def masks_are_made_and_lost(i):
    words = ef.asarray(np.array([[1, 2, 0], [3, 0, 0]]))
    embedding = nn.Embedding(5, 4, mask_zero=True)
    nn.LSTM(2)(ef.function(lambda x: embedding(x))(words))
    embedding(words)
    nn.Masking()(new(2, 3, 4))


OPTIMIZERS = (
    "Adadelta Adafactor Adagrad Adam AdamW Adamax Ftrl LBFGS Lamb Lion Muon Nadam RMSprop SGD "
    "ScheduleFreeAdamW"
).split()


@habit
def all_optimizers_step_new_variables(i):
    for name in OPTIMIZERS:
        w = ef.Variable(new(4, 3))
        rate = {} if name == "LBFGS" else {"learning_rate": 0.01 + i * 1e-5}
        opt = getattr(nn.optimizers, name)(**rate)
        opt.minimize(lambda w=w: ef.sum(w * w), [w])
    w = ef.Variable(new(SIZE))
    scaled = nn.optimizers.LossScaleOptimizer(nn.optimizers.SGD(0.1))
    scaled.minimize(lambda: ef.sum(w * w), [w])


@habit
def metrics_and_losses_are_made_and_asked(i):
    truth, found = ef.asarray(np.arange(8) % 2), new(8)
    for name in ("AUC", "BinaryAccuracy", "Precision", "Recall", "MeanSquaredError", "R2Score"):
        metric = getattr(nn.metrics, name)()
        metric.update_state(truth[:, None], found[:, None])
        metric.result()
        metric.reset_state()
    nn.losses.MeanSquaredError()(truth.astype("float32"), found)
    nn.losses.BinaryCrossentropy(label_smoothing=i * 1e-6)(truth, found)


@habit
def batches_are_loaded(i):
    data = [(np.full(6, j, "float32"), j % 3) for j in range(12)]
    for x, y in nn.Loader(data, 4, shuffle=True):
        assert x.shape == (4, 6) and y.shape == (4,)


@habit
def a_model_is_fitted_by_a_loader_and_a_generator(i):
    model = fitted(i)
    model.fit(nn.Loader([(np.ones(6, "float32"), 1)] * 8, 4), epochs=1, verbose=0)
    model.fit(((ROWS, LABELS) for _ in range(2)), epochs=1, steps_per_epoch=2, verbose=0)


@habit
def a_checkpoint_is_written(i, folder):
    checkpoint = nn.Checkpoint(folder / "checkpoints", keep=2)
    model = small_model()
    model(ROWS)
    checkpoint.save(model, step=i)
    checkpoint.restore(model)


# Gradients and transformations -------------------------------------------------------------------


@habit
def tapes(i):
    w = ef.Variable(new(SIZE))
    with ef.GradientTape() as tape:
        loss = ef.sum(ef.tanh(w) * X)
    tape.gradient(loss, w)
    with ef.GradientTape() as unused:
        ef.sum(w * w)
    del unused


@habit
def persistent_and_nested_tapes(i):
    x = new(SIZE)
    with ef.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with ef.GradientTape() as inner:
            inner.watch(x)
            y = ef.sum(x * x * x)
        g = inner.gradient(y, x)
        z = ef.sum(g * g)
    outer.gradient(z, x)
    outer.gradient(y, x)
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x[:3] * 2.0
    tape.jacobian(y, x)
    tape.why(y, x)


@habit
def a_tape_is_left_by_an_error(i):
    x = new(SIZE)
    with suppress(ZeroDivisionError), ef.GradientTape() as tape:
        tape.watch(x)
        ef.sum(x * x)
        raise ZeroDivisionError


@habit
def derivatives_of_new_functions(i):
    x, held = new(6), new(SIZE)
    f = lambda x: ef.sum(ef.sin(x) * i + held[:6])
    ef.grad(f)(x)
    ef.value_and_grad(f)(x)
    ef.jvp(f, (x,), (x,))
    ef.vjp(f, x)[1](ef.asarray(1.0))
    ef.hessian(f)(x)
    ef.jacobian(lambda x: x * held[:6])(x)


@habit
def vmap_of_new_functions(i):
    held = new(SIZE)
    ef.vmap(lambda row: ef.sum(row * row) + held[0])(ROWS)
    ef.vmap(ef.grad(lambda row: ef.sum(row * row * held[:6])))(ROWS)


@habit
def checkpoints_of_new_functions(i):
    x, held = new(SIZE), new(SIZE)
    f = ef.checkpoint(lambda x: ef.tanh(x * held) * x)
    ef.grad(lambda x: ef.sum(f(x)))(x)
    ef.function(lambda x: ef.grad(lambda x: ef.sum(f(x)))(x))(x)


@habit
def custom_gradients_of_new_functions(i):
    x, held = new(SIZE), new(SIZE)

    @ef.custom_gradient
    def f(x):
        y = ef.exp(x)
        return y, lambda g: g * y * held

    ef.grad(lambda x: ef.sum(f(x)))(x)
    ef.function(lambda x: ef.grad(lambda x: ef.sum(f(x)))(x))(x)


@habit
def gradients_are_checked(i):
    ef.testing.check_gradients(lambda x: ef.sum(x * x) * (i + 1.0), (ef.tensor([1.0, 2.0]),))


# Control flow ------------------------------------------------------------------------------------


def control(held, i):
    def f(x):
        y = ef.cond(ef.sum(x) > 0, lambda: x * held, lambda: x - held)
        y = ef.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * held), (0, y), 5)[1]
        y = ef.fori_loop(0, 3, lambda k, y: y + held * i, y)
        y = ef.switch(1, [lambda y: y, lambda y: y * held], y)
        return ef.scan(lambda c, e: (c + e * held[0], c), y[0], y[:5])[1]

    return f


@habit
def eager_loops_and_branches(i):
    control(new(SIZE), i)(X)


@habit
def eager_loops_and_branches_under_a_tape(i):
    f = control(new(SIZE), i)
    ef.grad(lambda x: ef.sum(f(x)))(X)


@habit
def captured_loops_and_branches(i):
    f = ef.function(control(new(SIZE), i))
    f(X)


@habit
def gradients_of_captured_loops_and_branches(i):
    f = control(new(SIZE), i)
    ef.function(lambda x: ef.grad(lambda x: ef.sum(f(x)))(x))(X)


@habit
def loops_that_hold_a_new_tensor(i):
    held = new(SIZE)
    ef.scan(lambda c, e: (c * e + held, None), X, ef.ones(100))
    ef.fori_loop(0, 3, lambda k, y: y + held, X)
    ef.map(lambda e: e * held, X[:3])


# Tensors, variables, arrays of others ------------------------------------------------------------


@habit
def variables_are_made_assigned_and_dropped(i):
    v = ef.Variable(new(SIZE), name=f"v{i}")
    v.assign_add(X)
    v.numpy()
    copy.deepcopy(v)
    pickle.loads(pickle.dumps(v))
    ef.Variable(v).assign(v)


@habit
def arrays_are_shared_through_dlpack(i):
    array = np.ones(SIZE, "float32")
    x = ef.from_dlpack(array)
    np.from_dlpack(x * 2.0)
    np.from_dlpack(x)
    np.asarray(x)
    ef.asarray(array)
    x.__dlpack__()  # a capsule that is not consumed


@habit
def results_of_captured_functions_are_shared(i):
    f = lasting(lambda: ef.function(lambda x: x * 2.0))
    ef.from_dlpack(np.from_dlpack(f(X))).numpy()


@habit
def eager_ops_of_new_attributes(i):
    x = new(SIZE)
    ef.clip(x, i * 0.001, 1.0)
    ef.pad(x, (i % 100, 3))
    ef.reshape(x, (2, -1))
    ef.leaky_relu(x, i * 1e-4)
    ef.roll(x, i)
    ef.full((5,), float(i))
    ef.arange(i)
    ef.linspace(0, i, 5)
    ef.pow(x, i + 0.5)
    x + i
    x * float(i)
    ef.dropout(x, 0.5)
    ef.einsum("i,i->", x, x)
    x[i % 100 : i % 100 + 5]
    x.at[i].set(i)


@habit
def eager_ops_of_new_shapes(i):
    m, n = 1 + i // 40, 1 + i % 40  # never larger: scratch memory is as large as the largest took
    x, rows = ef.ones((m, n)), ef.ones((m, n, 4))
    ef.tanh(x) + x
    ef.softmax(rows)
    ef.sum(rows, axis=0)
    rows @ ef.ones((4, 4))
    ef.interpolate(ef.ones((1, m, n, 1)), (2, 2))
    ef.avg_pool(ef.ones((1, m + 3, n + 3, 1)), 3)
    ef.conv(ef.ones((m, n + 3, 1)), ef.ones((3, 1, 1)))


@habit
def random_numbers(i):
    source = ef.random.Generator(i)
    first, second = source.split(2)
    first.normal((SIZE,)), second.uniform((SIZE,))
    ef.random.seed(i)
    ef.random.normal((3,))
    ef.function(lambda: ef.random.uniform((3,)))()
    pickle.loads(pickle.dumps(source))


@habit
def programs_are_profiled(i):
    f = ef.function(lambda x: ef.tanh(x) * i)
    with ef.profile() as p:
        f(X)
        ef.sum(X * X)
    str(p)


@habit
def settings_are_entered_and_left(i):
    with ef.device("cpu:0"), ef.debug_nans():
        (ROWS @ ROWS.T) + 1.0
    ef.memory_stats("cpu:0")


@habit
def tensors_are_shown(i):
    x = new(20, 20)
    str(x), repr(x), x.tolist(), f"{x[0, 0]:.3f}"
    str(ef.Variable(x, name=f"shown{i}"))


@habit
def summaries_are_written(i, folder):
    with ef.summary.Writer(folder / "summaries") as writer:
        writer.scalar(f"loss{i}", float(i), i)
        writer.histogram("x", X, i)
