"""The chart of deploy/helm: each of its values, and each setting of belated.toml, arrives.

`.ci/chart` fetches helm and kubernetes-validate, and runs this.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from belated.cli.main import main
from belated.service.operating import config as settings

yaml = pytest.importorskip("yaml")

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "belated"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
VERSIONS = ("1.25", "1.30")
DIGEST = f"sha256:{0:064d}"

#: A file to change one setting of, by table.
FILE = {
    "": {},
    "store": {"address_env": '"DATABASE_URL"'},
    "server": {"learn": "false", "auth": '"keys"', "spool_dir": '"/var/lib/belated/spool"'},
    "tokens": {"secrets_env": '"BELATED_TOKEN_KEYS"'},
    "bandits.offers": {
        "features": "\"PerArm(['red', 'blue'], context=['age'])\"",
        "rewards": "\"ConversionsOnly('7d')\"",
    },
    "bandits.offers.holdout": {"share": "0.05"},
}
#: Each setting of belated.toml with a value that is not the usual one.
SETTINGS = {
    "policies": '["shop_policies"]',
    "store.address": '"postgresql://db/belated"',
    "store.address_env": '"SHOP_DATABASE"',
    "server.host": '"::"',
    "server.port": "8081",
    "server.learn": "true",
    "server.lease_ttl": '"30s"',
    "server.max_body_bytes": "4096",
    "server.auth": '"off"',
    "server.cors": '["https://shop.example"]',
    "server.hosts": '["bandits.example"]',
    "server.max_connections": "100",
    "server.max_connections_per_address": "10",
    "server.spool_dir": '"/var/lib/belated/spool/größer"',
    "server.spool_max_bytes": "65536",
    "server.drain": '"10s"',
    "tokens.secrets_env": '"SHOP_TOKENS"',
    "bandits.offers.policy": '"DelayedUCB(dim=4, family=Bernoulli(), alpha=0.5)"',
    "bandits.offers.rewards": "\"DefaultAfter('1h', value=0.25)\"",
    "bandits.offers.retention": '"30d"',
    "bandits.offers.partitions": "8",
    "bandits.offers.learners": '"many"',
    "bandits.offers.tokens": '"enforce"',
    "bandits.offers.token_lifetime": '"2h"',
    "bandits.offers.baseline": '"{{ red }} \\\\ \\"blue\\""',
    "bandits.offers.keep_requests": "0.5",
    "bandits.offers.features": "\"PerArm(['red', 'grün'], context=['age'])\"",
    "bandits.offers.holdout.share": "0.1",
    "bandits.offers.holdout.baseline": '"first"',
    "bandits.offers.holdout.by": '"age"',
}

#: The module that is named there.
MODULE = """
from belated import DelayedUCB
from belated.expressions import register

@register
def Bold(dim, family):
    return DelayedUCB(dim, family, alpha=2.0)
