"""What goes wrong, in the words of strace, and where."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# A kill keeps what the kernel has, synced or not, so memory serves as a disk.
DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def faults(calls):
    """At the Nth of which calls, and what happens there."""
    return {
        "kill -9": (calls, "signal=KILL:when={n}"),
        "disk full once": (["pwrite64", "ftruncate"], "error=ENOSPC:when={n}"),
        "disk full from then on": (["pwrite64", "ftruncate"], "error=ENOSPC:when={n}+"),
        "sync fails once": (["fdatasync"], "error=EIO:when={n}"),
    }
