"""Read the TOML configuration, reporting all errors with their keys and line numbers."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, get_args, overload

from belated.core.ids import check_partitions
from belated.core.rewards import check_default, check_semantics, retention_us
from belated.core.times import CLOCK_SKEW, parse_duration
from belated.decider import UNIFORM, Holdout
from belated.decider.holdouts import check_holdout
from belated.exceptions import InvalidConfig, InvalidInput
from belated.expressions import (
    as_features,
    as_semantics,
    as_whole_policy,
    load_modules,
)
from belated.features.shared import with_catalogue
from belated.fold.partitioned import check_mergeable
from belated.fold.requests import Keep, check_keep
from belated.fold.weighting import check_learnable
from belated.journals import Store, open_store
from belated.journals.coordination import ONLY_KAFKA
from belated.policies import Policy
from belated.policies.delayed_ucb import default_policy
from belated.service.access.authorizer import Auth, auth_at
from belated.service.access.origins import as_origin
from belated.service.access.tokens import TokenMode, TokenSecrets, check_bounded
from belated.service.learning.lease import SECONDS
from belated.service.serving.definition import Definition, LearnerCount
from belated.service.serving.spools import LIMIT, SpoolFolder
from belated.wire.messages import MAX_BODY_BYTES

T = TypeVar("T")
D = TypeVar("D")

_OFF: TokenMode = "off"
_AUTO: Keep = "auto"
_ONE: LearnerCount = "one"
#: Valid bandit names, which need no escaping in URLs.
_NAME = re.compile(r"[A-Za-z0-9._~-]{1,128}")
#: A host name as in the ``Host`` header, without the port.
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
#: Maximum number of concurrent connections, in total and from one address.
MAX_CONNECTIONS, MAX_PER_ADDRESS = 4096, 1024


@dataclass(frozen=True)
class Limits:
    """Connection limits and accepted host names.

    Attributes:
        connections: Maximum number of concurrent connections.
        per_address: Maximum number of concurrent connections from one address.
        hosts: Accepted host names, in lower case and without a port; empty to accept any name.
    """

    connections: int = MAX_CONNECTIONS
    per_address: int = MAX_PER_ADDRESS
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Server:
    """Settings of a server process.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 for any free port.
        learn: Whether the process also runs a learner. If not, run ``belated learn``.
        max_body_bytes: Maximum size of a request body, in bytes.
        lease: Seconds after which a dead learner is replaced.
        auth: ``"keys"`` to require API keys, or ``"off"`` to require none; None if not set.
        spool: Folder for spooling events while the store is unavailable; None to refuse events
            during an outage.
        drain: Seconds for which the process continues to serve after a signal to stop, while
            reporting that it is not ready.
        cors: Origins whose pages may send requests from a browser.
        limits: Connection limits and accepted host names.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    learn: bool = True
    max_body_bytes: int = MAX_BODY_BYTES
    lease: float = SECONDS
    auth: Auth | None = None
    spool: SpoolFolder | None = None
    drain: float = 0.0
    cors: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Config:
    """The content of a configuration file.

    Attributes:
        store: Store that contains the journals, not opened yet.
        server: Settings of the server.
        bandits: Definitions of the bandits.
        token_keys_env: Environment variable that contains the secrets for signing tokens.
        policies: Modules to import, because they register policies
            (:func:`belated.expressions.register`). Reading the configuration runs their code with
            all permissions of the service, so list only modules that you trust.
    """

    store: Store
    server: Server
    bandits: tuple[Definition, ...]
    token_keys_env: str | None = None
    policies: tuple[str, ...] = ()

    def token_keys(self, environment: Mapping[str, str] = os.environ) -> TokenSecrets | None:
        """Return the secrets for signing tokens, which learners do not need."""
        if self.token_keys_env is None:
            return None
        text = environment.get(self.token_keys_env)
        if not text:
            message = f"the environment variable {self.token_keys_env} is not set: set it to"
            raise InvalidInput(f"{message} id:base64, with a secret from `openssl rand -base64 32`")
        return TokenSecrets.read(text)


