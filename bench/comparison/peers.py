"""The peers: unimem, what it is compared with, and the limits.

Peers of one group are compared with one another: libfabric's providers (and UCX, and the limits) with the same program
over libfabric's interface, and the transports of each MPI with the same program over that MPI. Communication between
hosts is compared on the loopback (unimem over libfabric's tcp with tcp alone), and by jobs on two hosts, which are
namespaces of this one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from . import mpi
from .fabric import BarePeer, FabricPeer, UcxPeer
from .families import FABRIC
from .mpi import FloorPeer, HostsPeer, Mpi, MpiPeer
from .peer import LIMIT, OURS, Peer, Setting


def fabric_peers(setting: Setting) -> list[Peer]:
    group = FABRIC
    return [
        *(FabricPeer(group, variant.name, OURS, provider="unimem", variant=variant) for variant in setting.variants),
        FabricPeer(group, "shm", provider="shm"),
        FabricPeer(group, "sm2", provider="sm2"),
        UcxPeer(group, "ucx"),
        BarePeer(group, "line", LIMIT, way="line", is_small=True, measured=("latency",)),
        BarePeer(group, "records", LIMIT, way="records", is_small=True, measured=("bandwidth",)),
        *(BarePeer(group, way, LIMIT, way=way) for way in ("ring", "one", "both", "both_stream", "kernel", "kernel_both")),
    ]


def of_mpi(
    of: Mpi, setting: Setting, over_ofi: dict[str, str], others: Sequence[tuple[str, dict[str, str], tuple[str, ...]]]
) -> list[Peer]:
    """All variants of unimem, then the other transports (name, variables, options of the launcher), then the floor.

    over_ofi: the variables that make the MPI use libfabric."""
    ours = [MpiPeer(of.group, variant.name, OURS, mpi=of, variant=variant) for variant in setting.variants]
    floor = FloorPeer(of.group, "floor", LIMIT, mpi=of, env=over_ofi)
    return [*ours, *(MpiPeer(of.group, name, mpi=of, env=env, options=options) for name, env, options in others), floor]


OVER_OFI = {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"}  # MPICH
INTEL_OVER_OFI = {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "unimem"}
OPEN_OVER_OFI = {"OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi", "OMPI_MCA_osc": "^ucx", "OMPI_MCA_mtl_ofi_provider_include": "unimem",
                 "OMPI_MCA_opal_common_ofi_provider_include": "unimem"}  # fmt: skip


def mpi_peers(setting: Setting) -> list[Peer]:
    ucx = {"MPIR_CVAR_CH4_NETMOD": "ucx", "MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "self,posix,sysv,cma"}
    intel_shm = {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "shm", "FI_PROVIDER": "shm"}
    intel = mpi.impi(setting)
    return [
        *of_mpi(mpi.mpich(setting), setting, OVER_OFI, [("shm", {**OVER_OFI, "FI_PROVIDER": "shm"}, ()), ("ucx", ucx, ()), ("posix", {}, ())]),
        *(of_mpi(intel, setting, INTEL_OVER_OFI, [("shm", intel_shm, ()), ("own", {"I_MPI_FABRICS": "shm"}, ())]) if intel else []),
        *of_mpi(mpi.openmpi5(setting), setting, OPEN_OVER_OFI, [("sm", {}, ("--mca", "pml", "ob1", "--mca", "btl", "self,sm"))]),
        *of_mpi(mpi.openmpi4(setting), setting, OPEN_OVER_OFI, [("vader", {}, ("--mca", "pml", "ob1", "--mca", "btl", "self,vader"))]),
    ]


ON_LOOPBACK = {"FI_UNIMEM_MACHINE": "net", "FI_UNIMEM_NET": "on", "FI_UNIMEM_NET_ADDRESS": "127.0.0.1"}
BETWEEN_HOSTS = ("latency", "bandwidth", "bidirectional", "rma", "collectives")


def hosts_peers(setting: Setting) -> list[Peer]:
    """One host stands for several: nothing goes through shared memory."""
    ours = [replace(variant, env={**variant.env, **ON_LOOPBACK}) for variant in setting.variants if not variant.is_heap]
    tcp = {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo"}
    of = replace(mpi.mpich(setting), group="mpich-net")
    return [
        *(FabricPeer("net", v.name, OURS, BETWEEN_HOSTS, provider="unimem", variant=v) for v in ours),
        FabricPeer("net", "tcp", measured=BETWEEN_HOSTS, provider="tcp", env=tcp),
        *(MpiPeer(of.group, v.name, OURS, BETWEEN_HOSTS, of, variant=v) for v in ours),
        MpiPeer(of.group, "tcp", measured=BETWEEN_HOSTS, mpi=of, env={**OVER_OFI, **tcp}),
    ]


def two_hosts_peers(setting: Setting) -> list[Peer]:
    """Two hosts, which are namespaces. Messages within a host and between hosts use different transports, except those
    of the peer tcp."""
    ours = [variant for variant in setting.variants if not variant.is_heap]
    tcp = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
    of = replace(mpi.mpich(setting), group="mpich-hosts")
    return [
        *(HostsPeer(of.group, variant.name, OURS, mpi=of, variant=variant) for variant in ours),
        HostsPeer(of.group, "tcp", mpi=of, env={**tcp, "MPIR_CVAR_NOLOCAL": "1"}),
        HostsPeer(of.group, "posix, tcp", mpi=of, env=tcp),
    ]


TITLES = {FABRIC: "libfabric", "net": "between hosts, libfabric", "mpich-net": "between hosts, MPICH", "mpich-hosts": "two hosts, MPICH", "mpich": "MPICH", "impi": "Intel MPI", "openmpi5": "Open MPI 5", "openmpi4": "Open MPI 4.1"}


def all_peers(setting: Setting) -> list[Peer]:
    return [*fabric_peers(setting), *mpi_peers(setting), *hosts_peers(setting), *two_hosts_peers(setting)]


def build_programs(peers: Sequence[Peer], setting: Setting) -> dict[str, str]:
    """Builds the programs over MPI. Returns why some could not be built, by the peer's id."""
    failed: dict[str, str] = {}
    for peer in peers:
        if isinstance(peer, MpiPeer) and peer.mpi:
            try:
                peer.mpi.build(setting)
            except (subprocess.CalledProcessError, OSError) as error:
                print(f"compare: {error}", file=sys.stderr)
                failed[peer.id] = f"{peer.mpi.compiler.name} failed"
    return failed
