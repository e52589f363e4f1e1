"""Graphs in files: ``graph.save(path)`` and ``ef.capture.load(path)``.

A file is in the safetensors format: tensors as tensors, the graph as text in the metadata.
Nothing in it is ever run, and an invalid file causes a FileFormatError.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eagerflow.capture.gradient import gradient
from eagerflow.capture.saving import signatures as named
from eagerflow.capture.saving.decoding import Decoder, Entry
from eagerflow.capture.saving.encoding import Encoder
from eagerflow.capture.saving.examples import ExampleRows, made
from eagerflow.capture.saving.examples import encode as encode_examples
from eagerflow.capture.saving.layout import FORMAT
from eagerflow.capture.saving.states import StateText
from eagerflow.capture.saving.states import encode as encode_state
from eagerflow.convert import from_array
from eagerflow.dtypes import DType
from eagerflow.errors import (
    EagerflowError,
    FileFormatError,
    OutOfMemoryError,
    SessionError,
    printable,
    short_repr,
)
from eagerflow.files.atomic import as_path, refuse, write_whole
from eagerflow.files.container import (
    Container,
    Place,
    as_array,
    concatenated,
    fail,
    finished,
    pack,
    parse,
    shape_as,
)
from eagerflow.files.endings import refuse_ending
from eagerflow.graph.check import check
from eagerflow.graph.graph import Example, Graph, graph_method
from eagerflow.graph.state import State, declared
from eagerflow.guard import OpenFile
from eagerflow.handlers import raised_here
from eagerflow.recorder import with_recorder
from eagerflow.variable import Variable

Fill = Callable[[int, memoryview], int]
"""``fill(start, memory)`` copies bytes of a file into memory and returns their number."""
Take = Callable[[int, Place, DType], Any]
"""``take(start, place, dtype)`` returns an array of a file from a byte offset."""


# Saving ------------------------------------------------------------------------------------------


_HINTS = {
    ".onnx": "ef.capture.export_onnx(graph, path)",
    ".py": "ef.capture.export_python(graph, path)",
}


@graph_method
def save(
    self: Graph,
    path: str | os.PathLike[str],
    *,
    gradients: tuple[Any, Any] | None = None,
    examples: Iterable[Any] | None = None,
    signatures: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    decoder: Mapping[str, Any] | None = None,
) -> None:
    """See ``Graph.save``."""
    name = as_path(path)
    refuse_ending(name, "save", _HINTS, ".ef")
    try:
        graph = self if gradients is None else gradient(self, *_pair(gradients))
        check(graph)
        given = graph.examples if examples is None else with_recorder(None, made, graph, examples)
        called = named.made(graph, self.signatures if signatures is None else signatures)
        known = _state(graph, state, decoder)
        write_whole(name, with_recorder(None, lambda: _pieces(graph, given, called, known)))
    except FileFormatError as error:
        _tell(error, "save", name)
        raise


def _pair(gradients: Any) -> tuple[Any, Any]:
    if not isinstance(gradients, tuple) or len(gradients) != 2:
        raise SessionError(
            f"{short_repr(gradients)} does not describe gradients to save",
            op="save",
            expected='targets and sources, such as gradients=("loss", ["w", "b"])',
        )
    return gradients


def _state(graph: Graph, pairs: Any, decoder: Any) -> State | None:
    """The state to save: that of this call, else the graph's own."""
    if pairs is None and decoder is None:
        return graph.state
    found: State = with_recorder(None, declared, graph, pairs, decoder)
    return found


def _pieces(
    graph: Graph, examples: Sequence[Example], signatures: named.Signatures, state: State | None
) -> list[Any]:
    encoder = Encoder()
    encoder.graph(graph)
    texts = {"format": "eagerflow", "graph": encoder.text(), "version": FORMAT}
    if examples:
        texts["examples"] = encode_examples(examples, encoder)
    if signatures:
        texts["signatures"] = named.encode(signatures)
    if state is not None:
        texts["state"] = encode_state(state, encoder)
    return list(pack(texts, {name: t.numpy() for name, t in encoder.tensors.items()}))


