"""Where an SQLite file is, and what can be told about it without SQLite: causes are named before SQLite meets them."""

import os
import stat
from pathlib import Path

from ares.errors import StoreError


class Place:
    """The place of one file, which may be empty yet."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fsdecode(path)
        self.path = Path(self.name).absolute()
        self._text = str(self.path)
        #: Device and inode of the file that was opened.
        self.identity = (0, 0)

    def address(self, mode: str, *, immutable: bool) -> str:
        """The file as SQLite's URI."""
        # as_uri() quotes what an address gives a meaning to: ? and # are legal in file names.
        return f"{self.path.as_uri()}?mode={mode}{'&immutable=1' if immutable else ''}"

    def exists(self) -> bool:
        """Whether a file is there. Raises StoreError if it is something else, or cannot be looked at."""
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            raise StoreError(self.name, f"the file cannot be looked at ({error})") from error
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise StoreError(self.name, f"this is {kind}, not a database")
        return True

    def check_access(self) -> None:
        """Raise StoreError if this process may not write the file, and beside it."""
        if not self.path.parent.is_dir():
            raise StoreError(self.name, f"there is no folder {str(self.path.parent)!r}")
        for path, what in ((self.path, "the file"), (self.path.resolve().parent, "its folder")):
            if path.exists() and not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                raise StoreError(self.name, f"{what} is read-only for this process")

    def found(self) -> tuple[int, int]:
        """Device and inode of the file that is here now; zeros if there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0)
        return (found.st_dev, found.st_ino)

    def note(self) -> None:
        """Remember which file is here."""
        self.identity = self.found()

    def check(self) -> None:
        """Raise StoreError if the file that was noted is not here any more."""
        # SQLite writes on into a file without a name, and everything would be lost in silence.
        try:
            found = os.stat(self._text)  # noqa: PTH116 - Path.stat costs four times as much, and each commit pays it
        except OSError as error:
            raise StoreError(self.name, f"the file was taken away while it was open ({error.strerror})") from error
        if (found.st_dev, found.st_ino) != self.identity:
            raise StoreError(self.name, "the file was replaced by another one while it was open")

    def is_at_rest(self) -> bool:
        """Whether nobody has the file open for writing, by what stands beside it."""
        real = str(self.path.resolve())
        try:
            if Path(f"{real}-wal").stat().st_size:
                return False
        except OSError:
            return True
        return not Path(f"{real}-shm").exists()

    def stamp(self) -> tuple[int, int, int]:
        """Something that changes with the file's content."""
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)
