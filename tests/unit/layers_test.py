#!/usr/bin/env python3
"""layers_test.py SOURCE_ROOT: the rules of src/ that a compiler does not check.

  Includes point one way: prov -> proto -> {match, core} -> machine -> base; match and core do not know each other.
  heap, a library of its own, includes machine and base.
  Inside machine: shm and sim include mem, board and net include owner, and no other folder includes another. The layers
  above include machine/machine.h, machine/machines.h and machine/address.h only (heap: also the header that it shares
  with shm), and name no machine.
  Only prov and machine/net include rdma/*.h or name anything fi_* or FI_*; FI_UNIMEM_* (the name of a setting) may be
  in a string.
  Only base/atomic.h includes <stdatomic.h>, and no file uses the compiler's own atomics instead.
  Each part of the one object of the machine over a board (um_board) is used by one file only.
  Every file of src/ lies in a layer, and includes of src/ files name them by layer ("core/core.h").
"""
import pathlib
import re
import sys
import tempfile

BELOW = {
    "base": set(),
    "machine": {"base"},
    "match": {"base"},
    "core": {"machine", "base"},
    "proto": {"match", "core", "machine", "base"},
    "prov": {"proto", "match", "core", "machine", "base"},
    "heap": {"machine", "base"},  # a library of its own
    "yield": {"base"},  # another one
}

# The other folders of src/machine that each of its folders may include, besides itself and the contract.
BESIDE = {"mem": set(), "shm": {"mem"}, "sim": {"mem"}, "owner": set(), "board": {"owner"}, "net": {"owner"}}
CONTRACT = {"machine/machine.h", "machine/machines.h", "machine/address.h"}
OF_HEAP = {"machine/shm/heap_abi.h"}

MACHINE = re.compile(r"\bum_machine_(?:shm|sim\w*|board|net)\b|\bUM_(?:BOARD|NET)_\w+|\bum_(?:board|net|owner|shm|sim|mem)_\w+")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
LIBFABRIC = re.compile(r"\b(?:fi_\w+|FI_[A-Z]\w*|fid_\w+)")
RAW_ATOMIC = re.compile(r"\b(?:atomic_(?:load|store|fetch|exchange|compare|thread|signal)\w*|__atomic_\w+|__sync_\w+|_Atomic)\b")


def without_comments(text):
    """The text with comments blanked; its lines keep their numbers."""
    return COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def check_machine(layer, folder, name):
    """What is wrong with an include of machine/... in a file of the layer; folder: its own below src/machine, or
    None."""
    parts = name.split("/")
    if name in CONTRACT or (layer == "heap" and name in OF_HEAP):
        return None
    if layer != "machine":
        return f"{layer} must not know what is behind machine/machine.h"
    if folder and (len(parts) < 3 or parts[1] != folder and parts[1] not in BESIDE.get(folder, set())):
        return f"machine/{folder} must not include {name}"
    return None


def check_include(layer, folder, system, name):
    """What is wrong with an include in a file of the layer, or None."""
    if name.startswith("rdma/") and layer != "prov" and folder != "net":
        return f"{layer} must not know libfabric"
    if system:
        return None
    target = name.split("/")[0]
    if "/" not in name or target not in BELOW:
        return f"\"{name}\" does not name its layer"
    if target != layer and target not in BELOW[layer]:
        return f"{layer} must not include {target}"
    return check_machine(layer, folder, name) if target == "machine" else None


def check_file(path, name):
    """Yields (line, what is wrong) for one file; name: its path below src, with slashes."""
    layer = name.split("/")[0]
    if layer not in BELOW:
        yield 1, f"{layer} is not a layer"
        return
    folder = name.split("/")[1] if layer == "machine" and name.count("/") >= 2 else None
    is_test = path.name.endswith(("_test.c", "_test.h"))
    for number, line in enumerate(without_comments(path.read_text()).split("\n"), 1):
        include = INCLUDE.match(line)
        if include:
            wrong = check_include(layer, folder, include[1] == "<", include[2])
            if wrong:
                yield number, wrong
            if include[2] == "stdatomic.h" and name != "base/atomic.h":
                yield number, "only base/atomic.h includes <stdatomic.h>"
            continue
        code = STRING.sub('""', line)
        if layer != "prov" and folder != "net" and LIBFABRIC.search(code):
            yield number, f"{layer} names {LIBFABRIC.search(code).group()}, which is libfabric's"
        if layer not in ("machine", "base", "heap") and not is_test and MACHINE.search(code):
            yield number, f"{layer} names {MACHINE.search(code).group()}, which is one machine's"
        if name != "base/atomic.h" and not is_test and RAW_ATOMIC.search(code):
            yield number, f"{RAW_ATOMIC.search(code).group()} outside base/atomic.h"


PART = re.compile(r"struct \{ */\* (\w+\.c)\b.*?\n    \} (\w+);", re.S)


