"""Deployments on Ray Serve: the same answers, roll-outs and deaths of replicas under load."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.serving import Scaling, UnavailableError
from tests.serving.models import Client, scaling
from tests.serving.test_server import INFER, PREDICT, until

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytest.importorskip("ray.serve", reason="Ray Serve is not installed")

# Ray takes 10 s to start and 5 s for each roll-out: the suite has one case.
ROWS = {"inputs": [[0.1, 2.7, -3.3], [1e-3, 5.0, 7.25]]}
QUICK = Scaling(1, 4, ongoing=2.0, up_seconds=1.0, down_seconds=600.0)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


def saved(folder, number):
    """The file of a model whose answers tell its number."""
    path = folder / f"{number}.ef"
    if not path.exists():
        scaling(number).save(path)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of files, and the port of the Ray Serve that these tests share."""
    return tmp_path_factory.mktemp("models"), free_port()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replicas": 0}, "0 to 0 are not numbers of replicas"),
        ({"replicas": Scaling(3, 2)}, "3 to 2"),
        ({"replicas": Scaling(ongoing=0)}, "numbers of scaling"),
        ({"cpus": 0}, "cpus: 0 is not positive"),
        ({"wait": -1.0}, "wait: -1.0"),
        ({"port": 0}, "port: 0 is not a port"),
        ({"grace": -1.0}, "grace"),
    ],
)
def test_settings_that_cannot_be(tmp_path, options, words):
    with pytest.raises(ArgumentError, match=words):
        ef.serving.deploy(tmp_path, **options)
    assert not ray.is_initialized()


CLUSTER = """
import os, sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # then it stays on the loopback address
from ray.cluster_utils import Cluster
made = Cluster(True, head_node_args={"num_cpus": 2, "include_dashboard": False})
print(made.address, flush=True)
sys.stdin.readline()
made.shutdown()
"""
DEPLOY = """
import sys
import eagerflow as ef
path, address, port = sys.argv[1:]
print(ef.serving.deploy(path, address=address, port=int(port), replicas=2, cpus=0.5).url)
"""
CLOSE = """
import sys
import eagerflow as ef
with ef.serving.Deployment("eagerflow", address=sys.argv[1]) as deployed:
    print(deployed.status()["replicas"])
"""


@pytest.mark.soak
def test_a_deployment_outlives_the_program(place):
    folder, _ = place
    path, port = saved(folder, 2).rename(folder / "scale.ef"), free_port()
    python = [sys.executable, "-c"]

    def told(*program):
        return subprocess.run(
            [*python, *program], stdout=subprocess.PIPE, text=True, check=True, timeout=300
        ).stdout.strip()

    pipe = subprocess.PIPE
    with subprocess.Popen([*python, CLUSTER], stdin=pipe, stdout=pipe, text=True) as cluster:
        try:
            address = cluster.stdout.readline().strip()
            url = told(DEPLOY, str(path), address, str(port))
            assert url == f"http://127.0.0.1:{port}"
            body = json.dumps({"inputs": [[1, 1, 1]]}).encode()
            with urllib.request.urlopen(f"{url}{PREDICT}", body, timeout=30) as answer:
                assert json.loads(answer.read())["outputs"]["total"] == [6.0]
            assert told(CLOSE, address) == "{'RUNNING': 2}"
            with pytest.raises(subprocess.CalledProcessError):
                told(CLOSE, address)  # it is gone
        finally:
            cluster.communicate("\n", timeout=60)


@pytest.mark.soak
def test_a_port_that_is_taken(place):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(EagerflowError, match=f"{port} cannot be listened on"):
            ef.serving.deploy(saved(place[0], 1), port=port, cpus=0.25)
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def deployed(place):
    folder, port = place
    models = {"scale": saved(folder, 1)}
    with ef.serving.deploy(models, port=port, cpus=0.25, poll=0.1) as made:
        yield made
    made.close()
    assert not ray.is_initialized()
    with pytest.raises(UnavailableError, match="no deployment 'eagerflow'"):
        made.status()


