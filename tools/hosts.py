"""Hosts on one machine: network, host name, process, IPC and mount namespaces, joined by a bridge.

Each host has its own name, /etc/hosts, /dev/shm, pids and boot id, so programs find no sign that the hosts share one
kernel. The launcher runs beside the hosts, in the bridge's network; instead of ssh it uses an agent that enters a
host's namespaces. Needs root or its capabilities; otherwise NoNamespaces is raised. A host ends when its first process
reads the end of file from a pipe whose other end its creator holds: so also when the creator ends, for any reason.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

NETWORK = "10.77.0."
LAUNCHER = f"{NETWORK}254"
SECONDS = 20

# A host's first process. $1: its folder; $2: its name.
HOST = """
set -e
hostname "$2"
mount --make-rprivate /
mount -t tmpfs tmpfs /dev/shm
mount --bind "$1/../hosts" /etc/hosts
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
ip link set lo up
touch "$1/ready"
exec cat
"""

# Called by a launcher like ssh: options, the host, the command for a shell. As with ssh, the environment is not passed
# on (except PATH, HOME, and the marker by which the creator of the hosts finds its processes).
AGENT = """#!/bin/sh
while case $1 in -*) true;; *) false;; esac; do shift; done
host=$1; shift
folder=$(dirname "$0")/$host
exec env -i "PATH=$PATH" "HOME=$HOME" "TMPDIR=$folder/tmp" "{marker}=${marker}" \
    nsenter --all --root --target "$(cat "$folder/pid")" sh -c "cd '$PWD'; $*"
"""


class NoNamespaces(Exception):
    """This user may not create namespaces."""


def why_not() -> str:
    """Returns what is missing here for hosts, as far as that can be seen without trying; "": nothing."""
    if os.geteuid() != 0:
        return "only root can make namespaces"
    for program, package in (("nsenter", "util-linux"), ("ip", "iproute2")):
        if not shutil.which(program):
            return f"there is no program {program}: Debian has it in {package}"
    return ""


class Hosts:
    """Named host0, host1, ... with the addresses 10.77.0.1, .2, ... on eth0."""

    def __init__(self, count: int, marker: str) -> None:
        """marker: the environment variable that every process started on the hosts has."""
        if why := why_not():
            raise NoNamespaces(why)
        self.names = [f"host{i}" for i in range(count)]
        self.folder = tempfile.TemporaryDirectory(prefix="unimem-hosts-", ignore_cleanup_errors=True)
        self.root = Path(self.folder.name)
        self.processes: list[subprocess.Popen[bytes]] = []
        names = {"127.0.0.1": "localhost", LAUNCHER: socket.gethostname()}
        names |= {f"{NETWORK}{i + 1}": name for i, name in enumerate(self.names)}
        (self.root / "hosts").write_text("".join(f"{address} {name}\n" for address, name in names.items()))
        self.agent = self.root / "agent"
        self.agent.write_text(AGENT.replace("{marker}", marker))
        self.agent.chmod(0o755)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _start(self, *what: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["unshare", *what], stdin=subprocess.PIPE)
        self.processes.append(process)
        return process

    def _open(self) -> None:
        bridge = self._start("--net", "cat")
        self.bridge = bridge.pid
        self._await(lambda: os.readlink(f"/proc/{bridge.pid}/ns/net") != os.readlink("/proc/self/ns/net"), bridge)
        self._in_bridge("ip", "link", "add", "br0", "type", "bridge")
        self._in_bridge("ip", "address", "add", f"{LAUNCHER}/24", "dev", "br0")
        self._in_bridge("ip", "link", "set", "br0", "up")
        self._in_bridge("ip", "link", "set", "lo", "up")
        for i, name in enumerate(self.names):
            self._add(i, name)

    def _add(self, i: int, name: str) -> None:
        folder = self.root / name
        (folder / "tmp").mkdir(parents=True)
        (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        spaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        shell = self._start(*spaces, "sh", "-c", HOST, "sh", str(folder), name)
        self._await((folder / "ready").exists, shell)
        first = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()[0]
        (folder / "pid").write_text(first)
        veth = f"veth{i}"
        self._in_bridge("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", first)
        self._in_bridge("ip", "link", "set", veth, "master", "br0", "up")
        self.run_in(name, "ip", "address", "add", f"{NETWORK}{i + 1}/24", "dev", "eth0")
        self.run_in(name, "ip", "link", "set", "eth0", "up")

    @staticmethod
    def _await(condition: object, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + SECONDS
        while not condition():  # type: ignore[operator]
            if process.poll() is not None:
                raise NoNamespaces(f"{process.args} ended with status {process.returncode}")
            assert time.monotonic() < end, f"{process.args} is not ready after {SECONDS} s"
            time.sleep(0.01)

    def _in_bridge(self, *command: str) -> None:
        subprocess.run(["nsenter", f"--net=/proc/{self.bridge}/ns/net", *command], check=True)

    def inside(self, name: str) -> list[str]:
        """The prefix of a command that runs on that host. It enters the host's root: the tests may be in a chroot."""
        return ["nsenter", "--all", "--root", "--target", (self.root / name / "pid").read_text()]

    def beside(self) -> list[str]:
        """The prefix of a launcher's command."""
        return ["nsenter", f"--net=/proc/{self.bridge}/ns/net"]

    def run_in(self, name: str, *command: str) -> None:
        subprocess.run([*self.inside(name), *command], check=True)

    def hydra_options(self, on_each: int) -> list[str | Path]:
        """Options of mpiexec (MPICH's or Intel MPI's) for on_each ranks on each host."""
        agent = ["-launcher", "ssh", "-launcher-exec", self.agent, "-localhost", LAUNCHER]
        return [*agent, "-hosts", ",".join(self.names), "-ppn", str(on_each), "-n", str(len(self.names) * on_each)]

    def set_link(self, name: str, state: str) -> None:
        """Sets the host's link `up` or `down`."""
        self._in_bridge("ip", "link", "set", f"veth{self.names.index(name)}", state)

    def links(self) -> list[str | Path]:
        """A command that cuts a host off, or connects it again (`cut` or `mend`, and the host's number); and the
        network namespaces of the hosts.

        The interface of a host that is cut off stays up, as when a switch behind it fails.
        """
        command = self.root / "link"
        enter = f"nsenter --net=/proc/{self.bridge}/ns/net ip link set veth$2"
        command.write_text(f"#!/bin/sh\ncase $1 in cut) {enter} nomaster;; *) {enter} master br0;; esac\n")
        command.chmod(0o755)
        pids = [(self.root / name / "pid").read_text() for name in self.names]
        return [command, *(f"/proc/{pid}/ns/net" for pid in pids)]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()  # type: ignore[union-attr]
        self.folder.cleanup()
