"""The configuration, read from TOML; every mistake is reported with its key and line."""

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
#: Names of bandits: they are part of URLs, unescaped.
_NAME = re.compile(r"[A-Za-z0-9._~-]{1,128}")
#: A name in the ``Host`` header, without its port.
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
#: Connections at the same time, in all and from one address.
MAX_CONNECTIONS, MAX_PER_ADDRESS = 4096, 1024


@dataclass(frozen=True)
class Limits:
    """Limits of the connections.

    Attributes:
        connections: how many there may be at a time.
        per_address: how many of them from one address.
        hosts: accepted host names, in lower case and without a port; none for any name.
    """

    connections: int = MAX_CONNECTIONS
    per_address: int = MAX_PER_ADDRESS
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Server:
    """How requests are served, and whether this process learns too.

    Attributes:
        host: the address to listen on.
        port: 0 for any that is free.
        learn: learn in this process too; otherwise ``belated learn`` does.
        max_body_bytes: how many bytes a request may have.
        lease: seconds after which a dead learner is replaced.
        auth: whether every request needs a key; None if it is not set.
        spool: where events wait while the store is unavailable; None to refuse them then.
        drain: seconds for which a process that is stopped still serves, no longer ready.
        cors: the origins whose pages may send requests from a browser.
        limits: of the connections, and the accepted host names.
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
        store: where the journals are; nothing is opened yet.
        server: how requests are taken.
        bandits: that are served.
        token_keys_env: the environment variable with the keys that sign tokens.
        policies: modules that were imported for the policies they register
            (:func:`belated.expressions.register`). Reading the file runs their code with all
            rights of the service: name none you would not install.
    """

    store: Store
    server: Server
    bandits: tuple[Definition, ...]
    token_keys_env: str | None = None
    policies: tuple[str, ...] = ()

    def token_keys(self, environment: Mapping[str, str] = os.environ) -> TokenSecrets | None:
        """Return the secrets that sign tokens; only a service needs them, learners do not."""
        if self.token_keys_env is None:
            return None
        text = environment.get(self.token_keys_env)
        if not text:
            message = f"the environment has no {self.token_keys_env}: set it to id:base64, with"
            raise InvalidInput(f"{message} a secret of `openssl rand -base64 32`")
        return TokenSecrets.read(text)


def read_config(path: str | Path) -> Config:
    """Return the configuration in a file.

    Raises:
        InvalidConfig: something in it is wrong.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        message = f"{path} does not exist: `belated init {shlex.quote(str(path))}` writes one"
        raise FileNotFoundError(message) from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig([f"{path}, line {line}: it is no text in UTF-8"]) from None
    return parse_config(text, file=str(path))


def parse_config(
    text: str, *, file: str = "belated.toml", environment: Mapping[str, str] = os.environ
) -> Config:
    """Return the configuration in a text.

    Args:
        text: in TOML.
        file: its name, for messages.
        environment: where ``address_env`` is looked up.

    Raises:
        InvalidConfig: something in it is wrong.

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
        raise InvalidConfig([f"{file}: it is not written in TOML: {error}"]) from None
    mistakes = ConfigErrors(file, text)
    top = TomlTable(mistakes, (), values)
    policies = top.take("policies", _modules, ())  # before any bandit names one of theirs
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
            table.refuse("address_env", f"the environment has no {variable}: set it")
        if table.take("address", _text, None) is not None:
            table.refuse("address_env", "there is an address too: keep one of the two")
    table.finish()
    return table.checked(key, lambda: _shared_store(address)) if address else None


def _shared_store(address: str) -> Store:
    store = open_store(address)
    if store.name == "memory":
        message = "the memory of one process is not durable, and no other process sees it"
        raise InvalidInput(f"{message}: use 'sqlite:///belated.db'", address)
    return store


def _server(table: TomlTable) -> Server:
    usual = Server()
    server = Server(
        host=table.take("host", _text, usual.host),
        port=table.take("port", _whole(0, 65_535), usual.port),
        learn=table.take("learn", _switch, usual.learn),
        max_body_bytes=table.take("max_body_bytes", _whole(1, 1 << 30), usual.max_body_bytes),
        lease=table.take("lease_ttl", _seconds("1s", "1h"), usual.lease),
        auth=table.take("auth", _one_of(Auth), usual.auth),
        cors=table.take(
            "cors", _list_of('origins, such as ["https://shop.example"],', as_origin), usual.cors
        ),
        spool=_spool(table),
        drain=table.take("drain", _seconds("0s", "5m"), usual.drain),
        limits=_limits(table, usual.limits),
    )
    table.finish()
    table.checked("host", lambda: auth_at(server.host, server.auth))
    return server


