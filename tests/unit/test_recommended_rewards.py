"""If only good outcomes are reported, everything recommends ``ConversionsOnly``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from belated import Bandit, Bernoulli, ConversionsOnly, DefaultAfter, DelayedUCB
from belated.cli.main import main
from belated.exceptions import InvalidConfig, InvalidInput
from belated.expressions import as_semantics
from belated.service.operating.config import parse_config

ROOT = Path(__file__).parents[2]
#: How a page writes that a bandit uses ``DefaultAfter``, and those that have a reason to.
DEFAULT = re.compile(r"rewards ?= ?\"?DefaultAfter")
REASONS = {
    "missing-rewards.md": "it explains all three",
}


def configured(text: str) -> ConversionsOnly:
    """The rewards of the only bandit in a configuration."""
    (bandit,) = tomllib.loads(text)["bandits"].values()
    rewards = as_semantics(bandit["rewards"])
    assert isinstance(rewards, ConversionsOnly)
    return rewards


@pytest.mark.parametrize("given", [None, ConversionsOnly, DefaultAfter, "7d", 7])
def test_bandit_without_valid_rewards_recommends_it(given: object) -> None:
    """It comes first, as something that can be copied; ``DefaultAfter`` is not proposed."""
    with pytest.raises(InvalidInput) as error:
        Bandit(policy=DelayedUCB(2, Bernoulli()), rewards=given)  # type: ignore[arg-type]
    advice = str(error.value).rpartition(": ")[2]
    assert advice.startswith("pass ConversionsOnly('7d') if only good outcomes are reported")
    assert "DefaultAfter" not in advice


@pytest.mark.parametrize("line", ["", 'rewards = "7d"', "rewards = \"Conversions('7d')\""])
def test_configuration_without_valid_rewards_recommends_it(line: str) -> None:
    """It is the example, whether the setting is missing or wrong."""
    text = '[store]\naddress = "sqlite:///a.db"\n[bandits.offers]\n'
    text += f'policy = "DelayedUCB(dim=2, family=Bernoulli())"\n{line}\n'
    with pytest.raises(InvalidConfig) as error:
        parse_config(text, file="belated.toml")
    assert "ConversionsOnly('7d')" in str(error.value)
    assert "DefaultAfter(" not in str(error.value)


def test_init_writes_it(tmp_path: Path) -> None:
    """What `belated init` writes can be served as it is."""
    file = tmp_path / "belated.toml"
    assert main(["init", str(file)]) == 0
    assert configured(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", ["deploy/belated.toml", "examples/browser/belated.toml"])
def test_files_to_start_from_have_it(file: str) -> None:
    """Those that compose starts, and those of an example."""
    assert configured((ROOT / file).read_text(encoding="utf-8"))


def test_the_chart_has_it() -> None:
    """In the configuration among its values."""
    values = (ROOT / "deploy/helm/belated/values.yaml").read_text(encoding="utf-8")
    match = re.search(r"^config: \|\n((?:  .*\n|\n)+)", values, re.MULTILINE)
    assert match is not None
    assert configured(dedent(match[1]))


@pytest.mark.parametrize("folder", ["docs/tutorial", "docs/howto", "examples"])
def test_guides_and_examples_use_nothing_else(folder: str) -> None:
    """``DefaultAfter`` stands only where there is a reason for it."""
    pages = [ROOT / "README.md", ROOT / "docs/index.md"]
    pages += [
        page for page in (ROOT / folder).rglob("*") if page.suffix in {".md", ".py", ".ipynb"}
    ]
    names = {page.name for page in pages if DEFAULT.search(page.read_text(encoding="utf-8"))}
    assert names <= set(REASONS)
