"""Certificates for TLS tests: an authority of their own, made with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    certificate: Path
    key: Path


class Authority:
    """Signs certificates for one host name; nothing outside the directory trusts it."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", f"/CN=test {name}", "-keyout", self._key),
            *("-out", self.certificate),
        )

    def sign(self, host: str = "localhost") -> Certificate:
        """A certificate for that DNS name, and for no address."""
        key, request = self.directory / f"{host}.key", self.directory / f"{host}.csr"
        certificate, extensions = self.directory / f"{host}.pem", self.directory / f"{host}.ext"
        extensions.write_text(f"subjectAltName=DNS:{host}\n")
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={host}", "-keyout", key, "-out", request),
        )
        self._openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate),
        )
        for path in (key, certificate):
            path.chmod(0o644)  # servers may run under another account
        return Certificate(certificate, key)

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
