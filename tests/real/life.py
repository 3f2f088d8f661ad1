"""Kills real servers and the gateway, again and again, and writes down what their clients noticed.

Every stage is bounded and ends by itself; the exit status is 1 when a promise was broken. What each stage found is kept
beside the installed packages, so that one stage can be done again and the page still has all of them."""

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path

import life_page
import stages
from matrix import stop_when_asked


def main():
    parser = argparse.ArgumentParser(prog="tests/real/life", description=__doc__)
    parser.add_argument("--seawall", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--installed", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="where to write the page")
    parser.add_argument("--only", choices=stages.ALL, action="append", help="only this stage; may be given again")
    parser.add_argument("--kills", type=int, default=100, help="how often each is killed (100)")
    parser.add_argument("--starts", type=int, default=50, help="how often the start is measured (50)")
    parser.add_argument(
        "--clients",
        type=lambda text: text.split(","),
        default=["ts1", "py1", "ts2", "py2"],
        help="the clients of the first stage: ts1,py1,ts2,py2",
    )
    arguments = parser.parse_args()
    stop_when_asked()
    kept = Path(arguments.installed) / "life.json"
    found = {}
    for name in arguments.only or stages.ALL:
        began, load = time.monotonic(), os.getloadavg()[0]
        print(f"== {name}", flush=True)
        rows = list(stages.ALL[name](arguments))
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        this = {"rows": rows, "date": date, "load": [load, os.getloadavg()[0]], "took": time.monotonic() - began}
        before = json.loads(kept.read_text()) if arguments.only and kept.exists() else found
        found = {each: {**before, name: this}[each] for each in stages.ALL if each in {*before, name}}
        kept.write_text(json.dumps(found, indent=1))
    before = arguments.out.read_text() if arguments.out and arguments.out.exists() else ""
    page = life_page.page(found, arguments.seawall, before)
    if arguments.out:
        arguments.out.write_text(page)
    done = arguments.only or stages.ALL
    broken = [each for name in done for row in found[name]["rows"] for each in row["broken"]]
    print(f"\n{page}\n{len(broken)} promises broken")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
