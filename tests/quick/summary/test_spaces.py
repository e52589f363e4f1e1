"""Profiles for TensorBoard's plugin: the file's contents equal the profile's."""

import threading

import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, ProfileError

pytest.importorskip("tensorboard")
from eagerflow.summary.spaces import messages


@pytest.fixture
def profiled():
    """A profile of two threads, whose peaks are told."""
    step = ef.function(lambda x: ef.tanh(x @ x).sum())
    x = ef.ones((64, 64))
    step(x)
    with ef.profile(gigaflops=100.0, gigabytes=10.0) as profile:
        step(x)
        thread = threading.Thread(target=lambda: ef.exp(x), name="other thread")
        thread.start()
        thread.join()
    return profile


def test_events_are_those_of_the_profile(tmp_path, profiled):
    with ef.summary.Writer(tmp_path) as writer:
        writer.profile("first", profiled)
    (path,) = (tmp_path / "plugins" / "profile" / "first").glob("*.xplane.pb")
    space = messages()["XSpace"].FromString(path.read_bytes())
    (plane,) = space.planes
    assert plane.name == "/host:CPU" and len(plane.lines) == 2
    assert "other thread" in {line.name for line in plane.lines}
    titles = {n: stat.name for n, stat in plane.stat_metadata.items()}
    found = sorted(
        (
            line.name,
            plane.event_metadata[event.metadata_id].name,
            line.timestamp_ns + event.offset_ps // 1000,
            event.duration_ps // 1000,
            {titles[s.metadata_id]: s.str_value or s.int64_value for s in event.stats}.get("line"),
        )
        for line in plane.lines
        for event in line.events
    )
    wanted = sorted(
        (
            part.event.thread.name,
            part.facts.name,
            part.event.begin,
            part.event.end - part.event.begin,
            part.facts.place or None,
        )
        for part in profiled.parts
    )
    assert found == wanted and len(wanted) >= 3


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b", 3])
def test_names_that_lead_elsewhere(tmp_path, profiled, name):
    with (
        ef.summary.Writer(tmp_path / "run") as writer,
        pytest.raises(ArgumentError, match="name of a folder"),
    ):
        writer.profile(name, profiled)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_an_open_profile_is_refused(tmp_path):
    with (
        ef.summary.Writer(tmp_path) as writer,
        ef.profile() as profile,
        pytest.raises(ProfileError),
    ):
        writer.profile("open", profile)
    assert not (tmp_path / "plugins").exists()