"""


class Place(NamedTuple):
    """Where a value of the chart stands in what it makes.

    Attributes:
        value: that is set, as ``--set`` takes it.
        kind: of the object, with the end of its name.
        path: in the object.
        found: what stands there.
    """

    value: str
    kind: str
    path: tuple[str | int, ...]
    found: object


POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)
CALLER = "[0].podSelector.matchLabels.app"


def _resources(whose: str, kind: str) -> dict[str, Place]:
    """What deciders and learners may take."""
    asked: dict[str, tuple[str, object]] = {
        "requests.cpu": ("2", 2),
        "requests.memory": ("3Gi", "3Gi"),
        "limits.memory": ("3Gi", "3Gi"),
    }
    return {
        f"{whose}.resources.{name}": Place(
            value, kind, (*CONTAINER, "resources", *name.split(".")), found
        )
        for name, (value, found) in asked.items()
    }


PLACES = {
    "image.repository": Place(
        "shop/it", "Deployment -learner", (*CONTAINER, "image"), "shop/it:{}"
    ),
    "image.tag": Place("1.0", "Job -tables", (*CONTAINER, "image"), "belated:1.0"),
    "image.digest": Place(
        DIGEST, "StatefulSet -decider", (*CONTAINER, "image"), f"belated@{DIGEST}"
    ),
    "image.pullPolicy": Place(
        "Always", "StatefulSet -decider", (*CONTAINER, "imagePullPolicy"), "Always"
    ),
    "secret": Place(
        "shop", "Job -tables", (*CONTAINER, "envFrom", 0, "secretRef"), {"name": "shop"}
    ),
    "deciders.replicas": Place("5", "StatefulSet -decider", ("spec", "replicas"), 5),
    "deciders.port": Place(
        "80", "StatefulSet -decider", (*CONTAINER, "args"),
        ["serve", "belated.toml", "--host", "0.0.0.0", "--port", "80", "--processes", "1"],
    ),
    "deciders.processes": Place(
        "3", "StatefulSet -decider", (*CONTAINER, "args"),
        ["serve", "belated.toml", "--host", "0.0.0.0", "--port", "8080", "--processes", "3"],
    ),
    "deciders.gracePeriod": Place(
        "90", "StatefulSet -decider", (*POD, "terminationGracePeriodSeconds"), 90
    ),
    "deciders.spool": Place(
        "9Gi", "StatefulSet -decider",
        ("spec", "volumeClaimTemplates", 0, "spec", "resources"), {"requests": {"storage": "9Gi"}},
    ),
    "deciders.storageClass": Place(
        "fast", "StatefulSet -decider",
        ("spec", "volumeClaimTemplates", 0, "spec", "storageClassName"), "fast",
    ),
    **_resources("deciders", "StatefulSet -decider"),
    "learners.replicas": Place("3", "Deployment -learner", ("spec", "replicas"), 3),
    "learners.metrics": Place(
        "9100", "Deployment -learner", (*CONTAINER, "args"),
        ["learn", "belated.toml", "--metrics", "0.0.0.0:9100"],
    ),
    **_resources("learners", "Deployment -learner"),
    f"networkPolicy.callers{CALLER}": Place(
        "shop", "NetworkPolicy ", ("spec", "ingress", 0, "from", 0),
        {"podSelector": {"matchLabels": {"app": "shop"}}},
    ),
    f"networkPolicy.scrapers{CALLER}": Place(
        "watch", "NetworkPolicy ", ("spec", "ingress", 1, "from", 0),
        {"podSelector": {"matchLabels": {"app": "watch"}}},
    ),
}  # fmt: skip


def helm(*arguments: str) -> str:
    """What helm prints."""
    command = [os.environ["HELM"], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(folder: Path, *options: str) -> dict[str, Any]:
    """Objects of the chart by kind and the end of their name, taken by helm and by Kubernetes."""
    helm("lint", "--strict", str(CHART), *options)
    for version in VERSIONS:
        text = helm("template", "shop", str(CHART), "--kube-version", version, *options)
        file = folder / f"{version}.yaml"
        file.write_text(text, encoding="utf-8")
        check = [os.environ["KUBERNETES_VALIDATE"], "--strict", "--quiet", "-k", version, str(file)]
        done = subprocess.run(check, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    objects = [one for one in yaml.safe_load_all(text) if one]
    return {f"{one['kind']} {one['metadata']['name'].removeprefix('shop')}": one for one in objects}


def at(found: Any, path: tuple[str | int, ...]) -> Any:
    """What stands there."""
    for step in path:
        found = found[step]
    return found


def leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """The names of all values."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def document(key: str, value: str) -> str:
    """A belated.toml with this setting."""
    file = {name: dict(keys) for name, keys in FILE.items()}
    table, _, name = key.rpartition(".")
    file[table][name] = value
    if key == "store.address":
        del file[table]["address_env"]
    if key in ("bandits.offers.learners", "bandits.offers.policy"):
        file["bandits.offers"]["rewards"] = '"Explicit()"'
    if name in ("policy", "features"):  # the holdout is by no field of theirs
        file["bandits.offers.holdout"].pop("by", None)
    lines = [f"{name} = {value}" for name, value in file.pop("").items()]
    for table, keys in file.items():
        lines += [f"[{table}]", *(f"{name} = {value}" for name, value in keys.items())]
    return "\n".join(lines) + "\n"


