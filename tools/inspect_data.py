#!/usr/bin/env python3
"""Take stock of a data set; `inspect_data.py --help` says how. Told in `visionkl/run/inspect_data.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a clone works without being installed

from visionkl.run.inspect_data import main

if __name__ == "__main__":
    sys.exit(main())
