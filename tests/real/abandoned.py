"""Real clients abandon a write and ask again: how often does the server execute it, directly and through Seawall?"""

import argparse
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import abandoned_page
from cut import Cut
from sandbox import Sandbox

HERE = Path(__file__).parent
# The write takes longer than its client waits, and the client waits longer than `rejoin_after`.
TAKES, WAITS, PATIENCE = 4, 1.5, 60
CLIENTS = ("py1", "py2", "ts1", "langchain", "raw")
WAYS = ("HTTP", "run")
HOWS = ("timeout", "drop", "cancel", "three")
ARMS = ("direct", "Seawall")


def command(client, installed):
    """How a client is started."""
    clients = HERE / "clients"
    return {
        "py1": [f"{installed}/py1/bin/python", clients / "abandon.py"],
        "py2": [f"{installed}/py2/bin/python", clients / "abandon.py"],
        "ts1": ["node", clients / "abandon.mjs", installed],
        "langchain": [f"{installed}/py1/bin/python", clients / "abandon_langchain.py"],
        "raw": ["python3", clients / "abandon_raw.py"],
    }[client]


class Cell:
    """One client that abandons a write in one way."""

    def __init__(self, arguments, client, way, how, arm):
        self.arguments, self.client, self.way, self.how, self.arm = arguments, client, way, how, arm

    def play(self):
        with tempfile.TemporaryDirectory(prefix="seawall-abandoned-") as folder:
            self.here = Sandbox(folder)
            self.ledger = Path(folder) / "ledger"
            self.ledger.touch()
            found = self._over_http() if self.way == "HTTP" else self._over_pipes()
            # An execution that comes late counts too.
            time.sleep(0.5)
            executions = len(self.ledger.read_text().splitlines())
        found |= {"client": self.client, "way": self.way, "how": self.how, "arm": self.arm, "executions": executions}
        print(f"{self.client:10} {self.way:5} {self.how:8} {self.arm:8} {executions}  {found['then']}", flush=True)
        return found

    def _server(self, last):
        return ["python3", str(HERE / "servers/ledger.py"), str(self.ledger), str(TAKES), last]

    def _over_pipes(self):
        server = self._server("stdio")
        wrapped = server if self.arm == "direct" else [self.arguments.seawall, "run", "--", *server]
        return self._abandon({"command": wrapped, "env": self.here.env})

    def _over_http(self):
        if self.arm == "direct":
            begun, ready = self._server("0"), r"listening on (\d+)"
            path = "/mcp"
        else:
            first, *rest = self._server("stdio")
            file = self.here.folder / "mcp.json"
            file.write_text(json.dumps({"mcpServers": {"notes": {"command": first, "args": rest}}}))
            begun = [self.arguments.seawall, "serve", "--config", str(file), "--listen", "127.0.0.1:0"]
            ready, path = r"listening on http://[^/]*:(\d+)/mcp", "/mcp/notes"
        with self.here.running(begun, ready) as found:
            relay = Cut(int(found[1]))
            try:
                if self.how == "drop":
                    threading.Thread(target=self._cut_under_the_call, args=(relay,), daemon=True).start()
                headers = {"Authorization": "Bearer this-client"}
                return self._abandon({"url": f"http://127.0.0.1:{relay.port}{path}", "headers": headers})
            finally:
                relay.close()

    def _cut_under_the_call(self, relay):
        deadline = time.monotonic() + PATIENCE
        while not self.ledger.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(1.2)
        relay.cut()

    def _abandon(self, target):
        # A client that does not notice that its connection is gone has its own limit.
        waits = 2.5 if self.how == "drop" and self.way == "HTTP" else WAITS
        job = {"target": target, "how": self.how, "patience": waits, "tool": "make_note", "arguments": {"text": "x"}}
        code, out, complaint = self.here.run(command(self.client, self.arguments.installed), json.dumps(job), PATIENCE)
        try:
            return json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            lines = complaint.strip().splitlines() or [""]
            return {"first": None, "then": [{"exception": f"the client ended with {code}: {lines[-1][:200]}"}]}


def main():
    parser = argparse.ArgumentParser(prog="tests/real/abandoned", description=__doc__)
    parser.add_argument("--seawall", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--installed", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="where to write the page")
    parser.add_argument("--clients", type=lambda text: text.split(","), default=CLIENTS, help=",".join(CLIENTS))
    parser.add_argument("--jobs", type=int, default=4, help="cells at once (4)")
    arguments = parser.parse_args()
    cells = [
        Cell(arguments, client, way, how, arm)
        for client in arguments.clients
        for way in WAYS
        for how in HOWS
        for arm in ARMS
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = list(pool.map(Cell.play, cells))
    page = abandoned_page.page(found, arguments.seawall)
    if arguments.out:
        arguments.out.write_text(page)
    print(f"\n{page}")
    missed = [cell for cell in found if cell["arm"] == "Seawall" and cell["executions"] != 1]
    print(f"{len(missed)} of {len(cells) // 2} cells missed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
