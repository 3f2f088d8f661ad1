"""A server that takes long to start, and then has one tool. Usage: python3 slow.py SECONDS"""

import json
import sys
import time

TOOL = {"name": "wait", "description": "Says that it is there.", "inputSchema": {"type": "object"}}
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "slow", "version": "1"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "here"}]},
    "ping": {},
}

time.sleep(float(sys.argv[1]))
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        unknown = {"error": {"code": -32601, "message": "Method not found"}}
        known = {"result": ANSWERS.get(asked["method"])}
        answer = known if known["result"] is not None else unknown
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
