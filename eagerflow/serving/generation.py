"""Text generation: sequences that advance token by token, many in each step.

A new sequence joins at the next step, a finished one leaves; no step waits for a sequence.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.graph.state import Decoder
from eagerflow.serving.batching import Batcher
from eagerflow.serving.errors import UnavailableError
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.sampling import Sampler, Sampling
from eagerflow.serving.sequences import Sequence
from eagerflow.serving.stepping import SequenceBatcher

__all__ = ["Asked", "Generation", "decoder_of"]


class Asked(NamedTuple):
    """The parameters of a generation: prompt, number of tokens, sampling, stop sequences.

    Generation ends with the first of the sequences ``stop``, which is included. ``timeout`` limits
    the seconds until it begins; a smaller ``priority`` goes first.
    """

    tokens: list[int]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop: tuple[tuple[int, ...], ...] = ()
    timeout: float | None = None
    priority: int = 0


def decoder_of(version: ModelVersion) -> Decoder:
    """The decoder settings of a version; ArgumentError for other versions."""
    state = version.signature.state
    if state is None or state.decoder is None:
        raise ArgumentError(
            f"{version.name!r} is not a decoder: it cannot generate",
            hint="graph.save(path, state=..., decoder=...) declares the tokens and logits",
        )
    return state.decoder


class Generation:
    """A running generation: ``start`` takes a slot, ``tokens`` yields tokens, ``end`` ends it.

    ``finish_reason`` is ``"stop"`` or ``"length"`` once all tokens are generated.
    """

    def __init__(self, batcher: Batcher, asked: Asked) -> None:
        decoder = decoder_of(batcher.version)
        assert isinstance(batcher, SequenceBatcher)  # as versions with state have
        self.batcher = batcher
        self.asked = asked
        self.finish_reason: str | None = None
        signature = batcher.version.signature
        self._spec = signature.inputs[decoder.tokens]
        self._places = signature.outputs_of([decoder.logits])
        self._arrived = time.monotonic()
        self._sequence: Sequence | None = None
        self._has_slot = False

    async def start(self) -> None:
        """Wait for a slot; raises BusyError, LateError or UnavailableError."""
        batcher, asked = self.batcher, self.asked
        if not batcher.is_open:
            raise UnavailableError(
                f"{batcher.version!r} is shutting down", hint="send the request again"
            )
        await batcher.slots.take(batcher.version.name, asked.timeout, asked.priority)
        self._has_slot = True
        try:
            self._sequence = batcher.begin()
            self._sequence.pending += 1
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Free the slot and the state at once."""
        sequence, self._sequence = self._sequence, None
        if sequence is not None:
            sequence.pending -= 1
            self.batcher.sequences.end(sequence, "its generation has ended")
        if self._has_slot:
            self._has_slot = False
            self.batcher.slots.give_back()

    async def tokens(self) -> AsyncIterator[int]:
        """The tokens, one by one as they are generated."""
        asked, sampler = self.asked, Sampler(self.asked.sampling)
        made: list[int] = []
        parts = self._parts(asked.tokens)
        for part in parts[:-1]:
            await self._step(part, lambda outputs: None)
        part = parts[-1]
        metrics = self.batcher.metrics
        while self.finish_reason is None:
            token = await self._step(part, partial(_drawn, sampler))
            if metrics is not None:
                metrics.generated()
                if not made:
                    metrics.first_token(time.monotonic() - self._arrived)
            made.append(token)
            part = [token]
            if any(tuple(made[-len(stop) :]) == stop for stop in asked.stop):
                self.finish_reason = "stop"
            elif len(made) == asked.max_tokens:
                self.finish_reason = "length"
            if self.finish_reason is not None:
                self.batcher.count(time.monotonic() - self._arrived)
            yield token

    async def all_tokens(self) -> list[int]:
        """All tokens, when the generation is finished."""
        return [token async for token in self.tokens()]

    def _parts(self, tokens: list[int]) -> list[list[int]]:
        """The prompt in chunks: powers of two, always the same ones for the same length."""
        found, at = [], 0
        for size in reversed(self.batcher.lengths):
            while len(tokens) - at >= size:
                found.append(tokens[at : at + size])
                at += size
        return found

    async def _step(self, tokens: list[int], then: Any) -> Any:
        assert self._sequence is not None
        array = np.asarray(tokens, self._spec.dtype)
        shape = (1, *[len(tokens)] * (len(self._spec.shape) - 1))
        return await self.batcher.advance(
            self._sequence,
            [as_tensor(array.reshape(shape))],
            self._places,
            priority=self.asked.priority,
            then=then,
        )


def _drawn(sampler: Sampler, outputs: list[Any]) -> int:
    """Draw the next token from the logits of a row, or of its last position."""
    (logits,) = outputs
    return sampler.draw(logits.reshape(-1, logits.shape[-1])[-1])
