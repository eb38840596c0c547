"""Apache Kafka and Redis with TLS, passwords, and only those rights that are granted.

An authority that is made for the run (by trustme) issues the certificates.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import functools
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
import trustme
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from aggregator.cli.roles import KafkaRight
from deploy.kafka.broker import Broker
from deploy.kafka.cluster import STOP_GRACE, defaults, free_ports
from tests.support.running.deployment import wait_until
from tests.support.running.redis_nodes import RedisNode
from tests.support.running.servers import need_apache_kafka

HOST = "localhost"
ADMINISTRATOR = "administrator"
PATIENCE = 60.0
START_SECONDS = 240.0
MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}


@dataclass
class Certificates:
    """A certificate authority, and the certificates that it issues, as PEM files in a folder."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority.cert_pem.write_to_path(str(self.ca))

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / "ca.pem"

    def issue(self, name: str, *hosts: str, expired: bool = False) -> tuple[Path, Path]:
        """Return the files of a certificate (with its chain) and of its key (PKCS #8)."""
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        issued = self.authority.issue_cert(
            *(hosts or (HOST,)), common_name=name, not_after=past if expired else None
        )
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        key.write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, key


class SecuredKafka:
    """One broker: clients connect with TLS and a SCRAM password; it denies what no ACL allows.

    Parameters
    ----------
    folder : Path
    certificates : Certificates
    host : str
        The address on which the broker listens.

    Attributes
    ----------
    address : str
        Host and port to which clients connect.
    expired : str
        Host and port of a listener whose certificate has expired.
    """

    def __init__(self, folder: Path, certificates: Certificates, host: str = HOST) -> None:
        self.certificates, self.host = certificates, host
        client, self._administration, controller, expired = free_ports(4)
        self.address, self.expired = f"{self.host}:{client}", f"{self.host}:{expired}"
        self._broker = Broker(1, folder, client, controller, heap="320m")
        self.folder = folder
        self.passwords: dict[str, str] = {}

    def __enter__(self) -> SecuredKafka:
        self._broker.prepare(
            "0" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")[1:],
            f"1@{self.host}:{self._broker.controller_port}",
            self._properties(),
        )
        try:
            self._broker.start()
            self._wait_until_ready()
        except BaseException:
            self._broker.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.__dict__.pop("_admin", None)
        self._broker.ask_to_stop()
        self._broker.end(STOP_GRACE)

    @functools.cached_property
    def _admin(self) -> AdminClient:
        """The administrator's client: one for all calls, which saves further handshakes."""
        return AdminClient({**self.administration, "reconnect.backoff.max.ms": 500})

    def _properties(self) -> dict[str, str | int]:
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        stores = {}
        for name, expired in (("broker", False), ("expired", True)):
            chain, key = self.certificates.issue(name, self.host, expired=expired)
            store = folder / f"{name}.store.pem"
            store.write_text(key.read_text() + chain.read_text())
            stores[name] = store
        ports = {
            "CLIENT": self._broker.port,
            "EXPIRED": self.expired.rpartition(":")[2],
            "ADMIN": self._administration,
        }
        listeners = ",".join(f"{name}://{self.host}:{port}" for name, port in ports.items())
        found: dict[str, str | int] = {
            **defaults(1),
            "listeners": f"{listeners},CONTROLLER://{self.host}:{self._broker.controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CLIENT:SASL_SSL,EXPIRED:SASL_SSL,ADMIN:SSL,"
            "CONTROLLER:SSL",
            "inter.broker.listener.name": "ADMIN",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:broker",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(stores["broker"]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/",
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.expired.ssl.keystore.location": str(stores["expired"]),
            "listener.name.admin.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
        }
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        for listener in ("client", "expired"):
            for mechanism in MECHANISMS:
                name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
                found[name] = module
        return found

    @property
    def administration(self) -> dict[str, Any]:
        """librdkafka's properties for the administrator, who has all rights."""
        return {
            "bootstrap.servers": f"{self.host}:{self._administration}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "ssl.certificate.location": str(self.certificates.folder / "broker.pem"),
            "ssl.key.location": str(self.certificates.folder / "broker.key"),
            "broker.address.family": "v4",
            "log_level": 0,
        }

    def _wait_until_ready(self) -> None:
        def answers() -> bool:
            assert self._broker.running, self._broker.log_tail()
            with contextlib.suppress(KafkaException):
                return bool(self._admin.list_topics(timeout=1).brokers)
            return False

        wait_until(answers, "the broker answers", START_SECONDS)

    def user(self, name: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Add a user with its own password; return librdkafka's properties for this user."""
        if name not in self.passwords:
            password = self.passwords[name] = secrets.token_urlsafe(16)
            info = ScramCredentialInfo(MECHANISMS[mechanism], 4096)
            change = UserScramCredentialUpsertion(name, info, password.encode())
            for future in self._admin.alter_user_scram_credentials([change]).values():
                future.result(timeout=PATIENCE)
            self._wait_until_known(name)
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": self.passwords[name],
            "broker.address.family": "v4",
            "ssl.ca.location": str(self.certificates.ca),
        }

    def _wait_until_known(self, name: str) -> None:
        def is_known() -> bool:
            with contextlib.suppress(KafkaException):
                described: Any = self._admin.describe_user_scram_credentials([name])
                return bool(described[name].result(timeout=PATIENCE))
            return False

        wait_until(is_known, f"the broker knows {name}")

    def allow(self, user: str, rights: Sequence[KafkaRight]) -> None:
        """Grant rights to a user, and wait until the broker applies them."""
        bindings = [AclBinding(*_what(r), f"User:{user}", "*", *_may(r)) for r in rights]
        for future in self._admin.create_acls(bindings).values() if bindings else ():
            future.result(timeout=PATIENCE)
        anything: Any = None
        mine = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            f"User:{user}",
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        wait_until(
            lambda: len(self._admin.describe_acls(mine).result(PATIENCE)) == len(bindings),
            f"the broker knows the rights of {user}",
            pause=0.01,
        )


