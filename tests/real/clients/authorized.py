"""PyPI mcp, 1.x or 2.x, as led.py leads it, with the headers of its target. Usage: python authorized.py TARGET"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import mcp
from led import follow, returned
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

target = json.loads(sys.argv[1])


@asynccontextmanager
async def connected():
    http = create_mcp_http_client(headers=target["headers"])
    transport = streamable_http_client(target["url"], http_client=http)
    if hasattr(mcp, "Client"):
        async with mcp.Client(transport) as client:
            yield client
        return
    async with transport as (read, write, *_), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def listed(client):
    return {"text": " ".join(tool.name for tool in (await client.list_tools()).tools)}


async def called(client):
    return returned(await client.call_tool(target["tool"], target["arguments"]))


asyncio.run(follow(connected, {"list": listed, "call": called}))
