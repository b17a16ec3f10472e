#!/usr/bin/env python3
"""check_sync.py SOURCE_ROOT: does every memory-ordering site have its partner?

A site is labelled in a comment: "sync: NAME (partner NAME2)", or "(partners NAME2, NAME3)" where several sites pair
with one. Checked over src/**/*.[ch]:
  the partner's label exists and names this one as its own partner;
  every function that calls an ordered function of base/atomic.h (acquire, release, read-modify-write, fence) has a
  label in it or in the comment above it, or says "sync: none (WHY)".
base/atomic.h itself and tests need none.
"""
import pathlib
import re
import sys
import tempfile

LABEL = re.compile(r"sync:\s*([\w-]+)\s*\(partners?\s+([\w-]+(?:\s*,\s*[\w-]+)*)\)")
WAIVER = re.compile(r"sync:\s*none\s*\(\S")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
ORDERED = re.compile(r"\bum_(?:load_acquire|store_release|rmw|fence)_\w+\s*\(")


def labels_of(text, where):
    """[(name, partners, where)] of one file."""
    found = []
    for comment in COMMENT.finditer(text):
        flat = re.sub(r"\s*\n[\s*]*", " ", comment.group())
        line = text.count("\n", 0, comment.start()) + 1
        for name, partners in LABEL.findall(flat):
            found.append((name, [p.strip() for p in partners.split(",")], f"{where}:{line}"))
    return found


def check_partners(labels):
    """Yields a message for each partner that does not exist or does not name the label as its own partner."""
    names = {}
    for name, partners, where in labels:
        names.setdefault(name, (set(), where))[0].update(partners)
    for name, (partners, where) in sorted(names.items()):
        for partner in sorted(partners):
            if partner not in names:
                yield f"{where}: {name} has partner {partner}, which is nowhere"
            elif name not in names[partner][0]:
                yield f"{where}: {name} has partner {partner}, whose partner is {', '.join(sorted(names[partner][0]))}"


def functions_of(text):
    """[(first line, last line)] of each function or type, which ends with "}" at the margin, with what is above it."""
    lines = text.split("\n")
    spans, start = [], 0
    for number, line in enumerate(lines):
        if line.startswith("}"):
            spans.append((start, number))
            start = number + 1
    return spans


def ordered_calls_without_label(text):
    """Line numbers of ordered calls in functions that hold no label."""
    lines = text.split("\n")
    code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text).split("\n")
    for first, last in functions_of(text):
        function = "\n".join(lines[first:last + 1])
        if labels_of(function, "") or WAIVER.search(function):
            continue
        for number in range(first, last + 1):
            if ORDERED.search(code[number]):
                yield number + 1


def check_tree(root):
    """Every violation as one line of text, and the number of labels."""
    src = pathlib.Path(root) / "src"
    labels, wrongs = [], []
    for path in sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h")):
        where = path.relative_to(root).as_posix()
        if where == "src/base/atomic.h" or path.name.endswith(("_test.c", "_test.h")):
            continue
        text = path.read_text()
        labels += labels_of(text, where)
        wrongs += [f"{where}:{line}: an ordered call in a function without a sync label" for line in ordered_calls_without_label(text)]
    return len(labels), wrongs + list(check_partners(labels))


GOOD = """
void f(void)
{
    um_store_release_u32(p, 1); /* sync: give (partner take) */
    /* sync: take (partner give): a comment
     * of two lines */
    if (um_load_acquire_u32(p) ==
        1)
        um_load_relaxed_u32(p);
    /* sync: swap-a (partners swap-b,
     * swap-c) */
    um_rmw_swap_u64(p, 0);
}

/* sync: swap-b (partner swap-a) */
int g(void)
{
    um_fence_full(); /* also covered */
    return um_load_acquire_u32(p);
}

/* sync: none (reasons) */
void waived(void)
{
    um_fence_full();
}

void h(void)
{
    barrier(); /* sync: swap-c (partner swap-a) */
}
"""
BAD = {
    "alone": "/* sync: here (partner nowhere) */\n",
    "one-sided": "/* sync: x (partner y) */\n/* sync: y (partner z) */\n/* sync: z (partner y) */\n",
    "unlabelled": "void f(void)\n{\n    a = 1; /* sync: m (partner m) */\n}\n\nvoid g(void)\n{\n    um_fence_full();\n}\n",
}


def self_test():
    """Checks that the good text passes and each bad one does not."""
    failed = 0
    for name, text in {"good": GOOD, **BAD}.items():
        with tempfile.TemporaryDirectory() as root:
            (pathlib.Path(root) / "src").mkdir()
            (pathlib.Path(root) / "src" / "x.c").write_text(text)
            _, wrongs = check_tree(root)
        if bool(wrongs) != (name in BAD):
            print(f"{name}: {wrongs}")
            failed = 1
    return failed


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if sys.argv[1] == "--self-test":
        return self_test()
    count, wrongs = check_tree(sys.argv[1])
    print("\n".join(wrongs) or f"{count} labels, every one has its partner")
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
