"""Globals, variables of enclosing functions, defaults."""

from tests.capture.guards.changes import table

table(
    """
== a global number @ x * VALUE @ ! VALUE = 0.1 @ VALUE = 0.2
== a global string @ x if VALUE == 'exp' else -x @ ! VALUE = 'tanh' @ VALUE = 'exp'
== a global flag @ x if VALUE else -x @ ! VALUE = True @ VALUE = False
== a global none @ x if VALUE is None else VALUE @ ! VALUE = None @ VALUE = 3.0
== a global tuple @ x * VALUE[1] @ ! VALUE = (1, 2) @ VALUE = (1, 3)
== an integer becomes a float @ repr(VALUE) @ ! VALUE = 2 @ VALUE = 2.0
== a flag becomes a number @ repr(VALUE) @ ! VALUE = True @ VALUE = 1
== zero becomes negative zero @ math.copysign(x, VALUE) @ ! VALUE = 0.0 @ VALUE = -0.0
== a numpy scalar @ x * VALUE @ ! VALUE = np.float32(0.1) @ VALUE = np.float32(0.2)
== a numpy scalar of another type @ str(V.dtype) @ ! V = np.float32(0.5) @ V = np.float64(0.5)
== a dtype @ np.zeros(1, V).nbytes @ ! V = np.dtype('float32') @ V = np.dtype('float64')
== a dtype of eagerflow @ str(ef.zeros((2,), V).dtype) @ ! V = ef.float32 @ V = ef.int32
== a global enum @ V.name @ ! M = enum.Enum('M', 'SLOW FAST'); V = M.SLOW @ V = M.FAST
== a global is deleted
! VALUE = 2
try:
    return VALUE
except NameError:
    return x
-> del VALUE
== a global hides a builtin @ max(x, 1) @ ! pass @ max = min
== a global of another module @ x * m.rate @ ! m = module('rate = 0.1') @ m.rate = 0.2
== a module is replaced @ x * m.rate @ ! m = module('rate = 0.1') @ m = module('rate = 0.2')
== a name imported in the function
? import colorsys
? before = colorsys.ONE_THIRD
from colorsys import ONE_THIRD
return ONE_THIRD
-> colorsys.ONE_THIRD = 0.5
<- colorsys.ONE_THIRD = before
== a function of the standard library is replaced
? before = math.floor
math.floor(x)
-> math.floor = math.ceil
<- math.floor = before
== a global through globals @ x * globals()['VALUE'] @ ! VALUE = 1 @ VALUE = 2
== a global in an evaluated text @ eval('x * VALUE') @ ! VALUE = 1 @ VALUE = 2
== a global in executed code
! VALUE = 1
names = {'x': x}
exec('y = x * VALUE', globals(), names)
return names['y']
-> VALUE = 2
== a module that makes up names
! config = module('def __getattr__(name): return 1')
x * config.rate
-> config.rate = 2
-- a global that is not read @ x * A @ ! A, B = 1, 2 @ B = 3
-- a global of a branch not taken
! A, B = 1, 2
if A == 1:
    return x
return x * B
-> B = 3
-- a global gets an equal value @ x * VALUE @ ! VALUE = 0.5 @ VALUE = float('0.5')
-- nan stays nan @ x * VALUE @ ! VALUE = float('nan') @ VALUE = float('nan')
-- a global gets an equal tuple @ x * VALUE[0] @ ! VALUE = (1, 'a') @ VALUE = (int('1'), 'a')
"""
)
table(
    """
== a closure number @ x * rate
== a closure two levels up
? rate = 0.1
? def middle():
?     def f(x):
?         def inner(y): return y * rate
?         return inner(x)
?     return f
? f = middle()
== a closure of a comprehension @ [x * rate for _ in range(2)]
== a closure behind a decorator
? rate = 0.1
? def twice(g):
?     @functools.wraps(g)
?     def wrapped(x): return g(g(x))
?     return wrapped
? @twice
? def f(x): return x * rate
== a default
? def f(x, rate=0.1): return x * rate
-> f.__defaults__ = (0.2,)
== a keyword default
? def f(x, *, rate=0.1): return x * rate
-> f.__kwdefaults__['rate'] = 0.2
== a mutable default
? def f(x, rates=[0.1]): return x * rates[0]
-> f.__defaults__[0][0] = 0.2
== a default of a helper
? def helper(x, rate=0.1): return x * rate
helper(x)
-> helper.__defaults__ = (0.2,)
== keywords of a partial
? helper = functools.partial(lambda x, rate: x * rate, rate=0.1)
helper(x)
-> helper.keywords['rate'] = 0.2
""",
    setup="rate = 0.1",
    change="nonlocal rate; rate = 0.2",
)
SCALING = """
def scaling(rate):
    def scale(x): return x * rate
    def put(value):
        nonlocal rate
        rate = value
    return scale, put
scale, put = scaling(0.1)
_, put_in_another = scaling(0.2)
"""
table(
    """
== a closure of a helper @ scale(x) @ @ put(0.2)
-- the closure of another function from the same maker @ scale(x) @ @ put_in_another(0.5)
""",
    setup=SCALING,
)
