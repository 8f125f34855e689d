"""`python -m training.slurm`."""

import sys

from training.slurm.cli import main

if __name__ == "__main__":
    sys.exit(main())
