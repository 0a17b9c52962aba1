"""Reports: one file, everything escaped, everything inside."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from visionkl.core.errors import DataError
from visionkl.report.html import Report

NASTY = """<script>alert("x")</script> & 'q'"""


class Reader(HTMLParser):
    """Collects tags and text, and checks that tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.tags, self.text, self.open = [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def full_report():
    report = Report(NASTY, NASTY)
    report.section(NASTY)
    report.text(NASTY)
    report.facts({NASTY: NASTY, "n": 3})
    report.table([NASTY, "AP"], [[NASTY, 0.12345], ["none", float("nan")], ["n", None]])
    report.picture(np.zeros((4, 6, 3), np.uint8), NASTY)
    return report


def test_everything_is_escaped_and_well_formed():
    reader = Reader()
    reader.feed(full_report().to_html())
    assert reader.open == []
    assert "script" not in reader.tags
    # Title, heading, subtitle, section, text, both facts, head and cell of the table, caption.
    assert reader.text.count(NASTY) == 10
    assert not re.search(r'(src|href)="(?!data:)', full_report().to_html())


def test_numbers_are_set_right_and_nan_is_a_dash():
    text = full_report().to_html()
    assert '<td class="number">0.123</td>' in text
    assert text.count('<td class="number">–</td>') == 2
    assert '<th class="number">AP</th>' in text


def test_pictures_are_inside():
    report = full_report()
    figure = Figure(figsize=(1, 1))
    figure.add_subplot().plot([0, 1])
    report.picture(figure)
    kinds = re.findall(r'src="data:image/(\w+);base64,([^"]+)"', report.to_html())
    assert [kind for kind, _ in kinds] == ["jpeg", "png"]
    with Image.open(io.BytesIO(base64.b64decode(kinds[0][1]))) as picture:
        assert picture.size == (6, 4)


def test_an_empty_table_is_a_table():
    report = Report("x")
    report.table(["a", "b"], [])
    report.facts({})
    assert report.to_html().count("<table>") == 2


def test_saving(tmp_path):
    path = full_report().save(tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == full_report().to_html()
    with pytest.raises(DataError, match="cannot write this file"):
        full_report().save(tmp_path / "none" / "report.html")