def read_config(path: str | Path) -> Config:
    """Read a configuration file.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidConfig: the file contains errors.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        message = f"{path} does not exist: create it with `belated init {shlex.quote(str(path))}`"
        raise FileNotFoundError(message) from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig([f"{path}, line {line}: the text is not valid UTF-8"]) from None
    return parse_config(text, file=str(path))


def parse_config(
    text: str, *, file: str = "belated.toml", environment: Mapping[str, str] = os.environ
) -> Config:
    """Parse a configuration.

    Args:
        text: Configuration in TOML.
        file: Name of the file, for error messages.
        environment: Environment variables, for ``address_env``.

    Raises:
        InvalidConfig: the configuration contains errors.

    >>> config = parse_config('''
    ... [store]
    ... address = "sqlite:///belated.db"
    ...
    ... [bandits.offers]
    ... features = "PerArm(['blue', 'red'], context=['age'])"
    ... rewards = "ConversionsOnly('7d')"
    ... ''')
    >>> config.store.name, config.server.port, config.bandits[0].name
    ('sqlite', 8080, 'offers')
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig([f"{file}: invalid TOML: {error}"]) from None
    mistakes = ConfigErrors(file, text)
    top = TomlTable(mistakes, (), values)
    policies = top.take("policies", _modules, ())  # first, because bandits may use these policies
    store = _store(top.table("store"), environment)
    server = _server(top.table("server"))
    tokens = top.table("tokens")
    secrets_env = tokens.take("secrets_env", _text, None)
    tokens.finish()
    assigns = store is None or store.assigns_partitions
    bandits = _bandits(top.table("bandits"), secrets_env is not None, assigns)
    top.finish()
    mistakes.check()
    assert store is not None
    return Config(store, server, bandits, secrets_env, policies)


def _store(table: TomlTable, environment: Mapping[str, str]) -> Store | None:
    variable = table.take("address_env", _text, None)
    key = "address" if variable is None else "address_env"
    if variable is None:
        address = table.take("address", _text, example='"sqlite:///belated.db"')
    else:
        address = environment.get(variable)
        if not address:
            message = f"the environment variable {variable} is not set"
            table.refuse("address_env", f"{message}: set it to the address of the store")
        if table.take("address", _text, None) is not None:
            table.refuse("address_env", "address is also set: remove one of the two")
    table.finish()
    return table.checked(key, lambda: _shared_store(address)) if address else None


def _shared_store(address: str) -> Store:
    store = open_store(address)
    if store.name == "memory":
        message = "a store in memory is neither durable nor visible to other processes"
        raise InvalidInput(f"{message}: use 'sqlite:///belated.db'", address)
    return store


def _server(table: TomlTable) -> Server:
    default = Server()
    server = Server(
        host=table.take("host", _text, default.host),
        port=table.take("port", _whole(0, 65_535), default.port),
        learn=table.take("learn", _switch, default.learn),
        max_body_bytes=table.take("max_body_bytes", _whole(1, 1 << 30), default.max_body_bytes),
        lease=table.take("lease_ttl", _seconds("1s", "1h"), default.lease),
        auth=table.take("auth", _one_of(Auth), default.auth),
        cors=table.take(
            "cors", _list_of('origins, such as ["https://shop.example"],', as_origin), default.cors
        ),
        spool=_spool(table),
        drain=table.take("drain", _seconds("0s", "5m"), default.drain),
        limits=_limits(table, default.limits),
    )
    table.finish()
    table.checked("host", lambda: auth_at(server.host, server.auth))
    return server


def _limits(table: TomlTable, default: Limits) -> Limits:
    count = _whole(1, 1 << 20)
    hosts = _list_of('names, such as ["bandits.example"],', _host)
    return Limits(
        connections=table.take("max_connections", count, default.connections),
        per_address=table.take("max_connections_per_address", count, default.per_address),
        hosts=frozenset(table.take("hosts", hosts, default.hosts)),
    )


def _spool(table: TomlTable) -> SpoolFolder | None:
    path = table.take("spool_dir", _text, None)
    limit = table.take("spool_max_bytes", _whole(1 << 10, 1 << 40), None)
    if path is not None:
        return SpoolFolder(Path(path), LIMIT if limit is None else limit)
    if limit is not None:
        table.refuse("spool_max_bytes", "there is no spool: set spool_dir to the path of a folder")
    return None


def _bandits(tables: TomlTable, has_secrets: bool, assigns: bool) -> tuple[Definition, ...]:
    definitions = [
        _definition(name, tables.table(name), has_secrets, assigns) for name in tables.names
    ]
    if not definitions:
        remedy = "add a table [bandits.offers], with policy and rewards"
        tables.refuse(None, f"there are no bandits: {remedy}")
    return tuple(definition for definition in definitions if definition is not None)


