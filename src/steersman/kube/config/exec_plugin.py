"""Credentials from a program: the exec plugins of kubeconfig (client.authentication.k8s.io v1 and v1beta1).

The program runs when credentials are first needed, when they have expired, and when the server refused them; one run
serves all requests that wait. It gets KUBERNETES_EXEC_INFO, prints an ExecCredential, and must end within a time limit.
What it prints is secret: errors say what is wrong with it and never quote it. Its stderr goes to ours, so it can talk
to the person at the terminal.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.clock import Clock, Deadline
from steersman.errors import FormatError
from steersman.kube.api.errors import CredentialsFailed
from steersman.kube.api.times import format_time, parse_time
from steersman.kube.config.credentials import KeyPair, bearer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.config.config import Config, ExecConfig
    from steersman.kube.transport.metrics import ClientMetrics

__all__ = ["ExecCredentials"]

_LIMIT: Final = 60.0  # seconds a plugin may take…
_INTERACTIVE_LIMIT: Final = 300.0  # …and when a person has to type or use a browser
_MAX_OUTPUT: Final = 2**20


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class _Issued:
    """What a run of the plugin gave."""

    __slots__ = ("expires", "headers", "pair")

    def __init__(self, headers: Mapping[str, str], pair: KeyPair | None, expires: float | None) -> None:
        self.headers = headers
        self.pair = pair
        self.expires = expires


class ExecCredentials:
    """The credentials that one plugin gives for one cluster."""

    def __init__(
        self, plugin: ExecConfig, config: Config, *, clock: Clock, metrics: ClientMetrics | None = None
    ) -> None:
        self._plugin = plugin
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._issued: _Issued | None = None
        self._running = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        return (await self._current()).headers

    async def certificate(self) -> KeyPair | None:
        return (await self._current()).pair

    def invalidate(self, used: Mapping[str, str]) -> bool:
        if self._issued is not None and self._issued.headers is used:
            self._issued = None
        return True

    def hint(self) -> str:
        return f"what {self._plugin.command} gave was refused: run it by hand and log in again"

    async def _current(self) -> _Issued:
        async with self._running:
            issued = self._issued
            if issued is None or (issued.expires is not None and issued.expires <= self._clock.time()):
                issued = self._issued = self._parse(await self._run())
            return issued

    async def _run(self) -> bytes:
        plugin, interactive = self._plugin, self._interactive()
        limit = _INTERACTIVE_LIMIT if interactive else _LIMIT
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": self._exec_info(interactive)},
                start_new_session=not interactive,  # so that what it starts can be ended with it
            )
        except (OSError, ValueError) as error:
            self._count("1", "plugin_not_found_error")
            found = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be run"
            hint = f"; {plugin.install_hint}" if plugin.install_hint else "; install it or correct users.*.exec.command"
            raise self._failed(f"cannot be started: {found}{hint}") from None
        try:
            async with Deadline(self._clock, limit):
                output = await _read_bounded(process)
                code = await process.wait()
        except TimeoutError:
            self._count("1", "plugin_execution_error")
            raise self._failed(
                f"did not end within {limit:g} seconds: run it by hand to see what it waits for"
            ) from None
        finally:
            await _end(process, group=not interactive)
        if code != 0:
            self._count(str(code), "plugin_execution_error")
            raise self._failed(f"failed with exit code {code}: run it by hand to see why")
        self._count("0", "no_error")
        return output

    def _parse(self, output: bytes) -> _Issued:
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError:
            raise self._failed("printed something that is not an ExecCredential") from None
        if credential.api_version != self._plugin.api_version:
            raise self._failed(
                f"speaks another version than users.*.exec.apiVersion, which is {self._plugin.api_version}: correct it"
            )
        status = credential.status
        if status is None:
            raise self._failed("printed an ExecCredential without a status: it has no credentials, log in again")
        certificate, key = status.client_certificate_data, status.client_key_data
        if not status.token and not certificate and not key:
            raise self._failed("gave neither a token nor a certificate: log in again")
        if bool(certificate) != bool(key):
            raise self._failed("gave only one of certificate and key")
        pair = KeyPair(certificate.encode(), key.encode()) if certificate and key else None
        headers = bearer(status.token) if status.token else {}
        return _Issued(headers, pair, self._expiry(status.expiration_timestamp))

    def _expiry(self, text: str | None) -> float | None:
        if not text:
            return None
        try:
            expires = parse_time(text).timestamp()
        except FormatError:
            raise self._failed("gave an expirationTimestamp that is not an RFC 3339 time") from None
        if expires <= self._clock.time():
            raise self._failed(
                f"gave credentials that expired at {format_time(expires)}: log in again or correct the clock"
            )
        return expires

    def _interactive(self) -> bool:
        mode = self._plugin.interactive_mode
        if mode == "Never":
            return False
        terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if mode == "Always" and not terminal:
            raise self._failed("needs a terminal (interactiveMode: Always) and there is none")
        return terminal

    def _exec_info(self, interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._plugin.provide_cluster_info:
            spec["cluster"] = self._cluster_info()
        info = {"kind": "ExecCredential", "apiVersion": self._plugin.api_version, "spec": spec}
        return msgspec.json.encode(info).decode()

    def _cluster_info(self) -> dict[str, Any]:
        config = self._config
        ca = config.ca.read_bytes() if isinstance(config.ca, Path) else config.ca
        info: dict[str, Any] = {
            "server": config.server,
            "tls-server-name": config.tls_server_name,
            "insecure-skip-tls-verify": config.insecure_skip_tls_verify or None,
            "certificate-authority-data": base64.b64encode(ca).decode() if ca else None,
            "proxy-url": config.proxy_url,
            "disable-compression": config.disable_compression or None,
        }
        known = {key: value for key, value in info.items() if value is not None}
        return {**known, "config": self._plugin.cluster_extension}

    def _failed(self, what: str) -> CredentialsFailed:
        return CredentialsFailed(f"the credential plugin {self._plugin.command} {what} ({self._config.source})")

    def _count(self, code: str, status: str) -> None:
        if self._metrics is not None:
            self._metrics.exec_calls.labels(code, status).inc()


async def _read_bounded(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    output = b""
    while chunk := await process.stdout.read(2**16):
        output = (output + chunk)[: _MAX_OUTPUT + 1]  # more is not a credential; read to its end
    return output


async def _end(process: asyncio.subprocess.Process, *, group: bool) -> None:
    """Make sure the plugin, and with `group` every process it started, has ended."""
    with suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    await process.wait()
