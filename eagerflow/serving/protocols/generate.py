"""The generate extension: tokens that continue a prompt, at once or streamed.

Source: Triton Inference Server's generate extension; its inputs and outputs are the model's, here
tokens.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, DTypeError
from eagerflow.serving.errors import status_of
from eagerflow.serving.generation import Asked as Wanted
from eagerflow.serving.generation import Generation, decoder_of
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.protocols import inference
from eagerflow.serving.protocols.events import event
from eagerflow.serving.sampling import Sampling

__all__ = ["Asked", "answer", "events", "request"]

MAX_TOKENS = 1 << 20  # of a prompt, and of the output, where the model has no context size
MAX_STOPS = 64
_FIELDS = ("tokens", "max_tokens", "temperature", "top_k", "top_p", "seed", "stop")
_log = logging.getLogger("eagerflow.serving")


class Asked(NamedTuple):
    """The parsed body of a request; ``id`` is returned with the response."""

    generation: Wanted
    id: str | None


def request(told: Any, version: ModelVersion) -> Asked:
    """Parse the JSON body of a request to a decoder; the errors name the field.

    ``tokens`` are integers of the vocabulary, at least one. ``max_tokens`` more of them (16) are
    drawn as ``Sampling`` says, with a ``temperature`` of 1 by default, until one of the sequences
    ``stop`` has come: integers, or lists of integers. ``parameters`` may have ``timeout`` and
    ``priority``.
    """
    if not isinstance(told, dict):
        raise ArgumentError("the body is a JSON object", received=type(told).__name__)
    strange = told.keys() - {*_FIELDS, "id", "parameters"}
    if strange:
        _refuse(min(strange), told, "one of " + ", ".join((*_FIELDS, "id", "parameters")))
    decoder = decoder_of(version)
    vocabulary = int(version.signature.outputs[decoder.logits].shape[-1])
    tokens = _tokens(told.get("tokens"), vocabulary, "tokens")
    timeout, priority = inference.timing(inference.object_of(told, "parameters"))
    id = told.get("id")
    wanted = Wanted(
        tokens,
        _max_tokens(told, len(tokens), decoder.context),
        _sampling(told),
        _stop(told.get("stop", []), vocabulary),
        timeout,
        priority,
    )
    return Asked(wanted, None if id is None else str(id))


def _refuse(field: str, told: Any, expected: str) -> None:
    raise ArgumentError(
        f"there is no field {field[:80]!r}"
        if field not in (*_FIELDS, "id", "parameters")
        else f"{field} cannot be {told!r:.80}",
        op="generate",
        argument=field[:80],
        expected=expected,
    )


def _tokens(given: Any, vocabulary: int, field: str) -> list[int]:
    if not isinstance(given, list) or not 0 < len(given) <= MAX_TOKENS:
        _refuse(field, given, f"a list of 1 to {MAX_TOKENS:,} integers")
    for token in given:
        if type(token) is not int:
            raise DTypeError(
                "a token is not an integer",
                op="generate",
                argument=field,
                received=repr(token)[:80],
            )
        if not 0 <= token < vocabulary:
            _refuse(field, token, f"integers from 0 to {vocabulary - 1}")
    return list(given)


def _max_tokens(told: dict[str, Any], before: int, context: int | None) -> int:
    most = MAX_TOKENS if context is None else context - before
    if most < 1:
        _refuse("tokens", f"{before} tokens", f"fewer than the {context} of the model's context")
    given = told.get("max_tokens", min(16, most))
    if type(given) is not int or not 1 <= given <= most:
        behind = "" if context is None else f" behind {before} of a context of {context}"
        _refuse("max_tokens", given, f"an integer from 1 to {most:,}{behind}")
    return int(given)


def _sampling(told: dict[str, Any]) -> Sampling:
    temperature, top_p = told.get("temperature", 1.0), told.get("top_p", 1.0)
    top_k, seed = told.get("top_k"), told.get("seed")
    if not _is_number(temperature) or temperature < 0:
        _refuse("temperature", temperature, "a number of at least 0; 0 takes the most probable")
    if top_k is not None and (type(top_k) is not int or top_k < 1):
        _refuse("top_k", top_k, "an integer of at least 1")
    if not _is_number(top_p) or not 0 < top_p <= 1:
        _refuse("top_p", top_p, "a number above 0, up to 1")
    if seed is not None and (type(seed) is not int or not 0 <= seed < 1 << 64):
        _refuse("seed", seed, "an integer from 0 to below 2**64")
    return Sampling(float(temperature), top_k, float(top_p), seed)


def _is_number(given: Any) -> bool:
    return type(given) in (int, float) and math.isfinite(given)


def _stop(given: Any, vocabulary: int) -> tuple[tuple[int, ...], ...]:
    if not isinstance(given, list) or len(given) > MAX_STOPS:
        _refuse("stop", given, f"a list of up to {MAX_STOPS} tokens or lists of tokens")
    lists = [item if isinstance(item, list) else [item] for item in given]
    return tuple(tuple(_tokens(item, vocabulary, "stop")) for item in lists)


# Answers ------------------------------------------------------------------------------------------


def answer(asked: Asked, made: Generation, tokens: list[int]) -> dict[str, Any]:
    """The body of a response with all tokens."""
    return _head(asked, made) | {"tokens": tokens, "finish_reason": made.finish_reason}


def _head(asked: Asked, made: Generation) -> dict[str, Any]:
    version = made.batcher.version
    head = {"model_name": version.name, "model_version": str(version.number)}
    return head if asked.id is None else head | {"id": asked.id}


async def events(asked: Asked, made: Generation) -> AsyncIterator[bytes]:
    """An event for each token, then one named ``end``; or one named ``error``."""
    head, count = _head(asked, made), 0
    try:
        async for token in made.tokens():
            yield event(head | {"index": count, "token": token})
            count += 1
        yield event(head | {"finish_reason": made.finish_reason, "count": count}, "end")
    except Exception as error:
        if status_of(error) == 500:
            _log.exception("a generation failed")
        yield event(inference.error(error), "error")
