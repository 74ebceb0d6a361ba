"""TLS: clients that trust a certificate are answered, and processes that share one pass requests on."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.service.process import ServiceProcess
from weir.service.ownership.forwarding import Forwarder, UnreachableError


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for the loopback interface that nobody has signed but itself, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "weir")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = directory / "certificate.pem", directory / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


def test_requests_are_answered_and_passed_on_over_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    options = "--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]), "--no-fsync"
    processes = [ServiceProcess(tmp_path, *options) for _ in range(2)]
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    with httpx2.Client(verify=trusting, timeout=60, trust_env=False) as http:
        assert all(process.url.startswith("https://") for process in processes)
        for number, process in enumerate([*processes, *processes]):
            # Whoever writes it, two of these are passed on.
            write = {"upsert_rows": [{"id": number}]}
            answer = http.post(f"{process.url}/v2/namespaces/docs", json=write)
            assert answer.status_code == 200, answer.text
        body = {"aggregate_by": {"count": ["Count"]}}
        for process in processes:
            answer = http.post(f"{process.url}/v2/namespaces/docs/query", json=body)
            assert answer.json()["aggregations"] == {"count": 4}
    with httpx2.Client(timeout=60, trust_env=False) as http, pytest.raises(httpx2.ConnectError):
        http.get(f"{processes[0].url}/healthz")
    with pytest.raises(UnreachableError):
        Forwarder(60.0).forward(processes[0].url, "GET", "/healthz", {}, b"")
    for process in processes:
        code, error = process.stop()
        assert code == 0, error
