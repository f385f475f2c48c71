"""Origins: which pages may send requests to the service from a browser."""

from __future__ import annotations

import re
from typing import Any

from belated.exceptions import InvalidInput

#: As a browser sends it: lower case, a host in ASCII, and no path.
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::([0-9]{1,5}))?")
#: Browsers leave these out.
_USUAL_PORTS = {"http": "80", "https": "443"}


def as_origin(value: Any) -> str:
    """An origin, as a browser sends it in the header ``Origin``.

    >>> as_origin("https://shop.example")
    'https://shop.example'
    >>> as_origin("https://shop.example/cart")
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: 'https://shop.example/cart' is not an origin: write \
scheme://host or scheme://host:port, in lower case and without a path
    """
    if value == "*":
        message = "'*' would let every page on the web send requests: list the origins of your own"
        raise InvalidInput(f"{message} pages, such as 'https://shop.example'", value)
    found = _ORIGIN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        message = f"{value!r} is not an origin: write scheme://host or scheme://host:port"
        raise InvalidInput(f"{message}, in lower case and without a path", value)
    scheme, port = found.groups()
    if port is not None and port == _USUAL_PORTS.get(scheme):
        message = f"{value!r} has the usual port of {scheme}, which browsers do not send"
        raise InvalidInput(f"{message}: write {value.removesuffix(f':{port}')!r}", value)
    return str(value)
