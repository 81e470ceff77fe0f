from __future__ import annotations

import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from advisor.model.report import Fix, Place
from advisor.render import terminal, words
from tests.effort import examples
from tests.render_samples import HOSTILE, RESNET, SAMPLES, changed, hostile, report

STYLE = re.compile(r"\x1b\[[0-9;]*m")
ONE_SCREEN = 40


def lines(sample: str, **options: bool | int) -> list[str]:
    return terminal.render(SAMPLES[sample], **options).splitlines()


def test_a_run_with_three_findings_fits_one_screen():
    assert len(lines("resnet")) <= ONE_SCREEN


@pytest.mark.parametrize("amount", [4, 5])
def test_more_findings_fit_it_too(amount: int):
    source = changed(RESNET.source, salvaged=(), lacks={})
    run = changed(RESNET, source=source, findings=(RESNET.findings * 2)[:amount])
    assert len(terminal.render(report(run)).splitlines()) <= ONE_SCREEN + 1


def test_the_screen_tells_what_counts():
    screen = "\n".join(lines("resnet"))
    for told in (
        "resnet50-workers0",
        "pytorch profile (kineto)",
        "6 of 8 steps used, 178 ms on average",
        "left out: step 7: not recorded from its beginning",
        "note: worker0",
        RESNET.verdict,
        "input 33 %",
        "1  ▲ HIGH  The GPU waits for input data",
        "gives back 30 to 59 of 178 ms a step (17\N{EN DASH}33 %)",
        "└ The GPU is idle most of the time",
        "→ Let worker processes prepare batches",
        "small-matrices: recorded without `record_shapes=True`",
        "2 could not be judged",
    ):
        assert told in screen
    assert "num_workers=4" not in screen


def test_verbose_tells_the_rest():
    screen = "\n".join(lines("resnet", verbose=True))
    assert " ".join(RESNET.findings[0].why.split()[:6]) in screen
    for told in (
        "input_share 33 % (limit 20 %)",
        "num_workers=4",
        "Fix (jax)",
        "https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading\n",
        "train.py(61): train_step",
        "suppressed: pageable-copies (low)",
        "found nothing: frequent-synchronisation, too-few-steps",
        "not applicable here: slow-rank",
        "lacks allocations",
    ):
        assert told in screen
    assert "…" not in screen


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("width", [60, 80, 100, 500])
def test_lines_keep_to_the_width(sample: str, width: int):
    assert max(map(cell_len, lines(sample, width=width))) <= width


@pytest.mark.parametrize("sample", SAMPLES)
def test_ascii_is_ascii_and_no_wider(sample: str):
    screen = lines(sample, unicode=False)
    assert all(line.isascii() for line in screen)
    assert max(map(len, screen)) <= 80


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_from_a_trace_drives_the_terminal(text: str, *, color: bool, verbose: bool):
    drawn = terminal.render(hostile(text), verbose=verbose, color=color)
    assert ("\x1b" in drawn) == color
    for character in STYLE.sub("", drawn).replace("\n", ""):
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
    drawn = terminal.render(hostile(safe), verbose=True)
    assert not any(unicodedata.category(c) == "Cc" for c in drawn.replace("\n", ""))


def test_markup_of_rich_stays_text():
    assert "[red]alert[/red]" in terminal.render(hostile(HOSTILE["markup"]))


def test_colour_changes_nothing_but_colour():
    colored = terminal.render(SAMPLES["resnet"], color=True)
    assert STYLE.sub("", colored) == terminal.render(SAMPLES["resnet"])


def test_the_bar_is_as_wide_as_the_page():
    bar = next(line for line in lines("resnet") if line.startswith("██"))
    assert len(bar) == 80
    assert bar.count("─") == pytest.approx(0.334 * 80, abs=1)


def test_a_category_has_the_same_sign_in_every_run_and_no_other_has_it():
    alone = terminal.render(report(changed(RESNET, breakdown={"input": 1.0})))
    assert "─ input 100 %" in alone
    each = dict.fromkeys(words.CATEGORIES, 1 / len(words.CATEGORIES))
    legend = terminal.render(report(changed(RESNET, breakdown=each)))
    signs = [re.search(rf"(\S) {category} 11 %", legend)[1] for category in words.CATEGORIES]
    assert signs[5] == "─"
    assert len(set(signs)) == len(signs)


def test_the_first_sentence_of_a_fix_stands_whole_where_few_findings_leave_room():
    said = "Take this out of that and put it where it does no harm, then look again at what the profile says of it."
    finding = changed(RESNET.findings[0], fixes=(Fix(framework="any", do=f"{said} More of the same."),))
    screen = terminal.render(report(changed(RESNET, findings=(finding,))))
    assert said in " ".join(screen.split())
    assert "More of the same" not in screen


def test_places_of_one_name_are_told_together_three_at_most():
    place = Place(table="gaps", name="idle", worker=0, device=0, step=1, start_ns=0, at_ms=0.0, dur_ns=1_000_000)
    many = tuple(changed(place, at_ms=float(n)) for n in range(10))
    stack = "torch/nn/modules/module.py(1): _call_impl;train.py(7): forward;/usr/lib/python3.11/runpy.py(1): run"
    finding = changed(RESNET.findings[0], where=(*many, changed(place, name="k" * 400, stack=stack)))
    text = terminal.render(report(changed(RESNET, findings=(finding,))), verbose=True)
    assert text.count("1 ms at") == 4
    assert "and 7 more" in text
    assert "k" * 120 not in re.sub(r"\s", "", text)
    assert "train.py(7): forward" in text
    assert "_call_impl" not in text


def test_shares_that_no_step_can_have_break_no_line():
    run = changed(RESNET, breakdown={"compute": 7.5, "input": 1e300, "other": -3.0})
    assert max(map(len, terminal.render(report(run)).splitlines())) <= 80


def test_of_many_findings_the_rest_is_counted():
    screen = lines("crowded")
    assert any("and 195 more" in line for line in screen)
    assert len(screen) <= ONE_SCREEN + 4


def test_several_runs_and_what_was_not_read():
    screen = lines("several")
    assert screen[0].startswith("3 runs, 6 findings")
    assert "   not read: logs/broken.json: is empty" in screen
    assert sum(line.startswith(("resnet50", "cpu-only", "llama")) for line in screen) == 3


def test_no_findings_say_what_could_not_be_judged():
    screen = "\n".join(lines("cpu-only"))
    assert "6 rules: 2 found nothing and 4 could not be judged" in screen
    assert "launch-bound, pageable-copies and 2 more: this worker used no device" in screen


def test_unknown_is_said():
    assert "Where the time goes: could not tell" in lines("unknown")


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
