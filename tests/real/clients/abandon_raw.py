"""A client with no SDK abandons a write and asks again: every byte is its own. It cancels as the protocol says.

Usage: python3 abandon_raw.py < job.json > seen.json; the ways of abandoning are those of abandon.py
"""

import http.client
import itertools
import json
import queue
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

PATIENCE = 20
VERSION = "2025-11-25"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
numbers = itertools.count(1)


def shown(answer):
    if "error" in answer:
        return {"exception": f"{answer['error']['code']}: {answer['error']['message']}"}
    result = answer["result"]
    return {"error": result.get("isError", False), "text": result["content"][0]["text"]}


class OverHttp:
    def __init__(self, target):
        self.parts, self.session, self.headers = urlsplit(target["url"]), None, target["headers"]
        self.ask("initialize", HELLO, PATIENCE)
        self.tell("notifications/initialized", {})

    def post(self, message, seconds):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers |= self.headers
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": VERSION}
        connection = http.client.HTTPConnection(self.parts.hostname, self.parts.port, timeout=seconds)
        connection.request("POST", self.parts.path, json.dumps(message), headers)
        answer = connection.getresponse()
        self.session = answer.headers.get("Mcp-Session-Id", self.session)
        text = answer.read().decode()
        if answer.headers.get_content_type() == "text/event-stream":
            text = [line[5:] for line in text.splitlines() if line.startswith("data:") and "result" in line][-1]
        return json.loads(text) if text.strip() else {"error": {"code": answer.status, "message": "no answer"}}

    def ask(self, method, params, seconds, number=None):
        message = {"jsonrpc": "2.0", "id": number or next(numbers), "method": method, "params": params}
        return self.post(message, seconds)

    def tell(self, method, params):
        self.post({"jsonrpc": "2.0", "method": method, "params": params}, PATIENCE)

    def end(self):
        pass


class OverPipes:
    def __init__(self, target):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(target["command"], env=target.get("env"), text=True, **pipes)
        self.waiting = {}
        threading.Thread(target=self.read, daemon=True).start()
        self.ask("initialize", HELLO, PATIENCE)
        self.tell("notifications/initialized", {})

    def read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") in self.waiting and "method" not in answer:
                self.waiting[answer["id"]].put(answer)

    def say(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params, seconds, number=None):
        number = number or next(numbers)
        answers = self.waiting[number] = queue.Queue()
        self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            return answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None

    def tell(self, method, params):
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def call(client, job, seconds, number=None):
    try:
        params = {"name": job["tool"], "arguments": job["arguments"]}
        return shown(client.ask("tools/call", params, seconds, number))
    except (OSError, TimeoutError, http.client.HTTPException) as error:
        return {"exception": f"{type(error).__name__}: {error}"}


def cancelled(client, job):
    """The call goes on in the background; this client is not interested any more."""
    number = next(numbers)
    threading.Thread(target=call, args=(client, job, PATIENCE, number), daemon=True).start()
    time.sleep(job["patience"])
    client.tell("notifications/cancelled", {"requestId": number})
    return {"exception": "cancelled by the program"}


def main(job):
    way = OverHttp if "url" in job["target"] else OverPipes
    client, how = way(job["target"]), job["how"]
    if how == "cancel":
        first = cancelled(client, job)
    elif how == "drop" and way is OverPipes:
        threading.Thread(target=call, args=(client, job, PATIENCE), daemon=True).start()
        time.sleep(job["patience"])
        client.end()
        first, client = {"exception": "the program ended the process"}, way(job["target"])
    elif how in ("timeout", "three") and way is OverHttp:
        # Its connection stays open, as that of an SDK that only stops waiting.
        threading.Thread(target=call, args=(client, job, PATIENCE), daemon=True).start()
        time.sleep(job["patience"])
        first = {"exception": "timed out"}
    else:
        first = call(client, job, job["patience"])
    then = [None] * (3 if how == "three" else 1)

    def again(place):
        then[place] = call(client, job, PATIENCE)

    threads = [threading.Thread(target=again, args=(place,)) for place in range(len(then))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"first": first, "then": then}), flush=True)
    client.end()


main(json.load(sys.stdin))
