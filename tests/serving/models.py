"""Small models in files, whose answers identify their version, and calls of servers."""

import asyncio
import functools
import http.client
import json
import os
import shutil

import eagerflow as ef


def asynchronous(test):
    """A test that is a coroutine, which has to end soon."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


def scaling(number):
    """The graph of ``x * number``, and of a sum for each row."""

    def scale(x):
        y = x * float(number)
        return {"y": y, "total": ef.sum(y, axis=1)}

    return ef.capture.trace(scale, ef.TensorSpec(("batch", 3), "float32"))


def put_version(folder, number, graph=None):
    """Write a version of a model, as a deployment does: beside, then moved into its place."""
    made = folder.parent / f".making-{folder.name}-{number}"
    made.mkdir(parents=True)
    (graph or scaling(number)).save(made / "model.ef")
    folder.mkdir(parents=True, exist_ok=True)
    os.rename(made, folder / str(number))


def put_broken(folder, number, data=b"no model"):
    version = folder / str(number)
    version.mkdir(parents=True)
    (version / "model.ef").write_bytes(data)


def remove_version(folder, number):
    shutil.rmtree(folder / str(number))


class Client:
    """A connection that is kept, and JSON both ways."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=30)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def call(self, path, body=None, headers=(), method=None):
        """Status, headers and body of an answer."""
        data = json.dumps(body) if isinstance(body, dict | list) else body
        method = method or ("GET" if body is None else "POST")
        self.connection.request(method, path, data, dict(headers))
        answer = self.connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def json(self, path, body=None, status=200):
        """The JSON of an answer with this status."""
        found, _, data = self.call(path, body)
        assert found == status, data
        return json.loads(data)

    def close(self):
        self.connection.close()
