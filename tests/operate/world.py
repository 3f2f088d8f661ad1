"""A gateway with servers that fail on demand, for the tests of what operators look at: real processes and sockets on loopback.

Servers: `notes`, `web` and `mail` over HTTP, which answer each tool as `World.ends` says; `fixture`, a child process;
`gone`, which nobody serves. `AUTHORIZER` adds one that answers as `ends["authz", ""]` says.
"""

import json
import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
TOKEN = "open-sesame-1001"
TOOLS = {
    "notes": {"get_note": True, "search_notes": True, "list_notes": True, "add_note": False},
    "web": {"search": True, "fetch_page": True},
    "mail": {"list_mail": True, "send_mail": False},
}
CONFIG = """listen = "127.0.0.1:{port}"
[admin]
listen = "{host}:{admin}"
token = "{token}"
[store]
path = "{store}"
[defaults]
retry = {{ attempts = 2, base = "20ms" }}
loop = {{ mode = "off" }}
breaker = {{ failures = 3, cooldown = "60s" }}
[tools."web/*"]
fallback = []
[tools."mail/send_mail"]
breaker = {{ failures = 0 }}
[servers.notes]
url = "http://127.0.0.1:{upstream}/notes"
[servers.web]
url = "http://127.0.0.1:{upstream}/web"
[servers.mail]
url = "http://127.0.0.1:{upstream}/mail"
[servers.fixture]
command = "{fixture}"
args = ["--stdio", "--era", "legacy"]
shared = true
[servers.gone]
url = "http://127.0.0.1:{closed}/mcp"
{more}"""

AUTHORIZER = """[ext_authz]
service = "http://127.0.0.1:{upstream}/authz"
protocol = "http"
timeout = "200ms"
"""


def until(what, is_so, seconds=30):
    """Waits until something is so; its last value."""
    end = time.monotonic() + seconds
    while not (last := is_so()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return last


def free_ports(many):
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(many)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


class World:
    """The servers and the gateway, until the end of a `with`."""

    def __init__(self, host="127.0.0.1", more=""):
        self.ends = {}  # (server, tool): an HTTP status, or seconds that the answer takes
        self.host, self.more, self.sessions = host, more, {}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.port, self.admin_port, upstream, closed = free_ports(4)
        self.upstream = ThreadingHTTPServer(("127.0.0.1", upstream), handler(self))
        self.upstream.daemon_threads = True
        self.upstream.handle_error = lambda *_: None  # a gateway that hangs up in the middle, as it does when a server is restarted
        threading.Thread(target=self.upstream.serve_forever, daemon=True).start()
        config = Path(self.folder.name) / "seawall.toml"
        config.write_text(CONFIG.format(
            port=self.port, admin=self.admin_port, host=self.host, token=TOKEN, store=f"{self.folder.name}/state",
            upstream=upstream, closed=closed, fixture=BIN / "seawall-fixture", more=self.more.format(upstream=upstream)))
        self.log = open(Path(self.folder.name) / "log", "w+")
        command = [BIN / "seawall", "serve", "--config", config]
        self.gateway = subprocess.Popen(command, stderr=self.log, env=os.environ | {"HOME": self.folder.name})
        self.admin = f"http://127.0.0.1:{self.admin_port}"
        try:
            until("the gateway listens", self.is_ready)
            self.session("")  # of all servers: it starts them
            until("the servers are loaded", self.is_loaded)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.gateway.terminate()
        self.gateway.wait(20)
        self.upstream.shutdown()
        self.folder.cleanup()

    def is_ready(self):
        if self.gateway.poll() is not None:
            self.log.seek(0)
            raise AssertionError(self.log.read())
        try:
            return self.get("/healthz")
        except (urllib.error.URLError, ConnectionError):
            return None

    def is_loaded(self):
        servers = self.get("/resilience/servers")["servers"]
        return all(servers[name]["load"] == "available" for name in [*TOOLS, "fixture"])

    def get(self, path):
        request = urllib.request.Request(self.admin + path, headers={"X-API-Key": TOKEN})
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read().decode()
        return text if path == "/metrics" else json.loads(text)

    def ask(self, server, method, params, session=None):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"} if session else {}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/mcp/{server}".rstrip("/"), body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text, session = answer.read().decode(), answer.headers["Mcp-Session-Id"]
        data = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        return json.loads(data[-1] if data else text), session

    def call(self, server, tool, **arguments):
        """A tool call, as a client of that server; its result."""
        asked = {"name": tool, "arguments": arguments}
        return self.ask(server, "tools/call", asked, self.session(server))[0]["result"]

    def trip(self):
        """Opens the breaker of web__search; leaves a write in the queue, and returns its id."""
        self.ends["web", "search"] = 503
        until("the breaker opens", lambda: self.call("web", "search", q="x")["_meta"]["seawall/failure"]["code"] == "CIRCUIT_OPEN")
        self.ends["mail", "send_mail"] = 429
        return self.call("mail", "send_mail", to="x")["_meta"]["seawall/served"]["id"]

    def load(self):
        """A hundred calls; one of them is answered by a fallback."""
        for number in range(40):
            self.call("notes", "get_note", id=number)
            self.call("notes", "search_notes" if number % 3 else "list_notes", q=number)
        self.ends["web", "fetch_page"] = 0.03
        for number in range(12):
            self.call("web", "fetch_page", url=number)
        self.ends["mail", "list_mail"] = 503
        self.call("mail", "list_mail")
        del self.ends["mail", "list_mail"]
        for _ in range(5):
            self.call("mail", "list_mail")

    def session(self, server):
        if server not in self.sessions:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
            self.sessions[server] = self.ask(server, "initialize", hello)[1]
        return self.sessions[server]


def handler(world):
    class Handler(BaseHTTPRequestHandler):
        """An MCP server without sessions: one JSON answer for each request."""

        protocol_version = "HTTP/1.1"

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server = self.path.strip("/")
            if server.startswith("authz/"):
                return self.reply(world.ends.get(("authz", ""), 200))
            if "id" not in asked:
                return self.reply(202)
            method, params = asked["method"], asked.get("params", {})
            if method == "tools/call":
                end = world.ends.get((server, params["name"]), 0)
                if end >= 100:
                    return self.reply(end)
                time.sleep(end)
            result = {
                "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": server, "version": "1"}},
                "tools/list": {"tools": [
                    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": is_read}}
                    for name, is_read in TOOLS[server].items()]},
                "tools/call": {"content": [{"type": "text", "text": "well"}]},
                "ping": {},
            }.get(method)
            answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
            return self.reply(200, {"jsonrpc": "2.0", "id": asked["id"], **answer})

        def do_GET(self):
            self.reply(405)

        do_DELETE = do_GET

        def reply(self, status, body=None):
            body = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler
