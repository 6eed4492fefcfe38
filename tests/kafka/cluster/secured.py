"""A cluster with every kind of listener, users, tokens and an authorizer, for the tests of security.

The PLAINTEXT listener's user, ANONYMOUS, may do everything: tests set the scene through it.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import admin

from tests.kafka.cluster.brokers import Cluster

#: May do what `allowed` says; nobody else may do anything.
USER: Final = "alice"
PASSWORD: Final = "s3cret-of-alice"
#: Key files are locked with it.
KEY_PASSWORD: Final = "s3cret-of-the-key"
#: The listeners, and how clients reach them.
LISTENERS: Final = ("SSL", "MUTUAL:SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CALL_TIMEOUT_S: Final = 30.0
#: Kind of resource, its name (a prefix where it ends in '*'), operation: ``("topic", "orders", "Write")``.
Right = tuple[str, str, str]
#: Half of its types are not exported by name.
_admin: Any = admin

_LOGIN_MODULES: Final = {
    "PLAIN": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "OAUTHBEARER": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";'
    ),
}


@contextmanager
def secured_cluster(directory: Path) -> Iterator[Cluster]:
    """A running broker with `LISTENERS`; certificates of both sides are in `directory`."""
    make_certificates(directory)
    with Cluster(name="secured", listeners=LISTENERS, properties=_properties(directory)) as cluster:
        _make_scram_user(cluster)
        yield cluster


def make_certificates(directory: Path) -> None:
    """``authority.pem`` signs ``broker`` (for 127.0.0.1) and ``client``; ``stranger`` signs itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificates of these tests")
    for name in ("authority", "stranger", "broker", "client"):
        own = name in ("authority", "stranger")
        command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
        command += ["-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        command += ["-addext", f"basicConstraints=critical,CA:{'TRUE' if own else 'FALSE'}"]
        command += [] if own else ["-addext", "subjectAltName=IP:127.0.0.1"]
        command += [] if own else ["-CA", "authority.pem", "-CAkey", "authority.key"]
        subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=60)
    both = (directory / "broker.key").read_text() + (directory / "broker.pem").read_text()
    (directory / "broker-both.pem").write_text(both)
    lock = [openssl, "pkcs8", "-topk8", "-in", "client.key", "-out", "client-locked.key"]
    lock += ["-passout", f"pass:{KEY_PASSWORD}"]
    subprocess.run(lock, cwd=directory, check=True, capture_output=True, timeout=60)


def _properties(directory: Path) -> dict[str, str]:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker-both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        properties[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        for mechanism, module in _LOGIN_MODULES.items():
            properties[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = module
    return properties


def _make_scram_user(cluster: Cluster) -> None:
    client = cluster.admin()
    for mechanism in (_admin.ScramMechanism.SCRAM_SHA_256, _admin.ScramMechanism.SCRAM_SHA_512):
        secret = _admin.ScramCredentialInfo(mechanism, 4096)
        user = _admin.UserScramCredentialUpsertion(USER, secret, PASSWORD.encode())
        for done in client.alter_user_scram_credentials([user]).values():
            done.result(CALL_TIMEOUT_S)


@contextmanager
def allowed(cluster: Cluster, *rights: Right, user: str = USER) -> Iterator[None]:
    """`user` has these rights within the block, and no others but those of blocks around it."""
    client = cluster.admin()
    if rights:
        for done in client.create_acls([_acl(_admin.AclBinding, right, user) for right in rights]).values():
            done.result(CALL_TIMEOUT_S)
    try:
        yield
    finally:
        if rights:
            filters = [_acl(_admin.AclBindingFilter, right, user) for right in rights]
            for done in client.delete_acls(filters).values():
                done.result(CALL_TIMEOUT_S)


def _acl(kind: Any, right: Right, user: str) -> Any:
    resource, name, operation = right
    prefixed = len(name) > 1 and name.endswith("*")
    return kind(
        _admin.ResourceType["BROKER" if resource == "cluster" else _constant(resource)],
        "kafka-cluster" if resource == "cluster" else name.removesuffix("*") if prefixed else name,
        _admin.ResourcePatternType["PREFIXED" if prefixed else "LITERAL"],
        f"User:{user}",
        "*",
        _admin.AclOperation[_constant(operation)],
        _admin.AclPermissionType.ALLOW,
    )


def unsecured_token(subject: str = USER, *, lifetime_s: float = 3600) -> str:
    """A JSON Web Token without signature, as Kafka's development validator takes it."""
    now = time.time()
    claims = {"sub": subject, "iat": now, "exp": now + lifetime_s, "scope": []}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def _constant(words: str) -> str:
    """``IdempotentWrite`` and ``transactional id`` as librdkafka's constants are called."""
    parted = "".join(f"_{letter}" if letter.isupper() else letter for letter in words)
    return parted.strip("_").replace(" ", "_").upper()
