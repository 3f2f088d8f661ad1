"""A client of one's own that sees the bytes: over HTTP, or over the stdin and stdout of a command it starts."""

import http.client
import json
import subprocess
from urllib.parse import urlsplit

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def message(method, params=None, number=None):
    said = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return json.dumps(said if number is None else {**said, "id": number}).encode()


def slice_of(text, key):
    """The bytes of a member of a message, as they stand there."""
    text = text.decode()
    start = text.index(f'"{key}":') + len(key) + 3
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end].encode()


class OverHttp:
    """A session over streamable HTTP."""

    def __init__(self, url, patience=60):
        parts = urlsplit(url)
        self.path, self.session = parts.path, None
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=patience)
        self.ask("initialize", HELLO)
        self._post(message("notifications/initialized"))

    def _post(self, body, method="POST"):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": HELLO["protocolVersion"]}
        self.connection.request(method, self.path, body, headers)
        answer = self.connection.getresponse()
        self.session = answer.headers.get("Mcp-Session-Id", self.session)
        text = answer.read()
        if answer.headers.get_content_type() == "text/event-stream":
            data = [line[5:].strip() for line in text.splitlines() if line.startswith(b"data:")]
            text = next(line for line in data if b'"id"' in line)
        return text

    def ask(self, method, params=None):
        return self._post(message(method, params, 1))

    def close(self):
        self._post(None, "DELETE")
        self.connection.close()


class OverStdio:
    """A session with a command; nothing is said before it is asked."""

    def __init__(self, command, env, log):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        self.process = subprocess.Popen(command, env=env, start_new_session=True, bufsize=0, **pipes)
        self.pid = self.process.pid

    def tell(self, method, params=None):
        self.process.stdin.write(message(method, params) + b"\n")

    def ask(self, method, params=None, number=1):
        """The line that answers."""
        self.process.stdin.write(message(method, params, number) + b"\n")
        while line := self._line():
            if json.loads(line).get("id") == number and b'"method"' not in line[:40]:
                return line
        raise RuntimeError(f"{method} was not answered: the command ended")

    def _line(self):
        line = b""
        while part := self.process.stdout.read(1 << 16):
            line += part
            if line.endswith(b"\n"):
                return line.splitlines()[-1]
        return line

    def greet(self):
        self.ask("initialize", HELLO)
        self.tell("notifications/initialized")

    def close(self, patience=10):
        self.process.stdin.close()
        self.process.wait(patience)
        self.process.stdout.close()
