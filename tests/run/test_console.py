"""Options from dataclasses, exit codes, and what goes to stdout and what to stderr."""

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from visionkl.backend.threads import usable_cores
from visionkl.core.errors import DataError, ModelFileError, UsageError
from visionkl.run import console as console_module
from visionkl.run.console import Console, duration_text, progress_text, run_command
from visionkl.run.options import CommonOptions, parameter_helps, parse


@dataclass(frozen=True)
class FindOptions:
    """Find things.

    In two paragraphs.

    Parameters
    ----------
    model : list of Path
        Model files,
        on two lines; 100% of them.
    inputs : list of str
        Pictures.
    threshold, ceiling : float, optional
        Bounds of the score.
    on_bad_data : {"stop", "skip"}
        What to do.
    draw : bool
        Draw.
    sizes : list of int
        Numbers.

    Notes
    -----
    draw : not help.
    """

    model: list[Path]
    inputs: list[str]
    threshold: float | None = None
    ceiling: float = 1.0
    on_bad_data: Literal["stop", "skip"] = "stop"
    draw: bool = True
    loud: bool = False
    sizes: list[int] = field(default_factory=lambda: [1, 2])


def find(*arguments, ends_list=None):
    return parse(FindOptions, arguments, name="find", positional="inputs", ends_list=ends_list)[:2]


def run(story, *arguments, capsys):
    code = run_command(
        FindOptions, story, ["x", "--model", "m", *arguments], name="find", positional="inputs"
    )
    return code, *capsys.readouterr()


@dataclass(frozen=True)
class Depth:
    """How deep.

    Parameters
    ----------
    depth : int
        Metres.
    """

    depth: int = 3


@dataclass(frozen=True)
class DigOptions:
    """Dig."""

    where: str = "here"
    again: str | None = field(default=None, metadata={"bare": "all"})
    settings: Depth = field(default_factory=Depth)


class TestNestedOptions:
    def dig(self, *arguments):
        return parse(DigOptions, arguments, name="dig")

    def test_a_dataclass_within_stands_for_its_fields(self, tmp_path, capsys):
        assert self.dig("--depth", "5")[0] == DigOptions(settings=Depth(5))
        (tmp_path / "deep.yaml").write_text("depth: 9\n")
        assert self.dig("--config", str(tmp_path / "deep.yaml"))[0].settings.depth == 9
        with pytest.raises(SystemExit):
            self.dig("--help")
        assert "Metres. (default: 3)" in capsys.readouterr().out
        with pytest.raises(UsageError, match="--depth must be a whole number, not 'far'"):
            self.dig("--depth", "far")
        with pytest.raises(UsageError, match="no option --deph; did you mean --depth"):
            self.dig("--deph", "3")

    def test_an_option_may_have_a_value_or_not(self):
        assert self.dig()[0].again is None
        assert self.dig("--again")[0].again == "all"
        assert self.dig("--again", "--where", "there")[0] == DigOptions("there", "all")
        assert self.dig("--again", "once")[0].again == "once"

    def test_what_was_given_is_known_even_if_it_is_the_default(self, tmp_path):
        assert self.dig()[2] == frozenset()
        assert self.dig("--where", "here", "--jobs", "2")[2] == {"where", "jobs"}
        (tmp_path / "deep.yaml").write_text("depth: 3\n")
        assert self.dig("--config", str(tmp_path / "deep.yaml"))[2] == {"depth", "config"}


def test_a_log_gets_what_is_said(tmp_path, capsys):
    console = Console(quiet=True, json=True)
    console.note("before")
    console.log = tmp_path / "log.txt"
    console.note("noted")
    console.warn("careful")
    console.result("done")
    console.keep("kept")
    lines = [line.split("  ", 1)[1] for line in console.log.read_text().splitlines()]
    assert lines == ["noted", "warning: careful", "done", "kept"]
    assert capsys.readouterr() == ("", "warning: careful\n")
    console.log = tmp_path / "none" / "log.txt"
    console.keep("a log that cannot be written is no reason to stop")


