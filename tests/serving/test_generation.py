"""Tokens that are generated together are those that are generated alone, and answers say so."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.graph.state import declared
from eagerflow.serving import Batching, BusyError, LateError, ModelVersion, SequenceLimits
from eagerflow.serving.generation import Asked, Generation
from eagerflow.serving.sampling import Sampler, Sampling
from eagerflow.serving.sequences import Sequences
from eagerflow.serving.slots import Slots
from eagerflow.serving.stepping import SequenceBatcher
from tests.internals import free_places
from tests.serving.test_batching import run

VOCABULARY = 7
DECODER = {"tokens": "token", "logits": "logits"}


def hashing(lengths=False):
    """A decoder whose logits are small integers that depend on every token before.

    It computes in integers, so that neither batches nor parts of a prompt change a bit. With
    ``lengths`` it takes several tokens of a sequence at once, and gives logits for the last.
    """

    def after(key, token):
        return (key * 31 + token + 1) % 65_537

    def decode(token, key):
        if lengths:
            powers = 31 ** (token.shape[1] - 1 - ef.nn.layers.positions.places(token, 1))
            key = (key * 31 ** token.shape[1] + ef.sum((token + 1) * powers, axis=1)) % 65_537
        else:
            key = after(key, token)
        logits = (key[:, None] * ef.tensor([3, 5, 7, 11, 13, 17, 19]) % 23).astype("float32")
        return {"logits": logits * 0.25, "key_next": key}

    shape = ("batch", "length") if lengths else ("batch",)
    graph = ef.capture.trace(
        decode, ef.TensorSpec(shape, "int64"), ef.TensorSpec(("batch",), "int64")
    )
    graph.state = declared(graph, {"key": "key_next"}, DECODER)
    return graph


def plain(asked):
    """The tokens, by a loop without batches."""
    key, sampler, made = 0, Sampler(asked.sampling), []
    for token in asked.tokens:
        key = (key * 31 + token + 1) % 65_537
    while len(made) < asked.max_tokens:
        logits = key * np.asarray([3, 5, 7, 11, 13, 17, 19]) % 23 * 0.25
        made.append(sampler.draw(logits.astype("float32")))
        if any(tuple(made[-len(stop) :]) == stop for stop in asked.stop):
            break
        key = (key * 31 + made[-1] + 1) % 65_537
    return made


TOKENS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9)
ASKED = st.builds(
    Asked,
    TOKENS,
    st.integers(1, 12),
    st.builds(
        Sampling,
        st.sampled_from([0.0, 0.7, 3.0]),
        st.none() | st.integers(1, 8),
        st.sampled_from([1.0, 0.8, 0.1]),
        st.integers(0, 2**64 - 1),
    ),
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
    st.none(),
    st.integers(0, 1),
)
GRAPHS = {lengths: hashing(lengths) for lengths in (False, True)}


def batcher_of(lengths=False, rows=4, slow=False, **limits):
    version = ModelVersion("hashing", 1, GRAPHS[lengths], "exact")
    assert lengths or version.signature.batch == "batch"
    version.seconds = 1.0 if slow else 0.0
    sequences = Sequences("hashing", SequenceLimits(**limits))
    return SequenceBatcher(version, Batching(rows), None, sequences)


async def generate(batcher, asked, delay=0.0):
    await asyncio.sleep(delay)
    made = Generation(batcher, asked)
    await made.start()
    try:
        return await made.all_tokens(), made.finish_reason
    finally:
        made.end()


@settings(max_examples=40, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=9), st.booleans(), st.sampled_from([1, 3, 4]))
def test_together_as_alone(jobs, lengths, rows):
    batcher = batcher_of(lengths, rows)

    async def go():
        return await asyncio.gather(
            *(generate(batcher, asked, 0.001 * (i % 3)) for i, asked in enumerate(jobs))
        )

    for asked, (tokens, reason) in zip(jobs, run(go()), strict=True):
        assert tokens == plain(asked)
        stopped = any(tuple(tokens[-len(stop) :]) == stop for stop in asked.stop)
        assert reason == ("stop" if stopped else "length")
    assert not batcher.sequences.of(batcher) and batcher.running == 0


def test_sequences_join_and_leave_between_steps():
    batcher, sizes = batcher_of(), []
    compute = batcher.version.compute
    batcher.version.compute = lambda inputs, places: (
        sizes.append(len(inputs[0])) or compute(inputs, places)
    )
    lengths = [2, 9, 5, 5, 3, 7]

    async def go():
        return await asyncio.gather(
            *(generate(batcher, Asked([1], n, Sampling())) for n in lengths)
        )

    run(go())
    assert sizes[0] == 4 and max(sizes) == 4
    # All in 31 rows; padded to sizes with a plan, and the last alone.
    assert sum(lengths) <= sum(sizes) <= sum(lengths) + 8


def test_prompts_take_no_more_of_a_step_than_sequences_do():
    batcher = batcher_of(lengths=True, rows=4)
    made = Generation(batcher, Asked(list(range(7)) * 2, 1))
    assert batcher.lengths == [1, 2, 4]
    alone = Generation(batcher_of(), Asked([0], 1))
    for generation, tokens, parts in ((made, 11, [4, 4, 2, 1]), (alone, 3, [1, 1, 1])):
        assert list(map(len, generation._parts([0] * tokens))) == parts


def test_no_part_of_a_prompt_is_longer_than_the_context():
    gpt = ef.nn.networks.GPT(vocabulary=7, context=3, width=8, depth=1, heads=2)
    version = ModelVersion("gpt", 1, ef.nn.networks.decoding_graph(gpt))
    batcher = SequenceBatcher(version, Batching(8))
    batcher.warm_up()
    assert batcher.lengths == [1, 2]
    tokens, _ = run(generate(batcher, Asked([5, 1], 1)))
    assert tokens == gpt.generate([[5, 1]], 1, temperature=0)[0, 2:].tolist()


def test_prompts_and_sequences_take_turns():
    batcher, shapes = batcher_of(lengths=True, slow=True), []
    compute = batcher.version.compute
    batcher.version.compute = lambda inputs, places: (
        shapes.append(inputs[0].shape) or compute(inputs, places)
    )

    async def go():
        made, count = Generation(batcher, Asked([1], 40)), 0
        await made.start()
        async for _ in made.tokens():
            count += 1
            if count == 3:
                other = asyncio.create_task(generate(batcher, Asked([2] * 64, 1)))
        made.end()
        await other

    run(go())
    assert shapes[:3] == [(1, 1)] * 3
    first = shapes.index((1, 4))
    assert shapes[first : first + 32] == [(1, 4), (1, 1)] * 16


def test_ended_generations_free_their_slots():
    batcher = batcher_of(rows=1, slow=True)

    async def go():
        made = Generation(batcher, Asked([1], 1000))
        await made.start()
        task = asyncio.create_task(made.all_tokens())
        late = asyncio.create_task(generate(batcher, Asked([1], 1, timeout=0.01)))
        waiting = asyncio.create_task(generate(batcher, Asked([2], 3)))
        gone = asyncio.create_task(generate(batcher, Asked([2], 3)))
        await asyncio.sleep(0.05)
        with pytest.raises(LateError):
            await late
        gone.cancel()
        task.cancel()
        made.end()
        assert (await waiting)[0] == plain(Asked([2], 3))
        assert free_places(batcher.slots) == 1 and not batcher.sequences.of(batcher)

    run(go())


def test_slots_go_by_priority_and_are_bounded():
    async def go():
        slots, order = Slots(1, 2), []

        async def one(name, priority):
            await slots.take("m", None, priority)
            order.append(name)
            slots.give_back()

        await slots.take("m")
        tasks = [asyncio.create_task(one(name, p)) for name, p in (("b", 1), ("a", 0))]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="too many sequences wait"):
            await slots.take("m")
        slots.give_back()
        await asyncio.gather(*tasks)
        assert order == ["a", "b"]

    run(go())


def test_no_room_gives_the_slot_back():
    batcher = batcher_of(max_sequences=1)

    async def go():
        batcher.begin("held")
        with pytest.raises(BusyError, match="no room"):
            await generate(batcher, Asked([1], 1))
        assert free_places(batcher.slots) == 4

    run(go())


# Sampling -----------------------------------------------------------------------------------------


def draws(count, **how):
    logits = np.log(np.asarray([0.4, 0.3, 0.2, 0.1])).astype("float32")
    sampler = Sampler(Sampling(seed=5, **how))
    return np.bincount([sampler.draw(logits) for _ in range(count)], minlength=4) / count


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"temperature": 1.0}, [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 0.5}, np.square([4, 3, 2, 1]) / 30),
        ({"temperature": 1.0, "top_k": 2}, [4 / 7, 3 / 7, 0, 0]),
        ({"temperature": 1.0, "top_k": 9}, [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 1.0, "top_p": 0.65}, [4 / 7, 3 / 7, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.75}, [4 / 9, 3 / 9, 2 / 9, 0]),
        ({"temperature": 1.0, "top_p": 0.01}, [1, 0, 0, 0]),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.5}, [4 / 7, 3 / 7, 0, 0]),
        ({"temperature": 0.0, "top_k": 3}, [1, 0, 0, 0]),
    ],
)
def test_tokens_are_drawn_as_often_as_said(how, wanted):
    found = draws(3000, **how)
    np.testing.assert_allclose(found, wanted, atol=4 * np.sqrt(0.25 / 3000))
    assert not found[np.asarray(wanted) == 0].any()


def test_ties_and_numbers_that_are_none():
    logits = np.zeros(5, "float32")
    assert {Sampler(Sampling(1.0, 2, 1.0, s)).draw(logits) for s in range(20)} == {0, 1}
    assert {Sampler(Sampling(1.0, None, 0.4, s)).draw(logits) for s in range(20)} == {0, 1}
    for wrong in (np.nan, np.inf):
        with pytest.raises(EagerflowError, match="not finite"):
            Sampler(Sampling(1.0)).draw(np.asarray([0.0, wrong], "float32"))
    masked = np.asarray([-np.inf, 1.0, -np.inf], "float32")
    assert Sampler(Sampling(1.0, 3, 0.9, 0)).draw(masked) == 1


def test_a_row_without_numbers_fails_alone():
    def decode(token, bad):
        logits = ef.where((token == 3)[:, None], float("nan"), ef.zeros((5,), dtype="float32"))
        return {"logits": logits, "bad_next": bad}

    rows = ef.TensorSpec(("batch",), "int64")
    graph = ef.capture.trace(decode, rows, rows)
    graph.state = declared(graph, {"bad": "bad_next"}, DECODER)
    batcher = SequenceBatcher(ModelVersion("m", 1, graph), Batching(4))

    async def go():
        jobs = (Asked([token], 3) for token in (1, 3, 2))
        return await asyncio.gather(*(generate(batcher, x) for x in jobs), return_exceptions=True)

    first, second, third = run(go())
    assert first == third == ([0, 0, 0], "length")
    assert isinstance(second, EagerflowError) and "not finite" in str(second)


def test_other_models_cannot():
    with pytest.raises(ArgumentError, match="not a decoder"):
        double = ef.capture.trace(lambda x: x * 2.0, ef.TensorSpec(("batch", 2), "float32"))
        batcher = ef.serving.batching.Batcher(ModelVersion("double", 1, double), Batching())
        Generation(batcher, Asked([1], 1))
