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
    Gaussian,
    Number,
    PerArm,
)
from belated.cli.main import main
from belated.exceptions import InvalidConfig, InvalidInput
from belated.service.operating.config import Server, parse_config, read_config
from belated.service.serving.spools import SpoolFolder
from tests.unit.config_texts import OFFERS, STORE, mistakes

HOUR = 3_600_000_000


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
        assert offers.policy == DelayedUCB(6, Bernoulli(), blocks=2, floor=0.02)

    def test_a_policy_needs_no_width_if_there_are_features(self) -> None:
        """Whatever is written of it, and in any bandit."""
        text = '[bandits.offers]\nfeatures = "PerArm([1, 2], context=3)"\nrewards = "Explicit()"\n'
        for policy_text, policy in {
            "DelayedUCB": DelayedUCB(8, blocks=2),
            "DelayedUCB(family=Gaussian())": DelayedUCB(8, Gaussian(), blocks=2),
            "DelayedThompson(floor=0.1)": DelayedThompson(8, floor=0.1, blocks=2),
        }.items():
            (offers,) = parse_config(f'{STORE}{text}policy = "{policy_text}"\n').bandits
            assert offers.policy == policy

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
        assert treatments.policy == DelayedThompson(4, Bernoulli(), draws=16, blocks=2)
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
            server = f'[server]\nhost = "0.0.0.0"\nauth = "{auth}"\n'
            assert parse_config(STORE + server + OFFERS).server.auth == auth
        (mistake,) = mistakes(STORE + '[server]\nhost = "0.0.0.0"\n' + OFFERS)
        assert mistake.startswith(
            "belated.toml, line 4: server.host: '0.0.0.0' is reachable from other"
        )
        (mistake,) = mistakes(STORE + '[server]\nauth = "none"\n' + OFFERS)
        assert mistake.endswith("""server.auth: expected "keys" or "off", got 'none'""")

    @pytest.mark.parametrize(
        ("written", "why"),
        [
            ('"https://shop.example"', "a list of origins, such as"),
            ('["*"]', "'*' would let every page on the web send requests: list the origins"),
            ('["https://shop.example", 7]', "7 is not an origin: write scheme://host or"),
            ('["shop.example"]', "'shop.example' is not an origin"),
            ('["null"]', "'null' is not an origin"),
            ('["https://shop.example/"]', "is not an origin: write scheme://host or"),
            ('["https://Shop.example"]', "in lower case and without a path"),
            ('["https://me@shop.example"]', "is not an origin"),
            ('["https://shop.example:443"]', "browsers omit: write 'https://shop.example'"),
            ('["http://[::1]:80"]', "browsers omit: write 'http://[::1]'"),
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
        with pytest.raises(InvalidInput, match="the environment variable SIGNERS is not set"):
            config.token_keys({})
        assert parse_config(STORE + OFFERS).token_keys({}) is None
        (mistake,) = mistakes(STORE + OFFERS + 'tokens = "report"\n')
        assert mistake.endswith('secrets_env = "BELATED_TOKEN_KEYS" under [tokens]')
        (mistake,) = mistakes(text.replace("enforce", "on"))
        assert """expected "off", "report" or "enforce", got 'on'""" in mistake

    @pytest.mark.parametrize("family", ["Gaussian()", "Poisson()"])
    @pytest.mark.parametrize("mode", ["report", "enforce"])
    def test_tokens_need_rewards_with_bounds(self, family: str, mode: str) -> None:
        """Otherwise anyone with a token could report a value that decides alone."""
        text = f'{STORE}[tokens]\nsecrets_env = "S"\n{OFFERS}tokens = "{mode}"\n'
        text = text.replace("Bernoulli()", family)
        (mistake,) = mistakes(text)
        assert mistake.startswith("belated.toml, line 8: bandits.offers.tokens: ")
        assert 'can report a value: add bounds, as in rewards = "Explicit(' in mistake
        bounded = text.replace("window='7d'", "'7d', bounds=(0, 100)")
        assert parse_config(bounded).bandits[0].tokens == mode

    def test_a_share_of_requests(self) -> None:
        """From none to all."""
        for share in ("0", "1", '"auto"'):
            assert parse_config(STORE + OFFERS + f"keep_requests = {share}\n")
        (mistake,) = mistakes(STORE + OFFERS + "keep_requests = 2\n")
        assert "`keep_requests` must be 'auto' or a share from 0 to 1, got 2" in mistake

    def test_the_password_is_not_shown(self) -> None:
        """A configuration may end up in a log."""
        config = parse_config(STORE.replace("localhost", "me:secret@localhost") + OFFERS)
        assert "secret" not in repr(config)


class TestTheCommand:
    def test_check_needs_no_store(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """It says what would be served."""
        file = tmp_path / "belated.toml"
        file.write_text(STORE + OFFERS, encoding="utf-8")
        assert main(["serve", "--check", str(file)]) == 0
        output = capsys.readouterr().out
        assert "offers  DelayedUCB(dim=20, family=Bernoulli()" in output
        assert output.endswith("OK: 1 bandit\n")

    def test_check_prints_each_mistake_in_a_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The exit code is 1: it looked, and found something wrong."""
        file = tmp_path / "belated.toml"
        file.write_text(STORE.replace("address", "adress") + OFFERS, encoding="utf-8")
        assert main(["serve", "--check", str(file)]) == 1
        missing, unknown, summary = capsys.readouterr().out.splitlines()
        assert missing.startswith(f"{file}, line 1: store.address: missing")
        assert unknown.startswith(f"{file}, line 2: store.adress: unknown key; did you mean addr")
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
        assert "store.address: missing" in line
        assert line.endswith(f"and 1 more: see `belated serve --check {file}`")

    def test_a_missing_server_is_told_with_the_command_to_install_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before anything else is looked at."""
        monkeypatch.setitem(sys.modules, "httptools", None)
        for name in ("server", "connection", "framing"):
            monkeypatch.delitem(sys.modules, f"belated.service.http.{name}", raising=False)
        assert main(["serve", str(tmp_path / "none.toml")]) == 2
        message = "belated: belated serve needs an extra: pip install 'belated[service]', "
        assert capsys.readouterr().err == f"{message}or in a clone pip install '.[service]'\n"

    @pytest.mark.parametrize(
        "command",
        [
            ("serve",),
            ("learn",),
            ("mode", "offers", "--config"),
            ("doctor",),
            ("keys", "list", "--config"),
        ],
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
        for name in [
            module for module in sys.modules if module.startswith("belated.journals.postgres")
        ]:
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
        with pytest.raises(InvalidConfig, match="line 2: the text is not valid UTF-8"):
            read_config(file)
