"""The wheel in an empty environment: nothing but Python, no home, no Rust. The command wraps a server and leaves nothing behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SERVER = [sys.executable, str(Path(__file__).with_name("stdio_server.py"))]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    root = tmp_path_factory.mktemp("empty")
    venv.create(root / "venv", with_pip=True)
    (root / "home").mkdir()
    scripts = root / "venv" / "bin"
    env = {"HOME": str(root / "home"), "PATH": f"{scripts}:/usr/bin:/bin"}
    wheel = os.environ["SEAWALL_WHEEL"]
    subprocess.run([scripts / "pip", "install", "-q", "--no-index", wheel], env=env, check=True)
    yield {"bin": scripts, "env": env, "cwd": str(root)}


def launchers(environment: dict[str, Any]) -> dict[str, list[str]]:
    return {
        "command": [str(environment["bin"] / "seawall")],
        "module": [str(environment["bin"] / "python"), "-m", "seawall"],
    }


class Wrapped:
    """A client on stdin and stdout of the wrapper."""

    def __init__(self, command: list[str], environment: dict[str, Any]) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(
            [*command, "run", "--", *SERVER], env=environment["env"], cwd=environment["cwd"], **pipes
        )
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        assert "result" in self.ask("initialize", hello)
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.say({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == method:
                return answer
        raise AssertionError("the wrapper ended")

    def server(self) -> int:
        """A handle of the server's process, which it tells itself."""
        tools = self.ask("tools/list", {})["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["get_process"]
        result = self.ask("tools/call", {"name": "get_process", "arguments": {}})["result"]
        return os.pidfd_open(int(result["content"][0]["text"]))

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def ends(process: int) -> bool:
    readable, _, _ = select.select([process], [], [], 20)
    os.close(process)
    return bool(readable)


@pytest.mark.skipif(sys.platform != "linux", reason="watches processes by pidfd")
@pytest.mark.parametrize("launcher", ["command", "module"])
@pytest.mark.parametrize("end", ["kill", "terminate", "end of input"])
def test_the_wrapper_lists_calls_and_leaves_nothing_behind(
    environment: dict[str, Any], launcher: str, end: str
) -> None:
    wrapped = Wrapped(launchers(environment)[launcher], environment)
    server = wrapped.server()
    if end == "kill":
        wrapped.process.send_signal(signal.SIGKILL)
    elif end == "terminate":
        wrapped.process.send_signal(signal.SIGTERM)
    else:
        assert wrapped.process.stdin is not None
        wrapped.process.stdin.close()
    wrapped.process.wait(20)
    assert ends(server)
    wrapped.close()


@pytest.mark.parametrize("launcher", ["command", "module"])
def test_exit_codes_and_output_pass_through(environment: dict[str, Any], launcher: str) -> None:
    command = launchers(environment)[launcher]
    settings: dict[str, Any] = {"env": environment["env"], "cwd": environment["cwd"], "capture_output": True}
    version = subprocess.run([*command, "--version"], **settings)
    assert version.returncode == 0 and version.stdout.startswith(b"seawall ")
    missing = subprocess.run([*command, "check", "--config", "missing.toml"], **settings)
    assert missing.returncode == 1 and b"missing.toml" in missing.stderr


def test_the_library_needs_nothing_but_the_wheel(environment: dict[str, Any]) -> None:
    program = "import seawall; print(seawall.classify_load_error('read timeout'), seawall.ToolCaller().call_sync('get', {}, lambda _: 7).value)"
    python = environment["bin"] / "python"
    said = subprocess.run(
        [python, "-c", program], env=environment["env"], cwd=environment["cwd"], capture_output=True, check=True
    )
    assert said.stdout == b"transient 7\n"
