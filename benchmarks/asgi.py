"""What the ASGI application costs, compared with the service's own server.

Both serve the same bandit from a real PostgreSQL, one in uvicorn with httptools and uvloop. Slices
of load by wrk alternate, so that a busy machine is busy for both. Prints the medians and quartiles
of requests/s and of the ratios of pairs.

Run: python benchmarks/asgi.py [--slices 15] [--seconds 2] [--connections 32]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from service import POST, Load, quartiles, rows
from service_apps import OFFERS
from service_processes import Server

# Found by what service_processes.py adds to the path.
from tests.integration.postgres_server import database


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=32)
    arguments = parser.parse_args()
    body = json.dumps({"rows": rows()[0]}, separators=(",", ":"))
    results: dict[str, list[tuple[float, float]]] = {"service": [], "asgi": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        database() as dsn,
        Server("service", dsn) as service,
        Server("asgi", dsn) as asgi,
    ):
        load = Load(Path(folder), "decide", POST.format(body=body), f"/v1/{OFFERS.name}/decisions")
        servers = {"service": service, "asgi": asgi}
        for number in range(arguments.slices + 1):
            for name in sorted(servers, reverse=number % 2 == 0):
                result = load.run(servers[name], arguments.connections, arguments.seconds)
                if number:  # the first slice warms up
                    results[name].append(result)
    for name, values in results.items():
        print(f"{name:8} requests/s {quartiles([rate for rate, _ in values])}")
    pairs = list(zip(results["asgi"], results["service"], strict=True))
    print(
        f"asgi / service, requests/s {quartiles([own[0] / service[0] for own, service in pairs])}"
    )
    print(
        f"asgi / service, CPU        {quartiles([own[1] / service[1] for own, service in pairs])}"
    )


if __name__ == "__main__":
    main()
