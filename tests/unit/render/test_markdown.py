from __future__ import annotations

import html
import re
from functools import cache
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from advisor.model.report import Report
from advisor.present.report import document
from advisor.render import markdown
from advisor.text import one_line
from tests.effort import every, examples, soak
from tests.render_samples import HOSTILE, QUICK, RESNET, SAMPLES, changed, hostile, report

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
SCREEN = 48  # lines
INNERMOST = re.compile(
    r"<details><summary>((?:(?!</?details>|</summary>).)*)</summary>(?:(?!</?details>).)*</details>", re.DOTALL
)
APART = "\N{ZERO WIDTH SPACE}"
OURS = {"details", "summary", "code", "sub"}
REFERENCE = re.compile(r"[@#!%~$^&][\w\"{]|\bGH-\d|://|\bwww\.", re.IGNORECASE)


def rendered(value: Report, most: int = markdown.MOST_CHARACTERS) -> str:
    return markdown.render(document(value), most=most)


@cache
def tokens(text: str) -> list[Token]:
    return [part for token in PARSER.parse(text) for part in (token, *(token.children or ()))]


@cache
def drawn(text: str) -> str:
    return rendered(hostile(text), 10**7)


def of(text: str, kind: str) -> list[Token]:
    return [token for token in tokens(text) if token.type == kind]


def shown(text: str) -> str:
    """What a reader sees outside of code blocks."""
    parts = [t.content for t in tokens(text) if t.type in {"text", "code_inline"}]
    return "\n".join(parts + [html.unescape(t.content) for t in tokens(text) if t.type == "html_block"])


def test_a_comment_has_a_verdict_a_table_and_folded_details():
    text = rendered(SAMPLES["resnet"])
    assert text.splitlines()[0] == f"### {RESNET.verdict}"
    assert "<summary>1. ▲&nbsp;high The GPU waits for input data, saves 30\N{EN DASH}59 ms</summary>" in text
    assert re.search(r"\| input.* \| 33 % \| 59 ms \| input-bound: up to 59 ms \|", text)
    assert text.count("<details>") == text.count("</details>") == 12
    for words in (
        "num_workers=4",
        "Fix (jax)",
        "small-matrices",
        "- worker0",
        "1 finding suppressed in the configuration",
        "**step 7 left out**: not recorded",
    ):
        assert words in text


def opened(text: str) -> str:
    """The text without what is folded."""
    while text != (text := re.sub(INNERMOST, "", text)):
        pass
    return text


def test_what_to_do_is_open_and_findings_are_folded():
    text = rendered(SAMPLES["resnet"])
    assert "Let worker processes prepare batches ahead of time." in opened(text)
    assert "**Trust:** high; in the saving: medium." in opened(text)
    for folded in ("2 rules found nothing wrong", "num_workers=4", "1. ▲&nbsp;high"):
        assert folded in text
        assert folded not in opened(text)


def test_what_is_new_says_so():
    first, second, *rest = RESNET.findings
    text = rendered(report(changed(RESNET, findings=(first, changed(second, new=True), *rest))))
    assert "◆&nbsp;medium **new**" in opened(text)


@pytest.mark.parametrize("sample", ["resnet", "cpu-only", "crowded"])
def test_what_is_open_fits_a_screen(sample: str):
    text = rendered(SAMPLES[sample])
    while text != (text := re.sub(INNERMOST, r"\1", text)):
        pass
    assert len(text.splitlines()) <= SCREEN


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
def test_no_code_needs_to_be_drawn(sample: str):
    assert {token.info for token in of(rendered(SAMPLES[sample]), "fence")} <= {""}


def test_only_documentation_is_linked():
    links = {token.attrs["href"] for token in of(rendered(SAMPLES["resnet"]), "link_open")}
    assert links == {fix.link for finding in RESNET.findings for fix in finding.fixes}


def test_code_in_a_sentence_is_code():
    assert "<code>bfloat16</code> from Ampere on" in rendered(SAMPLES["resnet"])


