"""The command `python -m training.roberta_sentiment`."""

import sys

from training.roberta_sentiment.cli import main

if __name__ == "__main__":
    sys.exit(main())