class TestOptions:
    def test_fields_become_options(self):
        options, common = find("x.jpg", "--model", "a", "b", "--threshold", "-1.5", "--on-bad-data", "skip",
                               "--no-draw", "--loud", "--sizes", "3", "--jobs", "3", "--json")  # fmt: skip
        assert options == FindOptions(
            [Path("a"), Path("b")], ["x.jpg"], -1.5, on_bad_data="skip", draw=False, loud=True, sizes=[3]
        )
        assert common == CommonOptions(jobs=3, json=True)

    @pytest.mark.parametrize(
        "arguments",
        [
            ["x.jpg", "y.jpg", "--model", "a"],
            ["--model", "a", "--threshold", "1", "x.jpg", "y.jpg"],
            ["x.jpg", "--model", "a", "--loud", "y.jpg"],
            ["--model", "a", "x.jpg", "y.jpg"],
            ["--model", "a", "x.jpg", "--ceiling=1", "y.jpg"],
            ["--model", "a", "--", "x.jpg", "y.jpg"],
            ["--model=a", "--inputs", "x.jpg", "y.jpg"],
        ],
    )
    def test_positionals_may_stand_anywhere(self, arguments):
        options, _ = find(*arguments, ends_list=lambda word: word.endswith(".jpg"))
        assert (options.model, options.inputs) == ([Path("a")], ["x.jpg", "y.jpg"])

    def test_names_that_look_like_options(self):
        assert find("--model", "a", "--", "-x.jpg", "--loud")[0].inputs == ["./-x.jpg", "./--loud"]

    def test_a_negative_number_is_a_value(self):
        assert find("x", "--model", "a", "--threshold", "-.5")[0].threshold == -0.5
        assert find("x", "--model", "a", "--sizes", "-1", "-2")[0].sizes == [-1, -2]

    def test_a_yaml_file_gives_options_and_the_command_line_wins(self, tmp_path):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text("model: [a]\ninputs: [x, y]\nthreshold: 2\non_bad_data: skip\n")
        assert find("--config", str(recipe))[0] == FindOptions(
            [Path("a")], ["x", "y"], 2.0, on_bad_data="skip"
        )
        assert find("--config", str(recipe), "--threshold", "3", "z")[0].threshold == 3.0
        assert find("--config", str(recipe), "--threshold", "3", "z")[0].inputs == ["z"]

    def test_what_print_config_prints_is_a_config(self, tmp_path, capsys):
        with pytest.raises(SystemExit):
            find("x", "--model", "a", "--loud", "--print-config")
        (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
        assert find("--config", str(tmp_path / "printed.yaml"))[0] == FindOptions(
            [Path("a")], ["x"], loud=True
        )

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["x"], "--model must be given."),
            (["--model", "a"], "INPUT must be given."),
            (["x", "--model"], "--model needs a value."),
            (["x", "--model", "a", "--threshold", "high"], "--threshold must be a number, not 'high'."),
            (
                ["x", "--model", "a", "--on-bad-data", "go"],
                "--on-bad-data must be one of stop, skip, not 'go'.",
            ),
            (["x", "--model", "a", "--sizes", "1.5"], "--sizes must be a whole number, not '1.5'."),
            (
                ["x", "--model", "a", "--thresh", "1"],
                "there is no option --thresh; did you mean --threshold?",
            ),
            (["x", "--model", "a", "-q"], "there is no option -q."),
            (["x", "--model", "a", "--jobs", "0"], "--jobs must be a whole number ≥ 1, not 0."),
            (["x", "--model", "a", "--jobs", "two"], "--jobs must be a whole number, not 'two'."),
            (["--config", "none.yaml"], "--config: File does not exist"),
        ],
    )
    def test_complaints_are_one_sentence_and_point_to_the_help(self, arguments, sentence):
        with pytest.raises(UsageError) as complaint:
            find(*arguments)
        assert str(complaint.value).startswith(sentence)
        assert str(complaint.value).endswith("Try find --help.")
        assert "\n" not in str(complaint.value)

    def test_an_unknown_name_in_a_yaml_file_is_named(self, tmp_path):
        (tmp_path / "recipe.yaml").write_text("modl: [a]\n")
        with pytest.raises(UsageError, match="modl"):
            find("--config", str(tmp_path / "recipe.yaml"))

    def test_help_comes_from_the_docstring(self, capsys):
        with pytest.raises(SystemExit) as end:
            find("--help")
        assert end.value.code == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "usage: find --model MODEL ... INPUT ... [options]" in text
        assert "Find things. In two paragraphs." in text
        assert "Model files, on two lines; 100% of them." in text
        assert "--on-bad-data {stop,skip} What to do. (default: stop)" in text
        assert "--draw, --no-draw Draw. (default: yes)" in text

    def test_docstring_parsing(self):
        helps = parameter_helps(FindOptions)
        assert helps["threshold"] == helps["ceiling"] == "Bounds of the score."
        assert helps["draw"] == "Draw."
        assert parameter_helps(int) == {}


