"""Adds up the results that the stages of ./check left, and says whether the run passed.

  check_summary.py --skips FILE.toml STAGE:STATUS:JUNIT [...]

STATUS is the exit status of the stage, JUNIT its result file in JUnit form, or "-" for a stage that is one test. Prints
every failure with the end of what the test printed, every skip with its reason, and as the last line "N passed,
N failed, N skipped". Exit status 1 if anything failed: a test, a stage that died or ran no test, or a skip that
FILE.toml does not allow.
"""

import argparse
import fnmatch
import re
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple


LAST_LINES = 30  # printed of a failed test
SAYS_WHY = re.compile(r"\[  ERROR   \]|\[   LINE   \]|runtime error:|ERROR: \w+Sanitizer|Assertion .* failed|^E  ")
MOST_REASONS = 10


class Result(NamedTuple):
    name: str
    outcome: str  # passed, failed, skipped
    detail: str
    printed: str = ""


def one_line(text: str | None) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0][:200] if lines else ""


def last_lines(case: ET.Element) -> str:
    """The lines that say why a test failed, each with the line before it, and the end of the test's output.

    For readers of a run whose logs are gone. A sanitizer's stacks may leave the failed assertion out of the last lines.
    """
    texts = [child.text or "" for child in case if child.tag in ("failure", "error", "system-out", "system-err")]
    lines = [line[:300] for line in "\n".join(texts).splitlines() if line.strip()]
    end = max(len(lines) - LAST_LINES, 0)
    reasons = [number for number in range(end) if SAYS_WHY.search(lines[number])][:MOST_REASONS]
    before = sorted({max(number - step, 0) for number in reasons for step in (0, 1)})
    return "".join(f"    | {line}\n" for line in [lines[number] for number in before] + lines[end:])


def read_junit(stage: str, path: Path) -> list[Result]:
    results = []
    for case in ET.parse(path).getroot().iter("testcase"):
        # pytest: classname is the module. meson: classname repeats the project's name, which says nothing here.
        module = case.get("classname", "").rsplit(".", 1)[-1]
        name = f"{stage}/{module}/{case.get('name')}" if module.startswith("test_") else f"{stage}/{case.get('name')}"
        outcome, detail = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                outcome, detail = "failed", one_line(child.get("message") or child.text)
            elif child.tag == "skipped" and outcome == "passed":
                outcome, detail = "skipped", one_line(child.get("message") or child.text)
        results.append(Result(name, outcome, detail, last_lines(case) if outcome == "failed" else ""))
    return results


def stage_results(spec: str) -> list[Result]:
    stage, status, junit = spec.split(":", 2)
    if junit == "-":
        return [Result(stage, "passed" if status == "0" else "failed", f"exit status {status}")]
    if not Path(junit).is_file():
        return [Result(stage, "failed", f"the stage left no results; exit status {status}")]
    try:
        results = read_junit(stage, Path(junit))
    except ET.ParseError as error:
        return [Result(stage, "failed", f"{junit} cannot be read: {error}")]
    if not results:
        results.append(Result(stage, "failed", "the stage ran no test"))
    elif status != "0" and all(result.outcome != "failed" for result in results):
        results.append(Result(stage, "failed", f"exit status {status} although no test failed: see its log; Meson's results do not tell tests that ran out of time"))
    return results


def read_skips(path: Path) -> list[dict[str, str]]:
    skips = tomllib.loads(path.read_text()).get("skip", [])
    for skip in skips:
        if not skip.get("test") or not skip.get("reason"):
            sys.exit(f"{path}: an entry lacks its test or its reason: {skip}")
    return skips


def allows(skip: dict[str, str], result: Result) -> bool:
    """True if the entry allows this skip: it names the test and, if it has `says`, fits the reason the test gives."""
    named = fnmatch.fnmatchcase(result.name, skip["test"])
    return named and fnmatch.fnmatchcase(result.detail, skip.get("says", "*"))


def judge_skips(results: list[Result], skips: list[dict[str, str]]) -> list[Result]:
    judged = []
    for result in results:
        if result.outcome == "skipped":
            allowing = [skip for skip in skips if allows(skip, result)]
            if allowing:
                said = f" ({result.detail})" if "says" in allowing[0] else ""
                result = result._replace(detail=allowing[0]["reason"] + said)
            else:
                detail = f"skipped ({result.detail}), and tests/skips.toml does not allow it"
                result = result._replace(outcome="failed", detail=detail)
        judged.append(result)
    return judged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skips", type=Path, required=True)
    parser.add_argument("stages", nargs="*", metavar="STAGE:STATUS:JUNIT")
    args = parser.parse_args()

    results = [result for spec in args.stages for result in stage_results(spec)]
    results = judge_skips(results, read_skips(args.skips))
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for result in results:
        counts[result.outcome] += 1
        if result.outcome != "passed":
            print(f"{result.outcome.upper():8} {result.name}: {result.detail}\n{result.printed}", end="")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
