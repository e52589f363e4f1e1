"""The page for browsers: it shows what there is, and nothing of names and files becomes code."""

import re
from html.parser import HTMLParser

import eagerflow as ef
from tests.serving.models import Client, put_broken, put_version
from tests.serving.test_server import until

HOSTILE = "<img src=x onerror=alert(1)>\"'&</script>"


class Page(HTMLParser):
    """Elements with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_page_shows_models_and_a_form(client):
    client.json("/v1/models/scale:predict", {"instances": [[1, 2, 3]]})
    status, headers, body = client.call("/")
    page = Page(body.decode())
    assert status == 200 and headers["content-type"].startswith("text/html")
    shown = "".join(page.texts)
    assert "float32(batch, 3)" in shown and '{"inputs": {"x": [[0.0, 0.0, 0.0]]}}' in shown
    assert ("form", {"action": "v1/models/scale:predict"}) in page.elements
    assert any(tag == "svg" for tag, _ in page.elements)
    nonce = re.search(r"script-src 'nonce-([^']+)'", headers["content-security-policy"])[1]
    assert [a["nonce"] for tag, a in page.elements if tag == "script"] == [nonce]
    assert not any("src" in a or "href" in a for tag, a in page.elements if tag != "a")
    (model,) = client.json("/figures")["models"]
    (row,) = model["rows"]
    assert (model["model"], row["version"], row["answered"]) == ("scale", "1", "1")
    assert row["median"].endswith(" ms")


def test_page_shows_live_traffic_split(folder):
    for number in (2, 3):
        put_version(folder / "scale", number)
    put_broken(folder / "scale", 4)
    with ef.serving.Server(folder, port=0, policy=ef.serving.Policy(latest=0), workers=1) as server:
        client = Client(server)
        wanted = {"split": {"1": 0.75, "2": 0.25}, "labels": {"old": 1}, "shadow": {"version": 3}}
        client.json("/v2/repository/models/scale/traffic", wanted)
        for _ in range(4):
            client.json("/v1/models/scale:predict", {"instances": [[1, 2, 3]]})
        shadowing = server.repository.model("scale").shadowing
        until(lambda: sum(shadowing.counts.values()) == 4)
        until(lambda: len(server.pool.workers.pids) == 2)
        told = client.json("/figures")
        shown = "".join(Page(client.call("/")[2].decode()).texts)
        client.close()
    (model,) = told["models"]
    states = [row["state"] for row in model["rows"]]
    assert states[:3] == ["shadow of 100 %", "answers 25 %", "answers 75 % (old)"]
    assert states[3].startswith("broken: ") and model["rows"][3]["broken"]
    assert model["notes"] == "Version 3 is a shadow: 4 different; largest difference 12"
    assert told["workers"] == "2 workers are there; 0 have ended unasked"
    for text in (*states, model["notes"], told["workers"]):
        assert text in shown


def test_sequences_are_counted_with_their_state(tmp_path):
    graph = ef.capture.trace(
        lambda x, h: {"y": x + h, "h_next": h + 1.0},
        *[ef.TensorSpec(("batch", 2), "float32") for _ in range(2)],
    )
    graph.save(tmp_path / "count.ef", state={"h": "h_next"})
    with ef.serving.Server(tmp_path / "count.ef", port=0) as server, Client(server) as client:
        x = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}
        for number in (1, 2):
            parameters = {"sequence_id": number, "sequence_start": True}
            client.json("/v2/models/count/infer", {"inputs": [x], "parameters": parameters})
        (row,) = client.json("/figures")["models"][0]["rows"]
    assert row["sequences"] == "2, 16 bytes"


def test_names_are_never_code(tmp_path):
    def hostile(x):
        with ef.capture.scope(HOSTILE):
            return {HOSTILE: ef.tanh(x)}

    spec = ef.TensorSpec(("batch", 2), "float32", name=HOSTILE)
    graph = ef.capture.trace(hostile, spec, name=HOSTILE)
    folder = tmp_path / "models"
    put_version(folder / HOSTILE.replace("/", ""), 1, graph)
    put_broken(folder / HOSTILE.replace("/", ""), 2, HOSTILE.encode() * 9)
    with ef.serving.Server(folder, port=0) as server, Client(server) as client:
        page = Page(client.call("/")[2].decode())
    assert not any(tag == "img" for tag, _ in page.elements)
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert "onerror" in "".join(page.texts)
