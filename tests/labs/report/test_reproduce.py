"""The page of `linnet reproduce`: what its document says, whatever the outcome, in HTML, markdown and CSV alike."""

from __future__ import annotations

import csv as comma
import io
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from linnet.labs.core.verdicts import ERROR, FAILS, HOLDS, SEEN, UNTESTED
from linnet.labs.report.axes import readable
from linnet.labs.report.outcomes import GROUPS, SHOWN, agreements, in_words, slug
from linnet.labs.report.page import sentence
from linnet.labs.report.reproduce import csv, headline, html, markdown, scoreboard
from linnet.labs.report.reproduce_claim import in_time
from linnet.labs.report.scoreboard import COLUMNS, Headline, evidence, provenance, scoreboard_rows, summary
from tests.labs.report.made_up import ALL, MACHINE, chart, claim, claims, document, number, regime

EMPTY = {
    "claims": [],
    "papers": [],
    "commit": None,
    "commits": [],
    "versions": {},
    "machine": {},
    "other_machines": [],
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
        for name in ("statement", "answer", "scope", "command", "outcome"):
            assert one[name] in text
        for name in ("source", "rule", "needs", "sentence", "reason", "meaning", "change"):
            assert sentence(one[name]) in text
        for result in one["numbers"][1:]:
            assert readable(" ".join((result["what"], result["paper"] or "-", result["shown"]))) in text
        for error in one["errors"]:
            assert f"What failed {error}" in text
        for result in one["tables"]:
            assert result["title"] in text
            assert all(" ".join(map(str, row)) in text for row in result["rows"])


def test_why_we_believe_it(page: str) -> None:
    copy, speed, length, speech = (words(part(page, name)) for name in ("copy", "speed", "length", "speech"))
    assert "Why we believe it" in copy
    assert "Softmax learned the task: ✓ passed . Softmax recalls 0.97; the floor is 0.9." in copy
    assert "Repeats 5 seeds" in copy
    assert "Cost 12 seconds of work, 3 rows" in copy
    assert "The statement is about every size." in copy
    assert "What would change our mind Another run of copy." in copy
    assert "Repeats Nothing is drawn at random" in speed
    assert "Paper: 1 to 8. Here: 4." in speed
    assert "Outside the paper's" not in speed
    assert "Outside the paper's: tokens 48 (the paper has 256 to 2,048)." in length
    assert "Softmax converged: ✗ failed (reported only" in length
    assert "Why this is not decided" in speech
    assert "Softmax learned the task: ✗ failed ." in speech
    assert "3 rows, 2 missing" in speech
    assert "Repeats" not in speech  # rows are missing, so nothing was repeated


def test_committed_evidence_stands_next_to_this_machine(page: str) -> None:
    text = words(part(page, "speed"))
    assert "Committed evidence ✗ does not hold No, slower 9.000 [8, 10] hour" in text
    assert "This machine ✗ does not hold Yes, speed 11.000" in text
    assert "Differs from the committed evidence. Fewer tokens than the committed run." in text
    assert "Committed evidence" not in words(part(page, "copy"))
    line = "committed: does not hold, 9.000 [8, 10] | here: differs (fewer tokens than the committed run)"
    assert line in words(page)
    assert line[1:].replace("|", "\\|") in markdown(document())
    assert "This machine against the committed evidence: 1 differs." in words(page)
    assert "committed evidence" not in words(html(document(claims=[claim("copy", HOLDS)])))
    kept = {"word": "agrees", "reason": ""}
    assert agreements([*claims(), *(claim("a", HOLDS, agreement=kept) for _ in range(2))]) == "2 agree, 1 differs"


def test_all_outcomes_have_their_mark_and_word_wherever_they_stand(page: str) -> None:
    for one in claims():
        line = re.search(rf'<a href="#{one["name"]}"><span class="badge(.*?)</a>', page)
        assert line is not None
        badge = f'<span aria-hidden="true">{SHOWN[one["outcome"]].mark}</span> {one["outcome"]}'
        assert badge in line[1]
        assert badge in part(page, one["name"])
        assert f'class="badge {slug(one["outcome"])}"' in part(page, one["name"])
    assert set(SHOWN) == set(ALL) == {outcome for group in GROUPS.values() for outcome in group}
    assert len({one.mark for one in SHOWN.values()}) == len(ALL)
    share = page.partition('class="share"')[2].partition("</div>")[0]
    assert words(share).endswith("✓ 1 ✗ 1 ≈ 1 (✓) 1 (✗) 1 – 1 ! 1")


def test_what_was_seen_here_is_counted_apart_from_verdicts() -> None:
    outcomes = [HOLDS, HOLDS, FAILS, SEEN, SEEN, SEEN, UNTESTED]
    said = in_words([claim("copy", outcome) for outcome in outcomes])
    assert said == "2 hold, 1 does not hold; at this size only: 3 seen; 1 not tested"
    assert in_words([]) == ""


def test_an_outcome_that_no_claim_has_is_not_counted() -> None:
    text = html(document(claims=[claim("copy", HOLDS), claim("speed", HOLDS)]))
    share = text.partition('class="share"')[2].partition("</div>")[0]
    assert words(share).endswith("✓ 2")
    assert 'class="badge does-not-hold"' not in text
    assert 'id="outcome-is-does-not-hold"' not in text


def test_the_scoreboard_has_the_deciding_number_of_each_claim(page: str) -> None:
    lines = re.findall(r'<li data-outcome="[\w-]+"><a href="#([\w-]+)">(.*?)</a>', page)
    assert [name for name, _ in lines] == [one["name"] for one in claims()]
    text = words(lines[0][1])
    assert text.startswith("✓ holds T1 It is true of copy. Yes, copy bits | a pixel d = 64, 5 seeds of copy")
    assert text.endswith("0.650 bits [0.610, 0.690] 0.644, on a GPU")
    assert "10⁻¹⁶" not in text
    assert words(lines[5][1]) == "– not tested here T1 It is true of speech. Yes, speech d = 64, 5 seeds of speech"


def test_the_same_strings_everywhere(page: str) -> None:
    result = document()
    boards = [line for _, lines in scoreboard_rows(result) for line in lines]
    assert [line.name for line in boards] == [one["name"] for one in claims()]
    assert boards[0].headline == headline(claims()[0])
    assert headline(claims()[0]) == ("bits | a pixel", "0.650 bits", "0.644, on a GPU", "[0.610, 0.690]", "5 seeds")
    assert headline(claims()[1]).interval == ""
    assert headline(claims()[5]) == Headline()
    plain = markdown(result).replace("\\", "").replace("&lt;", "<")
    for line in boards:
        for text in (words(page), plain):
            for said in (line.statement, line.answer, line.scope, line.headline.ours, line.headline.paper):
                assert said in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("6.2e-16", "6.2 × 10⁻¹⁶"),
        ("[-1e-05, 2e+09] of 3", "[-10⁻⁵, 2 × 10⁹] of 3"),
        ("0.650 bits, base64e3x, v1.2e", "0.650 bits, base64e3x, v1.2e"),
    ],
)
def test_powers_of_ten_are_written_out(text: str, shown: str) -> None:
    assert readable(text) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.01, "less than a second"), (1.2, "a second"), (12.3, "12 seconds"), (99, "99 seconds"), (120, "2 minutes"),
        (7300, "2.0 hours"),
    ],
)  # fmt: skip
def test_cost_in_words(seconds: float, text: str) -> None:
    assert in_time(seconds) == text


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
    chosen = re.findall(r"#(outcome-is-[\w-]+|paper-is-[\w-]+):checked", page)
    assert {f"outcome-is-{slug(outcome)}" for outcome in ALL} | {"paper-is-rnn", "paper-is-open"} == set(chosen)
    assert set(chosen) <= set(ids)
    assert '<html lang="en">' in page


