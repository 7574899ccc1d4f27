"""The file of an ``ExperienceMemory``: what it was asked about, and what became of it.

A decision is *asked* about, which is written down with what it looked like; when its execution ends it becomes an
*experience*, in one transaction: whoever dies in between has done either nothing or all of it. An experience is known
by its execution and when that began, its path and its round, so none is ever there twice. What is the latest counts: a
decision that is made anew takes the place of the old one, and an execution that ends again gives its experiences
another score.

Words are kept as hashes, salted with the branch point that they belong to. So a search finds what belongs to it and
nothing else, no character of a value can be mistaken for a part of a query, and no value can be read in the file. Names
are kept as bytes, since SQLite takes not every text as text.
"""

import os
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import attrs

from ares.plugins._evidence import telling, weights
from ares.plugins._own_file import Connection, OwnFile

#: "arex" in ASCII.
_APPLICATION_ID: Final = 0x61726578

_FORMATS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE asked (
            number INTEGER PRIMARY KEY AUTOINCREMENT, execution BLOB NOT NULL, path BLOB NOT NULL,
            round INTEGER NOT NULL, place TEXT NOT NULL, words TEXT NOT NULL, vector BLOB,
            asked_at INTEGER NOT NULL, UNIQUE (execution, path, round))""",
        """CREATE TABLE experiences (
            number INTEGER PRIMARY KEY AUTOINCREMENT, execution BLOB NOT NULL, began INTEGER NOT NULL,
            path BLOB NOT NULL, round INTEGER NOT NULL, place TEXT NOT NULL, words TEXT NOT NULL, vector BLOB,
            target BLOB NOT NULL, score REAL NOT NULL, learned_at INTEGER NOT NULL,
            UNIQUE (execution, began, path, round))""",
        "CREATE INDEX experiences_of_place ON experiences (place, number)",
        """CREATE VIRTUAL TABLE found USING fts5(
            words, content = 'experiences', content_rowid = 'number', tokenize = 'ascii')""",
        """CREATE TRIGGER experience_added AFTER INSERT ON experiences BEGIN
            INSERT INTO found(rowid, words) VALUES (new.number, new.words); END""",
        """CREATE TRIGGER experience_gone AFTER DELETE ON experiences BEGIN
            INSERT INTO found(found, rowid, words) VALUES ('delete', old.number, old.words); END""",
        """CREATE TRIGGER experience_changed AFTER UPDATE OF words ON experiences BEGIN
            INSERT INTO found(found, rowid, words) VALUES ('delete', old.number, old.words);
            INSERT INTO found(rowid, words) VALUES (new.number, new.words); END""",
    ),
)
_PROBE: Final = (
    "SELECT * FROM asked LIMIT 1",
    "SELECT * FROM experiences LIMIT 1",
    "SELECT number FROM found JOIN experiences ON number = found.rowid WHERE found MATCH 'none' ORDER BY rank LIMIT 1",
)

#: Words of a question that experiences are looked up by: those that tell the most apart.
_LOOKED_UP: Final = 16
#: Experiences that count for a question, at most; the newest that are compared by their vectors; and the newest from
#: which it is learned what words tell.
NEAREST: Final = 50
_COMPARED: Final = 1_000
_LEARNED_FROM: Final = 300


def place_of(workflow_id: str, step_id: str) -> bytes:
    """What stands for a branch point, in whichever execution."""
    return blake2b(_bytes(workflow_id) + b"\0" + _bytes(step_id), digest_size=16).digest()


def hashed(place: bytes, words: Iterable[str]) -> tuple[str, ...]:
    """Words of a branch point, as they are kept. The first stands for the branch point itself."""
    return tuple(blake2b(_bytes(word), digest_size=6, key=place).hexdigest() for word in ("", *words))


@attrs.frozen
class Question:
    """One decision that the memory was asked about; ``asked_at`` is in nanoseconds since the epoch."""

    execution_id: str
    path: str
    round: int
    place: bytes
    words: tuple[str, ...]
    vector: "array[float] | None"
    asked_at: int


@attrs.frozen
class Asked:
    """A decision that is written down; ``asked_at`` is in nanoseconds since the epoch."""

    number: int
    path: str
    round: int
    asked_at: int


@attrs.frozen
class Found:
    """One experience that may be similar to a question."""

    target: str
    score: float
    words: frozenset[str]
    vector: "array[float] | None"


class Experiences:
    """See above.

    Args:
        path: Of the file.
        most: How many experiences, and how many decisions that nothing became of yet, are kept; the oldest go first.
    """

    def __init__(self, path: str | os.PathLike[str], most: int) -> None:
        self._most = most
        self._file = OwnFile(
            path, owner="what an ExperienceMemory learned", application_id=_APPLICATION_ID, migrations=_FORMATS,
            probe=_PROBE,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The file's, for people."""
        return self._file.name

    def open(self) -> None:
        """See ``OwnFile``. Raises ``StoreError``, as all that follows."""
        self._file.open()

    def close(self) -> None:
        """See ``OwnFile``."""
        self._file.close()

    def count(self) -> int:
        """How many experiences there are."""
        return self._file.read(lambda connection: _count(connection, "experiences"))

    # --- what it was asked about ----------------------------------------------------------------------------------

    def note(self, questions: Iterable[Question]) -> None:
        """Write down what was asked; what was asked before about the same decision is forgotten."""

        def work(connection: Connection) -> None:
            for each in questions:
                key = (_bytes(each.execution_id), _bytes(each.path))
                vector = None if each.vector is None else each.vector.tobytes()
                connection.execute(
                    "INSERT OR REPLACE INTO asked (execution, path, round, place, words, vector, asked_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*key, each.round, each.place.hex(), " ".join(each.words), vector, each.asked_at),
                )
            _trim(connection, "asked", self._most)

        self._file.write(work)

    def asked_in(self, execution_id: str) -> tuple[list[Asked], bool]:
        """What was asked about in an execution, and whether it has left experiences already."""

        def work(connection: Connection) -> tuple[list[Asked], bool]:
            key = (_bytes(execution_id),)
            rows = connection.execute("SELECT number, path, round, asked_at FROM asked WHERE execution = ?", key)
            asked = [Asked(number, _str(path), turn, at) for number, path, turn, at in rows]
            known = connection.execute("SELECT 1 FROM experiences WHERE execution = ? LIMIT 1", key).fetchone()
            return asked, known is not None

        return self._file.read(work)

    def open_executions(self, most: int) -> list[str]:
        """The executions in which something was asked about that nothing became of yet; the newest first."""

        def work(connection: Connection) -> list[str]:
            rows = connection.execute(
                "SELECT execution FROM asked GROUP BY execution ORDER BY max(number) DESC LIMIT ?", (most,)
            )
            return [_str(name) for (name,) in rows]

        return self._file.read(work)

    # --- what became of it ------------------------------------------------------------------------------------------

    def learn(
        self, execution_id: str, began: int, asked: Sequence[Asked], targets: Mapping[int, str], score: float
    ) -> int:
        """Make experiences of the decisions of an execution that has ended, and of none of them anything twice.

        Args:
            execution_id: Which one.
            began: When it began, by which it is told from another of the same id.
            asked: What is settled by this, as ``asked_in`` gave it.
            targets: What was decided, by ``Asked.number``; of those that are missing there is nothing to learn.
            score: How well the execution went, from 0 to 1; also that of the experiences that it left before.

        Returns:
            How many experiences there are of it now.
        """

        def work(connection: Connection) -> int:
            now = time.time_ns()
            for number, target in targets.items():
                connection.execute(
                    """INSERT INTO experiences
                        (execution, began, path, round, place, words, vector, target, score, learned_at)
                        SELECT execution, ?, path, round, place, words, vector, ?, ?, ? FROM asked WHERE number = ?
                        ON CONFLICT DO UPDATE SET words = excluded.words, vector = excluded.vector,
                        place = excluded.place, target = excluded.target""",
                    (began, _bytes(target), score, now, number),
                )
            connection.executemany("DELETE FROM asked WHERE number = ?", [(each.number,) for each in asked])
            changed = connection.execute(
                "UPDATE experiences SET score = ?, learned_at = ? WHERE execution = ? AND began = ?",
                (score, now, _bytes(execution_id), began),
            ).rowcount
            _trim(connection, "experiences", self._most)
            return changed

        return self._file.write(work)

    # --- what is similar --------------------------------------------------------------------------------------------

    def by_words(self, place: bytes, words: tuple[str, ...]) -> tuple[list[Found], dict[str, float]]:
        """The experiences that full-text search ranks first (BM25; of equals the newest), and how much words weigh.

        Args:
            place: The branch point.
            words: Of the question, as ``hashed`` gives them.

        Returns:
            50 experiences at most; and the weight of each word that the newest 300 have.
        """

        def work(connection: Connection) -> tuple[list[Found], dict[str, float]]:
            newest = connection.execute(
                "SELECT target, score, words FROM experiences WHERE place = ? ORDER BY number DESC LIMIT ?",
                (place.hex(), _LEARNED_FROM),
            )
            weight = weights((target, score, text.split()) for target, score, text in newest)
            if not weight:
                return [], {}
            asked = " OR ".join(f'"{word}"' for word in telling(words, weight, _LOOKED_UP))
            rows = connection.execute(
                "SELECT target, score, words FROM experiences WHERE number IN"
                " (SELECT rowid FROM found WHERE found MATCH ? ORDER BY rank, rowid DESC LIMIT ?)",
                (asked, NEAREST),
            )
            # The first word, which all of them have, is no part of what is compared.
            found = [Found(_str(to), score, frozenset(text.split()[1:]), None) for to, score, text in rows]
            return found, weight

        return self._file.read(work)

    def by_place(self, place: bytes) -> list[Found]:
        """The newest experiences of a branch point that have a vector, 1,000 at most."""

        def work(connection: Connection) -> list[Found]:
            rows = connection.execute(
                "SELECT target, score, vector FROM experiences WHERE place = ? AND vector IS NOT NULL"
                " ORDER BY number DESC LIMIT ?",
                (place.hex(), _COMPARED),
            )
            return [Found(_str(to), score, frozenset(), array("f", vector)) for to, score, vector in rows]

        return self._file.read(work)


def _count(connection: Connection, table: str) -> int:
    ((count,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608 - one of two names
    return int(count)


def _trim(connection: Connection, table: str, most: int) -> None:
    """Forget the oldest."""
    surplus = _count(connection, table) - most
    if surplus > 0:
        oldest = f"SELECT number FROM {table} ORDER BY number LIMIT ?"  # noqa: S608 - one of two names
        connection.execute(f"DELETE FROM {table} WHERE number IN ({oldest})", (surplus,))  # noqa: S608


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _str(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")
