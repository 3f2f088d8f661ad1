"""What LangChain sees: MultiServerMCPClient loads the tools, calls them as an agent would, and this prints what it got.

As in an agent, every call has a session of its own.
Usage: python langchain_adapters.py < job.json > seen.json
"""

import asyncio
import json
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient


def connection(target):
    if "url" in target:
        return {"transport": "streamable_http", "url": target["url"]}
    command, *arguments = target["command"]
    return {"transport": "stdio", "command": command, "args": arguments, "env": target.get("env")}


def described(tool):
    fields = ("name", "description", "args_schema", "metadata", "response_format")
    return {field: getattr(tool, field) for field in fields}


async def call(tools, params):
    tool = next(tool for tool in tools if tool.name == params["name"])
    asked = {"type": "tool_call", "id": "1", "name": tool.name, "args": params["arguments"]}
    message = await tool.ainvoke(asked)
    content = [{key: value for key, value in block.items() if key != "id"} for block in message.content]
    return {"content": content, "artifact": message.artifact, "status": message.status}


async def step(tools, step):
    is_list = step["method"] == "tools/list"
    return {"result": {"tools": [described(tool) for tool in tools]} if is_list else await call(tools, step["params"])}


async def main(job):
    client = MultiServerMCPClient({"one": connection(job["target"])})
    tools = await client.get_tools()
    seen = [await step(tools, each) for each in job["steps"]]
    print(json.dumps({"steps": seen}, default=lambda model: model.model_dump(mode="json")))


asyncio.run(main(json.load(sys.stdin)))
