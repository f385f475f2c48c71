"""Real proxies before a service: nginx, HAProxy and Caddy, each with connections that are kept."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port

_NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ }}
http {{
  access_log off; client_max_body_size 2m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream service {{ server 127.0.0.1:{behind}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://service; proxy_http_version 1.1; proxy_ignore_client_abort on;
      proxy_set_header Connection ""; proxy_set_header Host $http_host;
    }}
  }}
}}
"""
_HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  default_backend service
backend service
  server one 127.0.0.1:{behind}
"""
_CADDY = """
{{
  admin off
  auto_https off
}}
http://:{port} {{
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:{behind}
}}
"""
#: The file of each, and the command that starts it.
PROXIES = {
    "nginx": (_NGINX, ["nginx", "-p", "{folder}", "-c", "{file}"]),
    "haproxy": (_HAPROXY, ["haproxy", "-q", "-db", "-f", "{file}"]),
    "caddy": (_CADDY, ["caddy", "run", "--adapter", "caddyfile", "--config", "{file}"]),
}


@contextmanager
def before(name: str, behind: int, folder: Path) -> Iterator[int]:
    """Start one before a port; gives its own. Skips where it is not installed, but not in CI."""
    text, command = PROXIES[name]
    program = shutil.which(command[0], path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        assert not os.environ.get("CI"), f"{name} is needed"
        pytest.skip(f"{name} is not installed: run .ci/proxies")
    port = free_port()
    file = folder / f"{name}.conf"
    file.write_text(text.format(folder=folder, behind=behind, port=port))
    (folder / "nginx").mkdir(exist_ok=True)
    arguments = [argument.format(folder=folder, file=file) for argument in command[1:]]
    environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log, env=environment)
        try:
            _wait_for(port, process, folder / f"{name}.log")
            yield port
        finally:
            process.terminate()
            process.wait(20)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        else:
            return
    raise TimeoutError("the proxy does not start")
