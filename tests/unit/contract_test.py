#!/usr/bin/env python3
"""contract_test.py SOURCE_ROOT: docs/machine.md and the headers agree on the operations of machines and mappers.

  The rows of the table that ends in "may be NULL" name every function of struct um_machine (machine/machine.h), once.
  The last cell begins with "yes" where the comment of the function says "NULL:", with "no" where it does not.
  The paragraph "The operations of a *mapper*" names every function of struct um_mem_mapper (machine/mem/mapper.h),
  once: before "All others are needed" those whose comment says "NULL:", behind it the others.

A comment belongs to all members that follow it, up to the next comment or empty line.

contract_test.py --self-test: finds operations that are missing, unknown, named twice or described differently.
"""
import pathlib
import re
import sys
import tempfile

MACHINE, MAPPER, DOCUMENT = "src/machine/machine.h", "src/machine/mem/mapper.h", "docs/machine.md"
PART = re.compile(r"/\*.*?\*/|\n    \w[^\n(]*\(\*(\w+)\)\(|\n[ \t]*(?=\n)", re.S)


def functions_of(text, struct):
    """{function: may it be NULL} of the struct's function pointers, by their comments."""
    body = text.split(f"\nstruct {struct} {{")[1].split("\n};")[0]
    functions, comment = {}, ""
    for part in PART.finditer(body):
        if part[1]:
            functions[part[1]] = "NULL:" in comment
        elif part.group().startswith("/*"):
            comment = re.sub(r"\s+\*?\s*", " ", part.group())
        else:
            comment = ""
    return functions


def names_in(text):
    return re.findall(r"`(\w+)`", text)


def table_of(document):
    """[(function, may it be NULL; None: the last cell says neither)] of the table's rows."""
    rows = re.search(r"^\|[^\n]*\| may be NULL \|\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", document, re.M)
    found = []
    for row in rows[1].splitlines() if rows else []:
        cells = row.strip("|").split("|")
        says = re.match(r"\s*(yes|no)\b", cells[-1])
        found += [(name, says and says[1] == "yes") for name in names_in(cells[0])]
    return found


def paragraph_of(document):
    """The same list, of the paragraph about mappers."""
    paragraph = document.split("\nThe operations of a *mapper* ")[-1].split("\n\n")[0]
    optional, _, needed = paragraph.partition("All others are needed")
    # a function may be named again to explain another one: that is no second entry
    return list(dict.fromkeys([(name, True) for name in names_in(optional)] + [(name, False) for name in names_in(needed)]))


def compare(header, functions, said):
    """Yields what the document says differently."""
    seen = set()
    for name, may_be_null in said:
        if name not in functions:
            yield f"{DOCUMENT}: {name} is no function of {header}"
        elif name in seen:
            yield f"{DOCUMENT}: {name} stands there twice"
        elif may_be_null is None:
            yield f"{DOCUMENT}: may {name} be NULL? Neither yes nor no"
        elif may_be_null != functions[name]:
            yield f"{DOCUMENT}: {name} {'may' if may_be_null else 'may not'} be NULL; its comment in {header} says otherwise"
        seen.add(name)
    for name in functions:
        if name not in seen:
            yield f"{DOCUMENT}: {name} of {header} is missing"


def check(root):
    texts = [(pathlib.Path(root) / name).read_text(encoding="utf-8") for name in (MACHINE, MAPPER, DOCUMENT)]
    machine, mapper = functions_of(texts[0], "um_machine"), functions_of(texts[1], "um_mem_mapper")
    wrongs = list(compare(MACHINE, machine, table_of(texts[2]))) + list(compare(MAPPER, mapper, paragraph_of(texts[2])))
    if not machine or not mapper:
        wrongs.append("no functions found")
    return len(machine) + len(mapper), wrongs


STRUCTS = (
    "\nstruct um_machine {\n    const char *name; /* NULL: none */\n\n    int (*a)(int (*call)(void));\n    /* Two. NULL:\n"
    "     * none. */\n    int (*b)(void);\n    int (*c)(void);\n    /* one */\n    void (*d)(void);\n};\n",
    "\nstruct um_mem_mapper {\n    /* NULL: never */\n    int (*m)(void);\n    /* always */\n    int (*n)(void);\n};\n",
)
GOOD = (
    "| operation | x | may be NULL |\n|---|---|---|\n| `a` | `x` | no |\n| `b`, `c` | x | yes, both |\n| `d` | x | no: y |\n\n"
    "The operations of a *mapper* (`mem/mapper.h`): `m` (x), unless `m`.\nAll others are needed: `n`.\n\n`other`\n"
)
BAD = {  # the text to replace, its replacement, and the messages to be found
    ("`a`", "`e`"): ["e is no function", "a of"],
    ("`b`, `c`", "`b`, `b`"): ["b stands there twice", "c of"],
    ("| no |", "| yes |"): ["a may be NULL"],
    ("| yes, both |", "| no |"): ["b may not be NULL", "c may not be NULL"],
    ("| no: y |", "| perhaps |"): ["Neither"],
    ("`n`", "`m`"): ["m stands there twice", "n of"],
    ("needed: `n`", "needed: `n`, `m/n`, `k`"): ["k is no function"],
}


def self_test():
    def found(document):
        with tempfile.TemporaryDirectory() as root:
            for name, text in zip((MACHINE, MAPPER, DOCUMENT), (*STRUCTS, document)):
                path = pathlib.Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check(root)[1]

    status = 0
    for (old, new), wanted in {("", ""): [], **BAD}.items():
        wrongs = found(GOOD.replace(old, new) if old else GOOD)
        if len(wrongs) != len(wanted) or not all(any(text in wrong for wrong in wrongs) for text in wanted):
            print(f"{old} -> {new}: found {wrongs} instead of {wanted}")
            status = 1
    return status


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if sys.argv[1] == "--self-test":
        return self_test()
    count, wrongs = check(sys.argv[1])
    print("\n".join(wrongs) or f"{count} functions, all as in {DOCUMENT}")
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
