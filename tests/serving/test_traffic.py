"""Routing: pins, labels, shares, shadows and roll-backs; no response is lost or mixed up."""

import asyncio
import collections
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import eagerflow as ef
from eagerflow.errors import ArgumentError
from eagerflow.serving import Policy, Traffic, UnavailableError, UnknownModelError
from eagerflow.serving.metrics import Metrics
from eagerflow.serving.repository import Repository
from eagerflow.serving.shadow import MAX_PENDING, difference
from eagerflow.serving.traffic import Shares
from tests.serving.models import put_broken, put_version, remove_version, scaling
from tests.serving.test_server import INFER, PREDICT, ROW

ADMIN = "/v2/repository/models/scale/traffic"
X = {"x": np.ones((1, 3), "float32")}


def run(body):
    return asyncio.run(asyncio.wait_for(body, 60))


async def repository_of(folder, *versions, graphs=None, **more):
    """A repository of all versions of one model."""
    for number in versions:
        put_version(folder, number, (graphs or {}).get(number))
    made = Repository({"scale": folder}, Policy(latest=0), **more)
    await made.refresh()
    return made, made.model("scale")


async def answers(model, count=1, **which):
    """The versions that answer requests one after the other; each has the number it should."""
    found = []
    for _ in range(count):
        batcher = model.next(**which)
        answer = await batcher.run(X)
        assert float(answer["y"][0, 0]) == batcher.version.number
        found.append(batcher.version.number)
    return found


async def settled(model):
    """Wait until the shadow has nothing to do."""
    while model.shadowing._task is not None:
        await asyncio.sleep(0.001)


# Shares -------------------------------------------------------------------------------------------

SHARES = st.lists(st.integers(0, 100), min_size=1, max_size=6).filter(sum)


@given(SHARES, st.integers(1, 400), st.integers(0, 400))
def test_shares_are_exact_over_windows(weights, count, begin):
    shares = {n: w / sum(weights) for n, w in enumerate(weights)}
    pick = Shares(shares)
    picked = [pick.pick(shares) for _ in range(begin + count)]
    for part, bound in ((picked[: begin + count], 1), (picked[begin:], 2)):
        seen = collections.Counter(part)
        for number, share in shares.items():
            few = bound * (1 if len(weights) < 3 else len(weights) / 2)
            assert abs(seen[number] - share * len(part)) < few + 1e-6
            assert share or not seen[number]


@given(SHARES, st.lists(st.text(max_size=9), min_size=1, max_size=30))
def test_a_key_has_one_version(weights, keys):
    shares = {n: w / sum(weights) for n, w in enumerate(weights)}
    one, two = Shares(shares), Shares(shares)
    for key in keys:
        found = one.pick_for(key, shares)
        assert found == one.pick_for(key, shares) == two.pick_for(key, shares)
        assert shares[found] > 0


def test_keys_are_spread_by_the_shares_and_stay_when_one_grows():
    keys = [f"user {n}" for n in range(4000)]
    canary = {}
    for share in (0.1, 0.5):
        pick = Shares({3: 1 - share, 4: share})
        canary[share] = {key for key in keys if pick.pick_for(key, {3, 4}) == 4}
        assert abs(len(canary[share]) / len(keys) - share) < 0.03
    assert canary[0.1] < canary[0.5]


def test_versions_that_are_away_leave_their_share_to_the_others(tmp_path):
    async def go():
        repository, model = await repository_of(tmp_path / "scale", 1, 2, 3)
        model.split({1: 1, 2: 1, 3: 2})
        assert collections.Counter(await answers(model, 40)) == {1: 10, 2: 10, 3: 20}
        remove_version(tmp_path / "scale", 3)
        await repository.refresh()
        assert collections.Counter(await answers(model, 40)) == {1: 20, 2: 20}
        remove_version(tmp_path / "scale", 2)
        remove_version(tmp_path / "scale", 1)
        await repository.refresh()
        with pytest.raises(UnavailableError, match="no version"):
            model.next()

    run(go())


