"""How long the first second takes: importing the package, and asking a command for help."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness import Contestant, Setting, row

ROOT = Path(__file__).resolve().parents[1]


def process(*arguments: str) -> None:
    """Run Python from the clone's folder, with compiled caches in place, and wait for its end."""
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


@row("import", "import visionkl, whole process")
def import_time(setting: Setting) -> Iterator[Contestant]:
    yield Contestant("visionkl", "ours", lambda: process("-c", "import visionkl"))
    yield Contestant("import numpy", "peer", lambda: process("-c", "import numpy"))
    yield Contestant("python -c pass", "limit", lambda: process("-c", "pass"))


@row("help", "visionkl --help, whole process")
def help_time(setting: Setting) -> Iterator[Contestant]:
    yield from help_of("--help")


@row("detect-help", "visionkl detect --help, whole process")
def detect_help_time(setting: Setting) -> Iterator[Contestant]:
    yield from help_of("detect", "--help")


def help_of(*arguments: str) -> Iterator[Contestant]:
    """Compare the help of one of our commands with that of another program known for many options."""
    call = f"import sys; from visionkl.run.main import main; sys.exit(main({list(arguments)!r}))"
    yield Contestant("visionkl", "ours", lambda: process("-c", call))
    yield Contestant("pip install --help", "peer", lambda: process("-m", "pip", "install", "--help"))
    yield Contestant("python -c pass", "limit", lambda: process("-c", "pass"))
