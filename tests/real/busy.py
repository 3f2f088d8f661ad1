"""A client that calls tools all the time, and what it has said so far about each call."""

import json
import queue
import re
import subprocess
import threading
import time
from collections import Counter

PATIENCE = 60
AT_SERVER = 0.1


class Busy:
    """A client that calls all the time, and what it has said so far."""

    def __init__(self, command, env, log):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        self.process = subprocess.Popen(command, env=env, text=True, start_new_session=True, **pipes)
        self.lines = queue.Queue()
        self.begun, self.ends, self.tools, self.said = {}, Counter(), set(), set()
        self.failures, self.exceptions, self.slowest = Counter(), [], 0
        self.examples, self.last_success = {}, (0.0, 0.0)
        self.at_server, self.untrue = set(), []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), json.loads(line)))
        self.lines.put((time.monotonic(), {"ended": True}))

    def hear(self, patience=PATIENCE):
        """Takes note of the next line and gives it."""
        try:
            when, line = self.lines.get(timeout=patience)
        except queue.Empty:
            raise RuntimeError(f"the client hangs: nothing ended within {patience} s of {list(self.begun)}") from None
        self.said |= line.keys()
        if name := line.get("begins"):
            self.begun[name] = when
        elif name := line.get("tool"):
            self._end(name, line, when)
        elif "ended" in line:
            raise RuntimeError("the client ended by itself")
        return line

    def _end(self, name, line, when):
        began, end = self.begun.pop(name), line["end"]
        if (name, began) in self.at_server and "It was not executed" in line.get("text", ""):
            self.untrue.append(line["text"])
        self.slowest = max(self.slowest, line["ms"])
        self.ends[end] += 1
        if end == "exception":
            self.exceptions.append(f"{name}: {line['text']}")
        elif end == "failure":
            self.failures[kind(line["text"])] += 1
            self.examples.setdefault(kind(line["text"]), line["text"])
        elif "tools" in line:
            self.tools.add(line["tools"])
        else:
            self.last_success = (began, when)

    def hear_until(self, condition, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {patience} s; the last failures: {self.failures}")
            self.hear()

    def success_since(self, moment):
        """Waits for a call that began after a moment and succeeded; gives when it did."""
        self.hear_until(lambda: self.last_success[0] > moment)
        return self.last_success[1]

    def note_kill(self):
        """The server is killed now: what it has had for a while, it has begun to execute."""
        now = time.monotonic()
        self.at_server |= {(name, began) for name, began in self.begun.items() if now - began > AT_SERVER}
        return now

    def hear_for(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self.hear(left)
            except RuntimeError:
                if self.process.poll() is not None:
                    raise

    def close(self):
        """Asks the client to stop, and waits until it has."""
        self.process.stdin.close()
        self.hear_until(lambda: "closed" in self.said)
        if self.process.wait(PATIENCE) != 0:
            raise RuntimeError(f"the client ended with status {self.process.returncode}")


def kind(text):
    """A failure without what is different each time."""
    for words in ("was lost while", "is starting up", "could not be reached", "no longer knows", "HTTP status"):
        if words in text:
            return words
    return re.sub(r"\d+", "#", text)[:120]
