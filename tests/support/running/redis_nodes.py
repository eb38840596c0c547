"""Redis servers for a single test, on free ports: alone, replicated, or as a Redis Cluster.

A test that starts one stops it; each also ends when the process that started it ends in any way.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import redis

from aggregator import child_guard
from deploy.kafka.cluster import free_ports
from tests.support.running import servers
from tests.support.running.deployment import wait_until

TLS = {
    "ssl_ca_certs": "tls_ca_cert_file",
    "ssl_certfile": "tls_cert_file",
    "ssl_keyfile": "tls_key_file",
}
"""The files of TLS: a client's names for them, and the server's; a node uses the same files."""
SLOTS = 16_384
MEET_MS, NODE_TIMEOUT_MS = 1_000, 15_000
"""A node that gives no answer for this long is taken to be dead: as the Cluster forms, and then."""


class RedisNode:
    """A redis-server in a folder of its own.

    Parameters
    ----------
    options : str
        As on its command line, with underscores for dashes: ``maxmemory="4mb"``. With
        ``tls_cert_file`` it speaks TLS alone.
    """

    def __init__(self, **options: str) -> None:
        self.binary = servers.program("redis-server", "install Redis (Debian: redis-server)")
        self.folder = Path(tempfile.mkdtemp(prefix="dither-redis-"))
        self.port, self.bus = free_ports(2)
        self.options = {"bind": "127.0.0.1", "appendonly": "yes", "save": "", **options}
        self.arguments: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def password(self) -> str | None:
        return self.options.get("requirepass")

    @property
    def tls(self) -> dict[str, str]:
        """The files of a client that this server accepts; empty for a server without TLS."""
        return {name: self.options[own] for name, own in TLS.items() if own in self.options}

    @property
    def url(self) -> str:
        scheme, query = ("rediss", f"?{urlencode(self.tls)}") if self.tls else ("redis", "")
        password = f":{self.password}@" if self.password else ""
        return f"{scheme}://{password}{self.address}/0{query}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server on the data of its folder, and wait until it answers."""
        self.launch()
        wait_until(self._answers, "Redis answers", pause=0.01)
        return self

    def launch(self) -> None:
        """Start the server without waiting."""
        command = [str(self.binary), *self.arguments]
        command += ["--port", "0", "--tls-port"] if self.tls else ["--port"]
        command += [str(self.port), "--dir", str(self.folder)]
        for name, value in self.options.items():
            command += [f"--{name.replace('_', '-')}", *(value.split() or [""])]
        with (self.folder / "redis.log").open("ab") as log:
            self._process = child_guard.start(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def ask(self, *command: str | int) -> Any:
        """Run a command on this very server."""
        options: Any = {"decode_responses": True, "socket_timeout": 60}
        options |= {"ssl": bool(self.tls), **self.tls}
        with redis.Redis("127.0.0.1", self.port, password=self.password, **options) as client:
            return client.execute_command(*command)

    def follow(self, master: RedisNode) -> None:
        """Become a replica, in step with its master."""
        if master.password:
            self.ask("CONFIG", "SET", "masterauth", master.password)
        self.ask("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: self.link() == "up", "the replica is in step")

    def link(self) -> str:
        """Return the state of a replica's connection to its master."""
        return self.info("replication").get("master_link_status", "")

    def info(self, section: str) -> dict[str, str]:
        """Return one section of Redis's answer to INFO, by field."""
        return {str(name): str(value) for name, value in self.ask("INFO", section).items()}

    def fall_behind(self, master: RedisNode) -> None:
        """Cut this replica off from its master, which has a password and continues."""
        self.ask("CONFIG", "SET", "masterauth", "wrong")
        master.ask("CLIENT", "KILL", "TYPE", "replica")
        wait_until(lambda: self.link() == "down", "the replica is cut off")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self.running, (self.folder / "redis.log").read_text(errors="replace")[-2_000:]
        try:
            self.ask("PING")
        except redis.ResponseError:
            return True
        except redis.RedisError:
            return False
        return True


class RedisSentinel(RedisNode):
    """A Sentinel that watches a master under the name ``dither``, and decides alone."""

    def __init__(self, master: RedisNode) -> None:
        super().__init__()
        lines = [f"sentinel monitor dither 127.0.0.1 {master.port} 1"]
        lines += ["sentinel down-after-milliseconds dither 60000"]
        lines += ["sentinel failover-timeout dither 60000"]
        if master.password:
            lines.append(f"sentinel auth-pass dither {master.password}")
        self.file = self.folder / "sentinel.conf"
        self.file.write_text("\n".join([*lines, ""]))
        self.arguments = [str(self.file), "--sentinel"]
        self.options = {k: v for k, v in master.options.items() if k.startswith(("bind", "tls_"))}


class RedisCluster:
    """A Redis Cluster, every slot at one of its masters.

    Parameters
    ----------
    masters : int
    replicas : int
        The number of replicas of each master.
    options : str
        Options of every node, see `RedisNode`.
    """

    def __init__(self, masters: int = 3, replicas: int = 0, **options: str) -> None:
        self.nodes = [
            RedisNode(
                cluster_enabled="yes",
                cluster_node_timeout=str(MEET_MS),
                cluster_require_full_coverage="no",
                cluster_replica_validity_factor="0",
                **options,
                repl_diskless_sync_delay="0",
            )
            for _ in range(masters * (1 + replicas))
        ]
        self.masters = self.nodes[:masters]
        self.replicas = self.nodes[masters:]
        for node in self.nodes:
            node.options["cluster_port"] = str(node.bus)

    @property
    def url(self) -> str:
        """The Cluster's URL as a user would write it, with any of the nodes."""
        return self.masters[0].url

    def start(self) -> Self:
        for node in self.nodes:
            node.start()
        count = len(self.masters)
        for index, node in enumerate(self.masters):
            first, last = index * SLOTS // count, (index + 1) * SLOTS // count - 1
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus)
        self._meet()
        for index, node in enumerate(self.replicas):
            node.ask("CLUSTER", "REPLICATE", self.id(self.masters[index % count]))
        self.wait_until_well()
        for node in self.nodes:
            node.ask("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)
        return self

    def wait_until_well(self) -> None:
        """Wait until every slot has a master and every replica is in step."""

        def well() -> bool:
            up = [node for node in self.nodes if node.running]
            infos = [node.ask("CLUSTER INFO") for node in up]
            links = [node.info("replication") for node in up]
            return all(
                info["cluster_state"] == "ok" and info["cluster_slots_ok"] == str(SLOTS)
                for info in infos
            ) and all(link.get("master_link_status", "up") == "up" for link in links)

        wait_until(well, "the Redis Cluster is well")

    def id(self, node: RedisNode) -> str:
        """Return a node's id."""
        return str(node.ask("CLUSTER", "MYID"))

    def master_of(self, key: str) -> RedisNode:
        """Return the master that holds a key's slot."""
        up = next(node for node in self.nodes if node.running)
        slot = int(up.ask("CLUSTER", "KEYSLOT", key))
        for first, last, (_, port, *_), *_ in up.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"slot {slot} has no master")

    def begin_move(self, key: str, target: RedisNode) -> tuple[RedisNode, int]:
        """Mark a key's slot as moving to another node; return its present node, and its number."""
        source, slot = self.master_of(key), int(target.ask("CLUSTER", "KEYSLOT", key))
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id(target))
        return source, slot

    def move_keys(self, source: RedisNode, target: RedisNode, keys: Sequence[str]) -> None:
        """Move keys, as redis-cli does it."""
        for key in keys:
            source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 60_000)

    def end_move(self, source: RedisNode, target: RedisNode, slot: int) -> None:
        """Move the remaining keys of a slot, and assign the slot to its new node."""
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
            self.move_keys(source, target, keys)
        for node in [target, source, *(n for n in self.masters if n not in (source, target))]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", self.id(target))

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.__exit__()

    def _known(self, node: RedisNode) -> list[str]:
        lines = str(node.ask("CLUSTER", "NODES")).splitlines()
        return [line for line in lines if "handshake" not in line and " connected" in line]

    def _meet(self) -> None:
        """Wait until every node knows every other node."""
        count = len(self.nodes)
        wait_until(lambda: all(len(self._known(n)) == count for n in self.nodes), "all have met")
