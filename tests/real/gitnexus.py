"""Drives the real `gitnexus mcp` through `seawall serve` with the gitnexus preset; fails if a promise of the preset is broken."""

import json
import subprocess
import sys
from pathlib import Path

from raw import HELLO, OverStdio
from sandbox import sandbox

DESTRUCTIVE = {"rename", "group_sync"}
HEAVY = {"cypher", "impact"}
TOOLS = 17
# Errors that GitNexus answers with as if they were results: a tool, its arguments, and what it says.
DRESSED = [
    ("cypher", {"statement": "CREATE (n:X)"}, "Write operations"),
    ("context", {"name": "nope"}, "'nope' not found"),
    ("impact", {"target": "nope", "direction": "upstream"}, "'nope' not found"),
    ("group_sync", {"name": "nope"}, "not found"),
]


def main(seawall, installed):
    gitnexus = str(Path(installed) / "node_modules/.bin/gitnexus")
    with sandbox() as here:
        repository, env = here.folder / "code", here.env
        repository.mkdir()
        (repository / "x.js").write_text("export function a() { return b() }\nexport function b() { return 1 }\n")
        subprocess.run(["git", "init", "-q", repository], check=True, env=env)
        subprocess.run([gitnexus, "analyze", repository], check=True, env=env, stdout=sys.stderr, stderr=sys.stderr)
        config = here.folder / "seawall.toml"
        server = f'[servers.gitnexus]\ncommand = {json.dumps(gitnexus)}\nargs = ["mcp"]\n'
        config.write_text(f'preset = "gitnexus"\nlisten = "127.0.0.1:0"\n{server}')
        with (here.folder / "log").open("w") as log:
            command = [seawall, "serve", "--stdio", "--config", config]
            wrapped = OverStdio(list(map(str, command)), env, log)
            try:
                check(wrapped, lambda tool: explained(seawall, config, env, tool))
            finally:
                wrapped.process.terminate()
                wrapped.process.wait(20)
    print("the gitnexus preset keeps its promises with the real server")


def check(wrapped, explain):
    wrapped.ask("initialize", HELLO)
    wrapped.tell("notifications/initialized")
    tools = [tool["name"] for tool in json.loads(wrapped.ask("tools/list"))["result"]["tools"]]
    assert len(tools) == TOOLS, tools
    for tool in tools:
        values = explain(tool)
        effect, timeout = values["effect"]["value"], values["timeout"]["value"]
        assert effect == ("destructive" if tool in DESTRUCTIVE else "read_only"), (tool, effect)
        assert timeout == ("120s" if tool in HEAVY else "60s"), (tool, timeout)
        assert (values["cache.stale"]["value"], values["fallback"]["value"]) == (None, []), tool
    found = call(wrapped, "cypher", {"statement": "MATCH (n) RETURN n LIMIT 1"})
    assert not found.get("isError") and "_meta" not in found, found
    for tool, arguments, says in DRESSED:
        result = call(wrapped, tool, arguments)
        assert result["isError"] is True and says in result["content"][0]["text"], result
        failure = result["_meta"]["seawall/failure"]
        assert failure["code"] == "VALIDATION_ERROR" and failure["attempts"] == 1, failure


def call(wrapped, tool, arguments):
    return json.loads(wrapped.ask("tools/call", {"name": tool, "arguments": arguments}))["result"]


def explained(seawall, config, env, tool):
    """What `explain` says of a tool, from the list that its server gave."""
    command = [seawall, "explain", f"gitnexus/{tool}", "--json", "--config", config]
    return json.loads(subprocess.run(list(map(str, command)), check=True, env=env, capture_output=True).stdout)["values"]


if __name__ == "__main__":
    main(*sys.argv[1:])