class TestExitCodes:
    @pytest.mark.parametrize(
        ("error", "code", "sentence"),
        [
            (UsageError("no such thing."), 2, "find: no such thing."),
            (DataError("a.jpg:\n  broken."), 3, "find: a.jpg: broken."),
            (ModelFileError("m: no model."), 3, "find: m: no model."),
            (KeyboardInterrupt(), 130, "find: interrupted; the files that are there are whole."),
            (RuntimeError("boo"), 1, "find: unexpected RuntimeError: boo (--debug shows where)."),
            (KeyError(), 1, "find: unexpected KeyError (--debug shows where)."),
            (OSError(28, "No space left on device", "a.txt"), 1, "find: a.txt: No space left on device."),
        ],
    )
    def test_errors_become_one_sentence_and_a_code(self, error, code, sentence, capsys):
        def story(options, console):
            raise error

        assert run(story, capsys=capsys) == (code, "", sentence + "\n")

    def test_debug_shows_the_traceback(self, capsys, monkeypatch):
        def story(options, console):
            raise RuntimeError("boo")

        code, _, err = run(story, "--debug", capsys=capsys)
        assert code == 1
        assert "Traceback" in err
        monkeypatch.setenv("VISIONKL_DEBUG", "1")
        assert "Traceback" in run(story, capsys=capsys)[2]

    def test_help_ends_with_0_and_bad_usage_with_2(self, capsys):
        assert run(lambda options, console: None, "--help", capsys=capsys)[0] == 0
        code, out, err = run(lambda options, console: None, "--nope", capsys=capsys)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1


class TestTalking:
    @staticmethod
    def story(options, console):
        console.result("a result")
        console.note("a note")
        console.warn("careful")
        for _ in console.track(range(3), "counting"):
            pass
        return {"path": Path("ä.jpg"), "scores": np.array([1.5, 2.5], np.float32), "n": np.int64(3)}

    def test_people_read_results_on_stdout(self, capsys):
        assert run(self.story, capsys=capsys) == (0, "a result\n", "a note\nwarning: careful\n")

    def test_programs_read_one_document(self, capsys):
        code, out, err = run(self.story, "--json", capsys=capsys)
        assert json.loads(out) == {"path": "ä.jpg", "scores": [1.5, 2.5], "n": 3}
        assert (code, out.count("\n"), err) == (0, 1, "a note\nwarning: careful\n")

    def test_quiet_keeps_warnings(self, capsys):
        assert run(self.story, "--quiet", capsys=capsys) == (0, "a result\n", "warning: careful\n")

    def test_a_document_holds_no_nan(self, capsys):
        code, out, err = run(lambda options, console: float("nan"), "--json", capsys=capsys)
        assert (code, out) == (1, "")
        assert "ValueError" in err

    def test_without_a_terminal_progress_is_an_occasional_line(self, capsys, monkeypatch):
        monkeypatch.setattr(console_module, "_PLAIN_PROGRESS_EVERY", 0.0)
        list(Console().track(iter("abc"), "reading", total=3))
        lines = capsys.readouterr().err.splitlines()
        assert lines == ["reading: 1 of 3, about 0 s left", "reading: 2 of 3, about 0 s left"]

    def test_on_a_terminal_progress_is_a_bar(self, capsys, monkeypatch):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        console = Console()
        for _ in console.track(range(2), "reading"):
            console.note("[bold]kept as it is[/bold]")
        out, err = capsys.readouterr()
        assert out == ""
        assert "reading" in err
        assert "2/2" in err
        assert "[bold]kept as it is[/bold]" in err

    def test_a_progress_that_fails_lets_go_of_the_terminal(self, monkeypatch, capsys):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        console = Console()
        with pytest.raises(ZeroDivisionError), console.progress("reading", 2):
            raise ZeroDivisionError
        assert console._live is None

    def test_compiling_is_explained_when_it_takes_long(self, capsys, monkeypatch):
        with Console().compiling():
            pass
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(console_module, "_COMPILING_NOTE_AFTER", 0.0)
        with Console().compiling():
            deadline = time.monotonic() + 30
            err = ""
            while not err and time.monotonic() < deadline:
                time.sleep(0.01)
                err = capsys.readouterr().err
        assert err.startswith("compiling")

    def test_jobs_are_the_usable_cores_by_default(self):
        assert Console().jobs == usable_cores() >= 1
        assert Console(jobs=7).jobs == 7


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3540, "59 min"), (3600, "1 h 0 min")]
)
def test_durations(seconds, text):
    assert duration_text(seconds) == text


def test_progress_without_total():
    assert progress_text(0, 10, 1.0) == "0 of 10"
    assert progress_text(5, 0, 1.0) == "5"
