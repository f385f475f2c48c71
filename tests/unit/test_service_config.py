"""The file that says what is served."""

from __future__ import annotations

import base64
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from belated import (
    Bernoulli,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Flag,
    Number,
    PerArm,
)
from belated.cli.main import main
from belated.exceptions import InvalidConfig, InvalidInput
from belated.service.operating.config import Server, parse_config, read_config
from belated.service.serving.spools import SpoolFolder

STORE = '[store]\naddress = "postgresql://localhost/belated"\n'
OFFERS = """[bandits.offers]
policy = "DelayedUCB(dim=20, family=Bernoulli())"
rewards = "Explicit(window='7d')"
"""
HOUR = 3_600_000_000


def mistakes(text: str, **environment: str) -> list[str]:
    """What is said of a file that is refused."""
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text, environment=environment)
    assert str(caught.value) == "; ".join(caught.value.mistakes)
    return list(caught.value.mistakes)


class TestWhatIsRead:
    def test_the_least_that_can_be_written(self) -> None:
        """A store and one bandit; the rest is as usual."""
        config = parse_config(STORE + OFFERS)
        assert (config.store.name, config.store.place) == (
            "postgresql",
            "database 'belated' on localhost",
        )
        assert config.server == Server("127.0.0.1", 8080, True, 1 << 20, 10.0)
        (offers,) = config.bandits
        assert offers.policy == DelayedUCB(20, Bernoulli())
        assert offers.rewards == Explicit(timedelta(days=7))
        assert (offers.features, offers.retention, offers.partitions) == (None, None, None)

    def test_features_bring_the_usual_policy(self) -> None:
        """Their width needs no counting; fields may be encoded."""
        features = PerArm(["red", "blue"], context={"age": Number(18, 90), "member": Flag()})
        text = f'[bandits.offers]\nfeatures = "{features!r}"\nrewards = "Explicit()"\n'
        (offers,) = parse_config(STORE + text).bandits
        assert offers.features == features
        assert offers.policy == DelayedUCB(6, Bernoulli())

    def test_all_that_can_be_written(self) -> None:
        """Every key, and two bandits in their order."""
        config = parse_config(
            """
            [store]
            address_env = "OFFERS_ADDRESS"
            [server]
            host = "::"
            port = 0
            learn = false
            max_body_bytes = 4096
            lease_ttl = "1m"
            auth = "keys"
            spool_dir = "/var/lib/belated/spool"
            spool_max_bytes = 4096
            drain = "5s"
            cors = ["https://shop.example", "http://localhost:3000"]
            [bandits.treatments]
            policy = "DelayedThompson(dim=4, family=Bernoulli, draws=16)"
            rewards = "DefaultAfter(timedelta(hours=12), value=0.5, bounds=(0, 1))"
            retention = "1d12h"
            baseline = "red"
            keep_requests = 0.25
            partitions = 4
            features = "PerArm(['blue', 'red'], context=['age'])"
            [bandits.offers]
            policy = "DelayedUCB(20, Gaussian(variance='estimate'), estimator=Online())"
            rewards = "Explicit"
            """,
            environment={"OFFERS_ADDRESS": "sqlite:////var/lib/belated.db"},
        )
        assert config.store.place == "'/var/lib/belated.db'"
        assert config.server == Server(
            "::", 0, False, 4096, 60.0, "keys",
            SpoolFolder(Path("/var/lib/belated/spool"), 4096), 5.0,
            ("https://shop.example", "http://localhost:3000"),
        )  # fmt: skip
        treatments, offers = config.bandits
        assert (treatments.name, offers.name) == ("treatments", "offers")
        assert treatments.policy == DelayedThompson(4, Bernoulli(), draws=16)
        assert treatments.rewards == DefaultAfter(timedelta(hours=12), value=0.5, bounds=(0, 1))
        assert treatments.features == PerArm(["blue", "red"], context=["age"])
        assert (treatments.retention, treatments.partitions) == (36 * HOUR, 4)
        assert (treatments.baseline, offers.baseline) == ("red", "uniform")
        assert (treatments.keep_requests, offers.keep_requests) == (0.25, "auto")
        assert offers.rewards.window is None

    def test_who_may_ask_must_be_said_where_others_can(self) -> None:
        """On this machine it is off, unless it is said; elsewhere nothing is taken for granted."""
        assert parse_config(STORE + OFFERS).server.auth is None
        for auth in ("keys", "off"):
            said = f'[server]\nhost = "0.0.0.0"\nauth = "{auth}"\n'
            assert parse_config(STORE + said + OFFERS).server.auth == auth
        (mistake,) = mistakes(STORE + '[server]\nhost = "0.0.0.0"\n' + OFFERS)
        assert mistake.startswith("belated.toml, line 4: server.host: on '0.0.0.0' others can ask")
        (mistake,) = mistakes(STORE + '[server]\nauth = "none"\n' + OFFERS)
        assert mistake.endswith("""server.auth: "keys" or "off" was expected, not 'none'""")

    @pytest.mark.parametrize(
        ("written", "why"),
        [
            ('"https://shop.example"', "a list of origins was expected, such as"),
            ('["*"]', "'*' would let every page on the web send requests: list the origins"),
            ('["https://shop.example", 7]', "7 is not an origin: write scheme://host or"),
            ('["shop.example"]', "'shop.example' is not an origin"),
            ('["null"]', "'null' is not an origin"),
            ('["https://shop.example/"]', "is not an origin: write scheme://host or"),
            ('["https://Shop.example"]', "in lower case and without a path"),
            ('["https://me@shop.example"]', "is not an origin"),
            ('["https://shop.example:443"]', "do not send: write 'https://shop.example'"),
            ('["http://[::1]:80"]', "do not send: write 'http://[::1]'"),
        ],
    )
    def test_an_origin_is_written_as_browsers_send_it(self, written: str, why: str) -> None:
        """Else no page would ever match it, and nobody would know why."""
        (mistake,) = mistakes(f"{STORE}[server]\ncors = {written}\n{OFFERS}")
        assert mistake.startswith("belated.toml, line 4: server.cors: ")
        assert why in mistake

    def test_tokens(self) -> None:
        """What signs them is in the environment, and asked for by a service alone."""
        text = STORE + '[tokens]\nsecrets_env = "SIGNERS"\n' + OFFERS + 'tokens = "enforce"\n'
        config = parse_config(text + 'token_lifetime = "2h"\n', environment={})
        (offers,) = config.bandits
        assert (offers.tokens, offers.token_lifetime) == ("enforce", 2 * HOUR)
        secret = base64.b64encode(bytes(32)).decode()
        keys = config.token_keys({"SIGNERS": f"a:{secret}"})
        assert keys is not None
        assert list(keys.secrets) == ["a"]
        assert secret not in repr(config) + repr(keys)
        with pytest.raises(InvalidInput, match="the environment has no SIGNERS: set it to"):
            config.token_keys({})
        assert parse_config(STORE + OFFERS).token_keys({}) is None
        (mistake,) = mistakes(STORE + OFFERS + 'tokens = "report"\n')
        assert mistake.endswith('secrets_env = "BELATED_TOKEN_KEYS" under [tokens]')
        (mistake,) = mistakes(text.replace("enforce", "on"))
        assert """"off", "report" or "enforce" was expected, not 'on'""" in mistake

    def test_a_share_of_requests(self) -> None:
        """From none to all."""
        for share in ("0", "1", '"auto"'):
            assert parse_config(STORE + OFFERS + f"keep_requests = {share}\n")
        (mistake,) = mistakes(STORE + OFFERS + "keep_requests = 2\n")
        assert "keep_requests is 2: 'auto' or a share from 0 to 1 was expected" in mistake

    def test_the_password_is_not_shown(self) -> None:
        """A configuration may end up in a log."""
        config = parse_config(STORE.replace("localhost", "me:secret@localhost") + OFFERS)
        assert "secret" not in repr(config)


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (STORE, ["belated.toml: bandits: there is none: add a table [bandits.offers], "]),
            (OFFERS, ["belated.toml: store.address: it is missing: ", "under [store]"]),
            ("[store]\n" + OFFERS, ["belated.toml, line 1: store.address: it is missing: "]),
            (STORE + "[bandits]", ["line 3: bandits: there is none"]),
            (STORE + "bandits = 3", ["line 3: store.bandits: there is no such key"]),
            (
                "bandits = 3\n" + STORE,
                ["line 1: bandits: a table was expected, as in ["],
            ),
            (STORE + "[bandits]\noffers = 3", ["line 4: bandits.offers: a table was expected"]),
            ("address = \n", ["belated.toml: it is not written in TOML: ", "line 1"]),
            (
                STORE.replace("address", "adress") + OFFERS,
                ["line 2: store.adress: ", "but address"],
            ),
        ],
    )
    def test_what_is_missing_or_unknown(self, text: str, expected: list[str]) -> None:
        """The place is named, and what is known there."""
        found = "\n".join(mistakes(text))
        for part in expected:
            assert part in found

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("port = 'http'", "server.port: a whole number from 0 to 65,535 was expected"),
            ("port = 65536", "server.port: a whole number from 0 to 65,535 was expected"),
            ("port = true", "server.port: a whole number from 0 to 65,535 was expected, not True"),
            ("host = 3", "server.host: a text in quotes was expected, not 3"),
            ("learn = 'no'", "server.learn: true or false was expected, not 'no'"),
            ("max_body_bytes = 0", "server.max_body_bytes: a whole number from 1 to "),
            (
                "spool_max_bytes = 9999",
                "server.spool_max_bytes: there is no spool: add spool_dir, the",
            ),
            ("drain = '10m'", "server.drain: from 0s to 5m was expected, not '10m'"),
            ("lease_ttl = 10", "server.lease_ttl: a text in quotes was expected, not 10"),
            ("lease_ttl = '10'", "server.lease_ttl: the duration is '10': 7d, 12h, 30m or 45s"),
            ("lease_ttl = '0s'", "server.lease_ttl: from 1s to 1h was expected, not '0s'"),
            ("prot = 80", "server.prot: there is no such key, but port"),
            ("workers = 4", "server.workers: there is no such key: host, port, learn, "),
        ],
    )
    def test_of_the_server(self, line: str, expected: str) -> None:
        """Wrong types, wrong ranges, wrong names: with the line."""
        (found,) = mistakes(f"{STORE}[server]\n{line}\n{OFFERS}")
        assert found.startswith(f"belated.toml, line 4: {expected}")

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("policy = 'DelayedUCB(dim=20)'", "missing a required argument: 'family'; it takes"),
            ("policy = 'DelayedUCB(family=Bernoulli())'", "missing a required argument: 'dim'"),
            ("policy = 'DelayedUCB(dim=20, family=5)'", "family is 5: pass Bernoulli()"),
            ("policy = 'DelayedUCB(2, Poisson(), estimator=1)'", "estimator is 1: pass Laplace()"),
            ("policy = 'DelayedUCB(2, Poisson(), prior=1)'", "prior is not an argument here"),
            ("policy = 'DelayedUBC(2, Poisson())'", "there is no DelayedUBC, but DelayedUCB"),
            ("policy = 3", "policy: a text in quotes was expected, not 3"),
            ("policy = \"open('/etc/passwd')\"", "there is no open"),
            ("rewards = \"Explicit(window='7 days')\"", "window is '7 days': 7d, 12h, 30m"),
            ("rewards = 'Explicit(window=7)'", "window is 7: a duration was expected"),
            ("rewards = 'DefaultAfter()'", "DefaultAfter: window is None; pass how long to wait"),
            (
                "rewards = \"DefaultAfter('1h', value=2)\"",
                "the default value 2.0 is outside [0,",
            ),
            ("rewards = 'ConversionsOnly()'", "ConversionsOnly: window is None; pass how long"),
            (
                "rewards = \"ConversionsOnly('1h', delivery='daily')\"",
                "delivery is 'daily': 'auto', 'batches' or 'single' was expected",
            ),
            ("retention = '1d'", "retention: retention 1d is shorter than the window 7d"),
            ("retention = '-1d'", "retention: the duration is '-1d': 7d"),
            ("retention = 30", "retention: a text in quotes was expected, not 30"),
            ("partitions = 3", "partitions"),
            ("partitions = 8192", "partitions: a whole number from 1 to 4,096 was expected"),
            ("features = 'Hashed(8)'", "features: they give rows of 8 numbers, and the policy is"),
            ("features = 'Shard(action=3)'", "there is no Shard, but Shared"),
            ("windows = '7d'", "windows: there is no such key: features, policy, rewards, "),
        ],
    )
    def test_of_a_bandit(self, line: str, expected: str) -> None:
        """Whatever is written as in Python is refused as in Python, with the key and line."""
        name = line.partition(" ")[0]
        kept = [one for one in OFFERS.splitlines() if not one.startswith(name)]
        (found,) = mistakes("\n".join([STORE, *kept, line]))
        assert found.startswith(f"belated.toml, line {4 + len(kept)}: bandits.offers.{name}: ")
        assert expected in found

    def test_a_name_that_cannot_stand_in_an_address(self) -> None:
        """It would have to be escaped by every caller."""
        (found,) = mistakes(STORE + OFFERS.replace("offers", "'my offers'"))
        assert "line 3: bandits.my offers: 'my offers' is no name for a bandit" in found

    def test_all_are_told_at_once(self) -> None:
        """So that a file is mended in one go."""
        text = f"{STORE}[server]\nport = -1\nhots = 'x'\n{OFFERS}partitions = 5\n"
        assert [one.split(": ")[1] for one in mistakes(text)] == [
            "server.port",
            "server.hots",
            "bandits.offers.partitions",
        ]

    def test_a_variable_that_is_not_set(self) -> None:
        """It is named; an empty one counts as not set."""
        text = '[store]\naddress_env = "OFFERS"\n' + OFFERS
        expected = [
            "belated.toml, line 2: store.address_env: the environment has no OFFERS: set it"
        ]
        assert mistakes(text) == expected
        assert mistakes(text, OFFERS="") == expected
        both = text.replace("[store]", STORE)
        assert "there is an address too" in mistakes(both, OFFERS="sqlite:///offers.db")[0]

    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("offers.db", "'offers.db' is not an address: for that file use 'sqlite:///offers.db'"),
            ("sqlite:///offers.db?bandit=offers", "the address names a bandit, and a store holds"),
            ("memory:", "the memory of one process is not durable"),
            ("mysql://me:secret@db/x", "the scheme 'mysql' is not known: use 'memory:'"),
        ],
    )
    def test_what_is_no_address_of_a_store(self, address: str, expected: str) -> None:
        """The cure is told, a password is not."""
        (found,) = mistakes(f'[store]\naddress = "{address}"\n' + OFFERS)
        assert found.startswith(f"belated.toml, line 2: store.address: {expected}")
        (found,) = mistakes('[store]\naddress_env = "OFFERS"\n' + OFFERS, OFFERS=address)
        assert found.startswith(f"belated.toml, line 2: store.address_env: {expected}")
        assert "secret" not in found

    def test_what_was_once_the_database(self) -> None:
        """It is said what to write instead."""
        _, found = mistakes('[database]\ndsn = "postgresql://db/x"\n' + OFFERS)
        expected = "database: there is no such key any more: write [store] with address, or addres"
        assert found.startswith(f"belated.toml, line 1: {expected}")
        _, found = mistakes('[store]\ndsn_env = "DATABASE_URL"\n' + OFFERS)
        assert found.endswith("store.dsn_env: there is no such key any more: write address_env")

    def test_a_key_written_another_way_has_no_line(self) -> None:
        """TOML has several; the key is named all the same."""
        (found,) = mistakes("server.port = -1\n" + STORE + OFFERS)
        assert found.startswith("belated.toml: server.port: a whole number")


