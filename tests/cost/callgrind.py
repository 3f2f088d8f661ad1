"""Counts instructions per call: callgrind over a script with few and with many calls, so that what happens once drops out."""

import re
import tempfile
from collections import Counter
from pathlib import Path

import scripts

# Calls of the shorter and of the longer run, for small answers and for large ones, which are all alike.
CALLS = {False: (300, 1300), True: (20, 100)}
# What takes as long at the start as the machine lets it: the clock's calibration, and the look at all processes for orphans of a crash.
ONCE = re.compile(r"Once::call_once_force|upstream::orphans::")
ALLOCATES = ("malloc", "calloc", "realloc", "posix_memalign", "memalign", "aligned_alloc")


class Profile:
    """What one run, or one call, executed: instructions in all and by function, and how often functions were called."""

    def __init__(self, own, called):
        self.own, self.called = own, called

    @property
    def instructions(self):
        return sum(self.own.values())

    def per_call(self, shorter, calls):
        def each(more, less):
            return Counter({name: (more[name] - less[name]) / calls for name in more})
        return Profile(each(self.own, shorter.own), each(self.called, shorter.called))

    @property
    def allocations(self):
        return sum(count for name, count in self.called.items() if name in ALLOCATES)


def of(name):
    """The cost of one call of a script."""
    few, many = CALLS["MB" in name]
    return run(name, many).per_call(run(name, few), many - few)


def run(name, calls):
    with tempfile.TemporaryDirectory(prefix="seawall-callgrind-") as folder:
        out = Path(folder) / "out"
        under = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", f"--log-file={out}.log"]
        with scripts.started(name, under) as (call, _):
            call(calls)
        return read(out.read_text())


def read(text):
    """Functions are written `(number) name` where they first stand, and `(number)` after that."""
    names, own, called = {}, Counter(), Counter()
    function, is_call, callee = None, False, None

    def named(written):
        number, _, name = written.partition(" ")
        return names.setdefault(number, re.sub(r"'\d+$", "", name))

    for line in text.splitlines():
        if line.startswith("fn="):
            function = named(line[3:])
        elif line.startswith("cfn="):
            callee = named(line[4:])
        elif line.startswith("calls="):
            called[callee] += int(line[6:].split()[0])
            is_call = True
        elif line and line[0] in "0123456789+-*" and function:
            # What a callee took stands after its call; it is counted where the callee stands.
            if not is_call and not ONCE.search(function):
                own[function] += int(line.split()[1])
            is_call = False
    return Profile(own, called)
