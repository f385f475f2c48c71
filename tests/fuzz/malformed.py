"""Requests that are no HTTP, or that two programs could read differently: the corpus.

Each is some bytes. A server or a proxy that takes a part of them for a request of its own can be
made to: the part asks for a path that nothing else here asks for. Most are of the published kinds
of request smuggling: two lengths, a length and chunks, obscured ``Transfer-Encoding``, lines that
end in unusual ways, chunks that are not what they say, and requests within bodies.
"""

# Lists of texts, which are read as such.
# ruff: noqa: E501

from __future__ import annotations

PATH = "/v1/corpus/decisions"
OFFER = b'{"rows":[[1,0],[0,1]]}'
#: What is smuggled asks for this.
HIDDEN = "/v1/hidden"
INNER = f"GET {HIDDEN} HTTP/1.1\r\nHost: here\r\n\r\n".encode()
EMPTY = b"0\r\n\r\n"


def message(*lines: str | bytes, body: bytes = b"", end: bytes = b"\r\n") -> bytes:
    """A request of these lines."""
    encoded = [line.encode("latin-1") if isinstance(line, str) else line for line in lines]
    return end.join([*encoded, b"", b""]) + body


def post(*headers: str | bytes, body: bytes = OFFER, end: bytes = b"\r\n") -> bytes:
    """A request for a decision, with these headers besides those that it needs."""
    start = (f"POST {PATH} HTTP/1.1", "Host: here", "Content-Type: application/json")
    return message(*start, *headers, body=body, end=end)


LENGTH = f"Content-Length: {len(OFFER)}"
CHUNKED = "Transfer-Encoding: chunked"
#: A body that a reader of lengths takes whole, and a reader of chunks finds a request in.
CL_TE = EMPTY + INNER
CL = f"Content-Length: {len(CL_TE)}"


def _lengths() -> dict[str, bytes]:
    values = [
        "", " ", "+22", "-1", "-0", "0x16", "22 22", "22,22", "22, 22", "22;22", "2 2", "２２", "1e1",
        "22.0", "22\x0b", "\x0c22", "22\x00", "22\xa0", "1" * 400, "18446744073709551616",
        "18446744073709551638", "9223372036854775808", "00000000000000000000000000", "NaN", "abc",
        "_22", "2_2", "022x", '"22"', "22\t22",
    ]  # fmt: skip
    cases = {
        f"length {value[:30]!r}": post(f"Content-Length: {value}".encode("utf-8", "replace"))
        for value in values
    }
    names = [
        "Content-Length ", " Content-Length", "Content_Length", "Content-Length\t", "Content-Length\x00",
        "Content\xadLength", "Content-Lengt\xe8", "\x0bContent-Length", "Content-Length\r", "C ontent-Length",
    ]  # fmt: skip
    cases |= {f"length as {name!r}": post(f"{name}: {len(OFFER)}") for name in names}
    cases |= {
        "two lengths that differ": post("Content-Length: 5", LENGTH),
        "two lengths that differ, the other way": post(LENGTH, "Content-Length: 5"),
        "two lengths that agree": post(LENGTH, LENGTH),
        "three lengths": post(LENGTH, LENGTH, "Content-Length: 0"),
        "a length of nothing, then a body": post("Content-Length: 0", body=INNER),
        "a length that is too short": post("Content-Length: 5"),
        "a length with another inside": post(f"Content-Length: {len(OFFER)}\r\n Content-Length: 5"),
        "a folded length": post("Content-Length:\r\n 22"),
        "GET with a body": message(
            "GET /livez HTTP/1.1", "Host: here", f"Content-Length: {len(INNER)}", body=INNER
        ),
    }
    return cases


