#!/usr/bin/env python3
"""Repeat a published experiment; `bench.py --help` says which. Told in `visionkl/run/experiments`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a clone works without being installed

from visionkl.run.experiments import main

if __name__ == "__main__":
    sys.exit(main())
