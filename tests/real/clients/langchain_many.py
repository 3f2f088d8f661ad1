"""What LangChain gets of several connections: MultiServerMCPClient's tools, or why it has none.

Usage: python langchain_many.py CONNECTIONS, a JSON object of its own kind
"""

import asyncio
import json
import sys
import time

from langchain_mcp_adapters.client import MultiServerMCPClient


def root(error):
    """The error below all groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def main(connections):
    began = time.monotonic()
    try:
        tools = await MultiServerMCPClient(connections).get_tools()
        seen = {"tools": [tool.name for tool in tools]}
    except Exception as error:
        seen = {"error": f"{type(root(error)).__name__}: {root(error)}"[:200]}
    print(json.dumps({**seen, "took": time.monotonic() - began}), flush=True)


asyncio.run(main(json.loads(sys.argv[1])))
