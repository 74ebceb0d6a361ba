"""Storage options: Lance's documented names, converted for the object-store client.

One mapping goes to Lance and to Weir. Lance lets names it does not know pass in silence, and the
client refuses some that Lance knows; here each is checked, translated, or left to Lance alone. Names
are case-insensitive. As in Lance, an environment variable of the same name fills in what the mapping
does not say (``AWS_REGION``, ``AZURE_STORAGE_ACCOUNT_NAME``, ``TIMEOUT``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from weir.errors import OptionError

__all__ = ["AZURE", "GOOGLE", "S3", "ClientSettings", "Provider", "check_settings", "resolve_options"]

_CLIENT = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_max_frame_size",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "timeout",
    "user_agent",
)
_RETRIES = ("client_max_retries", "client_retry_timeout")
# What concerns only Lance's own reading and writing.
_LANCE_ONLY = (
    "download_retry_count",
    "expires_at_millis",
    "lance_aimd_additive_increment",
    "lance_aimd_burst_capacity",
    "lance_aimd_decrease_factor",
    "lance_aimd_initial_rate",
    "lance_aimd_max_rate",
    "lance_aimd_min_rate",
    "use_opendal",
)
# Where the table lies is said by its URI alone.
_SAID_BY_URI = "bucket"
_IGNORED = "ignored"
_HEADER = "headers."
_ENVIRONMENT_ONLY = {
    "azure_storage_allow_http": "allow_http",
    "azure_storage_use_http": "allow_http",
    "object_store_client_max_retries": "client_max_retries",
    "object_store_client_retry_timeout": "client_retry_timeout",
}


_URLS = frozenset({"endpoint", "metadata_endpoint", "msi_endpoint", "authority_host", "base_url"})
_MAY_HAVE_LINES = frozenset({"proxy_ca_certificate", "service_account_key"})
_NO_HOST = re.compile(r"[\s<>\"{}|\\^`]")


@dataclass(frozen=True, slots=True)
class Provider:
    """The names of the options of one kind of object store.

    Parameters
    ----------
    name : str
        For messages, as in "S3".
    spellings : mapping of str to str
        Every accepted spelling in lower case, with the client's name for it.
    """

    name: str
    spellings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What the object-store client is opened with.

    Parameters
    ----------
    config : dict
        Options of the store and of its HTTP client.
    retries : dict
        ``max_retries`` (number) and ``retry_timeout`` (timedelta), where they were given; the client
        retries 10 times within 3 minutes by default.
    headers : dict
        HTTP headers to send with every request.
    """

    config: dict[str, str]
    retries: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


def _provider(name: str, prefix: str, options: Mapping[str, tuple[str, ...]]) -> Provider:
    spellings: dict[str, str] = {}
    for canonical, others in options.items():
        for spelling in (canonical, *others):
            spellings[spelling] = canonical
            spellings[f"{prefix}{spelling}"] = canonical
    for option in _CLIENT:
        spellings[option] = spellings[f"{prefix}{option}"] = option
    # Lance documents the first name; the second is the one its client has.
    spellings["request_timeout"] = "timeout"
    spellings.update({option: option for option in _RETRIES})
    spellings.update(dict.fromkeys(_LANCE_ONLY, _IGNORED))
    return Provider(name, spellings)


S3 = _provider(
    "S3",
    "aws_",
    {
        "access_key_id": (),
        "bucket": ("bucket_name",),
        "checksum_algorithm": (),
        "conditional_put": (),
        "container_authorization_token_file": (),
        "container_credentials_full_uri": (),
        "container_credentials_relative_uri": (),
        "copy_if_not_exists": (),
        "default_region": (),
        "disable_bulk_delete": (),
        "disable_tagging": (),
        "endpoint": ("endpoint_url",),
        "aws_endpoint_url_s3": (),
        "endpoint_url_sts": (),
        "imdsv1_fallback": (),
        "metadata_endpoint": (),
        "region": (),
        "request_payer": (),
        "role_arn": (),
        "role_session_name": (),
        "s3_express": (),
        "secret_access_key": (),
        "server_side_encryption": (),
        "session_token": ("token",),
        "skip_signature": (),
        "sse_bucket_key_enabled": (),
        "sse_customer_key_base64": (),
        "sse_kms_key_id": (),
        "unsigned_payload": (),
        "virtual_hosted_style_request": (),
        "web_identity_token_file": (),
    },
)
GOOGLE = _provider(
    "Google Cloud Storage",
    "google_",
    {
        "application_credentials": (),
        "base_url": (),
        "bearer_token": ("storage_token",),
        "bucket": ("bucket_name",),
        "service_account": ("service_account_path",),
        "service_account_key": (),
        "skip_signature": (),
    },
)
AZURE = _provider(
    "Azure",
    "azure_",
    {
        "account_key": (
            "access_key",
            "master_key",
            "storage_account_key",
            "storage_access_key",
            "storage_master_key",
        ),
        "account_name": ("storage_account_name",),
        "authority_host": ("storage_authority_host",),
        "bucket": ("container_name",),
        "client_id": ("storage_client_id",),
        "client_secret": ("storage_client_secret",),
        "credential_type": (),
        "disable_tagging": (),
        "encryption_key": (),
        "endpoint": ("storage_endpoint",),
        "fabric_cluster_identifier": (),
        "fabric_session_token": (),
        "fabric_token_service_url": (),
        "fabric_workload_host": (),
        "federated_token_file": (),
        "msi_endpoint": ("identity_endpoint",),
        "msi_resource_id": (),
        "object_id": (),
        "sas_key": ("sas_token", "storage_sas_key", "storage_sas_token"),
        "skip_signature": (),
        "tenant_id": ("authority_id", "storage_tenant_id", "storage_authority_id"),
        "token": ("bearer_token", "storage_token"),
        "use_azure_cli": (),
        "use_emulator": ("storage_use_emulator", "object_store_use_emulator"),
        "use_fabric_endpoint": (),
    },
)