def test_details_are_folded(page: str) -> None:
    folded = part(page, "copy").partition('<details class="more">')[2]
    assert "<summary>1 further number, 2 tables, the rule</summary>" in folded
    for inside in ("6.2 × 10⁻¹⁶", "Every run", "Few", "Yes if copy."):
        assert inside in folded
        assert inside not in part(page, "copy").partition('<details class="more">')[0]
    assert "<summary>The rule</summary>" in part(page, "norm")


def test_a_series_has_one_look_in_all_charts_of_a_claim() -> None:
    first = chart(series={"linear": [[1, 1]], "softmax": [[1, 2]]})
    second = chart(series={"softmax": [[1, 3]], "LSH": [[1, 4]]})
    text = html(document(claims=[claim("copy", HOLDS, charts=[first, second])]))
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
        "8 minutes, 15 rows",
        "linnet reproduce all --budget quick",
    ):
        assert said in text
    assert "Lines left out" not in text
    damaged = words(part(html(document(damaged=["line 3 of rows.jsonl"])), "made"))
    assert "Lines left out line 3 of rows.jsonl" in damaged


def test_a_run_that_has_just_begun_has_a_page_too() -> None:
    for text in (html(document(**EMPTY)), markdown(document(**EMPTY))):
        assert "0 statements" in text
        assert "what ships with linnet" in text
        assert "not in a repository" in text


