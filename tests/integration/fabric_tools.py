"""libfabric's own tools, in the version that Debian ships: how the tests run them."""

import re
import shutil
import socket
import time
from collections.abc import Sequence

from harness import BUILD, Launcher, Run


def tool(name: str) -> str:
    path = shutil.which(name, path="/usr/bin")
    assert path, f"{name} is missing: apt-get install libfabric-bin"
    return path


def tool_environment(launcher: Launcher) -> dict[str, str]:
    """The tools are not MPI programs: they need the path of the provider and nothing else."""
    return launcher.environment(extra={"FI_PROVIDER_PATH": str(BUILD)})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """Does not connect: fi_pingpong's server would take the connection for its client."""
    wanted = f":{port:04X} "
    with open("/proc/net/tcp", encoding="ascii") as table:
        return any(wanted in line and " 0A " in line for line in table)


def pingpong(launcher: Launcher, provider: str, *arguments: str, wrapper: Sequence[str] = ()) -> Run:
    """Runs server and client on this host, each under the wrapping command; returns the client's run."""
    port = str(free_port())
    environment = tool_environment(launcher) | {"FI_PROVIDER": provider}
    common = [*wrapper, tool("fi_pingpong"), "-p", provider, "-e", "rdm", *arguments]
    server = launcher.start([*common, "-B", port], environment)
    end = time.monotonic() + 20
    while not listens(int(port)) and server.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    client = launcher.finish(launcher.start([*common, "-P", port, "127.0.0.1"], environment), timeout=300)
    launcher.finish(server, timeout=30).succeeded()
    return client.succeeded()


def rows(run: Run) -> list[str]:
    """The sizes of the table that fi_pingpong prints."""
    return [match[1] for match in re.finditer(r"^(\d+[kmg]?)\s+\d", run.out, re.MULTILINE)]
