from __future__ import annotations

import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from advisor.model.clause import Note
from advisor.model.finding import Fix, Place
from advisor.model.reason import Reason
from advisor.model.report import Report
from advisor.present import document as doc
from advisor.render import terminal
from advisor.render.page import Page, Room
from advisor.render.terminal import _sentences
from advisor.vocabulary.parts import PARTS
from tests.effort import examples, soak
from tests.render_samples import (
    ACCOUNTING,
    HOSTILE,
    IMPOSSIBLE,
    QUICK,
    RESNET,
    SAMPLES,
    changed,
    drawn,
    hostile,
    part,
    report,
)

STYLE = re.compile(r"\x1b\[[0-9;]*m")
ONE_SCREEN = 25


def screen_of(value: Report, **options: bool | int) -> str:
    return drawn(value, "terminal", **options)


def lines(sample: str, **options: bool | int) -> list[str]:
    return screen_of(SAMPLES[sample], **options).splitlines()


def test_a_run_with_three_findings_fits_one_screen():
    assert len(lines("resnet")) <= ONE_SCREEN


@pytest.mark.parametrize("amount", [4, 5])
def test_more_findings_fit_it_too(amount: int):
    source = changed(RESNET.source, salvaged=(), lacks={})
    run = changed(RESNET, source=source, findings=(RESNET.findings * 2)[:amount])
    assert len(screen_of(report(run)).splitlines()) <= ONE_SCREEN


def test_the_screen_tells_what_counts():
    screen = " ".join(" ".join(lines("resnet")).split())
    for words in (
        "resnet50-workers0 · pytorch profile (kineto)",
        "6 of 8 steps used, without step 7 (not recorded from its beginning) and step 14 (412 ms long)",
        "input 33 %",
        "Busy 44 %.",
        "1 Let worker processes prepare batches ahead of time.",
        "% shorter). [input-bound] 33 % of each step",
        "Trust: high; in the saving: medium.",
        "Not recorded: shapes and memory. To measure action 1, record after it, then ",
    ):
        assert words in screen
    assert screen.startswith("The GPU waits for input data: 33 % of each step. Fixing this saves 30")
    assert "num_workers=4" not in screen


def test_what_a_reader_can_do_without_is_there_if_there_is_room():
    """The command that judges three more rules, where none stands there that measures what was done."""
    command = "To record what is missing: advisor record --memory -- COMMAND"
    rules = tuple(changed(RESNET.not_evaluable[1], rule=f"memory-{n}") for n in range(3))
    three = changed(RESNET, not_evaluable=rules)
    screens = [
        " ".join(screen_of(report(of), width=width, verbose=verbose).split())
        for of in (three, changed(three, findings=()))
        for width, verbose in ((60, False), (60, True))
    ]
    assert [command in screen for screen in screens] == [False, True, True, True]


def test_no_saving_hides_behind_a_smaller_one():
    """A third action is named with what it saves where there is no room for what was measured of all three."""
    screen = " ".join(" ".join(lines("resnet")).split())
    assert all(f"{number} " in screen for number in (1, 2, 3))
    assert re.search(r"3 Train in mixed precision; .*\. 178 → 137\S173 ms a step \(2\.9\S23 % shorter\)", screen)
    assert "see `-v`" not in screen


def test_what_there_is_no_room_for_is_named_with_its_command_to_record_or_without_how_to_do_it():
    asks = Fix(framework="any", do="Record later: `advisor record -- COMMAND`.", records=True)
    last = changed(RESNET.findings[2], fixes=(asks,), saving=None)
    source = changed(RESNET.source, notes=(Reason.of(Note("one_rank_of_job", ranks="0", job=8)),))
    run = changed(RESNET, findings=(*RESNET.findings[:2], last), source=source)
    screen = " ".join(screen_of(report(run), width=60).split())
    assert "3 Record later: advisor record --memory -- COMMAND Saving:" in screen


