"""A Python client that calls tools until its stdin ends, and says how each call ended, a line of JSON each.

Connects with PyPI mcp 1.x or 2.x, whichever is installed. Two callers share the one session: a quick one and a slow
one, so that something is nearly always under way.
Usage: python busy.py TARGET, a JSON object with `url` or `command`
"""

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager

import mcp

QUICK = [
    ("echo", {"message": "hello"}),
    ("get-sum", {"a": 2, "b": 3}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
]
SLOW = [("trigger-long-running-operation", {"duration": 0.3, "steps": 3})]


def say(**what):
    print(json.dumps(what), flush=True)


def shown(model):
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


@asynccontextmanager
async def connected(target):
    url = target.get("url")
    if not url:
        command, *arguments = target["command"]
        process = mcp.StdioServerParameters(command=command, args=arguments)
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


async def timed(name, work):
    """Says how one piece of work ended."""
    began = time.monotonic()
    say(begins=name)
    try:
        end = await work
    except Exception as error:
        code = getattr(getattr(error, "error", None), "code", None)
        end = {"end": "exception", "text": f"{type(error).__name__} {code}: {error}"[:300]}
    say(tool=name, ms=round((time.monotonic() - began) * 1000), **end)


async def call(client, name, arguments):
    result = shown(await client.call_tool(name, arguments))
    if result.get("isError"):
        return {"end": "failure", "text": result["content"][0]["text"][:300]}
    return {"end": "result"}


async def list_tools(client):
    return {"end": "result", "tools": json.dumps(shown(await client.list_tools())["tools"], sort_keys=True)}


async def caller(client, steps, stopped):
    count = 0
    while not stopped.is_set():
        name, arguments = steps[count % len(steps)]
        await timed(name, call(client, name, arguments))
        count += 1
        if steps is QUICK and count % 10 == 0:
            await timed("tools/list", list_tools(client))
        await asyncio.sleep(0.02)


async def main(target):
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with connected(target) as client:
        await timed("tools/list", list_tools(client))
        say(ready=True)
        stop = loop.run_in_executor(None, sys.stdin.read)
        stop.add_done_callback(lambda _: stopped.set())
        await asyncio.gather(caller(client, QUICK, stopped), caller(client, SLOW, stopped))
        await timed("tools/list", list_tools(client))
    say(closed=True)


asyncio.run(main(json.loads(sys.argv[1])))
