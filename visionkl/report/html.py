"""Self-contained HTML reports: one file with its style and pictures inside, to be opened, mailed or archived.

A report is a list of sections, and a section a list of blocks: `text`, `table`, `picture`, `facts`.
Everything that is written is escaped, so that a file called `<b>.jpg` is shown as that. There is no script
and no link to the network.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from PIL import Image

from visionkl.core.files import atomic_write

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
p.subtitle { margin-top: 0; opacity: .75; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left; }
td.number, th.number { text-align: right; }
figure { margin: .6rem .8rem .6rem 0; display: inline-table; vertical-align: top; max-width: 100%; }
figure img { max-width: 100%; height: auto; display: block; }
figcaption { font-size: .85rem; opacity: .8; display: table-caption; caption-side: bottom; }
""".strip()

_SCREEN_DPI = 100  # pixels of the page that an inch of a figure takes


class Report:
    """An HTML report under construction.

    Parameters
    ----------
    title : str
        Heading and window title.
    subtitle : str
        A line below it, such as the date and the model.

    Examples
    --------
    >>> report = Report("Buses & bicycles")
    >>> report.section("Average precision")
    >>> report.table(["class", "AP"], [["bus", 0.5251], ["<i>", 0.25]])
    >>> "Buses &amp; bicycles" in report.to_html(), "&lt;i&gt;" in report.to_html()
    (True, True)
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self._blocks: list[str] = []

    def section(self, heading: str) -> None:
        """Begin a section."""
        self._blocks.append(f"<h2>{_escaped(heading)}</h2>")

    def text(self, paragraph: str) -> None:
        """Add a paragraph of plain text."""
        self._blocks.append(f"<p>{_escaped(paragraph)}</p>")

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Add a table of names and values."""
        self._blocks.append(_table((), [[name, value] for name, value in facts.items()]))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table; numbers are set right, floats with three decimals, NaN and None as a dash."""
        self._blocks.append(_table(header, rows))

    def picture(self, picture: npt.NDArray[np.uint8] | Figure, caption: str = "") -> None:
        """Add a picture `(rows, cols, 3)` of uint8 RGB as JPEG, or a matplotlib figure as PNG."""
        buffer = io.BytesIO()
        width = ""
        if isinstance(picture, Figure):
            kind = "png"
            picture.savefig(buffer, format=kind, dpi=2 * _SCREEN_DPI)  # sharp on screens with small pixels
            width = f' width="{round(picture.get_figwidth() * _SCREEN_DPI)}"'
        else:
            kind = "jpeg"
            Image.fromarray(np.asarray(picture)).save(buffer, format=kind, quality=88)
        data = base64.b64encode(buffer.getvalue()).decode("ascii")
        image = f'<img src="data:image/{kind};base64,{data}"{width} alt="{_escaped(caption)}">'
        under = f"<figcaption>{_escaped(caption)}</figcaption>" if caption else ""
        self._blocks.append(f"<figure>{image}{under}</figure>")

    def to_html(self) -> str:
        """Return the whole document."""
        title = _escaped(self.title)
        subtitle = f'<p class="subtitle">{_escaped(self.subtitle)}</p>' if self.subtitle else ""
        head = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"<title>{title}</title><style>{_STYLE}</style></head>"
        )
        return "\n".join([head, f"<body><h1>{title}</h1>{subtitle}", *self._blocks, "</body></html>", ""])

    def save(self, path: str | Path) -> Path:
        """Write the document; the file appears whole or not at all."""
        path = Path(path)
        with atomic_write(path) as file:
            file.write(self.to_html())
        return path


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    numeric = [
        any(_is_number(row[column]) for row in rows)
        for column in range(max(map(len, rows), default=len(header)))
    ]

    def cells(tag: str, values: Sequence[Any]) -> str:
        return "".join(
            f"<{tag}{_number_class(n, numeric)}>{_escaped(_shown(v))}</{tag}>" for n, v in enumerate(values)
        )

    top = f"<thead><tr>{cells('th', header)}</tr></thead>" if header else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{top}<tbody>{body}</tbody></table>"


def _number_class(column: int, numeric: Sequence[bool]) -> str:
    return ' class="number"' if column < len(numeric) and numeric[column] else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return "–"
    return f"{value:.3f}" if isinstance(value, float | np.floating) else str(value)


def _escaped(text: str) -> str:
    return html.escape(str(text), quote=True)