def test_a_command_has_lines_that_a_shell_takes_as_one():
    page = Page(60, Room(), color=False, unicode=True)
    command = f"nsys profile {' '.join(f'--option-{at}' for at in range(9))} --names='a  b' COMMAND"
    page.add("1 Record again: ", (f"`{command}`", "bold"), ". Then fix it.", hang=4)
    first, *rows, last = page.text().splitlines()
    assert (first, last) == ("1 Record again:", "    Then fix it.")
    assert len(rows) > 1
    assert max(map(len, rows)) <= 60
    assert all(row.endswith(" \\") for row in rows[:-1])
    assert " ".join(row.strip(" \\") for row in rows) == command


@pytest.mark.parametrize("sample", ["resnet", "many-workers", "crowded", "several", "cpu-only"])
def test_no_text_is_cut(sample: str):
    assert "…" not in "\n".join(lines(sample))


def test_verbose_tells_the_rest():
    screen = "\n".join(lines("resnet", verbose=True))
    assert " ".join(RESNET.findings[0].why.split()[:6]) in screen
    for words in (
        "input_share 33 %: Part of the step",
        "num_workers=4",
        "Fix (jax)",
        "https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading\n",
        "train.py(61): train_step",
        "1 finding suppressed in the configuration",
        "Copies between host and GPU use pageable memory (low) pageable-copies: the dataset",
        "2 rules found nothing wrong",
        "1 rule not applicable here",
        "Lacks allocations: recorded without",
    ):
        assert words in " ".join(screen.split()) or words in screen
    assert "…" not in screen


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
@pytest.mark.parametrize("width", soak([60, 80, 100, 500], unless=(60).__eq__))
def test_lines_keep_to_the_width(sample: str, width: int):
    assert max(map(cell_len, lines(sample, width=width))) <= width


@pytest.mark.parametrize("sample", soak(SAMPLES, unless=QUICK.__contains__))
def test_ascii_is_ascii_and_no_wider(sample: str):
    screen = lines(sample, unicode=False)
    assert all(line.isascii() for line in screen)
    assert max(map(len, screen)) <= 80


@pytest.mark.parametrize(
    ("color", "verbose"), soak([(False, False), (False, True), (True, False), (True, True)], unless=all)
)
@pytest.mark.parametrize("name", soak(HOSTILE, unless={"ansi", "null", "rtl", "long", "emoji", "markup"}.__contains__))
def test_nothing_from_a_trace_drives_the_terminal(name: str, *, color: bool, verbose: bool):
    text_drawn = screen_of(SAMPLES[f"hostile-{name}"], verbose=verbose, color=color)
    assert ("\x1b" in text_drawn) == color
    for character in STYLE.sub("", text_drawn).replace("\n", ""):
        assert unicodedata.category(character) != "Cc"
        assert unicodedata.bidirectional(character) not in {
            "RLO",
            "LRO",
            "RLI",
            "LRI",
            "FSI",
            "RLE",
            "LRE",
            "PDF",
            "PDI",
        }


@examples(0.25)
@given(st.text(max_size=40))
def test_any_text_is_drawn(text: str):
    safe = text.encode("utf-8", "replace").decode()
    screen = screen_of(hostile(safe), verbose=True)
    assert not any(unicodedata.category(c) == "Cc" for c in screen.replace("\n", ""))


def test_markup_of_rich_stays_text():
    assert "[red]alert[/red]" in screen_of(hostile(HOSTILE["markup"]))


def test_colour_changes_nothing_but_colour():
    colored = screen_of(SAMPLES["resnet"], color=True)
    assert STYLE.sub("", colored) == screen_of(SAMPLES["resnet"])


def test_the_bar_is_as_wide_as_the_page():
    bar = next(line for line in lines("resnet") if line.startswith("██"))
    assert len(bar) == 80
    assert bar.count("─") == pytest.approx(0.334 * 80, abs=1)


def test_a_bar_ends_in_the_blank_of_the_parts_that_its_legend_sums_up():
    small, work = part("other_programs", 0.009), part("operators", 0.982)
    screen = screen_of(report(changed(RESNET, accounting=changed(ACCOUNTING, parts=(small, small, work)))))
    assert next(of for of in screen.splitlines() if of.startswith("██")).count("█") == 79
    assert " ██" not in screen


