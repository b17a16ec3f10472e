"""Checks the links of Markdown files: relative targets exist, anchors name a heading. Other hosts are not tried.

  check_links.py FILE.md [...]
  check_links.py --self-test
"""

import re
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1[`~]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s.*)?$", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)


def without_code(text: str) -> str:
    return CODE.sub("", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Anchors as GitHub and GitLab make them: lower case, no punctuation, blanks to hyphens, -1, -2 for repetitions."""
    found: dict[str, int] = {}
    result = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = LINK.sub(lambda m: m.group(0).split("](")[0].lstrip("!["), heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        result.add(f"{slug}-{count}" if count else slug)
    return result


def broken_links(file: Path) -> list[str]:
    text = without_code(file.read_text(encoding="utf-8"))
    problems = []
    for target in LINK.findall(text) + REFERENCE.findall(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE):
            continue
        path, _, anchor = target.partition("#")
        to = (file.parent / unquote(path)) if path else file
        # A manual page links to other manual pages by their names on libfabric's web site.
        if re.fullmatch(r"[\w.-]+\.[1-9]\.html", path):
            continue
        if not to.exists():
            problems.append(f"{file}: no file {target}")
        elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text(encoding="utf-8")):
            problems.append(f"{file}: no heading for {target}")
    return problems


def self_test() -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "b.md").write_text("# A `b` of (c)\n## Twice\n## Twice\n```\n# no heading\n```\n")
        cases = {
            "[x](b.md)": 0,
            "[x](b.md#a-b-of-c) [x](b.md#twice-1)": 0,
            "# Here\n[x](#here)": 0,
            "[x](https://example.org/nothing)": 0,
            "`[x](none.md)`\n```\n[x](none.md)\n```\n": 0,
            "[x](none.md)": 1,
            "[x](b.md#none) [x](b.md#no-heading)": 2,
            "[x]\n\n[x]: none.md\n": 1,
            "[![image](none.png)](none.md)": 1,
        }
        for text, wrong in cases.items():
            (top / "a.md").write_text(text)
            found = broken_links(top / "a.md")
            assert len(found) == wrong, (text, found)


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    if not sys.argv[1:]:
        sys.exit(__doc__)
    problems = [line for name in sys.argv[1:] for line in broken_links(Path(name))]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
