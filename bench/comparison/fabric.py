"""Peers below MPI: libfabric's providers, UCX measured by its own program, copies without a library (the limits)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import running
from .families import FABRIC, Measurement
from .peer import Peer, Setting, Variant
from .running import Outcome

# Columns of a line of ucx_perftest -v: iterations, percentile, average latency, overall latency, average MB/s, ...
PERCENTILE, LATENCY, BANDWIDTH = 1, 3, 5
PERCENTILES_OF = 1001  # samples at least, for the slowest of a thousand


@dataclass(frozen=True)
class FabricPeer(Peer):
    """A provider of libfabric."""

    provider: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    variant: Variant | None = None

    def missing(self, setting: Setting) -> str:
        program = setting.build / "bench" / "compare_fabric"
        if self.variant and (why := self.variant.missing()):
            return why
        if not program.exists():
            return f"no {program}: build first (./quickstart)"
        if setting.libfabric and not (setting.libfabric / "libfabric.so.1").exists():
            return f"no libfabric.so.1 in {setting.libfabric}"
        return ""

    def offers(self, m: Measurement) -> bool:
        return FABRIC in m.levels and self.has_family(m)

    def command(self, m: Measurement, setting: Setting) -> list[str]:
        bench = setting.build / "bench"
        if m.program == "wakeup":
            count = ["1" if setting.is_quick else "5"] if "idle" in m.arguments else ["100" if setting.is_quick else "1000"]
            return [str(bench / "wakeup"), self.provider, *m.arguments, *count]
        if m.program != "compare":
            return [str(bench / m.program), *m.arguments, "-p", self.provider]
        options = setting.driver_options(m, setting.cases_of(m))
        return [str(bench / "compare_fabric"), *options, "--link", self.provider, "--processes", str(m.processes_of(setting.cases_of(m)))]

    def measure(self, m: Measurement, setting: Setting) -> Outcome:
        env = {"FI_PROVIDER": self.provider, **self.env}
        if setting.libfabric:
            env["LD_LIBRARY_PATH"] = str(setting.libfabric)
        if self.variant:
            env |= self.variant.fabric_environment()
        return setting.run(self.command(m, setting), env)


@dataclass(frozen=True)
class BarePeer(Peer):
    """A way to copy without a library: a limit for all others (bench/drivers/bare_ways.c)."""

    way: str = ""
    is_small: bool = False  # messages that fit into a cache line (48 bytes); else only larger ones
    measured: tuple[str, ...] = ("latency", "bandwidth")

    def missing(self, setting: Setting) -> str:
        program = setting.build / "bench" / "compare_bare"
        return "" if program.exists() else f"no {program}: build first (./quickstart)"

    def offers(self, m: Measurement) -> bool:
        return m.family in self.measured and not (m.is_cold and self.is_small)

    def measure(self, m: Measurement, setting: Setting) -> Outcome:
        cases = [case for case in setting.cases_of(m) if (case <= 48) == self.is_small]
        if not cases:
            return Outcome()
        program = setting.build / "bench" / "compare_bare"
        return setting.run([program, *setting.driver_options(m, cases), "--link", self.way], {})


@dataclass(frozen=True)
class UcxPeer(Peer):
    """UCX, measured by its own program, ucx_perftest: a server and a client for each figure."""

    TESTS = {"latency": "tag_lat", "bandwidth": "tag_bw", "rma": ""}

    def missing(self, setting: Setting) -> str:
        return "" if shutil.which("ucx_perftest") else "no ucx_perftest: Debian has it in ucx-utils"

    def offers(self, m: Measurement) -> bool:
        return m.family in self.TESTS and not m.is_cold and m.name != "used"  # ucx_perftest does not touch its messages

    def measure(self, m: Measurement, setting: Setting) -> Outcome:
        outcome = Outcome()
        for case in setting.cases_of(m):
            for metric, words, column in self.tests(m):
                iterations = self.iterations(case, setting, "bw" in words[1])
                value = self.run_pair([*words, "-s", str(case), "-n", str(iterations), "-w", str(iterations // 10 + 1)], column, setting)
                if isinstance(value, str):
                    outcome.error = f"{' '.join(words)} -s {case}: {value}"
                    continue
                outcome.figures.append((metric, str(case), value * (1048576 / 1e6 if metric.endswith("mb_s") else 1)))
                if metric == "mb_s":
                    outcome.figures.append(("ns_message", str(case), case / value / 1048576 * 1e9))
        return outcome

    def tests(self, m: Measurement) -> list[tuple[str, list[str], int]]:
        """Metric, arguments of the program, and column in its last line."""
        if m.family == "latency":
            parts = [("us", "50"), ("p50_us", "50"), ("p99_us", "99"), ("p999_us", "99.9")]
            return [(metric, ["-t", "tag_lat", "-R", part], PERCENTILE) for metric, part in parts]
        if m.family == "bandwidth":
            return [("mb_s", ["-t", "tag_bw", "-O", "64"], BANDWIDTH)]
        return [("put_us", ["-t", "ucp_put_lat"], LATENCY), ("get_us", ["-t", "ucp_get"], LATENCY),
                ("put_mb_s", ["-t", "ucp_put_bw", "-O", "64"], BANDWIDTH)]  # fmt: skip

    @staticmethod
    def iterations(size: int, setting: Setting, is_stream: bool) -> int:
        guess = (0.3e-6 if is_stream else 0.6e-6) + size / 4e9
        return max(50 if is_stream else PERCENTILES_OF, min(200000, int(setting.seconds / guess)))

    @staticmethod
    def run_pair(words: Sequence[str], column: int, setting: Setting) -> float | str:
        """Runs a server and a client. Returns the value, or why there is none."""
        env = running.environment({"UCX_TLS": "self,posix,sysv,cma"})
        command = ["ucx_perftest", "-f", "-v", "-p", str(20000 + os.getpid() % 20000)]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        server = subprocess.Popen(["taskset", "-c", str(setting.cpus[0]), *command], env=env, **quiet)  # type: ignore[call-overload]
        try:
            done = None
            for _ in range(20):
                done = subprocess.run(["taskset", "-c", str(setting.cpus[-1]), *command, *words, "localhost"], env=env,
                                      timeout=setting.timeout, check=False, **quiet)  # type: ignore[call-overload]
                if "refused" not in done.stdout:
                    break
            assert done
            rows = [line for line in done.stdout.splitlines() if re.match(r" *\d+,", line)]
            return float(rows[-1].split(",")[column]) if rows else running.reason(done.returncode, done.stdout, "")
        except subprocess.TimeoutExpired:
            return f"no end after {setting.timeout:g} s"
        finally:
            server.kill()
            server.communicate()
