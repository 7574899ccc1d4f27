"""Where a PostgreSQL database is: a URL taken apart. Whatever is said of it leaves the password out."""

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import attrs
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from ares.errors import UsageError

#: The schema whose tables are ours, unless the URL names another one.
SCHEMA = "ares"
_LONGEST_NAME = 63

#: What a connection has unless the URL says otherwise: a server that has gone without a word is noticed within half a
#: minute, and who looks at the server's list of connections sees whose they are.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "application_name": "ares",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_UNREADABLE = (
    "the PostgreSQL URL cannot be read: it is postgresql://user:password@host:port/database?parameter=value, "
    "with what is special in a URL written as %40 for @, and so on"
)


@attrs.frozen
class Address:
    """A database, and the schema in it.

    ``name`` is what messages call it; ``parameters`` are libpq's, the password among them.
    """

    name: str
    schema: str
    parameters: dict[str, Any] = attrs.field(repr=False)


def parse(url: str) -> Address:
    """The address that a URL means: libpq's own form, with ``schema=`` among the parameters.

    Raises:
        UsageError: It means none.
    """
    # What a URL cannot be read for may be its password: no part of it is repeated in what is said.
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise UsageError(_UNREADABLE) from None
    # A password with a character that ends it here leaves an @ behind.
    if parts.fragment or "#" in url or "@" in parts.path or "@" in parts.query:
        raise UsageError(_UNREADABLE)
    schema = dict(query).get("schema", SCHEMA)
    if not schema or len(schema.encode()) > _LONGEST_NAME or "\0" in schema or schema.startswith("pg_"):
        raise UsageError(f"schema={schema!r} is no name that PostgreSQL gives to a schema")
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    for key, _ in query:
        if key not in known and key != "schema":
            what = f"{key!r}" if re.fullmatch(r"[a-z_]{1,30}", key) else "one"
            raise UsageError(f"the parameters of the PostgreSQL URL: there is no such parameter: {what}")
    rest = urlencode([pair for pair in query if pair[0] != "schema"], quote_via=quote)
    try:
        parameters = conninfo_to_dict(url.partition("?")[0] + (f"?{rest}" if rest else ""))
    except psycopg.Error:
        raise UsageError(_UNREADABLE) from None
    if not re.fullmatch(r"[0-9,]*", str(parameters.get("port") or "")):
        raise UsageError(_UNREADABLE)
    return Address(_name(parameters, schema), schema, {**_DEFAULTS, **parameters})


def _name(parameters: dict[str, Any], schema: str) -> str:
    """The URL again, without what is secret or beside the point."""
    hosts = str(parameters.get("host") or parameters.get("hostaddr") or "").split(",")
    ports = str(parameters.get("port") or "").split(",")
    query = {} if schema == SCHEMA else {"schema": schema}
    if any(host.startswith("/") for host in hosts):
        query = {"host": ",".join(hosts), **({"port": ",".join(ports)} if any(ports) else {}), **query}
        where = ""
    else:
        ports += ports[-1:] * (len(hosts) - len(ports))
        pairs = zip(hosts, ports, strict=False)
        where = ",".join(_bracketed(host) + (f":{port}" if port else "") for host, port in pairs)
    user = parameters.get("user")
    who = f"{quote(str(user))}@" if user else ""
    tail = f"?{urlencode(query, safe='/,')}" if query else ""
    return f"postgresql://{who}{where}/{quote(str(parameters.get('dbname') or ''))}{tail}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
