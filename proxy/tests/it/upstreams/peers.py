"""Both ends of gRPC, without generated code: messages are bytes.

    peers.py server [CERT KEY]      serves until its input ends; prints its port
    peers.py ask ADDRESS [CA]       asks through the proxy at the address; the first wrong answer is an error
"""
import sys, threading
from concurrent import futures

import grpc
from google.rpc import error_details_pb2, status_pb2

REFUSED, GONE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE


def read(path):
    with open(path, "rb") as file:
        return file.read()


# The server.

cancelled = threading.Event()


def echo(request, context):
    context.set_trailing_metadata((("x-trailer", "last"), ("x-seen", dict(context.invocation_metadata()).get("x-asked", ""))))
    return request


def count(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def total(requests, context):
    return b"%d" % sum(int(request) for request in requests)


def chat(requests, context):
    # Each answer comes before the next question.
    for request in requests:
        yield request.upper()


def fail(request, context):
    context.set_trailing_metadata((("x-trailer", "last"),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no: 100%, \u00fc")


def hang(request, context):
    """Tells the time that is left, and waits for the end of the call."""
    context.add_callback(cancelled.set)
    yield b"%f" % (context.time_remaining() or 0)
    cancelled.wait(60)


def was_cancelled(request, context):
    return b"yes" if cancelled.wait(15) else b"no"


def serve(files):
    methods = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Total": grpc.stream_unary_rpc_method_handler(total),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Hang": grpc.unary_stream_rpc_method_handler(hang),
        "WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
    }
    server = grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", methods),))
    if files:
        chain, key = map(read, files)
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


# The client.

def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r}, not {wanted!r}")
    print(f"{what}: {got!r}")


def ask(channel):
    unary, stream = channel.unary_unary, channel.unary_stream
    answer, call = unary("/test.Test/Echo").with_call(b"hello", metadata=(("x-asked", "abc"),))
    check("a unary call", answer, b"hello")
    trailers = dict(call.trailing_metadata())
    check("its trailers", (trailers.get("x-trailer"), trailers.get("x-seen")), ("last", "abc"))
    check("a large message", unary("/test.Test/Echo")(b"x" * 3_000_000) == b"x" * 3_000_000, True)
    check("a stream of answers", list(stream("/test.Test/Count")(b"5")), [b"0", b"1", b"2", b"3", b"4"])
    check("a stream of questions", channel.stream_unary("/test.Test/Total")(iter([b"1", b"2", b"3"])), b"6")

    turn = threading.Semaphore(1)

    def questions():
        for word in (b"one", b"two", b"three"):
            turn.acquire()
            yield word
    said = []
    for answer in channel.stream_stream("/test.Test/Chat")(questions()):
        said.append(answer)
        turn.release()
    check("a stream both ways, in turns", said, [b"ONE", b"TWO", b"THREE"])

    try:
        unary("/test.Test/Fail")(b"")
        sys.exit("a failure is none")
    except grpc.RpcError as error:
        check("a status", (error.code(), error.details()), (grpc.StatusCode.FAILED_PRECONDITION, "no: 100%, \u00fc"))
        check("its trailers", dict(error.trailing_metadata()).get("x-trailer"), "last")

    try:
        unary("/test.Test/Nothing")(b"")
        sys.exit("a method that is not there is none")
    except grpc.RpcError as error:
        check("no method", error.code(), grpc.StatusCode.UNIMPLEMENTED)

    call = stream("/test.Test/Hang")(b"", timeout=2)
    left = float(next(call))
    check("a deadline reaches the server", 0 < left < 2.1, True)
    try:
        next(call)
        sys.exit("a deadline is none")
    except grpc.RpcError as error:
        check("a deadline", error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
    check("its end reaches the server", unary("/test.Test/WasCancelled")(b"", timeout=20), b"yes")


def refused(channel):
    """The burst of the proxy is 1 an hour."""
    unary = channel.unary_unary("/test.Test/Echo")
    check("the burst", unary(b"1"), b"1")
    try:
        unary(b"2")
        sys.exit("the limit is none")
    except grpc.RpcError as error:
        check("a refusal", error.code(), REFUSED)
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(details)
    info = error_details_pb2.RetryInfo()
    check("its detail", status.details[0].Unpack(info), True)
    check("its wait", 0 < info.retry_delay.seconds <= 3600, True)


def gone(channel):
    try:
        channel.unary_unary("/test.Test/Echo")(b"1")
        sys.exit("an upstream that is gone answers")
    except grpc.RpcError as error:
        check("no upstream", error.code(), GONE)
        check("its line", "Bad gateway" in error.details(), True)


command, *rest = sys.argv[1:]
if command == "server":
    serve(rest)
else:
    address, *authority = rest
    if authority:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(read(authority[0])))
    else:
        channel = grpc.insecure_channel(address)
    {"ask": ask, "refused": refused, "gone": gone}[command](channel)
