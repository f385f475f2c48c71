"""A web shop on FastAPI that asks a decision service, without blocking the event loop.

    pip install 'belated[client]' fastapi uvicorn
    DECISIONS_URL=http://localhost:8080 uvicorn fastapi_async:app

    curl 'localhost:8000/banner?returning=true'
    curl -X POST localhost:8000/clicks/ID

The service must have a bandit named ``banners`` whose context has the field ``returning``. If the
service requires an API key, set ``SHOP_KEY``.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException

from belated import Receipt
from belated.client import AsyncClient
from belated.exceptions import ServiceUnavailable

BANNERS = ["books", "music", "toys"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open one client for all requests, so that its connections are reused."""
    url, key = os.environ["DECISIONS_URL"], os.environ.get("SHOP_KEY")
    async with AsyncClient(url, bandit="banners", key=key, timeout=0.5, retries=1) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/banner")
async def banner(returning: bool = False) -> dict[str, Any]:
    """Choose a banner. The page reports a click with the returned id."""
    try:
        decision = await app.state.client.decide({"returning": float(returning)}, BANNERS)
    except ServiceUnavailable:  # show a default banner; nothing is learned from it
        return {"id": None, "action": BANNERS[0]}
    return decision.to_dict()


@app.post("/clicks/{id}")
async def click(id: str) -> Receipt:
    """Report a click, now or next week. Reporting it again has no effect."""
    try:
        return await app.state.client.observe(id, 1.0)
    except ServiceUnavailable as error:
        raise HTTPException(503, "try again later", {"Retry-After": "1"}) from error
