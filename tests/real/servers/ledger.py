"""A server with one tool that writes, slowly, and notes every execution in a file the moment it begins.

It takes no notice of cancels, as most servers do. With METHODS it notes every message there, by its method.
Usage: python3 ledger.py FILE SECONDS stdio|PORT [METHODS]
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LEDGER, SECONDS, WAY = sys.argv[1], float(sys.argv[2]), sys.argv[3]
METHODS = sys.argv[4] if len(sys.argv) > 4 else None
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOL = {
    "name": "make_note",
    "description": "Makes a note.",
    "inputSchema": SCHEMA,
    "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False},
}
lock = threading.Lock()


def executed(arguments):
    """Notes an execution; gives its number."""
    with lock, open(LEDGER, "a+") as ledger:
        ledger.write(json.dumps(arguments) + "\n")
        ledger.flush()
        ledger.seek(0)
        return len(ledger.readlines())


def heard(asked):
    if METHODS:
        with lock, open(METHODS, "a") as methods:
            methods.write(asked.get("method", "an answer") + "\n")


def answer(asked):
    method, params = asked["method"], asked.get("params", {})
    if method == "initialize":
        info = {"name": "ledger", "version": "1"}
        version = params["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": [TOOL]}}
    if method == "tools/call":
        number = executed(params["arguments"])
        time.sleep(SECONDS)
        return {"result": {"content": [{"type": "text", "text": f"note {number} made"}]}}
    return {"result": {}} if method == "ping" else {"error": {"code": -32601, "message": "Method not found"}}


def reply(asked):
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer(asked)})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        heard(asked)
        if "id" not in asked or "method" not in asked:
            return self.send(202)
        if asked["method"] == "server/discover":
            return self.send(400)
        self.send(200, reply(asked).encode(), {"Content-Type": "application/json", "Mcp-Session-Id": "one"})

    def do_GET(self):
        self.send(405)

    def do_DELETE(self):
        self.send(200)

    def send(self, status, body=b"", headers=()):
        try:
            self.send_response(status)
            for name, value in {**dict(headers), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # Its client has gone.

    def log_message(self, *_):
        pass


def on_pipes():
    def respond(asked):
        text = reply(asked)
        with lock:
            print(text, flush=True)

    for line in sys.stdin:
        asked = json.loads(line)
        heard(asked)
        if "id" in asked and "method" in asked:
            threading.Thread(target=respond, args=(asked,), daemon=True).start()


if WAY == "stdio":
    on_pipes()
else:
    server = ThreadingHTTPServer(("127.0.0.1", int(WAY)), Handler)
    print(f"listening on {server.server_address[1]}", flush=True)
    server.serve_forever()
