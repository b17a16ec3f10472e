#!/usr/bin/env python3
"""board_symbols_test.py SOURCE_ROOT NM LIBRARY: the machine over a board uses nothing that a board would not offer.

All symbols that the objects of src/machine/board import are on a list, board_symbols.txt: functions of the C library,
of src/base and of src/machine/address.c, none of which gives access to memory of another process. Of the board's
library these objects use only what unimem/unimem.h declares. The list may have symbols that only some compilers import
(memcpy).
"""
import pathlib
import re
import subprocess
import sys

FORBIDDEN = re.compile(r"mmap|shm|memfd|process_vm|userfaultfd|ptrace|syscall|sendmsg|recvmsg|socket|^open(at)?(64)?$")
OF_THE_COMPILER = re.compile(r"^__(asan|ubsan|tsan|lsan|sanitizer|gcov|stack_chk)|^_GLOBAL_OFFSET_TABLE_$|^__errno_location$")


def plain(symbol):
    """The name without the C library's version, and without what the compiler adds when it checks buffers."""
    symbol = symbol.split("@")[0]
    fortified = re.fullmatch(r"__(\w+)_chk", symbol)
    return fortified[1] if fortified else symbol


def imported(nm, library):
    """The symbols that objects of src/machine/board in the static library want, and that none of these defines."""
    defined, undefined = set(), set()
    member = ""
    for line in subprocess.run([nm, library], capture_output=True, text=True, check=True).stdout.splitlines():
        parts = line.split()
        if line.endswith(":"):
            member = pathlib.PurePath(line.rstrip(":")).name
        elif not member.startswith("machine_board_"):
            continue
        elif len(parts) == 2 and parts[0] == "U":
            undefined.add(plain(parts[1]))
        elif len(parts) == 3:
            defined.add(parts[2])
    return {name for name in undefined - defined if not OF_THE_COMPILER.match(name)}


def looked_up(text):
    """The names that library.c asks the loader for."""
    return set(re.findall(r'\{"(\w+)", offsetof', text))


def declared(text):
    return set(re.findall(r"\b(unimem_\w+)\(", re.sub(r"/\*.*?\*/", "", text, flags=re.S)))


def main(root, nm, library):
    listed = set((root / "tests/unit/board_symbols.txt").read_text().split())
    found = imported(nm, library)
    asked = looked_up((root / "src/machine/board/library.c").read_text())
    offered = declared((root / "include/unimem/unimem.h").read_text())
    wrongs = [f"imported and not on the list: {name}" for name in sorted(found - listed)]
    wrongs += [f"no board offers it: {name}" for name in sorted(found | listed) if FORBIDDEN.search(name)]
    wrongs += [f"unimem.h does not declare it: {name}" for name in sorted(asked - offered)]
    if not found or not asked:
        wrongs.append("no symbols found: does this test still look at the right files?")
    print("\n".join(wrongs))
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
