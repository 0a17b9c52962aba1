#!/usr/bin/env python3
"""Train a detector; `train_detector.py --help` says how. `visionkl/run/train_detector.py` tells the story."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a clone works without being installed

from visionkl.run.train_detector import main

if __name__ == "__main__":
    sys.exit(main())
