"""How long a client waits for its handshake with a gateway that it starts, and what an idle gateway costs."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import proc
import raw
from sandbox import sandbox, until

GOAL_MS = 20
SLOW = 20
HERE = Path(__file__).parent


def kinds(installed):
    package = f"{installed}/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    return {
        f"one that takes {SLOW} s to start": [sys.executable, str(HERE / "servers/slow.py"), str(SLOW)],
        "`server-everything`": ["node", package, "stdio"],
    }


def quantiles(times):
    ordered = sorted(times)
    return [statistics.median(ordered), ordered[max(0, round(len(ordered) * 0.95) - 1)], ordered[-1]]


def warm(command, here):
    """One whole session, so that everything is remembered; gives its handshake."""
    with (here.folder / "log").open("w") as log:
        session = raw.OverStdio(command, here.env, log)
        hello = session.ask("initialize", raw.HELLO)
        session.tell("notifications/initialized")
        session.ask("tools/call", {"name": "no-such-tool"}, 2)  # Waits until the server is there.
        tools = session.ask("tools/list", None, 3)
        memory = here.folder / ".local/state/seawall/catalog"
        until(lambda: any(b'"tools/list"' in file.read_bytes() for file in memory.glob("*.json")), "not remembered")
        idle = proc.resident(session.pid)
        session.close()
    if not json.loads(tools)["result"]["tools"]:
        raise RuntimeError(f"no tools: {tools[:300]}")
    return hello, idle


def start(command, here, log):
    """From the moment before the command is started to the last byte of its answer, in ms; what it computed for
    that, in ms, however long it waited for a processor; and what it answered."""
    began = time.perf_counter()
    session = raw.OverStdio(command, here.env, log)
    answer = session.ask("initialize", raw.HELLO)
    took, used = (time.perf_counter() - began) * 1000, proc.computed(session.pid)
    family = proc.below(session.pid)
    os.kill(session.pid, signal.SIGKILL)
    session.process.wait()
    until(lambda: all(each.is_gone for each in family), "its server lives on")
    return took, used, answer


def bare(command, here):
    """The same for a command that only starts and ends: what of it is the machine's."""
    began = time.perf_counter()
    subprocess.run(command, env=here.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1000


def row(title, server, arguments):
    command = [arguments.seawall, "run", "--", *server]
    broken = []
    with sandbox() as here, (here.folder / "log").open("w") as log:
        _, idle = warm(command, here)
        times, used, load = [], [], os.getloadavg()[0]
        for _ in range(arguments.starts):
            took, computed, answer = start(command, here, log)
            times.append(took)
            used.append(computed)
            if "serverInfo" not in json.loads(answer).get("result", {}):
                broken.append(f"{title}: {answer[:200]}")
        machine = quantiles([bare(["true"], here) for _ in range(arguments.starts)])
        own = quantiles([bare([arguments.seawall, "--version"], here) for _ in range(arguments.starts)])
        found = quantiles(times)
        if found[0] > GOAL_MS:
            broken.append(f"{title}: initialize takes {found[0]:.1f} ms, the goal is {GOAL_MS}")
        broken += [f"{title}: left behind: {each}" for each in here.left_behind()]
    found = {"took": found, "computed": quantiles(used), "true": machine, "version": own}
    found["is_first"] = os.sched_getscheduler(0) == os.SCHED_FIFO
    return {"server": title, "starts": arguments.starts, **found, "idle": idle, "load": load, "broken": broken}
