"""A server in a process of its own, started by the command, and connections to it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

START_SECONDS = 60.0


class ServerProcess:
    """``eagerflow serve`` with these words, on free ports; a context manager that ends it.

    Its output is in the file ``log``.
    """

    def __init__(self, log, *words):
        self.path = Path(log)
        command = [sys.executable, "-m", "eagerflow.cli", "serve", *map(str, words)]
        with open(self.path, "wb") as file:
            self.process = subprocess.Popen(
                [*command, "--port", "0", "--grpc-port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.host, self.port, self.grpc_port = "127.0.0.1", 0, 0

    def __enter__(self):
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self):
        """Wait until it prints its addresses."""
        end = time.monotonic() + START_SECONDS
        while not (told := re.search(r"http://[\d.]+:(\d+)\ngRPC on [\d.]+:(\d+)\n", self.log())):
            assert self.process.poll() is None and time.monotonic() < end, self.log()[-3000:]
            time.sleep(0.01)
        self.port, self.grpc_port = map(int, told.groups())

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        self.process.kill()
        self.process.wait()

    def log(self):
        """All that it has printed."""
        return self.path.read_text("utf-8", "replace")

    def ask_to_reload(self):
        """Have the configuration read again."""
        self.process.send_signal(signal.SIGHUP)

    def workers(self):
        """The processes that compute for it."""
        with suppress(OSError):  # it has ended
            tasks = Path(f"/proc/{self.process.pid}/task")
            found = " ".join((task / "children").read_text() for task in tasks.iterdir())
            return sorted(map(int, found.split()))
        return []

    def memory(self):
        """The bytes of memory that it has by itself."""
        with open(f"/proc/{self.process.pid}/smaps_rollup") as file:
            parts = [line.split() for line in file]
        return sum(int(row[1]) << 10 for row in parts if row[0] == "Private_Dirty:")


class Connection:
    """A connection that is kept: requests one after the other, each with its answer.

    ConnectionError where it ends before an answer is whole. One that has been idle for long is
    not used again, since the server may be ending it.
    """

    IDLE_SECONDS = 2.0

    def __init__(self, host, port):
        self._address = host, port
        self._reader = self._writer = None
        self._used = 0.0

    async def call(self, method, path, body=b"", headers=()):
        """Status, headers and body of an answer."""
        lines = [f"{method} {path} HTTP/1.1", "host: test", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        return await self.exchange("\r\n".join([*lines, "", ""]).encode() + body)

    async def exchange(self, data):
        """The answer to these bytes."""
        if time.monotonic() > self._used + self.IDLE_SECONDS:
            await self.end()
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._address)
        try:
            self._writer.write(data)
            status, headers, body = await self._answer()
            self._used = time.monotonic()
        except (EOFError, OSError) as error:
            self.abort()
            raise ConnectionError(f"no answer came: {error!r}") from None
        if headers.get("connection") == "close":
            await self.end()
        return status, headers, body

    async def _answer(self):
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in filter(None, head[1:]):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def json(self, method, path, told=None, headers=()):
        """Status and JSON of an answer."""
        body = b"" if told is None else json.dumps(told).encode()
        status, _, data = await self.call(method, path, body, headers)
        return status, json.loads(data)

    async def end(self):
        """End it; AssertionError where more came than was asked for."""
        if self._writer is None:
            return
        reader, writer = self._reader, self._writer
        self._reader = self._writer = None
        try:
            with suppress(OSError):
                writer.write_eof()
            with suppress(OSError):
                rest = await asyncio.wait_for(reader.read(), 10)
                assert not rest, f"an answer to nothing: {rest[:200]!r}"
        finally:
            writer.close()

    def abort(self):
        """Let go of it."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


def kill(pid):
    """End a process at once, if it is there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
