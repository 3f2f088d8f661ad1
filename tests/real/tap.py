"""Runs a command as if it were not there, and writes down every line that lists tools, as it was on the wire.

Usage: python3 tap.py LOG COMMAND...
"""

import subprocess
import sys
import threading


def copy(source, to, log=None):
    for line in iter(source.readline, b""):
        if log and b'"tools":[' in line:
            log.write(line)
        try:
            to.write(line)
            to.flush()
        except BrokenPipeError:
            break
    try:
        to.close()
    except BrokenPipeError:
        pass


process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
threading.Thread(target=copy, args=(sys.stdin.buffer, process.stdin), daemon=True).start()
with open(sys.argv[1], "ab", 0) as log:
    copy(process.stdout, sys.stdout.buffer, log)
sys.exit(process.wait())
