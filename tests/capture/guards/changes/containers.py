"""Containers that change in place."""

from tests.capture.guards.changes import table

table(
    """
== an item of a dict @ x * c['lr']
== an item of a mode
? mode = enum.Enum('Mode', 'SLOW FAST')
? c = {mode.FAST: 1}
x * c[mode.FAST]
-> c.update({mode.FAST: 2})
== an item with a computed key
key = 'l' + 'r'
return x * c[key]
== a nested item @ x * c['a']['b'][1] @ c = {'a': {'b': [1, 2]}} @ c['a']['b'][1:] = [5, 3]
== an item by get @ x * c.get('lr', 1)
== an item that was missing @ x * c.get('lr', 1) @ c = {}
== an item that raised
? c = {}
try:
    return c['lr']
except KeyError:
    return x
== an item is deleted @ c.get('lr', x) @ @ c.clear()
== a key is asked for @ x if 'lr' in c else -x @ c = {} @ c.update(lr=1)
== the order of a dict @ [k + '!' for k in c] @ c = {'a': 1, 'b': 2} @ c['a'] = c.pop('a')
== a sum of values @ x * sum(c.values()) @ c = {'a': 1.0} @ c.update(a=2.0)
== keywords from a dict
? c = {'rate': 2}
? def helper(x, rate=1): return x * rate
helper(x, **c)
-> c.update(rate=3)
== arguments from a list
? c = [1, 2]
? def helper(x, *rates): return x * rates[-1]
helper(x, *c)
-> c.append(3)
== a union of dicts @ (c | {'b': 2})['a'] @ c = {'a': 1} @ c.update(a=3)
== a dict in a display @ {**c, 'b': 2}['a'] @ c = {'a': 1} @ c.update(a=3)
== a list gets longer @ x * len(c) @ c = [1] @ c.append(2)
== a list gets empty @ x if c else -x @ c = [1] @ c.clear()
== not a list @ not c @ c = [1] @ c.clear()
== an item of a list @ x * c[-1] @ c = [1, 2] @ c[1] = 3
== a slice @ c[1:] @ c = [1, 2, 3] @ c[2] = 4
== a list is walked over @ [x * n for n in c] @ c = [1, 2] @ c[0] = 5
== a list is compared @ c == [1, 2] @ c = [1, 2] @ c.append(3)
== a list is formatted @ f'{c}' @ c = [1, 2] @ c.append(3)
== a list is counted @ c.count(2) @ c = [1, 2] @ c.append(2)
== a list becomes text @ json.dumps(c) @ c = {'a': [1]} @ c['a'].append(2)
== a list becomes an array @ np.array(c).sum() * x @ c = [[1, 2]] @ c[0].append(3)
== a list becomes a tensor @ str(ef.tensor(c)) @ c = [1.0, 2.0] @ c.append(3.0)
== a list is a shape @ str(ef.zeros(c).shape) @ c = [2, 3] @ c.reverse()
== a list is sorted @ sorted(c)[0] @ c = [3, 1] @ c.append(0)
== a list is joined @ ','.join(c) @ c = ['a'] @ c.append('b')
== any of a list @ any(c) @ c = [0, 0] @ c.append(1)
== a set is asked @ 2 in c @ c = {1} @ c.add(2)
== a deque @ c[0] @ c = collections.deque([1, 2]) @ c.rotate(1)
== a default dict @ c['a'] @ c = collections.defaultdict(int, a=1) @ c.update(a=2)
== a counter @ c['a'] @ c = collections.Counter('aab') @ c.update('a')
== a dict of the standard library @ x * c['lr'] @ c = collections.UserDict(lr=0.1)
== a chain of dicts @ x * chain['lr'] @ c = {'lr': 0.1}; chain = collections.ChainMap(c, {'lr': 1})
== a dict with a method of its own
? class Config(dict):
?     def __getitem__(self, key): return super().__getitem__(key) * 2
? c = Config(lr=0.1)
x * c['lr']
== an object with items
? class Config:
?     def __init__(self): self.values = {'lr': 0.1}
?     def __getitem__(self, key): return self.values[key]
? c = Config()
x * c['lr']
-> c.values.update(lr=0.2)
== bytes that change @ c[0] @ c = bytearray(b'ab') @ c[0] = 99
== a list inside a fresh one @ str([x, c]) @ c = [1] @ c.append(2)
== a list that is mutated before it is measured
? c = []
c.append(x)
return len(c)
-> pass
-- an item that is not read @ x * c['a'] @ c = {'a': 1, 'b': 2} @ c.update(b=3)
-- a new item that is never read @ x * c['a'] @ c = {'a': 1} @ c.update(c=3)
-- a list that only gets longer
? history = []
history.append(1)
return x
-> history.append(2)
-- a list made by the function
rows = []
for i in range(3):
    rows.append(x * i)
return len(rows), rows[-1], sum(rows)
-> pass
""",
    setup="c = {'lr': 0.1}",
    change="c.update(lr=0.2)",
    through="c",
)
