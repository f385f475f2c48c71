r"""A FastAPI shop with a decision service in the same process, sticky offers and late purchases.

    pip install 'belated[service,client]' fastapi uvicorn
    uvicorn shop:app

    curl 'localhost:8000/offer?visitor=ann&returning=1&basket=0.4'
    curl -X POST localhost:8000/payments -H 'Content-Type: application/json' \
        -d '{"visitor": "ann", "order": "order-1"}'
    python visitors.py

Each visitor gets the same offer for a day. Minutes or days later, and sometimes
twice, the payment provider sends the visitor and the order to the webhook ``/payments``. The
purchase is credited to the visitor's latest offer.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from belated.client import AsyncClient
from belated.service import asgi_app

decisions = asgi_app(Path(__file__).with_name("belated.toml"))
offers = AsyncClient(decisions, bandit="offers", fallback="none")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the service while the shop runs."""
    async with decisions.lifespan(app), offers:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/bandits", decisions)  # the console is at /bandits/console


class Payment(BaseModel):
    """Body of a webhook request from the payment provider."""

    visitor: str
    order: str


@app.get("/offer")
async def offer(visitor: str, returning: bool, basket: float) -> dict[str, int | str]:
    """Return the offer for a visitor, which stays the same for a day."""
    context = {"returning": float(returning), "basket": basket}
    decision = await offers.decide(context, subject=visitor, sticky="1d")
    return {"offer": decision.action}


@app.post("/payments")
async def paid(payment: Payment) -> dict[str, str]:
    """Report a purchase. The order id ensures that the purchase counts once."""
    await offers.observe(None, 1.0, subject=payment.visitor, event_id=payment.order)
    return {"status": "accepted"}
