"""fork_child.py finalize|leave: each rank forks a child that ends with exit(0); the ranks go on as before.

finalize: the child finalises MPI when it exits, as mpi4py does by default. leave: it does not.
MPI does not say what a child may do with MPI, but users of os.fork(), multiprocessing and the like fork.
"""

import os
import sys

import mpi4py

mpi4py.rc.finalize = sys.argv[1] == "finalize"

from mpi4py import MPI  # noqa: E402

ROUNDS = 20
SIZES = (8, 100000)

comm = MPI.COMM_WORLD
other = comm.rank ^ 1


def exchange() -> None:
    for size in SIZES:
        for step in range(ROUNDS):
            got = bytearray(size)
            comm.Sendrecv(bytes([comm.rank * 100 + step]) * size, other, recvbuf=got, source=other)
            assert got == bytes([other * 100 + step]) * size


exchange()
pid = os.fork()
if pid == 0:
    sys.exit(0)
_, status = os.waitpid(pid, 0)
exchange()
print(f"rank {comm.rank}: the child's status is {status:#x}\n", end="", flush=True)
MPI.Finalize()