def _definition(name: str, table: TomlTable, has_secrets: bool, assigns: bool) -> Definition | None:
    """Read the definition of a bandit.

    Args:
        name: Name of the bandit.
        table: Table of the bandit.
        has_secrets: Whether there are secrets for signing tokens.
        assigns: Whether the store can assign partitions to several learners.
    """
    if not _NAME.fullmatch(name):
        message = f"{name!r} is not a valid bandit name: use only letters, digits and -._~"
        table.refuse(None, message)
    features = table.take("features", _written(as_features), None)
    policy: Policy | None
    if "features" in table.names:
        policy = table.take("policy", _written(as_whole_policy), default_policy())
    else:
        policy = table.take("policy", _written(as_whole_policy), example='"DelayedUCB(dim=20)"')
    rewards = table.take("rewards", _written(as_semantics), example="\"ConversionsOnly('7d')\"")
    span = table.take("retention", _span, None)
    partitions = table.take("partitions", _partitions, None)
    tokens = table.take("tokens", _one_of(TokenMode), _OFF)
    lifetime = table.take("token_lifetime", _span, None)
    baseline = table.take("baseline", _action, UNIFORM)
    keep = table.take("keep_requests", check_keep, _AUTO)
    contexts = table.take("contexts", _switch, True)
    holdout = _holdout(table.table("holdout")) if "holdout" in table.names else None
    subject = table.take("subject", _text, None)
    learners = table.take("learners", _one_of(LearnerCount), _ONE)
    catalogue = table.take("catalogue", _text, None)
    skew = table.take("clock_skew", _seconds("1s", "1d"), CLOCK_SKEW / 1e6)
    outcomes = table.take("outcomes", _switch, False)
    table.finish()
    if tokens != "off" and not has_secrets:
        message = 'there is no secret to sign them: add secrets_env = "BELATED_TOKEN_KEYS"'
        table.refuse("tokens", f"{message} under [tokens]")
    if policy is None or rewards is None:
        return None
    retention = table.checked("retention", lambda: retention_us(span, rewards))
    table.checked("rewards", lambda: check_semantics(rewards))
    table.checked("rewards", lambda: check_default(rewards, policy.family.support))
    table.checked("rewards", lambda: check_learnable(policy, rewards))
    if tokens != "off":
        table.checked("tokens", lambda: check_bounded(rewards, policy.family.support))
    if catalogue is not None:
        declared = features
        features = table.checked("catalogue", lambda: with_catalogue(declared, catalogue))
    if features is None and "features" in table.names:
        return None
    bound = table.checked("policy", lambda: policy.bound_to(features))
    if bound is None:
        return None
    if learners == "many":
        table.checked("learners", lambda: check_mergeable(bound, rewards))
        if not assigns:
            table.refuse("learners", ONLY_KAFKA)
    lifetime_us = None if lifetime is None else lifetime // timedelta(microseconds=1)
    return Definition(
        name, bound, rewards, features, retention, partitions,
        tokens=tokens, token_lifetime=lifetime_us, baseline=baseline, keep_requests=keep,
        contexts=contexts,
        holdout=table.checked("holdout", lambda: check_holdout(holdout, features)),
        subject=subject, learners=learners, clock_skew=int(1e6 * skew), outcomes=outcomes,
    )  # fmt: skip


def _holdout(table: TomlTable) -> Holdout | None:
    share = table.take("share", _share, example="0.05")
    baseline = table.take("baseline", _action, "")
    by_field = table.take("by", _text, None)
    table.finish()
    if share is None:
        return None
    return table.checked("baseline", lambda: Holdout(share, baseline, by_field))


# --- parsing values ------------------------------------------------------------------------------


def _expected(
    what: str,
    is_valid: Callable[[Any], bool],
    convert: Callable[[Any], T] = lambda value: value,
) -> Callable[[Any], T]:
    """Return a function that converts a value, or raises InvalidInput if the value is invalid."""

    def read(value: Any) -> T:
        if not is_valid(value):
            raise InvalidInput(f"expected {what}, got {value!r}", value)
        return convert(value)

    return read


_text: Callable[[Any], str] = _expected("a string in quotes", lambda value: isinstance(value, str))
_switch: Callable[[Any], bool] = _expected("true or false", lambda value: isinstance(value, bool))
_action: Callable[[Any], int | str] = _expected(
    "the name of an action, 'first' or 'uniform'", lambda value: type(value) in (int, str)
)
_share: Callable[[Any], float] = _expected(
    "a share between 0 and 1",
    lambda value: type(value) in (int, float) and 0.0 < value < 1.0,
    float,
)


def _whole(least: int, most: int) -> Callable[[Any], int]:
    return _expected(
        f"a whole number from {least:,} to {most:,}",
        lambda value: type(value) is int and least <= value <= most,
    )


def _one_of(kind: Any) -> Callable[[Any], Any]:
    """Return a function that accepts only the values of a Literal type."""
    words = get_args(kind)
    *first, last = (f'"{word}"' for word in words)
    return _expected(f"{', '.join(first)} or {last}", lambda value: value in words)


