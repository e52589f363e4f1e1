"""Sixty mistakes of newcomers with the messages for them: the table behind two pages.

``python -m tests.site.newcomer_mistakes`` writes the tables into the pages.
"""

import re
from typing import NamedTuple

from tests.structure.sources import ROOT

SETUP = """\
import numpy as np

import eagerflow as ef

x = ef.tensor([[1.0, 2.0], [3.0, 4.0]])
w = ef.Variable([1.0, 2.0], name="w")
X, Y = np.ones((6, 2), "float32"), np.ones((6, 1), "float32")
model = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(1)])
model.compile("sgd", "mse")
"""
"""What comes before each program."""


class Mistake(NamedTuple):
    """A program, the part of it that a page shows, and its message; ``…`` stands for left out text.

    ``before`` is the message of an earlier version, if it was another.
    """

    program: str
    shown: str
    message: str
    before: str = ""

    @property
    def row(self):
        """The row of a table in Markdown."""
        shown = ", ".join(f"`{line}`" for line in self.shown.split("\n"))
        cells = f"| {shown} | {_literals(self.message)} | {_literals(self.before)}".rstrip()
        return f"{cells} |"

    def misses(self, message):
        """The parts on the page that a whole message does not have in this order."""
        rest, missing = " ".join(message.split()), []
        parts = [part.strip() for part in self.message.split("…")]
        for part in filter(None, parts):
            _, found, after = rest.partition(part)
            if not found:
                missing.append(part)
            rest = after if found else rest
        return missing if missing or not parts[-1] else rest.split()


def _literals(message):
    """A message in which all but the marks of left out text is literal."""
    if message in ("", "no error", "without try"):
        return message
    parts = [part.strip() for part in message.split("…")]
    return " … ".join(f"`{part}`" if part else "" for part in parts).strip()


def with_tables(text):
    """The text of a page with the current table below each heading of a section."""
    for section, mistakes in SECTIONS.items():
        table = "\n".join(
            ["| mistake | message | before |", "|---|---|---|", *[m.row for m in mistakes]]
        )
        pattern = rf"(## {section}\n(?:[^|#]*\n)?)\|.*?\|\n(?=\n|\Z)"
        text = re.sub(pattern, lambda found, table=table: f"{found[1]}{table}\n", text, flags=re.S)
    return text


