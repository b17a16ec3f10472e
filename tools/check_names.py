#!/usr/bin/env python3
"""check_names.py TREE: the names in comments and documents exist in the sources.

  check_names.py --self-test

In comments of C files (src, cmd, include, emu, bench, tests) and in Markdown files:
  um_NAME and UM_NAME occur in the code of the tree. A name that ends in "_" or contains "*" stands for all names that
  begin like that: um_mem_*, UM_COUNT_*_SHIFT.
  um_STRUCT.MEMBER: that struct has such a member.
  NAME(), a word in lower case, occurs in that code. A function that does not occur there is written as a page of the
  manual: vfork(2).
The decision records and the changelog, which are history, may have names that no longer exist; so may the section
"Retired words" of the glossary.
"""

import re
import sys
import tempfile
from pathlib import Path

FOLDERS = ("src", "cmd", "include", "emu", "bench", "tests")
HISTORY = ("docs/adr/", "CHANGELOG.md")
BUILT = re.compile(r"^(?:build|\.)")  # at the root: builds, and what other projects installed

COMMENT_OR_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*.*?\*/|//[^\n]*', re.S)
WORD = re.compile(r"\b[A-Za-z_]\w*")
NAME = re.compile(r"(?<![\w.$/-])(?:um|UM)_[\w*]+(?:\.\w+)?")
CALL = re.compile(r"(?<![\w.>)*])([a-z_][a-z0-9_]*)\(\)")
STRUCT = re.compile(r"\b(?:struct|union)\s+(um_\w+)\s*\{")
INSTANCE = re.compile(r"\bstruct\s+(um_\w+)\s+(um_\w+)\s*[;=]")


def blanked(text: str) -> str:
    return re.sub(r"[^\n]+", lambda m: " " * len(m.group()), text)


def split(text: str) -> tuple[str, str]:
    """The code and the comments of a C file, each with all the rest blanked; strings are in neither."""
    code = COMMENT_OR_STRING.sub(lambda m: blanked(m.group()), text)
    comments = list(blanked(text))
    for match in COMMENT_OR_STRING.finditer(text):
        if match.group().startswith("/"):
            comments[match.start() : match.end()] = match.group()
    return code, "".join(comments)


def body_at(code: str, start: int) -> str:
    """The code between the opening brace before start and its closing brace."""
    depth = 1
    for at in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0:
            return code[start:at]
    return code[start:]


class Tree:
    """The names that occur in the code, and the texts to check."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.words: set[str] = set()
        self.members: dict[str, set[str]] = {}
        self.comments: dict[Path, str] = {}
        self.documents = sorted(
            p
            for p in root.rglob("*.md")
            if not BUILT.match(p.relative_to(root).parts[0]) and not p.relative_to(root).as_posix().startswith(HISTORY)
        )
        instances: list[tuple[str, str]] = []
        for folder in FOLDERS:
            for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in (".c", ".h")):
                text = path.read_text(encoding="utf-8")
                code, self.comments[path] = split(text)
                self.words.update(WORD.findall(code))
                self.words.update(re.findall(r'"(UM_\w+)"', text))  # a variable of the environment
                for struct in STRUCT.finditer(code):
                    self.members.setdefault(struct[1], set()).update(WORD.findall(body_at(code, struct.end())))
                instances += INSTANCE.findall(code)
        for struct, instance in instances:
            if struct in self.members:
                self.members.setdefault(instance, self.members[struct])
        for path in root.rglob("meson.build"):  # macros that the build defines
            if not BUILT.match(path.relative_to(root).parts[0]):
                self.words.update(re.findall(r"\bUM_\w+", path.read_text(encoding="utf-8")))

    def has(self, name: str) -> bool:
        name, _, member = name.partition(".")
        if "*" in name or name.endswith("_"):
            pattern = re.compile(re.escape(name.rstrip("*")).replace(r"\*", r"\w*"))
            return any(pattern.match(word) for word in self.words)
        if name not in self.words:
            return False
        return not member or name not in self.members or member in self.members[name]


def joined(text: str) -> str:
    """The document without the backslashes in names."""
    return text.replace("\\_", "_").replace("\\*", "*")


def violations(root: Path) -> list[str]:
    tree = Tree(root)
    if not tree.comments:
        return [f"{root}: no C file found"]
    problems = []

    def look(path: Path, text: str) -> None:
        where = path.relative_to(root)
        for hit in NAME.finditer(text):
            name = hit.group()
            if "." in name and name.rsplit(".", 1)[1] in ("c", "h", "d"):  # the name of a file
                continue
            if not tree.has(name):
                problems.append(f"{where}:{text.count(chr(10), 0, hit.start()) + 1}: {name} is not in the sources")
        for hit in CALL.finditer(text):
            if hit[1] not in tree.words:
                problems.append(f"{where}:{text.count(chr(10), 0, hit.start()) + 1}: {hit.group()} is not in the sources")

    for path, text in tree.comments.items():
        look(path, text)
    for path in tree.documents:
        text = joined(path.read_text(encoding="utf-8"))
        look(path, re.sub(r"(\n## Retired words\n).*?(?=\n## |\Z)", lambda m: blanked(m.group()), text, flags=re.S))
    return problems


def self_test() -> int:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for folder in ("src/core", "docs/adr", "build/x"):
            (root / folder).mkdir(parents=True)
        (root / "docs/adr/1.md").write_text("um_gone\n")
        (root / "build/x/a.md").write_text("um_gone\n")
        (root / "docs/a.md").write_text("`um_a`, um_b.x, `UM_C_*_D`, um_b_, `um_b.h`\n\n## Retired words\n\n| um_old |\n")
        (root / "src/core/a.c").write_text(
            "struct um_b { int x; struct { int y; } z; };\nstatic void um_a(void);\n/* um_a(), um_b.y, helper(), UM_C_ */\n"
            "enum { UM_C_1_D, um_b_c };\nstatic int helper(void) { return printf(\"um_text\"); }\n"
        )
        assert violations(root) == [], violations(root)
        (root / "docs/b.md").write_text("a\num_text um_b.w um_*_d\n")
        (root / "src/core/b.c").write_text("int x; /* um_a\n * UM_D, gone(), um_b.q\n */\n// um_e_\n")
        expected = [
            "src/core/b.c:2: UM_D", "src/core/b.c:2: um_b.q", "src/core/b.c:4: um_e_", "src/core/b.c:2: gone()",
            "docs/b.md:2: um_text", "docs/b.md:2: um_b.w", "docs/b.md:2: um_*_d",
        ]
        found = [problem.removesuffix(" is not in the sources") for problem in violations(root)]
        if found != expected:
            print("self-test: found", found, "instead of", expected)
            return 1
    return 0


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if sys.argv[1] == "--self-test":
        return self_test()
    problems = violations(Path(sys.argv[1]))
    print("\n".join(problems) or "every name is there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
