"""Models and weights in files: ``model.save``, ``ef.nn.load_model`` and related functions.

A file is in the safetensors format: weights and other state as tensors, the configuration of the
model and how it was compiled as JSON in the metadata. Nothing in it is ever executed.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from contextvars import Context, copy_context
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.errors import ArgumentError, EagerflowError, FileFormatError, printable
from eagerflow.files.endings import refuse_ending
from eagerflow.graph.graph import Graph
from eagerflow.handlers import raised_here
from eagerflow.nn import files, shards, state
from eagerflow.nn.base_layer import weights_asked
from eagerflow.nn.configuration import CustomObjects, missing_in, model_from_config, whole_config
from eagerflow.nn.configured import plain, with_custom_objects
from eagerflow.nn.foreign_weights import keras_weights
from eagerflow.nn.graph_reading import arguments_from
from eagerflow.nn.graph_writing import arguments_config
from eagerflow.nn.nests import free_batch
from eagerflow.nn.state import Misfits, fitted, refuse
from eagerflow.ops import random
from eagerflow.variable import assign_together

__all__ = ["load_model"]

VERSION = "1"  # of the files; a change that older versions cannot read needs a new one
_MODEL, _WEIGHTS = "eagerflow.model", "eagerflow.weights"


# Models -------------------------------------------------------------------------------------------


def save(model: Any, path: Any) -> None:
    """See ``Model.save``."""
    facts: dict[str, Any] = {}
    try:
        facts["model"] = whole_config(model, "save")
        if model._built_for.held is not None:
            facts["built_for"] = arguments_config(model._built_for.held, model.name)
    except raised_here(ArgumentError) as error:
        facts = {"missing": f"{error.problem}{f': {error.received}' if error.received else ''}"}
        _warn(f"{model.name!r} is saved without its configuration: {facts['missing']}")
    if model._compiled_with.held is not None:
        compiled = plain(model._compiled_with.held)
        missing = missing_in(compiled)
        if missing is None:
            facts["compile"] = compiled
        else:
            _warn(f"{model.name!r} is saved without some arguments of compile: {missing}")
    write_state(state.snapshot(model), path, facts | _of_weights(model), {}, "save")


def _of_weights(model: Any) -> dict[str, Any]:
    """The names of frozen weights, of those excluded from weight decay, and of groups."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    weights = model.named_weights().items()
    told = {
        "frozen": [name for name, w in weights if not w.trainable],
        "no_decay": [name for name, w in weights if optimizer and optimizer.is_excluded(w)],
        "groups": {
            name: list(group)
            for name, w in weights
            if optimizer and (group := optimizer.group_of(w)) != (None, None)
        },
    }
    return {key: names for key, names in told.items() if names}


_HINTS = {
    ".onnx": "model.export(path) writes the graph that predicts",
    ".py": "model.export(path) writes the graph that predicts",
    ".h5": "load_weights reads the .weights.h5 files of Keras",
    ".pt": "ef.nn.from_torch reads a state dict of PyTorch",
    ".pth": "ef.nn.from_torch reads a state dict of PyTorch",
    ".json": "model.to_json() is the architecture as text",
    ".npz": "np.savez(path, *model.get_weights())",
}


def refuse_path(path: Any, overwrite: bool, op: str) -> None:
    """Raise FileFormatError for endings of other formats, and for files not to be overwritten."""
    refuse_ending(path, op, _HINTS, ".safetensors" if op == "save_weights" else ".ef")
    if not overwrite and os.path.exists(path):
        raise FileFormatError(
            "a file of this name exists", op=op, argument=str(path), hint="overwrite=True"
        )


def write_state(
    arrays: Mapping[str, Any], path: Any, facts: Any, texts: Mapping[str, str], op: str
) -> None:
    """Write a file with the state of a model, with facts about it and further texts."""
    head = {"format": _MODEL, "version": VERSION, "model": json.dumps(facts)}
    files.write(path, {**head, **texts}, arrays, op)


def _warn(words: str) -> None:
    warnings.warn(f"{printable(words)}; load_model cannot rebuild it", stacklevel=4)


def load_model(path: Any, custom_objects: CustomObjects = None, compile: bool = True) -> Any:
    """The model in a file that ``model.save`` wrote: it predicts the same bits.

    ``custom_objects`` has the classes and functions from outside of ``ef.nn`` by name. With
    ``compile``, a compiled model is compiled again, with the optimizer's state, and the global
    random generator is restored, so that training resumes bit for bit. Nothing in the file is
    executed. Raises FileFormatError for a file that is damaged, of another format or from a newer
    version, and for one without a configuration.

    >>> from tempfile import TemporaryDirectory
    >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2)])
    >>> with TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.ef")
    ...     again = ef.nn.load_model(f"{folder}/model.ef")
    >>> bool((again(ef.ones((1, 4))) == model(ef.ones((1, 4)))).all())
    True
    """
    found = files.read(path, "load_model")
    facts = read_facts(found, path)
    if "model" not in facts:
        raise FileFormatError(
            "the file has the weights of a model, but no configuration",
            op="load_model",
            argument=str(path),
            received=printable(str(facts.get("missing", ""))[:300]),
            hint="make the model in code, and then model.load_weights(path)",
        )
    before = random.default_generator.state.value
    try:
        model = _within(found.arrays, custom_objects, facts, compile)
        state.restore(model, found.arrays, compile and model.optimizer is not None)
    except FileFormatError as error:
        error.op, error.argument = error.op or "load_model", error.argument or str(path)
        random.default_generator.state.assign(before)
        raise
    if model.optimizer is None:
        random.default_generator.state.assign(before)
    return model


def holds_model(path: Any) -> bool:
    """Whether there is a file written by ``model.save``."""
    try:
        return files.read(path, "load_model").texts.get("format") == _MODEL
    except raised_here(FileFormatError):
        return False


