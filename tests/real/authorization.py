"""Real clients are denied, or nobody can say whether they may call: what do their programs see of it?"""

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import authorization_load
import authorization_page
import verdicts
from authorizer import AUDIENCE, HANDSHAKE, ISSUER, Authorizer, Issuer
from sandbox import Sandbox, kill_group
from verdicts import DENIED, OUTAGE, WORKS

HERE = Path(__file__).parent
PAGE = HERE / "../../docs/evidence/authorization.md"
# How long the gateway waits for its authorizer, and how much longer a client may wait for the gateway.
TIMEOUT, MARGIN = 2, 5
# The gateway takes a token for so long after its end, since clocks differ; one that lasts `LIFE` expires in a session.
LEEWAY, LIFE = 30, -18
CLIENTS = ("py1", "py2", "ts1", "ts2", "langchain", "langchain-each", "raw")
# What an allowed handshake brings the server: the gateway asks for the tools by itself.
GREETING = ("server/discover", "initialize", "notifications/initialized", "tools/list")
LIST, CALL = ("tools/list",), ("tools/call",)


def doing(act, methods):
    """From now on the authorizer does this when it is asked about these methods."""
    return lambda play: play.authorizer.acts.update(dict.fromkeys(methods, act))


def expires(play):
    """The token expires, for the gateway too, which takes it for a while longer."""
    time.sleep(max(0, play.begun + LIFE + LEEWAY + 1.5 - time.time()))


def away(play):
    play.authorizer.away()


def back(play):
    """The authorizer is there again, and the client waits as long as it was told, or a second."""
    play.authorizer.acts.clear()
    play.authorizer.away()
    play.authorizer.back()
    time.sleep(verdicts.told_pause(play.seen) or 1)


def keys_back(play):
    play.issuer.status = 200
    time.sleep(verdicts.told_pause(play.seen) or 5)


# Each play: the client's token, whether its issuer has keys to show, and what happens in order. A triple is a cell: its
# column, what the client does, and how that must end. A cell of several steps is right if all of them are.
PLAYS = (
    ("none", 200, [("no token", "connect", DENIED)]),
    ("forged", 200, [("wrong token", "connect", DENIED)]),
    ("expired", 200, [("expired token", "connect", DENIED)]),
    ("short", 200, ["connect", "list", expires, ("expires in a session", "call", DENIED)]),
    ("good", 200, [doing("deny", HANDSHAKE), ("denied: handshake", "connect", DENIED)]),
    (
        "good",
        200,
        [
            "connect",
            doing("deny", LIST),
            ("denied: list", "list", DENIED),
            doing("allow", LIST),
            ("denied: list", "list", WORKS),
        ],
    ),
    (
        "good",
        200,
        [
            "connect",
            "list",
            doing("deny", CALL),
            ("denied: call", "call", DENIED),
            doing("allow", CALL),
            ("denied: call", "call", WORKS),
        ],
    ),
    ("good", 200, [away, ("away: handshake", "connect", OUTAGE), back, ("back: handshake", "connect", WORKS)]),
    (
        "good",
        200,
        [
            doing("hang", HANDSHAKE),
            ("hangs: handshake", "connect", OUTAGE),
            back,
            ("back: handshake", "connect", WORKS),
        ],
    ),
    ("good", 200, ["connect", doing("503", LIST), ("503: list", "list", OUTAGE), back, ("503: list", "list", WORKS)]),
    ("good", 200, ["connect", "list", away, ("away: call", "call", OUTAGE), back, ("back: call", "call", WORKS)]),
    ("good", 503, [("no keys", "connect", OUTAGE), keys_back, ("keys back", "connect", WORKS)]),
)


def command(client, installed):
    """How a client is started."""
    clients = HERE / "clients"
    langchain = [f"{installed}/py1/bin/python", clients / "authorized_langchain.py"]
    return {
        "py1": [f"{installed}/py1/bin/python", clients / "authorized.py"],
        "py2": [f"{installed}/py2/bin/python", clients / "authorized.py"],
        "ts1": [f"{installed}/new-node", clients / "authorized.mjs", "1", installed],
        "ts2": [f"{installed}/new-node", clients / "authorized.mjs", "2", installed],
        "langchain": [*langchain, "one"],
        "langchain-each": [*langchain, "each"],
        "raw": ["python3", clients / "authorized_raw.py"],
    }[client]


def steps_of(client, steps):
    """`get_tools` connects and lists at once: what happens at the list happens there when it connects."""
    if client != "langchain-each" or not any(step[1] == "list" for step in steps if isinstance(step, tuple)):
        return steps
    rest = [step for step in steps if step != "connect"]
    return [(step[0], "connect", step[2]) if isinstance(step, tuple) else step for step in rest]


class Led:
    """A client that is told what to do, a line each, and says what its program saw."""

    def __init__(self, command, env, complaints):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": complaints}
        self.process = subprocess.Popen(command, env=env, text=True, bufsize=1, start_new_session=True, **pipes)
        self.lines, self.hangs = queue.Queue(), None
        threading.Thread(target=self._read, daemon=True).start()
        self.lines.get(timeout=60)

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(line)

    def does(self, step, patience):
        """What it saw, and after how many seconds. A client that once gave no answer is left alone."""
        if self.hangs:
            return self.hangs
        began = time.monotonic()
        try:
            self.process.stdin.write(f"{step}\n")
            seen = json.loads(self.lines.get(timeout=patience))
            return {**seen, "seconds": round(time.monotonic() - began, 1)}
        except (queue.Empty, OSError):
            self.hangs = {"exception": "nothing", "text": f"no answer within {patience} s", "hangs": True}
            return self.hangs

    def end(self):
        kill_group(self.process.pid)
        self.process.wait()