def rolled(place, number, **options):
    """Let the deployment serve another file."""
    folder, port = place
    options = {"cpus": 0.25, "poll": 0.1} | options
    ef.serving.deploy({"scale": saved(folder, number)}, port=port, **options)


class Load:
    """Threads that ask all the while; ``answered`` has the version of each answer."""

    def __init__(self, server, threads, refusals=()):
        self.answered, self.wrong, self.refused = [], [], 0
        self._server, self._refusals, self._stop = server, refusals, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self):
        client = Client(self._server)
        try:
            while not self._stop.is_set():
                status, _, body = client.call(PREDICT, {"inputs": [[1.0, 0.0, 2.0]]})
                if status in self._refusals:
                    self.refused += 1
                    continue
                told = json.loads(body)["outputs"] if status == 200 else body
                version = told["y"][0][0] if status == 200 else None
                if told != {"y": [[version, 0.0, 2 * version]], "total": [3 * version]}:
                    self.wrong.append((status, told))
                self.answered.append(version)
        except Exception as error:
            self.wrong.append(error)
        finally:
            client.close()


def asked(deployed, path, body=None, status=200):
    client = Client(deployed)
    try:
        return client.json(path, body, status)
    finally:
        client.close()


def test_answers_are_those_of_a_server(deployed, place):
    with ef.serving.Server({"scale": saved(place[0], 1)}, port=0) as server:
        alone = Client(server)
        assert asked(deployed, PREDICT, ROWS) == alone.json(PREDICT, ROWS)
        assert asked(deployed, "/v2/models/scale") == alone.json("/v2/models/scale")
        wrong = {"inputs": []}
        assert asked(deployed, INFER, wrong, 400) == alone.json(INFER, wrong, 400)
        alone.close()
    assert asked(deployed, "/v2/health/ready") == {"ready": True}
    assert deployed.status() == {"state": "RUNNING", "message": "", "replicas": {"RUNNING": 1}}
    told = asked(deployed, "/v2/repository/models/scale/unload", {}, 501)["error"]
    assert "several replicas" in told
    assert ef.serving.Deployment("eagerflow").url == deployed.url
    with pytest.raises(UnavailableError, match="no deployment 'other'"):
        ef.serving.Deployment("other")


def processes():
    """The command line of each process that comes from this one, by its number."""
    parents, lines = {}, {}
    for process in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            stat = pathlib.Path(f"/proc/{process}/stat").read_text()
            lines[process] = pathlib.Path(f"/proc/{process}/cmdline").read_text()
        except OSError:  # it has ended
            continue
        parents[process] = int(stat.rpartition(")")[2].split()[1])

    def is_ours(process):
        while process in parents:
            process = parents[process]
            if process == os.getpid():
                return True
        return False

    return {process: line for process, line in lines.items() if is_ours(process)}


def replicas():
    return {n for n, line in processes().items() if "ray::ServeReplica:eagerflow:models" in line}


@pytest.mark.soak
def test_only_this_machine_is_listened_on(deployed):
    # In the kernel's tables an address of zeros is all addresses, and 0A is a socket that listens.
    open_to_all = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = [line.split() for line in pathlib.Path(table).read_text().splitlines()[1:]]
        found = [r[9] for r in rows if r[3] == "0A" and not r[1].split(":")[0].strip("0")]
        open_to_all |= {f"socket:[{inode}]" for inode in found}
    assert replicas()
    for process, line in processes().items():
        links = [os.readlink(found) for found in pathlib.Path(f"/proc/{process}/fd").iterdir()]
        assert open_to_all.isdisjoint(links), line


@pytest.mark.soak
def test_a_roll_out_under_load_loses_and_mixes_nothing(deployed, place):
    with Load(deployed, 4) as load:
        for number in (2, 3):
            rolled(place, number)
            until(lambda n=number: load.answered[-1] == n)
    assert not load.wrong, load.wrong[:3]
    assert set(load.answered) == {1.0, 2.0, 3.0} and len(load.answered) > 100