def read_facts(found: files.Contents, path: Any) -> dict[str, Any]:
    """The description of a model in a file; FileFormatError for other files."""
    version = found.texts.get("version")
    if found.texts.get("format") != _MODEL:
        raise FileFormatError(
            "the file holds tensors, but no model",
            op="load_model",
            argument=str(path),
            expected="a file that model.save wrote",
            hint="model.load_weights(path) for weights, ef.capture.load(path) for graphs",
        )
    if version != VERSION:
        raise FileFormatError(
            f"the file has an unsupported version of the format: {str(version)[:20]!r}",
            op="load_model",
            argument=str(path),
            expected=f"version {VERSION!r}",
            hint="update eagerflow",
        )
    facts = files.loads(found.texts.get("model", ""))
    if not isinstance(facts, dict):
        raise FileFormatError(
            "the file does not describe a model", op="load_model", argument=str(path)
        )
    return facts


def _within(arrays: Any, objects: CustomObjects, facts: Any, compile: bool) -> Any:
    """The model described by a file, without more weights than the file has."""
    left = sum(array.size for name, array in arrays.items() if name.startswith("weights/"))

    def asked(shape: tuple[int, ...], name: str) -> None:
        nonlocal left
        left -= math.prod(shape)
        if left < 0:
            raise FileFormatError(
                "the layers have more weights than the file", received=printable(name[:100])
            )

    context: Context = copy_context()
    context.run(weights_asked.set, asked)
    try:
        return context.run(with_custom_objects, objects or {}, _made, facts, compile)
    except FileFormatError:
        raise
    except raised_here(EagerflowError) as error:
        raise FileFormatError(
            f"the file does not describe a model: {printable(f'{error.op}: {error.problem}'):.300}",
            received=error.received,
            expected=None if error.expected is None else error.expected[:1000],
            hint=error.hint,
        ) from error
    except raised_here(Exception) as error:  # constructors may meet anything
        raise FileFormatError(
            f"the file does not describe a model: {printable(str(error))[:300]}"
        ) from error


def _made(facts: Mapping[str, Any], compile: bool) -> Any:
    model = model_from_config(facts["model"])
    if not model.built and "built_for" in facts:
        args, kwargs = arguments_from(facts["built_for"], model.name)
        model(*args, **kwargs)
    weights = model.named_weights().items()
    frozen, no_decay = (frozenset(facts.get(key, ())) for key in ("frozen", "no_decay"))
    groups = dict(facts.get("groups", {}))
    for name, weight in weights:
        if name in frozen:
            weight.trainable = False
    if compile and "compile" in facts:
        model.compile(**facts["compile"])
        if no_decay:
            excluded = [weight for name, weight in weights if name in no_decay]
            model.optimizer.exclude_from_weight_decay(excluded)
        for name, weight in weights:
            if name in groups:
                model.optimizer.add_group(weight, *groups[name])
    return model


# Weights ------------------------------------------------------------------------------------------


def save_weights(model: Any, path: Any) -> None:
    """See ``Model.save_weights``."""
    if not model.built:
        raise ArgumentError(
            f"{model.name!r} has no weights yet",
            op="save_weights",
            hint="call the model, or put ef.nn.Input(shape) at its head",
        )
    arrays = {name: weight.numpy() for name, weight in model.named_weights().items()}
    files.write(path, {"format": _WEIGHTS, "version": VERSION}, arrays, "save_weights")


def load_weights(model: Any, path: Any, strict: bool = True) -> Misfits:
    """See ``Model.load_weights``."""
    wanted = model.named_weights()
    if str(path).endswith((".h5", ".hdf5")):
        arrays = keras_weights(model, wanted, path)
    else:
        found = shards.read(path, "load_weights")
        arrays = _weights_in(found)
    values, misfits = fitted(wanted, arrays)
    if strict:
        unbuilt = "call the model on an input first, so that it has weights"
        refuse(misfits, model.name, "strict=False loads those that match" if wanted else unbuilt)
    assign_together(values)
    return misfits


def _weights_in(found: files.Contents) -> dict[str, np.ndarray[Any, Any]]:
    if found.texts.get("format") != _MODEL:
        return found.arrays
    parts = {
        name.partition("weights/")[2]: a
        for name, a in found.arrays.items()
        if name[:8] == "weights/"
    }
    return parts


# Graphs -------------------------------------------------------------------------------------------


def prediction_graph(model: Any) -> Graph:
    """See ``Model.prediction_graph``."""
    from eagerflow.capture import trace  # imported when a graph is first requested

    args = _specs(model)
    if len(args) == 1:  # its name is in the graph, without a number
        return trace(lambda inputs: model(inputs, training=False), *args, name=model.name)
    return trace(lambda *inputs: model(*inputs, training=False), *args, name=model.name)


def export(model: Any, path: Any, format: str | None = None) -> None:
    """See ``Model.export``."""
    from eagerflow.capture.saving.formats import format_of, write  # likewise

    format = format_of(path, format)
    write(prediction_graph(model), path, format)


def _specs(model: Any) -> tuple[Any, ...]:
    """Specs of the model's inputs, with a free batch axis."""
    if model.graph is not None:
        specs = [value.spec for value in model.graph.inputs]
        return (tree.unflatten(model.graph.argument_structure, specs),)
    if model._ends.held:
        return (free_batch(model._ends.held[0]),)
    if model._built_for.held is None:
        raise ArgumentError(
            "the model has not been called, so the shape of its input is not known",
            op="export",
            hint="call the model, or put ef.nn.Input(shape) at its head",
        )
    args: tuple[Any, ...] = free_batch(model._built_for.held[0])
    return args
