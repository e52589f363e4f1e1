"""Networks for tests: all traffic to a task passes a proxy, which simulates the network."""

import random
import socket
import threading
import time
from contextlib import suppress

from eagerflow.runtime.channel import Channel
from tests.cluster.processes import ProcessHosts


class Network:
    """The current behavior of all proxies."""

    def __init__(self):
        self.delay = 0.0
        self.doubles = False
        self.doubled = 0
        self.random = random.Random(0)


def part(gates, seconds):
    """Let nothing pass through gates for a while, beside other traffic."""
    for gate in gates:
        gate.clear()
    timer = threading.Timer(seconds, lambda: [gate.set() for gate in gates])
    timer.daemon = True
    timer.start()
    return timer


class Proxy:
    """A port whose connections are passed on to that of a task.

    ``gates`` are open or closed for its traffic with the client and other tasks.
    """

    def __init__(self, network, port):
        self.gates = {"client": threading.Event(), "tasks": threading.Event()}
        self.open()
        self._network, self._target = network, port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._channels = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with suppress(OSError):
            while True:
                near = Channel(self._server.accept()[0])
                try:
                    far = Channel(socket.create_connection(("127.0.0.1", self._target)))
                except OSError:  # the task has been killed
                    near.close()
                    continue
                self._channels += [near, far]
                who = {}
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(*ends, who), daemon=True).start()

    def _pass(self, source, target, who):
        network = self._network
        with suppress(EOFError, OSError):
            while True:
                message, arrays = source.receive()
                if "name" in message:  # the greeting of the peer
                    who["gate"] = self.gates["client" if message["name"] == "client" else "tasks"]
                if who:
                    who["gate"].wait()
                time.sleep(network.delay * network.random.random())
                again = network.doubles and "key" in message
                network.doubled += again
                for _ in range(1 + again):
                    target.send(message, arrays)
        source.close()
        target.close()

    def open(self):
        for gate in self.gates.values():
            gate.set()

    def cut(self):
        """End all connections."""
        for channel in self._channels:
            channel.close()

    def close(self):
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.open()
        self.cut()


class ProxyHosts(ProcessHosts):
    """Tasks as processes that can be reached over the network alone."""

    host = "127.0.0.1"

    def __init__(self, token, address=None, count=0):
        super().__init__(token)
        self.network = Network()
        self.proxies = {}

    def start(self, task):
        address = super().start(task)
        old = self.proxies.get(task.name)
        if old is not None:
            old.close()
        made = self.proxies[task.name] = Proxy(self.network, address["port"])
        return {"machine": address["machine"], "host": self.host, "port": made.port}

    def close(self):
        super().close()
        for proxy in self.proxies.values():
            proxy.close()
