"""The gateway itself: `seawall serve` with a store, before a server that is too busy for every write when it comes first.

A client makes fifty operations: writes, some idempotent, three of them at once at times, and reads of what became of them.
Each write is refused by the server, kept by the gateway, and delivered while the client goes on. strace kills the gateway
at its Nth call, or lets that one fail. Then it is started again, without strace, delivers what waits, and is
asked for everything that was promised. The server's ledger says what was executed.
"""

import re
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

from cast import IS_IDEMPOTENT, PATIENCE, Gateway, Server
from faults import DISK, faults

CALLS = ["pwrite64", "fdatasync", "fsync", "ftruncate", "linkat", "unlink", "write", "writev"]
FAULTS = faults(CALLS)
# How many of each are tried, about: in a sample, and where --all would take hours.
SAMPLE = 16
ALL = {fault: 300 for fault in FAULTS if fault != "kill -9"}
# The part of the kills that must happen for a run to show something: which thread works how much is chance.
LEAST = 0.6
OPERATIONS = 50
KILLED = (137, -9)


class Script:
    """The fifty operations, and what was promised by their answers."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.kept, self.refused, self.read, self.surprises, self.operations = {}, set(), {}, [], 0

    def run(self):
        client = self.gateway.client()
        with ThreadPoolExecutor(3) as together:
            for n in range(OPERATIONS):
                if n % 5 == 3 and self.kept:
                    id = list(self.kept)[-2:][n % 2 - 1]
                    if item := client.read(id):
                        self.read[id] = item["state"]
                elif n % 10 == 9:
                    list(together.map(lambda n: self.write(self.gateway.client(), n), [n + 100, n + 200, n + 300]))
                else:
                    self.write(client, n)
                self.operations += 1

    def write(self, client, n):
        answer = client.write(n)
        meta = answer.get("result", {}).get("_meta", {})
        if meta.get("seawall/served", {}).get("code") == "QUEUED":
            id = meta["seawall/served"]["id"]
            if id in self.kept:
                self.surprises.append(f"{id} was given to {self.kept[id]} and to {n}")
            self.kept[id] = n
        elif "seawall/failure" not in meta:
            self.surprises.append(f"{n} was answered with {answer}")
        elif not meta["seawall/failure"]["mayHaveExecuted"]:
            self.refused.add(n)


def after(folder, server, script):
    """Starts the gateway again; what of the promises does not hold."""
    last = max([int(id[1:]) for id in script.kept], default=0)
    # Items that nobody was told of may be there too: of the last operation, of three at once.
    ids = [f"q{number}" for number in range(1, last + 4)]
    with Gateway(folder, server) as gateway:
        if not gateway.port:
            return [f"the restart failed: {''.join(gateway.said)}"]
        client, until = gateway.client(), time.monotonic() + PATIENCE
        while True:
            items = {id: item for id in ids if (item := client.read(id))}
            left = [id for id, item in items.items() if item["state"] not in ("delivered", "dead")]
            if not left or time.monotonic() > until:
                break
            time.sleep(0.01)
    wrong = script.surprises + [f"{id} was not delivered in the end: {items[id]}" for id in left]
    executed = Counter(server.ledger)
    for id, n in script.kept.items():
        item = items.get(id)
        if not item:
            wrong.append(f"{id} ({n}) was acknowledged and is gone")
        elif item["state"] == "delivered" and (not executed[n] or item["result"]["content"][0]["text"] != f"made {n}"):
            wrong.append(f"{id} ({n}) was delivered and not executed: {item}")
        elif item["state"] == "dead" and not (item["mayHaveExecuted"] and "may have been executed" in item["note"]):
            wrong.append(f"{id} ({n}) is dead without need: {item}")
        elif item["state"] == "dead" and IS_IDEMPOTENT(n):
            wrong.append(f"{id} ({n}) is dead and could be repeated: {item}")
    wrong += [f"{id} was {state} and is {items[id]['state']}" for id, state in script.read.items()
              if state in ("delivered", "dead") and id in items and items[id]["state"] != state]
    wrong += [f"{n} was refused and executed" for n in script.refused if executed[n]]
    wrong += [f"write {n} was executed {times} times" for n, times in executed.items() if times > 1 and not IS_IDEMPOTENT(n)]
    order = [server.ledger.index(n) for id, n in sorted(script.kept.items(), key=lambda one: int(one[0][1:])) if executed[n]]
    if order != sorted(order):
        wrong.append("they were not made in their order")
    return wrong + trouble(gateway)


def trouble(gateway):
    """What went wrong with a gateway that was not killed."""
    said, code = "".join(gateway.said), gateway.process.returncode
    return [f"it ended with {code}: {said}"] if "panicked" in said or "did not end" in said or code not in (0, *KILLED) else []


def once(folder, server, options):
    """The script against a gateway under strace; and the gateway when it has ended."""
    before = ["strace", "-f", "-qq", "-o", f"{folder}/trace", *options]
    with Gateway(folder, server, before) as gateway:
        script = Script(gateway)
        try:
            if gateway.port:
                script.run()
        except (OSError, HTTPException):
            pass  # The gateway is gone.
        except Exception as surprise:
            script.surprises.append(f"the client was surprised: {surprise!r}")
    return gateway, script


def calls(folder):
    """How often each thread made each call."""
    return Counter(re.findall(r"^(\d+) +(\w+)\(", Path(folder, "trace").read_text(), re.M))


def count():
    """How often one thread of the undisturbed gateway makes each call, and all; and how many writes it acknowledges."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder, Server() as server:
        gateway, script = once(folder, server, ["-e", "trace=" + ",".join(CALLS)])
        wrong = trouble(gateway) + after(folder, server, script)
        if wrong or script.operations != OPERATIONS:
            raise SystemExit("the undisturbed gateway: " + "; ".join(wrong))
        seen = calls(folder)
    each = {call: [n for (_, name), n in seen.items() if name == call] or [0] for call in CALLS}
    return {call: max(n) for call, n in each.items()}, {call: sum(n) for call, n in each.items()}, len(script.kept)