def encode(graph: Graph) -> bytes:
    """The contents of the file of a graph."""
    return concatenated(with_recorder(None, _own_pieces, graph))


def _own_pieces(graph: Graph) -> list[Any]:
    return _pieces(graph, graph.examples, graph.signatures, graph.state)


def write_open(graph: Graph, file: io.FileIO) -> None:
    """Write the file of a graph to an open file, at its current position."""
    for piece in with_recorder(None, _own_pieces, graph):
        left = memoryview(piece)
        while left:
            left = left[file.write(left) :]


# Loading -----------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file written by ``graph.save``, with new Variables that hold saved values.

    ``path`` is a file name; links are followed. Nothing in the file is run, and none of the
    original code is needed. Devices that do not exist here are replaced
    by the current one. Raises FileFormatError for a file that is
    damaged, of another format or from a newer version, or that cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> w = ef.Variable([2.0, 3.0], name="w")
    >>> graph = ef.capture.trace(lambda x: ef.tanh(x * w), ef.TensorSpec((2,), "float32"))
    >>> with TemporaryDirectory() as folder:
    ...     graph.save(f"{folder}/model.ef")
    ...     ef.capture.load(f"{folder}/model.ef").variables
    {'w': Variable([2., 3.], name='w', float32, cpu:0)}
    """
    name = as_path(path)
    try:
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        # Non-blocking, so that a pipe without a writer is opened at once, and then rejected.
        opened = OpenFile(name, flags | getattr(os, "O_NONBLOCK", 0))
        with opened, io.FileIO(opened.fd, closefd=False) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                fail("it is a pipe or a device", expected="a file that graph.save wrote")
            return with_recorder(None, read_graph, found.st_size, _reader(file))  # type: ignore[no-any-return]
    except FileFormatError as error:
        _tell(error, "load", name)
        raise
    except raised_here(OSError) as error:
        refuse(error, "read", name)


def _reader(file: io.FileIO) -> Fill:
    def fill(start: int, memory: memoryview) -> int:
        file.seek(start)
        done = 0
        while done < len(memory) and (count := file.readinto(memory[done:])):
            done += count
        return done

    return fill


def decode(data: bytes) -> Graph:
    """The graph of a file that holds these bytes."""
    graph: Graph = with_recorder(None, read_graph, len(data), _memory_reader(memoryview(data)))
    return graph


def _memory_reader(whole: memoryview) -> Fill:
    def fill(start: int, memory: memoryview) -> int:
        part = whole[start : start + len(memory)]
        memory[: len(part)] = part
        return len(part)

    return fill


def map_open(file: io.FileIO) -> Graph:
    """The graph in an open file, with tensors mapped from the file's pages.

    Processes that map one file share its memory. The file must not be changed
    afterwards. Raises FileFormatError as ``load`` does.
    """
    # All is read from the mapping: processes that share an open file share its position.
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def take(start: int, place: Place, dtype: DType) -> Any:
        shape = shape_as(place, dtype)
        return np.frombuffer(memory, dtype, math.prod(shape), start).reshape(shape)

    graph: Graph = with_recorder(
        None, read_graph, len(memory), _memory_reader(memoryview(memory)), take
    )
    return graph


def _tell(error: FileFormatError, op: str, path: str) -> None:
    error.op, error.argument = error.op or op, error.argument or path


def read_graph(size: int, fill: Fill, take: Take | None = None) -> Graph:
    """The graph in a file of ``size`` bytes, which ``fill`` reads."""
    take = take or partial(_copied, fill)

    def read(start: int, count: int) -> bytes | bytearray:
        memory = bytearray(count)
        _fill_all(fill, start, memoryview(memory))
        return memory

    try:
        container = parse(size, read)
        decoder = Decoder(_graph_text(container))
        graph = decoder.graph()
        text = container.texts.get("examples")
        examples = None if text is None else ExampleRows(text, graph, container)
        text = container.texts.get("state")
        state = None if text is None else StateText(text, graph, container)
        others = [name for part in (examples, state) if part for name in part.tensors]
        if len(set(others)) < len(others):
            fail("a tensor belongs to an example and to the state")
        tensors = list(_tensors(container, decoder, take, others))
        decoder.fill(tensors, _variable)
        del tensors
        _keeps_rules(graph)
        if examples is not None:
            graph.examples = examples.read(lambda entry: _tensor(container, entry, take))
        if "signatures" in container.texts:
            graph.signatures = named.decode(container.texts["signatures"], graph)
        if state is not None:
            graph.state = state.read(lambda entry: _tensor(container, entry, take))
    except FileFormatError:
        raise
    except raised_here(MemoryError) as error:
        raise OutOfMemoryError("there is too little memory for the graph", op="load") from error
    except raised_here(EagerflowError) as error:
        raise FileFormatError(
            f"the graph breaks a rule: {_short(error.problem)}",
            received=_short(error.received),
            expected=_short(error.expected),
            at=_short(error.at),
        ) from error
    return graph


def _keeps_rules(graph: Graph) -> None:
    try:
        check(graph)
    except raised_here(EagerflowError, MemoryError):
        raise
    except raised_here(Exception) as error:
        # rules of ops, including foreign ones, may raise any error
        fail(f"the graph breaks a rule: {_short(str(error))}")


def _short(words: str | None) -> str:
    """A message about names in a file, shortened to one line."""
    return printable((words or "")[:300])


def _graph_text(container: Container) -> str:
    texts = container.texts
    if "graph" not in texts or texts.get("format") != "eagerflow":
        fail(
            "the file holds tensors, but no graph",
            received=", ".join([short_repr(x) for x in list(container.places)[:5]]) or "no tensors",
            expected="a file that graph.save wrote",
        )
    if texts.get("version") != FORMAT:
        fail(
            "the file has an unsupported version of the format",
            received=f"version {short_repr(texts.get('version'))}",
            expected=f"version {FORMAT}",
            hint="update eagerflow",
        )
    return texts.pop("graph")


def _tensors(
    container: Container, decoder: Decoder, take: Take, others: Sequence[str]
) -> Iterator[Any]:
    """The tensors of a graph, each read once; Variables share none.

    ``others`` are tensors of the file that do not belong to the graph.
    """
    wanted = decoder.wanted()
    own = {entry.tensor for entry in wanted}
    strange = container.places.keys() - own - set(others)
    if strange or decoder.unused or own.intersection(others):
        fail("the file holds tensors that no graph uses")
    known: dict[str, tuple[int, Entry, Any]] = {}
    for i, entry in enumerate(wanted):
        if entry.tensor not in known:
            known[entry.tensor] = i, entry, _tensor(container, entry, take)
        first, before, tensor = known[entry.tensor]
        if before != entry or (first < i and first < decoder.variables):
            fail(f"the tensor {short_repr(entry.tensor)} is used in two ways")
        yield tensor


def _tensor(container: Container, entry: Entry, take: Take) -> Any:
    place = container.places.get(entry.tensor)
    if place is None:
        fail(f"the file has no tensor {short_repr(entry.tensor)}")
    shape = shape_as(place, entry.dtype)
    if shape != entry.shape:
        fail(
            f"the tensor {short_repr(entry.tensor)} has another shape than the graph says",
            received=str(shape),
            expected=str(entry.shape),
        )
    array = take(container.begin + place.start, place, entry.dtype)
    return from_array(finished(array), entry.device)


def _copied(fill: Fill, start: int, place: Place, dtype: DType) -> Any:
    """An array of a file, in memory of its own."""
    array = as_array(place, dtype)
    if array.nbytes:
        _fill_all(fill, start, array.reshape(-1).view("uint8").data)
    return array


def _fill_all(fill: Fill, start: int, memory: memoryview) -> None:
    if fill(start, memory) < len(memory):
        fail("the file was cut off while it was read")


def _variable(tensor: Any, name: str, trainable: bool, random: bool) -> Variable:
    variable = Variable(tensor, name, trainable)
    variable.name = name
    variable.is_random_state = random
    return variable