def _limits(table: TomlTable, usual: Limits) -> Limits:
    many = _whole(1, 1 << 20)
    return Limits(
        connections=table.take("max_connections", many, usual.connections),
        per_address=table.take("max_connections_per_address", many, usual.per_address),
        hosts=frozenset(
            table.take("hosts", _list_of('names, such as ["bandits.example"],', _host), usual.hosts)
        ),
    )


def _spool(table: TomlTable) -> SpoolFolder | None:
    path = table.take("spool_dir", _text, None)
    limit = table.take("spool_max_bytes", _whole(1 << 10, 1 << 40), None)
    if path is not None:
        return SpoolFolder(Path(path), LIMIT if limit is None else limit)
    if limit is not None:
        table.refuse("spool_max_bytes", "there is no spool: add spool_dir, the path of a folder")
    return None


def _bandits(tables: TomlTable, makes_tokens: bool, assigns: bool) -> tuple[Definition, ...]:
    made = [_definition(name, tables.table(name), makes_tokens, assigns) for name in tables.names]
    if not made:
        tables.refuse(None, "there is none: add a table [bandits.offers], with policy and rewards")
    return tuple(one for one in made if one is not None)


def _definition(
    name: str, table: TomlTable, makes_tokens: bool, assigns: bool
) -> Definition | None:
    if not _NAME.fullmatch(name):
        table.refuse(None, f"{name!r} is no name for a bandit: letters, digits and -._~ only")
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
    table.finish()
    if tokens != "off" and not makes_tokens:
        message = 'nothing signs them: add secrets_env = "BELATED_TOKEN_KEYS" under [tokens]'
        table.refuse("tokens", message)
    if policy is None or rewards is None:
        return None
    retention = table.checked("retention", lambda: retention_us(span, rewards))
    table.checked("rewards", lambda: check_semantics(rewards))
    table.checked("rewards", lambda: check_default(rewards, policy.family.support))
    table.checked("rewards", lambda: check_learnable(policy, rewards))
    if tokens != "off":
        table.checked("tokens", lambda: check_bounded(rewards, policy.family.support))
    if catalogue is not None:
        described = features
        features = table.checked("catalogue", lambda: with_catalogue(described, catalogue))
    if features is None and "features" in table.names:
        return None
    bound = table.checked("policy", lambda: policy.bound_to(features))
    if bound is None:
        return None
    if learners == "many":
        table.checked("learners", lambda: check_mergeable(bound, rewards))
        if not assigns:
            table.refuse("learners", ONLY_KAFKA)
    lasts = None if lifetime is None else lifetime // timedelta(microseconds=1)
    return Definition(
        name, bound, rewards, features, retention, partitions,
        tokens=tokens, token_lifetime=lasts, baseline=baseline, keep_requests=keep,
        contexts=contexts,
        holdout=table.checked("holdout", lambda: check_holdout(holdout, features)),
        subject=subject, learners=learners, clock_skew=int(1e6 * skew),
    )  # fmt: skip


def _holdout(table: TomlTable) -> Holdout | None:
    share = table.take("share", _share, example="0.05")
    baseline = table.take("baseline", _action, "")
    by = table.take("by", _text, None)
    table.finish()
    if share is None:
        return None
    return table.checked("baseline", lambda: Holdout(share, baseline, by))


# --- how values are read -------------------------------------------------------------------------


def _expected(
    what: str, holds: Callable[[Any], bool], made: Callable[[Any], T] = lambda value: value
) -> Callable[[Any], T]:
    """Return a function that reads a value, or raises with what was expected."""

    def read(value: Any) -> T:
        if not holds(value):
            raise InvalidInput(f"{what} was expected, not {value!r}", value)
        return made(value)

    return read


_text: Callable[[Any], str] = _expected("a text in quotes", lambda value: isinstance(value, str))
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
    """What reads one of the words of a Literal."""
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
            raise InvalidInput(f"from {least} to {most} was expected, not {value!r}", value)
        return span.total_seconds()

    return read