def _codings() -> dict[str, bytes]:
    values = [
        "chunked", "Chunked", "CHUNKED", "chunked ", " chunked", "chunked\t", "\x0bchunked", "\x0cchunked",
        "chunked\x00", "\x00chunked", "chunke", "chunkedd", "xchunked", "x chunked", "chunked x",
        "chunked, identity", "identity, chunked", "identity", "gzip", "gzip, chunked", "chunked, gzip",
        "chunked,chunked", "chunked;q=1", '"chunked"', "'chunked'", ",chunked", "chunked,", "", "cow",
        "chun\tked", "chun ked", "chunked\xa0", "\xffchunked", "deflate, chunked", "compress",
        "chunked\r\n chunked", "\r\n chunked", "trailers, chunked", "chunked; foo=bar", "nchunked",
    ]  # fmt: skip
    cases = {
        f"length and coding {value!r}": post(CL, f"Transfer-Encoding: {value}", body=CL_TE)
        for value in values
    }
    cases |= {
        f"coding {value!r}": post(f"Transfer-Encoding: {value}", body=CL_TE)
        for value in values
        if value.strip().lower() != "chunked"
    }
    names = [
        "Transfer-Encoding ", " Transfer-Encoding", "Transfer_Encoding", "Transfer-Encoding\t", "Transfer Encoding",
        "Transfer-Encoding\x00", "\x00Transfer-Encoding", "Transfer\x0bEncoding", "X: y\nTransfer-Encoding",
        "X: y\rTransfer-Encoding", "Transfer-Encoding\r\n ", "Transfer-Encod\xefng", "\xa0Transfer-Encoding",
        "Foo: bar\r\n\tTransfer-Encoding", "\x7fTransfer-Encoding",
    ]  # fmt: skip
    cases |= {f"coding as {name!r}": post(CL, f"{name}: chunked", body=CL_TE) for name in names}
    cases |= {
        "coding without a blank": post(CL, "Transfer-Encoding:chunked", body=CL_TE),
        "two codings": post(CHUNKED, CHUNKED, body=CL_TE),
        "two codings, one unknown": post(CHUNKED, "Transfer-Encoding: cow", body=CL_TE),
        "two codings, the first unknown": post("Transfer-Encoding: cow", CHUNKED, body=CL_TE),
        "coding before length": post(CHUNKED, CL, body=CL_TE),
        "coding in HTTP/1.0": message(
            f"POST {PATH} HTTP/1.0", "Host: here", CHUNKED, "Content-Type: application/json", body=CL_TE
        ),
        "coding named as hop": post(CL, CHUNKED, "Connection: Transfer-Encoding", body=CL_TE),
        "length named as hop": post(CL, "Connection: close, Content-Length", body=CL_TE),
        "TE": post(CL, "TE: chunked", body=CL_TE),
    }  # fmt: skip
    return cases


