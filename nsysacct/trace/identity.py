"""Which process, which GPU, which version: the small identity tables of an export.

Only named keys are read: the same tables hold environments, command lines and outputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nsysacct.trace.database import Database, text_of
from nsysacct.trace.tables import CudaDevice, Diagnostic, Gpu

_SEVERITY = {1: "info", 2: "warning", 3: "error", 4: "verbose"}
_SOURCE = {1: "injection", 2: "daemon", 3: "analysis"}
_GRAPH_MODE = "%CUDA_GRAPH_TRACE_OPTIONS:MODE"
_EXPORT_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_EXPORT_KEYS = (
    "EXPORT_PRODUCT_VERSION",
    "EXPORT_SCHEMA_VERSION",
    "EXPORT_PARAM_TABLES_TO_EXPORT",
    "EXPORT_PARAM_TIMES_TO_EXPORT",
)
NEWEST_SCHEMA = (3, 28)
"""Newest schema whose tables are known here, major and minor."""

HOST_NODE_DEVICE = 0x7FFFFFFF
"""Device id of a graph whose first node runs on the host."""


def pid_of(global_id: int) -> int:
    """Process id in a serialised 64-bit id.

    Examples
    --------
    >>> pid_of(283004823928832)
    91186
    """
    return (global_id >> 24) & 0xFFFFFF


@dataclass(frozen=True, slots=True)
class Versions:
    """What the export says about itself. Sources: META_DATA_EXPORT, META_DATA_CAPTURE.

    Attributes
    ----------
    nsys, schema : str or None
        Version of the exporter and of its schema; None before 2022.
    graph_trace : str or None
        ``"graph"`` or ``"node"``: granularity of CUDA graph tracing; None where not recorded.
    partial : bool
        The export was limited to some tables or times.
    """

    nsys: str | None = None
    schema: str | None = None
    graph_trace: str | None = None
    partial: bool = False

    @property
    def newer_than_known(self) -> bool:
        """Whether the exporter may have moved or renamed what is read here."""
        found = re.match(r"(\d{1,9})\.(\d{1,9})", self.schema or "")
        return found is not None and (int(found[1]), int(found[2])) > NEWEST_SCHEMA


def read_versions(database: Database) -> Versions:
    """Read the version facts."""
    found: dict[str, str] = {}
    marks = ",".join("?" * len(_EXPORT_KEYS))
    for table in _EXPORT_TABLES:
        if {"name", "value"} <= set(database.columns.get(table, ())):
            sql = f"SELECT name, value FROM {table} WHERE name IN ({marks})"
            for name, value in database.rows(table, sql, _EXPORT_KEYS):
                found.setdefault(text_of(name), text_of(value))
    return Versions(
        nsys=found.get("EXPORT_PRODUCT_VERSION") or None,
        schema=found.get("EXPORT_SCHEMA_VERSION") or None,
        graph_trace=_graph_trace(database),
        partial=bool(
            found.get("EXPORT_PARAM_TABLES_TO_EXPORT") or found.get("EXPORT_PARAM_TIMES_TO_EXPORT")
        ),
    )


def _graph_trace(database: Database) -> str | None:
    """Granularity, from the last process that records one; ``node:host-only`` gives ``node``."""
    table = "META_DATA_CAPTURE"
    if not {"name", "value"} <= set(database.columns.get(table, ())):
        return None
    sql = f"SELECT value FROM {table} WHERE name LIKE ? ORDER BY rowid DESC LIMIT 1"
    rows = database.rows(table, sql, (_GRAPH_MODE,))
    mode = text_of(rows[0][0]).lower().partition(":")[0].strip() if rows else ""
    return mode or None


def read_process_names(database: Database) -> dict[int, str]:
    """Read the names of processes by serialised id. Source: PROCESSES (2022 and later)."""
    return {
        row["globalPid"]: text_of(row["name"])
        for row in database.records("PROCESSES", "globalPid", "name")
        if isinstance(row["globalPid"], int) and row["name"] is not None
    }


class Devices:
    """Physical GPUs, and which of them a process calls device 0, 1, ...

    Sources: TARGET_INFO_GPU; TARGET_INFO_CUDA_DEVICE (2025 and later) for the mapping. A device
    without an entry there keeps its number if no other device of the process has that GPU.
    """

    def __init__(self, database: Database) -> None:
        self._gpus = {gpu.index: gpu for gpu in _known_gpus(database)}
        self._mapped: dict[int, dict[int, int]] = {}
        self._facts: dict[tuple[int, int], CudaDevice] = {}
        self._placed: dict[tuple[int, int], int] = {}
        by_uuid = {gpu.uuid: gpu.index for gpu in self._gpus.values() if gpu.uuid}
        columns = ("gpuId", "cudaId", "pid", "uuid", "numMultiprocessors")
        for row in database.records("TARGET_INFO_CUDA_DEVICE", *columns):
            gpu, device, pid, uuid = row["gpuId"], row["cudaId"], row["pid"], _uuid(row["uuid"])
            if not isinstance(device, int) or not isinstance(pid, int):
                continue
            gpu = by_uuid.get(uuid or "") if gpu is None else gpu
            if isinstance(gpu, int):
                self._mapped.setdefault(pid, {})[device] = gpu
            self._facts[pid, device] = self._device(gpu, uuid, _positive(row["numMultiprocessors"]))
        self._first: dict[int, int] = {}
        self._positions: dict[tuple[int, int], int] = {}
        self._order = {index: i for i, index in enumerate(sorted(self._gpus))}

    def _device(self, gpu: object, uuid: str | None, sm_count: int | None) -> CudaDevice:
        """Facts of a device; a slice has a uuid of its own, or fewer multiprocessors than its GPU."""
        whole = self._gpus.get(gpu) if isinstance(gpu, int) else None
        uuids = {known.uuid for known in self._gpus.values() if known.uuid}
        fewer = bool(whole and whole.sm_count and sm_count and sm_count < whole.sm_count)
        other = uuid is not None and bool(uuids) and uuid not in uuids
        return CudaDevice(uuid, sm_count, fewer or other, isinstance(gpu, int))

    def facts(self, pid: int, gpu: int) -> CudaDevice | None:
        """Facts of the device by which a process uses a GPU; None where the export has none."""
        return self._facts.get((pid, self._placed.get((pid, gpu), -1)))

    @property
    def gpus(self) -> list[Gpu]:
        """GPUs of the machine, then those seen only in activity rows."""
        return [self._gpus.get(index, Gpu(index)) for index in self._order]

    def position(self, pid: int, device: int) -> int:
        """Index in `gpus` of the GPU that process `pid` calls `device`; the same whenever asked."""
        key = pid, device
        if key not in self._positions:
            self._positions[key] = self._new_position(pid, device)
        return self._positions[key]

    def _new_position(self, pid: int, device: int) -> int:
        if device == HOST_NODE_DEVICE or device < 0:
            return self._first.get(pid, 0)
        mapped = self._mapped.get(pid, {})
        index = mapped.get(device)
        if index is None:
            index = device if device not in mapped.values() else self._free(mapped, device)
        self._placed[pid, index] = device
        position = self._order.setdefault(index, len(self._order))
        self._first.setdefault(pid, position)
        return position

    def _free(self, mapped: dict[int, int], device: int) -> int:
        """Find a GPU that no other device of the process has."""
        taken = set(mapped.values())
        return next((gpu for gpu in self._order if gpu not in taken), device)


def _known_gpus(database: Database) -> list[Gpu]:
    gpus: list[Gpu] = []
    for row in database.records(
        "TARGET_INFO_GPU", "id", "deviceId", "name", "memoryBandwidth", "totalMemory", "smCount",
        "uuid",
    ):  # fmt: skip
        index = row["id"] if row["id"] is not None else row["deviceId"]
        if isinstance(index, int):
            gpus.append(
                Gpu(
                    index,
                    text_of(row["name"]) or None,
                    _positive(row["memoryBandwidth"]),
                    _positive(row["totalMemory"]),
                    _positive(row["smCount"]),
                    _uuid(row["uuid"]),
                )
            )
    return gpus


def _uuid(value: object) -> str | None:
    """Hexadecimal digits of a uuid, with or without ``GPU-`` or ``MIG-`` before it."""
    digits = text_of(value).lower().removeprefix("gpu-").removeprefix("mig-").replace("-", "")
    return digits or None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def read_diagnostics(database: Database) -> list[Diagnostic]:
    """Messages of the collector, in time order."""
    found = []
    for row in database.records(
        "DIAGNOSTIC_EVENT", "timestamp", "severity", "source", "text", "globalPid"
    ):
        at, pid = row["timestamp"], row["globalPid"]
        found.append(
            Diagnostic(
                timestamp=at if isinstance(at, int) else 0,
                severity=_SEVERITY.get(_number(row["severity"]), "unknown"),
                source=_SOURCE.get(_number(row["source"]), "unknown"),
                text=text_of(row["text"]),
                pid=(pid_of(pid) or None) if isinstance(pid, int) else None,
            )
        )
    return sorted(found, key=lambda d: d.timestamp)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
