"""Arrays, tensors, Variables, layers."""

from tests.capture.guards.changes import table

table(
    """
== an array @ str(x * a)
== an item of an array @ float(a[0])
== a method of an array @ x * a.mean()
== a function of an array @ x * np.sum(a)
== an array in an op @ str(ef.add(a, 1.0))
== a view of an array
b = a[:1]
return float(b[0]) * x
== the shape of an array @ a.shape @ @ a.resize((2, 1), refcheck=False)
== an array in a list
? arrays = [np.zeros(2)]
for one in arrays:
    x = x + one.sum()
return x
-> arrays[0][0] = 1.0
== arrays collected in a list
? arrays = [np.zeros(2), np.ones(2)]
rows = []
for one in arrays:
    rows.append(one)
return str(np.stack(rows))
-> arrays[0][0] = 1.0
== an array of an object @ str(x - own.mean) @ own = Thing(mean=np.zeros(2)) @ own.mean[0] = 1.0
== an array in a display @ str(np.stack([a, a]))
== an array of objects @ b[1] @ b = np.array([1, 'a'], dtype=object) @ b[1] = 'b'
-- an array gets the same values @ str(x * a) @ @ a[:] = [1.0, 2.0]
-- an array that is not read @ x * own.k @ own = Thing(a=np.zeros(2), k=0.1) @ own.a[0] = 1.0
-- an array with nan @ str(x * b) @ b = np.array([np.nan]) @ b[0] = np.nan
-- an array made by the function
b = np.zeros(3)
b[0] = x
return float(b.sum())
""",
    setup="a = np.array([1.0, 2.0])",
    change="a[0] = 9.0",
    through="a",
)
table(
    """
-- the value of a variable @ w * x @ w = ef.Variable([1.0, 2.0]) @ w.assign([3.0, 4.0])
== a variable is replaced @ str(V * x) @ ! V = ef.Variable([1.0]) @ V = ef.Variable([2.0])
== a tensor is replaced @ str(V * x) @ ! V = ef.tensor([1.0]) @ V = ef.tensor([2.0])
== whether a variable is trainable @ x if w.trainable else -x @ @ w.trainable = False
== a variable in a list @ str(ws[0] + 0) @ ws = [ef.Variable(1.0)] @ ws[0] = ef.Variable(2.0)
== a layer is frozen
? layer = ef.nn.Dense(2)
? layer(ef.ones((1, 3)))
len(layer.trainable_weights)
-> layer.trainable = False
== an attribute of a layer
? class Scale(ef.nn.Layer):
?     def __init__(self):
?         super().__init__()
?         self.factor = 2.0
?     def call(self, inputs): return inputs * self.factor
? layer, ones = Scale(), ef.ones((1, 2))
? layer(ones)
str(layer(ones))
-> layer.factor = 3.0
== the rate of a dropout
? layer, ones = ef.nn.Dropout(0.0), ef.ones((1, 50))
? layer(ones)
bool(ef.all(layer(ones, training=True) == 1.0))
-> layer.rate = 0.9
== an activation is replaced
? layer = ef.nn.Dense(2, activation='relu', kernel_initializer='ones')
? inputs = -ef.ones((1, 3))
? layer(inputs)
str(layer(inputs))
-> layer.activation = ef.negative
== a layer of a sequential model
? model = ef.nn.Sequential([ef.nn.Dense(2, kernel_initializer='ones')])
? ones = ef.ones((1, 3))
? model(ones)
str(model(ones))
-> model.sublayers[0].activation = ef.negative
== an option of an optimizer
? w = ef.Variable([1.0])
? optimizer = ef.nn.optimizers.SGD(0.5)
? optimizer.apply([ef.tensor([0.0])], [w])
w.assign([1.0])
optimizer.apply([ef.tensor([0.0])], [w])
return str(w.value)
-> optimizer.weight_decay = 0.5
== a helper of eagerflow is replaced
? before = ef.abs
str(ef.abs(ef.tensor(x)))
-> ef.abs = ef.negative
<- ef.abs = before
""",
    setup="w = ef.Variable([1.0])",
)
MODEL = """
class Model(ef.nn.Layer):
    def __init__(self):
        super().__init__()
        self.dense, self.epoch, self.extra = ef.nn.Dense(2), 0, None
    def call(self, inputs): return self.dense(inputs)
model, weight = Model(), ef.Variable(1.0)
model(ef.ones((1, 3)))
"""
table(
    """
-- a counter next to the weights @ len(model.trainable_weights) @ @ model.epoch = 1
-- a new number next to the weights @ len(model.trainable_weights) @ @ model.history = 1.0
== a new weight @ len(model.trainable_weights) @ @ model.more = weight
== a weight in place of nothing @ len(model.trainable_weights) @ @ model.extra = weight
""",
    setup=MODEL,
)
table(
    "== a weight in a list @ len(model.trainable_weights) @ @ model.more.append(weight)",
    setup=f"{MODEL}model.more = []",
)