def _what(right: KafkaRight) -> tuple[ResourceType, str, ResourcePatternType]:
    kind = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
    pattern = ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL
    return kind.get(right.resource, ResourceType.TRANSACTIONAL_ID), right.name, pattern


def _may(right: KafkaRight) -> tuple[AclOperation, AclPermissionType]:
    return AclOperation[right.operation.upper()], AclPermissionType.ALLOW


class SecuredRedis:
    """A Redis that accepts TLS only, and only the users of its ACL file.

    Parameters
    ----------
    folder : Path
    certificates : Certificates
    host : str
        The address on which the server listens.
    expired : bool
        Whether its certificate has expired.
    """

    def __init__(
        self, folder: Path, certificates: Certificates, host: str = HOST, *, expired: bool = False
    ) -> None:
        self.certificates, self.host, self._expired = certificates, host, expired
        self.passwords = {ADMINISTRATOR: secrets.token_urlsafe(16)}
        name = "redis-expired" if expired else "redis"
        certificate, key = certificates.issue(name, host, expired=expired)
        folder.mkdir(parents=True, exist_ok=True)
        users, password = folder / "users.acl", self.passwords[ADMINISTRATOR]
        users.write_text(f"user default off\nuser {ADMINISTRATOR} on >{password} ~* &* +@all\n")
        self._node = RedisNode(
            bind="127.0.0.1" if host == HOST else host,
            tls_cert_file=str(certificate),
            tls_key_file=str(key),
            tls_ca_cert_file=str(certificates.ca),
            tls_auth_clients="no",
            aclfile=str(users),
            appendonly="no",
        )
        self.port = self._node.port

    def __enter__(self) -> SecuredRedis:
        self._node.launch()
        if not self._expired:
            wait_until(self._answers, "Redis answers", PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._node.__exit__()

    def _answers(self) -> bool:
        with self.administrator() as client, contextlib.suppress(redis.ConnectionError):
            return bool(client.ping())
        return False

    def administrator(self) -> redis.Redis:
        """Return a client of the administrator, who has all rights."""
        return redis.Redis.from_url(self.url(ADMINISTRATOR))

    def url(self, user: str, *, host: str | None = None, **parameters: str) -> str:
        """Return the URL with which a user connects."""
        query = {"ssl_ca_certs": str(self.certificates.ca), **parameters}
        words = "&".join(f"{name}={value}" for name, value in query.items())
        password = quote(self.passwords[user], safe="")
        return f"rediss://{user}:{password}@{host or self.host}:{self.port}/0?{words}"

    def user(self, name: str, rules: Sequence[str]) -> str:
        """Add a user, or replace its rights by these; return the URL with which it connects."""
        password = self.passwords.setdefault(name, secrets.token_urlsafe(16))
        with self.administrator() as client:
            client.execute_command("ACL", "SETUSER", name, "reset", "on", f">{password}", *rules)
        return self.url(name)


@dataclass
class Secured:
    """The secured Kafka and Redis of a run."""

    kafka: SecuredKafka
    redis: SecuredRedis
    certificates: Certificates


@contextlib.contextmanager
def start_secured(folder: Path, host: str = HOST) -> Iterator[Secured]:
    """Start both, listening on `host`: by default, only this machine can connect."""
    need_apache_kafka()
    certificates = Certificates(folder / "certificates")
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(SecuredRedis(folder / "redis", certificates, host))
        kafka = stack.enter_context(SecuredKafka(folder / "kafka", certificates, host))
        yield Secured(kafka, store, certificates)
