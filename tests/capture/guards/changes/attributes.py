"""Attributes of objects and classes."""

import collections
import dataclasses
import functools
import operator
import types
import weakref

from tests.capture.guards.changes import KEPT, Thing, ignore, notice, setting


def attribute(read, before=0.1, after=0.2, **more):
    """A function that reads ``own.rate``, which changes."""
    own = Thing(rate=before, **more)
    return (lambda x: read(own, x)), lambda: setattr(own, "rate", after)


@notice
def an_attribute():
    return attribute(lambda own, x: x * own.rate)


@notice
def an_attribute_of_self():
    class Model:
        def __init__(self):
            self.rate = 0.1

        def step(self, x):
            return x * self.rate

    model = Model()
    return model.step, lambda: setattr(model, "rate", 0.2)


@notice
def a_nested_attribute():
    inner = Thing(rate=0.1)
    outer = Thing(inner=inner)
    return (lambda x: x * outer.inner.rate), lambda: setattr(inner, "rate", 0.2)


@notice
def the_middle_of_a_chain():
    outer = Thing(inner=Thing(rate=0.1))
    return (lambda x: x * outer.inner.rate), lambda: setattr(outer, "inner", Thing(rate=0.2))


@notice
def an_attribute_of_the_class():
    class Model:
        rate = 0.1

    model = Model()
    return (lambda x: x * model.rate), lambda: setattr(Model, "rate", 0.2)


@notice
def an_attribute_of_a_base_class():
    class Base:
        rate = 0.1

    class Model(Base):
        pass

    model = Model()
    return (lambda x: x * model.rate), lambda: setattr(Base, "rate", 0.2)


@notice
def an_instance_attribute_hides_that_of_the_class():
    class Model:
        rate = 0.1

    model = Model()
    return (lambda x: x * model.rate), lambda: setattr(model, "rate", 0.2)


@notice
def a_class_attribute_by_type_of_self():
    class Model:
        rate = 0.1

        def step(self, x):
            return x * type(self).rate

    return Model().step, lambda: setattr(Model, "rate", 0.2)


@notice
def a_class_attribute_by_super():
    class Base:
        rate = 0.1

    class Model(Base):
        rate = 1.0

        def step(self, x):
            return x * super().rate

    return Model().step, lambda: setattr(Base, "rate", 0.2)


@notice
def a_slot():
    class Model:
        __slots__ = ("rate",)

    model = Model()
    model.rate = 0.1
    return (lambda x: x * model.rate), lambda: setattr(model, "rate", 0.2)


@notice
def what_a_property_reads():
    class Model:
        def __init__(self):
            self.hidden = 0.1

        @property
        def rate(self):
            return self.hidden

    model = Model()
    return (lambda x: x * model.rate), lambda: setattr(model, "hidden", 0.2)


@notice
def a_property_is_replaced():
    class Model:
        rate = property(lambda self: 0.1)

        @property
        def scale(self):
            return 1.0

    model = Model()
    return (lambda x: x * model.scale), lambda: setattr(Model, "scale", property(lambda self: 2.0))


@notice
def a_property_gives_an_object():
    inner = Thing(rate=0.1)

    class Model:
        @property
        def inner(self):
            return inner

    model = Model()
    return (lambda x: x * model.inner.rate), lambda: setattr(inner, "rate", 0.2)


@notice
def a_cached_property_is_overwritten():
    class Model:
        @functools.cached_property
        def rate(self):
            return 0.1

    model = Model()
    return (lambda x: x * model.rate), lambda: setattr(model, "rate", 0.2)


@notice
def a_descriptor_of_the_users():
    class Rate:
        def __get__(self, own, cls):
            return own.hidden

    class Model:
        rate = Rate()

    model = Model()
    model.hidden = 0.1
    return (lambda x: x * model.rate), lambda: setattr(model, "hidden", 0.2)


@notice
def attributes_made_up_by_getattr():
    class Config:
        def __init__(self):
            self.values = {"rate": 0.1}

        def __getattr__(self, name):
            return self.values[name]

    config = Config()
    return (lambda x: x * config.rate), lambda: config.values.update(rate=0.2)


@notice
def an_attribute_hides_one_that_is_made_up():
    class Config:
        def __getattr__(self, name):
            return 0.1

    config = Config()
    return (lambda x: x * config.rate), lambda: setattr(config, "rate", 0.2)


@notice
def a_dict_with_attributes():
    class Config(dict):
        __getattr__ = dict.__getitem__

    config = Config(rate=0.1)
    return (lambda x: x * config.rate), lambda: config.update(rate=0.2)


@notice
def a_dict_that_is_its_own_attributes():
    class Config(dict):
        def __init__(self, **values):
            super().__init__(**values)
            self.__dict__ = self

    config = Config(rate=0.1)
    return (lambda x: x * config.rate), lambda: config.update(rate=0.2)


@notice
def an_attribute_is_added():
    own = Thing()
    return (lambda x: x * getattr(own, "rate", 0.1)), lambda: setattr(own, "rate", 0.2)