def _chunks() -> dict[str, bytes]:
    bodies = {
        "a size that is too large": b"ffffffffffffffff\r\n" + INNER,
        "a size beyond 64 bits": b"10000000000000000\r\n" + INNER,
        "a size of many zeros": b"0" * 5_000 + b"16\r\n" + OFFER + b"\r\n" + EMPTY,
        "a negative size": b"-16\r\n" + OFFER + b"\r\n" + EMPTY,
        "a size with a plus": b"+16\r\n" + OFFER + b"\r\n" + EMPTY,
        "a size in hexadecimal": b"0x16\r\n" + OFFER + b"\r\n" + EMPTY,
        "a size with a blank before": b" 16\r\n" + OFFER + b"\r\n" + EMPTY,
        "a size with a blank after": b"16 \r\n" + OFFER + b"\r\n" + EMPTY,
        "a size with a tab": b"16\t\r\n" + OFFER + b"\r\n" + EMPTY,
        "a size with NUL": b"16\x00\r\n" + OFFER + b"\r\n" + EMPTY,
        "no size": b"\r\n" + OFFER + b"\r\n" + EMPTY,
        "a size that is none": b"xyz\r\n" + OFFER + b"\r\n" + EMPTY,
        "a size with an underscore": b"1_6\r\n" + OFFER + b"\r\n" + EMPTY,
        "a size in wide digits": "１６\r\n".encode() + OFFER + b"\r\n" + EMPTY,
        "a chunk that ends too late": b"5\r\n" + OFFER + b"\r\n" + EMPTY,
        "a chunk that ends too soon": b"30\r\n" + OFFER + b"\r\n" + EMPTY,
        "a chunk without its end": b"16\r\n" + OFFER + EMPTY,
        "a chunk ended by a bare LF": b"16\r\n" + OFFER + b"\n" + EMPTY,
        "a chunk ended by a bare CR": b"16\r\n" + OFFER + b"\r" + EMPTY,
        "a chunk ended by two letters": b"16\r\n" + OFFER + b"XX" + EMPTY,
        "sizes ended by a bare LF": b"16\n" + OFFER + b"\n0\n\n",
        "sizes ended by a bare CR": b"16\r" + OFFER + b"\r0\r\r",
        "an extension": b"16;a=b\r\n" + OFFER + b"\r\n" + EMPTY,
        "an extension with a bare LF": b"16;a\nb\r\n" + OFFER + b"\r\n" + EMPTY,
        "an extension with a bare CR": b"16;a\rb\r\n" + OFFER + b"\r\n" + EMPTY,
        "an extension in quotes with a line": b'16;a="\r\nb"\r\n' + OFFER + b"\r\n" + EMPTY,
        "an extension of 100 kB": b"16;" + b"a" * 100_000 + b"\r\n" + OFFER + b"\r\n" + EMPTY,
        "an extension without a name": b"16;\r\n" + OFFER + b"\r\n" + EMPTY,
        "a last chunk with an extension": b"16\r\n" + OFFER + b"\r\n0;\n" + INNER + b"\r\n\r\n",
        "many zeros at the end": b"16\r\n" + OFFER + b"\r\n000000\r\n\r\n",
        "an end without its line": b"16\r\n" + OFFER + b"\r\n0\r\n" + INNER,
        "a trailer": b"16\r\n" + OFFER + b"\r\n0\r\nX: y\r\n\r\n",
        "a trailer with a length": b"16\r\n" + OFFER + b"\r\n0\r\nContent-Length: 5\r\n\r\n",
        "a trailer with a coding": b"16\r\n" + OFFER + b"\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n",
        "a trailer with a host": b"16\r\n" + OFFER + b"\r\n0\r\nHost: there\r\n\r\n",
        "a trailer with a key": b"16\r\n" + OFFER + b"\r\n0\r\nAuthorization: x\r\n\r\n",
        "a trailer that is none": b"16\r\n" + OFFER + b"\r\n0\r\nwhat\r\n\r\n",
        "a folded trailer": b"16\r\n" + OFFER + b"\r\n0\r\nX: y\r\n z\r\n\r\n",
        "trailers ended by a bare LF": b"16\r\n" + OFFER + b"\r\n0\r\nX: y\n\n",
        "200 trailers": b"16\r\n" + OFFER + b"\r\n0\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        "10,000 empty extensions": b"".join(b"1;;\r\n \r\n" for _ in range(10_000)) + EMPTY,
    }
    return {f"chunks: {name}": post(CHUNKED, body=body) for name, body in bodies.items()}


