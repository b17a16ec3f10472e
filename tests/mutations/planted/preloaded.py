"""Mutations of the libraries that are preloaded: src/heap and src/yield; see ../run."""

MUTATIONS = [
    (
        "sched_yield is a system call each time",
        "src/yield/yield.c",
        "y->shared > 0 ? 0 : UM_YIELD_EACH - 1",
        "0",
        ["yield"],
    ),
    (
        "sched_yield is left out on a shared processor",
        "src/yield/yield.c",
        "        y->shared = UM_YIELD_SHARED;",
        "        y->shared = 0;",
        ["yield"],
    ),
    (
        "who yields seldom lets others wait for many calls",
        "src/yield/yield.c",
        "y->left > 0 && tick == y->tick",
        "y->left > 0",
        ["yield"],
    ),
    (
        "one quick call proves that a processor is not shared",
        "src/yield/yield.c",
        "    else if (y->shared > 0)\n        y->shared--;",
        "    else\n        y->shared = 0;",
        ["yield"],
    ),
    (
        "who has found something goes on as long as it finds something",
        "src/yield/yield.c",
        "y->shared > 0 && y->spared < UM_YIELD_EACH - 1",
        "y->shared > 0",
        ["yield"],
    ),
    (
        "who has found something yields on a shared processor",
        "src/yield/yield.c",
        "y->shared > 0 && y->spared < UM_YIELD_EACH - 1",
        "false",
        ["yield"],
    ),
    (
        "with a processor of its own who has found something does not look at the system",
        "src/yield/yield.c",
        "y->shared > 0 && y->spared < UM_YIELD_EACH - 1",
        "y->spared < UM_YIELD_EACH - 1",
        ["yield"],
    ),
    (
        "a find counts for later turns",
        "src/yield/yield.c",
        "    um_store_relaxed_u32(&unimem_yield_found, 0);\n",
        "",
        ["yield"],
    ),
    (
        "reads do not tell sched_yield that they have found something",
        "src/prov/cq.c",
        "found_p ? found_p : &cq->found",
        "&cq->found",
        ["prov/spin"],
    ),
    (
        "fork on a stack of the heap goes on",
        "src/heap/fork.c",
        "    refuse_shared_stack();",
        "    (void)refuse_shared_stack;",
        ["heap fork"],
    ),
]
