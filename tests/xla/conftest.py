"""torch_xla with PJRT's processor device: one process, the loop that Trn1 runs."""

from __future__ import annotations

import os

os.environ["PJRT_DEVICE"] = "CPU"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
