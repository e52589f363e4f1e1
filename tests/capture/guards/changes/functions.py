"""Functions, methods and classes that are replaced, or that read something."""

import eagerflow as ef
from tests.capture.guards.changes import ignore, module, notice


@notice
def a_global_helper_is_replaced():
    made = module("def helper(x): return x\ndef f(x): return helper(x)")
    return made.f, lambda: setattr(made, "helper", lambda x: -x)


@notice
def a_global_of_a_helper():
    made = module("RATE = 1\ndef helper(x): return x * RATE\ndef f(x): return helper(x)")
    return made.f, lambda: setattr(made, "RATE", 2)


@notice
def the_code_of_a_helper():
    def helper(x):
        return x

    def other(x):
        return -x

    def change():
        helper.__code__ = other.__code__

    return (lambda x: helper(x)), change


@notice
def a_method_of_the_class_is_replaced():
    class Model:
        def step(self, x):
            return x

    model = Model()
    return (lambda x: model.step(x)), lambda: setattr(Model, "step", lambda self, x: -x)


@notice
def a_method_is_set_on_the_instance():
    class Model:
        def step(self, x):
            return x

    model = Model()
    return (lambda x: model.step(x)), lambda: setattr(model, "step", lambda x: -x)


@notice
def a_subclass_gets_a_method():
    class Base:
        def step(self, x):
            return x

    class Model(Base):
        pass

    model = Model()
    return (lambda x: model.step(x)), lambda: setattr(Model, "step", lambda self, x: -x)


@notice
def a_method_behind_super():
    class Base:
        def step(self, x):
            return x

    class Model(Base):
        def step(self, x):
            return super().step(x)

    model = Model()
    return (lambda x: model.step(x)), lambda: setattr(Base, "step", lambda self, x: -x)


@notice
def a_static_method():
    class Model:
        @staticmethod
        def step(x):
            return x

    model = Model()
    return (lambda x: model.step(x)), lambda: setattr(Model, "step", staticmethod(lambda x: -x))


@notice
def a_class_method():
    class Model:
        rate = 1

        @classmethod
        def step(cls, x):
            return x * cls.rate

    model = Model()
    return (lambda x: model.step(x)), lambda: setattr(Model, "rate", 2)


@notice
def the_call_of_an_object():
    class Model:
        def __call__(self, x):
            return x

    model = Model()
    return (lambda x: model(x)), lambda: setattr(Model, "__call__", lambda self, x: -x)


@notice
def an_operator_of_the_users():
    class Rate:
        def __mul__(self, x):
            return x

    rate = Rate()
    return (lambda x: rate * x), lambda: setattr(Rate, "__mul__", lambda self, x: -x)


@notice
def the_class_of_an_object():
    class A:
        def step(self, x):
            return x

    class B:
        def step(self, x):
            return -x

    own = A()
    return (lambda x: own.step(x)), lambda: setattr(own, "__class__", B)


@notice
def a_function_in_a_dict():
    table = {"relu": lambda x: x}
    return (lambda x: table["relu"](x)), lambda: table.update(relu=lambda x: -x)


@notice
def what_a_function_in_a_list_reads():
    rate = 1
    functions = [lambda x: x * rate]

    def change():
        nonlocal rate
        rate = 2

    return (lambda x: functions[0](x)), change


@notice
def what_a_function_behind_vmap_reads():
    rate = 1.0
    mapped = ef.vmap(lambda x: x * rate)

    def change():
        nonlocal rate
        rate = 2.0

    return (lambda x: str(mapped(ef.tensor([1.0, 2.0])))), change


@notice
def what_a_bound_method_reads():
    class Model:
        def __init__(self):
            self.config = {"rate": 1}

        def step(self, x):
            return x * self.config["rate"]

    model = Model()
    steps = [model.step]
    return (lambda x: steps[0](x)), lambda: model.config.update(rate=2)


@notice
def a_class_made_by_the_function():
    made = module("RATE = 1\ndef f(x):\n    class C:\n        rate = RATE\n    return x * C.rate")
    return made.f, lambda: setattr(made, "RATE", 2)


@notice
def what_a_constructor_reads():
    made = module(
        "RATE = 1\nclass C:\n    def __init__(self, x): self.y = x * RATE\ndef f(x): return C(x).y"
    )
    return made.f, lambda: setattr(made, "RATE", 2)


@notice
def a_class_is_replaced():
    made = module("class C:\n    y = 1\nclass D:\n    y = 2\ndef f(x): return C().y")
    return made.f, lambda: setattr(made, "C", made.D)


@notice
def an_object_that_is_always_the_same():
    class Config:
        _only = None

        def __new__(cls):
            if cls._only is None:
                cls._only = super().__new__(cls)
                cls._only.rate = 0.1
            return cls._only

    Config()
    return (lambda x: x * Config().rate), lambda: setattr(Config(), "rate", 0.2)


@ignore
def a_function_that_is_not_called():
    made = module("def helper(x): return x\ndef f(x): return x if x > 0 else helper(x)")
    return made.f, lambda: setattr(made, "other", made.helper)


@ignore
def a_method_that_is_not_called():
    class Model:
        def step(self, x):
            return x

        def other(self, x):
            return x

    model = Model()
    return (lambda x: model.step(x)), lambda: setattr(Model, "other", None)


@notice
def recursion():
    made = module("RATE = 2\ndef f(x, n=3):\n    return x if not n else RATE * f(x, n - 1)")
    return made.f, lambda: setattr(made, "RATE", 3)
