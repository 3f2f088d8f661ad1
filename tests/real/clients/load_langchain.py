"""LangChain's adapters load the tools of several servers at once as CAIPE's agent does: each at most three times, with
pauses of 0.25 s and 0.5 s and up to 0.25 s more, and not again what is denied.

Says that it is ready, begins at the first line of its stdin, says when the first attempt failed, and prints what came
of each server. Usage: python load_langchain.py TARGETS
"""

import asyncio
import json
import random
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from led import say, thrown

ATTEMPTS, BASE = 3, 0.25
connections = json.loads(sys.argv[1])


async def loaded(name):
    seen = []
    for attempt in range(ATTEMPTS):
        try:
            client = MultiServerMCPClient({name: connections[name]})
            return [*seen, len(await client.get_tools())]
        except Exception as error:
            seen.append(thrown(error)["status"])
            say({"failed": name})
            if seen[-1] in (401, 403):
                break
        if attempt + 1 < ATTEMPTS:
            await asyncio.sleep(BASE * 2**attempt + random.uniform(0, BASE))
    return [*seen, None]


async def main():
    names = list(connections)
    found = await asyncio.gather(*map(loaded, names))
    say({"loaded": dict(zip(names, found))})


say({"text": "ready"})
sys.stdin.readline()
asyncio.run(main())
