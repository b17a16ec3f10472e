"""What is measured: measurements in families, their cases, and the metrics that the programs in bench/drivers print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20
SMALL = (1, 8, 64, 512, 4 * KIB)
LARGE = (16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB)
IN_PIECES = tuple(48 * 4**k for k in range(9))  # total bytes; four and six divide them

FABRIC, MPI, HOSTS = "fabric", "mpi", "hosts"  # levels: libfabric's interface, MPI's, and MPI's on several hosts


@dataclass(frozen=True)
class Metric:
    """A figure that programs print under this name."""

    name: str
    title: str
    unit: str
    higher_is_better: bool = False
    is_detail: bool = False  # shown in the report's tables, not in the overview and the document


METRICS = {
    metric.name: metric
    for metric in (
        Metric("us", "time", "µs"),
        Metric("p50_us", "median of single ones", "µs", is_detail=True),
        Metric("p99_us", "99 % take at most", "µs", is_detail=True),
        Metric("p999_us", "99.9 % take at most", "µs"),
        Metric("min_us", "least", "µs", is_detail=True),
        Metric("p90_us", "90 % take at most", "µs", is_detail=True),
        Metric("max_us", "most", "µs", is_detail=True),
        Metric("mb_s", "bandwidth", "MB/s", True),
        Metric("ns_message", "time a message", "ns", is_detail=True),
        Metric("put_us", "put and flush", "µs"),
        Metric("get_us", "get and flush", "µs"),
        Metric("put_mb_s", "bandwidth of puts, 64 to a flush", "MB/s", True),
        Metric("get_mb_s", "bandwidth of gets, 64 to a flush", "MB/s", True),
        Metric("char_us", "sum of chars and flush", "µs"),
        Metric("int_us", "sum of ints and flush", "µs"),
        Metric("double_us", "sum of doubles and flush", "µs"),
        Metric("fetch_add_us", "fetch-and-add of 64 bits and flush", "µs"),
        Metric("compare_swap_us", "compare-and-swap of 64 bits and flush", "µs"),
        Metric("list_us", "one message of all pieces", "µs"),
        Metric("sends_us", "a message for each piece (fi_tsend)", "µs", is_detail=True),
        Metric("short_sends_us", "the same, without completions where that may be (fi_tinject)", "µs", is_detail=True),
        Metric("gain", "time of the messages / time of the one", "", True),
        Metric("fairness", "messages of the slowest sender / of the fastest", "", True),
        Metric("cpu", "of a processor, by the sleeper", "", is_detail=True),
        Metric("wakeups_s", "wake-ups in a second", "", is_detail=True),
        Metric("barrier_us", "MPI_Barrier", "µs"),
        Metric("bcast_us", "MPI_Bcast", "µs"),
        Metric("reduce_us", "MPI_Reduce", "µs"),
        Metric("allreduce_us", "MPI_Allreduce", "µs"),
        Metric("allgather_us", "MPI_Allgather", "µs"),
        Metric("alltoall_us", "MPI_Alltoall", "µs"),
        Metric("gups", "random updates", "10^9/s", True),
        Metric("teps", "edges of a graph", "1/s", True),
    )
}


@dataclass(frozen=True)
class Measurement:
    """One program with its arguments. cases: of a full run; quick: of a quick one. Both empty: no choice of cases."""

    family: str
    name: str
    title: str
    case: str  # what the cases are
    arguments: tuple[str, ...]
    cases: tuple[int, ...] = ()
    quick: tuple[int, ...] = ()
    program: str = "compare"  # compare: one program for each level; else a program over libfabric
    levels: tuple[str, ...] = (FABRIC, MPI)
    processes: int = 2
    is_cold: bool = False

    def processes_of(self, cases: Sequence[int]) -> int:
        """The number of processes. Family senders: the largest case, and the receiver."""
        return max(cases) + 1 if self.family == "senders" else self.processes

    @property
    def id(self) -> str:
        return f"{self.family}/{self.name}" if self.name else self.family


def measurements(pairs: int) -> list[Measurement]:
    """All measurements, in the order of the report."""
    bytes_, quick = "bytes", (8, 4 * KIB, 64 * KIB, MIB)
    sizes = SMALL[1:] + LARGE
    collectives = [
        Measurement("collectives", f"{ranks} ranks", f"collectives of {ranks} ranks", "bytes a rank", ("collective",),
                    (8, KIB, 16 * KIB, 256 * KIB), (8, 64 * KIB), levels=(MPI,), processes=ranks)
        for ranks in (2, 4)
    ]  # fmt: skip
    hosts = Measurement("hosts", "2 x 2 ranks", "collectives of two hosts of two ranks each", "bytes a rank", ("collective",),
                        (8, KIB, 16 * KIB, 256 * KIB, MIB), (8, 64 * KIB), levels=(HOSTS,), processes=4)  # fmt: skip
    depths = [
        Measurement("match", kind, f"half a round trip of 8 bytes behind {what}", "messages", ("depth", "--kind", kind),
                    (1, 10, 100, 1000, 10000), (1, 1000))
        for kind, what in (("posted", "posted receives"), ("unexpected", "unexpected messages"))
    ]  # fmt: skip
    senders = [
        Measurement("senders", kind, title, "senders", ("senders", "--kind", kind), (1, 2, 4, 8, 16, 32, 64), (1, 4))
        for kind, title in (("active", "so many senders of 8 bytes at once to one process"),
                            ("idle", "one sender of 8 bytes; all but one of so many have sent once and sleep"))
    ]  # fmt: skip
    pieces = [
        Measurement("iovec", f"{n} pieces", f"{n} pieces in a message (fi_tsendv) against {n} messages", "bytes in all",
                    ("pieces", "--pieces", str(n)), IN_PIECES, IN_PIECES[::3], levels=(FABRIC,))
        for n in (4, 6)
    ]  # fmt: skip
    computing = [
        Measurement("computing", f"{used}{side}",
                    f"a body{title} whose {side} computes for 1 ms between its calls: beyond that time", bytes_,
                    ("computing", "--kind", f"{used}{side}".replace(" ", "-")), LARGE[2::2], (MIB,))
        for used, title in (("", ""), ("used ", ", written before it is sent and read when it is there,"))
        for side in ("sender", "receiver")
    ]  # fmt: skip
    wakeups = [
        Measurement("wakeup", kind, f"from the sender's call until a process asleep in {call} returns", "queue or counter",
                    (kind,), program="wakeup", levels=(FABRIC,))
        for kind, call in (("cq", "fi_cq_sread"), ("cntr", "fi_cntr_wait"))
    ]  # fmt: skip
    sleeps = [
        Measurement("sleep", kind, f"asleep in {call} while nothing comes", "queue or counter", (kind, "idle"),
                    program="wakeup", levels=(FABRIC,))
        for kind, call in (("cq", "fi_cq_sread"), ("cntr", "fi_cntr_wait"))
    ]  # fmt: skip
    return [
        Measurement("latency", "warm", "half a round trip, the same buffers each time", bytes_, ("latency",), sizes, quick),
        Measurement("latency", "used", "half a round trip, each message written before it is sent and read when it is there",
                    bytes_, ("latency", "--kind", "used"), sizes, quick),
        Measurement("latency", "cold", "half a round trip, buffers rotate over more than the last-level cache", bytes_,
                    ("latency",), SMALL[4:] + LARGE[::2], (64 * KIB, MIB), is_cold=True),
        Measurement("bandwidth", "warm", "64 in flight, the same buffers each time", bytes_, ("stream",), SMALL + LARGE,
                    quick),
        Measurement("bandwidth", "used", "64 in flight, each message written before it is sent and read when all are there",
                    bytes_, ("stream", "--kind", "used"), SMALL + LARGE[:-2], quick),
        Measurement("bandwidth", "cold", "64 in flight, buffers rotate over more than the last-level cache", bytes_,
                    ("stream",), SMALL[4:] + LARGE[::2], (64 * KIB, MIB), is_cold=True),
        Measurement("bidirectional", "", "64 in flight in either direction", bytes_, ("both",), sizes, quick),
        Measurement("rate", "", f"64 in flight in each of {pairs} pairs at once", bytes_, ("rate",), SMALL, (8, 512),
                    processes=2 * pairs),
        Measurement("rma", "", "one-sided operations", bytes_, ("rma",), sizes, quick),
        Measurement("accumulate", "", "sums in another process's memory", bytes_, ("accumulate",),
                    (8, 64, KIB, 4 * KIB, 64 * KIB), (8, 4 * KIB)),
        *pieces, *depths, *wakeups, *sleeps, *senders, *computing, *collectives, hosts,
        Measurement("programs", "gups", "random updates of 2^18 words (GUPS)", "processes", ("-n", "2", "-s", "18"),
                    program="gups", levels=(FABRIC,)),
        Measurement("programs", "ssca", "betweenness in a graph of 2^12 vertices (SSCA2)", "processes", ("-n", "2", "-s", "12"),
                    program="ssca", levels=(FABRIC,)),
    ]  # fmt: skip
