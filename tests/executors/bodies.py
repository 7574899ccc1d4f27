"""What runs on executors in tests. Importable there, as the functions of a program's modules are."""

import ctypes
import os
from pathlib import Path


def double(item: int) -> int:
    return 2 * item


def pid() -> int:
    return os.getpid()


def native_sleep() -> None:
    """Native code that never returns, and holds the interpreter lock."""
    ctypes.PyDLL(None).pause()


def note(file: Path | str, text: str = "x") -> None:
    descriptor = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(descriptor, f"{text}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)
