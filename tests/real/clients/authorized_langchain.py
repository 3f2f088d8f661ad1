"""LangChain's adapters as led.py leads them: with one session, or as `get_tools` has it with one for each call.

Usage: python authorized_langchain.py one|each TARGET
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from led import follow

target = json.loads(sys.argv[2])
connection = {"transport": "streamable_http", "url": target["url"], "headers": target["headers"]}


class Agent:
    """What an agent has: tools, once they are loaded."""

    def __init__(self, load):
        self.load, self.tools = load, []

    async def list(self):
        self.tools = await self.load()
        return {"text": " ".join(tool.name for tool in self.tools)}

    async def call(self):
        tool = next(tool for tool in self.tools if tool.name == target["tool"])
        message = await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": target["arguments"]})
        text = message.content if isinstance(message.content, str) else message.content[0]["text"]
        return {"isError": message.status != "success", "text": text, "failure": None}


@asynccontextmanager
async def connected():
    client = MultiServerMCPClient({"one": connection})
    if sys.argv[1] == "each":
        agent = Agent(client.get_tools)
        await agent.list()
        yield agent
        return
    async with client.session("one") as session:
        yield Agent(lambda: load_mcp_tools(session))


asyncio.run(follow(connected, {"list": Agent.list, "call": Agent.call}))