def test_what_could_not_be_told_is_folded():
    text = rendered(SAMPLES["cpu-only"])
    assert "- <code>launch-bound</code>" in text
    assert "**Trust:** low." in opened(text)


def test_of_many_findings_five_are_shown():
    text = rendered(SAMPLES["crowded"])
    assert "and 195 more findings" in text
    assert "Finding number 5, saves" in text
    assert "6. Finding number 6" not in text


def test_several_runs_begin_with_an_overview():
    text = rendered(SAMPLES["several"])
    assert text.startswith("### 3 runs, 6 findings: 1 high, 4 medium, 1 low; 2 files could not be read")
    assert "- <code>logs/broken.json</code>: is empty" in text
    assert len(of(text, "heading_open")) == 4


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_from_a_trace_is_markup(text: str):
    ours, peaceful = drawn(text), drawn("x")
    for kind in ("heading_open", "table_open", "tr_open", "td_open", "fence", "bullet_list_open", "list_item_open"):
        assert len(of(ours, kind)) == len(of(peaceful, kind)), kind
    for kind in (
        "image",
        "ordered_list_open",
        "blockquote_open",
        "hr",
        "code_block",
        "em_open",
        "s_open",
        "code_inline",
    ):
        assert not of(ours, kind), kind
    assert {t.attrs["href"] for t in of(ours, "link_open")} <= {t.attrs["href"] for t in of(peaceful, "link_open")}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_html_but_our_own(text: str):
    for token in (*of(drawn(text), "html_inline"), *of(drawn(text), "html_block")):
        assert set(re.findall(r"<[^a-z]*([a-z]+)", token.content, re.IGNORECASE)) <= OURS
        assert "=" not in "".join(re.findall(r"<[^>]*>", token.content))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nobody_is_mentioned_and_nothing_is_referred_to(text: str):
    assert not REFERENCE.search(shown(drawn(text)))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_line_is_a_command(text: str):
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", drawn(text))
    assert not any(line.startswith("/") for line in outside.splitlines())


@examples(3)
@given(st.text())
@example("1. item")
@example("__init__ _x_ a_b *c*")
@example("&lt; &#64; &amp;copy; \\")
@example("a|b")
@example("`x``y")
@example("- [ ] task")
def test_escaped_text_reads_as_itself(value: str):
    (_, paragraph, *_) = [*PARSER.parse(markdown.escape(value, 300) or "x"), None]
    assert paragraph is not None
    assert {child.type for child in paragraph.children or ()} <= {"text", "text_special"}
    seen = "".join(child.content for child in paragraph.children or ())
    assert seen.replace(APART, "") == (one_line(value, 300) or "x")


@given(st.text(st.sampled_from("`\n ~a\r\t"), max_size=60))
def test_a_code_block_ends_where_the_code_does(code: str):
    finding = changed(RESNET.findings[2], fixes=(changed(RESNET.findings[2].fixes[0], code=code + "end"),))
    text = rendered(report(changed(RESNET, findings=(finding,))))
    _bar, fence, *_ = of(text, "fence")
    assert fence.content.endswith("end\n")
    assert text.count("</details>") == text.count("<details>")


@pytest.mark.parametrize(
    ("most", "sample"),
    every(3, product([200, 1000, 5000, 20_000], ["resnet", "crowded", "several", "hostile-blocks", "hostile-long"])),
)
def test_a_comment_is_no_longer_than_allowed_and_no_part_is_broken(sample: str, most: int):
    text = rendered(SAMPLES[sample], most)
    assert len(text) <= most
    assert text.count("<details>") == text.count("</details>")
    whole = rendered(SAMPLES[sample], 10**7)
    assert (text == whole) or text.endswith("Shortened: the full report is in the JSON or HTML file.\n")


def test_the_longest_comment_is_one_that_github_takes():
    assert max(len(rendered(sample)) for sample in SAMPLES.values()) < 65_536
