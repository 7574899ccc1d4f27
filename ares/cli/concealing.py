"""Keeps the passwords in the addresses of stores out of everything that a command says.

An address comes by ``--store`` or ``ARES_STORE`` and may be echoed by anybody: by ares, by a driver, by what a target's
``runtime(store)`` raises. So the words of a command line are looked at once, and what they hold is taken out of each
line and each document at the last moment. What steps print is theirs, and passes by.
"""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: Scheme and user, password, the rest. A password that should have been escaped may hold any of the marks after it.
_WITH_USER = re.compile(r"([^:]+://[^:/?#@]*):(.*)@(.*)", re.DOTALL)
#: A host and what should be a port, and is the password of somebody who forgot the host.
_WITHOUT_HOST = re.compile(r"([^:]+://[^:/?#@\[]*):(?!\d*(?:[/?#,]|$))([^/?#]*)(.*)", re.DOTALL)
_PLAIN = re.compile(r"[^:]+://[^:/?#@]*(:\d+)?/.*", re.DOTALL)
#: As libpq has it without a scheme: ``host=db password=secret``.
_KEYWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'?|\S+)", re.IGNORECASE)


def is_url(store: str) -> bool:
    """Whether a store is named by the address of a server, and is no file."""
    return "://" in store


def without_password(store: str) -> str:
    """What may be shown of what a store is called by: of an address, all but the password."""
    if not _SCHEME.match(store):
        return _KEYWORD.sub(r"\1***", store)
    address, mark, query = store.partition("?")
    if "@" not in address and "@" in query and not (_PLAIN.fullmatch(address) and _is_query(query)):
        address, mark, query = store, "", ""  # the mark belongs to a password
    for pattern, shown in ((_WITH_USER, r"\1@\3"), (_WITHOUT_HOST, r"\1\3")):
        address = pattern.sub(shown, address, count=1)
    kept = [pair for pair in query.split("&") if not _is_secret(pair)]
    return address + (mark if kept else "") + "&".join(kept)


def _is_query(text: str) -> bool:
    return all("=" in pair for pair in text.split("&"))


def _is_secret(pair: str) -> bool:
    name = unquote(pair.partition("=")[0]).lower()
    return "password" in name


class Concealed:
    """The passwords in the words of one command line.

    Args:
        words: its words, and what the environment says of the store.
    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._shown: dict[str, str] = {}
        for word in words:
            store = word.partition("=")[2] if word.startswith("--") else word
            shown = without_password(store)
            if shown != store:
                self._shown |= {store: shown, repr(store)[1:-1]: repr(shown)[1:-1], **_parts(store)}

    def __bool__(self) -> bool:
        return bool(self._shown)

    def text(self, text: str) -> str:
        """``text`` without them."""
        for secret, shown in self._shown.items():
            text = text.replace(secret, shown)
        return text

    def document(self, value: Any) -> Any:
        """A JSON document without them."""
        if not self._shown:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(name)): self.document(part) for name, part in value.items()}
        return [self.document(part) for part in value] if isinstance(value, list | tuple) else value


def _parts(store: str) -> dict[str, str]:
    """The password as a driver may write it that takes an address apart: never alone, it could be any word."""
    secrets = {form for each in _passwords(store) for form in (each, unquote(each)) if form}
    return {form.format(each): form.format("***") for each in secrets for form in (":{}@", "password={}")}


def _passwords(store: str) -> set[str]:
    if not _SCHEME.match(store):
        return {found[2].strip("'") for found in _KEYWORD.finditer(store)}
    of_user = _WITH_USER.fullmatch(store)
    pairs = store.partition("?")[2].split("&")
    return {pair.partition("=")[2] for pair in pairs if _is_secret(pair)} | ({of_user[2]} if of_user else set())
