"""What became of abandoned writes, as a page for people."""

import datetime
import os
import platform
import subprocess
from pathlib import Path

TITLES = {
    "py1": "Python mcp 1.30",
    "py2": "Python mcp 2.3",
    "ts1": "TypeScript SDK 1.32",
    "langchain": "LangChain adapters 0.3",
    "raw": "a raw client",
}
HOWS = {
    "timeout": "times out",
    "drop": "connection dropped",
    "cancel": "cancelled",
    "three": "times out, then three at once",
}

HEAD = """# Clients that abandon a write: how often it is executed

```sh
cargo build --release -p seawall-gateway && tests/real/abandoned --out docs/evidence/clients.md   # about five minutes
SEAWALL=/path/to/seawall tests/real/abandoned --clients py1,raw                                   # another build, some clients
```

{seawall}, on {machine}, {date}.

A write (`make_note`, neither idempotent nor read-only) takes 4 s; its server notes each execution when it begins and takes no notice of
cancels. The client abandons the call after 1.5 s and makes the identical call again. The goal is **one execution in every cell**; a cell
that has more is marked "missed". Seawall runs without any configuration. Over HTTP the clients send an `Authorization` header, by which
they are the same caller after a reconnect.

- *times out*: the SDK's own limit for the call. Python 1.x sends no cancel then, and its connection stays open; TypeScript cancels.
- *connection dropped*: over HTTP the connections are cut under the call, in the network; Python 1.x
  loses its session by it and begins another one. Over `run` the client ends the
  wrapper under the call and starts another one.
- *cancelled*: the program cancels: an `AbortSignal` in TypeScript, the task in Python, `notifications/cancelled` in the raw client.
- *three at once*: after the timeout the identical call is made three times at the same time.
- LangChain's adapters open a session for each call, over HTTP, and start a process for each call, over `run`.
"""


def page(found, seawall):
    parts = [HEAD.format(seawall=version(seawall), machine=machine(), date=date())]
    for arm, title in (("Seawall", "Executions through Seawall"), ("direct", "Executions without Seawall")):
        parts.append(f"\n## {title}\n\n{table(found, arm)}")
    missed = [cell for cell in found if cell["arm"] == "Seawall" and cell["executions"] != 1]
    total = sum(cell["arm"] == "Seawall" for cell in found)
    verdict = f"{len(missed)} of {total} cells missed the goal." if missed else f"All {total} cells have one execution."
    parts.append(f"\n{verdict}\n\n## What the client read of its second call\n\n{read(found)}")
    return "".join(parts)


def table(found, arm):
    ways = ("HTTP", "run")
    head = "| client | " + " | ".join(f"{way}: {HOWS[how]}" for way in ways for how in HOWS) + " |\n"
    rule = "|---" * (1 + len(ways) * len(HOWS)) + "|\n"
    cells = {(cell["client"], cell["way"], cell["how"]): cell for cell in found if cell["arm"] == arm}
    rows = []
    for client in dict.fromkeys(cell["client"] for cell in found):
        row = [judged(cells[client, way, how], arm) for way in ways for how in HOWS]
        rows.append(f"| {TITLES[client]} | " + " | ".join(row) + " |\n")
    return head + rule + "".join(rows)


def judged(cell, arm):
    count = cell["executions"]
    return f"**{count}** missed" if arm == "Seawall" and count != 1 else str(count)


def read(found):
    lines = ["| client | over | after | direct | Seawall |\n|---|---|---|---|---|\n"]
    cells = {(cell["client"], cell["way"], cell["how"], cell["arm"]): cell for cell in found}
    for client, way, how, arm in cells:
        if arm == "direct":
            texts = [told(cells[client, way, how, each]["then"]) for each in ("direct", "Seawall")]
            lines.append(f"| {TITLES[client]} | {way} | {HOWS[how]} | {texts[0]} | {texts[1]} |\n")
    return "".join(lines)


def told(answers):
    """Each different thing that was read, and how often."""
    texts = [one(answer) for answer in answers]
    return "; ".join(f"{texts.count(text)} × {text}" if len(texts) > 1 else text for text in dict.fromkeys(texts))


def one(answer):
    if answer is None:
        return "nothing"
    if "exception" in answer:
        text = f"exception {answer['exception']}"
    else:
        text = f"failure {answer['text']}" if answer["error"] else answer["text"]
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 160 else text[:157] + "…"


def version(seawall):
    said = subprocess.run([seawall, "--version"], capture_output=True, text=True).stdout.strip()
    folder = Path(__file__).parent
    commit = subprocess.run(["git", "-C", folder, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return f"`{said}` of {commit.stdout.strip()}"


def machine():
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"


def date():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
