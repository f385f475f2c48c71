"""Build hook: make the links of README.md absolute, because a package index does not resolve them.

They name the tag of the release, so that an old release shows its own documentation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AbsoluteLinks(MetadataHookInterface):
    """Sets `readme` in the metadata of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the text of README.md with absolute links and images."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        source, tag = metadata["urls"]["Source"], f"v{metadata['version']}"
        text = re.sub(r"\]\((?![a-z]+:|#)", f"]({source}/blob/{tag}/", text)
        text = re.sub(r'((?:src|srcset)=")(?![a-z]+:)', rf"\1{source}/raw/{tag}/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
