"""Frames of HTTP/2 as a client of gRPC sends them, for clients that send them slowly.

Sources: RFC 9113 (frames) and RFC 7541 (headers, here as literals that are not to be indexed).
"""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_HEADERS = 4


def frame(kind, flags, stream, payload):
    """A frame."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def data_frame(payload):
    """Data of the first call."""
    return frame(DATA, 0, 1, payload)


def begun_call(path):
    """A connection and the head of its first call, whose message is to follow."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "test",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(b"\0" + _text(key) + _text(value) for key, value in fields.items())
    return PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, block)


def _text(text):
    assert len(text) < 127  # so that one byte encodes it
    return bytes([len(text)]) + text.encode()
