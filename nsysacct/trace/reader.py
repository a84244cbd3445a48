"""A trace: tables of an export, each read on first use and once."""

from __future__ import annotations

import os
import shutil
import weakref
from functools import cached_property
from typing import TYPE_CHECKING

from nsysacct.trace import schema
from nsysacct.trace.assembly import Rejection
from nsysacct.trace.columns import Progress
from nsysacct.trace.database import Database, merge_log, open_database, quoted
from nsysacct.trace.encoding import distinct
from nsysacct.trace.files import FileFacts, identify, snapshot
from nsysacct.trace.gpu import load_graph_runs, load_kernels, load_memops, load_memory_usage
from nsysacct.trace.host import (
    load_api,
    load_gpu_metrics,
    load_graph_events,
    load_graph_node_events,
    load_syncs,
)
from nsysacct.trace.identity import (
    Devices,
    Versions,
    pid_of,
    read_diagnostics,
    read_process_names,
    read_versions,
)
from nsysacct.trace.loading import Loader
from nsysacct.trace.marks import Marks, load_marks
from nsysacct.trace.tables import (
    ApiCalls,
    CudaDevice,
    Diagnostic,
    Gpu,
    GpuMetrics,
    GraphEvents,
    GraphNodeEvents,
    GraphRuns,
    Kernels,
    MemOps,
    MemoryUsage,
    NvtxRanges,
    Process,
    Syncs,
)

if TYPE_CHECKING:
    from nsysacct.model import TraceInfo


def read_trace(path: str | os.PathLike[str], progress: Progress | None = None) -> Trace:
    """Open an nsys SQLite export.

    The file is opened read-only and immutable: nothing is written to it or beside it. What it is
    and whether it can carry an account is checked here; tables are read on first use.

    Parameters
    ----------
    path : path-like
        The ``.sqlite`` file.
    progress : callable, optional
        Called with (what is done, rows done, rows in all) while large tables are read ("reading
        TABLE") and while an account is made of them ("placing events").

    Raises
    ------
    NotAnExportError
        Not SQLite, or SQLite that nsys did not write.
    UnsupportedSchemaError
        A column that accounting needs is not there.
    NoCudaTraceError
        No CUDA activity, or API calls without their GPU side.
    TraceError
        Missing, unreadable, locked or damaged.
    """
    facts = identify(path)
    directory = None
    source = facts
    if facts.wal_bytes:
        source, directory = snapshot(facts)
    try:
        if directory is not None:
            source = merge_log(source)
        database = open_database(source)
        versions = read_versions(database)
        schema.check_schema(database, versions)
        schema.check_cuda(database)
    except BaseException:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    trace = Trace(facts, database, versions, progress)
    if directory is not None:
        weakref.finalize(trace, shutil.rmtree, directory, ignore_errors=True)
    return trace


