"""Command-line options from plain dataclasses: every field is an option, and its documentation is the help.

How fields become options:

- `on_bad_data` is `--on-bad-data`;
- a list takes one or more values (`--model A B`);
- a bool that is false by default is a flag (`--json`), one that is true has two (`--draw` and `--no-draw`);
- a `Literal` offers its values; a field without a default is required;
- a field that is itself a dataclass stands for its fields: their names must differ from the command's own;
- a field with `metadata={"bare": value}` takes this value if its option is given without one;
- help comes from the "Parameters" section of the numpydoc docstring; what stands above it describes the
  command.

A YAML file with the same names goes into `--config`, and options on the command line win over it. One list
field may be *positional*: it collects the arguments that belong to no option, wherever they stand. argparse
takes them from one place only, and lets `--model a.safetensors street.jpg` swallow the picture;
`_collect_positionals` mends both.

jsonargparse parses and checks types. It is imported when a command line is parsed, not before.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from visionkl.core.errors import UsageError

if TYPE_CHECKING:
    import argparse

    import jsonargparse

Options = TypeVar("Options")


@dataclasses.dataclass(frozen=True)
class CommonOptions:
    """What every command accepts.

    Parameters
    ----------
    jobs : int
        Number of threads or processes that work at a time; by default all usable cores.
    json : bool
        Write the result to stdout as one JSON document; everything else goes to stderr.
    quiet : bool
        No progress and no notes; warnings and errors are still shown.
    debug : bool
        Show the traceback of an error (so does VISIONKL_DEBUG=1).
    """

    jobs: int | None = None
    json: bool = False
    quiet: bool = False
    debug: bool = False


def parse(
    options_class: type[Options],
    arguments: Sequence[str],
    *,
    name: str,
    positional: str | None = None,
    ends_list: Callable[[str], bool] | None = None,
) -> tuple[Options, CommonOptions, frozenset[str]]:
    """Turn arguments into the options of a command and those that all commands have; see `run_command`.

    The third that is returned are the names of the options that were given, on the command line or in
    `--config`, whatever their values.
    """
    import argparse

    parser = _build_parser(options_class, name, positional)
    if positional is not None:
        arguments = _collect_positionals(parser, arguments, positional, ends_list)
    try:
        found = parser.parse_args(list(arguments)).as_dict()
        given = frozenset(parser.parse_args(list(arguments), defaults=False).as_dict())
    except (argparse.ArgumentError, argparse.ArgumentTypeError) as error:
        sentence = _usage_sentence(str(error), options_class, positional)
        raise UsageError(f"{sentence} Try {name} --help.") from None
    common = CommonOptions(
        **{field.name: found.pop(field.name) for field in dataclasses.fields(CommonOptions)}
    )
    if common.jobs is not None and common.jobs < 1:
        raise UsageError(f"--jobs must be a whole number ≥ 1, not {common.jobs}. Try {name} --help.")
    return _filled(options_class, found), common, given


def _filled(options_class: type[Options], found: dict[str, Any]) -> Options:
    hints = typing.get_type_hints(options_class)
    return options_class(
        **{
            field.name: _filled(hints[field.name], found)
            if dataclasses.is_dataclass(hints[field.name])
            else found[field.name]
            for field in dataclasses.fields(options_class)  # type: ignore[arg-type]
        }
    )


def _build_parser(options_class: type, name: str, positional: str | None) -> jsonargparse.ArgumentParser:
    from jsonargparse import ArgumentParser, DefaultHelpFormatter

    class HelpFormatter(DefaultHelpFormatter):
        """Prose and defaults, without jsonargparse's type column; positionals under their own name."""

        def _expand_help(self, action: argparse.Action) -> str:
            text = (action.help or "").replace("%%", "%")
            shown = isinstance(action.default, int | float) and action.default is not False
            shown = shown or action.default not in (None, False, [], "==SUPPRESS==")
            return f"{text} (default: {_shown_default(action.default)})" if shown else text

        def _format_action_invocation(self, action: argparse.Action) -> str:
            if action.dest == positional:
                return f"{_placeholder(positional)} ..."
            return super()._format_action_invocation(action)

    summary = inspect.cleandoc(options_class.__doc__ or "").split("\nParameters\n")[0].strip()
    required = [f.name for f in dataclasses.fields(options_class) if _is_required(f)]
    words = [_usage_of(options_class, key) for key in required if key != positional]
    if positional:
        words.append(f"{_placeholder(positional)} ...")
    parser = ArgumentParser(
        prog=name,
        usage=" ".join([name, *words, "[options]"]),
        description=summary,
        formatter_class=HelpFormatter,
        exit_on_error=False,
        allow_abbrev=False,
        print_config="--print-config",
    )
    _add_fields(parser, options_class)
    parser.add_argument(
        "--config",
        action="config",
        metavar="FILE",
        help="YAML file with options; the command line wins over it.",
    )
    parser._option_string_actions["--print-config"].help = "Print all options as YAML for --config and exit."
    _add_fields(parser, CommonOptions)
    return parser


