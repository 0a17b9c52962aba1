#!/usr/bin/env python3
"""Train an image classifier; `--help` says how. The story is told in `visionkl/run/train_classifier.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a clone works without being installed

from visionkl.run.train_classifier import main

if __name__ == "__main__":
    sys.exit(main())
