"""The options of a service, from the command line and a file."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from weir.engine.durations import parse_duration
from weir.errors import OptionError

__all__ = ["ServiceOptions", "options_of_file", "parse_listen"]

_MEBIBYTE = 1024 * 1024
_DURATIONS = ("compaction_interval", "request_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How a service runs.

    Parameters
    ----------
    listen : str
        Address and port; port 0 picks a free one. Default ``127.0.0.1:8080``.
    max_request_bytes : int
        Most bytes of a request body, also after decompression. Default 64 MiB.
    max_unindexed_bytes : int
        Most unmerged bytes of a namespace; beyond that writes are refused for a while. Default 2 GiB.
    compaction_interval : float
        Seconds between two rounds of upkeep. Default 30.
    memory : int
        Bytes for caches, unflushed rows and request bodies. Default 2 GiB.
    request_timeout : float
        Seconds after which a request times out. Default 60.
    max_rows : int
        Most documents of one write. Default 100,000.
    max_attributes : int
        Most attributes of a namespace. Default 1,024.
    max_filter_depth : int
        Largest nesting depth of a filter. Default 32.
    max_queries : int
        Most queries of one request. Default 16.
    max_concurrency : int
        Most concurrent requests of one namespace. Default 256.
    requests_per_second : float
        Most requests per second of one key; 0, the default, for no limit.
    fsync : bool
        Whether acknowledged writes survive the loss of power. Default True.
    auth : bool
        Whether requests need a key. Default True.
    advertise : str
        The address at which the other processes on the root reach this one. Default: the listen address, or
        the machine's name if it listens on all addresses.
    tls_certificate, tls_key : str
        PEM files; both or none.
    audit_log : str
        A file to append the audit log to: who created, changed or deleted what. Default: standard error.
    lease_ttl : float
        Seconds after which the namespaces of a vanished process on another machine are taken over. Default
        60. Each namespace that a process holds costs two or three writes to the store in that time.
    storage_options : mapping of str to str
        Options of the object store.
    """

    listen: str = "127.0.0.1:8080"
    max_request_bytes: int = 64 * _MEBIBYTE
    max_unindexed_bytes: int = 2048 * _MEBIBYTE
    compaction_interval: float = 30.0
    memory: int = 2048 * _MEBIBYTE
    request_timeout: float = 60.0
    max_rows: int = 100_000
    max_attributes: int = 1024
    max_filter_depth: int = 32
    max_queries: int = 16
    max_concurrency: int = 256
    requests_per_second: float = 0.0
    fsync: bool = True
    auth: bool = True
    advertise: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    audit_log: str = ""
    lease_ttl: float = 60.0
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every option."""
        for one in fields(self):
            value = getattr(self, one.name)
            wanted: tuple[type, ...] = {
                "int": (int,),
                "float": (int, float),
                "bool": (bool,),
                "str": (str,),
            }.get(str(one.type), (Mapping,))
            if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
                raise OptionError(f"option {one.name} of the service cannot be {value!r:.60}", where=one.name)
            least: float = 0 if one.name == "requests_per_second" else 1e-3
            if wanted in ((int,), (int, float)) and float(getattr(self, one.name)) < least:
                raise OptionError(f"option {one.name} of the service must be more than 0", where=one.name)
        host, _ = parse_listen(self.listen)
        if not self.auth and not _is_loopback(host):
            raise OptionError(
                f"a service without keys listens on loopback only, not at {host}",
                where="no-auth",
                hint="Make a key with 'weir keys create'",
            )
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise OptionError("TLS needs a certificate and its key", where="tls-certificate")


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port.

    Raises
    ------
    OptionError
        If the text lacks either.

    Examples
    --------
    >>> parse_listen("127.0.0.1:0"), parse_listen("[::1]:8080")
    (('127.0.0.1', 0), ('::1', 8080))
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise OptionError(
            f"an address and a port are expected, got {text!r}", where="listen", hint="Such as 127.0.0.1:8080"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def options_of_file(path: Path) -> dict[str, Any]:
    """Return the options in a TOML file, named as on the command line, with durations as text.

    Raises
    ------
    OptionError
        If it cannot be read, or has an unknown option.
    """
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OptionError(f"the file of options cannot be read: {error}", where="config") from error
    known = {one.name for one in fields(ServiceOptions)}
    options: dict[str, Any] = {}
    for name, value in given.items():
        option = name.replace("-", "_")
        if option in ("no_fsync", "no_auth"):
            if not isinstance(value, bool):
                raise OptionError(f"{name} is true or false", where="config")
            options[option.removeprefix("no_")] = not value
            continue
        if option not in known:
            raise OptionError(
                f"there is no option {name!r}",
                where="config",
                hint=f"The options are {', '.join(sorted(known))}",
            )
        if option in _DURATIONS or option == "lease_ttl":
            value = parse_duration(str(value), name).total_seconds()
        options[option] = value
    return options
