"""A token server for registries (distribution's JWT, x5c in the header) with its own accounts."""

import base64
import datetime as dt
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import BasicAuth, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from serving import clock

ISSUER, SERVICE = "tests", "registry.tests"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class TokenServer:
    """Give `auth_settings` to a registry, and mount `app` anywhere."""

    root: Path
    users: dict[str, str]
    refresh_tokens: dict[str, str] = field(default_factory=dict)
    """Token → user."""
    denied: set[str] = field(default_factory=set)
    """Repositories that nobody may use."""
    lifetime: float = 300.0
    claimed_lifetime: float | None = None
    """Value of `expires_in`, if it differs from `lifetime`."""
    issued_scopes: list[frozenset[str]] = field(default_factory=list)
    """The scopes of each issued token."""
    failures: list[int] = field(default_factory=list)
    """Statuses of the next responses, which issue no token."""

    def __post_init__(self) -> None:
        self.bundle = self.root / "tokens.pem"
        self.new_key()

    def new_key(self) -> None:
        """Sign with a new key from now on; a registry reads the new certificate at its start."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
        now = clock.now()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._x5c = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
        self.bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def auth_settings(self, realm: str) -> dict[str, Any]:
        return {
            "token": {
                "realm": realm,
                "service": SERVICE,
                "issuer": ISSUER,
                "rootcertbundle": str(self.bundle),
            }
        }

    @property
    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/token", self._get)
        app.router.add_post("/token", self._post)
        return app

    async def _get(self, request: web.Request) -> web.Response:
        user = ""
        if header := request.headers.get("Authorization"):
            login = BasicAuth.decode(header)
            if self.users.get(login.login) != login.password:
                return web.json_response(
                    {"errors": [{"code": "UNAUTHORIZED", "message": "wrong password"}]}, status=401
                )
            user = login.login
        return self._answer(user, request.query.getall("scope", []), "token")

    async def _post(self, request: web.Request) -> web.Response:
        form = await request.post()
        user = self.refresh_tokens.get(str(form.get("refresh_token")), "")
        if form.get("grant_type") != "refresh_token" or form.get("service") != SERVICE or not user:
            return web.json_response({"error": "invalid_grant"}, status=401)
        return self._answer(user, str(form.get("scope", "")).split(), "access_token")

    def _answer(self, user: str, scopes: list[str], name: str) -> web.Response:
        if self.failures:
            return web.Response(status=self.failures.pop(0))
        self.issued_scopes.append(frozenset(scopes))
        access = []
        for scope in scopes:
            kind, _, target = scope.partition(":")
            repository, _, actions = target.rpartition(":")
            allowed = [a for a in actions.split(",") if user or a == "pull"]
            if repository not in self.denied:
                access.append({"type": kind, "name": repository, "actions": allowed})
        body = {name: self._token(user, access), "expires_in": self.claimed_lifetime or self.lifetime}
        return web.json_response(body)

    def _token(self, user: str, access: list[dict[str, Any]]) -> str:
        now = clock.now().timestamp()
        header = {"typ": "JWT", "alg": "ES256", "x5c": [self._x5c]}
        claims = {
            "iss": ISSUER,
            "sub": user,
            "aud": SERVICE,
            "exp": int(now + self.lifetime),
            "nbf": int(now) - 10,
            "iat": int(now),
            "jti": str(len(self.issued_scopes)),
            "access": access,
        }
        signed = f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(claims).encode())}"
        r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
