"""Who takes part: the gateway, a server that is too busy at first, and a client."""

import json
import os
import re
import signal
import subprocess
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from faults import TARGET

SEAWALL = TARGET / "debug/seawall"
VERSION = "2026-07-28"
# What may be executed more than once; and what the server executes without a word, so that nobody knows.
IS_IDEMPOTENT = lambda n: n % 5 == 2
IS_LOST = lambda n: n % 20 == 11
# How long anything may take, in seconds.
PATIENCE = 20


class Server(ThreadingHTTPServer):
    """An MCP server of the legacy era. It is too busy for a call at first sight, and executes it when it comes again."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen, self.ledger, self.lock = set(), [], threading.Lock()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, address):
        pass  # A gateway that was killed is no surprise here.


class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        params = message.get("params", {})
        match message.get("method"):
            case "initialize":
                version, info = params["protocolVersion"], {"name": "crash", "version": "1"}
                self.result(message, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list":
                hints = {"create": {"readOnlyHint": False, "destructiveHint": False}, "update": {"idempotentHint": True}}
                self.result(message, {"tools": [{"name": name, "inputSchema": {"type": "object"}, "annotations": annotations}
                                                for name, annotations in hints.items()]})
            case "tools/call":
                self.execute(message, params["arguments"]["n"])
            case "ping":
                self.result(message, {})
            case _ if "id" in message:
                self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}})
            case _:
                self.reply(202)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.reply(405)

    def execute(self, message, n):
        with self.server.lock:
            is_first = n not in self.server.seen
            self.server.seen.add(n)
            if not is_first:
                self.server.ledger.append(n)
            is_repeated = self.server.ledger.count(n) > 1
        if is_first:
            self.reply(429)
        elif IS_LOST(n) and not is_repeated:
            self.close_connection = True
        else:
            self.result(message, {"content": [{"type": "text", "text": f"made {n}"}]})

    def result(self, message, result):
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def reply(self, status, body=None):
        body = json.dumps(body).encode() if body else b""
        head = f"HTTP/1.1 {status} .\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, *_):
        pass


class Gateway:
    """`seawall serve` on a store, ended with the block."""

    def __init__(self, folder, server, before=()):
        config = Path(folder, "seawall.toml")
        config.write_text(f'listen = "127.0.0.1:0"\n[store]\npath = "{folder}/store"\n'
                          '[defaults]\nretry = { attempts = 1 }\nbreaker = { failures = 0 }\n'
                          f'[servers.s]\nurl = "http://127.0.0.1:{server.server_port}/mcp"\ntype = "http"\n')
        self.command = [*before, SEAWALL, "serve", "--no-catalog-cache", "--config", config]
        self.said, self.port, self.listens = [], None, threading.Event()

    def __enter__(self):
        # As many threads on every machine, so that the Nth call of one means the same.
        environment = {**os.environ, "TOKIO_WORKER_THREADS": "2"}
        command = [str(part) for part in self.command]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        self.listens.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.said.append("it did not end when it was asked to\n")
        self.process.wait()
        self.listener.join(PATIENCE)

    def listen(self):
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                self.listens.set()
        self.listens.set()

    def client(self):
        return Client(self.port)


class Client:
    """A client of the modern era: every request says everything, and whoever comes may read what became of a call."""

    def __init__(self, port):
        self.connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(self, method, name, params):
        meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}})
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream",
                   "mcp-protocol-version": VERSION, "mcp-method": method, "mcp-name": name}
        self.connection.request("POST", "/mcp/s", body.encode(), headers)
        text = self.connection.getresponse().read().decode()
        events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        return json.loads(events[-1] if events else text)

    def write(self, n):
        tool = "update" if IS_IDEMPOTENT(n) else "create"
        return self.ask("tools/call", tool, {"name": tool, "arguments": {"n": n}})

    def read(self, id):
        uri = f"seawall://queue/{id}"
        answer = self.ask("resources/read", uri, {"uri": uri})
        return json.loads(answer["result"]["contents"][0]["text"]) if "result" in answer else None
