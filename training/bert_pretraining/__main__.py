"""The command `python -m training.bert_pretraining`."""

import sys

from training.bert_pretraining.cli import main

if __name__ == "__main__":
    sys.exit(main())
