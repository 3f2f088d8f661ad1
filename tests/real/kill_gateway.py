"""The gateway is killed: how long do its servers, and what they started, live on?"""

import json
import os
import signal
import statistics
import time
from collections import Counter
from contextlib import contextmanager

import proc
import raw
from sandbox import sandbox

WITHIN = 5.0
STARTS = 60


def commands(installed):
    """Servers as people start them, and one that starts others who listen to nobody."""
    clock = f"{installed}/py2/bin/mcp-server-time --local-timezone=UTC"
    return {
        "plain": [f"{installed}/node_modules/.bin/mcp-server-everything", "stdio"],
        "npm": ["npm", "exec", "--offline", "--prefix", installed, "--", "mcp-server-everything", "stdio"],
        "shell": ["sh", "-c", f"{clock}; true"],
        "strangers": ["sh", "-c", f"sleep 600 & sleep 601 </dev/null >/dev/null 2>&1 & {clock}; true"],
    }


@contextmanager
def served(names, arguments, here):
    """`serve` with these servers; gives the gateway's process id once all of them run."""
    wanted = {name: commands(arguments.installed)[name] for name in names}
    config = here.folder / "mcp.json"
    servers = {name: {"command": command[0], "args": command[1:]} for name, command in wanted.items()}
    config.write_text(json.dumps({"mcpServers": servers}))
    command = [arguments.seawall, "serve", "--config", str(config), "--listen", "127.0.0.1:0"]
    with here.running(command, r"listening on (http://\S+/mcp)") as found:
        client, until = raw.OverHttp(found[1], STARTS), time.monotonic() + STARTS
        # A list does not wait long for a server that starts; it says who is missing.
        while not all(f'"{name}__'.encode() in (tools := client.ask("tools/list")) for name in names):
            if time.monotonic() > until:
                raise RuntimeError(f"not all of {names} are there: {tools[-500:]}")
        yield next(pid for pid, line in here.processes().items() if line == " ".join(command))


@contextmanager
def wrapped(names, arguments, here):
    """`run` with one server."""
    with (here.folder / "log").open("w") as log:
        command = [arguments.seawall, "run", "--", *commands(arguments.installed)[names[0]]]
        session = raw.OverStdio(command, here.env, log)
        session.greet()
        session.ask("tools/call", {"name": "echo", "arguments": {"message": "hello"}}, 2)
        try:
            yield session.pid
        finally:
            session.process.kill()
            session.process.wait()


# What is started, how, and how often of a hundred times: those that stay cost five seconds each.
WAYS = [
    ("`seawall run --`, one server", wrapped, ["plain"], 1),
    ("`seawall serve`, one server through `npm exec`, one through `sh`", served, ["npm", "shell"], 1),
    (
        "`seawall serve`, one server plain, one that started two programs which read nothing",
        served,
        ["plain", "strangers"],
        0.1,
    ),
]


def killed(gateway):
    """Kills it; gives each process that was below it, what it was, and how long it lived on (None: it still does)."""
    family = [(each, proc.command(each.pid)) for each in proc.below(gateway) if each.state != "Z"]
    began = time.monotonic()
    os.kill(gateway, signal.SIGKILL)
    gone = {}
    while len(gone) < len(family) and time.monotonic() - began < WITHIN:
        for each, _ in family:
            if each.pid not in gone and each.is_gone:
                gone[each.pid] = time.monotonic() - began
        time.sleep(0.002)
    return [(each, command, gone.get(each.pid)) for each, command in family]


def are_swept(left, start):
    """Whether the next gateway ends what the one before left."""
    with start():
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline and not all(each.is_gone for each in left):
            time.sleep(0.05)
        return all(each.is_gone for each in left)


def row(title, way, names, share, arguments, tell):
    """Many kills in one way."""
    lives, left, swept = [], Counter(), Counter()
    kills = max(1, round(arguments.kills * share))
    for count in range(1, kills + 1):
        with sandbox() as here:
            with way(names, arguments, here) as gateway:
                found = killed(gateway)
            lives += [lived for _, _, lived in found if lived is not None]
            left.update(command for _, command, lived in found if lived is None)
            if stayed := [each for each, _, lived in found if lived is None]:
                swept[are_swept(stayed, lambda: way(names, arguments, here))] += 1
        if count % 10 == 0:
            tell(f"{count} kills, {sum(left.values())} processes left")
    broken = [f"{title}: {many} times still there after {WITHIN:.0f} s: `{each[:80]}`" for each, many in left.items()]
    if swept[False]:
        broken.append(f"{title}: {swept[False]} times still there {WITHIN:.0f} s after the next start of the gateway")
    return {
        "way": title,
        "kills": kills,
        "processes": len(lives) + left.total(),
        "left": left.total(),
        "lived": [statistics.median(lives), max(lives)],
        "broken": broken,
    }
