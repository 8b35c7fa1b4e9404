"""`python -m peerax`: the command line."""

import sys

from peerax.cli import main

if __name__ == "__main__":
    sys.exit(main())