def test_there_is_a_case_for_each() -> None:
    """Value of the chart, and setting of the file."""
    assert set(leaves(VALUES)) - {"config"} == {name.partition("[")[0] for name in PLACES}
    assert settings.__file__ is not None
    source = Path(settings.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'\.take\(\s*"(\w+)"', source))
    assert {name.rpartition(".")[2] for name in SETTINGS} == read


@pytest.mark.parametrize("name", PLACES)
def test_a_value_of_the_chart_arrives(name: str, tmp_path: Path) -> None:
    """Where it belongs, and what comes of it is valid."""
    place = PLACES[name]
    made = rendered(tmp_path, "--set", f"{name}={place.value}")
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    found = at(made[place.kind], place.path)
    expected = place.found
    if isinstance(expected, str):
        expected = expected.format(about["appVersion"])
    assert found == expected


def test_ports_agree(tmp_path: Path) -> None:
    """Those of the containers, of the service and of the network policy."""
    made = rendered(tmp_path, "--set", "deciders.port=81,learners.metrics=91")
    decider = at(made["StatefulSet -decider"], CONTAINER)
    assert decider["ports"] == [{"name": "http", "containerPort": 81}]
    assert made["Service "]["spec"]["ports"] == [{"name": "http", "port": 81, "targetPort": "http"}]
    learner = at(made["Deployment -learner"], CONTAINER)
    assert learner["ports"] == [{"name": "metrics", "containerPort": 91}]
    allowed = [one["ports"] for one in made["NetworkPolicy "]["spec"]["ingress"]]
    assert allowed == [[{"port": 81}], [{"port": 91}]]


@pytest.mark.parametrize("key", SETTINGS)
def test_a_setting_of_the_file_arrives(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both config maps, byte for byte; pods start anew; belated takes file and arguments."""
    text = document(key, SETTINGS[key])
    file = tmp_path / "shop.toml"
    file.write_text(text, encoding="utf-8")
    made = rendered(tmp_path, "--set-file", f"config={file}")
    for name in ("ConfigMap -config", "ConfigMap -tables"):
        assert made[name]["data"]["belated.toml"] == text
    arrived = at(tomllib.loads(made["ConfigMap -config"]["data"]["belated.toml"]), split(key))
    assert arrived == tomllib.loads(f"it = {SETTINGS[key]}")["it"]
    digest = hashlib.sha256(text.encode()).hexdigest()
    for name in ("StatefulSet -decider", "Deployment -learner"):
        annotations = at(made[name], ("spec", "template", "metadata", "annotations"))
        assert annotations == {"checksum/config": digest}
    for name in ("DATABASE_URL", "SHOP_DATABASE"):
        monkeypatch.setenv(name, "postgresql://db/belated")
    (tmp_path / "shop_policies.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    command, _, *rest = at(made["StatefulSet -decider"], (*CONTAINER, "args"))
    assert main([command, str(file), *rest, "--check"]) == 0


def split(key: str) -> tuple[str | int, ...]:
    """A path in a file."""
    return tuple(key.split("."))


def test_the_settings_the_chart_relies_on() -> None:
    """What values.yaml says by itself: a spool where its volume is, and time enough to drain."""
    usual = settings.parse_config(VALUES["config"], environment={"DATABASE_URL": "postgresql://db"})
    assert usual.server.drain + 30 <= VALUES["deciders"]["gracePeriod"]
