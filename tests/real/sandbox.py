"""Where everything happens: a folder, an environment and processes that leave nothing behind."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path


class Sandbox:
    """A folder with things to look at, which is also the home of every process here."""

    def __init__(self, folder):
        self.folder = Path(folder)
        # The six variables that clients hand on to servers, and no more: so all servers start alike.
        self.env = {"HOME": folder, "LOGNAME": "real", "SHELL": "/bin/sh", "TERM": "dumb", "USER": "real"}
        self.env["PATH"] = os.environ["PATH"]
        self.files, self.repository = self.folder / "files", self.folder / "repository"
        self.memory = self.folder / "memory.jsonl"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._fill()

    def _git(self, *arguments):
        date = "2026-01-01T00:00:00Z"
        identity = {f"GIT_{who}_{what}": "ada" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        subprocess.run(["git", "-C", self.repository, *arguments], check=True, env=self.env | identity | dates)

    def _fill(self):
        (self.files / "sub").mkdir(parents=True)
        (self.files / "poem.txt").write_text("The sea is calm to-night.\nThe tide is full, h\u00e9.\n")
        (self.files / "sub/other.txt").write_text("other\n")
        self.repository.mkdir()
        (self.repository / "kept.txt").write_text("kept\n")
        self._git("init", "-q", "-b", "main")
        self._git("add", ".")
        self._git("commit", "-q", "-m", "First")
        (self.repository / "new.txt").write_text("new\n")

    def restore(self, forget=True):
        """Undoes what a client may have done; `forget`: also what Seawall remembers of servers."""
        if forget:
            shutil.rmtree(self.folder / ".local", ignore_errors=True)
        self.memory.unlink(missing_ok=True)
        (self.files / "new.txt").unlink(missing_ok=True)
        self._git("reset", "-q")

    def run(self, command, text, patience):
        """Runs a command to its end; gives its exit status, what it printed and what it complained about."""
        pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        process = subprocess.Popen(command, env=self.env, text=True, start_new_session=True, **pipes)
        try:
            out, complaint = process.communicate(text, patience)
            return process.returncode, out, complaint
        except subprocess.TimeoutExpired:
            return None, "", f"not done within {patience} s"
        finally:
            if process.poll() is None:
                kill_group(process.pid)
                process.communicate()

    @contextmanager
    def running(self, command, ready, **env):
        """A command in the background, from when it prints `ready`; gives what it printed then."""
        log = self.folder / "log"
        with log.open("w") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            process = subprocess.Popen(command, env=self.env | env, start_new_session=True, **streams)
        try:
            yield until(lambda: re.search(ready, log.read_text()), f"{command[0]} did not start: {log.read_text()}")
        finally:
            process.terminate()
            try:
                process.wait(15)
            finally:
                kill_group(process.pid)

    def processes(self):
        """Our processes that still run: their ids and commands. Needs /proc, else finds none."""
        home = f"HOME={self.folder}".encode()
        found = {}
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if home in environ.read_bytes().split(b"\0"):
                    command = (environ.parent / "cmdline").read_text()
                    found[int(environ.parent.name)] = command.replace("\0", " ").strip()
            except OSError:
                pass  # It ended, or is not ours to look at.
        return found

    def left_behind(self, patience=5):
        """The commands of our processes that do not end by themselves; they are killed."""
        deadline = time.monotonic() + patience
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return list(found.values())


def until(condition, problem, patience=15):
    """Waits until something is so."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise RuntimeError(problem)


def kill_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@contextmanager
def sandbox():
    """A sandbox that is gone afterwards, and everything in it."""
    with tempfile.TemporaryDirectory(prefix="seawall-real-", ignore_cleanup_errors=True) as folder:
        here = Sandbox(folder)
        try:
            yield here
        finally:
            here.left_behind(patience=0)
