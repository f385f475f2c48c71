"""Real data sets of the benchmark, from packages that carry them: nothing is stored here.

River's come from its environment (install.py). Those of the Open Bandit Project are 10,000 rows in
the source distribution of ``obp`` 0.5.7 (Apache License 2.0), which is downloaded once.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
from install import HERE, python_of
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression

Table = tuple[np.ndarray, np.ndarray]
#: The click rate of the Open Bandit rows is .5 %; with this factor a run has some clicks.
CLICKS = 20.0

RIVER = """
import json, sys
from river import datasets
rows = [(list(x.values()), str(y)) for x, y in getattr(datasets, sys.argv[1])()]
print(json.dumps(rows))
"""


def labelled(features: np.ndarray, labels: np.ndarray) -> Table:
    """Return features, and for each row 1 for the action that is its class."""
    names = np.unique(labels)
    return np.asarray(features, float), (labels[:, None] == names).astype(float)


@cache
def breast_cancer() -> Table:
    return labelled(*load_breast_cancer(return_X_y=True))


@cache
def wine() -> Table:
    return labelled(*load_wine(return_X_y=True))


def _river(name: str) -> Table:
    command = [python_of("river"), "-c", RIVER, name]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return labelled(np.array([row[0] for row in rows], float), np.array([row[1] for row in rows]))


@cache
def image_segments() -> Table:
    return _river("ImageSegments")


@cache
def phishing() -> Table:
    return _river("Phishing")


@cache
def bananas() -> Table:
    return _river("Bananas")


@cache
def open_bandit() -> Table:
    """Return user features, and click rates of 34 items shown at random: a fit, times 20.

    Ten thousand rows have 46 clicks, too few to replay. The rates are those of a logistic
    regression on user features and items.
    """
    with tarfile.open(_obp()) as archive:
        member = archive.extractfile("obp-0.5.7/obp/dataset/obd/random/men/men.csv")
        assert member is not None
        rows = list(csv.DictReader(io.TextIOWrapper(member, encoding="utf-8")))
    users = np.hstack(
        [
            labelled(np.empty(0), np.array([row[f"user_feature_{n}"] for row in rows]))[1]
            for n in range(4)
        ]
    )
    items = labelled(np.empty(0), np.array([row["item_id"] for row in rows]))[1]
    clicks = np.array([row["click"] for row in rows], int)
    fit = LogisticRegression(max_iter=1000).fit(np.hstack([users, items]), clicks)
    of_user, of_item = np.split(fit.coef_[0], [users.shape[1]])
    scores = fit.intercept_ + (users @ of_user)[:, None] + of_item
    return users, np.clip(CLICKS / (1.0 + np.exp(-scores)), 0.0, 1.0)


def _obp() -> Path:
    folder = HERE / ".problems"
    folder.mkdir(exist_ok=True)
    path = folder / "obp-0.5.7.tar.gz"
    if not path.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary"]
        pins = [":all:", "--ignore-requires-python", "obp==0.5.7", "-d", folder]
        subprocess.run([*pip, *pins], check=True)
    return path
