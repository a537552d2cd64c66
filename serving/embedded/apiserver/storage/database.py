"""The SQLite file: objects, and the log of what was before each change. One thread at a time may call it.

The log keeps only what was *before*: what was after is in the next entry or in the objects, so that each version
is written once. WAL with synchronous=FULL: an answer given is on the disk, as with etcd; many writes share one
sync (see `store`).
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from serving import errors
from serving.embedded.apiserver.storage.history import Change, Entry, History, Key, rebuild

SCHEMA = 1
_TABLES = (
    """CREATE TABLE objects (kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
       rv INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (kind, namespace, name))""",
    """CREATE TABLE log (rv INTEGER PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
       before BLOB)""",
    "CREATE TABLE epoch (rv INTEGER NOT NULL)",
)


class Contents(NamedTuple):
    """Everything that a store starts with."""

    objects: dict[str, dict[Key, Entry]]
    history: History


class Database:
    """One open file; `load` once, then `stage` and `commit` batches."""

    def __init__(self, path: Path, *, epoch: int, history: int) -> None:
        """Open or create the file, readable by its owner alone.

        Args:
            path: the file.
            epoch: first resourceVersion of a new file. Taken from the clock, so that a version from a file that
                was deleted is older than everything in the new one, and its holder lists again.
            history: changes kept.

        Raises:
            errors.UserError: it is not a database of ours, or is damaged.
        """
        self._history = history
        self._untrimmed = 0
        try:
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._prepare(path, epoch)
        except (sqlite3.Error, OSError) as error:
            raise errors.UserError(
                f"{path} cannot be used: {error}; restore it from a copy, or move it away to start empty"
            ) from error

    def _prepare(self, path: Path, epoch: int) -> None:
        run = self._connection.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run("PRAGMA busy_timeout=5000")
        found = run("PRAGMA user_version").fetchone()[0]
        if found > SCHEMA:
            raise errors.UserError(f"{path} was written by a newer version of slipway; use that one")
        if found == 0:
            run("BEGIN IMMEDIATE")
            for statement in _TABLES:
                run(statement)
            run("INSERT INTO epoch VALUES (?)", (epoch,))
            run(f"PRAGMA user_version={SCHEMA}")
            run("COMMIT")

    def load(self) -> Contents:
        """Read everything back.

        Raises:
            errors.UserError: the file is damaged.
        """
        try:
            return self._load()
        except (sqlite3.Error, ValueError, KeyError) as error:
            raise errors.UserError(
                f"the database is damaged: {error}; restore it from a copy, or move it away to start empty"
            ) from error

    def _load(self) -> Contents:
        run = self._connection.execute
        objects: dict[str, dict[Key, Entry]] = {}
        for kind, namespace, name, data in run("SELECT kind, namespace, name, data FROM objects"):
            objects.setdefault(kind, {})[Key(namespace, name)] = Entry(orjson.loads(data), data)
        rows = run(
            "SELECT rv, kind, namespace, name, before FROM log ORDER BY rv DESC LIMIT ?", (self._history,)
        )
        log = (
            (rv, kind, Key(namespace, name), Entry(orjson.loads(before), before) if before else None)
            for rv, kind, namespace, name, before in rows
        )
        changes = list(rebuild(log, objects))
        floor = changes[-1].version - 1 if changes else run("SELECT rv FROM epoch").fetchone()[0]
        history = History(self._history, floor)
        for change in reversed(changes):
            history.append(change)
        return Contents(objects, history)

    def stage(self, changes: Sequence[Change]) -> None:
        """Put the changes into a transaction; all of them or, when this raises `sqlite3.Error`, none.

        Takes some 20 us a change and waits for nothing. Not for another thread: every statement lets the
        interpreter's lock go, and getting it back from a busy one takes up to 5 ms each time.
        """
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            for change in changes:
                self._write(change)
            self._untrimmed += len(changes)
            if self._untrimmed > max(1, self._history // 20):
                run("DELETE FROM log WHERE rv <= ?", (changes[-1].version - self._history,))
                self._untrimmed = 0
        except sqlite3.Error:
            self._roll_back()
            raise

    def commit(self) -> None:
        """Bring what is staged to the disk, which may take a while; undo it when this raises `sqlite3.Error`."""
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _write(self, change: Change) -> None:
        run = self._connection.execute
        where = (change.kind, *change.key)
        if change.after is None:
            run("DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?", where)
        else:
            run(
                "INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (kind, namespace, name)"
                " DO UPDATE SET uid = excluded.uid, rv = excluded.rv, data = excluded.data",
                (*where, change.after.object["metadata"].get("uid", ""), change.version, change.after.body),
            )
        before = None if change.before is None else change.before.body
        run("INSERT INTO log VALUES (?, ?, ?, ?, ?)", (change.version, *where, before))

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._connection.close()
