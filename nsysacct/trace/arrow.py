"""ADBC connections and arrow arrays: SQLite rows as columns, with no Python object a row.

Both libraries are imported on first use: a command that reads no trace does not wait for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.trace.database import Database

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


class Connection:
    """An ADBC connection; not through its dbapi module, whose import costs a fifth of a second."""

    def __init__(self, database: Database) -> None:
        import adbc_driver_manager
        import adbc_driver_sqlite

        self._manager = adbc_driver_manager
        self.errors: tuple[type[BaseException], ...] = (adbc_driver_manager.Error, OSError)
        try:
            self._database = adbc_driver_sqlite.connect(database.uri)
            self._connection = adbc_driver_manager.AdbcConnection(self._database)
        except self.errors as error:
            raise database.damage(error) from None

    def query(self, sql: str, rows: int) -> Any:
        """Run a query and return its only record batch, or None when it has no rows."""
        import pyarrow as pa

        statement = self._manager.AdbcStatement(self._connection)
        try:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows + 1)})
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            reader = pa.RecordBatchReader.from_stream(stream)
            batches = [batch for batch in reader if batch.num_rows]
            reader.close()
        finally:
            statement.close()
        if len(batches) > 1:
            raise OSError("more rows than the table has")
        return batches[0] if batches else None

    def close(self) -> None:
        """Close connection and database."""
        self._connection.close()
        self._database.close()


def values_of(array: Any) -> tuple[I64, Bool | None]:
    """Values of an arrow int64 array (0 where NULL) and which are NULL (None: none is)."""
    size, offset = len(array), array.offset
    validity, data = array.buffers()
    values = np.frombuffer(data, np.int64, size, offset * 8) if size else np.empty(0, np.int64)
    if not array.null_count or validity is None:
        return values, None
    bits = np.frombuffer(validity, np.uint8)
    present = np.unpackbits(bits, bitorder="little", count=offset + size)[offset:].astype(bool)
    return values, ~present