def check_parts(src):
    """Yields (file, line, what is wrong): a part of um_board is its owner's, as process.h says."""
    header = src / "machine/board/process.h"
    owners = {part: owner for owner, part in PART.findall(header.read_text())} if header.exists() else {}
    for path in sorted(header.parent.glob("*.c")):
        for number, line in enumerate(without_comments(path.read_text()).split("\n"), 1):
            for part in re.findall(r"\bum_board\.(\w+)", line):
                at_start = path.name == "process.c" and number < 30  # sets initial values that are not zero
                if path.name != owners.get(part, "process.c") and not at_start:
                    yield f"machine/board/{path.name}", number, f"um_board.{part} is {owners.get(part, 'process.c')}'s"


def check_tree(root):
    """Every violation below root/src as one line of text."""
    src = pathlib.Path(root) / "src"
    files = sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h"))
    wrongs = []
    for path in files:
        name = path.relative_to(src).as_posix()
        wrongs += [f"src/{name}:{line}: {wrong}" for line, wrong in check_file(path, name)]
    wrongs += [f"src/{name}:{line}: {wrong}" for name, line, wrong in check_parts(src)]
    return len(files), wrongs


GOOD = {
    "base/atomic.h": "#include <stdatomic.h>\nstatic _Atomic int x;\n",
    "base/iov.c": '#include "base/iov.h"\n/* fi_sendv has 32 */\n',
    "machine/shm/adopt/adopt.c": '#include "machine/shm/adopt/adopt.h"\n#include "machine/mem/mem.h"\n',
    "machine/shm/copy.c": '#include "machine/shm/shm.h"\nstatic const char *text = "lower FI_UNIMEM_LANES, fi_info";\n',
    "proto/send.c": '#include "match/match.h"\n#include "core/core.h"\n#include "machine/machine.h"\n',
    "machine/board/a.c": '#include "machine/board/board.h"\n#include "machine/machines.h"\n',
    "machine/net/inner.c": '#include <rdma/fabric.h>\n#include "machine/owner/counts.h"\nint f(void) { return -FI_EAGAIN; }\n',
    "machine/machines.c": "const struct um_machine *first = &um_machine_shm;\n",
    "machine/board/process.h": "struct um_board_process {\n    struct { /* slots.c */\n        int end;\n    } slots;\n};\n",
    "machine/board/slots.c": "int f(void) { return um_board.slots.end; }\n",
    "machine/board/process.c": "int g(void) { return um_board.lock + um_board.slots.end; }\n",
    "heap/pages.c": '#include "machine/shm/heap_abi.h"\n',
    "prov/ep.c": '#include <rdma/fi_endpoint.h>\n#include "proto/proto.h"\nint fi_no_call(void);\n',
}
BAD = {
    "base/list.c": '#include "core/core.h"\n',
    "core/a.c": '#include "match/match.h"\n',
    "match/b.c": '#include "core/core.h"\n',
    "core/c.c": '#include "proto/proto.h"\n',
    "machine/d.c": "#include <rdma/fabric.h>\n",
    "proto/e.c": "int f(void) { return -FI_EAGAIN; }\n",
    "core/f.c": "struct fid_ep *ep;\n",
    "core/g.c": "#include <stdatomic.h>\n",
    "core/h.c": "int g(int *p) { return __atomic_load_n(p, 0); }\n",
    "core/i.c": '#include "core.h"\n',
    "misc/j.c": "\n",
    "prov/k.c": '#include "machine/board/config.h"\n',
    "prov/l.c": "const struct um_machine *first = &um_machine_shm;\n",
    "core/m.c": "int f(void) { return um_mem_poll(); }\n",
    "machine/board/n.c": '#include "machine/mem/mem.h"\n',
    "machine/mem/o.c": '#include "machine/shm/shm.h"\n',
    "machine/shm/adopt/q.c": '#include "machine/board/board.h"\n',
    "machine/board/q.c": "int h(void) { return um_board.slots.end; }\n",
    "machine/board/r.c": "int i(void) { return um_board.lock; }\n",
    "machine/net/s.c": '#include "machine/board/board.h"\n',
    "machine/board/t.c": "#include <rdma/fabric.h>\n",
    "core/u.c": "enum { WINDOW = UM_NET_WINDOW };\n",
    "heap/p.c": '#include "machine/shm/shm.h"\n',
}


def self_test():
    """Checks that every bad file is reported, and no good one."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**GOOD, **BAD}.items():
            path = pathlib.Path(root) / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        _, wrongs = check_tree(root)
    reported = {wrong.split(":")[0].removeprefix("src/") for wrong in wrongs}
    if reported != set(BAD):
        print("not reported:", set(BAD) - reported, "wrongly reported:", reported - set(BAD))
        return 1
    return 0


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if sys.argv[1] == "--self-test":
        return self_test()
    count, wrongs = check_tree(sys.argv[1])
    if not count:
        wrongs = ["no source file found"]
    print("\n".join(wrongs) or f"{count} files, no violation")
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
