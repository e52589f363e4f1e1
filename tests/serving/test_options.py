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
from eagerflow.serving.protocols.rpc import SERVICE
from eagerflow.serving.repository import Repository
from tests.internals import replace_method
from tests.serving.models import Client, put_version, scaling
from tests.serving.test_server import ROW, until
from tests.structure.sources import ROOT

grpc = pytest.importorskip("grpc")
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
        ("\n\nport = 'a'", r"port: 'a' is not a valid value.*line 3.*an integer of at least 0"),
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
        ("[models.x]\npath = 'x'\nlabels = {'a/b' = 1}", r"label.*line 3.*without '/'"),
        ("[models]\npath = '.'\n[models.x]\npath = 'x'", r"models.x.path.*a folder.*line 4"),
    ],
)
def test_configuration_errors_name_the_line(tmp_path, text, words):
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
            until(
                lambda: any("workers cannot change while it runs: restart" in line for line in told)
            )
            assert client.json("/v1/models/a:predict", ROW)["predictions"][0]["total"] == 12
            assert all("restart" in line for line in server.reload())
        finally:
            stop.set()
            asking.join()
            client.close()
        assert not wrong, wrong[:2]


def test_reload_of_tokens_limits_and_log_keeps_connections(tmp_path, capfd):
    put_version(tmp_path / "models" / "scale", 1)
    old, new = "the old secret text", "the new secret text"
    tokens = written(tmp_path, old, "tokens")
    told = []
    text = "models = 'models'\ntokens = 'tokens'\npoll = 0.02\n"
    path = written(tmp_path, text)
    with Server.of_file(path, told.append, port=0, grpc_port=0) as server:
        client = Client(server)
        asking = client.connection
        asking.connect()
        opened = asking.sock

        def status(token, body=ROW):
            headers = {"authorization": f"Bearer {token}"}
            return client.call("/v1/models/scale:predict", body, headers)[0]

        with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
            call = channel.unary_unary(f"/{SERVICE}/ServerReady", lambda x: x, lambda x: x)

            def may_call(token):
                try:
                    return call(b"", metadata=[("authorization", f"Bearer {token}")], timeout=20)
                except grpc.RpcError as error:
                    return error.code().name

            assert (status(old), status(new)) == (200, 401) and may_call(old) != "UNAUTHENTICATED"
            written(tmp_path, new, tokens.name)  # the configuration itself is as it was
            until(lambda: "changed: tokens" in told)
            assert (status(old), status(new)) == (401, 200)
            assert may_call(old) == "UNAUTHENTICATED" != may_call(new)
        large = '{"inputs": [[1, 2, 3]]' + " " * (1 << 20) + "}"
        assert status(new, large) == 200
        written(tmp_path, text + "max_body = 1\nlog = 'json'\nport = 1\n")
        until(lambda: "changed: log, max_body" in told)
        assert "max_body over gRPC cannot change while it runs: restart the server" in told
        assert status(new, large) == 413 and status(new) == 200
        until(lambda: '"status":413' in capfd.readouterr().err)
        before = len(told)
        written(tmp_path, text + "max_body = 1\ntokens_variable = 'NOT_SET_AT_ALL'\n")
        until(lambda: "configuration is as it was" in "".join(told[before:]))
        assert status(new, large) == 413 and status(new) == 200
        written(tmp_path, text)
        until(lambda: told.count("changed: log, max_body") == 2)
        capfd.readouterr()
        assert status(new, large) == 200 and not capfd.readouterr().err
        assert asking.sock is opened
        client.close()


def test_tokens_change_while_a_model_is_loaded(tmp_path, monkeypatch):
    put_version(tmp_path / "models" / "scale", 1)
    old, new = "the old secret text", "the new secret text"
    written(tmp_path, old, "tokens")
    path = written(tmp_path, "models = 'models'\ntokens = 'tokens'\npoll = 0.02\n")
    entered, go = threading.Event(), threading.Event()

    def slow(made):
        def make(self, model, number, file):
            if number == 2:
                entered.set()
                assert go.wait(60)
            return made(self, model, number, file)

        return make

    replace_method(monkeypatch, Repository, "_made", slow)
    with Server.of_file(path, port=0, grpc=False) as server:
        client = Client(server)

        def status(token):
            headers = {"authorization": f"Bearer {token}"}
            return client.call("/v1/models/scale:predict", ROW, headers)[0]

        try:
            put_version(tmp_path / "models" / "scale", 2)
            assert entered.wait(20) and status(old) == 200
            written(tmp_path, new, "tokens")
            until(lambda: status(old) == 401)
            assert status(new) == 200
        finally:
            go.set()
        until(lambda: server.repository.model("scale").current == 2)
        client.close()


def test_models_of_a_folder_have_tables(tmp_path):
    for name, number in (("a", 1), ("a", 2), ("b", 1), ("b", 2)):
        put_version(tmp_path / "models" / name, number)
    text = "poll = 0.02\n[models]\npath = 'models'\n"
    tables = "[models.a]\nversions = 0\npinned = 1\nmax_batch = 4\nlabels = {old = 1}\n"
    told = []
    path = written(tmp_path, text + tables + "[models.c]\nmax_batch = 2\n")
    with Server.of_file(path, told.append, port=0, grpc=False) as server:
        client = Client(server)

        def total(place):
            return client.json(f"/v1/models/{place}:predict", ROW)["predictions"][0]["total"]

        assert told[-1].startswith("c: it has options, but")
        assert (total("a"), total("a/versions/2"), total("a/labels/old")) == (6.0, 12.0, 6.0)
        assert total("b") == 12.0
        put_version(tmp_path / "models" / "c", 7)
        until(lambda: "c" in server.repository.models)
        until(lambda: server.repository.model("c").ready)
        assert server.repository.model("c").batcher().batching.max_rows == 2
        server.repository.model("a").pin(2)
        server.repository.model("b").pin(2)
        written(tmp_path, text + tables + "[models.c]\nmax_batch = 3\n")
        until(lambda: server.repository.model("c").batcher().batching.max_rows == 3)
        assert server.repository.model("a").traffic.pinned == 2  # its table is as it was
        written(tmp_path, text)
        until(lambda: not server.repository.model("a").labels)
        assert server.repository.model("a").traffic.pinned is None and total("a") == 12.0
        until(lambda: server.repository.model("a").batcher().batching.max_rows == 32)
        assert server.repository.model("b").traffic.pinned == 2  # no table said anything of it
        client.close()
    flags = {"models": tmp_path / "models"}
    found = Configuration.read(written(tmp_path, tables), flags)
    assert found.models.path == flags["models"] and found.models.options["a"].pinned == 1


@pytest.mark.parametrize(
    "wrong", [{"grace": -1}, {"poll": 0}, {"log": "xml"}, {"leave": "a"}, {"workers": -1}]
)
def test_invalid_options_are_refused_in_programs(folder, wrong):
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
