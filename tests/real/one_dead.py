"""Three servers, one of them dead: what does LangChain get of the other two?"""

import json
import subprocess
from pathlib import Path

from sandbox import kill_group, sandbox

PATIENCE = 90
DELAY = 6
LIVING = ("everything", "time")
HERE = Path(__file__).parent
DEAD = {
    "ends at once": {"command": "sh", "args": ["-c", "echo no key >&2; exit 1"]},
    "is not installed": {"command": "no-such-program", "args": []},
    "never answers": {"command": "sleep", "args": ["300"]},
    "speaks nonsense": {"command": "sh", "args": ["-c", "echo Hello, world; cat >/dev/null"]},
    "is on a port where nobody listens": {"url": "http://127.0.0.1:9/mcp"},
}


def living(installed):
    package = f"{installed}/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    return {
        "everything": {"command": "node", "args": [package, "stdio"]},
        "time": {"command": f"{installed}/py2/bin/mcp-server-time", "args": ["--local-timezone=UTC"]},
    }


def langchain(entry):
    """An entry of a client's file, as LangChain wants it."""
    return {"transport": "streamable_http" if "url" in entry else "stdio", **entry}


def seawall(entry):
    return {"type": "http", **entry} if "url" in entry else entry


def tools(here, arguments, connections):
    """What the client got, how long it took, and what it left behind."""
    command = [f"{arguments.installed}/py1/bin/python", HERE / "clients/langchain_many.py", json.dumps(connections)]
    # Into a file: what a client leaves behind holds a pipe open for ever.
    with (here.folder / "seen").open("w+") as out, (here.folder / "complaint").open("w") as complaint:
        process = subprocess.Popen(command, env=here.env, stdout=out, stderr=complaint, start_new_session=True)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
            process.wait()
        out.seek(0)
        seen = json.loads(out.readline() or f'{{"error": "nothing within {PATIENCE} s", "took": {PATIENCE}}}')
    return {"tools": [], **seen}


def row(title, dead, arguments):
    servers = {**living(arguments.installed), "dead": dead}
    found = {"dead": title, "broken": []}
    with sandbox() as here:
        seen = tools(here, arguments, {name: langchain(entry) for name, entry in servers.items()})
        found["direct"] = [seen.get("error") or f"{len(seen['tools'])} tools", seen["took"], len(here.left_behind())]
        config = here.folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {name: seawall(entry) for name, entry in servers.items()}}))
        command = [arguments.seawall, "serve", "--config", str(config), "--listen", "127.0.0.1:0"]
        with here.running(command, r"listening on (http://\S+/mcp)") as ready:
            # The second time the dead server is known to be dead.
            for which in ("first", "second"):
                seen = tools(here, arguments, {"all": langchain({"url": ready[1]})})
                counts = [sum(name.startswith(f"{server}__") for name in seen["tools"]) for server in LIVING]
                found[which] = [seen.get("error") or f"{counts[0]} + {counts[1]} tools", seen["took"]]
                if not all(counts):
                    found["broken"].append(f"a server that {title}: LangChain gets {found[which][0]} of the other two")
        if found["second"][1] > DELAY:
            text = f"it delays the tools of the others by {found['second'][1]:.0f} s, also when it is known to be dead"
            found["broken"].append(f"a server that {title}: {text}")
        found["broken"] += [f"a server that {title}: left behind: {each}" for each in here.left_behind()]
    return found