def _add_fields(parser: jsonargparse.ArgumentParser, options_class: type) -> None:
    from jsonargparse import ActionYesNo

    hints = typing.get_type_hints(options_class)
    helps = parameter_helps(options_class)
    for field in dataclasses.fields(options_class):
        hint, flag = hints[field.name], _flag(field.name)
        if dataclasses.is_dataclass(hint):
            _add_fields(parser, typing.cast(type, hint))
            continue
        settings: dict[str, Any] = {"help": helps.get(field.name, "").replace("%", "%%")}
        if _is_required(field):
            settings["required"] = True
        else:
            settings["default"] = (
                field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            )
        if hint is bool and settings.get("default") is False:
            parser.add_argument(flag, action="store_true", **settings)
        elif hint is bool:
            parser.add_argument(flag, action=ActionYesNo(no_prefix="no-"), **settings)
        elif _list_item(hint) is not None:
            settings["metavar"] = _placeholder(field.name)
            parser.add_argument(flag, type=_list_item(hint), nargs="+", **settings)
        else:
            if not _choices(hint):
                settings["metavar"] = "N" if _without_none(hint) is int else field.name.upper()
            if "bare" in field.metadata:
                settings |= {"nargs": "?", "const": field.metadata["bare"]}
            parser.add_argument(flag, type=hint, **settings)


def parameter_helps(options_class: type) -> dict[str, str]:
    """Read the "Parameters" section of a numpydoc docstring: names and their prose.

    Examples
    --------
    >>> parameter_helps(CommonOptions)["quiet"]
    'No progress and no notes; warnings and errors are still shown.'
    """
    text = inspect.cleandoc(options_class.__doc__ or "")
    section = re.search(r"^Parameters\n-+\n(.*?)(?:\n\S+\n-+\n|\Z)", text, re.DOTALL | re.MULTILINE)
    helps: dict[str, list[str]] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else []:
        if line and not line[0].isspace():
            names = [name.strip() for name in line.split(":")[0].split(",")]
        for name in names:
            helps.setdefault(name, []).extend(line.split() if line[:1].isspace() else [])
    return {name: " ".join(words) for name, words in helps.items()}


def _collect_positionals(
    parser: jsonargparse.ArgumentParser,
    arguments: Sequence[str],
    positional: str,
    ends_list: Callable[[str], bool] | None,
) -> list[str]:
    """Gather the arguments that belong to no option behind one option of their own."""
    options: list[str] = []
    loose: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            loose += rest
            break
        if not _looks_like_option(word):
            loose.append(word)
            continue
        options.append(word)
        action = parser._option_string_actions.get(word)
        if action is None or action.nargs == 0:
            continue
        if action.nargs is None and rest:
            options.append(rest.pop(0))
        while action.nargs == "+" and rest and not _looks_like_option(rest[0]):
            if action.dest != positional and ends_list is not None and ends_list(rest[0]):
                break
            options.append(rest.pop(0))
    if loose:
        # A name that begins with a dash would be taken for an option again.
        options += [_flag(positional), *(f"./{word}" if word.startswith("-") else word for word in loose)]
    return options


def _looks_like_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not re.fullmatch(r"-\.?\d.*", word)


def _usage_sentence(message: str, options_class: type, positional: str | None) -> str:
    """Say in one sentence what argparse and jsonargparse say in several lines."""
    hints = {**_flat_hints(options_class), **typing.get_type_hints(CommonOptions)}

    def spelled(key: str) -> str:
        return _placeholder(key) if key == positional else _flag(key)

    refused = re.match(r'Parser key "(\w+)"[^:]*:', message)
    value = re.search(r"(?:Given|Got) value: (.*)", message)
    if refused and refused[1] == "config":
        return "--config: " + " ".join(message.split(":", 1)[1].split()).rstrip(".") + "."
    if refused and value and refused[1] in hints:
        return f"{spelled(refused[1])} must be {_accepted(hints[refused[1]])}, not {value[1].strip()!r}."
    empty = re.match(r"argument (--[\w-]+).*: expected (?:at least )?one argument", message)
    if empty:
        return f"{empty[1]} needs a value."
    missing = re.match(r"the following arguments are required: (.*)", message)
    if missing:
        return f"{' and '.join(spelled(key.strip()) for key in missing[1].split(','))} must be given."
    unknown = re.match(r"unrecognized arguments: (\S+)", message)
    if unknown:
        option = unknown[1].split("=")[0]
        near = difflib.get_close_matches(option, [_flag(key) for key in [*hints, "config", "help"]], n=1)
        return f"there is no option {option}{f'; did you mean {near[0]}?' if near else '.'}"
    return " ".join(message.split()).rstrip(".") + "."


def _flat_hints(options_class: type) -> dict[str, Any]:
    """Types of all options by name, those of a dataclass within included."""
    hints: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(options_class).items():
        hints |= _flat_hints(typing.cast(type, hint)) if dataclasses.is_dataclass(hint) else {name: hint}
    return hints


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _placeholder(key: str) -> str:
    return key.upper().removesuffix("S") if key.endswith("s") and not key.endswith("ss") else key.upper()


def _usage_of(options_class: type, key: str) -> str:
    several = " ..." if _list_item(typing.get_type_hints(options_class)[key]) is not None else ""
    return f"{_flag(key)} {_placeholder(key)}{several}"


def _shown_default(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        return rest[0] if len(rest) == 1 else hint
    return hint


def _list_item(hint: Any) -> Any:
    hint = _without_none(hint)
    return typing.get_args(hint)[0] if typing.get_origin(hint) is list else None


def _choices(hint: Any) -> tuple[Any, ...]:
    hint = _without_none(hint)
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def _accepted(hint: Any) -> str:
    if _choices(hint):
        return "one of " + ", ".join(map(str, _choices(hint)))
    plain = _list_item(hint) or _without_none(hint)
    names = {int: "a whole number", float: "a number", bool: "yes or no", Path: "a path", str: "a text"}
    return names.get(plain, getattr(plain, "__name__", str(plain)))
