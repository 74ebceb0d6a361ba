"""Commands of the service: run it, and create, list, rotate and revoke its keys."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weir.cli.options import AsJson, StorageOptions
from weir.cli.text_values import parse_storage_options
from weir.engine.durations import parse_duration
from weir.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.service.keys.key import Key
    from weir.service.keys.store import KeyStore

__all__ = ["create_key", "help_if_alone", "list_keys", "revoke_key", "rotate_key", "serve"]

Root = Annotated[
    str,
    typer.Argument(
        metavar="ROOT",
        help="The namespaces: a directory, or a location such as s3://bucket/prefix.",
        show_default=False,
    ),
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The id of the key.", show_default=False)]
Expires = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="How long the key is valid: 12h, 30d. Default: for ever.", show_default=False
    ),
]


def help_if_alone(context: typer.Context) -> None:
    """Make, list, rotate and revoke the keys of a service."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the service needs the package {error.name}", hint="Install weir-lance[service]"
        ) from error


def _keys(root: str, storage_option: list[str] | None) -> KeyStore:
    with _extra():
        from weir.service.keys.store import KeyStore
        from weir.storage.open import open_store
    return KeyStore(open_store(root, parse_storage_options(storage_option or ())))


def create_key(
    root: Root,
    name: Annotated[str, typer.Option(help="A name for the key.", show_default=False)],
    role: Annotated[
        str,
        typer.Option(
            metavar="admin|writer|reader",
            help="What it permits: everything; creating, writing and deleting namespaces; or reading.",
            show_default=False,
        ),
    ],
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Namespaces the key covers; a leading ! excludes. May be repeated. Default: all.",
            show_default=False,
        ),
    ] = None,
    expires: Expires = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
) -> None:
    """Create a key. It is shown once, and stored as a hash."""
    good_for = None if expires is None else parse_duration(expires, "expires")
    key, text = _keys(root, storage_option).create(name, role, namespaces or (), good_for)
    _show_new(key, text, json)


def rotate_key(
    root: Root,
    id: KeyId,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long the key is valid from now on: 12h, 30d. Default: its expiry stays as it was.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
) -> None:
    """Replace the secret of a key. The old one stops working everywhere within five seconds."""
    good_for = None if expires is None else parse_duration(expires, "expires")
    key, text = _keys(root, storage_option).rotate(id, good_for)
    _show_new(key, text, json)


def revoke_key(root: Root, id: KeyId, json: AsJson = False, storage_option: StorageOptions = None) -> None:
    """Revoke a key. It stops working everywhere within five seconds."""
    _keys(root, storage_option).revoke(id)
    _show({"id": id, "revoked": True}, json)


def list_keys(root: Root, json: AsJson = False, storage_option: StorageOptions = None) -> None:
    """List the keys, without their secrets."""
    for key in _keys(root, storage_option).list():
        _show(_shown(key), json)


def serve(
    root: Root,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to listen; port 0 picks a free one. Default: 127.0.0.1:8080.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file of options.", show_default=False)
    ] = None,
    max_request_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Largest request body, also after decompression. Default: 64 MiB.",
            show_default=False,
        ),
    ] = None,
    max_unindexed_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Unmerged bytes of a namespace beyond which writes are refused. Default: 2 GiB.",
            show_default=False,
        ),
    ] = None,
    compaction_interval: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time between two rounds of upkeep. Default: 30s.", show_default=False
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Memory for caches, unflushed rows and request bodies. Default: 2 GiB.",
            show_default=False,
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where the other processes on ROOT reach this one. Default: the listen address.",
            show_default=False,
        ),
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="A certificate in PEM.", show_default=False)
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its key in PEM.", show_default=False)
    ] = None,
    audit_log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File to append the audit log to: who created, changed or deleted what. Default: standard "
            "error.",
            show_default=False,
        ),
    ] = None,
    no_fsync: Annotated[
        bool, typer.Option("--no-fsync", help="Do not wait until the disk has what is written.")
    ] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Require no keys; on loopback only.")] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
) -> None:
    """Serve namespaces over HTTP until asked to end."""
    with _extra():
        from weir.service.options import ServiceOptions, options_of_file
        from weir.service.server import listening_line
        from weir.service.server import serve as run
    options: dict[str, Any] = {} if config is None else options_of_file(config)
    given: dict[str, Any] = {
        "listen": listen,
        "max_request_bytes": max_request_bytes,
        "max_unindexed_bytes": max_unindexed_bytes,
        "compaction_interval": None
        if compaction_interval is None
        else parse_duration(compaction_interval, "compaction-interval").total_seconds(),
        "memory": memory,
        "advertise": advertise,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "audit_log": audit_log,
        "fsync": False if no_fsync else None,
        "auth": False if no_auth else None,
        "storage_options": parse_storage_options(storage_option) if storage_option else None,
    }
    options.update({name: value for name, value in given.items() if value is not None})

    def listening(url: str) -> None:
        print(listening_line(url) if json else f"listening at {url}", flush=True)

    run(root, ServiceOptions(**options), listening)


def _shown(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "role": str(key.role),
        "namespaces": list(key.namespaces),
        "created_at": key.created_at.isoformat(),
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
    }


def _show_new(key: Key, text: str, as_json: bool) -> None:
    if as_json:
        _show({"id": key.id, "key": text}, True)
    else:
        print(f"id:  {key.id}\nkey: {text}\nIt is shown only this once.")


def _show(content: dict[str, object], as_json: bool) -> None:
    from json import dumps

    if as_json:
        print(dumps(content))
    else:
        print("  ".join(f"{name}: {value}" for name, value in content.items() if value not in (None, [])))
