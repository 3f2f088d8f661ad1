"""A client of PyPI mcp, 1.x or 2.x, that abandons a write and asks again; prints what it read each time.

`timeout`: its own limit is reached; `drop`: its connection is cut under the call (on pipes it ends the process itself);
`cancel`: the program cancels the task that waits; `three`: as timeout, and then three at once.
Usage: python abandon.py < job.json > seen.json
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from datetime import timedelta

import mcp

PATIENCE = 20


def transport(target):
    """The way to the server; over HTTP with a token, so that the client is the same one after a reconnect."""
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    if "url" in target:
        return streamable_http_client(target["url"], http_client=create_mcp_http_client(headers=target["headers"]))
    command, *arguments = target["command"]
    return stdio_client(mcp.StdioServerParameters(command=command, args=arguments, env=target.get("env")))


@asynccontextmanager
async def connected(target):
    if hasattr(mcp, "Client"):
        async with mcp.Client(transport(target)) as client:
            yield client
        return
    async with transport(target) as (read, write, *_), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield session


def limit(seconds):
    return seconds if hasattr(mcp, "Client") else timedelta(seconds=seconds)


async def call(client, job, seconds):
    """What the client reads: a result, or an exception."""
    try:
        result = await client.call_tool(job["tool"], job["arguments"], read_timeout_seconds=limit(seconds))
        return {"error": bool(getattr(result, "isError", getattr(result, "is_error", False))), "text": result.content[0].text}
    except Exception as error:
        return {"exception": f"{type(error).__name__}: {error}"}


async def cancelled(client, job):
    try:
        return await asyncio.wait_for(call(client, job, PATIENCE), job["patience"])
    except asyncio.TimeoutError:
        return {"exception": "cancelled by the program"}


async def ended(job):
    """Abandons the call by ending the whole connection."""
    try:
        async with connected(job["target"]) as client:
            task = asyncio.ensure_future(call(client, job, PATIENCE))
            await asyncio.sleep(job["patience"])
            task.cancel()
    except BaseException:
        pass  # What is wrong with the end of a connection is not looked at here.
    return {"exception": "the program ended the process"}


async def again(client, job):
    return await asyncio.gather(*(call(client, job, PATIENCE) for _ in range(3 if job["how"] == "three" else 1)))


async def main(job):
    how, target, first, then = job["how"], job["target"], None, None
    if how == "drop" and "url" not in target:
        first = await ended(job)
    else:
        try:
            async with connected(target) as client:
                first = await (cancelled(client, job) if how == "cancel" else call(client, job, job["patience"]))
                then = await again(client, job)
        except BaseException as error:  # 1.x tears the whole session down when a connection is cut.
            first = first or {"exception": type(error).__name__}
    if not then or how == "drop" and all("exception" in each for each in then):
        # What a program does whose session is gone: it begins another one.
        async with connected(target) as client:
            then = await again(client, job)
    print(json.dumps({"first": first, "then": then}), flush=True)


asyncio.run(main(json.load(sys.stdin)))
