"""Each policy alone, and all together."""

from __future__ import annotations

import asyncio

from seawall import CircuitBreaker, FallbackChain, Retry, ToolCaller, retry

breakers = CircuitBreaker(failures=5, cooldown_s=30)
tools = ToolCaller("github")
failures = {"get_issue": 2, "search": 1}


async def ask(name: str) -> str:
    if failures.get(name, 0) > 0:
        failures[name] -= 1
        raise ConnectionError("503 Service Unavailable")
    return f"{name}: fine"


@retry(effect="read_only", attempts=5, base_backoff_s=0.01, attempt_timeout_s=5)
async def get_issue() -> str:
    return await ask("get_issue")


@breakers.guard("search")
async def search() -> str:
    return await ask("search")


@FallbackChain([("yesterday", lambda: "yesterday's answer")])
async def get_news() -> str:
    raise ConnectionError("503 Service Unavailable")


@tools.tool("list_issues", timeout_s=20)
async def list_issues(state: str = "open") -> str:
    return await ask(f"list_issues {state}")


async def main() -> list[str]:
    said = [await get_issue(), await get_news(), await list_issues()]
    async for attempt in Retry("read_only", base_backoff_s=0.01):
        async with attempt:
            said.append(await search())
    return said


if __name__ == "__main__":
    print(*asyncio.run(main()), sep="\n")
