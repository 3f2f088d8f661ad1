"""A server is killed again and again under a client that goes on calling: is every call answered?"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import proc
import raw
from busy import Busy
from plan import clients
from sandbox import kill_group, sandbox, until

DESCRIPTORS = 2
HERE = Path(__file__).parent
ECHO = {"name": "echo", "arguments": {"message": "hello"}}
SLOW = "trigger-long-running-operation"


def command_of(client, installed):
    """How the busy client is started."""
    if client.startswith("ts"):
        return ["node", HERE / "clients/busy.mjs", client[2:], installed]
    return [f"{installed}/{client}/bin/python", HERE / "clients/busy.py"]


class OverStdio:
    """`seawall run -- server`, started by the client itself."""

    title = "stdio, `seawall run --`"

    def __init__(self, seawall, installed, here):
        self.here, self.log = here, here.folder / "wire.log"
        self.server = [
            "node",
            f"{installed}/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
            "stdio",
        ]
        self.log.touch()
        self.seawall, self.killed = seawall, set()
        self.target = {
            "command": [sys.executable, str(HERE / "tap.py"), str(self.log), seawall, "run", "--", *self.server]
        }

    @contextmanager
    def running(self):
        yield

    def gateway(self, client):
        """The process that is the gateway."""
        mine = f"{self.seawall} run"
        return next(each.pid for each in proc.below(client.process.pid) if proc.command(each.pid).startswith(mine))

    def servers(self, gateway):
        return [each.pid for each in proc.living_children(gateway)]

    def kill(self, gateway):
        until(lambda: set(self.servers(gateway)) - self.killed, "the server was not started again")
        for pid in set(self.servers(gateway)) - self.killed:
            self.killed.add(pid)
            os.kill(pid, signal.SIGKILL)

    def note(self):
        """The tap notes all."""

    def meanwhile(self):
        return f"processes: {sorted(self.here.processes().values())}"

    def bytes(self):
        """The tools of every list that was on the wire, each once."""
        return list(dict.fromkeys(raw.slice_of(line, "tools") for line in self.log.read_bytes().splitlines()))


class OverHttp:
    """`seawall serve` before a server that somebody else runs, on a port that stays the same."""

    title = "HTTP, `seawall serve`"

    def __init__(self, seawall, installed, here):
        self.here, self.seen = here, []
        server = f"{installed}/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
        self.server = ["node", server, "streamableHttp"]
        self.config = here.folder / "mcp.json"
        entry = {"type": "http", "url": f"http://127.0.0.1:{here.port}/mcp"}
        self.config.write_text(json.dumps({"mcpServers": {"everything": entry}}))
        self.command = [seawall, "serve", "--config", str(self.config), "--listen", "127.0.0.1:0"]

    @contextmanager
    def running(self):
        self.start()
        until(lambda: "listening" in self.out.read_text(), "the server did not start")
        ready = r"listening on (http://\S+/mcp)"
        try:
            with self.here.running(self.command, ready) as found:
                self.target = {"url": f"{found[1]}/everything"}
                self.note()
                yield
        finally:
            self.process.kill()
            self.process.wait()

    def start(self):
        self.out = self.here.folder / "server.log"
        with self.out.open("w") as out:
            env = self.here.env | {"PORT": str(self.here.port)}
            self.process = subprocess.Popen(self.server, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def note(self):
        session = raw.OverHttp(self.target["url"])
        self.seen.append(raw.slice_of(session.ask("tools/list"), "tools"))
        session.close()

    def gateway(self, _):
        mine = " ".join(self.command)
        return next(pid for pid, command in self.here.processes().items() if command == mine)

    def servers(self, _):
        return [self.process.pid]

    def kill(self, _):
        self.process.kill()
        self.process.wait()
        self.start()

    def meanwhile(self):
        """What another client would see, and what the server said last."""
        try:
            seen = raw.OverHttp(self.target["url"], 20).ask("tools/call", ECHO)[:300]
        except (OSError, HTTPException, StopIteration) as error:
            seen = repr(error)
        return (
            f"another client sees {seen}; the server (exit {self.process.poll()}) said {self.out.read_text()[-300:]!r}"
        )

    def bytes(self):
        return list(dict.fromkeys(self.seen))


def held(client, gateway):
    """How many files the gateway holds while the client goes on, and how many of them are the client's: the middle of
    many looks."""
    looks = []
    for _ in range(20):
        client.hear_for(0.1)
        looks.append(proc.descriptors(gateway))
    return [round(statistics.median(look)) for look in zip(*looks, strict=True)]


def killing(way, client, kills, tell):
    """Kills the server and waits for the first call that works again, over and over."""
    client.hear_until(lambda: "ready" in client.said)
    gateway = way.gateway(client)
    since = client.success_since(0)
    baseline, memory = held(client, gateway), proc.resident(gateway)
    recoveries, under_way = [], 0
    for count in range(1, kills + 1):
        if count % 2:
            client.hear_until(lambda since=since: client.begun.get(SLOW, 0) > since)
        client.hear_for(random.uniform(0, 0.25))
        under_way += len(client.begun)
        since = client.note_kill()
        way.kill(gateway)
        recoveries.append(client.success_since(since + 0.05) - since)
        since = time.monotonic()
        if count % 10 == 0:
            tell(f"{count} kills, {sum(client.ends.values())} calls, {dict(client.ends)}")
    after = held(client, gateway)
    return {
        "kills": kills,
        "under_way": under_way,
        "recovery": [statistics.median(recoveries), max(recoveries)],
        "descriptors": [baseline, after],
        "memory": [memory, proc.resident(gateway)],
        "zombies": len(proc.zombies(gateway)),
        "servers": len(way.servers(gateway)),
    }


def cell(over, name, arguments, tell):
    """One client, one way; gives what was counted and which promises were broken."""
    found = {"client": clients(arguments.installed)[name]["title"], "way": over.title, "broken": []}
    with sandbox() as here:
        way = over(arguments.seawall, arguments.installed, here)
        with way.running(), (here.folder / "client.log").open("w+") as log:
            command = [*command_of(name, arguments.installed), json.dumps(way.target)]
            client = Busy(command, here.env, log)
            try:
                found |= killing(way, client, arguments.kills, tell)
                client.close()
                way.note()
            except (RuntimeError, OSError, StopIteration) as error:
                said = Path(log.name).read_text()[-500:]
                found["broken"].append(f"{error!r}; the client said: {said!r}; meanwhile {way.meanwhile()}")
            finally:
                if client.process.poll() is None:
                    kill_group(client.process.pid)
            judge(found, client, way)
        found["left"] = here.left_behind()
    found["broken"] += [f"left behind: {each}" for each in found["left"]]
    return found


def judge(found, client, way):
    found |= {"ends": dict(client.ends), "failures": dict(client.failures)}
    found |= {"examples": client.examples, "slowest": client.slowest}
    found |= {"at_server": len(client.at_server), "untrue": len(client.untrue)}
    broken = found["broken"]
    broken += [f"a call ended with an exception: {each}" for each in client.exceptions[:5]]
    if client.exceptions:
        broken.append(f"{len(client.exceptions)} exceptions in all")
    if client.untrue:
        broken.append(f"{len(client.untrue)} calls that the killed server had begun: {client.untrue[0]!r}")
    if len(client.tools) != 1:
        broken.append(f"the client saw {len(client.tools)} different lists of tools")
    found["bytes"] = len(way.bytes())
    if found["bytes"] != 1:
        broken.append(f"{found['bytes']} different lists of tools on the wire")
    if "onclose" in client.said and "closed" not in client.said:
        broken.append("the client lost its session")
    if found.get("zombies"):
        broken.append(f"{found['zombies']} zombies")
    if found.get("servers", 1) != 1:
        broken.append(f"{found['servers']} server processes at the end")
    before, after = (each[0] - each[1] for each in found.get("descriptors", ((0, 0), (0, 0))))
    if abs(after - before) > DESCRIPTORS:
        broken.append(f"{before} file descriptors at first, {after} at the end, without those that clients hold")
