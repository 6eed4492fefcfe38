"""Tokens and TLS contexts of a node's settings, which follow the files that the settings name.

The files of the settings' ``${file:}`` places and of their certificates are read again by `Credentials.look`,
so that tokens and certificates can be rotated while the node runs. The settings file itself is read again by
a reload only (`bridge.node.reload`), which hands over what it has read (`Credentials.take`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.http.authentication import User
from bridge.runtime import logs
from bridge.runtime.certificates import WARN_BEFORE_S
from bridge.runtime.tls import FileContext, Role, TlsFiles
from bridge.settings import Settings, SettingsFile, SettingsInvalid
from bridge.settings.paths import render
from bridge.settings.tls_checks import ACCEPTOR_KEYS, acceptor_files, certificate_expiries

#: How often the files are checked, in seconds.
LOOK_S: Final = 1.0
DAY_S: Final = 24 * 3600.0
#: Interval of the warnings of one certificate, in seconds.
WARN_AGAIN_S: Final = DAY_S


@dataclass(frozen=True, slots=True)
class News:
    """The result of one look."""

    #: Settings whose files have changed and took effect.
    changed: tuple[str, ...] = ()
    #: Whether a file of `[acceptor]`'s TLS is among them.
    acceptor_tls: bool = False
    #: Files that cannot be used, each as a problem of its setting; the content read before stays in effect.
    problems: tuple[str, ...] = ()


class Credentials:
    """The credentials that a node shows to others, and those that it accepts, by the files' present
    content.
    """

    def __init__(self, settings: Settings, file: SettingsFile | None = None) -> None:
        """`file`: the source of `settings`; None: tokens are not read again.

        Raises:
            OSError: a certificate or key cannot be used; the settings' own checks have said so before.
        """
        self._settings = settings
        self._file = file
        self._filled: Mapping[str, Any] | None = None if file is None else file.filled().tree
        self._contexts: dict[str, tuple[FileContext, Mapping[Role, str]]] = {}
        self._expiries = _expiries(settings)
        #: `look` and `take` run in threads, one after the other.
        self._turn = threading.Lock()
        if settings.acceptor is not None:
            self._keep("acceptor", acceptor_files(settings.acceptor), ACCEPTOR_KEYS)
        for name, connector in settings.connectors.items():
            for table in connector.end_rules.tls(connector):
                if table.followed:
                    self._keep(f"connectors.{name}", table.files, table.keys)

    def _keep(self, table: str, files: TlsFiles | None, keys: Mapping[Role, str]) -> None:
        if files is not None:
            self._contexts[table] = FileContext(files), keys

    def certificate_expiries(self) -> dict[str, float]:
        """When each certificate of the settings expires, in seconds since the epoch, by its key."""
        return dict(self._expiries)

    def context(self, table: str) -> FileContext | None:
        """The TLS context of ``acceptor`` or ``connectors.NAME``; None where it has no TLS."""
        found = self._contexts.get(table)
        return None if found is None else found[0]

    def connector_context(self, name: str) -> FileContext | None:
        """The TLS context of the connector of this name; None where it has no TLS, or makes its own of it."""
        return self.context(f"connectors.{name}")

    def token(self, connector: str) -> str:
        """The token that the connector of this name shows; empty: none, or a reload has just taken the
        connector away, and what uses it is about to stop.
        """
        found = self._settings.connectors.get(connector)
        return "" if found is None else found.token

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of `[acceptor]`."""
        return self._settings.acceptor.tokens if self._settings.acceptor is not None else ()

    @property
    def users(self) -> tuple[User, ...]:
        """The users of `[acceptor]`."""
        acceptor = self._settings.acceptor
        return tuple(
            User(
                user.name,
                user.token,
                user.certificate_name,
                user.send,
                user.receive,
                user.link,
                user.delete_queues,
            )
            for user in (acceptor.users if acceptor is not None else ())
        )

    @property
    def operations_tokens(self) -> tuple[str, ...]:
        """The tokens of `[operations]`."""
        return self._settings.operations.tokens if self._settings.operations is not None else ()

    def take(self, newer: Credentials) -> None:
        """Let these be the credentials of other settings from now on. A TLS context whose files are the same
        ones stays: ends that are made have it. It may wait for a look: call it in a thread.
        """
        with self._turn:
            kept = {
                table: self._contexts[table]
                for table, (context, _) in newer._contexts.items()
                if table in self._contexts and self._contexts[table][0].files == context.files
            }
            self._contexts = {**newer._contexts, **kept}
            self._settings, self._file, self._filled = newer._settings, newer._file, newer._filled
            self._expiries = newer._expiries

    def look(self) -> News:
        """Read the files and apply their changes. It may wait for the disk: call it in a thread."""
        with self._turn:
            return self._look()

    def _look(self) -> News:
        renewed = [table for table, (context, _) in self._contexts.items() if context.look()]
        if renewed:
            self._expiries = _expiries(self._settings)
        problems = [
            f"{table}.{keys[role]}: {rule}"
            for table, (context, keys) in self._contexts.items()
            for role, rule in context.problems.items()
        ]
        tokens: list[str] = []
        try:
            tokens = self._look_at_tokens()
        except SettingsInvalid as invalid:
            problems.extend(f"{problem.key}: {problem.rule}" for problem in invalid.problems)
        return News((*renewed, *tokens), "acceptor" in renewed, tuple(problems))

    def _look_at_tokens(self) -> list[str]:
        """The settings of tokens that have changed. Raises: SettingsInvalid; the next look tries again."""
        if self._file is None:
            return []
        filled = self._file.filled()
        if filled.tree == self._filled and not filled.broken:
            return []
        settings = self._file.settings(filled, tls_files=False)
        before, now = _tokens(self._settings), _tokens(settings)
        self._settings = _with_tokens(self._settings, settings)
        self._filled = filled.tree
        return [key for key, token in now.items() if before.get(key) != token]


