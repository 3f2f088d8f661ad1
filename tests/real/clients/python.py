"""What a Python client sees: connects with PyPI mcp 1.x or 2.x, whichever is installed, does the steps it reads, and
prints what it was shown.

1.x answers no questions, as most clients do; 2.x speaks the newest revision by itself and answers all.
Usage: python python.py < job.json > seen.json
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import mcp

try:
    import mcp_types as types
except ImportError:
    import mcp.types as types

ERROR = getattr(mcp, "McpError", None) or mcp.MCPError
asked = []


def shown(model):
    """Exactly the fields that came over the wire, under their names there."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


@asynccontextmanager
async def connected_1(target):
    """A session of mcp 1.x, and what the server said of itself."""
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    transport = streamable_http_client(target["url"]) if "url" in target else stdio_client(process(target))
    async with transport as (read, write, *_), mcp.ClientSession(read, write) as session:
        hello = shown(await session.initialize())
        yield session, {key: hello.get(key) for key in ("serverInfo", "capabilities", "instructions")}


@asynccontextmanager
async def connected_2(target, root):
    """A client of mcp 2.x, and what the server said of itself."""

    async def sample(_, params):
        asked.append({"method": "sampling/createMessage", "params": shown(params)})
        text = f"You said: {[shown(message) for message in params.messages]}"
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(model="none", role="assistant", content=content)

    async def elicit(_, params):
        asked.append({"method": "elicitation/create", "params": shown(params)})
        return types.ElicitResult(action="accept", content=None if params.mode == "url" else {"name": "Ada"})

    async def roots(_):
        asked.append({"method": "roots/list"})
        return types.ListRootsResult(roots=[types.Root(uri=root, name="files")])

    answers = {"sampling_callback": sample, "elicitation_callback": elicit, "list_roots_callback": roots}
    async with mcp.Client(target.get("url") or process(target), **answers) as client:
        capabilities = shown(client.server_capabilities)
        info = client.server_info and shown(client.server_info)
        yield client, {"serverInfo": info, "capabilities": capabilities, "instructions": client.instructions}


def process(target):
    command, *arguments = target["command"]
    return mcp.StdioServerParameters(command=command, args=arguments, env=target.get("env"))


async def call(client, params, progress):
    async def note(done, total, message):
        progress.append({"progress": done, "total": total, "message": message})

    return await client.call_tool(params["name"], params["arguments"], progress_callback=note)


async def step(client, method, params, progress):
    methods = {
        "tools/list": lambda: client.list_tools(),
        "tools/call": lambda: call(client, params, progress),
        "prompts/list": lambda: client.list_prompts(),
        "prompts/get": lambda: client.get_prompt(params["name"], params.get("arguments")),
        "resources/list": lambda: client.list_resources(),
        "resources/templates/list": lambda: client.list_resource_templates(),
        "resources/read": lambda: client.read_resource(params["uri"]),
    }
    try:
        return shown(await methods[method]())
    except ERROR as error:
        return {"error": shown(error.error)}


async def main(job):
    connection = connected_2(job["target"], job["root"]) if hasattr(mcp, "Client") else connected_1(job["target"])
    async with connection as (client, hello):
        steps = []
        for one in job["steps"]:
            progress = []
            result = await step(client, one["method"], one.get("params"), progress)
            steps.append({"result": result, **({"progress": progress} if one.get("progress") else {})})
        print(json.dumps({"hello": hello, "steps": steps, "asked": asked}))


asyncio.run(main(json.load(sys.stdin)))