def resolve_options(
    provider: Provider, options: Mapping[Any, Any], environment: Mapping[str, str]
) -> ClientSettings:
    """Check storage options and translate them for the client.

    Parameters
    ----------
    provider : Provider
        The kind of store.
    options : mapping of str to str
        What the caller gave.
    environment : mapping of str to str
        Environment variables, which fill in what ``options`` do not say.

    Raises
    ------
    OptionError
        An option is unknown, is no text, or is given twice under two names.

    Examples
    --------
    >>> resolve_options(S3, {"AWS_Endpoint": "http://127.0.0.1:9000"}, {"AWS_REGION": "eu-west-1"}).config
    {'endpoint': 'http://127.0.0.1:9000', 'region': 'eu-west-1'}
    >>> resolve_options(S3, {"aws_reigon": "eu-west-1"}, {})
    Traceback (most recent call last):
    weir.errors.OptionError: Unknown storage option for S3: 'aws_reigon'. Did you mean 'aws_region'?
    """
    chosen: dict[str, str] = {}
    spelled: dict[str, str] = {}
    headers: dict[str, str] = {}
    for given, value in options.items():
        if not isinstance(given, str) or not isinstance(value, str):
            raise OptionError(
                f"Storage options are text: {given!r} is {value!r}",
                hint="Write numbers and truth values in quotes, as in 'true'",
            )
        spelling = given.lower()
        if spelling.startswith(_HEADER):
            headers[spelling.removeprefix(_HEADER)] = value
            continue
        canonical = provider.spellings.get(spelling)
        if canonical is None:
            raise _unknown(provider, given)
        if canonical in chosen and canonical != _IGNORED and chosen[canonical] != value:
            raise OptionError(
                f"The storage options {spelled[canonical]!r} and {given!r} mean the same but differ",
                hint="Give one of them",
            )
        chosen[canonical] = value
        spelled[canonical] = given
    for variable, value in environment.items():
        spelling = variable.lower()
        canonical = _ENVIRONMENT_ONLY.get(spelling) or provider.spellings.get(spelling)
        if canonical is not None:
            chosen.setdefault(canonical, value)
    return _settings(chosen, headers)


def _settings(chosen: dict[str, str], headers: dict[str, str]) -> ClientSettings:
    retries: dict[str, Any] = {}
    if (text := chosen.pop("client_max_retries", None)) is not None:
        retries["max_retries"] = _whole_number("client_max_retries", text)
    if (text := chosen.pop("client_retry_timeout", None)) is not None:
        retries["retry_timeout"] = timedelta(seconds=_whole_number("client_retry_timeout", text))
    chosen.pop(_IGNORED, None)
    chosen.pop(_SAID_BY_URI, None)
    return ClientSettings(chosen, retries, headers)


def check_settings(settings: ClientSettings) -> None:
    """Refuse values that the client would not answer with an error, but with a panic when it is first used.

    Raises
    ------
    OptionError
        Naming the option.
    """
    for option, value in (*settings.config.items(), *settings.headers.items()):
        _check_text(option, value)


def _check_text(option: str, value: str) -> None:
    if option in _MAY_HAVE_LINES:
        return
    if not value.isascii() or any(ord(character) < 32 or character == "\x7f" for character in value):
        raise OptionError(
            f"The storage option {option!r} has characters that a request cannot carry",
            hint="Give it in ASCII without line ends; was it read from a file that ends in one?",
        )
    if option in _URLS and not _is_url(value):
        raise OptionError(
            f"The storage option {option!r} is not a URL: {value!r}",
            hint="Give scheme, host and, if need be, port, as in 'http://127.0.0.1:9000'",
        )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    name = host if ":" in host else host.strip(".")
    fits = parts.scheme in ("http", "https") and not _NO_HOST.search(parts.netloc)
    return fits and bool(name) and port != 0


def _whole_number(option: str, text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise OptionError(f"The storage option {option!r} must be a whole number: {text!r}")


def _unknown(provider: Provider, given: str) -> OptionError:
    if given.lower() in ("profile", "aws_profile"):
        return OptionError(
            f"A profile cannot be given as the storage option {given!r}",
            hint="Give 'aws_access_key_id', 'aws_secret_access_key' and, if any, 'aws_session_token'",
        )
    near = difflib.get_close_matches(given.lower(), provider.spellings, n=2, cutoff=0.75)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else "See the object stores guide of Lance"
    return OptionError(f"Unknown storage option for {provider.name}: {given!r}", hint=hint)
