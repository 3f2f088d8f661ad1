"""When two views of a server are the same, and how to say where they are not."""

import json
import re

import plan


def differences(direct, seen, ignore):
    """Everything that was shown differently, and where. `ignore`: fields that do not count."""
    found = [
        (name(a["step"]), difference(visible(a, ignore), visible(b, ignore)))
        for a, b in zip(direct["views"], seen["views"], strict=True)
    ]
    found.append(("handshake", difference(without(direct["hello"], ignore), without(seen["hello"], ignore))))
    found.append(("questions", difference(questions(direct["asked"], ignore), questions(seen["asked"], ignore))))
    return [f"{what}: {where}" for what, where in found if where]


def surprises(views):
    """Steps that went wrong by themselves, or should have and did not: a comparison with them would say nothing."""
    return [f"{name(view['step'])}: {short(view)}" for view in views if failed(view) != ("fails" in view["step"])]


def failed(view):
    result = view["result"]
    is_silent = isinstance(view.get("heard"), str) or len(view.get("progress", [0])) == 0
    is_error = "error" in result or result.get("isError") or "error" in (result.get("status"), result.get("type"))
    return bool(is_silent or is_error)


def once(asked):
    """Each question once: when its client comes back to a stream, server-everything says all it ever said again."""
    return [each for place, each in enumerate(asked) if each not in asked[:place]]


def questions(asked, ignore):
    """What servers asked, in no order: they may ask on their own time.

    The newest revision has no questions outside of a call, so there nobody is asked for roots at the beginning.
    """
    asked = [each for each in without(asked, ignore) if not (ignore and each["method"] == "roots/list")]
    return sorted(re.sub(plan.ID, "~", json.dumps(each, sort_keys=True)) for each in asked)


def visible(view, ignore):
    """What of a step is to be compared."""
    step = view["step"]
    seen = without({key: value for key, value in view.items() if key != "step"}, ignore)
    if "progress" in seen:
        seen["progress"] = [update for update in seen["progress"] if update["progress"] in step["progress"]]
    if step.get("text") == "json":
        told = json.loads(seen["result"]["content"][0]["text"])
        told.pop(plan.MARK, None)
        seen["result"]["content"][0]["text"] = told
    if "mask" in step:
        return re.sub(step["mask"], "~", json.dumps(seen, sort_keys=True))
    return seen


def without(value, names):
    """The value without the fields of these names, and without a `_meta` that is empty then."""
    if isinstance(value, list):
        return [without(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: without(each, names) for name, each in value.items() if name not in names}
    return {name: each for name, each in kept.items() if name != "_meta" or each or not value[name]}


def difference(direct, seen, where=""):
    """The first place where they differ, in words; None if they are equal."""
    if isinstance(direct, dict) and isinstance(seen, dict):
        for name in direct | seen:
            if name not in direct or name not in seen:
                side = "only direct" if name in direct else "only here"
                return f"{where}.{name} is there {side}: {short((direct | seen)[name])}"
            if found := difference(direct[name], seen[name], f"{where}.{name}"):
                return found
        return None
    if isinstance(direct, list) and isinstance(seen, list):
        if len(direct) != len(seen):
            return f"{where} has {len(direct)} direct, {len(seen)} here"
        found = (difference(a, b, f"{where}[{place}]") for place, (a, b) in enumerate(zip(direct, seen, strict=True)))
        return next(filter(None, found), None)
    return None if direct == seen else f"{where} is {short(direct)} direct, {short(seen)} here"


def short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:80] + " ... " + text[-75:]


def name(step):
    params = step["params"]
    return f"{step['method']} {params.get('name') or params.get('uri') or ''}".strip()
