"""The shop of README.md, from the installed wheel: what its owner does, in order.

`belated init`, decisions over HTTP, late sales, a crash, a report, and a customer who wants to be
forgotten. Each step of the story is a function below.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.wheels import ROOT, run
from tests.integration.processes import Process, later
from tests.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the service is for POSIX systems")

ADDRESS = "sqlite:///belated.db"
#: The body that `belated init` prints.
OFFER = {"context": {"returning": 1}, "actions": ["blue", "red"]}
FORGOTTEN = "order-of-a-customer-to-forget"


@pytest.fixture(scope="module")
def programs(install: Callable[..., Path]) -> Path:
    """The programs of an environment with the wheel and what its extra `service` requires."""
    return install("service")


def test_the_quickstart_of_the_readme(programs: Path) -> None:
    """Every Python block of README.md, with the installed library."""
    output = run(programs / "python", "-W", "error", ROOT / "tests" / "wheel_smoke.py")
    assert "Python blocks run" in output


def test_the_shop_of_the_readme(shop: Shop) -> None:
    """Nothing that was acknowledged is lost, and what is sent again counts once."""
    shop.run("init")
    shop.open()
    orders = [shop.decide(f"order-{n}") for n in range(20)] + [shop.decide(FORGOTTEN)]
    sales = [shop.sell(order) for order in (*orders[:5], FORGOTTEN)]
    shop.learns(sales, orders)

    crowd = Crowd(shop)
    crowd.shops_until_the_service_is_killed()
    shop.open()
    crowd.finds_all_that_was_acknowledged()
    crowd.retries_what_was_not_acknowledged()
    orders += crowd.orders
    sales += crowd.sold
    shop.learns(sales, orders)

    for order in sales:  # a feed that is sent twice
        shop.sell(order)
    late_sales = [shop.sell(order) for order in orders[5:15]]  # their sales come after the crash
    sales += late_sales
    shop.learns(sales, orders)

    report_says(shop, decisions=len(orders), rewards=len(sales))

    visitors = visits_and_buys(shop, 6)
    orders += visitors
    sales += visitors[3:]
    shop.learns(sales, orders)

    for visit in forget(shop, "visitor-2"):
        orders.remove(visit)
    sales.remove("visit-5")
    erase(shop, FORGOTTEN)
    orders.remove(FORGOTTEN)
    sales.remove(FORGOTTEN)
    shop.learns(sales, orders)
    shop.close()
    for name in (FORGOTTEN, "visitor-2", "visit-2", "visit-5", "purchase-2"):
        assert files_with(shop.folder, name) == []
    assert files_with(shop.folder, "visitor-1")

    shop.open()
    assert shop.story(FORGOTTEN)["state"] == "erased"
    assert "decision" not in shop.story(FORGOTTEN)
    assert shop.story(late_sales[0])["state"] == "rewarded"
    shop.close()


# --- the steps ----------------------------------------------------------------------------------


class Crowd:
    """Customers who shop at the same time, each from a thread, while the service is killed."""

    CUSTOMERS = 4
    #: Answers in all before the service is killed.
    ENOUGH = 100

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.orders: list[str] = []
        self.sold: list[str] = []
        self._decided: list[str] = []
        self._unanswered: list[tuple[Callable[[str], str], str]] = []

    def shops_until_the_service_is_killed(self) -> None:
        """Each decides, and every second decision is a sale, until no answer comes."""
        with ThreadPoolExecutor(self.CUSTOMERS) as customers:
            shopping = [customers.submit(self._customer, n) for n in range(self.CUSTOMERS)]
            try:
                later(lambda: len(self._decided) + len(self.sold) >= self.ENOUGH)
            finally:
                self._shop.crash()
        for customer in shopping:
            customer.result()
        assert len(self._unanswered) == self.CUSTOMERS

    def _customer(self, number: int) -> None:
        for n in range(1_000_000):
            order = f"order-{number}-{n}"
            if not self._answered(self._shop.decide, order, self._decided):
                return
            if n % 2 and not self._answered(self._shop.sell, order, self.sold):
                return

    def _answered(self, act: Callable[[str], str], order: str, done: list[str]) -> bool:
        """Whether the service acknowledged it."""
        try:
            done.append(act(order))
        except (OSError, HTTPException, ValueError):  # no answer, or half of one
            self._unanswered.append((act, order))
            return False
        return True

    def finds_all_that_was_acknowledged(self) -> None:
        """Every decision, and every sale."""
        for order in self._decided:
            story = self._shop.story(order)
            assert story["decision"]["action"] in OFFER["actions"]
            assert (order not in self.sold) or story["state"] == "rewarded", story

    def retries_what_was_not_acknowledged(self) -> None:
        """The service may have stored it before it was killed, or not."""
        for act, order in self._unanswered:
            (self.sold if act == self._shop.sell else self._decided).append(act(order))
        self.orders = self._decided


def report_says(shop: Shop, decisions: int, rewards: int) -> None:
    """`belated report` writes a page, and counts each decision and reward once."""
    shop.run("report", ADDRESS, "--output", "report.html")
    page = (shop.folder / "report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    headline = json.loads(shop.run("report", ADDRESS, "--json"))["headline"]
    assert (headline["decisions"], headline["rewards"]) == (decisions, rewards)


def visits_and_buys(shop: Shop, count: int) -> list[str]:
    """Decide twice for each of three visitors, and report a purchase of each, twice.

    Purchases name the visitor, and count for the second decision.
    """
    decisions = []
    for n in range(count):
        request = {"id": f"visit-{n}", "subject": f"visitor-{n % 3}", **OFFER}
        status, response = shop.service.ask("POST", "/v1/offers/decisions", request)
        assert status == 201, response
        decisions.append(f"visit-{n}")
    purchases = [
        {"subject": f"visitor-{n}", "value": 1.0, "event_id": f"purchase-{n}"} for n in range(3)
    ]
    for _ in range(2):
        status, response = shop.service.ask("POST", "/v1/offers/rewards", {"rewards": purchases})
        assert (status, response) == (202, {"accepted": 3})
    return decisions


def forget(shop: Shop, visitor: str) -> list[str]:
    """Erase a visitor, with both visits and the purchase; returns the visits."""
    status, response = shop.service.ask("DELETE", f"/v1/offers/subjects/{visitor}", None)
    assert (status, response) == (200, {"decisions": 2})
    number = int(visitor.removeprefix("visitor-"))
    return [f"visit-{number}", f"visit-{number + 3}"]


def erase(shop: Shop, order: str) -> None:
    """`belated journal erase`, and `overwrite`, which destroys the bytes."""
    assert files_with(shop.folder, order)
    shop.run("journal", "erase", ADDRESS, order, "--reason", "asked by the customer")
    later(lambda: shop.story(order)["state"] == "erased")
    later(lambda: shop.succeeds("journal", "erase", ADDRESS, "--overwrite"))


def files_with(folder: Path, text: str) -> list[str]:
    """The names of files that hold a text."""
    return [file.name for file in folder.iterdir() if text.encode() in file.read_bytes()]


# --- the shop -----------------------------------------------------------------------------------


class Shop:
    """A folder with `belated.toml` and the service that runs there."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._belated = programs / "belated"
        self._service: Process | None = None

    def run(self, *arguments: str) -> str:
        """What a command prints."""
        return run(self._belated, *arguments, cwd=self.folder)

    def succeeds(self, *arguments: str) -> bool:
        """Whether a command does all of its work; overwriting has to wait for a snapshot."""
        command = [str(self._belated), *arguments]
        return subprocess.run(command, cwd=self.folder, check=False).returncode == 0

    def open(self) -> None:
        """Start the service."""
        self._service = Process(
            self.folder / "service.log",
            *("serve", "belated.toml", "--port", str(free_port())),
            belated=[self._belated],
            folder=self.folder,
        )
        self._service.heard("serving")

    def crash(self) -> None:
        """Kill the service (`kill -9`)."""
        self.service.kill()

    def close(self) -> None:
        """Stop the service as a process manager does."""
        self.service.send(signal.SIGTERM)
        assert self.service.ended() == 0, self.service.log

    @property
    def service(self) -> Process:
        """The service that runs, or ran last."""
        assert self._service is not None
        return self._service

    def decide(self, order: str) -> str:
        """Decide what to offer; the id of the decision is the order's."""
        status, response = self.service.ask("POST", "/v1/offers/decisions", {"id": order, **OFFER})
        assert status == 201, response
        return order

    def sell(self, order: str) -> str:
        """Report a sale."""
        self.service.reward(order)
        return order

    def story(self, order: str) -> dict[str, Any]:
        """What the service knows about a decision."""
        status, response = self.service.ask("GET", f"/v1/offers/decisions/{order}")
        assert status == 200, response
        return response

    def learns(self, sold: list[str], orders: list[str]) -> None:
        """Wait until the bandit has learned these sales of these decisions, each once."""
        assert len({*sold}) == len(sold)
        assert len({*orders}) == len(orders)
        expected = len(sold), len(orders) - len(sold)

        def counts() -> tuple[int, int]:
            state = self.service.state()
            return state["observations"], state["pending"]

        later(lambda: counts() == expected, f"{expected} sold and pending were expected")


@pytest.fixture
def shop(programs: Path, tmp_path: Path) -> Iterator[Shop]:
    """A new shop, which is closed in the end."""
    instance = Shop(tmp_path, programs)
    try:
        yield instance
    finally:
        if instance._service is not None:
            instance.crash()
