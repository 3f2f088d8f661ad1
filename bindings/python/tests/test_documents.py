"""The programs of the README and of the guide, and the examples, run as they stand."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from servers import dead, serve

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
GUIDE = re.findall(r"```python\n(.*?)```", (ROOT.parent.parent / "docs/guide/langchain.md").read_text(), re.S)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_of_the_readme_run(program: str) -> None:
    exec(compile(program, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("program", GUIDE)
def test_the_programs_of_the_guide_run(program: str) -> None:
    exec(compile(program, "langchain.md", "exec"), {"__name__": "guide"})


def test_the_readme_and_the_guide_have_programs() -> None:
    assert (len(PROGRAMS), len(GUIDE)) == (3, 2)


def test_each_policy_alone_and_all_together() -> None:
    import policies

    assert asyncio.run(policies.main()) == [
        "get_issue: fine",
        "yesterday's answer",
        "list_issues open: fine",
        "search: fine",
    ]


def test_an_agent_gets_the_tools_that_are_there() -> None:
    import agent_tools

    with serve() as served:
        tools, warnings = asyncio.run(agent_tools.load({"well": served.connection, "away": dead()}))
    assert [tool.name for tool in tools] == ["get_sum"]
    assert len(warnings) == 1 and "away: " in warnings[0]
