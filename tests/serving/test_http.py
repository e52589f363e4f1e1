"""Requests over HTTP: paths, bodies with limits, and what an ASGI server may ask."""

import asyncio

import pytest

from eagerflow.serving.errors import LateError, TooLargeError
from eagerflow.serving.http import ClientGoneError, Deadline, HttpRequest, Router, lifespan, respond


def run(body):
    return asyncio.run(asyncio.wait_for(body, 30))


def request(messages, headers=(), query=b"", pause=0.0):
    given = iter(messages)

    async def receive():
        await asyncio.sleep(pause)
        return next(given)

    scope = {"method": "POST", "path": "/x", "headers": list(headers), "query_string": query}
    return HttpRequest(scope, receive, {})


def is_idle(deadline):
    return not deadline._until and not deadline._late


def part(data, more=False):
    return {"type": "http.request", "body": data, "more_body": more}


# Paths --------------------------------------------------------------------------------------------

ROUTES = [
    ("POST", "/v1/models/{model}:predict", "predict"),
    ("GET", "/v1/models/{model}", "status"),
    ("POST", "/v1/models/{model}/versions/{version}:predict", "predict version"),
    ("GET", "/v2/models/stats", "all"),
    ("POST", "/v2/models/{model}/infer", "infer"),
    ("GET", "/", "page"),
]


@pytest.mark.parametrize(
    ("method", "path", "target", "named"),
    [
        ("POST", "/v1/models/a:predict", "predict", {"model": "a"}),
        ("POST", "/v1/models/a:b:predict", "predict", {"model": "a:b"}),
        (
            "POST",
            "/v1/models/a/versions/3:predict",
            "predict version",
            {"model": "a", "version": "3"},
        ),
        ("GET", "/v1/models/a", "status", {"model": "a"}),
        ("HEAD", "/v1/models/a/", "status", {"model": "a"}),
        ("GET", "/v2/models/stats", "all", {}),
        ("POST", "/v2/models/stats/infer", "infer", {"model": "stats"}),  # a model of that name
        ("GET", "/", "page", {}),
        ("GET", "", "page", {}),
    ],
)
def test_paths_are_routed_by_pattern(method, path, target, named):
    found = Router(ROUTES).find(method, path)
    assert (found.target, found.named) == (target, named)


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/models", "/v1/models/a:other/x", "/v1/models//versions/1:predict"]
)
def test_a_path_without_a_pattern_leads_nowhere(path):
    assert Router(ROUTES).find("POST", path) == (None, {}, ())


def test_wrong_method_reports_allowed_methods():
    found = Router(ROUTES).find("GET", "/v2/models/a/infer")
    assert found.target is None
    assert found.allowed == ("POST",)


def test_long_paths_are_not_kept():
    router = Router(ROUTES)
    for i in range(5):
        assert router.find("GET", f"/v1/models/{'a' * 300}{i}").target == "status"
    assert router._kept.cache_info().currsize == 0


# Bodies -------------------------------------------------------------------------------------------


def test_a_body_comes_in_parts():
    asked = request([part(b"ab", True), part(b"", True), part(b"c")])
    assert run(asked.body(3, Deadline(1.0))) == b"abc"


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"4")]])
def test_a_body_that_is_too_large_is_refused(headers):
    asked = request([part(b"ab", True), part(b"cd")], headers)
    with pytest.raises(TooLargeError, match="too large"):
        run(asked.body(3, Deadline(1.0)))


def test_a_client_that_goes_is_noticed():
    asked = request([part(b"ab", True), {"type": "http.disconnect"}])
    with pytest.raises(ClientGoneError):
        run(asked.body(3, Deadline(1.0)))


def test_a_slow_body_is_refused_and_others_are_not():
    async def go():
        deadline = Deadline(0.2)
        slow = request([part(b"a", True)] * 100, pause=0.05)
        begin = asyncio.get_running_loop().time()
        reading = asyncio.create_task(slow.body(1000, deadline))
        for _ in range(5):
            quick = request([part(b"a", True), part(b"b")], pause=0.04)
            assert await quick.body(10, deadline) == b"ab"
        with pytest.raises(LateError, match="too long"):
            await reading
        return asyncio.get_running_loop().time() - begin, deadline

    seconds, deadline = run(go())
    assert seconds < 5
    assert is_idle(deadline)


def test_a_cancelled_reader_is_not_late():
    async def go():
        deadline = Deadline(10.0)
        task = asyncio.create_task(request([part(b"a")], pause=5.0).body(10, deadline))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_idle(deadline)

    run(go())


def test_headers_and_queries_are_read_by_name():
    asked = request(
        [], [(b"accept", b"a"), (b"x-id", b"\xe9"), (b"accept", b"b")], b"a=1&b=%20&a=2&c="
    )
    assert (asked.header("accept"), asked.header("x-id"), asked.header("none")) == ("a", "é", None)
    assert asked.query == {"a": "2", "b": " ", "c": ""}


# Answers ------------------------------------------------------------------------------------------


def test_response_has_content_length():
    sent = []

    async def send(message):
        sent.append(message)

    run(respond(send, b"abc", {"content-type": "text/plain"}, 201))
    assert sent[0]["status"] == 201
    assert sent[0]["headers"] == [(b"content-type", b"text/plain"), (b"content-length", b"3")]
    assert sent[1] == {"type": "http.response.body", "body": b"abc"}


def test_lifespan_startup_and_shutdown_are_confirmed():
    asked = iter(["lifespan.startup", "lifespan.shutdown"])
    sent = []

    async def receive():
        return {"type": next(asked)}

    async def send(message):
        sent.append(message["type"])

    run(lifespan(receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
