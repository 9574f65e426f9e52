"""`python -m coldaisle` is `coldaisle`."""

import sys

from coldaisle.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