def _host(value: Any) -> str:
    if not _HOST.fullmatch(name := _text(value)):
        raise InvalidInput(f"{name!r} is no host: a name, or an address, without a port", name)
    return name.lower()


def _written(read: Callable[[str], T]) -> Callable[[Any], T]:
    return lambda value: read(_text(value))


# --- tables of TOML ------------------------------------------------------------------------------

_NEEDED: Any = object()
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?")
_KEY = re.compile(r"""\s*(?:([A-Za-z0-9_-]+)|"([^"]*)"|'([^']*)')\s*=""")


class ConfigErrors:
    """The mistakes in a file, in the order in which they were found.

    Args:
        file: its name.
        text: what it holds, to find the lines of keys.
    """

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._lines = _lines(text)
        self.found: list[str] = []

    def add(self, path: tuple[str, ...], why: str) -> None:
        """Add a mistake at a key, or at a table."""
        line = self._lines.get(path) or self._lines.get(path[:-1])
        where = f"{self._file}, line {line}" if line else self._file
        self.found.append(": ".join([where, *filter(None, [".".join(path)]), why]))

    def check(self) -> None:
        """Raise if there was any."""
        if self.found:
            raise InvalidConfig(self.found)


class TomlTable:
    r"""One table.

    Args:
        mistakes: where to note what is wrong.
        path: the names that lead to it.
        values: what it holds.

    >>> mistakes = ConfigErrors("shop.toml", "[server]\nports = 80\n")
    >>> table = TomlTable(mistakes, ("server",), {"ports": 80})
    >>> table.take("port", int, 8080)
    8080
    >>> table.finish()
    >>> mistakes.found
    ['shop.toml, line 2: server.ports: there is no such key, but port']
    """

    def __init__(self, mistakes: ConfigErrors, path: tuple[str, ...], values: Any) -> None:
        self._mistakes = mistakes
        self._path = path
        self._asked: list[str] = []
        self._values: Mapping[str, Any] = values if isinstance(values, dict) else {}
        if not isinstance(values, dict):
            name = ".".join(path)
            self.refuse(None, f"a table was expected, as in [{name}]")

    @property
    def names(self) -> list[str]:
        """The keys of the table."""
        return list(self._values)

    @overload
    def take(self, key: str, read: Callable[[Any], T], *, example: str) -> T | None: ...
    @overload
    def take(self, key: str, read: Callable[[Any], T], default: D) -> T | D: ...
    def take(
        self, key: str, read: Callable[[Any], Any], default: Any = _NEEDED, *, example: str = ""
    ) -> Any:
        """Read the value of a key.

        Args:
            key: its name.
            read: gives the value, or raises InvalidInput.
            default: where it is not there, or not to be read; without it the key is needed.
            example: of a value, for a key that is needed.
        """
        self._asked.append(key)
        if key in self._values:
            found = self.checked(key, lambda: read(self._values[key]))
            return default if found is None and default is not _NEEDED else found
        if default is _NEEDED:
            self.refuse(key, f"it is missing: add {key} = {example} under [{'.'.join(self._path)}]")
            return None
        return default

    def table(self, key: str) -> TomlTable:
        """Return a table within; an empty one if it is missing."""
        self._asked.append(key)
        return TomlTable(self._mistakes, (*self._path, key), self._values.get(key, {}))

    def checked(self, key: str, made: Callable[[], T]) -> T | None:
        """Return what is made; None if that is refused."""
        try:
            return made()
        except InvalidInput as error:
            self.refuse(key, str(error))
            return None

    def refuse(self, key: str | None, why: str) -> None:
        """Add a mistake at a key, or at the table itself."""
        self._mistakes.add(self._path if key is None else (*self._path, key), why)

    def finish(self) -> None:
        """Refuse keys that were not read."""
        for key in self._values:
            if key not in self._asked:
                close = difflib.get_close_matches(key, self._asked, n=1)
                instead = f", but {close[0]}" if close else f": {', '.join(self._asked)} are known"
                self.refuse(key, f"there is no such key{instead}")


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the lines of tables and keys in the common notation; others are not found."""
    table: tuple[str, ...] = ()
    found: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = tuple(part.strip(" \t\"'") for part in header[1].split("."))
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            name = next(group for group in key.groups() if group is not None)
            found.setdefault((*table, name), number)
    return found
