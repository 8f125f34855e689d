"""The command `python -m training.packaging`."""

import sys

from training.packaging.cli import main

if __name__ == "__main__":
    sys.exit(main())