def case(fault, call, words, n):
    with tempfile.TemporaryDirectory(dir=DISK) as folder, Server() as server:
        gateway, script = once(folder, server, ["-e", f"trace={call}", "-e", f"inject={call}:{words.format(n=n)}"])
        is_killed = gateway.process.returncode in KILLED
        # One that cannot make its store says so and ends.
        wrong = trouble(gateway) if gateway.port or is_killed else told(folder, gateway)
        return fault, call, place(folder), is_killed, len(script.kept), wrong + after(folder, server, script)


def place(folder):
    """At which call of all threads together it went wrong: strace counts those of each thread."""
    until = Path(folder, "trace").read_text().split("(INJECTED)")[0]
    return len(re.findall(r"^\d+ +\w+\(", until, re.M))


def told(folder, gateway):
    """A gateway that cannot use its store names the file, and ends."""
    said, code = "".join(gateway.said), gateway.process.returncode
    return [] if code == 1 and f"{folder}/store/queue.redb" in said else [f"it ended with {code}: {said}"]


def damaged():
    """Damages the file of a gateway that has ended. Either the next one says so, and how to go on, or nothing is lost."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder, Server() as server:
        with Gateway(folder, server) as gateway:
            script = Script(gateway)
            script.run()
        file = Path(folder, "store/queue.redb")
        whole = file.read_bytes()
        flipped = lambda at: whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:]
        used = [at for at in range(len(whole)) if whole[at]]
        damages = {"cut in half": whole[:len(whole) // 2], "empty": b"", "something else": b"no queue " * 9999}
        damages |= {f"byte {at} changed": flipped(at) for at in used[::len(used) // 20]}
        wrong, refused = [], 0
        for name, content in damages.items():
            file.write_bytes(content)
            with Gateway(folder, server) as gateway:
                if gateway.port:
                    client = gateway.client()
                    wrong += [f"{name}: {id} is gone" for id in script.kept if not client.read(id)]
            if not gateway.port:
                refused += 1
                wrong += [f"{name}: {why}" for why in told(folder, gateway)]
                if "move the file away" not in "".join(gateway.said):
                    wrong.append(f"{name}: no way out is told: {''.join(gateway.said)}")
    print(f"\n{len(damages)} damaged files: {refused} are refused with the file's name and the way out, in the others nothing is lost.")
    for why in wrong:
        print(f"BROKEN {why}", file=sys.stderr)
    return not wrong
