#!/usr/bin/env python3
"""Score detectors; `eval_voc.py --help` says how. The story is told in `visionkl/run/evaluate.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a clone works without being installed

from visionkl.run.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
