"""How several servers look as one: what a client asks for there, and the lists it should get."""

import json

KEYS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def is_own(step):
    """Whether a step is about one server also where there are several."""
    return step["method"] not in KEYS and not step.get("alone")


def renamed(step, server):
    """The step under the public name of what it is about."""
    step = json.loads(json.dumps(step))
    for named in (step["params"], step["params"].get("ref", {})):
        if "name" in named:
            named["name"] = f"{server}__{named['name']}"
    return step


def expected(step, direct):
    """The view of a merged list: every server's own entries, one server after the other. `direct[server]` are views."""
    key = KEYS[step["method"]]
    entries, rest = [], {}
    for server, views in direct.items():
        for view in [view for view in views if view["step"] == step]:
            rest = {name: value for name, value in view.items() if name != "result"}
            entries += [public(entry, server, key) for entry in view["result"][key]]
    return {**rest, "result": {key: entries}}


def public(entry, server, key):
    return {**entry, "name": f"{server}__{entry['name']}"} if key in ("tools", "prompts") else entry