def test_names_that_are_no_anchors() -> None:
    text = html(document(claims=[claim("a b/<c>", HOLDS, charts=[chart()])]))
    assert 'href="#a-b-c-"' in text
    assert 'id="a-b-c-"' in text


def test_code_within_words() -> None:
    finding = claim("copy", HOLDS, needs="put <it> 1e-3 into `text 1e-3`", regime=regime("<i>", "1"))
    text = html(document(claims=[finding]))
    assert "Put &lt;it&gt; 10⁻³ into <code>text 1e-3</code>." in text
    assert "&lt;i&gt;" in text


def test_paper_phone_and_dark(page: str) -> None:
    for wanted in ("prefers-color-scheme: dark", "@media print", "details::details-content", 'name="viewport"'):
        assert wanted in page


def test_markdown_keeps_its_columns_whatever_the_words() -> None:
    text = markdown(document())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 * 2 + 7
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {9}
    assert '| <span class="outcome does-not-hold">✗ does not hold</span> | Yes, speed |' in text
    assert "bits \\| a pixel" in text
    assert "times, &lt;b>" in text
    assert set(re.findall(r"<\W*\w+", text)) == {"<span", "</span"}
    assert "- bits \\| a pixel: 0.650 bits [0.610, 0.690] of 5 seeds; the paper: 0.644, on a GPU" in text
    assert "- gap: 6.2 × 10⁻¹⁶" in text
    assert "Repeat: `linnet reproduce copy --budget quick`" in text
    assert "- Error: unit 3:" in text
    assert sentence(in_words(claims())) in text
    assert scoreboard(document()) in text


def test_the_evidence_in_a_few_lines() -> None:
    lines = evidence(document(), "results/report.md").splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"- **7 statements: {in_words(claims())}.**")
    assert lines[0].endswith("(results/report.md).")
    assert lines[1] == "- Transformers & RNNs (A and B 2020), 2: 1 holds, 1 does not hold."


def test_csv_has_a_line_for_each_number_and_for_claims_without() -> None:
    rows = list(comma.DictReader(io.StringIO(csv(document()))))
    assert list(rows[0]) == COLUMNS
    assert [row["claim"] for row in rows] == ["copy", *(one["name"] for one in claims())]
    first = {"what": "bits | a pixel", "paper_value": "0.644, on a GPU", "ours": "0.65", "low": "0.61", "high": "0.69"}
    first |= {"of": "5 seeds", "unit": "bits", "paper": "rnn", "number": "T1", "deciding": "yes"}
    assert rows[0].items() >= (first | {"answer": "Yes, copy", "scope": "d = 64, 5 seeds of copy"}).items()
    assert (rows[1]["paper_value"], rows[1]["low"], rows[1]["deciding"]) == ("", "", "")
    assert rows[2]["paper_value"] == '"317" times'
    last = rows[-1]
    assert (last["outcome"], last["ours"], last["command"]) == (ERROR, "", claims()[-1]["command"])


def test_a_number_of_zero_is_not_an_empty_cell() -> None:
    result = document(claims=[claim("copy", HOLDS, numbers=[number("failures", None, 0, low=0.0, high=0.0)])])
    row = next(comma.DictReader(io.StringIO(csv(result))))
    assert (row["ours"], row["low"], row["high"]) == ("0", "0.0", "0.0")


def test_rows_of_other_machines_are_counted() -> None:
    """Added rows may come from another machine; the minutes are those of the machine with most of them."""
    other = {"name": "Other Processor", "machine": "aarch64", "cores": 4, "rows": 3}
    mixed = document() | {"other_machines": [other]}
    assert "on Some Processor, 2 cores; 3 of 15 rows are from other machines." in summary(mixed)
    assert "other machines" not in summary(document())
    origin = dict(provenance(mixed))
    assert origin["Machine"].startswith(MACHINE["name"])
    assert origin["Rows of other machines too"] == "3 on Other Processor, 4 cores, aarch64"