class TestTheCommand:
    def test_check_needs_no_store(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """It says what would be served."""
        file = tmp_path / "belated.toml"
        file.write_text(STORE + OFFERS, encoding="utf-8")
        assert main(["serve", "--check", str(file)]) == 0
        printed = capsys.readouterr().out
        assert "offers  DelayedUCB(dim=20, family=Bernoulli()" in printed
        assert printed.endswith("OK: 1 bandit\n")

    def test_check_prints_each_mistake_in_a_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The exit code is 1: it looked, and found something wrong."""
        file = tmp_path / "belated.toml"
        file.write_text(STORE.replace("address", "adress") + OFFERS, encoding="utf-8")
        assert main(["serve", "--check", str(file)]) == 1
        missing, unknown, summary = capsys.readouterr().out.splitlines()
        assert missing.startswith(f"{file}, line 1: store.address: it is missing")
        assert unknown.startswith(f"{file}, line 2: store.adress: there is no such key, but addr")
        assert summary == "WRONG: 2 mistakes"

    @pytest.mark.parametrize("command", ["serve", "learn"])
    def test_a_mistake_stops_it_with_one_line(
        self, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The first one, and how to see the others."""
        file = tmp_path / "belated.toml"
        file.write_text(STORE.replace("address", "adress") + OFFERS, encoding="utf-8")
        assert main([command, str(file)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "store.address: it is missing" in line
        assert line.endswith(f"and 1 more: see `belated serve --check {file}`")

    def test_a_missing_server_is_told_with_the_command_to_install_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before anything else is looked at."""
        monkeypatch.setitem(sys.modules, "httptools", None)
        for name in ("server", "connection", "framing"):
            monkeypatch.delitem(sys.modules, f"belated.service.http.{name}", raising=False)
        assert main(["serve", str(tmp_path / "none.toml")]) == 2
        message = "belated: belated serve needs an extra: pip install 'belated[service]'\n"
        assert capsys.readouterr().err == message

    @pytest.mark.parametrize(
        "command",
        [("serve",), ("learn",), ("mode", "offers"), ("doctor",), ("keys", "list", "--config")],
    )
    def test_psycopg_is_asked_for_by_postgresql_alone(
        self,
        command: tuple[str, ...],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """With the command to install it."""
        monkeypatch.setitem(sys.modules, "psycopg", None)
        for name in [one for one in sys.modules if one.startswith("belated.journals.postgres")]:
            monkeypatch.delitem(sys.modules, name)
        file = tmp_path / "belated.toml"
        file.write_text(STORE + OFFERS, encoding="utf-8")
        assert main([*command, str(file)]) in (1, 2)
        message = "PostgreSQL needs an extra: pip install 'belated[postgres]'"
        out, err = capsys.readouterr()
        assert message in out + err
        if command not in (("serve",), ("learn",)):  # those would go on
            address = f'address = "sqlite:///{tmp_path}/belated.db"'
            file.write_text(f"[store]\n{address}\n{OFFERS}", encoding="utf-8")
            assert main([*command, str(file)]) == 0

    def test_what_is_no_file_and_what_is_no_text(self, tmp_path: Path) -> None:
        """The usual error, and one with the line."""
        with pytest.raises(FileNotFoundError):
            read_config(tmp_path / "none.toml")
        file = tmp_path / "belated.toml"
        file.write_bytes(b"[store]\n\xff")
        with pytest.raises(InvalidConfig, match="line 2: it is no text in UTF-8"):
            read_config(file)
