"""Large messages around a ring of ranks. Checks the contents, which differ, and that nothing beside them is written."""

import sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
for size in (1 << 14, 1 << 16, 100001, 1 << 18, 1 << 20, (1 << 22) + 7):
    for turn in range(20):
        out = np.arange(size, dtype=np.uint8) + np.uint8(comm.rank + turn)
        into = np.full(size + 64, 0x5b, dtype=np.uint8)
        request = comm.Irecv([into, size, MPI.BYTE], left, turn)
        comm.Send(out, right, turn)
        request.Wait()
        assert (into[:size] == np.arange(size, dtype=np.uint8) + np.uint8(left + turn)).all(), (size, turn)
        assert (into[size:] == 0x5b).all(), (size, turn)
print("ok", comm.rank, flush=True)
