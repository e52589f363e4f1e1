"""Several machines: network namespaces of this one, between which only sockets go."""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="needs the extra cluster")
MACHINES = {"one": "10.7.0.1", "two": "10.7.0.2"}
PORT = 6398
PROGRAM = f"""
import eagerflow as ef
from tests.cluster.trainings import on_devices, trained
ef.set_logical_devices("cpu", 4)
with ef.cluster.Cluster({{"worker": 4}}, address="{MACHINES["one"]}:{PORT}") as cluster:
    print(len({{task.address["machine"] for task in cluster.tasks}}), "machines")
    for name in ("digits", "gpt"):
        found = trained(name, ef.cluster.DataParallel(cluster))
        print(name, found.bits == on_devices(name, "fast", 4).bits)
    cluster.kill(cluster.tasks[1])
    cluster.wait()
    print(cluster.tasks[1].lives, "lives")
"""


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=240, **more)


def at(machine, home, *words):
    """A program on a machine, with a home of its own."""
    path = os.pathsep.join(filter(None, sys.path))
    settings = os.environ | {"HOME": str(home / machine), "PYTHONPATH": path}
    space = f"eagerflow-{machine}"
    return run("ip", "netns", "exec", space, sys.executable, *words, env=settings)


@pytest.fixture
def machines(tmp_path):
    """Two namespaces, joined by a cable; and their homes."""
    if shutil.which("ip") is None or run("ip", "netns", "add", "eagerflow-one").returncode:
        pytest.skip("network namespaces cannot be made here")
    try:
        run("ip", "netns", "add", "eagerflow-two", check=True)
        ends = [f"eagerflow-{name}" for name in MACHINES]
        cable = f"ip link add v0 netns {ends[0]} type veth peer name v0 netns {ends[1]}"
        run(*cable.split(), check=True)
        for (name, address), end in zip(MACHINES.items(), ends, strict=True):
            (tmp_path / name / ".ray").mkdir(parents=True)
            run("ip", "-n", end, "addr", "add", f"{address}/24", "dev", "v0", check=True)
            for link in ("lo", "v0"):
                run("ip", "-n", end, "link", "set", link, "up", check=True)
        yield tmp_path
    finally:
        for name in MACHINES:
            at(name, tmp_path, "-m", "eagerflow.cli", "cluster", "stop")
            run("ip", "netns", "del", f"eagerflow-{name}")


@pytest.mark.soak  # half a minute, and the right to make networks
def test_two_machines_train_bitwise_like_devices(machines):
    start = "-m", "eagerflow.cli", "cluster", "start", "--host"
    one, two = MACHINES.values()
    first = at("one", machines, *start, one, "--port", str(PORT))
    assert f"a Ray cluster runs at {one}:{PORT}" in first.stdout, first.stderr
    token = machines / "one" / ".ray" / "auth_token"
    shutil.copy(token, machines / "two" / ".ray")
    second = at("two", machines, *start, two, "--join", f"{one}:{PORT}")
    assert second.returncode == 0, second.stderr
    found = at("one", machines, "-c", PROGRAM)
    told = ["2 machines", "digits True", "gpt True", "2 lives"]
    assert [line for line in told if line not in found.stdout] == [], found.stdout + found.stderr
