#!/usr/bin/env python3
"""Tell what pictures show; `classify.py --help` says how. Told in `visionkl/run/classify.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a clone works without being installed

from visionkl.run.classify import main

if __name__ == "__main__":
    sys.exit(main())
