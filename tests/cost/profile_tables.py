"""What a call costs, part by part: instructions, allocations, system calls, context switches, each as a table of Markdown."""

import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import callgrind
import scripts

# Where a function belongs, by the first pattern that its name has.
PARTS = {
    "moving memory": r"^__?mem(cpy|move|set|cmp)|^mem(cpy|move|set|cmp)",
    "allocator": r"malloc|^_int_|^free$|calloc|realloc|__rust_(alloc|dealloc)|unlink_chunk|cfree",
    "tokio": r"^<?(\w+::)?tokio|tokio_util|futures_util",
    "clock": r"clock_gettime|::time::Timespec|::time::Instant|quanta|FastClock",
    "hyper and http": r"^<?&?(hyper|http|httparse|hyper_util|httpdate)\b|want::",
    "hashing": r"\bhash::|siphash|BuildHasher|hashbrown",
    "bytes": r"^<?bytes::",
    "seawall: reading and writing JSON": r"seawall_gateway::protocol|serde_json",
    "seawall: the library": r"^<?seawall::",
    "seawall: the rest": r"seawall",
}
CALLS, WARM = 2000, 300


def part(name):
    return next((part for part, pattern in PARTS.items() if re.search(pattern, name)), "the rest of Rust and C")


def under_callgrind(names):
    """Instructions by part, and allocations; one column for each script."""
    profiles = {name: callgrind.of(name) for name in names}
    by_part = {name: Counter() for name in names}
    for name, profile in profiles.items():
        for function, count in profile.own.items():
            by_part[name][part(function)] += count
    rows = [[what, *(f"{by_part[name][what]:,.0f}" for name in names)] for what in [*PARTS, "the rest of Rust and C"]]
    rows.append(["**instructions**", *(f"**{profiles[name].instructions:,.0f}**" for name in names)])
    rows.append(["allocations", *(f"{profiles[name].allocations:.0f}" for name in names)])
    polls = "tokio::runtime::task::raw::poll"
    rows.append(["tasks polled", *(f"{profiles[name].called[polls]:.1f}" for name in names)])
    return table(["part", *names], rows)


def by_the_kernel(names):
    """System calls, context switches and CPU, with two worker threads."""
    traced = {name: system_calls(name) for name in names}
    measured = {name: switches_and_cpu(name) for name in names}
    shown = sorted({call for calls in traced.values() for call, count in calls.items() if count >= 0.1})
    rows = [[call, *(f"{traced[name][call]:.1f}" for name in names)] for call in shown]
    rows.append(["**system calls**", *(f"**{sum(traced[name].values()):.1f}**" for name in names)])
    rows.append(["context switches", *(f"{measured[name][0]:.1f}" for name in names)])
    rows.append(["CPU, µs", *(f"{measured[name][1]:.0f}" for name in names)])
    return table(["for a call", *names], rows)


def system_calls(name):
    with tempfile.NamedTemporaryFile() as out, scripts.started(name, workers=2) as (call, process):
        call(WARM)
        strace = subprocess.Popen(["strace", "-c", "-f", "-p", str(process.pid), "-o", out.name], stderr=subprocess.PIPE)
        strace.stderr.readline()
        call(CALLS)
        strace.send_signal(signal.SIGINT)
        strace.wait(scripts.PATIENCE)
        rows = [line.split() for line in Path(out.name).read_text().splitlines()]
    return Counter({row[-1]: int(row[3]) / CALLS for row in rows if row and re.match(r"\d", row[0]) and row[-1] != "total"})


def switches_and_cpu(name):
    with scripts.started(name, workers=2) as (call, process):
        call(WARM)
        before = switches(process.pid), cpu(process.pid)
        call(5 * CALLS)
        after = switches(process.pid), cpu(process.pid)
    return [(end - begin) / (5 * CALLS) for begin, end in zip(before, after)]


def switches(pid):
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int(count) for thread in threads for count in re.findall(r"voluntary_ctxt_switches:\s*(\d+)", (thread / "status").read_text()))


def cpu(pid):
    """In microseconds, of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000 / os.sysconf("SC_CLK_TCK")


def table(head, rows):
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def all_of(machine):
    piped = "stdio child"
    counted = [name for name in scripts.SCRIPTS if name != piped]
    small = [name for name in scripts.SCRIPTS if "MB" not in name]
    return f"{machine}.\n\n{under_callgrind(counted)}\n\n{by_the_kernel(small)}"
