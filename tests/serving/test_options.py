"""Options of a server: the same in flags, in configuration files and in programs; reloading."""

import os
import re
import shutil
import threading

import pytest

from eagerflow.cli import make_parser
from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.serving import Batching, Policy, Server
from eagerflow.serving.options import OPTIONS, Configuration
from tests.serving.models import Client, put_version, scaling
from tests.serving.test_server import ROW, until
from tests.structure.sources import ROOT

EXAMPLE = ROOT / "examples" / "serving" / "serve.toml"
TOKEN = "a secret that is long enough"


def written(folder, text, name="serve.toml"):
    """A configuration file, put into its place whole."""
    made = folder / f"{name}.new"
    made.write_text(text)
    os.replace(made, folder / name)
    return folder / name


def test_flags_and_files_and_defaults_agree(tmp_path):
    parser = make_parser()
    wanted = Configuration(tmp_path, {}).arguments()
    assert vars(parser.parse_args(["serve", "m"])).keys().isdisjoint(o.name for o in OPTIONS)
    every = {
        "grpc": False,
        "tokens": str(written(tmp_path, TOKEN, "tokens")),
        **{o.name: o.default for o in OPTIONS if o.kind in (int, float) and o.default is not None},
    }
    words = [
        part
        for option in OPTIONS
        if option.name in every
        for part in (
            [option.flag] if option.kind is bool else [option.flag, str(every[option.name])]
        )
    ]
    given = vars(parser.parse_args(["serve", "m", *words]))
    values = {o.name: given[o.name] for o in OPTIONS if o.name in given}
    assert values.keys() == every.keys()
    by_flags = Configuration(tmp_path, values).arguments()
    lines = [f"{n} = {v!r}".replace("False", "false") for n, v in every.items()]
    by_file = Configuration.read(written(tmp_path, "\n".join(lines) + '\nmodels = "."')).arguments()
    assert by_flags == by_file
    assert by_flags == wanted | {"grpc_port": None, "access": by_flags["access"]}
    assert by_flags["access"].tokens == (TOKEN,)


def test_the_example_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("EAGERFLOW_TOKENS", TOKEN)
    shutil.copy(EXAMPLE, tmp_path)
    for number in (1, 2):
        put_version(tmp_path / "models" / "digits", number)
    scaling(5).save(tmp_path / "models" / "scale.ef")
    found = Configuration.read(tmp_path / "serve.toml")
    digits = found.models["digits"]
    assert digits.policy == Policy(2) and digits.labels == {"stable": 1}
    assert digits.batching == Batching(64, 0.002, max_queue=256)
    assert found.models["scale"].batching == Batching(max_queue=256)
    assert TOKEN not in repr(found)
    server = Server.of_file(
        tmp_path / "serve.toml", host="127.0.0.1", port=0, grpc=False, workers=0
    )
    with server:
        client = Client(server)
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert client.call("/v1/models/digits:predict", ROW)[0] == 401
        status, _, body = client.call("/v1/models/digits:predict", ROW, headers)
        assert status == 200 and b'"total":6.0' in body
        client.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", r"no option 'prot'.*line 1.*try: port"),
        ("\n\nport = 'a'", r"port: 'a' is no value.*line 3.*an integer of at least 0"),
        ("workers = -1", r"workers.*line 1"),
        ("grpc = 1", r"grpc.*true or false"),
        ("poll = true", r"poll.*a number"),
        ("max_wait = inf", "max_wait"),
        ("port = 1\nport = 2", "cannot be read"),
        ("host = 'x'", "no models"),
        ("models = 3", "models"),
        ("[models]\nx = 1", r"models.x.*a table with a path"),
        ("[models.x]\npath = 'x'\n\nmax_bach = 3", r"models.x.*no option.*line 4.*try: max_batch"),
        ("[models.x]\npath = 'x'\nport = 3", r"models.x.*no option 'port'.*line 3"),
        ("[models.x]\npath = 'x'\n[models.x.labels]\na = 'b'", r"labels.*line 3"),
        ("[models.x]\npath = 'x'\npinned = 1.5", r"pinned.*line 3"),
        ("models = '.'\ntokens_variable = 'NOT_SET_AT_ALL'", r"NOT_SET_AT_ALL.*has no tokens"),
        ("models = '.'\ntokens = 'nowhere'", "tokens cannot be read"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, words):
    with pytest.raises(FileFormatError) as raised:
        Configuration.read(written(tmp_path, text))
    assert re.search(words, str(raised.value), re.DOTALL), raised.value


def test_models_change_while_requests_are_answered(tmp_path):
    for name, number in (("a", 1), ("a", 2), ("b", 3)):
        put_version(tmp_path / name, number)
    both = "poll = 0.02\nmax_batch = {}\n[models.a]\npath = 'a'\n{}\n[models.b]\npath = 'b'\n"
    told = []
    path = written(tmp_path, both.format(8, ""))
    with Server.of_file(path, told.append, port=0, grpc=False) as server:
        stop, wrong = threading.Event(), []

        def ask():
            client = Client(server)
            while not stop.is_set():
                found = client.call("/v1/models/a:predict", ROW)
                if found[0] != 200:
                    wrong.append(found)
            client.close()

        asking = threading.Thread(target=ask)
        asking.start()
        client = Client(server)
        try:
            model = server.repository.model("a")
            written(tmp_path, both.format(4, "pinned = 1\nversions = 2\nlabels = {old = 1}"))
            until(lambda: model.traffic.pinned == 1 and model.current == 1)
            assert (
                client.json("/v1/models/a/labels/old:predict", ROW)["predictions"][0]["total"] == 6
            )
            until(lambda: all(b.batching.max_rows == 4 for b in model.ready.values()))
            written(tmp_path, "prot = 3")
            until(lambda: any("configuration is as it was" in line for line in told))
            assert "no option 'prot'" in "".join(told)
            assert set(server.repository.models) == {"a", "b"}
            written(tmp_path, "[models.a]\npath = 'nowhere'\n")
            until(lambda: "nowhere" in "".join(told))
            assert client.json("/v1/models/b:predict", ROW)["predictions"][0]["total"] == 18
            path = written(tmp_path, "poll = 0.02\nworkers = 1\n[models.a]\npath = 'a'\n")
            until(lambda: "b" not in server.repository.models)
            assert client.call("/v1/models/b:predict", ROW)[0] == 404
            until(lambda: any("workers: what changed takes effect" in line for line in told))
            assert client.json("/v1/models/a:predict", ROW)["predictions"][0]["total"] == 12
            assert all("takes effect" in line for line in server.reload())
        finally:
            stop.set()
            asking.join()
            client.close()
        assert not wrong, wrong[:2]


@pytest.mark.parametrize(
    "wrong", [{"grace": -1}, {"poll": 0}, {"log": "xml"}, {"leave": "a"}, {"workers": -1}]
)
def test_programs_are_told_the_same(folder, wrong):
    name = next(iter(wrong))
    with pytest.raises(ArgumentError, match=name):
        Server(folder, port=0, **wrong)
    with pytest.raises(ArgumentError, match=name):
        Configuration(folder, wrong).arguments()
    with pytest.raises(FileFormatError, match="no option 'prot'"):
        Server.of_file(written(folder.parent, "models = 'models'"), prot=1)


def test_a_server_without_a_file_has_nothing_to_read_again(folder):
    with Server(folder, port=0) as server, pytest.raises(ArgumentError, match="configuration file"):
        server.reload()
