"""The options of `tt-run` as given, and the launch mode they select."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from softmesh.processes.launcher.console import LaunchError


@dataclass(frozen=True)
class Options:
    """The options of `tt-run`, as given."""

    program: tuple[str, ...] = ()
    rank_binding: str | None = None
    rank_bindings_mapping: str | None = None
    mesh_graph_descriptor: str | None = None
    mesh_graph_descriptor_mapping: str | None = None
    hosts: str | None = None
    system: str | None = None
    mock_cluster_rank_binding: str | None = None
    factory_system_descriptor: str | None = None
    mpi_args: str | None = None
    tcp_interface: str | None = None
    rankfile_syntax: str = "auto"
    tracy: str | None = None
    dry_run: bool = False
    verbose: bool = False
    debug_gdbserver: bool = False
    skip_executable_check: bool = False
    skip_mgd_check: bool = False
    bare: bool = False
    keep_others: bool = False
    force_rediscovery: bool = False


class Mode(Enum):
    """The value is the option that chooses it."""

    BINDINGS = "--rank-binding"
    BINDINGS_MAPPING = "--rank-bindings-mapping"
    DESCRIPTOR = "-m"
    DESCRIPTOR_MAPPING = "-M"

    @property
    def is_legacy(self) -> bool:
        return self in (Mode.BINDINGS, Mode.BINDINGS_MAPPING)


def mode_of(options: Options) -> Mode:
    """The one way to launch that was asked for."""
    asked = [mode for mode in Mode if _file_for(options, mode) is not None]
    if asked == [Mode.BINDINGS, Mode.BINDINGS_MAPPING]:
        raise LaunchError("Specify at most one of --rank-binding and --rank-bindings-mapping (not both).")
    if asked == [Mode.DESCRIPTOR, Mode.DESCRIPTOR_MAPPING]:
        raise LaunchError(
            "Specify at most one of -m/--mesh-graph-descriptor and -M/--mesh-graph-descriptor-mapping (not both)."
        )
    if len(asked) > 1:
        raise LaunchError(
            "Do not combine mesh graph options (-m / -M) with rank-binding options "
            "(--rank-binding / --rank-bindings-mapping)."
        )
    if not asked:
        raise LaunchError(
            "Specify exactly one of --rank-binding, --rank-bindings-mapping, -m/--mesh-graph-descriptor, "
            "or -M/--mesh-graph-descriptor-mapping."
        )
    return asked[0]


def file_of(options: Options) -> str:
    """The file that the mode is about."""
    return _file_for(options, mode_of(options)) or ""


def _file_for(options: Options, mode: Mode) -> str | None:
    return {
        Mode.BINDINGS: options.rank_binding,
        Mode.BINDINGS_MAPPING: options.rank_bindings_mapping,
        Mode.DESCRIPTOR: options.mesh_graph_descriptor,
        Mode.DESCRIPTOR_MAPPING: options.mesh_graph_descriptor_mapping,
    }[mode]


def check_hosts_are_known(options: Options) -> None:
    """Auto allocation needs machines: named ones, described ones, or (for softmesh) a system by name."""
    if options.hosts is None and options.mock_cluster_rank_binding is None and options.system is None:
        raise LaunchError(
            "--hosts is required for new mode (-m / -M) unless --mock-cluster-rank-binding is provided. "
            "On this machine alone: --hosts localhost."
        )
