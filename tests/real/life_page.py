"""What the stages found, as a page for people."""

import os
import platform
import subprocess
from pathlib import Path

FIRST = "All of it before any other work of the machine (`chrt -f 1 tests/real/life --only start`)."
NOTES = "\n## Seen on the way\n"

HEAD = """# Servers and gateways that die: what real clients notice

```sh
cargo build --release -p seawall-gateway && tests/real/life --out docs/evidence/life.md   # about an hour
tests/real/life --only start --out docs/evidence/life.md                                  # one stage again: {stages}
```

{seawall}, release build, on {machine}.
The servers and clients are those of [real.md](real.md). "Load" is how many processes wanted a processor when a stage began and
ended; it counts other work on the machine too.
"""

SERVERS = """
## A server is killed a hundred times under a client that goes on calling

`server-everything` is killed with SIGKILL, each time after a call has succeeded since the last kill, half of the times in the
middle of a call. The client is one object with one session from its first to its last call; two callers share it, one quick
(`echo`, `get-sum`, `get-resource-reference`, `tools/list`), one slow (0.3 s). "Failed" are results with `isError` that say what
happened; anything else than a result would be an exception or a hang. "Tools" is how many different lists of tools were seen, byte
for byte. "Files" are the open files of the gateway at first → at the end, its own + connections that clients hold; only its own are judged.
"""

OVER = {
    "stdio": """The client starts `seawall run -- node …/server-everything stdio`, and the gateway starts the server again. Every list of tools is
taken from the wire between the client and the gateway, those during an outage included.""",
    "http": """The client is at `seawall serve`, `/mcp/everything`, and the script starts the server again, on the same port. Lists of tools are
taken from the wire before the first and after the last kill, and from the client throughout.""",
}

CELLS = """
| client | kills | calls under way then | calls | results | failed | exceptions, hangs | until a call works again, median / max | tools | zombies | left behind | files | memory |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""

GATEWAY = """
## The gateway is killed a hundred times

{done}

SIGKILL for the gateway when all its servers have answered; then every process that was below it is watched, children, their
children and so on. Where processes stay, each kill takes long, so there are fewer.

| gateway | kills | processes below | lived on, median / max | still there after 5 s |
|---|---|---|---|---|
"""

DEAD = """
## LangChain with three servers, one of them dead

{done}

`MultiServerMCPClient.get_tools()` of `langchain-mcp-adapters`, with `server-everything`, `mcp-server-time` and a server that does not
work; direct, and through one `seawall serve` at `/mcp`, which is asked twice.

| the third server | direct | `seawall serve`, first | again |
|---|---|---|---|
"""

START = """
## How soon the handshake is answered

{done}

A client starts `seawall run -- <server>`, sends `initialize` and reads the answer: from before the start to the last byte, for a
server that is remembered. "Computed" is how long the gateway's threads together had a processor, read a moment after the answer. `true` and
`seawall --version` are started and waited for in the same way. Goal: {goal} ms.

| server | starts | `initialize` median / p95 / max | computed | `seawall --version` | `true` | idle memory | load |
|---|---|---|---|---|---|---|---|
"""


def page(found, seawall, before=""):
    """The page; what people wrote at the end of the one before stays."""
    sections = {"stdio": stdio, "http": http, "gateway": gateway, "dead": dead, "start": start}
    version = subprocess.run([seawall, "--version"], capture_output=True, text=True).stdout.strip()
    text = HEAD.format(stages=", ".join(sections), seawall=f"`{version}` of {revision()}", machine=machine())
    text += "".join(sections[name](found[name]) for name in sections if name in found)
    broken = [f"- {each}" for name in found for row in found[name]["rows"] for each in named(row)]
    text += "\n## What fell short\n\n" + ("\n".join(broken) or "Nothing.") + "\n"
    return text + "".join(before.partition(NOTES)[1:])


def named(row):
    """The promises that were broken, with whose they are."""
    whose = f"{row['client']}, {row['way']}: " if "client" in row else ""
    return [f"{whose}{each}" for each in row["broken"]]


def revision():
    here = Path(__file__).parent
    last = ["git", "-C", here, "log", "-1", "--format=%h", "--", "../../crates"]
    return subprocess.run(last, capture_output=True, text=True).stdout.strip()


def machine():
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    return f"{os.cpu_count()} cores ({model}), Linux {platform.release().split('-')[0]}"


def done(stage):
    return f"{stage['date']}, {stage['took'] / 60:.1f} min, load {stage['load'][0]:.1f} → {stage['load'][1]:.1f}."


def three(values, digits=1):
    return " / ".join(f"{value:.{digits}f}" for value in values) + " ms"


def seconds(values):
    return values and " / ".join(f"{value:.2f}" for value in values) + " s"


def stdio(stage):
    return SERVERS + over("stdio", stage)


def http(stage):
    return over("http", stage)


def over(way, stage):
    title = {"stdio": "### Over stdio", "http": "### Over streamable HTTP"}[way]
    return f"\n{title}\n\n{done(stage)}\n\n{OVER[way]}\n{CELLS}{cells(stage)}"


def cells(stage):
    lines = []
    for row in stage["rows"]:
        ends = row["ends"]
        counts = [row.get("kills", "-"), row.get("under_way", "-"), sum(ends.values()), ends.get("result", 0)]
        why = ", ".join(f"{count} {kind}" for kind, count in row["failures"].items())
        failed = f"{ends.get('failure', 0)} ({why})" if why else "0"
        held = " → ".join(f"{every - own} + {own}" for every, own in row.get("descriptors", []))
        memory = " → ".join(f"{each:.1f} MiB" for each in row.get("memory", []))
        hangs = sum("hangs" in each for each in row["broken"])
        rest = [failed, ends.get("exception", 0) + hangs, seconds(row.get("recovery")) or "-", row["bytes"]]
        rest += [row.get("zombies", "-"), len(row["left"]), held, memory]
        lines.append("| " + " | ".join(map(str, [row["client"], *counts, *rest])) + " |")
    return "\n".join(lines) + "\n"


def lived(row):
    return " / ".join(f"{value * 1000:.0f}" for value in row["lived"]) + " ms"


def gateway(stage):
    rows = stage["rows"]
    lines = [f"| {row['way']} | {row['kills']} | {row['processes']} | {lived(row)} | {row['left']} |" for row in rows]
    return GATEWAY.format(done=done(stage)) + "\n".join(lines) + "\n"


def dead(stage):
    lines = []
    for row in stage["rows"]:
        error, took, left = row["direct"]
        direct = f"no tools: {error}" if "tools" not in error else error
        direct += f", {took:.1f} s" + (f", {left} processes left behind" if left else "")
        ours = [f"{tools}, {took:.1f} s" for tools, took in (row["first"], row["second"])]
        lines.append("| " + " | ".join([row["dead"], direct, *ours]) + " |")
    return DEAD.format(done=done(stage)) + "\n".join(lines) + "\n"


def start(stage):
    lines = []
    for row in stage["rows"]:
        times = [three(row[each]) for each in ("took", "computed", "version", "true")]
        lines.append("| " + " | ".join([row["server"], str(row["starts"]), *times]))
        lines[-1] += f" | {row['idle']:.1f} MiB | {row['load']:.1f} |"
    first = all(row["is_first"] for row in stage["rows"])
    how = f"{done(stage)} {FIRST}" if first else done(stage)
    return START.format(done=how, goal=20) + "\n".join(lines) + "\n"
