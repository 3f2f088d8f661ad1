"""Drives every client against every server, directly and through Seawall; fails if any of them sees a difference."""

import argparse
import functools
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import plan
import report
from drive import ALL, Drive
from sandbox import sandbox


def drive(arguments, client):
    """One client against everything, in a sandbox of its own; gives what it found."""
    with sandbox() as here:
        task = Drive(client, arguments.seawall, arguments.installed, here)
        remote = [*task.servers["everything"]["command"][:-1], "streamableHttp"]
        with here.running(remote, "listening on port", PORT=str(here.port)):
            found = task.everything()
        task.note(ALL, "left behind", here.left_behind())
        return client, dict(found)


def stop_when_asked():
    """Makes a signal an orderly end: whatever runs in a sandbox ends with it."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seawall", required=True, help="the binary")
    parser.add_argument("--installed", required=True, help="the folder with the servers and clients")
    parser.add_argument("--out", type=Path, help="where to write the table")
    parser.add_argument("--clients", type=lambda text: text.split(","), help="only these, by their short names")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="clients at a time")
    arguments = parser.parse_args()
    clients = plan.clients(arguments.installed)
    began = time.monotonic()
    stop_when_asked()
    with multiprocessing.Pool(arguments.jobs, stop_when_asked) as pool:
        task = functools.partial(drive, arguments)
        found = dict(pool.imap_unordered(task, arguments.clients or clients, chunksize=1))
    text = report.table(found, {name: client["title"] for name, client in clients.items()})
    print(f"\n{text}\n{time.monotonic() - began:.0f} s")
    if arguments.out:
        arguments.out.write_text(text)
    sys.exit(1 if report.is_different(found) else 0)


if __name__ == "__main__":
    main()
