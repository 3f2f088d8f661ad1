"""What a call costs that succeeds at once, beside tenacity, stamina and pybreaker, and what crossing into Rust costs.

usage: python bench.py [--write PAGE]
"""

from __future__ import annotations

import asyncio
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

import pybreaker
import stamina
import tenacity

import seawall
from seawall import _core

CALLS, ROUNDS = 3000, 15


async def work() -> int:
    return 7


def plain() -> int:
    return 7


async def per_call(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        await call()
    return (time.perf_counter() - began) / CALLS * 1e6


async def per_call_sync(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS * 1e6


def subjects() -> dict[str, tuple[bool, Callable[[], object]]]:
    """By name: whether it is async, and one call."""
    breaker, tools = seawall.CircuitBreaker(), seawall.ToolCaller()
    peer = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=30)

    async def send(attempt: seawall.ToolAttempt) -> int:
        return 7

    tenacious = {"stop": tenacity.stop_after_attempt(3), "wait": tenacity.wait_exponential_jitter()}
    return {
        "the work alone": (True, work),
        "seawall retry": (True, seawall.retry(effect="read_only")(work)),
        "seawall retry, with timeouts": (True, seawall.retry(effect="read_only", timeout_s=60)(work)),
        "tenacity retry": (True, tenacity.retry(**tenacious)(work)),  # type: ignore[call-overload]
        "stamina retry": (True, stamina.retry(on=ConnectionError, attempts=3)(work)),
        "seawall breaker": (True, breaker.guard("a")(work)),
        "seawall ToolCaller: all policies": (True, lambda: tools.call("get_issue", {"number": 7}, send)),
        "the plain work alone": (False, plain),
        "seawall retry, plain": (False, seawall.retry(effect="read_only")(plain)),
        "tenacity retry, plain": (False, tenacity.retry(**tenacious)(plain)),  # type: ignore[call-overload]
        "stamina retry, plain": (False, stamina.retry(on=ConnectionError, attempts=3)(plain)),
        "seawall breaker, plain": (False, breaker.guard("b")(plain)),
        "pybreaker, plain": (False, peer(plain)),
        "one call into Rust and back": (False, lambda: _core.effect_by_name("x")),
    }


def table() -> list[str]:
    found = subjects()
    times: dict[str, list[float]] = {name: [] for name in found}

    async def measure() -> None:
        # One after the other in each round, so that the machine's moods meet all of them.
        for _ in range(ROUNDS):
            for name, (is_async, call) in found.items():
                took = await (per_call(call) if is_async else per_call_sync(call))  # type: ignore[arg-type]
                times[name].append(took)

    asyncio.run(measure())
    rows = ["| what | µs a call, median | best |", "|---|---:|---:|"]
    rows += [f"| {name} | {statistics.median(each):.2f} | {min(each):.2f} |" for name, each in times.items()]
    return rows


def page(rows: list[str]) -> str:
    peers = ", ".join(f"{name} {version(name)}" for name in ("tenacity", "stamina", "pybreaker"))
    return "\n".join(
        [
            "# What a call costs in Python",
            "",
            f"A call that succeeds at once, through each library: {ROUNDS} rounds of {CALLS} calls, one subject after the other in each round.",
            f"Python {platform.python_version()} on {platform.machine()}; {peers}. The machine was shared and noisy: compare rows, not pages.",
            "pybreaker's own calls of coroutines need tornado and are left out.",
            "",
            *rows,
            "",
            "Made with the native half built for release; renewed by `SEAWALL_WHEEL_PROFILE=release tests/python/run && target/python/use/bin/python bindings/python/bench.py --write docs/evidence/python.md`.",
            "",
        ]
    )


if __name__ == "__main__":
    rows = table()
    print(*rows, sep="\n")
    if sys.argv[1:2] == ["--write"]:
        Path(sys.argv[2]).write_text(page(rows))
