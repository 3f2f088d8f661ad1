"""Fixed scripts of calls: a program between a client and a server that answer in constants, and nothing else in between that costs.

A script starts the program behind a command of the measurer's (valgrind, strace), calls a tool so many times, one call at a time, and ends it.
"""

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release"
SEAWALL, SIDE = Path(os.environ.get("SEAWALL_BIN", RELEASE / "seawall")), RELEASE / "seawall-bench-side"
CHILD = [sys.executable, str(Path(__file__).with_name("child.py"))]
# What a program may take until it listens, and a call until it is answered: valgrind is slow, and machines are busy.
PATIENCE = 120
MODERN = "2026-07-28"
CLIENT = {"name": "cost", "version": "1"}
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": CLIENT}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}


def message(method, params, number=None):
    about = {} if number is None else {"id": number}
    return json.dumps({"jsonrpc": "2.0", **about, "method": method, "params": params}, separators=(",", ":")).encode()


class Http:
    """One connection of keep-alive."""

    def __init__(self, address):
        self.host = address
        self.socket = socket.create_connection(address.split(":"), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.headers, self.number = "", 0

    def post(self, body):
        """The head and the body of the answer."""
        head = (f"POST /mcp HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
                f"accept: application/json, text/event-stream\r\n{self.headers}content-length: {len(body)}\r\n\r\n")
        self.socket.sendall(head.encode() + body)
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.more()
        head, body = got.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        while len(body) < int(length[1] if length else 0):
            body += self.more()
        return head.decode(), body

    def more(self):
        piece = self.socket.recv(1 << 20)
        assert piece, "the connection broke off"
        return piece


def legacy(client, calls, tool="small"):
    """A session of the legacy era, and its calls."""
    if not client.headers:
        head, _ = client.post(message("initialize", INITIALIZE, 0))
        session = re.search(r"(?i)mcp-session-id: *(\S+)", head)
        client.headers = f"mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session[1] if session else 'none'}\r\n"
        client.post(message("notifications/initialized", {}))
    many(client, calls, {"name": tool, "arguments": {"city": "Oslo"}})


def large(client, calls):
    """The same with answers of a megabyte."""
    legacy(client, calls, "large")


def modern(client, calls):
    """Calls of the modern era, which need no session."""
    client.headers = f"mcp-protocol-version: {MODERN}\r\nmcp-method: tools/call\r\nmcp-name: small\r\n"
    many(client, calls, {"name": "small", "arguments": {"city": "Oslo"}, "_meta": META})


def many(client, calls, params):
    for _ in range(calls):
        client.number += 1
        right(client.number, client.post(message("tools/call", params, client.number))[1])


def right(number, answer):
    found = json.loads(answer)
    assert found["id"] == number and not found["result"].get("isError"), answer


@contextmanager
def running(command, signs_on=None, **more):
    """A program and the address that it says; ended by the end of its stdin and by SIGTERM."""
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, **more)
    try:
        address = None
        while signs_on and address is None:
            line = getattr(process, signs_on).readline().decode()
            assert line, f"{command[0]} ended before it listened"
            found = re.search(r"http://([\d.]+:\d+)", line)
            address = found and found[1]
        yield process, address
    finally:
        process.stdin.close()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes every export of spans and metrics, and counts the bytes of spans."""

    protocol_version, spans = "HTTP/1.1", 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        Collector.spans += len(body) if self.path.endswith("/v1/traces") else 0
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Nobody reads it."""


@contextmanager
def telemetry(is_on):
    """A collector, and the section of the configuration that sends to it."""
    if not is_on:
        yield ""
        return
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        before = Collector.spans
        yield f'[telemetry]\nprotocol = "http/protobuf"\nendpoint = "http://127.0.0.1:{collector.server_port}"\n'
        collector.shutdown()
        assert Collector.spans > before, "no span was exported"


@contextmanager
def over_http(under, program, home, workers):
    """A client of a program that stands before the fast server, and the program's process."""
    sides = running([SIDE, "server"], "stdout", stdout=subprocess.PIPE)
    with sides as (_, behind), telemetry(program == "telemetry") as section:
        if program == "relay":
            command, said = [SIDE, "relay", f"http://{behind}"], {"stdout": subprocess.PIPE}
        else:
            config = Path(home) / "seawall.toml"
            config.write_text(f'listen = "127.0.0.1:0"\n[servers.bench]\nurl = "http://{behind}/mcp"\n{section}')
            command, said = [SEAWALL, "serve", "--config", config], {"stderr": subprocess.PIPE}
        with running([*under, *command], *said, **said, env=environment(home, workers)) as (process, address):
            client = Http(address)
            yield client, process
            client.socket.close()


@contextmanager
def over_stdio(under, home, workers):
    """A client of the wrapper around one child."""
    command = [*under, SEAWALL, "run", "--", *CHILD]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(home, workers)) as (process, _):
        yield Pipe(process), process


class Pipe:
    """The stdin and stdout of the wrapper."""

    def __init__(self, process):
        self.process, self.headers, self.number = process, "", 0

    def post(self, body):
        self.process.stdin.write(body + b"\n")
        self.process.stdin.flush()
        answer = b""
        # What the gateway says of its own accord is no answer.
        while b'"id":' in body and b'"id":' not in answer:
            answer = self.process.stdout.readline()
            assert answer, "the wrapper ended"
        return "", answer


def environment(home, workers):
    """So many worker threads, and no state of this machine."""
    return os.environ | {"TOKIO_WORKER_THREADS": str(workers), "HOME": str(home), "XDG_STATE_HOME": str(home)}


# What is measured: the program, and how it is spoken to. valgrind cannot run the last one: it starts children through /proc/self/exe.
SCRIPTS = {
    "raw relay": ("relay", legacy),
    "http, legacy era": ("seawall", legacy),
    "http, modern era": ("seawall", modern),
    "http, legacy era, 1 MB": ("seawall", large),
    "http, legacy era, with telemetry": ("telemetry", legacy),
    "stdio child": ("stdio", legacy),
}


@contextmanager
def started(name, under=(), workers=1):
    """A running script: what calls so many times, and the process that is called. With one worker thread it is the same work each time."""
    program, conversation = SCRIPTS[name]
    with tempfile.TemporaryDirectory(prefix="seawall-cost-") as home:
        opened = over_stdio(under, home, workers) if program == "stdio" else over_http(under, program, home, workers)
        with opened as (client, process):
            yield (lambda calls: conversation(client, calls)), process
