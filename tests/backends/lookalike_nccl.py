"""A look-alike of ``cupy.cuda.nccl``: sends and receives between processes or threads of one.

It imitates: a communicator is there when its other end is, and never where that one has died.
The first transfer of a communicator returns when the other end begins its own; others are put into
a stream and return at once. A send is over when the other end has received it. Where the other
process dies nothing is ever over, until the communicator is aborted; then all is over, without an
error, and what was to be received is rubbish. Two ends on one GPU are refused. Arrays that are not
on the communicator's device, or whose work the stream has not waited for, are misuse, which ends
the process, as does memory that was given back before it was sent.
"""

import ctypes
import itertools
import os
import secrets
import socket
import struct
import sys
import threading
import traceback
import types
from contextlib import suppress
from queue import SimpleQueue

from tests.backends.lookalike_streams import holds

ID_BYTES = 128
SYSTEM, USAGE = 2, 5
_HEAD = struct.Struct("<Q")


class NcclError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"NCCL_ERROR: status {status}")
        self.status = status


class _Thread(threading.local):
    group = None


def misused(words):
    """Misuse that a GPU would answer with wrong numbers or a crash."""
    traceback.print_stack()
    print(f"misuse of NCCL: {words}", file=sys.stderr, flush=True)
    os._exit(70)


class Nccl(types.ModuleType):
    """``cupy.cuda.nccl`` beside a look-alike of CuPy."""

    available = True
    NCCL_UINT8 = 1
    NcclError = NcclError

    def __init__(self, cupy, version=23203):
        super().__init__("cupy.cuda.nccl")
        self.cupy, self.version = cupy, version
        self.thread = _Thread()
        self.listening, self.made = {}, []
        self.NcclCommunicator = lambda *args: Communicator(self, *args)

    def get_version(self):
        return self.version

    def get_unique_id(self):
        found = secrets.token_bytes(ID_BYTES)
        self.listening[found] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening[found].bind(_name(found))
        self.listening[found].listen(1)
        return found

    def groupStart(self):
        assert self.thread.group is None
        self.thread.group = []

    def groupEnd(self):
        group, self.thread.group = self.thread.group, None
        for communicator in dict.fromkeys(own for own, _ in group):
            communicator.post([op for own, op in group if own is communicator])


def _name(unique_id):
    return "\0lookalike-nccl-" + unique_id[:32].hex()


class Operation:
    """A send or a receive in a stream."""

    def __init__(self, device, sends, address, size, stream):
        self.device, self.sends, self.address, self.size = device, sends, address, size
        self.stream = stream
        self.over = threading.Event()


class Communicator:
    numbers = itertools.count(1)

    def __init__(self, module, count, unique_id, rank):
        assert count == 2
        assert type(unique_id) is bytes
        assert len(unique_id) == ID_BYTES
        self.module, self.rank = module, rank
        self.device = module.cupy.thread.device
        self.comm = next(self.numbers)
        self._aborted, self._connected = False, False
        if rank == 0:
            listening = module.listening.pop(unique_id)
            self._socket = listening.accept()[0]
            listening.close()
        else:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._socket.connect(_name(unique_id))
            except OSError:
                raise NcclError(SYSTEM) from None
        own = module.cupy.cuda.Device(self.device).pci_bus_id.encode()
        self._socket.sendall(own)
        if self._exactly(len(own)) == own:
            raise NcclError(USAGE)
        self._queue = SimpleQueue()
        module.made.append(self)
        self._thread = threading.Thread(target=self._serve, name="look-alike of NCCL", daemon=True)
        self._thread.start()

    # Calls -----------------------------------------------------------------------------------

    def send(self, address, size, kind, peer, stream):
        self._call(True, address, size, kind, peer, stream)

    def recv(self, address, size, kind, peer, stream):
        self._call(False, address, size, kind, peer, stream)

    def _call(self, sends, address, size, kind, peer, stream):
        assert kind == self.module.NCCL_UINT8
        assert peer == 1 - self.rank
        if not self.comm:
            raise NcclError(USAGE)
        found = self.module.cupy.streams.known[stream]
        op = Operation(self.device, sends, address, size, found)
        self._check(op, found)
        if self.module.thread.group is None:
            self.post([op])
        else:
            self.module.thread.group.append((self, op))

    def _check(self, op, stream):
        if self.module.cupy.thread.device != self.device:
            misused("another device is current")
        tick = self._array(op).tick
        if stream.waited < tick:
            misused("the stream has not waited for what makes the array")

    def _array(self, op):
        for array in self.module.cupy.all_arrays():
            if array.index == self.device and holds(array.values, op.address):
                return array
        return misused("there is no such array on the device")

    def post(self, operations):
        with self.module.cupy.streams.starting[self.device]:
            for op in operations:
                op.stream.pending.append(op)
                self._queue.put(op)
        if not self._connected:  # both ends connect, which the caller waits for
            operations[-1].over.wait()
            self._connected = True

    def check_async_error(self):
        if not self.comm:
            raise NcclError(USAGE)

    def abort(self):
        self._aborted, self.comm = True, 0
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._queue.put(None)
        self._thread.join()

    # Its own thread --------------------------------------------------------------------------

    def _serve(self):
        left = []
        try:
            while (op := self._queue.get()) is not None:
                left = [op]
                if op.sends:
                    self._send(op)
                else:
                    self._receive(op)
                op.over.set()
        except (OSError, EOFError):  # the other end has gone, or this one was aborted
            while (op := self._queue.get()) is not None:
                left.append(op)
        for op in left:
            op.over.set()
        self._socket.close()

    def _send(self, op):
        self._exactly(1)  # the other end is there
        self._array(op)
        self._socket.sendall(_HEAD.pack(op.size) + ctypes.string_at(op.address, op.size))

    def _receive(self, op):
        self._socket.sendall(b"r")
        (size,) = _HEAD.unpack(self._exactly(_HEAD.size))
        data = self._exactly(size)[: op.size]  # of another size: rubbish, and no error
        self._array(op)
        ctypes.memmove(op.address, data, len(data))

    def _exactly(self, size):
        found = bytearray()
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)
