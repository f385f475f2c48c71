"""Who runs a command, and why: for the record that an operator's act leaves in the journal."""

from __future__ import annotations

import argparse
import getpass
import socket


def add_reason(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Why it is done."""
    parser.add_argument(
        "--reason", required=required, default="", help="why, for whoever asks later"
    )


def actor() -> str:
    """Who it is, as far as the system knows."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a process of a user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