@pytest.mark.parametrize("on_device", [True, False])
def test_a_part_has_a_sign_that_no_other_has_beside_it(on_device):
    on_cpu = ["callback", "between", "operators"]
    codes = [c for c in PARTS if c not in on_cpu] if on_device else ["collective", "input", "compile", *on_cpu]
    each = tuple(part(code, 1 / len(codes)) for code in codes)
    legend = screen_of(report(changed(RESNET, accounting=changed(ACCOUNTING, parts=each))))
    signs = [re.search(rf"(\S) {PARTS[code].short} [\d.]+ %", legend)[1] for code in codes]
    assert signs[codes.index("input")] == "─"
    assert len(set(signs)) == len(signs)


def test_what_a_part_is_stands_beside_its_name_in_a_narrow_table_too():
    few = (part("compute", 0.998), part("queued", 0.002))
    text = screen_of(report(changed(RESNET, findings=(), accounting=changed(ACCOUNTING, parts=few))), verbose=True)
    assert re.search(r"█ kernels  at work +99\.8 %", text)
    assert re.search(r"┊ short gaps  before ops that are queued +0\.2 %", text)


def test_as_many_actions_as_there_is_room_for():
    says = "Words that fill a line of the screen and more of it, so that it is long. "
    many = [
        changed(
            RESNET.findings[0], key=f"f{n}", fixes=(Fix(framework="any", do=f"Do {n}: {'and more ' * 40}."),), says=says
        )
        for n in range(3)
    ]
    screen = screen_of(report(changed(RESNET, findings=tuple(many))))
    assert screen.count("\n") <= ONE_SCREEN
    assert re.search(r"\n3  Do 2\. 178 → 119\S148 ms a step \(17\S33 % shorter\)\.\n", screen)
    first = changed(many[0], fixes=(Fix(framework="any", do=f"Do 0: {'and more ' * 100}."),))
    screen = screen_of(report(changed(RESNET, findings=(first, *many[1:]))))
    assert screen.count("\n") <= ONE_SCREEN
    assert re.search(r"\n2  Do 1[.:](?:.*\n)*3  Do 2\. 178 .* shorter\)\.\n", screen)
    assert "Do 2" in screen_of(report(changed(RESNET, findings=tuple(many))), verbose=True)


def test_what_waits_is_told_without_how_but_with_its_place_and_code_is_not_cut():
    """Where there is no room for all of what to do."""
    more = "and more " * 100
    first = changed(RESNET.findings[0], key="f", says="", fixes=(Fix(framework="any", do=f"Do it, {more}."),))
    for do, words in (
        (f"Call `f(a, b)` once: before the loop {more}.", "2 Call `f(a, b)` once. 178 →"),
        (f"Replace Python (`py_function`, say) with ops {more}.", "2 Replace Python. 178 →"),
        (
            f"Keep the buffers: `Parallel(buffers=False)`, {more}.",
            "2 Keep the buffers: `Parallel(buffers=False)`. 178 →",
        ),
        (f"train.py:8 `f(...)`: Copy less: every 100 steps {more}.", "2 train.py:8 `f(...)`: Copy less. 178 →"),
        (f"Profile the kernel, and more {more}: `ncu COMMAND`.", "2 Profile the kernel. 178 →"),
    ):
        second = changed(first, key="g", fixes=(Fix(framework="any", do=do),))
        screen = screen_of(report(changed(RESNET, findings=(first, second))))
        assert words in " ".join(screen.split())
        assert screen.count("\n") <= ONE_SCREEN


