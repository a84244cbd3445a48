"""Tables of a history file and the steps from each version to the next (see `history`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

APPLICATION_ID = 0x6E737961  # "nsya"
"""Marks a file as a history, so that no other SQLite file is taken for one and altered."""


def _first_schema(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE captures (
            id INTEGER PRIMARY KEY,
            series TEXT NOT NULL,
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            commit_id TEXT,
            added_at TEXT,
            tool TEXT NOT NULL,
            engine TEXT NOT NULL,
            gpu TEXT NOT NULL,
            granularity TEXT NOT NULL,
            registry_digest TEXT NOT NULL,
            labels TEXT NOT NULL,
            layers TEXT NOT NULL,
            rounds INTEGER,
            account TEXT NOT NULL,
            UNIQUE (series, digest)
        )"""
    )
    connection.execute(
        """CREATE TABLE figures (
            capture_id INTEGER NOT NULL REFERENCES captures (id) ON DELETE CASCADE,
            name TEXT NOT NULL,
            value REAL NOT NULL,
            unit TEXT NOT NULL,
            PRIMARY KEY (capture_id, name)
        ) WITHOUT ROWID"""
    )


def _trend_view(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE INDEX figures_by_name ON figures (name, capture_id)")
    connection.execute(
        """CREATE VIEW trend AS
            SELECT c.series, f.name, f.value, f.unit, c.name AS capture, c.commit_id, c.added_at
            FROM captures AS c JOIN figures AS f ON f.capture_id = c.id ORDER BY c.id"""
    )


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first_schema, _trend_view)
"""Step i brings a file from version i to i + 1 (``PRAGMA user_version``). Never edit a step."""
