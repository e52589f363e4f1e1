"""How many connections and calls there may be, and how slowly messages may come."""

import re
import socket
import time
from contextlib import ExitStack, suppress

import pytest

import eagerflow as ef
from eagerflow.serving import Limits
from eagerflow.serving.limits import Places
from eagerflow.serving.listening import Listener
from eagerflow.serving.protocols.rpc import SERVICE
from tests.serving.test_access import with_certificate
from tests.serving.test_rpc import KNOWN, request

grpc = pytest.importorskip("grpc")
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def serving(folder, grpc_port=None, **limits):
    return ef.serving.Server(folder, port=0, grpc_port=grpc_port, limits=Limits(**limits))


def opened(server, source="127.0.0.1"):
    return socket.create_connection((server.host, server.port), 10, (source, 0))


def asked(connection):
    """The whole answer to a request."""
    with suppress(OSError):  # it is refused already
        connection.sendall(LIVE)
    return connection.recv(2000).decode()


def until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def number(server, name):
    """A number of the server's metrics, the sum of all that have the name."""
    text = server.repository.metrics.text().decode()
    return sum(map(float, re.findall(rf"^eagerflow_{name}(?:{{.*}})? (\S+)$", text, re.M)))


# HTTP --------------------------------------------------------------------------------------------


def test_connection_over_the_limit_gets_503(folder):
    with serving(folder, max_connections=4, client_connections=4) as server, ExitStack() as stack:
        held = [stack.enter_context(opened(server)) for _ in range(4)]
        assert all("200 OK" in asked(one) for one in held)
        assert number(server, "connections") == 4
        for _ in range(20):
            with opened(server) as other:
                begin = time.monotonic()
                answer = asked(other)
                assert "503 Service Unavailable" in answer and "\r\nretry-after: 1\r\n" in answer
                assert "as many connections as it may" in answer
                assert other.recv(1) == b""
                assert time.monotonic() - begin < 1
        assert number(server, "refused_connections_total") == 20
        assert "200 OK" in asked(held[0])  # the others go on
        held[1].close()
        until(lambda: number(server, "connections") == 3)
        assert "200 OK" in asked(stack.enter_context(opened(server)))


def test_one_address_cannot_take_all(folder):
    with serving(folder, max_connections=4) as server, ExitStack() as stack:
        held = [stack.enter_context(opened(server)) for _ in range(3)]
        assert all("200 OK" in asked(one) for one in held)
        assert "this address" in asked(stack.enter_context(opened(server)))
        assert "200 OK" in asked(stack.enter_context(opened(server, "127.0.0.2")))
        assert "the server has" in asked(stack.enter_context(opened(server, "127.0.0.3")))


def test_idle_connections_give_their_places_back(folder):
    limits = {"max_connections": 2, "client_connections": 2, "body_seconds": 0.2}
    with serving(folder, **limits) as server, opened(server) as one, opened(server) as two:
        assert one.recv(1) == two.recv(1) == b""
        until(lambda: number(server, "connections") == 0)
        with opened(server) as other:
            assert "200 OK" in asked(other)


def test_refused_connections_are_closed(folder):
    with serving(folder, max_connections=1, client_connections=1) as server, opened(server) as held:
        assert "200 OK" in asked(held)
        with ExitStack() as stack:  # more than have time to read, and none of them reads
            refused = [stack.enter_context(opened(server)) for _ in range(300)]
            until(lambda: number(server, "refused_connections_total") == 300)
            until(lambda: all(_has_ended(one) for one in refused))


def _has_ended(connection):
    connection.settimeout(0.1)
    try:
        while connection.recv(2000):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_files_of_the_process_bound_connections_too():
    with socket.socket() as listening:
        assert Listener(listening, object, Limits, files=2).places.most == 2
        assert Listener(listening, object, Limits).places.most >= 1
    places = Places(lambda: Limits(max_connections=10), 2)
    places.enter("a"), places.enter("b")
    assert places.refusal("c") == "server"
    places.leave("a")
    assert places.refusal("c") is None


