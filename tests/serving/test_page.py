"""The page for browsers: it shows what there is, and nothing of names and files becomes code."""

import re
from html.parser import HTMLParser

import eagerflow as ef
from tests.serving.models import Client, put_broken, put_version

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


def test_what_the_page_shows(client):
    client.json("/v1/models/scale:predict", {"instances": [[1, 2, 3]]})
    status, headers, body = client.call("/")
    text = body.decode()
    page = Page(text)
    assert status == 200 and headers["content-type"].startswith("text/html")
    shown = "".join(page.texts)
    assert "float32(batch, 3)" in shown and '{"inputs": {"x": [[0.0, 0.0, 0.0]]}}' in shown
    assert ("form", {"action": "v1/models/scale:predict"}) in page.elements
    assert any(tag == "svg" for tag, _ in page.elements)
    nonce = re.search(r"script-src 'nonce-([^']+)'", headers["content-security-policy"])[1]
    assert [a["nonce"] for tag, a in page.elements if tag == "script"] == [nonce]
    assert not any("src" in a or "href" in a for tag, a in page.elements if tag != "a")
    (row,) = client.json("/figures")
    assert (row["model"], row["version"], row["answered"]) == ("scale", 1, "1")
    assert row["median"].endswith(" ms")


def test_names_are_never_code(tmp_path):
    def hostile(x):
        with ef.capture.scope(HOSTILE):
            return {HOSTILE: ef.tanh(x)}

    spec = ef.TensorSpec(("batch", 2), "float32", name=HOSTILE)
    graph = ef.capture.trace(hostile, spec, name=HOSTILE)
    folder = tmp_path / "models"
    put_version(folder / HOSTILE.replace("/", ""), 1, graph)
    put_broken(folder / HOSTILE.replace("/", ""), 2, HOSTILE.encode() * 9)
    with ef.serving.Server(folder, port=0) as server:
        client = Client(server)
        page = Page(client.call("/")[2].decode())
        client.close()
    assert not any(tag == "img" for tag, _ in page.elements)
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert "onerror" in "".join(page.texts)
