"""Versions load, change and unload while others serve; a broken one replaces none."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError
from eagerflow.serving import Policy, UnavailableError, UnknownModelError
from eagerflow.serving.repository import Repository
from tests.serving.models import asynchronous, put_broken, put_version, remove_version, scaling

ROW = {"x": np.ones((1, 3), "float32")}


async def factor(model, **which):
    """The number of the version that answers."""
    found = await model.batcher(**which).run(ROW)
    return float(found["y"][0, 0])


@asynchronous
async def test_versions_come_and_go(tmp_path):
    folder = tmp_path / "scale"
    put_version(folder, 1)
    repository = Repository({"scale": folder})
    told = await repository.refresh()
    model = repository.model("scale")
    assert len(told) == 1 and "scale 1 is ready" in told[0]
    assert await factor(model) == 1
    assert await repository.refresh() == []
    put_version(folder, 3)
    put_version(folder, 2)
    assert [line.split(" (")[0] for line in await repository.refresh()] == [
        "scale 3 is ready",
        "scale 1 has left",
    ]
    assert await factor(model) == 3
    with pytest.raises(UnknownModelError, match="no version 2"):
        model.batcher(2)
    remove_version(folder, 3)
    await repository.refresh()
    assert await factor(model) == 2
    await repository.drain()
    with pytest.raises(UnavailableError, match="no version"):
        model.batcher()


@asynchronous
async def test_broken_version_reports_its_error_and_replaces_none(tmp_path):
    folder = tmp_path / "scale"
    put_version(folder, 1)
    put_broken(folder, 2)
    repository = Repository({"scale": folder})
    told = await repository.refresh()
    model = repository.model("scale")
    assert any("scale 2 is broken" in line for line in told)
    with pytest.raises(UnavailableError, match=r"(?s)version 2 .*broken.*received"):
        model.batcher(2)
    assert await factor(model) == 1 and await repository.refresh() == []
    put_version(folder, 3)
    await repository.refresh()
    assert model.ready.keys() == {3}


@asynchronous
async def test_the_old_version_answers_until_a_new_one_works(tmp_path):
    folder = tmp_path / "scale"
    put_version(folder, 1)
    repository = Repository({"scale": folder})
    await repository.refresh()
    put_broken(folder, 2)
    await repository.refresh()
    model = repository.model("scale")
    assert await factor(model) == 1
    scaling(2).save(folder / "2" / "model.ef")  # mended in place
    await repository.refresh()
    assert await factor(model) == 2 and 1 not in model.ready


@asynchronous
async def test_a_version_that_goes_as_it_is_looked_at_hides_no_other(tmp_path, monkeypatch):
    put_version(tmp_path / "scale", 1)
    put_version(tmp_path / "scale", 2)
    entries = Path.iterdir

    def gone(path):
        if path.name == "2":
            raise FileNotFoundError(path)
        return entries(path)

    monkeypatch.setattr(Path, "iterdir", gone)
    repository = Repository({"scale": tmp_path / "scale"})
    await repository.refresh()
    assert await factor(repository.model("scale")) == 1
    await repository.drain()


@asynchronous
async def test_a_file_that_is_replaced_is_loaded_anew(tmp_path):
    path = tmp_path / "scale.ef"
    scaling(1).save(path)
    repository = Repository(path)
    await repository.refresh()
    model = repository.model("scale")
    asked = asyncio.create_task(model.batcher().run(ROW))
    scaling(7).save(path)
    await repository.refresh()
    assert await factor(model) == 7
    assert float((await asked)["y"][0, 0]) == 1


@asynchronous
async def test_version_with_failing_example_is_broken(tmp_path, monkeypatch):
    path = tmp_path / "m.ef"
    scaling(2).save(path, examples=[{"x": np.ones((2, 3), "float32")}])
    repository = Repository(path)
    assert "is ready" in (await repository.refresh())[0]
    graph = ef.capture.load(path)
    outputs = graph.examples[0].outputs | {"y": ef.zeros((2, 3))}
    graph.examples = (graph.examples[0]._replace(outputs=outputs),)
    graph.save(path)
    (line,) = await repository.refresh()
    assert "is broken" in line and "does not give the result" in line
    assert await factor(repository.model("m")) == 2


@asynchronous
async def test_labels_and_roll_back(tmp_path):
    folder = tmp_path / "scale"
    for number in (1, 2, 3):
        put_version(folder, number)
    repository = Repository({"scale": folder}, Policy(latest=2))
    await repository.refresh()
    model = repository.model("scale")
    assert sorted(model.ready) == [2, 3]
    model.label("stable", 2)
    model.label("canary", 3)
    model.pin(2)
    assert [await factor(model), await factor(model, label="canary")] == [2, 3]
    put_version(folder, 4)
    await repository.refresh()
    assert sorted(model.ready) == [2, 3, 4]  # what is pinned or labelled stays
    assert await factor(model) == 2
    model.pin(None)
    assert await factor(model) == 4
    with pytest.raises(UnknownModelError, match="no label"):
        model.batcher(label="old")


@asynchronous
async def test_a_folder_of_models_grows(tmp_path):
    put_version(tmp_path / "a", 1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a" / "notes").mkdir()
    repository = Repository(tmp_path)
    await repository.refresh()
    assert sorted(repository.models) == ["a", "empty"] and not repository.is_ready
    put_version(tmp_path / "empty", 12)
    await repository.refresh()
    assert repository.is_ready and repository.model("empty").current == 12


@asynchronous
async def test_a_model_that_assigns_is_refused(tmp_path):
    count = ef.Variable(0.0)

    def counting(x):
        count.assign_add(1.0)
        return x + count

    ef.capture.trace(counting, ef.TensorSpec((2,), "float32")).save(tmp_path / "m.ef")
    (line,) = await Repository(tmp_path / "m.ef").refresh()
    assert "assigns the Variable" in line and "prune" in line


def test_missing_model_paths_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="no file or folder"):
        Repository(tmp_path / "none.ef")
    with pytest.raises(ArgumentError, match="digits"):
        Repository({"digits": tmp_path / "none"})


@asynchronous
async def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "m.ef")
    assert "broken" in (await Repository(tmp_path / "m.ef").refresh())[0]
