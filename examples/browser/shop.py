"""A shop whose pages report clicks directly from the browser to the decision service.

Start the service, create a key for the shop, and start the shop:

    export BELATED_TOKEN_KEYS=k1:$(openssl rand -base64 32)
    belated serve belated.toml &
    export SHOP_KEY=$(belated keys create shop --bandit banners --scope decide)
    python shop.py http://127.0.0.1:8080 8000

The key stays on the server. The page receives a token that can only report the reward of one
decision.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from belated.client import Client

BANNERS = ["books", "music", "toys"]
PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")


class Shop(BaseHTTPRequestHandler):
    """Request handler of the shop's web server."""

    service: str
    client: Client

    def do_GET(self) -> None:
        """Choose a banner, and send a page that can report a click on it."""
        if self.path != "/":  # the page that the banner links to
            self.answer("Thank you.")
            return
        decision = self.client.decide(None, BANNERS)
        place = f"{self.service}/v1/banners/decisions/{decision.id}/reward"
        reward = json.dumps({"url": place, "token": decision.token})
        self.answer(PAGE.replace("BANNER", str(decision.action)).replace("REWARD", reward))

    def answer(self, text: str) -> None:
        """Send ``text`` as an HTML page."""
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    Shop.service, port = sys.argv[1], int(sys.argv[2])
    Shop.client = Client(Shop.service, bandit="banners", key=os.environ["SHOP_KEY"])
    ThreadingHTTPServer(("127.0.0.1", port), Shop).serve_forever()
