"""The command `python -m training.scaling`."""

import sys

from training.scaling.cli import main

if __name__ == "__main__":
    sys.exit(main())
