"""Attributes of objects and classes."""

from tests.capture.guards.changes import table

table(
    """
== an attribute @ x * own.rate
== an attribute of self
? class Model:
?     def __init__(self): self.rate = 0.1
?     def step(self, x): return x * self.rate
? own = Model()
? f = own.step
== a nested attribute @ x * outer.inner.rate @ own = Thing(rate=0.1); outer = Thing(inner=own)
== the middle of a chain
? own = Thing(inner=Thing(rate=0.1))
x * own.inner.rate
-> own.inner = Thing(rate=0.2)
== an attribute of the class
? class Model: rate = 0.1
? own = Model()
x * own.rate
-> Model.rate = 0.2
== an attribute of a base class
? class Base: rate = 0.1
? class Model(Base): pass
? own = Model()
x * own.rate
-> Base.rate = 0.2
== an instance attribute hides that of the class
? class Model: rate = 0.1
? own = Model()
x * own.rate
== a class attribute by type of self
? class Model:
?     rate = 0.1
?     def step(self, x): return x * type(self).rate
? f = Model().step
-> Model.rate = 0.2
== a class attribute by super
? class Base: rate = 0.1
? class Model(Base):
?     rate = 1.0
?     def step(self, x): return x * super().rate
? f = Model().step
-> Base.rate = 0.2
== a slot
? class Model: __slots__ = ('rate',)
? own = Model()
? own.rate = 0.1
x * own.rate
== what a property reads
? class Model:
?     def __init__(self): self.hidden = 0.1
?     @property
?     def rate(self): return self.hidden
? own = Model()
x * own.rate
-> own.hidden = 0.2
== a property is replaced
? class Model:
?     rate = property(lambda self: 0.1)
?     @property
?     def scale(self): return 1.0
? own = Model()
x * own.scale
-> Model.scale = property(lambda self: 2.0)
== a property gives an object
? own = Thing(rate=0.1)
? class Model:
?     @property
?     def inner(self): return own
? model = Model()
x * model.inner.rate
== a cached property is overwritten
? class Model:
?     @functools.cached_property
?     def rate(self): return 0.1
? own = Model()
x * own.rate
== a descriptor of the users
? class Rate:
?     def __get__(self, own, cls): return own.hidden
? class Model: rate = Rate()
? own = Model()
? own.hidden = 0.1
x * own.rate
-> own.hidden = 0.2
== attributes made up by getattr
? class Config:
?     def __init__(self): self.values = {'rate': 0.1}
?     def __getattr__(self, name): return self.values[name]
? own = Config()
x * own.rate
-> own.values.update(rate=0.2)
== an attribute hides one that is made up
? class Config:
?     def __getattr__(self, name): return 0.1
? own = Config()
x * own.rate
== a dict with attributes
? class Config(dict): __getattr__ = dict.__getitem__
? own = Config(rate=0.1)
x * own.rate
-> own.update(rate=0.2)
== a dict that is its own attributes
? class Config(dict):
?     def __init__(self, **values):
?         super().__init__(**values)
?         self.__dict__ = self
? own = Config(rate=0.1)
x * own.rate
-> own.update(rate=0.2)
== an attribute is added @ x * getattr(own, 'rate', 0.1) @ own = Thing()
== hasattr is asked @ x if hasattr(own, 'rate') else -x @ own = Thing()
== an attribute is deleted @ x * getattr(own, 'rate', 1) @ @ del own.rate
== a field of a dataclass
? @dataclasses.dataclass
? class Config: rate: float = 0.1
? own = Config()
x * own.rate
== a dataclass as a dict
? @dataclasses.dataclass
? class Config: rate: float = 0.1
? own = Config()
dataclasses.asdict(own)['rate']
== a simple namespace @ x * own.rate @ own = types.SimpleNamespace(rate=0.1)
== a named tuple is replaced
! Config = collections.namedtuple('Config', 'rate')
! VALUE = Config(0.1)
x * VALUE.rate
-> VALUE = Config(0.2)
== an attribute of an alias
alias = own
return x * alias.rate
== an attribute named by a variable
for name in ('rate',):
    x = x * getattr(own, name)
return x
== an attribute by vars @ x * vars(own)['rate']
== an attribute by its dict @ x * own.__dict__['rate']
== an attribute by attrgetter @ x * operator.attrgetter('rate')(own)
== an attribute in a conditional expression
? own = Thing(rate=0.1, other=Thing(rate=1))
x * (own if x > 0 else own.other).rate
== an attribute over several lines
? own = Thing(rate=0.1)
? outer = Thing(inner=own)
return (
    outer
    .inner
    .rate * x
)
== an attribute in a try
try:
    raise ValueError
except ValueError:
    return x * own.rate
finally:
    x = 0
== an attribute in a with
? class Scope:
?     def __enter__(self): return self
?     def __exit__(self, *error): return None
? own = Scope()
? own.rate = 0.1
with own as s:
    return x * s.rate
== an attribute of a function
? def f(x): return x * f.rate
? f.rate = 0.1
-> f.rate = 0.2
== an attribute behind a weak reference
? own = Thing(rate=0.1)
? held = weakref.ref(own)
x * held().rate
== an attribute of a result
? own = Thing(rate=0.1)
? def get(): return own
x * get().rate
== an attribute of a matched object
? class Point:
?     __match_args__ = ('rate',)
?     def __init__(self): self.rate = 0.1
? own = Point()
match own:
    case Point(rate=rate):
        return x * rate
-- an attribute that is not read @ x * own.rate @ own = Thing(rate=0.1, other=1) @ own.other = 2
-- a class attribute behind that of the instance
? class Model: rate = 0.1
? own = Model()
? own.rate = 0.5
x * own.rate
-> Model.rate = 0.2
-- a new attribute that is never read @ x * own.rate @ @ own.more = 0.2
-- the attribute of another object
? own, other = Thing(rate=0.1), Thing(rate=0.1)
x * own.rate
-> other.rate = 0.2
-- an attribute that is written and not read
? own = Thing(last=None)
own.last = x
return x
-> own.last = 7
-- an attribute that is written before it is read
? own = Thing(last=None)
own.last = 3.0
return x * own.last
-> own.last = 7
""",
    setup="own = Thing(rate=0.1)",
    change="own.rate = 0.2",
)
