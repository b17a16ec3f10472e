#!/usr/bin/env python3
"""check_words.py TREE: no retired word of docs/glossary.md is used.

  check_words.py --self-test

A row of the table under "Retired words" has: words, separated by commas; the folder in which they must not occur, or
"everywhere" (src, cmd, include, docs, man, README.md); the word to use instead. A word is matched whole, also between
the underscores of an identifier: "conceal" matches in um_space_conceal. The glossary and the decision records may have
retired words.
"""

import re
import sys
import tempfile
from pathlib import Path

EVERYWHERE = ("src", "cmd", "include", "docs", "man", "README.md")
MAY = ("docs/glossary.md", "docs/adr/")


def retired(glossary: str) -> list[tuple[list[str], str, str]]:
    section = glossary.split("\n## Retired words\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.split("\n") if line.startswith("|")]
    return [([word.strip() for word in row[0].split(",")], row[1], row[2]) for row in rows[2:]]


def pattern(words: list[str]) -> re.Pattern[str]:
    spaced = [re.escape(word).replace(r"\ ", r"\s+(?:\* )?") for word in words]
    return re.compile(r"(?<![A-Za-z])(?:" + "|".join(spaced) + r")(?![A-Za-z])", re.IGNORECASE)


def files(tree: Path, where: str) -> list[Path]:
    places = EVERYWHERE if where == "everywhere" else (where,)
    found = [path for place in places for path in ([tree / place] if (tree / place).is_file() else (tree / place).rglob("*"))]
    return [path for path in found if path.is_file() and not path.relative_to(tree).as_posix().startswith(MAY)]


def violations(tree: Path) -> list[str]:
    problems = []
    for words, where, instead in retired((tree / "docs/glossary.md").read_text(encoding="utf-8")):
        for path in sorted(files(tree, where)):
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            for hit in pattern(words).finditer(text):
                line = text.count("\n", 0, hit.start()) + 1
                problems.append(f"{path.relative_to(tree)}:{line}: '{hit.group()}' is retired: {instead}")
    return problems


def self_test() -> int:
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        (tree / "docs/adr").mkdir(parents=True)
        (tree / "src/prov").mkdir(parents=True)
        head = "# Glossary\n\n## Retired words\n\n| retired | where | instead |\n|---|---|---|\n"
        (tree / "docs/glossary.md").write_text(head + "| old way, olds | everywhere | new |\n| lid | src/prov | cap |\n")
        (tree / "docs/adr/1.md").write_text("the old way\n")
        (tree / "docs/other.md").write_text("a lid, a bold way, oldsters\n")
        assert violations(tree) == [], violations(tree)
        (tree / "src/a.c").write_text("int um_olds_open;\n/* the old\n * way */\n")
        (tree / "src/prov/b.c").write_text("/* under the lid */\n")
        assert len(violations(tree)) == 3, violations(tree)
    return 0


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    problems = violations(Path(sys.argv[1]))
    print("\n".join(problems) or "no retired word")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
