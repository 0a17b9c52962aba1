"""A command with sub-commands: `visionkl NAME …`, and `visionkl bench NAME …` in it.

A sub-command's module is imported when it is called, so that `--help` is quick.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Commands:
    """The sub-commands of a command.

    Parameters
    ----------
    program : str
        What the command is called.
    kind : str
        What a sub-command is: a "command", say.
    about, more : str
        Sentences of the help, above and below the list.
    modules : mapping of str to (str, str)
        Name, module with a `main(argv)`, and what it does.
    """

    program: str
    kind: str
    about: str
    more: str
    modules: Mapping[str, tuple[str, str]]

    def run(self, arguments: Sequence[str]) -> int:
        """Run the sub-command that comes first, with what follows it, and return its exit code."""
        name = arguments[0] if arguments else "--help"
        if name in ("-h", "--help", "help"):
            sys.stdout.write(self._help())
            return 0 if arguments else 2
        if name not in self.modules:
            near = difflib.get_close_matches(name, self.modules, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.modules)}."
            complaint = f"{self.program}: there is no {self.kind} {name!r}; {hint}"
            sys.stderr.write(f"{complaint} Try {self.program} --help.\n")
            return 2
        return int(import_module(self.modules[name][0]).main(arguments[1:]))

    def _help(self) -> str:
        width = max(map(len, self.modules))
        return "\n".join(
            [
                f"usage: {self.program} {self.kind.upper()} ... [options]",
                "",
                self.about,
                "",
                f"{self.kind}s:",
                *(f"  {name:<{width}}  {purpose}" for name, (_, purpose) in self.modules.items()),
                "",
                self.more,
                "",
            ]
        )