@pytest.mark.soak
def test_failed_deployment_changes_nothing(deployed, place, tmp_path):
    rolled(place, 2)
    port = place[1]
    with pytest.raises(ArgumentError, match=r"no file or folder .*none\.ef"):
        ef.serving.deploy({"scale": tmp_path / "none.ef"}, port=port)
    (tmp_path / "bad.ef").write_bytes(b"no model")
    with pytest.raises(UnavailableError, match="scale 1 is broken"):
        ef.serving.deploy({"scale": tmp_path / "bad.ef"}, port=port)
    with pytest.raises(ArgumentError, match="one address for all"):
        ef.serving.deploy({"scale": saved(place[0], 2)}, port=port + 1)
    with pytest.raises(ArgumentError, match="Prefix / is being used"):
        ef.serving.deploy({"scale": saved(place[0], 2)}, port=port, name="other")
    with pytest.raises(UnavailableError, match="DEPLOYING after 2 s"):
        rolled(place, 2, cpus=1000.0, wait=2.0)
    assert asked(deployed, PREDICT, {"inputs": [[1, 1, 1]]})["outputs"]["total"] == [6.0]


@pytest.mark.soak
def test_a_replica_that_is_killed_is_replaced(deployed, place):
    rolled(place, 1, replicas=2)
    until(lambda: deployed.status()["replicas"] == {"RUNNING": 2})
    with Load(deployed, 4, refusals=(500, 503)) as load:
        until(lambda: len(load.answered) > 50)
        before = replicas()
        os.kill(min(before), signal.SIGKILL)
        until(lambda: len(replicas() - before) == 1 and deployed.status()["state"] == "RUNNING", 60)
        count = len(load.answered)
        until(lambda: len(load.answered) > count + 50)
    assert not load.wrong, load.wrong[:3]
    assert load.refused <= 4 + 4  # what it had: at most one request of each thread, and its retry


@pytest.mark.soak
def test_replicas_come_with_load(deployed, place):
    rolled(place, 1, replicas=QUICK)
    before = len(replicas())
    with Load(deployed, 24) as load:
        until(lambda: deployed.status()["replicas"].get("RUNNING", 0) > before, 90)
    assert not load.wrong, load.wrong[:3]


@pytest.mark.soak
def test_a_generation_is_one_request_and_a_sequence_is_not(deployed, place, tmp_path):
    gpt = ef.nn.networks.GPT(vocabulary=50, context=16, width=8, depth=1, heads=2)
    ef.nn.networks.decoding_graph(gpt).save(tmp_path / "gpt.ef")
    ef.serving.deploy({"gpt": tmp_path / "gpt.ef"}, port=place[1], cpus=0.25)
    body = {"tokens": [1, 2, 3], "max_tokens": 4, "temperature": 0}
    found = asked(deployed, "/v2/models/gpt/generate", body)["tokens"]
    assert found == gpt.generate([[1, 2, 3]], 4, temperature=0)[0, 3:].tolist()
    tokens = {"name": "tokens", "shape": [1, 1], "datatype": "INT64", "data": [1]}
    start = {"sequence_id": 7, "sequence_start": True}
    told = asked(deployed, "/v2/models/gpt/infer", {"inputs": [tokens], "parameters": start}, 400)
    assert "no state between requests" in told["error"]


@pytest.mark.soak
def test_metrics_tell_the_replica(deployed, place):
    rolled(place, 1, replicas=2)
    for _ in range(20):
        asked(deployed, PREDICT, ROWS)
    port = ray.nodes()[0]["MetricsExportPort"]

    def told():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        rows = [line for line in lines if line.startswith("ray_eagerflow_request_seconds_count{")]
        return {line.partition('replica="')[2].partition('"')[0] for line in rows}

    until(lambda: len(told()) >= 2, 60)