def test_shares_leave_requests_for_a_version_alone(tmp_path):
    async def go():
        _, model = await repository_of(tmp_path / "scale", 1, 2)
        model.label("stable", 1)
        model.split({1: 1, 2: 1})
        assert await answers(model, 3, version=2) == [2, 2, 2]
        assert await answers(model, 3, label="stable") == [1, 1, 1]
        assert await answers(model, 4) == [1, 2, 1, 2]
        assert model.batcher().version.number == 2  # metadata is that of one version

    run(go())


# Labels and roll-back -----------------------------------------------------------------------------


def test_labels_move_and_are_taken_off(tmp_path):
    async def go():
        repository, model = await repository_of(tmp_path / "scale", 1, 2)
        model.label("stable", 1)
        assert await answers(model, label="stable") == [1]
        model.label("stable", 2)
        assert await answers(model, label="stable") == [2]
        with pytest.raises(UnknownModelError, match="no version 9"):
            model.label("stable", 9)
        assert await answers(model, label="stable") == [2]
        remove_version(tmp_path / "scale", 2)
        await repository.refresh()
        with pytest.raises(UnknownModelError, match="no version 2"):
            model.next(label="stable")
        model.label("stable", None)
        with pytest.raises(UnknownModelError, match="no label"):
            model.next(label="stable")

    run(go())


def test_a_roll_back_brings_a_version_back_that_has_left(tmp_path):
    folder = tmp_path / "scale"

    async def go():
        put_version(folder, 1)
        repository = Repository({"scale": folder})
        await repository.refresh()
        model = repository.model("scale")
        with pytest.raises(UnknownModelError, match="answered before"):
            model.roll_back()
        for number in (2, 3):
            put_version(folder, number)
            await repository.refresh()
        assert list(model.ready) == [3]
        await repository.direct("scale", lambda model: model.rolled_back())
        assert await answers(model) == [2]
        put_version(folder, 4)  # what is new does not answer by itself then
        await repository.refresh()
        assert await answers(model) == [2]
        assert model.roll_back() == 1
        await repository.refresh()
        assert await answers(model) == [1]
        model.pin(None)
        await repository.refresh()
        assert await answers(model) == [4]

    run(go())


def test_a_roll_back_ends_shares(tmp_path):
    async def go():
        _, model = await repository_of(tmp_path / "scale", 1, 2, 3)
        model.pin(2)
        model.split({2: 1, 3: 1})
        model.split({3: 1})
        assert (model.roll_back(), await answers(model, 2)) == (2, [2, 2])

    run(go())


def test_a_broken_version_is_not_led_to(tmp_path):
    folder = tmp_path / "scale"

    async def go():
        put_version(folder, 1)
        put_version(folder, 2)
        put_broken(folder, 3)
        repository = Repository({"scale": folder}, Policy(given=(1, 2)))
        await repository.refresh()
        model = repository.model("scale")
        before = model.traffic
        with pytest.raises(UnavailableError, match=r"version 3 .* is broken"):
            await repository.direct("scale", lambda m: m.changed({"split": {"2": 1, "3": 1}}))
        assert model.traffic == before and await answers(model, 2) == [2, 2]

    run(go())


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "object"),
        ({"splits": {}}, "splits"),
        ({"split": {"x": 1}}, "split"),
        ({"split": {"1": -1}}, "split"),
        ({"split": {"1": True}}, "split"),
        ({"split": {"1": 0}}, "split"),
        ({"split": {"1": 1e308, "2": 1e308}}, "split"),
        ({"split": {"1": float("nan")}}, "split"),
        ({"split": [1]}, "split"),
        ({"labels": {"a/b": 1}}, "label"),
        ({"labels": {"": 1}}, "label"),
        ({"labels": {"a": "1"}}, "label a"),
        ({"labels": {str(n): 1 for n in range(200)}}, "labels"),
        ({"pinned": 1.5}, "pinned"),
        ({"key": 3}, "key"),
        ({"shadow": 3}, "shadow"),
        ({"shadow": {"share": 1}}, "shadow"),
        ({"shadow": {"version": 1, "other": 1}}, "shadow"),
        ({"shadow": {"version": 1, "share": 1.5}}, "share"),
        ({"shadow": {"version": 1, "tolerance": float("nan")}}, "tolerance"),
        ({"roll_back": True, "pinned": 1}, "alone"),
        ({"roll_back": 1}, "roll_back"),
    ],
)
def test_wrong_settings(tmp_path, told, words):
    model = Repository({"scale": tmp_path}).model("scale")
    with pytest.raises(ArgumentError, match=words):
        model.direct(model.changed(told))
    assert model.traffic == Traffic()


