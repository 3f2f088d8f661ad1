"""LangChain's adapters abandon a write and ask again, as an agent would: every call has a session of its own.

Usage: python abandon_langchain.py < job.json > seen.json; the ways of abandoning are those of abandon.py
"""

import asyncio
import json
import sys
from datetime import timedelta

from langchain_mcp_adapters.client import MultiServerMCPClient

PATIENCE = 20


async def loaded(job, seconds):
    target = job["target"]
    limits = {"session_kwargs": {"read_timeout_seconds": timedelta(seconds=seconds)}}
    if "url" in target:
        connection = {"transport": "streamable_http", "url": target["url"], "headers": target["headers"], **limits}
    else:
        command, *arguments = target["command"]
        connection = {"transport": "stdio", "command": command, "args": arguments, "env": target.get("env"), **limits}
    tools = await MultiServerMCPClient({"one": connection}).get_tools()
    return next(tool for tool in tools if tool.name == job["tool"])


async def call(tool, job):
    asked = {"type": "tool_call", "id": "1", "name": tool.name, "args": job["arguments"]}
    try:
        message = await tool.ainvoke(asked)
        text = message.content if isinstance(message.content, str) else message.content[0]["text"]
        return {"error": message.status != "success", "text": text}
    except BaseException as error:
        inner = error
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        return {"exception": f"{type(inner).__name__}: {inner}"}


async def main(job):
    leaves = job["how"] in ("cancel", "drop")
    impatient = await loaded(job, PATIENCE if leaves else job["patience"])
    patient = await loaded(job, PATIENCE)
    if leaves:
        limit = job["patience"] if job["how"] == "cancel" or "url" not in job["target"] else 2 * job["patience"]
        try:
            first = await asyncio.wait_for(call(impatient, job), limit)
        except asyncio.TimeoutError:
            first = {"exception": "cancelled by the program"}
    else:
        first = await call(impatient, job)
    count = 3 if job["how"] == "three" else 1
    then = await asyncio.gather(*(call(patient, job) for _ in range(count)))
    print(json.dumps({"first": first, "then": then}), flush=True)


if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup
asyncio.run(main(json.load(sys.stdin)))
