"""Storage options: every spelling that Lance knows, and none that it does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, S3Store

from weir.errors import OptionError, StorageError
from weir.storage.object_store_options import AZURE, GOOGLE, S3, Provider, resolve_options
from weir.storage.open import open_store

PROVIDERS: list[tuple[Provider, Any]] = [(S3, S3Store), (GOOGLE, GCSStore), (AZURE, AzureStore)]

# The names in the object stores guide of Lance.
DOCUMENTED = {
    "S3": "aws_region region aws_access_key_id access_key_id aws_secret_access_key secret_access_key "
    "aws_session_token session_token aws_endpoint endpoint aws_virtual_hosted_style_request "
    "virtual_hosted_style_request aws_s3_express s3_express aws_server_side_encryption aws_sse_kms_key_id "
    "aws_sse_bucket_key_enabled",
    "Google Cloud Storage": "google_service_account service_account google_service_account_key "
    "service_account_key google_application_credentials application_credentials google_storage_token",
    "Azure": "azure_storage_account_name account_name azure_storage_account_key account_key azure_client_id "
    "client_id azure_client_secret client_secret azure_tenant_id tenant_id azure_storage_sas_key "
    "azure_storage_sas_token sas_key sas_token azure_storage_token bearer_token token "
    "azure_storage_use_emulator object_store_use_emulator use_emulator azure_endpoint endpoint "
    "azure_use_fabric_endpoint use_fabric_endpoint azure_msi_endpoint azure_identity_endpoint "
    "identity_endpoint msi_endpoint azure_object_id object_id azure_msi_resource_id msi_resource_id "
    "azure_federated_token_file federated_token_file azure_use_azure_cli use_azure_cli "
    "azure_disable_tagging disable_tagging",
}
GENERAL = (
    "allow_http download_retry_count allow_invalid_certificates connect_timeout request_timeout timeout "
    "user_agent proxy_url proxy_ca_certificate proxy_excludes client_max_retries client_retry_timeout"
)


@pytest.mark.parametrize(("provider", "client"), PROVIDERS, ids=lambda value: getattr(value, "name", ""))
def test_documented_names_are_known(provider: Provider, client: Any) -> None:
    for name in f"{DOCUMENTED[provider.name]} {GENERAL}".split():
        for spelling in (name, name.upper(), name.title()):
            resolve_options(provider, {spelling: "1"}, {})


@pytest.mark.parametrize(("provider", "client"), PROVIDERS, ids=lambda value: getattr(value, "name", ""))
def test_client_knows_every_name_it_is_given(provider: Provider, client: Any) -> None:
    """The client refuses unknown names before it looks at values or credentials."""
    names = {
        name
        for spelling in provider.spellings
        for name in resolve_options(provider, {spelling: "1"}, {}).config
    }
    assert len(names) > 20
    for name in names:
        try:
            client("bucket", config={name: "1"})
        except UnknownConfigurationKeyError:
            pytest.fail(f"the client does not know {name!r}")
        except Exception:
            pass  # the value "1" does not fit, or something is missing


@given(
    spelling=st.sampled_from(sorted(S3.spellings)),
    value=st.from_regex(r"[1-9][0-9]{0,3}", fullmatch=True),
    other=st.from_regex(r"[1-9][0-9]{0,3}", fullmatch=True),
)
def test_spellings_of_one_option_are_one_option(spelling: str, value: str, other: str) -> None:
    canonical = S3.spellings[spelling]
    twin = next(name for name in reversed([*S3.spellings]) if S3.spellings[name] == canonical)
    settings = resolve_options(S3, {spelling: value, twin: value}, {})
    assert settings == resolve_options(S3, {twin.upper(): value}, {})
    if twin != spelling and value != other and canonical != "ignored":
        with pytest.raises(OptionError, match="mean the same"):
            resolve_options(S3, {spelling: value, twin: other}, {})


def test_translation() -> None:
    settings = resolve_options(
        S3,
        {
            "AWS_ACCESS_KEY_ID": "id",
            "aws_token": "token",
            "request_timeout": "60s",
            "aws_allow_http": "true",
            "client_max_retries": "7",
            "client_retry_timeout": "90",
            "headers.X-Tenant": "seven",
            "lance_aimd_max_rate": "100",
            "aws_bucket": "elsewhere",
        },
        {},
    )
    assert settings.config == {
        "access_key_id": "id",
        "session_token": "token",
        "timeout": "60s",
        "allow_http": "true",
    }
    assert settings.retries == {"max_retries": 7, "retry_timeout": timedelta(seconds=90)}
    assert settings.headers == {"x-tenant": "seven"}


def test_environment() -> None:
    environment = {
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "TIMEOUT": "9s",
        "OBJECT_STORE_CLIENT_MAX_RETRIES": "2",
        "AZURE_STORAGE_ALLOW_HTTP": "true",
        "AWS_PROFILE": "work",
        "HOME": "/home/somebody",
    }
    settings = resolve_options(S3, {"aws_endpoint": "http://127.0.0.1:2"}, environment)
    assert settings.config == {
        "endpoint": "http://127.0.0.1:2",
        "region": "eu-west-1",
        "timeout": "9s",
        "allow_http": "true",
    }
    assert settings.retries == {"max_retries": 2}


@pytest.mark.parametrize(
    ("provider", "name", "near"),
    [
        (S3, "aws_acces_key_id", "aws_access_key_id"),
        (S3, "aws_reigon", "aws_region"),
        (S3, "endpiont", "endpoint"),
        (S3, "allow_https", "allow_http"),
        (AZURE, "azure_account_nam", "azure_account_name"),
        (GOOGLE, "service_acount", "service_account"),
        (GOOGLE, "aws_region", "See the object stores guide"),
    ],
)
def test_unknown_names_point_to_known_ones(provider: Provider, name: str, near: str) -> None:
    with pytest.raises(OptionError, match="Unknown storage option") as caught:
        resolve_options(provider, {name: "1"}, {})
    assert repr(name) in str(caught.value)
    assert provider.name in str(caught.value)
    assert caught.value.hint is not None
    assert near in caught.value.hint


@pytest.mark.parametrize(
    "options",
    [{"allow_http": True}, {"client_max_retries": 3}, {"timeout": None}, {1: "1"}],
)
def test_values_are_text(options: dict[Any, Any]) -> None:
    with pytest.raises(OptionError, match="are text"):
        resolve_options(S3, options, {})


@pytest.mark.parametrize("value", ["", "-1", "1.5", "many", "٣"])
def test_numbers(value: str) -> None:
    with pytest.raises(OptionError, match="whole number"):
        resolve_options(S3, {"client_max_retries": value}, {})


def test_profile_has_its_own_hint() -> None:
    with pytest.raises(OptionError, match="aws_secret_access_key"):
        resolve_options(S3, {"aws_profile": "work"}, {})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("aws_endpoint", "not a url"),
        ("aws_endpoint", ""),
        ("aws_endpoint", "http://"),
        ("aws_endpoint", "ftp://host"),
        ("aws_endpoint", "http://[::1"),
        ("aws_endpoint", "http://local host:9000"),
        ("aws_endpoint", "http://127.0.0.1:99999"),
        ("aws_metadata_endpoint", "169.254.169.254"),
        ("aws_region", "eu-west-1\n"),
        ("aws_access_key_id", "a\nb"),
        ("aws_session_token", "t\u00e9"),
        ("headers.x-request", "a\r\nb"),
    ],
)
def test_what_the_client_would_panic_over_is_refused_by_name(option: str, value: str) -> None:
    given = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_region": "eu-west-1"}
    with pytest.raises(OptionError, match="storage option"):
        open_store("s3://bucket/table", {**given, option: value})


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:9000", "https://s3.example.org", "http://[::1]:9000/"]
)
def test_endpoints_that_are_urls(endpoint: str) -> None:
    open_store("s3://bucket/table", {"aws_endpoint": endpoint, "allow_http": "true", "aws_region": "r"})


def test_a_panic_of_the_client_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object, **__: object) -> None:
        raise PanicException("called `Result::unwrap()` on an `Err` value")

    store = open_store("memory://panics")
    uses: dict[str, Callable[[], object]] = {
        "get": lambda: store.get("a"),
        "put": lambda: store.put_if_absent("a", b""),
        "head": lambda: store.head("a"),
        "delete": lambda: store.delete(["a"]),
    }
    for operation, use in uses.items():
        monkeypatch.setattr(f"obstore.{operation}", panic)
        with pytest.raises(StorageError, match="unwrap"):
            use()
