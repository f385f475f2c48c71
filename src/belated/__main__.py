"""``python -m belated``."""

import sys

from belated.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
