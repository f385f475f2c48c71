"""A web shop on FastAPI that decides in its own process.

    pip install belated fastapi uvicorn
    uvicorn fastapi_sync:app

    curl 'localhost:8000/banner?returning=true'
    curl -X POST localhost:8000/clicks/ID

FastAPI runs endpoints defined with ``def`` in threads, and threads may share a bandit. When a call
returns, its event is on disk. Several worker processes can share one file, too.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from fastapi import FastAPI

from belated import Bandit, ConversionsOnly, Decision, PerArm, Receipt

BANNERS = ["books", "music", "toys"]
FEATURES = PerArm(BANNERS, context=["returning"])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the bandit when the shop starts, and close it when it stops."""
    with Bandit(
        FEATURES,
        rewards=ConversionsOnly(timedelta(hours=1)),  # only clicks are reported
        journal=os.environ.get("JOURNAL", "sqlite:///shop.db"),
    ) as bandit:
        app.state.bandit = bandit
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/banner")
def banner(returning: bool = False) -> Decision:
    """Choose a banner. The page reports a click with the returned id."""
    return app.state.bandit.decide({"returning": float(returning)}, BANNERS)


@app.post("/clicks/{id}")
def click(id: str) -> Receipt:
    """Report a click, now or next week. Reporting it again has no effect."""
    return app.state.bandit.observe(id, 1.0)
