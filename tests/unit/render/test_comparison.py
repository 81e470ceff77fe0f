from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import get_args

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import ReadError
from advisor.model.comparison import Comparison, Verdict
from advisor.model.finding import Fix
from advisor.present import document_of
from advisor.present.comparison import headline
from advisor.render import json as contract
from advisor.render import markdown
from advisor.render.registry import Request, draw
from tests.comparisons import SAMPLES, slower
from tests.effort import examples
from tests.render_samples import HOSTILE

COMMITTED = Path(__file__).parents[3] / "reports" / "schema" / "comparison-3.json"
MENTION = re.compile(r"[@#!][\w\"{]|\bGH-\d|://|\bwww\.", re.IGNORECASE)
SCREEN = 45  # lines of a comment that are open, as GitHub draws it: a table's row is one


def comment(comparison: Comparison, **most: int) -> str:
    return markdown.render(document_of(comparison), **most)


def screen(comparison: Comparison, *, verbose: bool = False, **options: object) -> str:
    return draw(Request(comparison, verbose=verbose, screen=options), "terminal").decode()


def page(comparison: Comparison) -> str:
    return draw(Request(comparison), "html").decode()


def drawn(text: str) -> str:
    """The comment as GitHub's own parser draws it."""
    return cmarkgfm.github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE)


def tags(text: str) -> list[str]:
    """The elements drawn; what a profile puts between backticks may be code."""
    return [tag for tag in re.findall(r"</?[a-z0-9]+", drawn(text)) if tag not in {"<code", "</code"}]


# ------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize("sample", SAMPLES)
def test_json_comes_back_the_same(sample: str):
    text = contract.render(SAMPLES[sample])
    assert contract.load_as(Comparison, text, "c.json") == SAMPLES[sample]
    assert text.isascii()


def test_the_committed_schema_is_that_of_the_code():
    assert COMMITTED.read_text("utf-8") == contract.schema("comparison"), (
        "run: python -m advisor.render.json comparison > reports/schema/comparison-3.json"
    )


def test_the_schema_describes_what_is_written():
    described = json.loads(contract.schema("comparison"))
    assert set(json.loads(contract.render(slower()))) == set(described["properties"])
    assert set(described["properties"]["verdict"]["enum"]) == set(get_args(Verdict))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is no JSON"),
        ("nonsense", "is no JSON"),
        ("[]", "is no comparison: the document"),
        ("{}", "is no comparison: advisor_version"),
        ('{"schema_version": 1, "verdict": "same"}', "is a comparison of version 1, and this advisor reads version 3"),
        ('{"schema_version": 4}', "is a comparison of version 4, and this advisor reads version 3: use a newer"),
        ('{"kind": "week", "schema_version": 2}', "is a saved week, not a comparison"),
    ],
)
def test_what_is_no_comparison_is_refused_on_one_line(text: str, problem: str):
    with pytest.raises(ReadError) as refused:
        contract.load_as(Comparison, text, "c.json")
    assert str(refused.value).startswith(f"c.json: {problem}")
    assert "\n" not in str(refused.value)


def test_a_reader_ignores_what_it_does_not_know():
    content = json.loads(contract.render(slower()))
    content["of_tomorrow"] = content["base"]["of_tomorrow"] = 1
    assert contract.load_as(Comparison, json.dumps(content), "c.json") == slower()


def test_codes_stand_beside_words():
    content = json.loads(contract.render(slower()))
    assert (content["kind"], content["schema_version"]) == ("comparison", 3)
    assert content["reason"] == {
        "code": "steps_differ",
        "facts": {"p": 0.041, "base": 3, "head": 3},
        "words": "this is no chance: the steps differ by more than their noise (3 against 3 steps)",
    }


# ------------------------------------------------------------------------------------------ Markdown


def test_the_verdict_is_in_the_first_line():
    text = comment(slower())
    assert html.unescape(text.splitlines()[0]) == f"### 🔴 {headline(slower())}"


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_is_open_fits_a_screen(sample: str):
    text = comment(SAMPLES[sample])
    folded = re.sub(r"(?s)<details><summary>(.*?)</summary>.*?</details>", r"\1", text)
    assert len([line for line in folded.splitlines() if line]) <= SCREEN
    assert len(folded) < 3000


def test_three_findings_are_in_the_table():
    text = comment(slower(amount=30))
    assert len([line for line in text.splitlines() if line.startswith("| ") and "as before" in line]) == 1
    assert "and 27 more" in text


@pytest.mark.parametrize("sample", SAMPLES)
def test_github_draws_tables_and_folded_parts(sample: str):
    shown = tags(comment(SAMPLES[sample]))
    assert shown.count("<details") == shown.count("</details")
    assert shown.count("<h3") == 1
    rich = sample != "nothing"
    assert shown.count("<table") == (3 if rich else 0)


