"""Loads the tools of two servers, one of which may be away, and wraps them for an agent."""

from __future__ import annotations

import asyncio
from typing import Any

from seawall import ToolCaller, get_tools_with_resilience
from seawall.langchain import wrap_tools


async def load(connections: dict[str, dict[str, Any]]) -> tuple[list[Any], list[str]]:
    result = await get_tools_with_resilience(connections)
    wrapped: list[Any] = []
    for outcome in result.outcomes:  # each server has its own breakers and budget
        wrapped += wrap_tools(outcome.tools, caller=ToolCaller(outcome.server_id))
    return wrapped, result.prompt_warnings


if __name__ == "__main__":
    servers: dict[str, dict[str, Any]] = {
        "time": {"transport": "stdio", "command": "seawall", "args": ["run", "--", "uvx", "mcp-server-time"]},
        "search": {"transport": "streamable_http", "url": "http://127.0.0.1:9/mcp"},
    }
    tools, warnings = asyncio.run(load(servers))
    print([tool.name for tool in tools], *warnings, sep="\n")