def test_a_handshake_that_does_not_come_gives_its_place_back(folder, tmp_path):
    access = with_certificate(tmp_path)
    limits = Limits(body_seconds=0.3, max_connections=1)
    with (
        ef.serving.Server(folder, port=0, limits=limits, access=access) as server,
        opened(server) as silent,
    ):
        until(lambda: number(server, "connections") == 1)
        assert silent.recv(1) == b""
        until(lambda: number(server, "connections") == 0)


# gRPC --------------------------------------------------------------------------------------------


def channel_of(server):
    return grpc.insecure_channel(
        f"{server.host}:{server.grpc_port}", [("grpc.use_local_subchannel_pool", 1)]
    )


def infer(channel):
    call = channel.unary_unary(
        f"/{SERVICE}/ModelInfer",
        lambda message: message.SerializeToString(),
        KNOWN["ModelInferResponse"].FromString,
    )
    return call(request(), timeout=20)


def silent_call(channel, method="ModelInfer", kind="stream_unary"):
    """A call that has begun, and whose message never comes."""
    never = iter(lambda: time.sleep(60), 1)
    made = getattr(channel, kind)(f"/{SERVICE}/{method}", lambda x: b"", lambda x: x)
    return made.future(never) if kind == "stream_unary" else made(never)


def test_calls_beyond_the_limit_are_refused(folder):
    with (
        serving(folder, 0, max_connections=8, client_connections=3) as server,
        channel_of(server) as one,
        channel_of(server) as two,
    ):
        held = [silent_call(one) for _ in range(2)]
        held.append(silent_call(one, "ModelStreamInfer", "stream_stream"))
        until(lambda: number(server, "grpc_calls") == 3)
        with pytest.raises(grpc.RpcError) as caught:
            infer(two)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "this address" in caught.value.details()
        assert number(server, "refused_connections_total") == 1
        for call in held:
            call.cancel()
        until(lambda: number(server, "grpc_calls") == 0)
        assert infer(two).model_name == "scale"


def test_connections_of_grpc_are_bounded(folder):
    limits = {"max_connections": 2, "body_seconds": 0.5}
    with serving(folder, 0, **limits) as server, ExitStack() as stack:
        address = server.host, server.grpc_port
        held = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(4)]
        begin = time.monotonic()
        assert [_has_ended(one) for one in held] == [False, False, True, True]
        until(lambda: all(_has_ended(one) for one in held))  # they said nothing
        assert time.monotonic() - begin < 10
        with channel_of(server) as channel:
            assert infer(channel).model_name == "scale"


@pytest.mark.parametrize(
    ("method", "kind"), [("ModelInfer", "stream_unary"), ("ModelStreamInfer", "stream_stream")]
)
def test_a_message_that_does_not_come_ends_its_call(folder, method, kind):
    with serving(folder, 0, body_seconds=0.3) as server, channel_of(server) as channel:
        begin = time.monotonic()
        call = silent_call(channel, method, kind)
        with pytest.raises(grpc.RpcError) as caught:
            call.result(20) if kind == "stream_unary" else list(call)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "took too long to arrive" in caught.value.details()
        assert time.monotonic() - begin < 10


def test_a_stream_on_which_nothing_more_comes_is_ended(folder):
    with serving(folder, 0, idle_seconds=0.3) as server, channel_of(server) as channel:

        def one():
            yield request(id="1")
            time.sleep(60)

        call = channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            lambda message: message.SerializeToString(),
            KNOWN["ModelStreamInferResponse"].FromString,
        )(one())
        assert next(call).infer_response.id == "1"
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_call_without_a_message_is_refused(folder):
    with serving(folder, 0) as server, channel_of(server) as channel:
        call = channel.stream_unary(f"/{SERVICE}/ModelInfer", lambda x: b"", lambda x: x)
        with pytest.raises(grpc.RpcError) as caught:
            call(iter([]), timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "without a message" in caught.value.details()
