"""What the MCP Inspector's command line shows: one run of it for every step.

Usage: python inspector.py <node> <folder with node_modules> < job.json > seen.json
"""

import json
import subprocess
import sys
import tempfile

NODE, FOLDER = sys.argv[1:]
INSPECTOR = [NODE, f"{FOLDER}/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli"]


def entry(target):
    if "url" in target:
        return {"type": "streamable-http", "url": target["url"]}
    command, *arguments = target["command"]
    return {"command": command, "args": arguments, "env": target.get("env", {})}


def arguments(step):
    yield from ("--method", step["method"])
    if step["method"] == "tools/call":
        yield from ("--tool-name", step["params"]["name"])
        yield from ("--tool-args-json", json.dumps(step["params"]["arguments"]))


def shown(config, step):
    options = ["--config", config, "--server", "one", "--format", "json", "--quiet", *arguments(step)]
    run = subprocess.run([*INSPECTOR, *options], capture_output=True, text=True)
    shown = json.loads(run.stdout or run.stderr)
    return {"result": shown.get("result", shown), "exit": run.returncode}


job = json.load(sys.stdin)
with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    json.dump({"mcpServers": {"one": entry(job["target"])}}, file)
    file.flush()
    print(json.dumps({"steps": [shown(file.name, step) for step in job["steps"]]}))
