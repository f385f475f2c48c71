"""Print the OpenAPI document of the service: ``npm run types`` generates src/openapi.ts from it."""

import json

from belated.service.http.app import ROUTES
from belated.service.http.openapi import describe

if __name__ == "__main__":
    print(json.dumps(describe(ROUTES, keys=True, tokens=True)))
