"""Functions, methods and classes that are replaced, or that read something."""

from tests.capture.guards.changes import table

MODEL = """
class Model:
    def step(self, x): return x
model = Model()
"""

table(
    """
== a global helper is replaced @ helper(x) @ ! def helper(x): return x @ helper = lambda x: -x
== a global of a helper
! RATE = 1
! def helper(x): return x * RATE
helper(x)
-> RATE = 2
== the code of a helper
? def helper(x): return x
? def other(x): return -x
helper(x)
-> helper.__code__ = other.__code__
== a method of the class is replaced @ model.step(x) @ @ Model.step = lambda self, x: -x
== a method is set on the instance @ model.step(x) @ @ model.step = lambda x: -x
== a subclass gets a method
? class Base:
?     def step(self, x): return x
? class Model(Base): pass
? model = Model()
model.step(x)
-> Model.step = lambda self, x: -x
== a method behind super
? class Base:
?     def step(self, x): return x
? class Model(Base):
?     def step(self, x): return super().step(x)
? model = Model()
model.step(x)
-> Base.step = lambda self, x: -x
== a static method
? class Model:
?     @staticmethod
?     def step(x): return x
? model = Model()
model.step(x)
-> Model.step = staticmethod(lambda x: -x)
== a class method
? class Model:
?     rate = 1
?     @classmethod
?     def step(cls, x): return x * cls.rate
? model = Model()
model.step(x)
-> Model.rate = 2
== the call of an object
? class Model:
?     def __call__(self, x): return x
? model = Model()
model(x)
-> Model.__call__ = lambda self, x: -x
== an operator of the users
? class Rate:
?     def __mul__(self, x): return x
? rate = Rate()
rate * x
-> Rate.__mul__ = lambda self, x: -x
== the class of an object
? class A:
?     def step(self, x): return x
? class B:
?     def step(self, x): return -x
? own = A()
own.step(x)
-> own.__class__ = B
== a function in a dict @ t['relu'](x) @ t = {'relu': lambda x: x} @ t['relu'] = lambda x: -x
== what a function in a list reads
? rate = 1
? functions = [lambda x: x * rate]
functions[0](x)
-> nonlocal rate; rate = 2
== what a function behind vmap reads
? rate = 1.0
? mapped = ef.vmap(lambda x: x * rate)
str(mapped(ef.tensor([1.0, 2.0])))
-> nonlocal rate; rate = 2.0
== what a bound method reads
? class Model:
?     def __init__(self): self.config = {'rate': 1}
?     def step(self, x): return x * self.config['rate']
? model = Model()
? steps = [model.step]
steps[0](x)
-> model.config.update(rate=2)
== a class made by the function
! RATE = 1
class C:
    rate = RATE
return x * C.rate
-> RATE = 2
== what a constructor reads
! RATE = 1
! class C:
!     def __init__(self, x): self.y = x * RATE
C(x).y
-> RATE = 2
== a class is replaced
! class C: y = 1
! class D: y = 2
C().y
-> C = D
== an object that is always the same
? class Config:
?     _only = None
?     def __new__(cls):
?         if cls._only is None:
?             cls._only = super().__new__(cls)
?             cls._only.rate = 0.1
?         return cls._only
? Config()
x * Config().rate
-> Config().rate = 0.2
-- a function that is not called @ x if x > 0 else h(x) @ ! def h(x): return x @ other = h
-- a method that is not called
? class Model:
?     def step(self, x): return x
?     def other(self, x): return x
? model = Model()
model.step(x)
-> Model.other = None
== recursion
! RATE = 2
! def f(x, n=3): return x if not n else RATE * f(x, n - 1)
-> RATE = 3
""",
    setup=MODEL,
)