# Shadows ------------------------------------------------------------------------------------------


def nudged(number, by):
    """The graph of version ``number`` with something added to one output."""

    def scale(x):
        y = x * float(number)
        return {"y": y, "total": ef.sum(y, axis=1) + by}

    return ef.capture.trace(scale, ef.TensorSpec(("batch", 3), "float32"))


def failing(x):
    y = x * ef.take(ef.arange(2.0), ef.astype(x[:, :1], "int64") * 9)
    return {"y": y, "total": ef.sum(y, axis=1)}


@pytest.mark.parametrize(
    ("graph", "outcome", "options"),
    [
        (scaling(1), "equal", {}),
        (nudged(1, 3e-7), "close", {}),
        (nudged(1, 3e-7), "different", {"units": 0}),
        (nudged(1, 0.5), "different", {}),
        (nudged(1, 0.5), "close", {"tolerance": 0.5}),
        (ef.capture.trace(failing, ef.TensorSpec(("batch", 3), "float32")), "failed", {}),
        (ef.capture.trace(lambda z: z, ef.TensorSpec(("batch", 3), "float32")), "failed", {}),
    ],
)
def test_a_shadow_compares_answers(tmp_path, graph, outcome, options):
    async def go():
        folder, metrics = tmp_path / "scale", Metrics()
        put_version(folder, 1)
        put_version(folder, 2, graph)
        repository = Repository({"scale": folder}, Policy(latest=0), metrics=metrics)
        await repository.refresh()
        model = repository.model("scale")
        model.pin(1)
        model.shadow(2, **options)
        assert await answers(model, 5) == [1] * 5
        await settled(model)
        told = model.told()["found"]
        assert told["answers"] == dict.fromkeys(told["answers"], 0) | {outcome: 5}
        assert len(told["samples"]) == (5 if outcome in ("different", "failed") else 0)
        line = f'answers_total{{model="scale",outcome="{outcome}",version="2"}} 5.0'
        assert line in metrics.text().decode()
        model.shadow(None)
        await answers(model, 2)
        assert model.shadowing is None

    run(go())


def test_a_shadow_takes_its_share_and_not_its_own_answers(tmp_path):
    async def go():
        _, model = await repository_of(tmp_path / "scale", 1, 2)
        model.shadow(2, share=0.25)
        model.split({1: 1, 2: 1})
        assert sorted(await answers(model, 80)) == [1] * 40 + [2] * 40
        await settled(model)
        assert model.shadowing.counts.total() == 10

    run(go())


def test_shadow_runs_when_idle_and_drops_excess_requests(tmp_path):
    async def go():
        _, model = await repository_of(tmp_path / "scale", 1, 2)
        model.pin(1)
        model.shadow(2)
        model.ready[1].running += 1  # a request that takes long
        await answers(model, MAX_PENDING + 10)
        await asyncio.sleep(0.02)
        assert model.shadowing.counts == {
            **dict.fromkeys(("equal", "close", "different", "failed"), 0),
            "dropped": 10,
        }
        model.ready[1].running -= 1
        await settled(model)
        assert model.shadowing.counts["different"] == MAX_PENDING

    run(go())


def test_removed_shadow_version_drops_requests(tmp_path):
    async def go():
        repository, model = await repository_of(tmp_path / "scale", 1, 2)
        model.shadow(1)
        remove_version(tmp_path / "scale", 1)
        await repository.refresh()
        assert await answers(model, 3) == [2, 2, 2]
        await settled(model)
        assert model.shadowing.counts["dropped"] == 3

    run(go())


FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64"]