@notice
def hasattr_is_asked():
    own = Thing()
    return (lambda x: x if hasattr(own, "rate") else -x), lambda: setattr(own, "rate", 0.2)


@notice
def an_attribute_is_deleted():
    own = Thing(rate=0.1)
    return (lambda x: x * getattr(own, "rate", 1)), lambda: delattr(own, "rate")


@notice
def a_field_of_a_dataclass():
    @dataclasses.dataclass
    class Config:
        rate: float = 0.1

    config = Config()
    return (lambda x: x * config.rate), lambda: setattr(config, "rate", 0.2)


@notice
def a_dataclass_as_a_dict():
    @dataclasses.dataclass
    class Config:
        rate: float = 0.1

    config = Config()
    return (lambda x: dataclasses.asdict(config)["rate"]), lambda: setattr(config, "rate", 0.2)


@notice
def a_simple_namespace():
    own = types.SimpleNamespace(rate=0.1)
    return (lambda x: x * own.rate), lambda: setattr(own, "rate", 0.2)


@notice
def a_named_tuple_is_replaced():
    config = collections.namedtuple("Config", "rate")
    return setting(config(0.1), config(0.2), "return x * VALUE.rate")


@notice
def an_attribute_of_an_alias():
    def read(own, x):
        alias = own
        return x * alias.rate

    return attribute(read)


@notice
def an_attribute_named_by_a_variable():
    def read(own, x):
        for name in ("rate",):
            x = x * getattr(own, name)
        return x

    return attribute(read)


@notice
def an_attribute_by_vars():
    return attribute(lambda own, x: x * vars(own)["rate"])


@notice
def an_attribute_by_its_dict():
    return attribute(lambda own, x: x * own.__dict__["rate"])


@notice
def an_attribute_by_attrgetter():
    return attribute(lambda own, x: x * operator.attrgetter("rate")(own))


@notice
def an_attribute_in_a_conditional_expression():
    return attribute(lambda own, x: x * (own if x > 0 else own.other).rate, other=Thing(rate=1))


@notice
def an_attribute_over_several_lines():
    def read(own, x):
        return own.inner.rate * x

    inner = Thing(rate=0.1)
    own = Thing(inner=inner)
    return (lambda x: read(own, x)), lambda: setattr(inner, "rate", 0.2)


@notice
def an_attribute_in_a_try():
    def read(own, x):
        try:
            raise ValueError
        except ValueError:
            return x * own.rate
        finally:
            x = 0

    return attribute(read)


@notice
def an_attribute_in_a_with():
    class Scope:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    scope = Scope()
    scope.rate = 0.1

    def f(x):
        with scope as s:
            return x * s.rate

    return f, lambda: setattr(scope, "rate", 0.2)


@notice
def an_attribute_of_a_function():
    def helper(x):
        return x * helper.rate

    helper.rate = 0.1
    return helper, lambda: setattr(helper, "rate", 0.2)


@notice
def an_attribute_behind_a_weak_reference():
    own = Thing(rate=0.1)
    KEPT.append(own)
    held = weakref.ref(own)
    return (lambda x: x * held().rate), lambda: setattr(own, "rate", 0.2)


@notice
def an_attribute_of_a_result():
    own = Thing(rate=0.1)

    def get():
        return own

    return (lambda x: x * get().rate), lambda: setattr(own, "rate", 0.2)


@notice
def an_attribute_of_a_matched_object():
    class Point:
        __match_args__ = ("rate",)

        def __init__(self):
            self.rate = 0.1

    own = Point()

    def f(x):
        match own:
            case Point(rate=rate):
                return x * rate

    return f, lambda: setattr(own, "rate", 0.2)


@ignore
def an_attribute_that_is_not_read():
    own = Thing(rate=0.1, other=1)
    return (lambda x: x * own.rate), lambda: setattr(own, "other", 2)


@ignore
def a_class_attribute_behind_that_of_the_instance():
    class Model:
        rate = 0.1

    model = Model()
    model.rate = 0.5
    return (lambda x: x * model.rate), lambda: setattr(Model, "rate", 0.2)


@ignore
def a_new_attribute_that_nobody_reads():
    own = Thing(rate=0.1)
    return (lambda x: x * own.rate), lambda: setattr(own, "more", 0.2)


@ignore
def the_attribute_of_another_object():
    a, b = Thing(rate=0.1), Thing(rate=0.1)
    KEPT.append(b)
    return (lambda x: x * a.rate), lambda: setattr(b, "rate", 0.2)


@ignore
def an_attribute_that_is_written_and_not_read():
    own = Thing(last=None)

    def f(x):
        own.last = x
        return x

    return f, lambda: setattr(own, "last", 7)


@ignore
def an_attribute_that_is_written_before_it_is_read():
    own = Thing(last=None)

    def f(x):
        own.last = 3.0
        return x * own.last

    return f, lambda: setattr(own, "last", 7)
