"""Mistakes in a config file: all of them are told, each with its key and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config_texts import OFFERS, STORE, mistakes


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                STORE,
                ["belated.toml: bandits: there are no bandits: add a table [bandits.offers], "],
            ),
            (OFFERS, ["belated.toml: store.address: missing: ", "under [store]"]),
            ("[store]\n" + OFFERS, ["belated.toml, line 1: store.address: missing: "]),
            (STORE + "[bandits]", ["line 3: bandits: there are no bandits"]),
            (STORE + "bandits = 3", ["line 3: store.bandits: unknown key"]),
            (
                "bandits = 3\n" + STORE,
                ["line 1: bandits: expected a table, as in ["],
            ),
            (STORE + "[bandits]\noffers = 3", ["line 4: bandits.offers: expected a table"]),
            ("address = \n", ["belated.toml: invalid TOML: ", "line 1"]),
            (
                STORE.replace("address", "adress") + OFFERS,
                ["line 2: store.adress: ", "did you mean address?"],
            ),
        ],
    )
    def test_what_is_missing_or_unknown(self, text: str, expected: list[str]) -> None:
        """The place is named, and what is known there."""
        messages = "\n".join(mistakes(text))
        for part in expected:
            assert part in messages

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("port = 'http'", "server.port: expected a whole number from 0 to 65,535"),
            ("port = 65536", "server.port: expected a whole number from 0 to 65,535"),
            ("port = true", "server.port: expected a whole number from 0 to 65,535, got True"),
            ("host = 3", "server.host: expected a string in quotes, got 3"),
            ("learn = 'no'", "server.learn: expected true or false, got 'no'"),
            ("max_body_bytes = 0", "server.max_body_bytes: expected a whole number from 1 to "),
            (
                "spool_max_bytes = 9999",
                "server.spool_max_bytes: there is no spool: set spool_dir to",
            ),
            ("drain = '10m'", "server.drain: expected a duration from 0s to 5m, got '10m'"),
            ("lease_ttl = 10", "server.lease_ttl: expected a string in quotes, got 10"),
            (
                "lease_ttl = '10'",
                "server.lease_ttl: expected a duration, such as 7d, 12h",
            ),
            ("lease_ttl = '0s'", "server.lease_ttl: expected a duration from 1s to 1h, got '0s'"),
            ("hosts = 'a.example'", "server.hosts: expected a list of names, such as ["),
            ("hosts = ['a.example:80']", "server.hosts: 'a.example:80' is not a host name: use"),
            ("prot = 80", "server.prot: unknown key; did you mean port?"),
            ("workers = 4", "server.workers: unknown key; known: host, port, learn, "),
        ],
    )
    def test_of_the_server(self, line: str, expected: str) -> None:
        """Wrong types, wrong ranges, wrong names: with the line."""
        (mistake,) = mistakes(f"{STORE}[server]\n{line}\n{OFFERS}")
        assert mistake.startswith(f"belated.toml, line 4: {expected}")

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            (
                "policy = 'DelayedUCB(family=Bernoulli())'",
                "the number of features in a row is not set",
            ),
            ("policy = 'paper_ducb(dim=20)'", "missing a required argument: 'family'; it takes"),
            ("policy = 'DelayedUCB(dim=20, family=5)'", "`family` is 5: pass Bernoulli()"),
            (
                "policy = 'DelayedUCB(2, Poisson(), estimator=1)'",
                "`estimator` is 1: pass",
            ),
            ("policy = 'DelayedUCB(2, Poisson(), prior=1)'", "prior must not be set here"),
            ("policy = 'DelayedUBC(2, Poisson())'", "did you mean DelayedUCB?"),
            ("policy = 3", "policy: expected a string in quotes, got 3"),
            ("policy = \"open('/etc/passwd')\"", "unknown name open"),
            (
                "rewards = \"Explicit(window='7 days')\"",
                "`window` must be a duration, such as",
            ),
            (
                "rewards = 'Explicit(window=7)'",
                "`window` must be a duration, such as '7d' or timedelta(days=7), got 7",
            ),
            (
                "rewards = 'DefaultAfter()'",
                "`window` of DefaultAfter is None: pass the",
            ),
            (
                "rewards = \"DefaultAfter('1h', value=2)\"",
                "the default value must be within [0, 1], got 2.0",
            ),
            ("rewards = 'ConversionsOnly()'", "`window` of ConversionsOnly is None: pass the time"),
            (
                "rewards = \"ConversionsOnly('1h', delivery='daily')\"",
                "`delivery` must be 'auto', 'batches' or 'single', got 'daily'",
            ),
            ("retention = '1d'", "retention: retention 1d is shorter than the window 7d"),
            ("retention = '-1d'", "retention: expected a duration, such as 7d"),
            ("retention = 30", "retention: expected a string in quotes, got 30"),
            ("partitions = 3", "partitions"),
            ("partitions = 8192", "partitions: expected a whole number from 1 to 4,096"),
            ("features = 'Shard(action=3)'", "unknown name Shard; did you mean Shared?"),
            ("tokens = 'on'", 'expected "off", "report" or "enforce", got \'on\''),
            ("learners = 'two'", 'expected "one" or "many", got \'two\''),
            ("baseline = 0.5", "expected the name of an action, 'first' or 'uniform', got 0.5"),
            ("windows = '7d'", "windows: unknown key; known: features, policy, rewards, "),
        ],
    )
    def test_of_a_bandit(self, line: str, expected: str) -> None:
        """Whatever is written as in Python is refused as in Python, with the key and line."""
        name = line.partition(" ")[0]
        lines = [
            default_line
            for default_line in OFFERS.splitlines()
            if not default_line.startswith(name)
        ]
        (mistake,) = mistakes("\n".join([STORE, *lines, line]))
        assert mistake.startswith(f"belated.toml, line {4 + len(lines)}: bandits.offers.{name}: ")
        assert expected in mistake

    def test_a_width_that_features_do_not_have(self) -> None:
        """It is said of the policy, which need not name one."""
        (mistake,) = mistakes(f"{STORE}{OFFERS}features = 'Hashed(8)'\n")
        assert mistake.startswith("belated.toml, line 4: bandits.offers.policy: policy.dim is 20, ")
        assert mistake.endswith("but rows have 8 numbers: omit `dim`")

    def test_a_holdout_without_a_baseline(self) -> None:
        """It asks what would be shown without a bandit."""
        (mistake,) = mistakes(f"{STORE}{OFFERS}[bandits.offers.holdout]\nshare = 0.05\n")
        assert "holdout.baseline: `baseline` is missing: pass 'first', 'uniform' or the" in mistake

    def test_a_name_that_cannot_stand_in_an_address(self) -> None:
        """It would have to be escaped by every caller."""
        (mistake,) = mistakes(STORE + OFFERS.replace("offers", "'my offers'"))
        assert "line 3: bandits.my offers: 'my offers' is not a valid bandit name" in mistake

    def test_all_are_told_at_once(self) -> None:
        """So that a file is mended in one go."""
        text = f"{STORE}[server]\nport = -1\nhots = 'x'\n{OFFERS}partitions = 5\n"
        assert [mistake.split(": ")[1] for mistake in mistakes(text)] == [
            "server.port",
            "server.hots",
            "bandits.offers.partitions",
        ]

    def test_a_variable_that_is_not_set(self) -> None:
        """It is named; an empty one counts as not set."""
        text = '[store]\naddress_env = "OFFERS"\n' + OFFERS
        expected = [
            "belated.toml, line 2: store.address_env: the environment variable OFFERS is not "
            "set: set it to the address of the store"
        ]
        assert mistakes(text) == expected
        assert mistakes(text, OFFERS="") == expected
        config = text.replace("[store]", STORE)
        assert "address is also set" in mistakes(config, OFFERS="sqlite:///offers.db")[0]

    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("offers.db", "'offers.db' is not an address: for that file use 'sqlite:///offers.db'"),
            ("sqlite:///offers.db?bandit=offers", "the address of a store must not name a bandit"),
            ("memory:", "a store in memory is neither durable"),
            ("mysql://me:secret@db/x", "unknown scheme 'mysql' in the address: use 'memory:'"),
        ],
    )
    def test_what_is_no_address_of_a_store(self, address: str, expected: str) -> None:
        """The cure is told, a password is not."""
        (mistake,) = mistakes(f'[store]\naddress = "{address}"\n' + OFFERS)
        assert mistake.startswith(f"belated.toml, line 2: store.address: {expected}")
        (mistake,) = mistakes('[store]\naddress_env = "OFFERS"\n' + OFFERS, OFFERS=address)
        assert mistake.startswith(f"belated.toml, line 2: store.address_env: {expected}")
        assert "secret" not in mistake

    def test_a_key_written_another_way_has_no_line(self) -> None:
        """TOML has several; the key is named all the same."""
        (mistake,) = mistakes("server.port = -1\n" + STORE + OFFERS)
        assert mistake.startswith("belated.toml: server.port: expected a whole number")


@pytest.mark.parametrize(
    ("line", "written", "message"),
    [
        ("features = \"Shared(action=['price'])\"", None, "offers.json' ("),
        (
            "features = \"Shared(action=['price'])\"",
            "[1]",
            "the path of a JSON object with a record for each",
        ),
        ("features = \"Shared(action=['price'])\"", '{"a": {}}', "'price' of action 'a' is miss"),
        (
            'policy = "Uniform(dim=2, family=Bernoulli())"',
            '{"a": {}}',
            "a catalogue needs",
        ),
        ("features = \"PerArm(['a', 'b'])\"", '{"a": {}}', 'needs features = "Shared(…)"'),
    ],
)
def test_catalogues_that_cannot_be_used(
    tmp_path: Path, line: str, written: str | None, message: str
) -> None:
    """One mistake, at its key."""
    file = tmp_path / "offers.json"
    if written is not None:
        file.write_text(written, encoding="utf-8")
    bandit = f'[bandits.offers]\nrewards = "Explicit"\n{line}\ncatalogue = "{file}"\n'
    (mistake,) = mistakes(STORE + bandit)
    assert "bandits.offers.catalogue: " in mistake
    assert message in mistake
