"""What the readers of single tables share: the database, process and GPU indices, rejected rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.errors import TraceError
from nsysacct.trace.assembly import Rejection, Table
from nsysacct.trace.column import NONE, Column
from nsysacct.trace.columns import Progress, read_table
from nsysacct.trace.database import Database
from nsysacct.trace.encoding import absurd, distinct, is_constant, relabel, repeated, sum_overflows
from nsysacct.trace.identity import Devices, pid_of
from nsysacct.trace.tables import I32, I64

_PID_MASK = ~0xFFFFFF
_TID_MASK = 0xFFFFFF


@dataclass
class Loader:
    """Reads tables of one export and keeps the indices that they share.

    Attributes
    ----------
    global_pids : list of int
        Serialised ids of the processes met, in the order of their indices.
    rejected : list of Rejection
        Rows left out of the tables read so far.
    """

    database: Database
    devices: Devices
    progress: Progress | None = None
    global_pids: list[int] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    _null_process: int | None = None  # what NULL means, once it was met

    def columns(self, table: str) -> tuple[str, ...]:
        """Columns of a table; none where the export lacks it."""
        return self.database.columns.get(table, ())

    def read(
        self, name: str, columns: Sequence[Column], where: str = "", *, lenient: bool = False
    ) -> Table:
        """Read columns of a table; an empty one where the export lacks it (see `read_table`)."""
        if not self.database.has(name):
            return Table({column.name: np.empty(0, column.dtype) for column in columns}, 0)
        table = read_table(
            self.database, name, columns, where=where, lenient=lenient, progress=self.progress
        )
        self.rejected.extend(r for r in table.rejected if r not in self.rejected)  # read before
        return table

    def drop(self, name: str, table: Table, reason: str, bad: npt.NDArray[np.bool_] | None) -> None:
        """Leave out the rows marked in `bad` and count them."""
        count = 0 if bad is None else int(np.count_nonzero(bad))
        if bad is not None and count:
            table.keep(~bad)
            rejection = Rejection(name, reason, count)
            if rejection not in self.rejected:  # the table may be read a second time
                self.rejected.append(rejection)

    def drop_bad_times(self, name: str, table: Table, *, zero_is_damage: bool) -> None:
        """Leave out rows whose times cannot be: absurd, reversed, not collected (both 0).

        Raises
        ------
        TraceError
            What is left adds up to centuries: a sum over it would overflow in silence.
        """
        a = table.arrays
        self.drop(name, table, "time out of range", absurd(a["start"], a["end"]))
        if zero_is_damage:
            reason = "time not collected (start = end = 0)"
            self.drop(name, table, reason, (a["start"] == 0) & (a["end"] == 0))
        self.drop(name, table, "ends before it starts", a["end"] < a["start"])
        if sum_overflows(a["start"], a["end"]):
            raise TraceError(
                self.database.name,
                f"the durations in table {name} add up to more than a century",
                "the file is damaged: copy it again, or export the report again",
            )

    def drop_repeated(self, name: str, table: Table, *columns: str) -> None:
        """Leave out rows that repeat another in times, launch, process and these columns."""
        keys = ("end", "correlationId", "globalPid", *columns)
        a = table.arrays
        self.drop(name, table, "repeats another row", repeated(a["start"], *(a[k] for k in keys)))

    def process_codes(self, global_pids: I64, *, add: bool) -> I32:
        """Process index of serialised ids; unknown ones are added, or NONE.

        NULL is the only process met so far, or a process of its own (id 0).
        """
        found, codes = distinct(global_pids)
        known = found[found != NONE].tolist()
        index = {global_pid: i for i, global_pid in enumerate(self.global_pids)}
        if add:
            for global_pid in known:
                index.setdefault(global_pid, len(index))
            if NONE in found and self._null_process is None:
                if len(index) != 1:
                    index.setdefault(0, len(index))
                self._null_process = index.get(0, 0)
            self.global_pids = list(index)
        null = self._null_process
        if null is None:
            null = 0 if len(self.global_pids) == 1 else index.get(0, NONE)
        index[NONE] = null
        new = [index.get(global_pid, NONE) for global_pid in found.tolist()]
        return relabel(codes, np.array(new, np.int32))

    def threads(self, global_tids: I64, *, add: bool = False) -> tuple[I32, I32]:
        """Process index and thread id of serialised ids; thread NONE where there is none."""
        found, codes = distinct(global_tids)
        null = found == NONE
        process = self.process_codes(np.where(null, NONE, found & _PID_MASK), add=add)
        tids = np.where(null, NONE, found & _TID_MASK)
        return relabel(codes, process), relabel(codes, tids)

    def place(self, arrays: dict[str, npt.NDArray[Any]]) -> tuple[I32, I32]:
        """Process and GPU index of GPU activity; takes the columns that say so out of `arrays`."""
        process = self.process_codes(arrays.pop("globalPid"), add=True)
        devices, device = distinct(arrays.pop("deviceId"))
        pairs, codes = _pairs(process, device, len(devices))
        positions = [
            self.devices.position(pid_of(self.global_pids[p]), int(devices[d])) for p, d in pairs
        ]
        return process, relabel(codes, np.array(positions, np.int32))

    def named(self, ids: I32) -> tuple[I32, list[str]]:
        """Index into distinct texts, and the texts; ids with equal text become one."""
        found, codes = distinct(ids)
        index: dict[str, int] = {}
        new = [index.setdefault(t, len(index)) for t in self.database.strings(found.tolist())]
        return relabel(codes, np.array(new, np.int32)), list(index)


def _pairs(process: I32, device: I32, devices: int) -> tuple[list[tuple[int, int]], I32]:
    """List the combinations of process and device that occur, and that of each row."""
    if is_constant(process) and is_constant(device):
        both = int(process[0]), int(device[0])
        return [both], np.broadcast_to(np.int32(0), process.shape)
    found, codes = distinct(process * np.int64(devices) + device)
    return [divmod(pair, devices) for pair in found.tolist()], codes
