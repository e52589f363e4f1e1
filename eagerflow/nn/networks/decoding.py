"""Language models as graphs of one step with state, for token-by-token serving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow import ops, tree
from eagerflow.capture.trace import trace
from eagerflow.dims import Dim
from eagerflow.errors import ArgumentError
from eagerflow.graph.graph import Graph
from eagerflow.graph.state import declared
from eagerflow.nn.arguments import is_count, require
from eagerflow.nn.layers.cells import initial_state
from eagerflow.nn.layers.key_value_cache import KeyValueRows
from eagerflow.nn.layers.recurrent import Recurrent
from eagerflow.nn.model import Model
from eagerflow.nn.networks.gpt import GPT
from eagerflow.nn.sequential import Sequential
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["decoding_graph"]

Step = Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]
"""A function from tokens and state to logits and new state."""


def decoding_graph(model: Model, context: int | None = None) -> Graph:
    """The graph of a step of a language model: logits and new state for tokens of each row.

    ``model`` is a ``GPT``, or a ``Sequential`` of an embedding, recurrent layers and others that
    process single tokens, such as ``lstm_language_model``. Inputs are ``tokens``, int64, and the
    state; outputs are ``logits`` (batch, vocabulary) and the state after the tokens. Tokens are
    (batch, length) for a GPT, any number of each row's next ones, and (batch,) for others. Rows
    have separate positions. The state of a GPT has room for ``context`` tokens, by default the
    model's. The graph records which inputs and outputs are state, also in its file, so that
    ``eagerflow serve`` can generate with it. Raises ArgumentError for other models and contexts.

    >>> gpt = ef.nn.networks.GPT(vocabulary=50, context=16, width=8, depth=1, heads=2)
    >>> graph = ef.nn.networks.decoding_graph(gpt)
    >>> graph.inputs.names
    ('tokens', 'position', 'keys_0', 'values_0')
    >>> graph.state.pairs["keys_0"], graph.state.decoder
    ('keys_0_next', Decoder(tokens='tokens', logits='logits', context=16))
    """
    if isinstance(model, GPT):
        most = model.context if context is None else context
        require(
            is_count(most) and most <= model.context,
            most,
            "not a number of tokens",
            "decoding_graph",
            "context",
            f"an integer from 1 to {model.context}",
        )
        specs, step = _of_gpt(model, most)
        begin: dict[str, Any] = {}
    else:
        require(context is None, context, "not for recurrent models", "decoding_graph", "context")
        most, (specs, step, begin) = None, _of_layers(model)

    def decode(tokens: Tensor, *state: Tensor) -> dict[str, Tensor]:
        logits, after = step(tokens, list(state))
        return {"logits": logits} | {
            f"{spec.name}_next": x for spec, x in zip(specs, after, strict=True)
        }

    shape = (Dim("batch"), Dim("length")) if isinstance(model, GPT) else (Dim("batch"),)
    graph = trace(decode, TensorSpec(shape, "int64", "tokens"), *specs, name=model.name)
    pairs = {name: (f"{name}_next", *begin.get(name, ())) for name in (str(s.name) for s in specs)}
    fields = {"tokens": "tokens", "logits": "logits", "context": most}
    graph.state = declared(graph, pairs, fields)
    return graph


def _of_gpt(model: GPT, context: int) -> tuple[list[TensorSpec], Step]:
    rows = Dim("batch")
    specs = [TensorSpec((rows,), "int64", "position")]
    for i, block in enumerate(model.blocks):
        cache = block.attention.make_cache(1, context)
        for name, variable in (("keys", cache.keys), ("values", cache.values)):
            shape = (rows, *variable.shape[1:])
            specs.append(TensorSpec(shape, variable.dtype, f"{name}_{i}"))

    def step(tokens: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        position, *kept = state
        caches = [KeyValueRows(*kept[i : i + 2]) for i in range(0, len(kept), 2)]
        at = position[:, None]
        logits = model(tokens, caches=caches, position=at, training=False)[:, -1]
        after = [x for cache in caches for x in (cache.keys, cache.values)]
        return logits, [ops.add(position, tokens.shape[1]), *after]

    return specs, step


def _of_layers(model: Any) -> tuple[list[TensorSpec], Step, dict[str, Any]]:
    rows = Dim("batch")
    recurrent = [x for x in getattr(model, "layers", ()) if isinstance(x, Recurrent)]
    if not isinstance(model, Sequential) or not recurrent or any(x.go_backwards for x in recurrent):
        raise ArgumentError(
            f"{type(model).__name__} cannot be computed token by token",
            op="decoding_graph",
            argument="model",
            expected="a GPT, or a Sequential with recurrent layers, none of which goes backwards",
        )
    first = [initial_state(layer.cell, 1, layer.compute_dtype) for layer in recurrent]
    leaves, structure = tree.flatten(first)
    specs = [TensorSpec((rows, *x.shape[1:]), x.dtype, f"state_{i}") for i, x in enumerate(leaves)]
    begin = {str(s.name): (x[0],) for s, x in zip(specs, leaves, strict=True) if bool(ops.any(x))}

    def step(tokens: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        before, after, x = iter(tree.unflatten(structure, state)), [], tokens[:, None]
        for layer in model.layers:
            if isinstance(layer, Recurrent):
                y, new = layer.cell(x[:, 0], next(before), training=False)
                x = y[:, None]
                after.append(new)
            else:
                x = layer(x, training=False)
        return x[:, 0], tree.flatten(after)[0]

    return specs, step, begin