@given(st.sampled_from(FLOATS), st.floats(-100, 100), st.integers(0, 6))
def test_units_of_the_last_place(dtype, value, units):
    wanted = ef.tensor([value, np.nan, np.inf, 0.0]).astype(dtype).numpy()
    found = wanted.copy()
    for _ in range(units):
        if dtype == "complex64":
            found.real[:1] = np.nextafter(found.real[:1], np.float32(1e9))
        else:
            found[:1] = np.nextafter(found[:1], np.asarray(1e4, found.dtype))
    small = abs(float(np.real(wanted[0]))) < 1e-6  # where the units themselves change
    got = difference(found, wanted, units=units)
    assert got.outcome == ("close" if units else "equal") or small
    if units > 1 and not small:
        assert difference(found, wanted, units=units / 2 - 0.01).outcome == "different"
    assert difference(found, wanted, tolerance=got.largest).outcome != "different"


def test_results_that_cannot_be_close_are_different():
    x = np.ones(2, "float32")
    assert difference(x, x[:1]).outcome == difference(x, x.astype("float64")).outcome == "different"
    assert difference(x * np.nan, x, 9, 9).outcome == "different"
    assert difference(np.array([1, 2]), np.array([1, 4])) == ("different", 2.0)
    assert difference(np.array([True]), np.array([True])) == ("equal", 0.0)


# Over HTTP ----------------------------------------------------------------------------------------


def test_traffic_is_directed_over_http(client, folder):
    put_version(folder / "scale", 2)
    put_version(folder / "scale", 3)
    told = client.json(ADMIN, {"labels": {"stable": 2}, "split": {"2": 3, "3": 1}})
    assert told["split"] == {"2": 0.75, "3": 0.25} and told["labels"] == {"stable": 2}
    totals = [client.json(PREDICT, ROW)["predictions"][0]["total"] for _ in range(8)]
    assert collections.Counter(totals) == {12.0: 6, 18.0: 2}
    told = client.json(ADMIN, {"split": None, "pinned": 2, "shadow": {"version": 3}})
    client.json(PREDICT, ROW)
    for _ in range(2000):
        told = client.json(ADMIN)
        if told["found"]["answers"]["different"]:
            break
    assert told["found"]["largest_difference"] == 6.0
    (sample,) = told["found"]["samples"]
    assert sample["outputs"] == {"y": 3.0, "total": 6.0} and len(sample["inputs"]["x"]) == 16
    page = client.call("/")[2].decode()
    assert "Version 3 is a shadow: 1 different; largest difference 6" in page
    assert "eagerflow_shadow_largest_difference" in client.call("/metrics")[2].decode()
    told = client.json(ADMIN, {"roll_back": True})
    assert client.json(PREDICT, ROW)["predictions"][0]["total"] == 6.0 * told["pinned"]
    assert "'x'" in client.json(ADMIN, {"split": {"x": 1}}, 400)["error"]
    assert "no version 9" in client.json(ADMIN, {"pinned": 9}, 404)["error"]
    assert "no model" in client.json(ADMIN.replace("scale", "none"), {}, 404)["error"]


def test_a_header_decides(client, folder):
    put_version(folder / "scale", 2)
    client.json(ADMIN, {"split": {"1": 1, "2": 1}, "key": "X-User"})
    asked = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}

    def version(user):
        return client.call(INFER, asked, {"x-user": user})[2].split(b'"model_version":"')[1][:1]

    found = {user: version(user) for user in map(str, range(20))}
    assert set(found.values()) == {b"1", b"2"}
    assert {user: version(user) for user in found} == found


# Whatever is done ---------------------------------------------------------------------------------

NUMBERS = st.integers(1, 5)


