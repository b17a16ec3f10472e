"""Mutations of src/machine itself and src/machine/sim; see ../run."""

MUTATIONS = [
    (
        "two machines may have one place in an address",
        "src/machine/machines.c",
        "        if (!is_overlapping(machines->at[i], machine))",
        "        if (!is_overlapping(machines->at[i], machine) || i < UM_MACHINES_MAX)",
        ["machines"],
    ),
    (
        "an address of wire version 1 is taken for one of another version",
        "src/machine/address.c",
        "    else if (version & 1)",
        "    else if (version == 1)",
        ["sim_address"],
    ),
    (
        "a name is longer than the 64 bytes that MPICH has for it",
        "src/machine/address.h",
        "    return words * sizeof(uint64_t);",
        "    return words * sizeof(uint64_t) + 48;",
        ["prov/addresses"],
    ),
    (
        "a transfer does not ask whether its region is exported any more",
        "src/machine/sim/slow.c",
        "um_load_acquire_u64(t->changes_at) != t->changes)",
        "0)",
        ["sim_slow_transfer"],
    ),
    (
        "a machine that cannot wake says that it does",
        "src/machine/sim/machine.c",
        "    .port_open = unwoken_port_open,",
        "    .port_open = unwoken_port_open,\n    .wakes = true,",
        ["sim_unwoken_capability"],
    ),
]