def _list_of(what: str, read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    listed = _expected(f"a list of {what}", lambda value: isinstance(value, list), list)
    return lambda value: tuple(map(read, listed(value)))


def _modules(value: Any) -> tuple[str, ...]:
    names = _list_of("modules in quotes", _text)(value)
    load_modules(names)
    return names


def _partitions(value: Any) -> int:
    return check_partitions(_whole(1, 4096)(value))


def _span(value: Any) -> timedelta:
    return parse_duration(_text(value))


def _seconds(least: str, most: str) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        span = _span(value)
        if not parse_duration(least) <= span <= parse_duration(most):
            raise InvalidInput(f"expected a duration from {least} to {most}, got {value!r}", value)
        return span.total_seconds()

    return read


def _host(value: Any) -> str:
    if not _HOST.fullmatch(name := _text(value)):
        message = f"{name!r} is not a host name: use a name or an address, without a port"
        raise InvalidInput(message, name)
    return name.lower()


def _written(read: Callable[[str], T]) -> Callable[[Any], T]:
    return lambda value: read(_text(value))


# --- TOML tables ---------------------------------------------------------------------------------

_REQUIRED: Any = object()
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?")
_KEY = re.compile(r"""\s*(?:([A-Za-z0-9_-]+)|"([^"]*)"|'([^']*)')\s*=""")


class ConfigErrors:
    """Errors found in a configuration file, in order.

    Args:
        file: Name of the file.
        text: Content of the file, used to look up the line number of each key.
    """

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._lines = _lines(text)
        self.found: list[str] = []

    def add(self, path: tuple[str, ...], why: str) -> None:
        """Add an error at a key or table."""
        line = self._lines.get(path) or self._lines.get(path[:-1])
        where = f"{self._file}, line {line}" if line else self._file
        self.found.append(": ".join([where, *filter(None, [".".join(path)]), why]))

    def check(self) -> None:
        """Raise InvalidConfig if there are any errors."""
        if self.found:
            raise InvalidConfig(self.found)


class TomlTable:
    r"""A TOML table that reports invalid values and unknown keys.

    Args:
        mistakes: Collects the errors.
        path: Path of the table.
        values: Values in the table.

    >>> mistakes = ConfigErrors("shop.toml", "[server]\nports = 80\n")
    >>> table = TomlTable(mistakes, ("server",), {"ports": 80})
    >>> table.take("port", int, 8080)
    8080
    >>> table.finish()
    >>> mistakes.found
    ['shop.toml, line 2: server.ports: unknown key; did you mean port?']
    """

    def __init__(self, mistakes: ConfigErrors, path: tuple[str, ...], values: Any) -> None:
        self._mistakes = mistakes
        self._path = path
        self._known: list[str] = []
        self._values: Mapping[str, Any] = values if isinstance(values, dict) else {}
        if not isinstance(values, dict):
            name = ".".join(path)
            self.refuse(None, f"expected a table, as in [{name}]")

    @property
    def names(self) -> list[str]:
        """The keys in the table."""
        return list(self._values)

    @overload
    def take(self, key: str, read: Callable[[Any], T], *, example: str) -> T | None: ...
    @overload
    def take(self, key: str, read: Callable[[Any], T], default: D) -> T | D: ...
    def take(
        self, key: str, read: Callable[[Any], Any], default: Any = _REQUIRED, *, example: str = ""
    ) -> Any:
        """Read the value of a key. Report an error if it is invalid, or missing but required.

        Args:
            key: Name of the key.
            read: Converts the value, or raises InvalidInput.
            default: Value to return if the key is missing or invalid. Without a default, the key
                is required.
            example: Example value to show if a required key is missing.
        """
        self._known.append(key)
        if key in self._values:
            value = self.checked(key, lambda: read(self._values[key]))
            return default if value is None and default is not _REQUIRED else value
        if default is _REQUIRED:
            self.refuse(key, f"missing: add {key} = {example} under [{'.'.join(self._path)}]")
            return None
        return default

    def table(self, key: str) -> TomlTable:
        """Return the table at a key, or an empty table if it is missing."""
        self._known.append(key)
        return TomlTable(self._mistakes, (*self._path, key), self._values.get(key, {}))

    def checked(self, key: str, work: Callable[[], T]) -> T | None:
        """Return the result of `work`; if it raises InvalidInput, report that and return None."""
        try:
            return work()
        except InvalidInput as error:
            self.refuse(key, str(error))
            return None

    def refuse(self, key: str | None, why: str) -> None:
        """Report an error at a key, or at the table itself."""
        self._mistakes.add(self._path if key is None else (*self._path, key), why)

    def finish(self) -> None:
        """Report an error for each key that was not read."""
        for key in self._values:
            if key not in self._known:
                close = difflib.get_close_matches(key, self._known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(self._known)}"
                self.refuse(key, f"unknown key; {hint}")


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line numbers of tables and keys. Only the most common notation is recognized."""
    table: tuple[str, ...] = ()
    lines: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = tuple(part.strip(" \t\"'") for part in header[1].split("."))
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            name = next(group for group in key.groups() if group is not None)
            lines.setdefault((*table, name), number)
    return lines
