"""Objects in containers that a function walks over."""

from tests.capture.guards.changes import table

table(
    """
== a loop
for thing in things:
    x = x * thing.rate
return x
== a loop on one line
for thing in things: x = x * thing.rate
return x
== a loop that counts
for i, thing in enumerate(things):
    x = x * thing.rate + i
return x
== a loop over indices
for i in range(len(things)):
    x = x * things[i].rate
return x
== a loop over pairs
for thing, number in zip(things, itertools.count(), strict=False):
    x = x * thing.rate + number
return x
== a comprehension @ [x * thing.rate for thing in things]
== a generator expression @ sum(x * thing.rate for thing in things)
== a generator
? things = [Thing(rate=0.1), Thing(rate=0.5)]
? def rates(things):
?     for thing in things: yield thing.rate
[x * rate for rate in rates(things)]
== a sort by a key @ sorted(things, key=lambda t: t.rate)[-1].name
== the largest by a key @ max(things, key=lambda t: t.name).rate + things[-1].rate
== a map @ list(map(lambda t: x * t.rate, things))
== a reduction @ functools.reduce(lambda y, t: y * t.rate, things, x)
== an unpacking
_, _, last = things
return x * last.rate
== a walk backwards @ next(iter(reversed(things))).rate
== a copy of the list @ list(things)[-1].rate
== values of a dict
? things = {'a': Thing(rate=0.1), 'b': Thing(rate=0.2)}
for name, thing in things.items():
    x = x * thing.rate + len(name)
return x
-> things['b'].rate = 0.9
== a dict in a dict by its values
? table = {'a': {'rate': 0.1}}
for inner in table.values():
    x = x * inner['rate']
return x
-> table['a'].update(rate=0.9)
== a temporary copy of values
? table = {'a': {'rate': 0.1}}
x * list(table.values())[0]['rate']
-> table['a'].update(rate=0.9)
== a deep copy @ copy.deepcopy(table)['a'][0] @ table = {'a': [0.1]} @ table['a'][0] = 0.2
""",
    setup="things = [Thing(rate=r, name=str(r)) for r in (0.1, 0.5, 0.3)]",
    change="things[-1].rate = 0.9",
    through="things",
)
