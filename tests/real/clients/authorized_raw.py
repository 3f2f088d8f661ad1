"""A client with no SDK, led as led.py says: it sees every status, header and body.

Usage: python3 authorized_raw.py TARGET
"""

import http.client
import json
import sys
from urllib.parse import urlsplit

VERSION = "2025-11-25"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
target = json.loads(sys.argv[1])
parts = urlsplit(target["url"])
session = None


def post(message):
    global session
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **target["headers"]}
    if session:
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": VERSION}
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    connection.request("POST", parts.path, json.dumps({"jsonrpc": "2.0", **message}), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.headers.get_content_type() == "text/event-stream":
        text = next(line[5:] for line in text.splitlines() if line.startswith("data:") and '"id"' in line)
    connection.close()
    session = answer.headers.get("Mcp-Session-Id", session)
    return answer, json.loads(text) if text.strip() else {}


def ask(method, params):
    answer, said = post({"id": 1, "method": method, "params": params})
    headers = {name: answer.headers.get(name) for name in ("WWW-Authenticate", "Retry-After")}
    seen = {"headers": headers, "id": said.get("id")}
    if "error" in said:
        error = said["error"]
        told = {"exception": "error", "text": error["message"], "code": error["code"], "failure": error.get("data")}
        return {**seen, **told, "status": answer.status if answer.status != 200 else None}
    result = said["result"]
    if method != "tools/call":
        return {**seen, "text": " ".join(tool["name"] for tool in result.get("tools", [])) or "connected"}
    failure = result.get("_meta", {}).get("seawall/failure")
    return {**seen, "isError": result.get("isError", False), "text": result["content"][0]["text"], "failure": failure}


def step(command):
    global session
    if command == "list":
        return ask("tools/list", {})
    if command == "call":
        return ask("tools/call", {"name": target["tool"], "arguments": target["arguments"]})
    session = None
    seen = ask("initialize", HELLO)
    if "exception" not in seen:
        post({"method": "notifications/initialized"})
    return seen


print(json.dumps({"text": "ready"}), flush=True)
for line in sys.stdin:
    if line.strip() == "end":
        break
    print(json.dumps(step(line.strip())), flush=True)
