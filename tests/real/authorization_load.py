"""Several servers load at once as CAIPE's agent loads them, while their authorizer is away for longer than its timeout."""

import json
import subprocess
import tempfile
from pathlib import Path

from authorizer import Authorizer
from sandbox import Sandbox, kill_group

HERE = Path(__file__).parent
TIMEOUT = 2
COUNTS = (1, 2, 3, 15)


def load(arguments, count):
    """How many of the servers were loaded, and what their attempts saw. The authorizer is back at the first failure."""
    authorizer = Authorizer()
    authorizer.away()
    try:
        with tempfile.TemporaryDirectory(prefix="seawall-load-", ignore_cleanup_errors=True) as folder:
            here, names = Sandbox(folder), [f"s{number}" for number in range(count)]
            file = here.folder / "seawall.toml"
            file.write_text(settings(authorizer, here, names))
            begun = [arguments.seawall, "serve", "--no-catalog-cache", "--config", str(file)]
            with here.running(begun, r"listening on http://[^/]*:(\d+)/mcp") as found:
                base = f"http://127.0.0.1:{found[1]}/mcp"
                targets = {name: {"transport": "streamable_http", "url": f"{base}/{name}"} for name in names}
                return followed(arguments, here, targets, authorizer)
    finally:
        authorizer.away()


def is_right(found):
    """Whether every server was loaded."""
    return all(attempts[-1] is not None for attempts in found.values())


def settings(authorizer, here, names):
    server = json.dumps([str(HERE / "servers/ledger.py"), str(here.folder / "executions"), "0", "stdio"])
    return (
        'listen = "127.0.0.1:0"\ngrace = "1s"\n'
        f'[ext_authz]\nservice = "http://127.0.0.1:{authorizer.port}"\nprotocol = "http"\ntimeout = "{TIMEOUT}s"\n'
        + "".join(f'[servers.{name}]\ncommand = "python3"\nargs = {server}\n' for name in names)
    )


def followed(arguments, here, targets, authorizer):
    command = [f"{arguments.installed}/py1/bin/python", HERE / "clients/load_langchain.py", json.dumps(targets)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    env = here.env | {"PYTHONDONTWRITEBYTECODE": "1"}
    client = subprocess.Popen(command, env=env, text=True, bufsize=1, start_new_session=True, **pipes)
    try:
        for line in client.stdout:
            said = json.loads(line)
            if "text" in said:
                client.stdin.write("begin\n")
            elif "failed" in said and not authorizer.listener:
                authorizer.back()
            elif "loaded" in said:
                return said["loaded"]
        raise RuntimeError("the client ended")
    finally:
        kill_group(client.pid)
        client.wait()
