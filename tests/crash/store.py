"""The queue alone: `crates/gateway/examples/queue_script.rs` does fifty operations and acknowledges each.

strace kills it at its Nth system call, or lets that one fail. Then the queue is opened again, its items are looked at, and
everything that waits is delivered.
"""

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from faults import DISK, TARGET, faults

SCRIPT = TARGET / "debug/examples/queue_script"
CALLS = ["write", "pwrite64", "fdatasync", "fsync", "ftruncate", "link", "linkat", "unlink"]
FAULTS = faults(CALLS)
# How many of each are tried, about, in a sample.
SAMPLE = 40
ALL = {}
# The part of the kills that must happen for a run to show something.
LEAST = 0.9
# Numbers that are idempotent in the script: it may execute them more than once.
IS_IDEMPOTENT = lambda n: n < 50 and n % 5 == 2


def traced(folder, options, mode="run"):
    command = ["strace", "-f", "-qq", "-o", f"{folder}/trace", *options, SCRIPT, mode, f"{folder}/store", f"{folder}/ledger"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def count():
    """How often the one thread of the undisturbed script makes each call, and all do; and how many lines it says."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        run = traced(folder, ["-e", "trace=" + ",".join(CALLS)])
        if run.returncode or "end" not in run.stdout:
            raise SystemExit(f"the undisturbed script failed: {run.stdout}{run.stderr}")
        wrong = after(folder, run.stdout)
        if wrong:
            raise SystemExit("the undisturbed script: " + "; ".join(wrong))
        seen = Counter(re.findall(r"^(\d+) +(\w+)\(", Path(folder, "trace").read_text(), re.M))
        acknowledged = len(run.stdout.splitlines())
    counts = {call: max([n for (_, name), n in seen.items() if name == call], default=0) for call in CALLS}
    return counts, counts, acknowledged


def after(folder, said):
    """Restarts the queue; what of the promises does not hold."""
    ledger = Path(folder, "ledger")
    before = Counter(map(int, ledger.read_text().split())) if ledger.exists() else Counter()
    again = subprocess.run([SCRIPT, "drain", f"{folder}/store", ledger], capture_output=True, text=True, timeout=60)
    executed = Counter(map(int, ledger.read_text().split()))
    if again.returncode or not again.stdout.endswith("end\n"):
        return [f"the restart failed: {again.stdout}{again.stderr}"]
    lines = lambda word, text: [line.split(" ", 4)[1:] for line in text.splitlines() if line.startswith(word + " ")]
    found = {item[0]: item[1:] for item in lines("found", again.stdout)}
    left = {item[0]: item[1:] for item in lines("left", again.stdout)}
    # What somebody asked to be forgotten may be gone, and must be if that was acknowledged.
    forgotten = {item[0] for item in lines("forgetting", said)}
    kept = {item[0]: int(item[1]) for item in lines("kept", said) if item[0] not in forgotten}
    refused = {int(item[0]) for item in lines("refused", said)}
    retried = {item[0] for item in lines("retrying", said)}
    wrong = [f"{item[0]} was forgotten and is there" for item in lines("forgotten", said) if item[0] in found]
    if len(lines("kept", said)) != len({item[0] for item in lines("kept", said)}):
        wrong.append("an id was given twice")
    numbers = [int(item[0]) for item in found.values() if item[0] != "null"]
    wrong += [f"{n} is there twice" for n, times in Counter(numbers).items() if times > 1]
    wrong += [f"{n} was refused and is there" for n in numbers if n in refused]
    wrong += [f"{n} was refused and executed" for n in executed if n in refused]
    for id, n in kept.items():
        if id not in found:
            wrong.append(f"{id} ({n}) was acknowledged and is gone")
        elif found[id][1] == "delivered" and not before[n]:
            wrong.append(f"{id} ({n}) is delivered and was not executed")
        elif found[id][1] == "dead" and "may have been executed" not in found[id][2]:
            wrong.append(f"{id} ({n}) is dead without need: {found[id][2]}")
        elif found[id][1] == "waiting" and before[n] and not IS_IDEMPOTENT(n) and id not in retried:
            wrong.append(f"{id} ({n}) was executed and waits again")
        elif id not in left or left[id][1] not in ("delivered", "dead"):
            wrong.append(f"{id} ({n}) was not delivered in the end")
        elif left[id][1] == "delivered" and not executed[n]:
            wrong.append(f"{id} ({n}) was delivered and not executed")
    for item in lines("delivered", said):
        if item[0] in found and found[item[0]][1] != "delivered":
            wrong.append(f"{item[0]} was recorded as delivered and is {found[item[0]][1]}")
    # An operator's retry of a call that may have been executed is a second execution that somebody asked for.
    asked = {int(found[id][0]) for id in retried if id in found and found[id][0] != "null"}
    asked |= {kept[id] for id in retried if id in kept}
    wrong += [f"write {n} was executed {times} times"
              for n, times in executed.items() if times > 1 and not IS_IDEMPOTENT(n) and n not in asked]
    return wrong


def case(fault, call, words, n):
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        run = traced(folder, ["-e", f"trace={call}", "-e", f"inject={call}:{words.format(n=n)}"])
        is_killed = run.returncode in (137, -9)
        wrong = after(folder, run.stdout)
        if "KILL" not in words and not run.stdout.endswith(("end\n", "\n")):
            wrong.append(f"it ended with {run.returncode}: {run.stderr}")
        if "panicked" in run.stderr:
            wrong.append(run.stderr)
        return fault, call, n, is_killed, len(run.stdout.splitlines()), wrong
