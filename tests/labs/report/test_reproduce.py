"""The page of `linnet reproduce`: what its document says, whatever the verdict, in HTML, markdown and CSV alike."""

from __future__ import annotations

import csv as comma
import io
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from linnet.labs.report.page import sentence
from linnet.labs.report.reproduce import csv, headline, html, markdown, scoreboard
from linnet.labs.report.scoreboard import COLUMNS, MARKS, Headline, scoreboard_rows
from tests.labs.report.made_up import OUTCOMES, chart, claim, claims, document, number

EMPTY = {
    "claims": [],
    "papers": [],
    "commit": None,
    "commits": [],
    "versions": {},
    "machine": {},
    "data": [],
    "rows": 0,
}


class Balanced(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    return html(document())


def words(text: str) -> str:
    """What is there to read: no tags, no style sheet."""
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).replace("\u00a0", " ").split())


def part(page: str, name: str) -> str:
    return page.partition(f'id="{name}"')[2].partition("</section>")[0]


def test_every_claim_is_told_whole(page: str) -> None:
    for one in claims():
        text = words(part(page, one["name"]))
        for name in ("question", "command", "outcome"):
            assert one[name] in text
        for name in ("statement", "rule", "needs", "sentence", "meaning"):
            assert sentence(one[name]) in text
        for result in one["numbers"]:
            assert " ".join((result["what"], result["paper"] or "-", result["shown"], result["spread"])) in text
        for error in one["errors"]:
            assert f"What failed {error}" in text
        for result in one["tables"]:
            assert result["title"] in text
            assert all(" ".join(map(str, row)) in text for row in result["rows"])
    assert "3 rows, 2 missing, 12.3 seconds" in words(part(page, "speech"))


def test_all_verdicts_have_their_mark_and_word_wherever_they_stand(page: str) -> None:
    for one in claims():
        line = re.search(rf'<a href="#{one["name"]}">(.*?)</a>', page)
        assert line is not None
        badge = f'<span aria-hidden="true">{MARKS[one["outcome"]]}</span> {one["outcome"]}'
        assert badge in line[1]
        assert badge in part(page, one["name"])
        assert f'class="badge {one["outcome"].replace(" ", "-")}"' in line[1]
    assert set(MARKS) == set(OUTCOMES)
    assert len(set(MARKS.values())) == 5
    share = page.partition('class="share"')[2].partition("</div>")[0]
    assert words(share).endswith("✓ 1 ✗ 1 ? 1 – 1 ! 1")


def test_a_verdict_that_nobody_has_is_not_counted() -> None:
    text = html(document(claims=[claim("copy", "confirmed"), claim("speed", "confirmed")]))
    share = text.partition('class="share"')[2].partition("</div>")[0]
    assert words(share).endswith("✓ 2")
    assert 'class="badge refuted"' not in text


def test_the_scoreboard_has_the_first_number_of_each_claim(page: str) -> None:
    lines = re.findall(r'<li><a href="#(.*?)">(.*?)</a>', page)
    assert [name for name, _ in lines] == [one["name"] for one in claims()]
    text = words(lines[0][1])
    assert text == "✓ confirmed T1 Is copy so? bits | a pixel 0.650 bits [0.610, 0.690] 0.644, on a GPU"
    assert "0.010" not in text
    assert words(lines[3][1]) == "– not testable T1 Is speech so?"


def test_the_same_strings_everywhere(page: str) -> None:
    result = document()
    boards = [line for _, lines in scoreboard_rows(result) for line in lines]
    assert [line.name for line in boards] == [one["name"] for one in claims()]
    assert boards[0].headline == headline(claims()[0])
    assert headline(claims()[0]) == ("bits | a pixel", "0.650 bits", "0.644, on a GPU", "[0.610, 0.690] of 3 seeds")
    assert headline(claims()[1]).spread == ""
    assert headline(claims()[3]) == Headline()
    plain = markdown(result).replace("\\", "").replace("&lt;", "<")
    for line in boards:
        for text in (words(page), plain):
            assert line.question in text
            assert line.headline.ours in text
            assert line.headline.paper in text


def test_it_asks_for_nothing_and_runs_nothing(page: str) -> None:
    assert not re.search(r"<(script|link|img|iframe|object)\b|@import|\bsrc=|url\(|\bon\w+=", page)
    assert "http" not in page
    assert set(re.findall(r'href="(.)', page)) == {"#"}