def _lines() -> dict[str, bytes]:
    start_lines = [
        "", " ", "GET", "GET /livez", "GET  /livez HTTP/1.1", "GET /livez  HTTP/1.1", " GET /livez HTTP/1.1",
        "GET\t/livez\tHTTP/1.1", "get /livez HTTP/1.1", "GE T /livez HTTP/1.1", "G\x00T /livez HTTP/1.1",
        "GET /livez HTTP/1.1 ", "GET /livez HTTP/1.1 x", "GET /livez HTTP/1.2", "GET /livez HTTP/2",
        "GET /livez HTTP/2.0", "GET /livez HTTP/3.0", "GET /livez HTTP/0.9", "GET /livez HTTP/1", "GET /livez HTTP/1.",
        "GET /livez HTTP/1.10", "GET /livez HTTP/01.1", "GET /livez HTTP/ 1.1", "GET /livez http/1.1",
        "GET /livez HTP/1.1", "GET /livez ICE/1.0", "GET /livez RTSP/1.0", "GET /livez HTTP/-1.1",
        "GET /livez HTTP/1,1", "GET livez HTTP/1.1", "GET \\livez HTTP/1.1", "GET /li vez HTTP/1.1",
        "GET /li\x00vez HTTP/1.1", "GET /li\x7fvez HTTP/1.1", "GET /li\xe9vez HTTP/1.1", "GET /livez# HTTP/1.1",
        "GET /livez#a HTTP/1.1", "GET //livez HTTP/1.1", "GET /../livez HTTP/1.1", "GET /%2e%2e/livez HTTP/1.1",
        "GET /./livez HTTP/1.1", "GET /livez/ HTTP/1.1", "GET /%6civez HTTP/1.1", "GET /livez%00 HTTP/1.1",
        "GET /livez%0d%0aX:y HTTP/1.1", "GET /v1/%ff HTTP/1.1", "GET /v1/%zz HTTP/1.1", "GET /v1/% HTTP/1.1",
        "GET /v1/a/decisions/%ff HTTP/1.1", "GET http://there/livez HTTP/1.1", "GET http://here@there/livez HTTP/1.1",
        "GET http:///livez HTTP/1.1", "GET http:/livez HTTP/1.1", "GET https://here:99999/livez HTTP/1.1",
        "GET ftp://here/livez HTTP/1.1", "GET file:///etc/passwd HTTP/1.1", "GET here:80 HTTP/1.1", "GET * HTTP/1.1",
        "OPTIONS * HTTP/1.1", "CONNECT here:80 HTTP/1.1", "CONNECT /livez HTTP/1.1", "TRACE /livez HTTP/1.1",
        "PRI * HTTP/2.0", "SOURCE /livez HTTP/1.1", "M-SEARCH * HTTP/1.1", "DESCRIBE /livez RTSP/1.0",
        "BREW /livez HTTP/1.1", "\x16\x03\x01\x02", "GET /livez?" + "a=b&" * 20_000 + " HTTP/1.1",
    ]  # fmt: skip
    cases = {f"line {start[:40]!r}": message(start, "Host: here") for start in start_lines}
    headers: list[str | bytes] = [
        "", "X", ":", ": y", "X:", "X y", "X : y", "X\t: y", " X: y", "\tX: y", "X: y\r\n z", "X: y\r\n\tz",
        "X\x00: y", "X: \x00", "X: \x01", "X: \x7f", "X: a\rb", "X: a\nb", "X: a\r\rb", "X(: y", "X\xe9: y", "X: \xe9",
        "X\x0b: y", "@: y", "X\"Y: z", "X[: y", "Host : there", "Host", "Host:", "Host: there", "hOsT: here",
        "Host: here, there", " Host: there", "Host\t: there", "X-Host: there\nHost: there", "Upgrade: h2c",
        "Upgrade: websocket", "Upgrade: ", "HTTP2-Settings: AAMAAABkAAQAAP__", "Connection: upgrade",
        "Expect: 200-ok", "Expect: 100-continue, x", "Content-Encoding: gzip", "Content-Encoding: br, identity",
        b"X: \xff\xfe", b"\xef\xbb\xbfX: y", "X" * 70_000 + ": y", "X: " + "y" * 70_000, "X: y\r\n" * 150 + "X: y",
        "Authorization: a\r\nAuthorization: b", "Origin: null\r\nOrigin: null", "Content-Type: a\r\nContent-Type: b",
    ]  # fmt: skip
    cases |= {f"header {header[:40]!r}": post(header, LENGTH) for header in headers}
    cases |= {
        "lines ended by LF": post(LENGTH, end=b"\n"),
        "lines ended by CR": post(LENGTH, end=b"\r"),
        "lines ended by LF CR": post(LENGTH, end=b"\n\r"),
        "lines ended by CR CR LF": post(LENGTH, end=b"\r\r\n"),
        "lines ended by NEL": post(LENGTH, end=b"\x85"),
        "lines before": b"\r\n\r\n\n" + post(LENGTH),
        "blanks before": b"   " + post(LENGTH),
        "NULs before": b"\0\0" + post(LENGTH),
        "a byte order mark before": b"\xef\xbb\xbf" + post(LENGTH),
        "no host": message("GET /livez HTTP/1.1"),
        "no host in HTTP/1.0": message(f"POST {PATH} HTTP/1.0", LENGTH, body=OFFER),
        "two hosts": message("GET /livez HTTP/1.1", "Host: here", "Host: there"),
        "two hosts that agree": message("GET /livez HTTP/1.1", "Host: here", "Host: here"),
        "HTTP/0.9": b"GET /livez\r\n\r\n",
        "a greeting of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        "a greeting of TLS": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(160),
        "a greeting of SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
        "a greeting of a proxy": b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + post(LENGTH),
        "the greeting of a proxy in bytes": b"\r\n\r\n\0\r\nQUIT\n" + bytes(20),
        "an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "bytes": bytes(range(256)) * 20,
        "an upgrade with a request in its body": post(
            "Connection: upgrade", "Upgrade: websocket", f"Content-Length: {len(INNER)}", body=INNER
        ),
        "an upgrade with a request after it": post(
            "Connection: upgrade", "Upgrade: h2c", LENGTH, body=OFFER + INNER
        ),
    }  # fmt: skip
    return cases


CORPUS = {**_lengths(), **_codings(), **_chunks(), **_lines()}