class Trace:
    """One export. Attributes are read from the file on first use; see `read_trace`.

    GPU tables are always read in the same order, so that indices of processes and GPUs do not
    depend on what was asked for first.

    Attributes
    ----------
    file_facts : FileFacts
        Name, size.
    versions : Versions
        nsys and schema version, graph granularity.
    """

    def __init__(
        self,
        facts: FileFacts,
        database: Database,
        versions: Versions,
        progress: Progress | None = None,
    ) -> None:
        self.file_facts = facts
        self.versions = versions
        self._database = database
        self._loader = Loader(database, Devices(database), progress)
        self._kernels: Kernels | None = None
        self._kernel_names: list[str] | None = None
        self._api: ApiCalls | None = None
        self._api_names: list[str] | None = None

    @property
    def name(self) -> str:
        """File name without directories."""
        return self.file_facts.name

    @cached_property
    def info(self) -> TraceInfo:
        """Facts for the account's head. Counts are of all rows, rejected ones included."""
        from nsysacct.model import TraceInfo

        gpus = self._gpus_in_use()
        gpu = gpus[0] if gpus else Gpu(0)
        return TraceInfo(
            name=self.name,
            nsys_version=self.versions.nsys,
            export_schema=self.versions.schema,
            graph_trace=self.versions.graph_trace,
            gpu=gpu.name,
            gpu_memory_bandwidth_bytes_per_s=gpu.memory_bandwidth,
            gpu_memory_bytes=gpu.memory,
            gpu_sm_count=gpu.sm_count,
            kernels=self._count(schema.KERNEL),
            api_calls=self._count(schema.RUNTIME),
            duration_ns=self._duration(),
        )

    @property
    def has_graph_trace_table(self) -> bool:
        """Whether the export has whole-graph times (CUPTI_ACTIVITY_KIND_GRAPH_TRACE)."""
        return self._database.has(schema.GRAPH_TRACE)

    @property
    def rejected(self) -> list[Rejection]:
        """Rows left out of the tables read so far."""
        return self._loader.rejected

    @property
    def processes(self) -> list[Process]:
        """Processes with GPU work or CUDA API calls."""
        _ = self.api_names
        names = self._process_names
        return [Process(g, pid_of(g), names.get(g)) for g in self._loader.global_pids]

    @cached_property
    def _process_names(self) -> dict[int, str]:
        return read_process_names(self._database)

    @property
    def gpus(self) -> list[Gpu]:
        """Physical GPUs; some may have no work in this trace."""
        _ = self.graph_runs
        return self._loader.devices.gpus

    def cuda_device(self, pid: int, gpu: int) -> CudaDevice | None:
        """Facts of the device by which process `pid` uses GPU `gpu`; None where not recorded."""
        _ = self.graph_runs
        return self._loader.devices.facts(pid, gpu)

    @property
    def kernels(self) -> Kernels:
        """Kernels, valid rows only."""
        if self._kernels is None:
            self._kernels, self._kernel_names = load_kernels(self._loader)
        return self._kernels

    @property
    def kernel_names(self) -> list[str]:
        """Distinct demangled names of kernels; ``<string id N>`` where the text is missing."""
        if self._kernel_names is None:
            _ = self.kernels
        assert self._kernel_names is not None
        return self._kernel_names

    def tell(self, work: str, done: int, total: int) -> None:
        """Report how far work on this trace is, to the `progress` of `read_trace`."""
        if self._loader.progress is not None:
            self._loader.progress(work, done, total)

    def release(self) -> None:
        """Let go of the largest tables, kernels and API calls; they are read again when asked for."""
        _ = self.info  # needs them, and takes no room
        self._kernels = self._api = None

    @cached_property
    def memops(self) -> MemOps:
        """Copies and memory sets, valid rows only."""
        _ = self.kernel_names  # reads the kernels first
        return load_memops(self._loader)

    @cached_property
    def graph_runs(self) -> GraphRuns:
        """Graph launches timed as a whole; empty where the export has no such table."""
        _ = self.memops
        return load_graph_runs(self._loader)

    @property
    def api(self) -> ApiCalls:
        """CUDA API calls; failed ones have a `return_value` other than 0."""
        if self._api is None:
            _ = self.graph_runs
            self._api, self._api_names = load_api(self._loader)
        return self._api

    @property
    def api_names(self) -> list[str]:
        """Distinct names of API calls, version suffixes included."""
        if self._api_names is None:
            _ = self.api
        assert self._api_names is not None
        return self._api_names

    @cached_property
    def syncs(self) -> Syncs:
        """Waits of the host for the GPU."""
        _ = self.api_names
        return load_syncs(self._loader)

    @cached_property
    def _marks(self) -> Marks:
        _ = self.api_names
        return load_marks(self._loader)

    @property
    def nvtx(self) -> NvtxRanges:
        """NVTX ranges of all threads, in file order."""
        return self._marks.ranges

    @property
    def nvtx_marks(self) -> NvtxRanges:
        """NVTX marks: points in time; `end` equals `start`."""
        return self._marks.marks

    @property
    def nvtx_names(self) -> list[str]:
        """Distinct texts of ranges and marks; an empty text for those without."""
        return self._marks.names

    @property
    def nvtx_domains(self) -> list[str]:
        """Names of NVTX domains; the first is the default domain, without a name."""
        return self._marks.domains

    @cached_property
    def graph_events(self) -> GraphEvents | None:
        """Graphs created, cloned and instantiated; None where the export does not record them."""
        _ = self.api_names
        return load_graph_events(self._loader)

    @cached_property
    def graph_node_events(self) -> GraphNodeEvents | None:
        """Graph nodes created; None where the export does not record them."""
        _ = self.api_names
        return load_graph_node_events(self._loader)

    @cached_property
    def diagnostics(self) -> list[Diagnostic]:
        """Messages of the collector in time order; not exported before 2024."""
        return read_diagnostics(self._database)

    @cached_property
    def gpu_metrics(self) -> GpuMetrics | None:
        """Hardware counters over time (``--gpu-metrics-devices``); None where not recorded."""
        return load_gpu_metrics(self._loader)

    @cached_property
    def memory_usage(self) -> MemoryUsage | None:
        """Allocations over time (``--cuda-memory-usage=true``); None where not recorded."""
        _ = self.api_names
        return load_memory_usage(self._loader)

    def _count(self, table: str) -> int:
        if not self._database.has(table):
            return 0
        count = self._database.rows(table, f"SELECT count(*) FROM {quoted(table)}")[0][0]
        return count if isinstance(count, int) else 0

    def _duration(self) -> int | None:
        """Length of the capture, ns. Source: ANALYSIS_DETAILS (2022 and later)."""
        values = [row["duration"] for row in self._database.records("ANALYSIS_DETAILS", "duration")]
        return next((value for value in values if isinstance(value, int) and value > 0), None)

    def _gpus_in_use(self) -> list[Gpu]:
        tables = (self.kernels, self.memops, self.graph_runs)
        used = {int(i) for table in tables for i in distinct(table.gpu)[0]}
        return [self.gpus[i] for i in sorted(used)]
