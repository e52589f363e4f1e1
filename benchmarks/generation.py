"""Tokens a second of a served GPT: sequences that share each step, against one after the other.

    python benchmarks/generation.py [--rounds 4] [--sequences 128] [--rows 32] [--json]

The GPT has the size of `works.py`: 4 layers of width 256 with 8 heads, a context of 128 and a
vocabulary of 256. Sequences are asked for all at once, or each when the one before has ended, in
one process without a network; prompts have 4 to 40 tokens, answers 16 to 80. Half of the sequences
take the most probable token, the others are drawn. Both contestants have to give the same tokens.
Nothing waits for others (`max_wait=0`), so what a sequence pays for sharing is longer steps: the
time between two of its tokens is told.
"""

import asyncio
import statistics
import time

import harness
import numpy as np

import eagerflow as ef
from eagerflow.serving import Batching, ModelVersion
from eagerflow.serving.generation import Asked, Generation
from eagerflow.serving.sampling import Sampling
from eagerflow.serving.stepping import SequenceBatcher

TARGET = 0.333  # of the time that one by one takes


def jobs(count):
    """What is asked for: prompts, lengths, and how tokens are drawn."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(count):
        prompt = rng.integers(0, 256, rng.integers(4, 41)).tolist()
        sampling = Sampling(0.8, 40, 0.95, i) if i % 2 else Sampling()
        found.append(Asked(prompt, int(rng.integers(16, 81)), sampling))
    return found


async def generate(batcher, asked, gaps):
    """The tokens of a sequence; the seconds between them are appended to ``gaps``."""
    made = Generation(batcher, asked)
    await made.start()
    try:
        tokens, before = [], None
        async for token in made.tokens():
            now = time.perf_counter()
            if before is not None:
                gaps.append(now - before)
            before = now
            tokens.append(token)
        return tokens
    finally:
        made.end()


def run(version, rows, asked, together):
    """Tokens of all sequences, seconds that they took, and seconds between tokens."""

    async def go():
        batcher, gaps = SequenceBatcher(version, Batching(rows)), []
        begin = time.perf_counter()
        if together:
            found = await asyncio.gather(*(generate(batcher, one, gaps) for one in asked))
        else:
            found = [await generate(batcher, one, gaps) for one in asked]
        seconds = time.perf_counter() - begin
        await batcher.drain()
        return found, seconds, gaps

    return asyncio.run(go())


def main():
    made = harness.parser(__doc__)
    made.set_defaults(rounds=4)
    made.add_argument("--sequences", type=int, default=128)
    made.add_argument("--rows", type=int, default=32, help="sequences in a step, at most")
    options = made.parse_args()
    ef.random.seed(0)
    gpt = ef.nn.networks.GPT(vocabulary=256, context=128, width=256, depth=4, heads=8)
    asked = jobs(options.sequences)
    contestants = {"one by one": False, "together": True}
    version = ModelVersion("gpt", 1, ef.nn.networks.decoding_graph(gpt))
    SequenceBatcher(version, Batching(options.rows)).warm_up()
    times = {name: [] for name in contestants}
    waits = {name: [] for name in contestants}
    for _ in range(options.rounds):
        answers = {}
        for name, together in contestants.items():
            answers[name], seconds, gaps = run(version, options.rows, asked, together)
            times[name].append(seconds / sum(map(len, answers[name])))
            waits[name] += gaps
        if answers["together"] != answers["one by one"]:
            raise SystemExit("the tokens differ")
    middle, spread = harness.ratio(times["together"], times["one by one"])
    row = {
        "name": f"{options.sequences} sequences, up to {options.rows} in a step",
        "microseconds": {who: round(statistics.median(t) * 1e6, 1) for who, t in times.items()},
        "ratio": middle,
        "spread": spread,
        "peer": "one by one",
        "target": TARGET,
    }
    harness.report("microseconds for each token; equal tokens", [row])
    for who, microseconds in row["microseconds"].items():
        gaps = np.percentile(waits[who], [50, 99]) * 1e3
        print(
            f"{who}: {1e6 / microseconds:.0f} tokens/s; between two tokens of a sequence "
            f"{gaps[0]:.1f} ms in the median, {gaps[1]:.1f} ms in the 99th percentile"
        )
    if options.json:
        versions = {"eagerflow": ef.__version__, "numpy": np.__version__}
        harness.save("generation", [row], versions)


if __name__ == "__main__":
    main()
