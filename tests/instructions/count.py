#!/usr/bin/env python3
"""How many instructions each hot path takes, by callgrind, and whether that is within its limit.

  count.py [--build DIR] [--provider NAME] PROGRAM                 prints the counts
  count.py [--build DIR] [--inner NAME] --limits FILE.toml [--update] PROGRAM     compares them with limits; --update writes new ones

PROGRAM is tests/instructions/paths of a build. `instructions` are those of the call itself; `then`, those that follow
until the operation has taken effect (progress of both ends, and some empty polls): for comparing providers, without a
limit. Exit status 0; 1 a path takes more than its limit, or has none; 2 wrong arguments; 77 there is no valgrind.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED = 77
TIMEOUT = 100
ALLOWANCE = 1.15  # compilers differ
NAME = re.compile(r"^desc: Trigger: Client Request: (.*)$", re.M)
TOTAL = re.compile(r"^totals: (\d+)$", re.M)
ADVICE = """A path became longer. Find out why (CONTRIBUTING.md tells how to see its instructions). If they are worth it, say so in
the commit, and write the new counts and limits:
  python3 tests/instructions/count.py --limits tests/instructions/limits.toml --update BUILD/tests/instructions/paths"""
HEAD = """# Instructions of each hot path (tests/instructions/paths.c), as callgrind counts them: measured with gcc 12, -O2, x86-64, and
# the limit, 15 % above because compilers differ. A limit is raised only for a reason that the commit tells; it is lowered
# when a path gets shorter. count.py --update writes this file.
"""


def read_dumps(texts: list[str]) -> dict[str, int]:
    """Name and total of each dump that the program asked for."""
    totals = {}
    for text in texts:
        name, total = NAME.search(text), TOTAL.search(text)
        if name and total:
            totals[name[1]] = int(total[1])
    return totals


def count(program: pathlib.Path, provider: str, inner: str | None, build: pathlib.Path) -> dict[str, tuple[float, float]]:
    """Instructions per call of each path, and those that follow."""
    # no lingering: how often an empty read looks again would depend on the time that callgrind takes
    env = dict(os.environ, FI_PROVIDER_PATH=str(build), FI_PROVIDER=f"{provider},{inner}" if inner else provider,
               FI_UNIMEM_LINGER="0")
    with tempfile.TemporaryDirectory(prefix="instructions-") as scratch:
        done = subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no",
                               f"--callgrind-out-file={scratch}/dump", str(program), provider],
                              env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        totals = read_dumps([p.read_text() for p in pathlib.Path(scratch).iterdir()])
    calls = dict(line.rsplit(None, 1) for line in done.stdout.splitlines())
    if done.returncode != 0 or not calls or set(calls) | {f"then {p}" for p in calls} != set(totals):
        sys.exit(f"{program} gave no counts (status {done.returncode}; built without valgrind's headers?)\n"
                 f"{done.stdout}{done.stderr}")
    return {p: (totals[p] / int(n), totals[f"then {p}"] / int(n)) for p, n in calls.items()}


def judge(counts: dict[str, float], limits: dict[str, dict]) -> list[str]:
    """A line for each path that is wrong."""
    wrong = [f"{p}: {counts[p]:.0f} instructions; the limit is {limits[p]['limit']}, set when there were {limits[p]['measured']}"
             for p in counts if p in limits and counts[p] > limits[p]["limit"]]
    wrong += [f"{p}: {counts[p]:.0f} instructions, and no limit" for p in counts if p not in limits]
    return wrong + [f"{p}: a limit, and no such path" for p in limits if p not in counts]


def limits_text(counts: dict[str, float]) -> str:
    entries = [f'\n["{p}"]\nmeasured = {n:.0f}\nlimit = {n * ALLOWANCE:.0f}\n' for p, n in counts.items()]
    return HEAD + "".join(entries)


def self_test() -> int:
    dumps = ["version: 1\ndesc: Trigger: Client Request: a+b\nevents: Ir\ntotals: 12000\n",
             "desc: Trigger: Program termination\ntotals: 7\n"]
    assert read_dumps(dumps) == {"a+b": 12000}
    limits = {"a": {"measured": 100, "limit": 115}}
    assert judge({"a": 115.0}, limits) == []
    assert len(judge({"a": 116.0}, limits)) == 1
    assert len(judge({"b": 1.0}, limits)) == 2  # one without a limit, one without a path
    assert tomllib.loads(limits_text({"a": 100.0})) == limits
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path, nargs="?")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--provider", default="unimem")
    parser.add_argument("--inner", help="what the machine net may use; the environment names the machines")
    parser.add_argument("--limits", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if not options.program or options.update and not options.limits:
        parser.error("a program to count; --update wants --limits")
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return SKIPPED
    both = count(options.program, options.provider, options.inner, options.build)
    counts = {p: n for p, (n, _) in both.items()}
    limits = tomllib.loads(options.limits.read_text()) if options.limits and not options.update else {}
    print(f"{'path':28}{'instructions':>13}{'limit':>8}{'then':>8}")
    for path, (own, then) in both.items():
        print(f"{path:28}{own:13.1f}{limits.get(path, {}).get('limit', '-'):>8}{then:8.0f}")
    if options.update:
        options.limits.write_text(limits_text(counts))
    wrong = judge(counts, limits) if limits else []
    if wrong:
        print("\n" + "\n".join(wrong) + "\n" + ADVICE)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
