"""Simulate visitors of the shop, some of whom buy a little later.

Run: python visitors.py [URL [COUNT]]
"""

import random
import sys

import httpx

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
count = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000
rng = random.Random(4)
orders: list[tuple[int, str]] = []

with httpx.Client(base_url=url) as shop:
    for number in range(count):
        visitor, returning = f"visitor-{number}", rng.random() < 0.4
        query = {"visitor": visitor, "returning": returning, "basket": round(rng.random(), 2)}
        offer = shop.get("/offer", params=query).json()["offer"]
        chance = {"none": 0.1, "free shipping": 0.22, "10% off": 0.3 if returning else 0.15}[offer]
        if rng.random() < chance:
            orders.append((number + rng.randrange(1, 60), visitor))
        for due, buyer in sorted(orders):
            if due <= number or number == count - 1:
                shop.post("/payments", json={"visitor": buyer, "order": f"order-{buyer}"})
                orders.remove((due, buyer))
