"""The SQLite file: the objects, and a log of the state before each change. For one thread at a time.

The state after a change is not in its log entry: it is in the next log entry of the same object, or in the
table of objects. The log thus has each version once. With WAL and synchronous=FULL a committed transaction is
on the disk, as with etcd; many writes share one sync.
"""

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from serving import errors
from serving.embedded.apiserver.storage.history import (
    ChangeHistory,
    LogEntry,
    ObjectChange,
    ObjectKey,
    ObjectVersion,
    rebuild,
)

SCHEMA = 1
"""The version of the tables, in SQLite's `user_version`; 0 is a new file."""
_TABLES = (
    """CREATE TABLE objects (
       kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
       rv INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (kind, namespace, name))""",
    """CREATE TABLE log (
       rv INTEGER PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
       before BLOB)""",
    "CREATE TABLE epoch (rv INTEGER NOT NULL)",
)
"""`rv` is a resourceVersion. `data` and `before` are objects in JSON; NULL is no object. `epoch` is a table
of one row."""
_SLACK = 1 / 20
"""The log may exceed its bounds by this share of them, so that not every change pays for a trim."""
_TRIMMED_BYTES = 16 * 1024 * 1024
"""A trim ends once it has removed so many bytes, after some tens of milliseconds: requests wait for it."""


class DatabaseContents(NamedTuple):
    """The objects and the history that a store starts with."""

    objects: dict[str, dict[ObjectKey, ObjectVersion]]
    history: ChangeHistory


class Database:
    """One open file: call `load` once, then `stage` and `commit` for each batch."""

    def __init__(self, path: Path, *, epoch: int, history: int, history_bytes: float = math.inf) -> None:
        """Open or create the file, readable by its owner alone.

        Args:
            path: the file.
            epoch: first resourceVersion of a new file. It comes from the clock, so that versions of a deleted
                file are lower than those of the new one, and clients that hold them list again.
            history: the most changes that are kept.
            history_bytes: the most bytes of their objects that are kept, in memory and in the file.

        Raises:
            errors.UserError: the file is damaged, or not a database of Slipway.
        """
        self._history, self._history_bytes = history, history_bytes
        self._untrimmed = 0
        """Changes staged since the last trim."""
        self._log_bytes = 0
        """Bytes of the objects in the committed log."""
        self._staged_bytes = 0
        """By how many bytes the staged transaction changes `_log_bytes`: changes add, a trim subtracts."""
        try:
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._prepare(path, epoch)
        except (sqlite3.Error, OSError) as error:
            raise errors.UserError(
                f"{path} cannot be used: {error}; restore it from a copy, or move it away to start empty"
            ) from error

    def _prepare(self, path: Path, epoch: int) -> None:
        """Configure the connection, and create the tables of a new file."""
        run = self._connection.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run("PRAGMA busy_timeout=5000")
        schema = run("PRAGMA user_version").fetchone()[0]
        if schema > SCHEMA:
            raise errors.UserError(f"{path} was written by a newer version of slipway; use that one")
        if schema == 0:
            run("BEGIN IMMEDIATE")
            for statement in _TABLES:
                run(statement)
            run("INSERT INTO epoch VALUES (?)", (epoch,))
            run(f"PRAGMA user_version={SCHEMA}")
            run("COMMIT")

    def load(self) -> DatabaseContents:
        """Read the objects and the history.

        Raises:
            errors.UserError: the file is damaged.
        """
        try:
            return self._load()
        except (sqlite3.Error, ValueError, KeyError) as error:
            raise errors.UserError(
                f"the database is damaged: {error}; restore it from a copy, or move it away to start empty"
            ) from error

    def _load(self) -> DatabaseContents:
        run = self._connection.execute
        objects: dict[str, dict[ObjectKey, ObjectVersion]] = {}
        for kind, namespace, name, data in run("SELECT kind, namespace, name, data FROM objects"):
            objects.setdefault(kind, {})[ObjectKey(namespace, name)] = ObjectVersion(orjson.loads(data), data)
        rows = run(
            "SELECT rv, kind, namespace, name, before FROM log ORDER BY rv DESC LIMIT ?", (self._history,)
        )
        log = (
            LogEntry(
                rv,
                kind,
                ObjectKey(namespace, name),
                ObjectVersion(orjson.loads(before), before) if before else None,
            )
            for rv, kind, namespace, name, before in rows
        )
        changes: list[ObjectChange] = []  # newest first
        size = 0
        for change in rebuild(log, objects):
            changes.append(change)
            size += change.size
            if size > self._history_bytes:
                break  # the history forgets this change at once; older changes need not be read
        self._log_bytes = int(run("SELECT total(length(before)) FROM log").fetchone()[0])
        floor = changes[-1].version - 1 if changes else run("SELECT rv FROM epoch").fetchone()[0]
        history = ChangeHistory(self._history, floor, self._history_bytes)
        for change in reversed(changes):
            history.append(change)
        return DatabaseContents(objects, history)

    def stage(self, changes: Sequence[ObjectChange]) -> None:
        """Begin a transaction with the changes, oldest first; on `sqlite3.Error`, roll it back.

        A change takes some 20 us. Call this on the event loop: each SQLite statement releases the
        interpreter's lock, and another thread would wait up to 5 ms to take it back from a busy loop.
        """
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        self._staged_bytes = 0
        try:
            for change in changes:
                self._write(change)
            self._untrimmed += len(changes)
            size = self._log_bytes + self._staged_bytes
            if self._untrimmed > max(1, self._history * _SLACK) or size > self._history_bytes * (1 + _SLACK):
                self._trim(changes[-1].version)
        except sqlite3.Error:
            self._roll_back()
            raise

    def commit(self) -> None:
        """Commit the staged changes and wait for the disk; on `sqlite3.Error`, roll them back."""
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise
        self._log_bytes += self._staged_bytes

    def _trim(self, newest: int) -> None:
        """Delete the oldest changes beyond the bounds.

        The newest change is kept, as `load` takes the store's resourceVersion from it.
        """
        run = self._connection.execute
        newest_beyond_count = newest - self._history
        excess_bytes = self._log_bytes + self._staged_bytes - self._history_bytes
        removed_bytes = last_removed = 0
        rows = run("SELECT rv, ifnull(length(before), 0) FROM log WHERE rv < ? ORDER BY rv", (newest,))
        for rv, size in rows:
            is_within_bounds = rv > newest_beyond_count and removed_bytes >= excess_bytes
            if is_within_bounds or removed_bytes >= _TRIMMED_BYTES:
                break
            removed_bytes += size
            last_removed = rv
        rows.close()
        run("DELETE FROM log WHERE rv <= ?", (last_removed,))
        self._staged_bytes -= removed_bytes
        self._untrimmed = 0

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _write(self, change: ObjectChange) -> None:
        """Write a change into the objects and the log."""
        run = self._connection.execute
        row_key = (change.kind, *change.key)
        if change.after is None:
            run("DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?", row_key)
        else:
            run(
                "INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (kind, namespace, name)"
                " DO UPDATE SET uid = excluded.uid, rv = excluded.rv, data = excluded.data",
                (*row_key, change.after.object["metadata"].get("uid", ""), change.version, change.after.body),
            )
        before = None if change.before is None else change.before.body
        self._staged_bytes += 0 if before is None else len(before)
        run("INSERT INTO log VALUES (?, ?, ?, ?, ?)", (change.version, *row_key, before))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
