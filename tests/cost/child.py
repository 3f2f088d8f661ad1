"""A server on stdio that answers in constants."""

import json
import sys

TOOL = {"name": "small", "description": "Gives a constant", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
ANSWERS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "cost", "version": "1"}},
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "x" * 440}], "isError": False},
}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWERS.get(asked["method"], {})}), flush=True)