def _expiries(settings: Settings) -> dict[str, float]:
    return {render(path): expires_s for path, expires_s in certificate_expiries(settings)}


def _tokens(settings: Settings) -> dict[str, str]:
    """Every token by its key; a list keeps its length, and a user its place, in a file that is read once."""
    found = {f"connectors.{name}.token": connector.token for name, connector in settings.connectors.items()}
    if settings.acceptor is not None:
        found |= {f"acceptor.tokens[{i}]": token for i, token in enumerate(settings.acceptor.tokens)}
        found |= {f"acceptor.users[{i}].token": user.token for i, user in enumerate(settings.acceptor.users)}
    if settings.operations is not None:
        found |= {f"operations.tokens[{i}]": token for i, token in enumerate(settings.operations.tokens)}
    return found


def _with_tokens(settings: Settings, newer: Settings) -> Settings:
    """`settings` with the tokens of `newer`: nothing else of a file takes effect without a restart."""
    acceptor, operations = settings.acceptor, settings.operations
    if acceptor is not None and newer.acceptor is not None:
        users = tuple(
            user.model_copy(update={"token": other.token})
            for user, other in zip(acceptor.users, newer.acceptor.users, strict=True)
        )
        acceptor = acceptor.model_copy(update={"tokens": newer.acceptor.tokens, "users": users})
    if operations is not None and newer.operations is not None:
        operations = operations.model_copy(update={"tokens": newer.operations.tokens})
    connectors = {
        name: connector.model_copy(update={"token": newer.connectors[name].token})
        for name, connector in settings.connectors.items()
    }
    return settings.model_copy(
        update={"acceptor": acceptor, "operations": operations, "connectors": connectors}
    )


class CredentialsWatch:
    """Checks the files of `Credentials` at intervals; logs changes that took effect and files that cannot be
    used.
    """

    def __init__(self, credentials: Credentials, on_news: Callable[[News], None]) -> None:
        """`on_news` is called after each look that changed something."""
        self._credentials = credentials
        self._on_news = on_news
        self._log = logs.get()
        #: Problems found at the last look; a pair of files that is being written is wrong for a moment only.
        self._seen: tuple[str, ...] = ()
        self._logged: tuple[str, ...] = ()
        #: By key, the certificate's expiry that was warned of last, and when.
        self._warned: dict[str, tuple[float, float]] = {}

    async def turn(self) -> None:
        """Warn of certificates that expire, and check the files once more."""
        self.warn_of_expiry(time.time())
        await asyncio.sleep(LOOK_S)
        self.take(await asyncio.to_thread(self._credentials.look))

    def warn_of_expiry(self, now_s: float) -> None:
        """Log each certificate that has expired, or will soon: once in `WARN_AGAIN_S`."""
        for setting, expires_s in self._credentials.certificate_expiries().items():
            left_s = expires_s - now_s
            known_s, warned_s = self._warned.get(setting, (0.0, 0.0))
            if left_s >= WARN_BEFORE_S or (known_s == expires_s and now_s - warned_s < WARN_AGAIN_S):
                continue
            self._warned[setting] = expires_s, now_s
            keys = {"setting": setting, "expires": logs.timestamp(expires_s), "days": int(left_s // DAY_S)}
            if left_s > 0:
                self._log.warning("certificate-expires", **keys)
            else:
                self._log.error("certificate-expires", **keys)

    def take(self, news: News) -> None:
        """Pass changes on, and log them; log a problem once, when it was found at two looks."""
        if news.changed:
            self._on_news(news)
            self._log.info("credentials-reloaded", settings=list(news.changed))
        if news.problems and news.problems == self._seen and news.problems != self._logged:
            self._log.warning("credentials-unusable", reason="; ".join(news.problems))
            self._logged = news.problems
        self._seen = news.problems
        if not news.problems:
            self._logged = ()
