"""What /proc says about processes: who their parents are, whether they are gone, what they hold."""

import os
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    state: str
    started: str

    @property
    def is_gone(self):
        """Whether it has ended, whether or not somebody took note; its number may belong to another by now."""
        now = look(self.pid)
        return now is None or now.started != self.started or now.state in "ZX"


def look(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent, group, *rest = text.rpartition(")")[2].split()
    return Process(int(pid), int(parent), int(group), state, rest[16])


def everybody():
    return [found for entry in os.listdir("/proc") if entry.isdigit() and (found := look(entry))]


def below(pid):
    """All processes that descend from this one."""
    processes, found = everybody(), []
    parents = {pid}
    while parents:
        generation = [each for each in processes if each.parent in parents]
        found += generation
        parents = {each.pid for each in generation}
    return found


def living_children(pid):
    return [each for each in everybody() if each.parent == pid and each.state != "Z"]


def zombies(pid):
    return [each for each in below(pid) if each.state == "Z"]


def descriptors(pid):
    """How many files it holds, and how many of them are connections to one of its own listeners: those are its clients'
    to close."""
    held = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held.append(os.readlink(entry))
        except OSError:
            pass  # It was closed meanwhile.
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = [(row[1], row[3]) for row in rows if f"socket:[{row[9]}]" in held]
    listeners = {local for local, state in mine if state == LISTEN}
    return len(held), sum(local in listeners and state != LISTEN for local, state in mine)


def resident(pid):
    """Its memory in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def computed(pid):
    """How long its threads have had a processor so far, in ms."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6
