#!/usr/bin/env python3
"""circles_test.py NM OBJECTS FOLDER...: the files of a folder of src/ call each other in one direction.

A file uses another one when its object wants a symbol that the other's object defines: a function or a variable. Within
a folder ("machine/board") these uses make no circle, so a reader of a file needs only the files below it. A call
through a function pointer that a file was given is no use. OBJECTS: a static library, or a directory of objects.
--order: prints the files of the folders from the lowest one up, with the circles among them, and never fails.

KNOWN lists the circles that are left, by folder: there are none. Cut a new circle, by moving what is used from below to
where it belongs, rather than listing it there.

circles_test.py --self-test NM CC...: finds a circle that is planted, and none where there is none.
"""
import pathlib
import subprocess
import sys
import tempfile

KNOWN = {}


def objects_of(where):
    where = pathlib.Path(where)
    return sorted(where.glob("*.o")) if where.is_dir() else [where]


def symbols(nm, where, folder):
    """file -> (defined, wanted), for the objects of the folder's own files."""
    prefix = folder.replace("/", "_") + "_"
    files = {}
    for item in objects_of(where):
        member = item.name
        for line in subprocess.run([nm, "-g", item], capture_output=True, text=True, check=True).stdout.splitlines():
            parts = line.split()
            if line.endswith(":"):
                member = pathlib.PurePath(line.rstrip(":")).name
                continue
            name = member.removeprefix("src_")
            if len(parts) < 2 or not name.startswith(prefix):
                continue
            name = name.removeprefix(prefix).removesuffix(".o")
            defined, wanted = files.setdefault(name, (set(), set()))
            (wanted if parts[-2] in "Uwv" else defined).add(parts[-1])
    return files


def uses(files):
    """file -> {other file: a symbol of it}"""
    home = {symbol: name for name, (defined, _) in files.items() for symbol in defined}
    edges = {}
    for name, (_, wanted) in files.items():
        edges[name] = {home[s]: s for s in sorted(wanted) if home.get(s, name) != name}
    return edges


def components(edges):
    """The files in groups that use each other, the lowest group first (Tarjan)."""
    found, low, number, stack = [], {}, {}, []

    def visit(name):
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in edges[name]:
            if other not in number:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            at = stack.index(name)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return found


def circle_in(edges, group):
    """A shortest circle among the files of the group, as text."""
    best = None
    for start in group:
        paths = [[start]]
        seen = set()
        while paths and (best is None or len(paths[0]) < len(best)):
            path = paths.pop(0)
            if start in edges[path[-1]]:
                best = path
                break
            for other in edges[path[-1]]:
                if other in group and other not in seen:
                    seen.add(other)
                    paths.append(path + [other])
    steps = zip(best, best[1:] + best[:1])
    return ", ".join(f"{a} uses {edges[a][b]} of {b}" for a, b in steps)


def check(nm, where, folder):
    """What is wrong with a folder, a line each."""
    edges = uses(symbols(nm, where, folder))
    if not edges:
        return [f"{folder}: no object found"]
    circles = [group for group in components(edges) if len(group) > 1]
    known = [sorted(group) for group in KNOWN.get(folder, [])]
    wrongs = [f"{folder}: a circle of {', '.join(g)}: {circle_in(edges, g)}" for g in circles if g not in known]
    return wrongs + [f"{folder}: no circle any more: {', '.join(g)}; take it out of KNOWN" for g in known if g not in circles]


def order(nm, where, folder):
    edges = uses(symbols(nm, where, folder))
    for group in components(edges):
        below = sorted({other for name in group for other in edges[name]} - set(group))
        print(f"{folder}: {' '.join(group)}{': a circle: ' + circle_in(edges, group) if len(group) > 1 else ''}"
              f"  [{' '.join(below)}]")


GOOD = {
    "dir_low.c": "int low_value; int low(void) { return low_value; }",
    "dir_mid.c": "int low(void); static int twice(int x) { return 2 * x; } int mid(void) { return twice(low()); }",
    "dir_top.c": "int mid(void); extern int low_value; int top(void) { return mid() + low_value; }",
    "other_a.c": "int top(void); int other(void) { return top(); }",
}
BAD = {
    "a call back": {"dir_low.c": "int top(void); int low_value; int low(void) { return low_value ? top() : 0; }"},
    "a variable": {"dir_low.c": "extern int (*const table[])(void); int low_value; int low(void) { return table[0](); }",
                   "dir_top.c": "int low(void); int (*const table[])(void) = {low}; int mid(void); int top(void) { return mid(); }"},
}


def self_test(nm, cc):
    with tempfile.TemporaryDirectory() as top:
        for number, (what, planted) in enumerate([("nothing", {}), *BAD.items()]):
            where = pathlib.Path(top) / str(number)
            where.mkdir()
            for name, text in {**GOOD, **planted}.items():
                (where / name).write_text(text)
                subprocess.run([*cc, "-c", "-o", where / f"{name}.o", where / name], check=True)
            wrongs = check(nm, where, "dir")
            print(f"planted: {what}; found: {wrongs}")
            if bool(wrongs) != bool(planted):
                return 1
        return 0 if check(nm, where, "nowhere") else 1


def main(args):
    if len(args) > 2 and args[0] == "--self-test":
        return self_test(args[1], args[2:])
    show = args[:1] == ["--order"]
    args = args[1:] if show else args
    if len(args) < 3:
        print(__doc__)
        return 2
    if show:
        for folder in args[2:]:
            order(args[0], args[1], folder)
        return 0
    wrongs = [wrong for folder in args[2:] for wrong in check(args[0], args[1], folder)]
    print("\n".join(wrongs) or "no circle")
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
