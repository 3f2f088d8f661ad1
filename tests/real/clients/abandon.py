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


@asynccontextmanager
async def connected(target):
    url = target.get("url")
    if not url:
        command, *arguments = target["command"]
        process = mcp.StdioServerParameters(command=command, args=arguments, env=target.get("env"))
    if hasattr(mcp, "Client"):
        async with mcp.Client(url or process) as client:
            yield client
        return
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    transport = streamable_http_client(url) if url else stdio_client(process)
    async with transport as (read, write, *_), mcp.ClientSession(read, write) as session:
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


async def main(job):
    how, target = job["how"], job["target"]
    if how == "drop" and "url" not in target:
        task = None
        try:
            async with connected(target) as client:
                task = asyncio.ensure_future(call(client, job, PATIENCE))
                await asyncio.sleep(job["patience"])
                task.cancel()
        except BaseException:
            pass
        first = {"exception": "the program ended the process"}
        async with connected(target) as client:
            then = [await call(client, job, PATIENCE)]
        return print(json.dumps({"first": first, "then": then}))
    async with connected(target) as client:
        first = await (cancelled(client, job) if how == "cancel" else call(client, job, job["patience"]))
        count = 3 if how == "three" else 1
        then = await asyncio.gather(*(call(client, job, PATIENCE) for _ in range(count)))
        # What is wrong with the end of a connection is not looked at here.
        print(json.dumps({"first": first, "then": then}), flush=True)


asyncio.run(main(json.load(sys.stdin)))
