"""What a program is made of, as CycloneDX 1.5: from `cargo metadata`, only what is linked into it."""

import hashlib
import json
import uuid


def linked(graph, root):
    """The packages that reach the program, and of which each is made; what only builds or tests it is left out, as are macros."""
    macros = {each["id"] for each in graph["packages"] if any("proc-macro" in target["kind"] for target in each["targets"])}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    first = next(package["id"] for package in graph["packages"] if package["name"] == root)
    found, waiting = {}, [first]
    while waiting:
        here = waiting.pop()
        if here in found:
            continue
        uses = [dep["pkg"] for dep in nodes[here]["deps"] if dep["pkg"] not in macros and any(kind["kind"] is None for kind in dep["dep_kinds"])]
        found[here] = sorted(uses)
        waiting += uses
    return first, found


def component(package):
    name, version = package["name"], package["version"]
    made = {"type": "library", "bom-ref": reference(package), "name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}"}
    if licence := package.get("license"):
        # "MIT/Apache-2.0" is how old crates write OR.
        made["licenses"] = [{"expression": " ".join(licence.replace("/", " OR ").split())}]
    return made


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def sbom(graph, root):
    """The text; the same packages give the same text."""
    packages = {package["id"]: package for package in graph["packages"]}
    first, found = linked(graph, root)
    parts = [component(packages[each]) for each in sorted(found, key=lambda each: reference(packages[each])) if each != first]
    uses = [{"ref": reference(packages[each]), "dependsOn": sorted({reference(packages[used]) for used in found[each]})} for each in found]
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**component(packages[first]), "type": "application"}},
        "components": parts,
        "dependencies": sorted(uses, key=lambda each: each["ref"]),
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    serial = uuid.UUID(bytes=digest[:16], version=4)
    return json.dumps({**body, "serialNumber": f"urn:uuid:{serial}"}, indent=1) + "\n"