def test_what_is_new_is_open_with_its_fix_and_its_code():
    fix = Fix(framework="pytorch", do="Use workers.", code="num_workers=4", link=None)
    first, *rest = slower().findings
    head = first.head.model_copy(update={"fixes": (fix,)})
    findings = (first.model_copy(update={"head": head}), *rest)
    text = comment(slower().model_copy(update={"findings": findings}))
    unfolded = re.sub(r"(?s)<details>.*?</details>", "", text)
    assert "**The loader is late (new).** 33 % of each step waits for <code>next</code>." in unfolded
    assert "**Fix** Use workers.\n\n```\nnum_workers=4\n```" in unfolded
    assert "Kernels and operators" not in unfolded


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_from_a_profile_is_markup_or_a_mention(text: str):
    ours, peaceful = comment(slower(text), most=10**7), comment(slower(), most=10**7)
    assert tags(ours) == tags(peaceful)
    seen = html.unescape(re.sub(r"<[^>]*>", "", ours))
    assert not MENTION.search(seen)


@examples(0.5)
@given(st.text(max_size=40))
def test_whatever_the_text_the_comment_keeps_its_shape(text: str):
    assert tags(comment(slower(text))) == tags(comment(slower()))


def test_a_comment_that_grows_too_long_is_cut_between_blocks():
    text = comment(slower(), most=1500)
    assert len(text) <= 1500
    assert "Shortened" in text
    assert text.count("<details>") == text.count("</details>")


# ------------------------------------------------------------------------------------------ terminal


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("width", [60, 80, 110])
def test_lines_fit_the_terminal(sample: str, width: int):
    short, full = (screen(SAMPLES[sample], width=width, verbose=verbose) for verbose in (False, True))
    assert max(len(line) for line in (short + full).splitlines()) <= width
    assert len(short.splitlines()) <= (50 if width > 60 else 60)


def test_the_terminal_shows_verdict_categories_findings_and_work():
    text = screen(slower())
    for told in (
        "Slower: 127 → 177 ms",
        "input",
        "+59 ms",
        "The loader is late",
    ):
        assert told in text
    assert len(text.splitlines()) <= 25
    details = screen(slower(), verbose=True)
    assert "1 \N{MULTIPLICATION SIGN} 0.377 ms  2 \N{MULTIPLICATION SIGN} 0.377 ms" in details
    assert "aten::op39" in details


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_drives_the_terminal(text: str):
    shown = screen(slower(text), verbose=True)
    assert all(c.isprintable() or c == "\n" or ord(c) > 127 for c in shown)
    assert "\x1b" not in shown


def test_plain_terminals_get_ascii():
    assert screen(slower(), unicode=False).isascii()


# ------------------------------------------------------------------------------------------ HTML


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_holds_everything_and_loads_nothing(sample: str):
    text = page(SAMPLES[sample])
    assert "default-src 'none'" in html.unescape(text)
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)
    assert f'<h2 id="compare-verdict">{headline(SAMPLES[sample])}</h2>' in html.unescape(text).replace(
        "\N{NO-BREAK SPACE}", " "
    )
    for heading in ("What was compared", "Findings", "Kernels and operators that differ"):
        assert heading in text


def test_the_page_draws_both_sides():
    text = page(slower())
    assert text.count('class="strip"') == text.count('class="breakdown"') == 2
    assert text.count('class="step"') == 6
    assert "aten::<wbr>op39" in text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_from_a_profile_is_html(text: str):
    def elements(found: Comparison) -> list[str]:
        return re.findall(r"</?(?!wbr|code|span)[a-z0-9]+", page(found))

    assert elements(slower(text)) == elements(slower())


def test_the_page_has_what_its_script_asks_for():
    assert 'id="theme"' in page(slower())


def test_the_page_holds_the_numbers_of_its_table_and_flame_graph():
    (text,) = re.findall(r'(?s)<script type="application/json" id="compare-data">(.*?)</script>', page(slower()))
    data = json.loads(text)
    work = data["tables"]["work"]
    first = dict(zip(work["columns"], work["rows"][0], strict=True))
    assert (first["status"], first["base_ms"], first["head_ms"], first["change_ms"]) == (
        "more often",
        0.377,
        0.754,
        0.377,
    )
    assert len(work["rows"]) == len(slower().work)
    frames = [dict(zip(data["flame"]["columns"], row, strict=True)) for row in data["flame"]["rows"]]
    assert [(f["parent"], f["total_ms"], f["base_ms"]) for f in frames] == [
        *((None, 60, 50), (0, 35, 20), (0, 15, 30), (0, 10, None), (None, 0, 10))
    ]
    assert "Device time by module and operator, before and after" in page(slower())
    assert "device time of a step: 60\N{NO-BREAK SPACE}ms, was 60\N{NO-BREAK SPACE}ms" in page(slower())


def test_without_modules_there_is_no_flame_graph():
    assert "operator, before and after" not in page(SAMPLES["nothing"])