TABLE = """
## Names of other libraries
x.size()
= TypeError: 'int' object is not callable
---
x.view(4, 1)
= DTypeError: view: dtype: (4, 1) is not a dtype of eagerflow … try: several sizes are one tuple,
= (3, 4); x.reshape(shape) …
- TypeError: _view() takes 2 positional arguments but 3 were given
---
ef.ones(3, 3)
= DTypeError: ones: dtype: 3 is not a dtype of eagerflow … try: several sizes are one tuple, (3,
= 4); …
- without try
---
loss = ef.mean(x)
loss.backward()
> loss.backward()
= AttributeError: … here it is a tape: … gradients = tape.gradient(loss, model.trainable_weights)
= …
- AttributeError: … here it is ef.grad(f), or tape.gradient(y, x) of ef.GradientTape()
---
ef.tensor([1.0], requires_grad=True)
= KeywordError: tensor: there is no argument 'requires_grad' … try: ef.Variable(values), or
= tape.watch(x)
- TypeError: tensor() got an unexpected keyword argument 'requires_grad'
---
model.parameters()
= AttributeError: … here it is model.trainable_weights, or model.weights: each has a name
- AttributeError: 'Sequential' object has no attribute 'parameters'
---
model.train()
= AttributeError: … here it is the argument training of a call, as in model(x, training=True); fit
= and predict set …
- AttributeError: 'Sequential' object has no attribute 'train'
---
model.optimizer.step()
> optimizer.step()
= AttributeError: … here it is optimizer.apply(gradients, variables)
- AttributeError: 'SGD' object has no attribute 'step'
---
ef.nn.relu(x)
= AttributeError: … here it is ef.relu
- AttributeError: module 'eagerflow.nn' has no attribute 'relu'
---
model.to("cuda")
= AttributeError: … here it is with ef.device("gpu:0"): model = ..., as weights are made on the
= current device
- AttributeError: 'Sequential' object has no attribute 'to'
---
ef.no_grad()
> with ef.no_grad():
= AttributeError: … here it is nothing: without ef.GradientTape() nothing is recorded;
= ef.stop_gradient(x)
---
x[0] = 5.0
= DTypeError: Tensor.__setitem__: tensors cannot be changed in place try: y =
= x.at[index].set(value), or .add, .min ...; variable.assign(y)
- … try: y = x.at[index].set(value), or .add, .multiply, .min, .max
---
x.at[0] = 5.0
= DTypeError: at: tensors cannot be changed in place try: y = x.at[index].set(value)
- TypeError: '_At' object does not support item assignment
---
ef.constant([1.0])
= AttributeError: … here it is ef.tensor(values), or ef.asarray(array)
---
ef.nn.backend.clear_session()
> K = ef.nn.backend
= AttributeError: … here it is ef itself: ef.exp(x), ef.mean(x); nothing has to be cleared between
= models
- AttributeError: module 'eagerflow.nn' has no attribute 'backend'
---
class Net(ef.nn.Module):
    def forward(self, x):
        return x

Net()(x)
> def forward(self, x):
= ArgumentError: Net: an ef.nn.Module only holds Variables, so its forward is not called try:
= derive from ef.nn.Layer or ef.nn.Model, and rename forward to call
- TypeError: 'Net' object is not callable
---
ef.random.normal(0, (2, 2))
= ShapeError: random: offset: the value does not broadcast to the shape to draw … try: the shape
= to draw is the first argument, before parameters
- ShapeError: the shapes do not broadcast: (2,) and (0,) expected: sizes that are equal or 1,
- counted from the last axis
---
## Shapes
model(np.ones((6, 5)))
= ShapeError: InputLayer … inputs: the input has another shape than the model was made for … try:
= ef.nn.Input((5,)) at the head of a model for such examples
- without try
---
net = ef.nn.Sequential([ef.nn.Input((28, 28, 1)), ef.nn.Conv2D(4, 3)])
net(np.ones((8, 1, 28, 28)))
> net(images)  # (8, 1, 28, 28)
= ShapeError: InputLayer … inputs: the input has another shape than the model was made for … try:
= channels come last: ef.permute_dims(x, (0, 2, 3, 1))
- without try
---
ef.ones((2, 3)) @ ef.ones((2, 3))
= ShapeError: matmul: the inner dimensions differ: the last axis of x1 has size 3, the … try:
= ef.matmul(x1, x2.mT)
---
ef.ones((4, 3)) + ef.ones(4)
= ShapeError: add: the shapes do not broadcast: (4, 3) and (4,) … try: x[:, None] gives the
= shorter one an axis of size 1 at its end
- without try
---
ef.concat([ef.ones((2, 3)), ef.ones((2, 4))])
= ShapeError: concat: arrays[1]: the shapes differ in more than axis 0 … try: axis=1
- without try
---
## Dtypes
ef.tensor(["a", "b"])
= DTypeError: a list of texts is not a tensor, an array or a number … try: ef.nn.StringLookup or
= ef.nn.TextVectorization make integers of texts, …
- DTypeError: a list is not a tensor, an array or a number …
---
ef.tensor(np.array([1, None]))
= DTypeError: an array of dtype object is not a tensor, an array or a number … try:
= np.asarray(x).astype('float32') has nan in place of None
- without try
---
## Gradients
with ef.GradientTape() as tape:
    tape.watch(x)
loss = ef.sum(x * x)
tape.gradient(loss, x)
> loss = ...  # after the with block
= GradientError: tensor of shape (2, 2): the target does not depend on a source … try: with
= ef.GradientTape() as tape: loss = ..., all of it in the block
- … try: unconnected='zero' or 'none' where this is meant
---
with ef.GradientTape() as tape:
    loss = ef.sum(x * x)
tape.gradient(loss, x)
> tape.gradient(loss, x)  # x is not watched
= GradientError: … the target does not depend on a source … the source was not watched: call
= tape.watch(x), or use a trainable ef.Variable …
---
with ef.GradientTape() as tape:
    loss = ef.tensor(np.sum(w.numpy()))
tape.gradient(loss, w)
> np.sum(w.numpy())  # in the with block
= GradientError: w: the target does not depend on a source … a value computed from it left through
= numpy() … try: the functions of ef in place of those; …
- … try: unconnected='zero' or 'none' where this is meant
---
ef.grad(ef.sum)(ef.tensor([1, 2]))
= GradientError: there is no gradient with respect to int64 values … try: x = x.astype('float32')
= before it is watched
---
y = (x * 2).numpy()
y += 1
= ValueError: output array is read-only
---
w += 1
w.assign([1.0])
= AttributeError: … here it is a method of ef.Variable; w += 1 makes a tensor of it,
= variable.assign_add(1) changes …
- AttributeError: 'Tensor' object has no attribute 'assign'
---
## Captured functions
@ef.function
def f(x):
    return x * float(ef.mean(x))

f(x)
> float(ef.mean(x))
= CaptureError: float() needs a number that is not known while 'f' is traced … try: keep it a
= tensor; ef.fori_loop(0, n, body, init) in place of range(n); …
---
@ef.function
def f(x):
    return x if ef.sum(x) > 0 else -x

f(x)
> x if ef.sum(x) > 0 else -x
= CaptureError: bool() needs a number that is not known while 'f' is traced … try: ef.cond(value,
= true_fn, false_fn) in place of if, ef.while_loop in place of while, …
---
@ef.function
def f(x):
    print(f"{ef.sum(x):.2f}")
    return x

f(x)
> print(f"{ef.sum(x):.2f}")
= CaptureError: a format needs a number that is not known while 'f' is traced … try: ef ops in
= place of NumPy and Python; return the value and look at …
---
seen = []
@ef.function
def f(x):
    seen.append(ef.sum(x))
    return x

f(x)
> seen.append(ef.sum(x))
= CaptureError: a value of 'f' is kept outside of it: in a list named 'seen' … try: return it, or
= keep it in an ef.Variable with assign
---
count = 0
@ef.function
def f(x):
    global count
    count += 1
    return x * count

f(x)
f(x)
> count += 1
= CaptureError: f: the function itself changes values that it reads: global count changed from 1 …
= try: keep values that change between calls in an ef.Variable
---
@ef.function
def f(x):
    return x * ef.Variable(1.0)

f(x)
> x * ef.Variable(1.0)
= CaptureError: f: the function creates persistent state at every call … try: create it once,
= outside or if there is none yet, and keep it in …
---
@ef.function
def f(x):
    return x + np.random.rand()

f(x)
> x + np.random.rand()
= CaptureError: f: np.random.rand cannot be relied on: the numbers it returns would be the same …
= try: ef.random, whose state is a Variable, or draw outside and pass the numbers
---
## Training
net = ef.nn.Sequential([ef.nn.Dense(1)])
net.fit(X, Y)
> net.fit(X, Y)  # without compile
= ArgumentError: fit: the model is not compiled try: model.compile('adam', loss='mse',
= metrics=['accuracy'])
---
model.compile("adam", "mean_square_error")
= ArgumentError: loss: there is no 'mean_square_error' … try: 'mean_squared_error'
---
model.compile("adam", "mse", metrics=["acuracy"])
= ArgumentError: metric: there is no 'acuracy' … try: 'accuracy'
---
model.fit(X, Y, epoch=2)
= KeywordError: fit: there is no argument 'epoch' … try: epochs
- TypeError: Trainer.fit() got an unexpected keyword argument 'epoch'
---
model.fit(X, Y[:4])
= ShapeError: fit: y: the arrays hold different numbers of examples … expected: first axes of the
= same length
---
model.fit((X, Y))
= ShapeError: InputLayer … inputs: the layer takes one tensor … try: fit(x, y) for inputs and
= targets, in batches (x, y), as in (batch['x'], batch['y']) …
- AttributeError: 'tuple' object has no attribute 'shape'
---
model.fit(X, Y, validation_data=X)
= ArgumentError: … y: there are no targets … try: fit(x, y), and validation_data=(x, y)
- without try
---
model.fit(X[:0], Y[:0])
= ShapeError: fit: x: there are no examples … expected: at least one
---
model.fit(((X, Y) for _ in range(3)), epochs=2)
> model.fit(generator, epochs=2)
= ShapeError: fit: x: the iterable gave no batch try: an iterator ends after one epoch; a list or
= a DataLoader starts again
---
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(X, np.arange(6))
> model.fit(X, labels)  # Dense(1), labels 0 to 5
= IndexRangeError: gather: index 5 is out of range for axis 1 of length 1 … try: class numbers
= count from 0, and are below the units of the last layer; …
- without try
---
loss = ef.nn.losses.CategoricalCrossentropy()
loss([0, 1], x)
> CategoricalCrossentropy()([0, 1], x)
= ShapeError: categorical_crossentropy: targets and predictions have different shapes … try: for
= class numbers: SparseCategoricalCrossentropy, SparseCategoricalAccuracy, or ef.one_hot(y_true,
= 2)
---
loss = ef.nn.losses.SparseCategoricalCrossentropy()
loss(x, np.array([0, 1]))
> loss(y_pred, y_true)
= ShapeError: sparse_categorical_crossentropy: targets do not fit the predictions … try: targets
= come first: loss(y_true, y_pred)
- without try
---
ef.nn.optimizers.Adam(lr=0.1)
= KeywordError: Adam: there is no argument 'lr' … try: learning_rate
---
model(X, train=True)
= TypeError: Sequential … call: there is no argument 'train'; it takes inputs, training
- TypeError: Sequential.call() got an unexpected keyword argument 'train'
---
## Files, devices and data
model.save("model.pt")
= FileFormatError: save: model.pt: .pt stands for another format, PyTorch's … try:
= ef.nn.from_torch reads a state dict of PyTorch
- no error
---
ef.nn.load("model.ef")
= AttributeError: … here it is ef.nn.load_model(file)
- AttributeError: … here it is ef.capture.load(file), or np.load
---
model.load_weights("none.weights.h5")
= FileFormatError: none.weights.h5: the file cannot be read: No such file or directory try: check
= the path; folders are not made
- … [Errno 2] Unable to synchronously open file (unable to open file: name = …
---
model.save_weights("w.ef")
net = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(3)])
net.load_weights("w.ef")
> net.load_weights("w.ef")  # Dense(3), saved: Dense(1)
= FileFormatError: … the file does not fit the model … try: strict=False loads those that match
---
ef.device("cuda")
= DeviceError: there is no device type 'cuda' … try: 'gpu:0' for a GPU of NVIDIA; x.astype(dtype)
= for another dtype
- without try
---
x.to("gpu:0")
= DeviceError: there is no device 'gpu:0' … try: pip install 'eagerflow[cuda12]' (or cuda13, as
= the driver's CUDA version is), on a machine …
---
graph = ef.capture.trace(lambda x: {"y": x + 1}, ef.TensorSpec((2,), "float32"))
ef.capture.Session(graph).run("y", {"input": np.ones(2)})
> session.run("y", {"input": ...})
= SessionError: Session.run: feeds: there is no value named 'input' … try: x
- without try
---
import pandas as pd
model.predict(pd.DataFrame({"age": [1], "city": ["Oslo"]}))
> model.predict(frame)  # a column of texts
= DTypeError: columns hold no numbers … try: choose columns; ef.nn.StringLookup makes numbers of
= texts, .astype('float32') of Python's objects
- DTypeError: a DataFrame is not a tensor, an array or a number …
---
rows = ef.nn.Loader([np.ones(3), np.ones(4)], 2)
next(iter(rows))
> ef.nn.Loader(rows, 2)  # of 3 and 4 numbers
= ShapeError: Loader: the examples of a batch have different shapes … try: map=f cuts or pads an
= example; collate_fn=f makes a batch of a list of …
- … try: map=f, with a function that cuts or pads an example
---
"""
"""Programs; below each ``>`` what a page shows of it, ``=`` the message, ``-`` the earlier one."""


def _read(block):
    """The mistake that a block of the table tells."""
    parts = {mark: [] for mark in ("", ">", "=", "-")}
    for line in block.strip("\n").splitlines():
        mark = line[0] if line[:2] in ("> ", "= ", "- ") else ""
        parts[mark].append(line.removeprefix(f"{mark} ") if mark else line)
    program = "\n".join(parts[""]) + "\n"
    shown = "\n".join(parts[">"] or parts[""])
    return Mistake(program, shown, " ".join(parts["="]), " ".join(parts["-"]))


def _sections(table):
    """The mistakes of each section of the table."""
    found = {}
    for part in table.split("\n## ")[1:]:
        title, _, blocks = part.partition("\n")
        found[title] = [_read(block) for block in blocks.split("\n---") if block.strip()]
    return found


SECTIONS = _sections(TABLE)
PAGES = [ROOT / "docs" / name for name in ("newcomer-mistakes.md", "newcomer-mistakes-training.md")]

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