def test_it_is_well_formed_and_every_link_leads_somewhere(page: str) -> None:
    reader = Balanced()
    reader.feed(page)
    assert reader.open == []
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    wanted = re.findall(r'(?:href="#|\bfor="|aria-labelledby="|aria-describedby=")([^"]+)"', page)
    assert set(wanted) <= set(ids)
    assert '<html lang="en">' in page


def test_long_tables_are_closed_and_short_ones_open(page: str) -> None:
    text = part(page, "copy")
    assert "<summary>Every run (9 rows)</summary>" in text
    assert '<p class="soft">Few</p>' in text
    assert "<summary>Few" not in text


def test_a_series_has_one_look_in_all_charts_of_a_claim() -> None:
    first = chart(series={"linear": [[1, 1]], "softmax": [[1, 2]]})
    second = chart(series={"softmax": [[1, 3]], "LSH": [[1, 4]]})
    text = html(document(claims=[claim("copy", "confirmed", charts=[first, second])]))
    assert re.findall(r'<g class="s(\d)">.*?<title>(\w+)', text) == [
        ("0", "linear"),
        ("1", "softmax"),
        ("1", "softmax"),
        ("2", "LSH"),
    ]
    assert text.count('id="copy-0-k1"') == text.count('id="copy-1-k1"') == 1


def test_it_ends_with_where_the_numbers_come_from(page: str) -> None:
    text = words(part(page, "made"))
    for said in (
        "Some Processor, 2 cores, x86_64",
        "torch 2.13.0",
        "Commit abc+",
        "too def",
        "Budget quick",
        "Data mnist",
    ):
        assert said in text
    assert "8.1 minutes, 15 rows" in text
    assert "linnet reproduce all --budget quick" in text
    assert "could not be read" not in text
    damaged = words(part(html(document(damaged=["line 3 of rows.jsonl"])), "made"))
    assert "Lines that could not be read line 3 of rows.jsonl" in damaged


def test_a_run_that_has_just_begun_has_a_page_too() -> None:
    for text in (html(document(**EMPTY)), markdown(document(**EMPTY))):
        assert "0 claims" in text
        assert "what ships with linnet" in text
        assert "not in a repository" in text


def test_names_that_are_no_anchors() -> None:
    text = html(document(claims=[claim("a b/<c>", "confirmed", charts=[chart()])]))
    assert 'href="#a-b-c-"' in text
    assert 'id="a-b-c-"' in text


def test_code_within_words() -> None:
    finding = claim("copy", "confirmed", needs="put <it> into `text`")
    assert "Put &lt;it&gt; into <code>text</code>." in html(document(claims=[finding]))


def test_paper_phone_and_dark(page: str) -> None:
    for wanted in ("prefers-color-scheme: dark", "@media print", "details::details-content", 'name="viewport"'):
        assert wanted in page


def test_markdown_keeps_its_columns_whatever_the_words() -> None:
    text = markdown(document())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 * 2 + 5
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert "bits \\| a pixel" in text
    assert "times, &lt;b>" in text
    assert "<" not in text
    assert "- bits \\| a pixel: 0.650 bits [0.610, 0.690] of 3 seeds; the paper: 0.644, on a GPU" in text
    assert "Repeat: `linnet reproduce copy --budget quick`" in text
    assert "- Error: unit 3:" in text
    assert "1 confirmed, 1 refuted, 1 unclear, 1 not testable, 1 error." in text
    assert scoreboard(document()) in text


def test_csv_has_a_line_for_each_number_and_for_claims_without() -> None:
    rows = list(comma.DictReader(io.StringIO(csv(document()))))
    assert list(rows[0]) == COLUMNS
    assert [row["claim"] for row in rows] == ["copy", "copy", "speed", "slope", "speech", "broken"]
    first = {"what": "bits | a pixel", "paper_value": "0.644, on a GPU", "ours": "0.65", "low": "0.61", "high": "0.69"}
    assert rows[0].items() >= {**first, "of": "3 seeds", "unit": "bits", "paper": "rnn", "number": "T1"}.items()
    assert rows[2]["paper_value"] == '"317" times'
    assert (rows[1]["paper_value"], rows[1]["low"]) == ("", "")
    assert (rows[5]["outcome"], rows[5]["ours"], rows[5]["command"]) == ("error", "", claims()[4]["command"])


def test_a_number_of_zero_is_not_an_empty_cell() -> None:
    result = document(claims=[claim("copy", "confirmed", numbers=[number("failures", None, 0, low=0.0, high=0.0)])])
    row = next(comma.DictReader(io.StringIO(csv(result))))
    assert (row["ours"], row["low"], row["high"]) == ("0", "0.0", "0.0")
