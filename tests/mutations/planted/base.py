"""Mutations of src/base; see ../run."""

MUTATIONS = [
    (
        "a copy with non-temporal stores leaves out what is behind the last whole line",
        "src/base/bytes.c",
        "    memcpy(out, in, len);\n    _mm_sfence();",
        "    _mm_sfence();",
        ["bytes", "prov/messages nontemporal"],
    ),
    (
        "a copy by blocks leaves out the last bytes",
        "src/base/bytes.c",
        "    }\n    memcpy(to, from, len);\n}\n\n/* With the vectors",
        "    }\n}\n\n/* With the vectors",
        ["bytes"],
    ),
    (
        "a copy by blocks stores a vector twice",
        "src/base/bytes.c",
        "out[3] = d;",
        "out[3] = c;",
        ["bytes"],
    ),
    (
        "what stands in for memory that is gone is left there",
        "src/base/fault_guard.c",
        "    else if (there)\n        munmap((void *)s->at, page);",
        "    else if (there)\n        (void)0;",
        ["prov/gone"],
    ),
    (
        "a fault in a guarded access is not told",
        "src/base/fault_guard.h",
        "        return um_fault_guard_settle(g);",
        "        return um_fault_guard_settle(g) && false;",
        ["prov/gone"],
    ),
    (
        "what the program maps over a stand-in is taken for it",
        "src/base/fault_guard.c",
        "    return !is_other;",
        "    return is_other || !is_other;",
        ["fault_guard"],
    ),
    (
        "who finds another thread's stand-in is not told",
        "src/base/fault_guard.c",
        "        guards_tell(at);\n        stand_in_free(s);",
        "        (void)at;\n        stand_in_free(s);",
        ["fault_guard"],
    ),
    (
        "the holder of a lock is charged for the time in which the waiter was stopped",
        "src/base/lock.c",
        "    passed = passed < UM_LOCK_PAUSE_NS ? passed : UM_LOCK_PAUSE_NS;\n",
        "",
        ["lock"],
    ),
    (
        "a lock that its holder gave back in between is taken over",
        "src/base/lock.c",
        "        if (was_free || seen != watch->holder)",
        "        if (seen != watch->holder)",
        ["lock"],
    ),
    (
        "a signal that a process sends is taken for a fault, and swallowed",
        "src/base/fault_guard.c",
        "        raise(number); /* a process",
        "        (void)0; /* a process",
        ["processes shared"],
    ),
]