def test_an_action_is_what_to_do_what_that_changes_and_three_sentences_of_why():
    """And the code of the fix, where 25 lines hold it."""
    long = " ".join(
        f"Sentence {n} fills nearly one whole line of a screen that is eighty columns wide." for n in range(9)
    )
    fix = Fix(framework="any", do="Do it. Then look.", code="do(it=True)")
    first = changed(RESNET.findings[0], fixes=(fix,), says="It waits. It waits for a file.")
    screen = " ".join(screen_of(report(changed(RESNET, findings=(first,)))).split())
    assert "1 Do it. Then look. 178" in screen
    assert "shorter). [input-bound] It waits. It waits for a file. do(it=True)" in screen
    full = screen_of(report(changed(RESNET, findings=(changed(first, says=f"It waits. {long}"),))))
    assert "Sentence 1" in full
    assert "Sentence 2" not in full
    many = tuple(changed(first, key=f"key-{n}", says=f"It waits. {long}") for n in range(3))
    assert screen_of(report(changed(RESNET, findings=many))).count("\n") <= ONE_SCREEN


def test_places_of_one_name_stand_together_three_at_most():
    place = Place(table="gaps", name="idle", worker=0, device=0, step=1, start_ns=0, at_ms=0.0, dur_ns=1_000_000)
    many = tuple(changed(place, at_ms=float(n)) for n in range(10))
    finding = changed(RESNET.findings[0], where=many)
    text = screen_of(report(changed(RESNET, findings=(finding,))), verbose=True)
    assert text.count("1 ms at") == 3
    assert "7 more" in text


def test_shares_that_no_step_can_have_break_no_line():
    run = changed(RESNET, accounting=IMPOSSIBLE)
    assert max(map(len, screen_of(report(run)).splitlines())) <= 80


def test_of_many_findings_the_rest_is_counted():
    assert "more findings." in " ".join(lines("crowded", verbose=True))
    assert len(lines("crowded")) <= ONE_SCREEN


def test_several_runs_are_a_table_and_the_worst_stands_in_full():
    screen = lines("several")
    assert screen[0].startswith("3 runs, 6 findings")
    assert "   logs/broken.json: is empty" in screen
    assert sum(line.strip().startswith("resnet50") for line in screen) == 2
    assert sum(line.strip().startswith(("cpu-only", "llama")) for line in screen) == 2
    assert len(screen) <= ONE_SCREEN


def test_verbose_says_what_could_not_be_judged():
    screen = " ".join(lines("cpu-only", verbose=True))
    assert "2 rules found nothing wrong" in screen
    assert "launch-bound, pageable-copies, low-gpu-utilisation, amp-unused: this worker" in " ".join(screen.split())


def test_unknown_is_said():
    assert "Where the time goes: could not tell." in lines("unknown")


@pytest.mark.parametrize(
    ("variables", "color"), [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)]
)
def test_this_screen_heeds_the_environment(variables: dict[str, str], *, color: bool, monkeypatch: pytest.MonkeyPatch):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "COLUMNS": "93"}.items():
        monkeypatch.setenv(name, value)
    assert terminal.this_screen()["color"] is color
    assert terminal.this_screen()["width"] == 93


@pytest.mark.parametrize(("encoding", "unicode"), [("utf-8", True), ("latin-1", False), ("ascii", False)])
def test_this_screen_knows_its_letters(encoding: str, *, unicode: bool):
    code = "from advisor.render.terminal import this_screen; print(this_screen()['unicode'])"
    command = [sys.executable, "-X", "utf8=0", "-c", code]
    done = subprocess.run(command, env={"PYTHONIOENCODING": encoding}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(unicode)


def test_drawing_text_imports_no_templates_and_no_data_frames():
    code = "import advisor.render.terminal, sys; print({'jinja2', 'polars', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_of_many_ranks_only_the_first_are_listed():
    text = drawn(SAMPLES["large"], "terminal", verbose=True)
    assert "rank 15 rank15.json" in text
    assert "rank 16 rank16.json" not in text
    assert "and 48 ranks more" in text


def test_how_to_do_it_comes_before_evidence_where_no_saving_needs_it():
    asks = doc.Action(1, "Profile it.", "", "It is long.", "", (), "low", rest=("Read its table.",), more=("More.",))
    assert _sentences(asks) == ["Read its table.", "It is long.", "More."]
    assert _sentences(replace(asks, most="3 ms")) == ["It is long.", "Read its table.", "More."]
