"""Arrays, tensors, Variables, layers."""

import numpy as np

import eagerflow as ef
from tests.capture.guards.changes import Thing, ignore, module, notice, setting


def array_changing(read, change=lambda a: a.__setitem__(0, 9.0)):
    array = np.array([1.0, 2.0])
    return (lambda x: read(array, x)), lambda: change(array)


@notice
def an_array():
    return array_changing(lambda a, x: str(x * a))


@notice
def an_item_of_an_array():
    return array_changing(lambda a, x: float(a[0]))


@notice
def a_method_of_an_array():
    return array_changing(lambda a, x: x * a.mean())


@notice
def a_function_of_an_array():
    return array_changing(lambda a, x: x * np.sum(a))


@notice
def an_array_in_an_op():
    return array_changing(lambda a, x: str(ef.add(a, 1.0)))


@notice
def a_view_of_an_array():
    def read(a, x):
        b = a[:1]
        return float(b[0]) * x

    return array_changing(read)


@notice
def the_shape_of_an_array():
    return array_changing(lambda a, x: a.shape, lambda a: a.resize((2, 1), refcheck=False))


@notice
def an_array_in_a_list():
    arrays = [np.zeros(2)]

    def f(x):
        for a in arrays:
            x = x + a.sum()
        return x

    return f, lambda: arrays[0].__setitem__(0, 1.0)


@notice
def arrays_collected_in_a_list():
    arrays = [np.zeros(2), np.ones(2)]

    def f(x):
        rows = []
        for a in arrays:
            rows.append(a)
        return str(np.stack(rows))

    return f, lambda: arrays[0].__setitem__(0, 1.0)


@notice
def an_array_of_an_object():
    own = Thing(mean=np.zeros(2))
    return (lambda x: str(x - own.mean)), lambda: own.mean.__setitem__(0, 1.0)


@notice
def an_array_in_a_display():
    return array_changing(lambda a, x: str(np.stack([a, a])))


@notice
def an_array_of_objects():
    array = np.array([1, "a"], dtype=object)
    return (lambda x: array[1]), lambda: array.__setitem__(1, "b")


@ignore
def an_array_gets_the_same_values():
    return array_changing(lambda a, x: str(x * a), lambda a: a.__setitem__(slice(None), [1.0, 2.0]))


@ignore
def an_array_that_is_not_read():
    own = Thing(mean=np.zeros(2), rate=0.1)
    return (lambda x: x * own.rate), lambda: own.mean.__setitem__(0, 1.0)


@ignore
def an_array_with_nan():
    array = np.array([np.nan])
    return (lambda x: str(x * array)), lambda: array.__setitem__(0, np.nan)


@ignore
def an_array_made_by_the_function():
    def f(x):
        a = np.zeros(3)
        a[0] = x
        return float(a.sum())

    return f, lambda: None


@ignore
def the_value_of_a_variable():
    w = ef.Variable([1.0, 2.0])
    return (lambda x: w * x), lambda: w.assign([3.0, 4.0])


@notice
def a_variable_is_replaced():
    return setting(ef.Variable([1.0]), ef.Variable([2.0]), "return str(VALUE * x)")


@notice
def a_tensor_is_replaced():
    return setting(ef.tensor([1.0]), ef.tensor([2.0]), "return str(VALUE * x)")


@notice
def whether_a_variable_is_trainable():
    w = ef.Variable([1.0])
    return (lambda x: x if w.trainable else -x), lambda: setattr(w, "trainable", False)


@notice
def a_variable_in_a_list():
    weights = [ef.Variable(1.0)]
    return (
        (lambda x: str(ef.add_n(weights)) if hasattr(ef, "add_n") else str(weights[0] + 0)),
        lambda: weights.__setitem__(0, ef.Variable(2.0)),
    )


@notice
def a_layer_is_frozen():
    layer = ef.nn.Dense(2)
    layer(ef.ones((1, 3)))
    return (lambda x: len(layer.trainable_weights)), lambda: setattr(layer, "trainable", False)


@notice
def an_attribute_of_a_layer():
    class Scale(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.factor = 2.0

        def call(self, inputs):
            return inputs * self.factor

    layer = Scale()
    ones = ef.ones((1, 2))
    layer(ones)
    return (lambda x: str(layer(ones))), lambda: setattr(layer, "factor", 3.0)


@notice
def the_rate_of_a_dropout():
    layer = ef.nn.Dropout(0.0)
    ones = ef.ones((1, 50))
    layer(ones)
    return (
        lambda x: bool(ef.all(layer(ones, training=True) == 1.0)),
        lambda: setattr(layer, "rate", 0.9),
    )


@notice
def an_activation_is_replaced():
    layer = ef.nn.Dense(2, activation="relu", kernel_initializer="ones")
    inputs = -ef.ones((1, 3))
    layer(inputs)
    return (lambda x: str(layer(inputs))), lambda: setattr(layer, "activation", ef.negative)


@notice
def a_layer_of_a_sequential_model():
    model = ef.nn.Sequential([ef.nn.Dense(2, kernel_initializer="ones")])
    ones = ef.ones((1, 3))
    model(ones)

    def change():
        layer = model.sublayers[0]
        layer.activation = ef.negative

    return (lambda x: str(model(ones))), change


@notice
def an_option_of_an_optimizer():
    w = ef.Variable([1.0])
    optimizer = ef.nn.optimizers.SGD(0.5)
    optimizer.apply([ef.tensor([0.0])], [w])

    def f(x):
        w.assign([1.0])
        optimizer.apply([ef.tensor([0.0])], [w])
        return str(w.value)

    def change():
        optimizer.weight_decay = 0.5

    return f, change


@notice
def a_helper_of_eagerflow_is_replaced():
    made = module("def f(x): return str(ef.abs(ef.tensor(x)))", ef=ef)
    before = ef.abs

    def change():
        ef.abs = ef.negative

    change.undo = lambda: setattr(ef, "abs", before)
    return made.f, change


def model_of_the_users():
    class Model(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.dense = ef.nn.Dense(2)
            self.epoch = 0
            self.extra = None

        def call(self, inputs):
            return self.dense(inputs)

    model = Model()
    model(ef.ones((1, 3)))
    return model


@ignore
def a_counter_next_to_the_weights():
    model = model_of_the_users()
    return (lambda x: len(model.trainable_weights)), lambda: setattr(model, "epoch", 1)


@ignore
def a_new_number_next_to_the_weights():
    model = model_of_the_users()
    return (lambda x: len(model.trainable_weights)), lambda: setattr(model, "history", 1.0)


@notice
def a_new_weight():
    model = model_of_the_users()
    weight = ef.Variable(1.0)
    return (lambda x: len(model.trainable_weights)), lambda: setattr(model, "more", weight)


@notice
def a_weight_in_place_of_nothing():
    model = model_of_the_users()
    weight = ef.Variable(1.0)
    return (lambda x: len(model.trainable_weights)), lambda: setattr(model, "extra", weight)


@notice
def a_weight_in_a_list():
    model = model_of_the_users()
    model.more = []
    weight = ef.Variable(1.0)
    return (lambda x: len(model.trainable_weights)), lambda: model.more.append(weight)