class Deployment(RuleBasedStateMachine):
    """Versions come and go and traffic is led about, while requests are asked all the time.

    The model of it is what is in the folder, and what was asked for last and not refused.
    """

    @initialize(latest=NUMBERS)
    def begin(self, latest):
        self.base = self.folders / str(next(self.count))
        self.folder = self.base / "scale"
        self.loop = asyncio.new_event_loop()
        self.disk = {}
        self.asked = []
        self.put(1, True)
        self.repository = Repository({"scale": self.folder}, Policy(latest=latest))
        self.do(self.repository.refresh())
        self.served = self.repository.model("scale")

    def do(self, body):
        return self.loop.run_until_complete(asyncio.wait_for(body, 30))

    def put(self, number, works):
        if works:
            put_version(self.folder, number)
        else:
            put_broken(self.folder, number)
        self.disk[number] = works

    async def ask(self, wanted, **which):
        """Ask, and keep the answer with the versions that may have given it."""
        batcher = self.served.next(**which)
        assert batcher.version.number in wanted
        task = asyncio.ensure_future(batcher.run({"x": np.ones((2, 3), "float32")}))
        self.asked.append((batcher.version.number, task))
        await asyncio.sleep(0)

    @rule(number=NUMBERS, works=st.booleans())
    def a_version_comes(self, number, works):
        if number not in self.disk:
            self.put(number, works)
            self.do(self.repository.refresh())

    @rule(number=NUMBERS)
    def a_version_goes(self, number):
        if self.disk.pop(number, None) is not None:
            remove_version(self.folder, number)
            self.do(self.repository.refresh())

    @rule(change=st.sampled_from(["pin", "label", "shadow"]), number=st.none() | NUMBERS)
    def one_is_named(self, change, number):
        self.direct(change, *(("stable", number) if change == "label" else (number,)))

    @rule(shares=st.dictionaries(NUMBERS, st.integers(1, 4), max_size=3))
    def shares_change(self, shares):
        self.direct("split", shares)

    @rule()
    def roll_back(self):
        if self.direct("roll_back"):  # its file may be another one than before, that is broken
            pinned = self.served.traffic.pinned
            assert self.served.current == pinned or not self.disk[pinned]

    def direct(self, change, *given):
        """Direct the traffic; False where it was refused, and then nothing has changed."""
        before = self.served.traffic
        try:
            getattr(self.served, change)(*given)
        except (UnknownModelError, UnavailableError):
            assert self.served.traffic == before
            return False
        self.do(self.repository.refresh())
        return True

    @rule()
    def it_is_unloaded_and_loaded(self):
        async def go():
            await self.repository.unload("scale")
            with pytest.raises(UnavailableError):
                self.served.next()
            try:
                await self.repository.load("scale")
            except UnavailableError:
                assert self.may_be_away()

        self.do(go())

    @rule(count=st.integers(1, 4))
    def requests(self, count):
        served = self.served
        split = {n for n in served.traffic.split if n in served.ready} or {served.current}
        for _ in range(count):
            self.expect(split)

    @rule(number=NUMBERS)
    def a_request_for_a_version(self, number):
        self.expect({number} & self.served.ready.keys(), version=number)

    @rule()
    def a_request_for_a_label(self):
        number = self.served.labels.get("stable")
        self.expect({number} & self.served.ready.keys(), label="stable")

    def expect(self, wanted, **which):
        wanted = wanted - {None}
        if wanted:
            self.do(self.ask(wanted, **which))
        else:
            with pytest.raises((UnknownModelError, UnavailableError)):
                self.served.next(**which)

    def may_be_away(self):
        """Whether there is nothing to answer with."""
        return not any(self.disk.values())

    @precondition(lambda self: self.asked)
    @rule()
    def answers_come(self):
        async def go():
            for number, task in self.asked:
                answer = await task
                assert (answer["y"] == number).all() and (answer["total"] == 3 * number).all()

        self.do(go())
        self.asked.clear()

    @invariant()
    def only_versions_that_work_are_ready(self):
        if hasattr(self, "served"):
            for number, batcher in self.served.ready.items():
                assert batcher.version.number == number and batcher.is_open
            named = self.served.traffic.versions() & {n for n, works in self.disk.items() if works}
            assert named <= self.served.ready.keys()
            assert self.served.ready or self.may_be_away()

    def teardown(self):
        if hasattr(self, "loop"):
            if self.asked:
                self.answers_come()
            self.do(self.repository.drain())
            self.loop.close()


def run_deployments(tmp_path, examples, steps):
    Deployment.folders, Deployment.count = tmp_path, itertools.count()
    run_state_machine_as_test(
        Deployment,
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None),
    )


def test_deployments_lose_or_mix_no_answers(tmp_path):
    run_deployments(tmp_path, 40, 30)


@pytest.mark.soak
def test_deployments_lose_or_mix_no_answers_in_a_long_run(tmp_path):
    run_deployments(tmp_path, 300, 60)
