"""A certificate of the loopback address, for an account that is reached over HTTPS."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFE = datetime.timedelta(days=2)


def make_certificate(folder: Path) -> None:
    """Write certificate and key, and have this process and its children trust the certificate.

    The certificate is its own authority, `certificate.pem` in the folder.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "emulated account")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + _LIFE)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "certificate.pem", folder / "certificate.key"
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    os.environ.update(
        {
            "USE_SSL": "1",
            "MINISTACK_SSL_CERT": str(public),
            "MINISTACK_SSL_KEY": str(private),
            "NODE_EXTRA_CA_CERTS": str(public),
            "AWS_CA_BUNDLE": str(public),
            "SSL_CERT_FILE": str(public),
        }
    )