class Play:
    """One client in one play."""

    def __init__(self, arguments, client, play):
        self.arguments, self.client = arguments, client
        self.token, self.keys, steps = play
        self.steps, self.seen = steps_of(client, steps), {}

    def run(self):
        self.authorizer, self.issuer = Authorizer(), Issuer()
        self.issuer.status = self.keys
        try:
            with tempfile.TemporaryDirectory(prefix="seawall-authorization-", ignore_cleanup_errors=True) as folder:
                return self._run(Sandbox(folder))
        finally:
            self.authorizer.away()
            self.issuer.away()

    def _run(self, here):
        self.executions, self.methods = here.folder / "executions", here.folder / "methods"
        self.executions.touch()
        self.methods.touch()
        file = here.folder / "seawall.toml"
        file.write_text(self._settings())
        begun = [self.arguments.seawall, "serve", "--no-catalog-cache", "--config", str(file)]
        with here.running(begun, r"listening on http://[^/]*:(\d+)/mcp") as found:
            self.begun = time.time()
            target = {
                "url": f"http://127.0.0.1:{found[1]}/mcp/notes",
                "headers": self._headers(),
                "tool": "make_note",
                "arguments": {"text": "x"},
            }
            start = [*command(self.client, self.arguments.installed), json.dumps(target)]
            with (here.folder / "complaints").open("w") as complaints:
                client = Led(start, here.env | {"PYTHONDONTWRITEBYTECODE": "1"}, complaints)
                try:
                    return [cell for step in self.steps if (cell := self._step(client, step))]
                finally:
                    client.end()

    def _settings(self):
        server = [str(HERE / "servers/ledger.py"), str(self.executions), "0", "stdio", str(self.methods)]
        return (
            'listen = "127.0.0.1:0"\ngrace = "1s"\n'
            f'[ext_authz]\nservice = "http://127.0.0.1:{self.authorizer.port}"\n'
            f'protocol = "http"\ntimeout = "{TIMEOUT}s"\n'
            f'[[identity.jwt]]\nissuer = "{ISSUER}"\naudiences = ["{AUDIENCE}"]\n'
            f'jwks = "http://127.0.0.1:{self.issuer.port}/keys"\n'
            f'[servers.notes]\ncommand = "python3"\nargs = {json.dumps(server)}\n'
        )

    def _headers(self):
        tokens = {
            "none": lambda: None,
            "forged": self.issuer.forged,
            "expired": lambda: self.issuer.token(seconds=-3600),
            "good": self.issuer.token,
            "short": lambda: self.issuer.token(seconds=LIFE),
        }
        token = tokens[self.token]()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _step(self, client, step):
        if callable(step):
            return step(self)
        column, does, expected = step if isinstance(step, tuple) else (None, step, WORKS)
        before, executed = self._lines(self.methods), len(self._lines(self.executions))
        self.seen = client.does(does, TIMEOUT + MARGIN)
        if expected != WORKS:
            # What comes late counts too.
            time.sleep(0.3)
        reached = self._lines(self.methods)[len(before) :]
        if self.client == "langchain-each" and "list" in (column or ""):
            for method in GREETING:
                if method in reached:
                    reached.remove(method)
        if column is None:
            if "exception" in self.seen:
                raise RuntimeError(f"{self.client}: {does} does not work: {self.seen}")
            return None
        executions = len(self._lines(self.executions)) - executed
        cell = {"client": self.client, "column": column, "does": does, "expected": expected, "seen": self.seen}
        cell |= {"reached": reached, "executions": executions}
        cell["caipe"] = verdicts.caipe(self.seen) if does != "call" and expected != WORKS else None
        cell["wrong"] = verdicts.wrong(cell)
        said = "; ".join(cell["wrong"]) or "right"
        print(f"{self.client:14} {column:18} {does:8} {said:8} {json.dumps(self.seen)} {reached}", flush=True)
        return cell

    @staticmethod
    def _lines(file):
        return file.read_text().splitlines()


def main():
    parser = argparse.ArgumentParser(prog="tests/real/authorization", description=__doc__)
    parser.add_argument("--seawall", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--installed", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="renew docs/evidence/authorization.md")
    parser.add_argument("--clients", type=lambda text: text.split(","), default=CLIENTS, help=",".join(CLIENTS))
    parser.add_argument("--jobs", type=int, default=2, help="plays at once (2)")
    arguments = parser.parse_args()
    plays = [Play(arguments, client, play) for client in arguments.clients for play in PLAYS]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        cells = [cell for found in pool.map(Play.run, plays) for cell in found]
    loads = [authorization_load.load(arguments, count) for count in authorization_load.COUNTS]
    page = authorization_page.page(cells, loads, arguments.installed)
    if arguments.write:
        PAGE.write_text(page)
    print(f"\n{page}")
    wrong = [cell for cell in cells if cell["wrong"]]
    for cell in wrong:
        print(f"{cell['client']}, {cell['column']}: {'; '.join(cell['wrong'])}")
    failed = [found for found in loads if not authorization_load.is_right(found)]
    for found in failed:
        print(f"a load of {len(found)} servers at once: {found}")
    sys.exit(1 if wrong or failed else 0)


if __name__ == "__main__":
    main()
