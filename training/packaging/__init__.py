"""Turns a trained model into the archive that SageMaker serves, checks it, and publishes it."""

import sys
from pathlib import Path

# Layout, manifest and their checks are defined once, in `lambdas/shared`, beside what judges a
# published model.
sys.path.append(str(Path(__file__).parents[2] / "lambdas"))
