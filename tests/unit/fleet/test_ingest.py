"""Ingest and judging again: what becomes a row, and that doing it twice changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from datetime import date
from pathlib import Path

import deltalake
import polars as pl
import pytest
from pydantic import ValidationError

from advisor.cli.output import progress_of
from advisor.config import Config
from advisor.errors import NoRuns, ReadError, UsageError
from advisor.fleet import examine as room
from advisor.fleet import ingest as room_of_ingest
from advisor.fleet.columns import TABLES
from advisor.fleet.ingest import ingest, rejudge
from advisor.fleet.labels import of_path, valid_labels
from advisor.fleet.store import Store
from advisor.inputs import storage
from advisor.model.clause import Note
from advisor.model.trials import Gain, Trial, Trials
from advisor.render.registry import Request, draw
from advisor.yamltree import Yaml
from tests.effort import every
from tests.fleet import Here, broken, trace

TODAY = date(2026, 11, 21)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the root of every test lies, so that a store of it is filled once."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture
def root(place: Path) -> Path:
    shutil.rmtree(place / "fleet", ignore_errors=True)
    folder = place / "fleet" / "root"
    trace(folder / "a", 1)
    trace(folder / "b", 2)
    broken(folder / "c")
    return folder


def filled(root: Path, store: Store) -> None:
    """A first ingest of the root as the fixture makes it, done once for all tests."""
    first = root.parents[1] / "store"
    if not first.exists():
        taken(root, Store(str(first)))
    shutil.copytree(first, store.uri)


def taken(root, store, **options):
    done = ingest([str(root)], store, Here(), today=TODAY, **options)
    assert done.known + done.added + done.relabelled + done.pruned + done.gone == done.recordings
    return done


def rows(store, name="runs"):
    return store.collect(store.scan(name)).sort("run_id")


def contents(store):
    return {
        name: rows(store, name).drop("ingested", strict=False).sort(pl.all().exclude(pl.List, pl.Null)).to_dicts()
        for name in TABLES
    }


def test_every_run_and_every_bad_one_is_a_row(root, store):
    done = taken(root, store)
    assert (done.recordings, done.runs, done.unreadable, done.known) == (3, 2, 1, 0)
    runs = rows(store).sort("path")
    assert runs["status"].to_list() == ["checked", "checked", "unreadable"]
    assert runs["week"].to_list() == ["2026-W47"] * 3
    assert runs["step_ms"].to_list() == [0.101, 0.102, None]
    assert "empty" in runs["reason"][2]
    workers = rows(store, "workers")
    assert sorted(workers["scope"]) == ["run", "run", "worker", "worker"]
    assert workers.filter(scope="worker")["step_ms"].sort().to_list() == [0.101, 0.102]


def test_a_second_ingest_adds_nothing(root, store):
    filled(root, store)
    before = contents(store)
    done = taken(root, store)
    assert (done.recordings, done.known, done.runs, done.unreadable) == (3, 3, 0, 0)
    assert contents(store) == before


@pytest.mark.soak  # a bad row is told above
def test_what_cannot_be_read_is_counted_by_recording_in_every_pass(tmp_path):
    for place in ("a", "b"):
        trace(tmp_path / "root" / place, 1)  # one recording twice
        (tmp_path / "root" / place / "rank1.pt.trace.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    (tmp_path / "root/bad.pt.trace.json").write_text("")
    (tmp_path / "root/none.pt.trace.json").write_text("")
    store = Store(str(tmp_path / "store"))
    first, again = taken(tmp_path / "root", store), taken(tmp_path / "root", store)
    assert (first.recordings, first.known, first.added, first.runs, first.unreadable) == (4, 1, 3, 1, 3)
    assert (again.recordings, again.known, again.added, again.runs, again.unreadable) == (4, 4, 0, 0, 0)
    assert (first.unread, first.partly) == (again.unread, again.partly) == (2, 2)


def test_a_copy_elsewhere_is_the_same_run(root, store):
    filled(root, store)
    shutil.copytree(root / "a", root / "copy-of-a")
    done = taken(root, store)
    assert (done.known, done.runs) == (4, 0)
    assert rows(store).height == 3


def test_two_copies_in_one_batch_are_one_run(root, store):
    shutil.copytree(root / "a", root / "z")
    assert taken(root, store).runs == 2
    assert rows(store).height == 3


def test_a_mended_file_takes_the_place_of_the_bad_row(root, store):
    filled(root, store)
    trace(root / "c", 3)
    assert taken(root, store).runs == 1
    assert rows(store)["status"].to_list() == ["checked"] * 3


@pytest.mark.soak
def test_a_rank_that_comes_later_takes_the_place_of_the_run_without_it(tmp_path, store):
    trace(tmp_path / "root/job", 1, rank=0)
    taken(tmp_path / "root", store)
    trace(tmp_path / "root/job", 2, rank=1)
    taken(tmp_path / "root", store)
    assert rows(store)["workers"].to_list() == [2]
    assert rows(store, "workers").filter(scope="worker").height == 2


def test_another_recording_at_the_same_place_is_another_run(root, store):
    filled(root, store)
    trace(root / "a", 9)
    taken(root, store)
    assert rows(store).height == 4


def test_labels_the_nearest_says_last(root, store):
    (root / "run.yaml").write_text("team: vision\ngpu_hours: 8\ncommit: 1234567\n")
    (root / "b/run.yaml").write_text("team: speech\nprice: 2.5\nhosts: {0: node7}\nqueue: fast\nstarted: 2026-10-01\n")
    config = Config.model_validate({"fleet": {"paths": [r"/(?P<job>[^/]+)$"]}})
    taken(root, store, config=config, labels={"team": "nobody", "owner": "ann"})
    runs = rows(store).filter(status="checked").sort("job")
    assert runs.select("job", "team", "owner", "gpu_hours", "price", "commit", "week").rows() == [
        ("a", "vision", "ann", 4.0, None, "1234567", "2026-W47"),  # half: the broken run has the other
        ("b", "speech", "ann", None, 2.5, None, "2026-W40"),
    ]
    assert rows(store, "workers").filter(scope="worker")["host"].drop_nulls().to_list() == ["node7"]
    assert '"queue": "fast"' in runs["labels"][1]


@pytest.mark.parametrize("below", ["log", "log/plugins/profile/2026_11_22/host.xplane.pb"])
def test_the_runs_of_a_log_folder_have_its_place(below):
    pattern = r"/(?P<team>[^/]+)/(?P<job>[^/]+)/[^/]+$"
    assert of_path(f"/srv/vision/resnet/{below}", [pattern]) == {"team": "vision", "job": "resnet"}


def test_no_pattern_takes_longer_than_a_path_is_long():
    """The first would take Python's engine 2 to the power of 400 tries."""
    config = Config.model_validate({"fleet": {"paths": [r"(?P<team>(a+)+)$b", r"(?P<job>a{3})(/|$)"]}})
    assert of_path("/srv/" + "a" * 400 + "/\udcff", config.fleet.paths) == {"job": "aaa"}
    with pytest.raises(ValidationError, match="look-ahead"):
        Config.model_validate({"fleet": {"paths": ["(?=a)"]}})


def test_changed_labels_are_taken_over(root, store):
    filled(root, store)
    (root / "a/run.yaml").write_text("team: vision\nstarted: 2026-10-01\n")
    done = taken(root, store)
    assert (done.known, done.runs, done.relabelled) == (2, 0, 1)
    assert sorted(rows(store).filter(status="checked").select("team", "week").rows(), key=str) == [
        ("vision", "2026-W40"),
        (None, "2026-W47"),
    ]


def test_trials_beside_a_recording_belong_to_its_findings(root, store):
    """They may come later, as after `advisor try`; another program's file of that name is passed over."""
    filled(root, store)
    findings = rows(store, "findings").filter(pl.col("tried_low_share").is_not_null())
    assert findings.height == 0
    rule = rows(store, "findings")["rule"][0]
    gain = Gain(ratio=0.8, low=0.75, high=0.875, pairs=12)
    trial = Trial(name=rule, rule=rule, uses=(), result="faster", gain=gain)
    (root / "a/trials.json").write_text(draw(Request(trials(trial)), "json").decode())
    (root / "b/trials.json").write_text('{"trials": [{"state": "COMPLETE"}]}')
    done = taken(root, store)
    assert (done.known, done.relabelled, done.notes) == (2, 1, ())
    findings = rows(store, "findings").filter(pl.col("tried_low_share").is_not_null())
    assert findings.select("rule", "tried_low_share", "tried_high_share").rows() == [(rule, 0.125, 0.25)]
    again = rejudge(store, Here(), every=True)
    assert again.runs == 2
    assert rows(store, "findings").filter(pl.col("tried_low_share").is_not_null()).height == 1


def trials(*each: Trial) -> Trials:
    return Trials(advisor_version="0", program="train.py", within=0.05, trials=each)


@pytest.fixture
def twins(tmp_path):
    """One recording at two places of other labels."""
    root = tmp_path / "twins"
    for place, labels in (("a", "team: t\n"), ("b", "team: u\nstarted: 2026-11-10\n")):
        trace(root / place / "run", 1)
        (root / place / "run.yaml").write_text(labels)
    return root


def labels_of_runs(store):
    return rows(store).select("team", "week", "name").rows()


def test_a_copy_with_other_labels_changes_nothing_at_any_ingest(twins, store):
    first = taken(twins, store)
    assert (first.runs, first.known) == (1, 1)
    assert labels_of_runs(store) == [("t", "2026-W47", "a/run")]
    before = contents(store)
    for _ in range(2):
        again = taken(twins, store)
        assert (again.known, again.runs, again.relabelled) == (2, 0, 0)
        assert again.notes == (Note("copies", path=f"{twins}/b/run", home=f"{twins}/a/run"),)
        assert contents(store) == before


@pytest.mark.soak  # copies are told by the tests around it
def test_the_first_place_counts_whatever_was_ingested_or_done_first(twins, store, tmp_path):
    taken(twins / "b", store)
    assert labels_of_runs(store) == [("u", "2026-W46", "run")]
    assert taken(twins / "a", store).relabelled == 1
    assert taken(twins / "b", store).known == 1
    assert labels_of_runs(store) == [("t", "2026-W47", "run")]
    backwards = Store(str(tmp_path / "backwards"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room_of_ingest, "outcomes_of", lambda _, do, jobs: reversed([(job, do(job)) for job in jobs]))
        done = taken(twins, backwards)
    assert (done.runs, done.known) == (1, 1)
    assert labels_of_runs(backwards) == [("t", "2026-W47", "a/run")]


@pytest.mark.soak  # copies are told by the tests around it
def test_a_copy_takes_over_when_the_first_place_is_gone(twins, store):
    taken(twins, store)
    shutil.rmtree(twins / "a")
    assert taken(twins, store).relabelled == 1
    assert labels_of_runs(store) == [("u", "2026-W46", "b/run")]


@pytest.mark.soak  # sums are in test_weekly.py
def test_the_gpu_hours_of_a_file_are_shared_by_the_runs_below_it(root, store):
    (root / "run.yaml").write_text("gpu_hours: 12\n")  # of two runs and a broken one
    taken(root, store)
    assert rows(store)["gpu_hours"].to_list() == [4.0] * 3
    trace(root / "own/run", 8)
    (root / "own/run.yaml").write_text("gpu_hours: 7\n")
    assert taken(root, store).relabelled == 0
    assert sorted(rows(store)["gpu_hours"]) == [4.0] * 3 + [7.0]
    trace(root / "fourth", 9)
    taken(root, store)
    assert sorted(rows(store)["gpu_hours"]) == [3.0] * 4 + [7.0]


@pytest.mark.soak  # hours are counted in test_weekly.py
def test_gpu_hours_without_a_profile_are_a_row_until_the_profile_comes(root, store):
    (root / "team").mkdir()
    (root / "team/run.yaml").write_text("team: vision\n")  # labels, but no hours: nothing is missing
    (root / "lost").mkdir()
    (root / "lost/run.yaml").write_text("gpu_hours: 99\nteam: vision\nstarted: 2026-10-01\n")
    (root / "run.yaml").write_text("gpu_hours: 5\n")  # of all runs here
    assert taken(root, store).unprofiled == 1
    assert taken(root, store).unprofiled == 0
    bare = rows(store).filter(status="unprofiled")
    assert bare.select("path", "name", "team", "gpu_hours", "week").rows() == [
        (f"{root}/lost", "lost", "vision", 99.0, "2026-W40")
    ]
    trace(root / "lost/late", 7)
    assert taken(root, store).runs == 1
    assert rows(store).filter(status="unprofiled").height == 0
    shutil.rmtree(root / "lost/late")
    assert taken(root, store).unprofiled == 0  # its profile was read once
    assert rows(store).filter(status="checked", name="lost/late").height == 1


def test_nothing_but_gpu_hours(tmp_path, store):
    (tmp_path / "root").mkdir()
    (tmp_path / "root/run.yaml").write_text("gpu_hours: 5\n")
    assert (taken(tmp_path / "root", store).unprofiled, rows(store)["status"].to_list()) == (1, ["unprofiled"])


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("hosts: {" + ", ".join(f"a{number}: x" for number in range(1_000)) + "}", "label hosts.a0: "),
        ("trials: {sync-points: [0.1, .nan]}", "label trials.sync-points: "),
        ("trials: {sync-points: [.inf, 0.1]}", "label trials.sync-points: "),
    ],
)
def test_a_label_of_another_kind_is_told_in_few_words(label, says):
    right, (wrong,) = valid_labels(Yaml(label).value)
    assert right == {}
    assert wrong.startswith(says)
    assert len(wrong) < 1_000


def test_labels_above_the_root_are_none_of_its_runs(root, store):
    (root.parent / "run.yaml").write_text("team: forgotten\n")
    taken(root, store)
    assert rows(store)["team"].to_list() == [None] * 3


def test_the_labels_beside_a_file_that_is_the_root(root, store):
    (root / "a/run.yaml").write_text("team: vision\n")
    taken(root / "a/rank0.pt.trace.json", store)
    assert rows(store)["team"].to_list() == ["vision"]


def test_a_wrong_run_yaml_costs_its_labels_only(root, store):
    (root / "a/run.yaml").write_text("gpu_hours: many\n")
    done = taken(root, store)
    assert done.runs == 2
    assert "gpu_hours" in done.notes[0].words


def test_of_a_run_yaml_all_that_is_wrong_is_told_and_the_rest_holds(root, store):
    (root / "a/run.yaml").write_text("team: vision\ngpu_hours: many\nprice: -1\nstarted: 2026-10-01\n")
    (note,) = taken(root, store).notes
    assert "gpu_hours" in note.words
    assert "price" in note.words
    assert ("vision", "2026-W40", None) in rows(store).select("team", "week", "gpu_hours").rows()


@pytest.mark.parametrize("label", every(2, ["gpu_hours", "price"]))
def test_a_label_that_no_sum_could_hold_is_refused(root, store, label):
    (root / "a/run.yaml").write_text(f"team: vision\n{label}: 1e308\n")
    (note,) = taken(root, store).notes
    assert note.words.endswith(f"/a: label {label}: Input should be less than or equal to 1000000000")
    assert ("vision", None) in rows(store).select("team", label).rows()


def test_a_run_that_is_deleted_meanwhile_is_no_row(root, store, monkeypatch):
    digest = room._digest  # noqa: SLF001 - the first look at a file's content

    def vanishing(path):
        if "/a/" in path:
            shutil.rmtree(root / "a")
        return digest(path)

    monkeypatch.setattr(room, "_digest", vanishing)
    done = taken(root, store)
    assert (done.runs, done.gone, done.unreadable) == (1, 1, 1)
    assert rows(store).height == 2


def test_what_cannot_be_fetched_is_a_row_and_tried_again(root, store, monkeypatch):
    def closed(path):
        raise ReadError(f"{path}: the connection broke; check the path and the access to it")

    with monkeypatch.context() as patch:
        patch.setattr(room, "local", closed)
        done = taken(root, store)
    assert (done.runs, done.gone, done.unreadable) == (0, 0, 3)
    assert rows(store)["status"].to_list() == ["unreachable"] * 3
    assert "the connection broke" in rows(store)["reason"][0]
    done = taken(root, store)
    assert (done.runs, done.unreadable, done.known) == (2, 1, 0)
    assert sorted(rows(store)["status"]) == ["checked", "checked", "unreadable"]


def test_a_folder_that_may_be_listed_again_is_no_bad_row_any_more(root, store, monkeypatch):
    scan = os.scandir

    def closed(folder):
        if str(folder).endswith("/a"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", closed)
        taken(root, store)
    assert "Permission denied" in " ".join(rows(store).filter(status="unreadable")["reason"])
    taken(root, store)
    assert "Permission denied" not in " ".join(rows(store).filter(status="unreadable")["reason"])
    assert rows(store).filter(status="checked").height == 2


def test_a_newer_version_reads_again_what_an_older_one_could_not(root, store):
    filled(root, store)
    old = rows(store).with_columns(advisor_version=pl.lit("0.0.1"))
    store.write({"runs": old}, "run_id", old["run_id"])
    done = taken(root, store)
    assert (done.known, done.runs, done.unreadable) == (2, 0, 1)
    assert rows(store).height == 3


def test_a_bad_run_keeps_its_labels(root, store):
    (root / "c/run.yaml").write_text("team: vision\nstarted: 2026-10-01\n")
    taken(root, store)
    assert rows(store).filter(status="unreadable").select("team", "week").rows() == [("vision", "2026-W40")]


def test_a_run_goes_by_its_place_under_the_root(root, store, tmp_path):
    trace(root / "x/nightly", 5)
    trace(root / "y/nightly", 6)
    taken(root, store)
    assert rows(store).filter(status="checked")["name"].sort().to_list() == ["a", "b", "x/nightly", "y/nightly"]
    alone = Store(str(tmp_path / "alone"))
    shutil.rmtree(root / "y")
    taken(root, alone)
    assert "x/nightly" in rows(alone)["name"].to_list()


def test_nothing_to_ingest(tmp_path, store):
    with pytest.raises(NoRuns):
        taken(tmp_path, store)
    with pytest.raises(ReadError, match="no such file"):
        taken(tmp_path / "nowhere", store)


def test_a_wrong_rule_is_said_before_anything_is_read(root, store):
    with pytest.raises(UsageError, match="no rule is called"):
        taken(root, store, config=Config.model_validate({"overrides": {"no-such-rule": {}}}))
    assert not store.exists()


# ---------------------------------------------------------------------------------------------- judging again


def test_judging_again_by_the_same_rules_does_nothing(root, store):
    filled(root, store)
    assert rejudge(store, Here(), today=TODAY).runs == 0


@pytest.mark.soak  # rules that change are told by the tests around it
def test_other_rules_judge_without_the_traces_as_ingest_would_have(root, store, tmp_path):
    rule = {"rules": [], "overrides": {"low-gpu-utilisation": {"severity": "low"}}}
    changed = Config.model_validate(rule)
    taken(root, store)
    other = Store(str(tmp_path / "other"))
    taken(root, other, config=changed)
    shutil.rmtree(root)
    assert contents(store) != contents(other)
    assert rejudge(store, Here(), config=changed, today=TODAY).runs == 2
    assert contents(store) == contents(other)
    assert rejudge(store, Here(), config=changed, today=TODAY).runs == 0


NAMED = """\
title: The kernel k takes long
measure: {own: {kernels: "^k$"}MORE}
params: {most: 20 %}
when: own_share > most AND LIMIT
severity: {low: true, because: It says what runs.}
says: "{{ own_names }}: {{ own_share | percent }}."
why: It does.
fixes:
- {for: any, do: Run less.}
references:
- own choice: 20 %
cases:
- much: {own_share: 30 %, own_names: k, rest_share: 0, fires: low}
"""


def test_a_rule_that_came_later_is_answered_from_the_names_that_a_run_keeps(root, store, tmp_path):
    taken(root, store)
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "simple.yaml").write_text(NAMED.replace("MORE", "").replace("LIMIT", "true").replace("rest_share: 0,", ""))
    more = ', rest: {kernels: "k", shorter_us: 5}'
    (rules / "hard.yaml").write_text(NAMED.replace("MORE", more).replace("LIMIT", "rest_share < most"))
    rejudge(store, Here(), config=Config(rules=(rules,)), today=TODAY)
    found = rows(store, "findings").filter(pl.col("rule") == "simple")
    assert found["says"].unique().sort().to_list() == ["k (50 µs): 49 %.", "k (50 µs): 50 %."]  # 50 of 101 and 102 us
    reasons = [
        missing["missing"]
        for report in map(json.loads, rows(store, "reports")["report"])
        for missing in report["not_evaluable"]
        if missing["rule"] == "hard"
    ]
    assert len(reasons) == 2
    assert {reason["rest_share"]["code"] for reason in reasons} == {"stored_before_rule"}


@pytest.mark.soak  # what a new rule reads is asked for below
def test_what_a_rule_measured_stays_with_it_until_it_selects_otherwise(root, store, tmp_path):
    text = NAMED.replace("MORE", ', rest: {kernels: "k", longer_us: 5}').replace("LIMIT", "rest_share > 0")
    now, later = (Config(rules=(tmp_path / name,)) for name in ("now", "later"))
    for config, longer in ((now, "longer_us: 5"), (later, "longer_us: 7")):
        config.rules[0].mkdir()
        rule = text.replace("rest_share: 0,", "rest_share: 1,").replace("longer_us: 5", longer)
        (config.rules[0] / "hard.yaml").write_text(rule)
    taken(root, store, config=now)
    rejudge(store, Here(), config=now, every=True, today=TODAY)
    assert rows(store, "findings").filter(pl.col("rule") == "hard").height == 2
    rejudge(store, Here(), config=later, today=TODAY)
    assert not rows(store, "findings").filter(pl.col("rule") == "hard").height


def test_a_finding_that_is_suppressed_later(root, store):
    filled(root, store)
    fired = rows(store, "findings")["rule"].unique().to_list()
    assert fired
    quiet = [{"rule": rule, "reason": "known", "until": "2027-01-01"} for rule in fired]
    rejudge(store, Here(), config=Config.model_validate({"suppress": quiet}), today=TODAY)
    assert rows(store, "findings").filter(pl.col("rule").is_in(fired))["suppressed"].unique().to_list() == ["known"]


def test_a_stored_report_that_cannot_be_read_costs_that_run_only(root, store):
    filled(root, store)
    reports = rows(store, "reports")
    odd = reports.head(1).with_columns(report=pl.lit('{"made": "by a later version"}'))
    store.write({"reports": odd}, "run_id", odd["run_id"])
    changed = Config.model_validate({"overrides": {"low-gpu-utilisation": {"severity": "low"}}})
    done = rejudge(store, Here(), config=changed, today=TODAY)
    assert done.runs == 1
    assert odd["run_id"].item()[:12] in done.notes[0].words
    assert rows(store)["rule_set"].n_unique() == 3  # the new one, the old one, and none of the bad run


# ---------------------------------------------------------------------------------------------- older stores


def test_a_store_of_an_older_version_is_read_and_written(root, store):
    filled(root, store)
    new = {name: rows(store, name) for name in TABLES}
    shutil.rmtree(store.uri)
    for name, frame in new.items():
        old = frame.drop("step_ms", "of", strict=False).filter(pl.col("run_id") == frame["run_id"][0])
        deltalake.write_deltalake(f"{store.uri}/{name}", old, partition_by=["week"])
    assert rows(store)["step_ms"].to_list() == [None]
    done = taken(root, store)
    assert done.known == 1
    assert rows(store).height == 3
    assert {0.101, 0.102} & set(rows(store)["step_ms"])
    assert {0.101, 0.102} & set(rows(store, "workers")["step_ms"])


def test_a_folder_in_a_store_of_objects(root, store):
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.put(str(root), "/fleet-root", recursive=True)
    try:
        first = ingest(["memory://fleet-root"], store, Here(), today=TODAY)
        again = ingest(["memory://fleet-root"], store, Here(), today=TODAY)
        here = ingest([str(root)], store, Here(), today=TODAY)
    finally:
        files.rm("/fleet-root", recursive=True)
    assert (first.runs, first.unreadable) == (2, 1)
    assert again.known == 3
    assert (here.known, here.runs, here.unreadable) == (3, 0, 0)


def test_a_recording_elsewhere_is_fetched_once(root, store, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    opened = Counter()
    open_file = storage.open_file

    def counted(path):
        opened[path.rpartition("/fleet-once/")[2]] += 1
        return open_file(path)

    monkeypatch.setattr(storage, "open_file", counted)
    files.put(str(root), "/fleet-once", recursive=True)
    try:
        done = ingest(["memory://fleet-once"], store, Here(), today=TODAY)
    finally:
        files.rm("/fleet-once", recursive=True)
    assert done.runs == 2
    assert {name: times for name, times in opened.items() if "://" in name or "/" in name} == {
        f"{job}/rank0.pt.trace.json": 1 for job in "abc"
    }
    assert set(rows(store).filter(status="checked")["path"]) == {"memory://fleet-once/a", "memory://fleet-once/b"}


def test_what_prune_forgot_stays_out_until_a_prune_names_an_earlier_week(root, store):
    filled(root, store)
    store.prune("2026-W48")
    assert (store.weeks(), store.horizon()) == ([], "2026-W48")
    assert (taken(root, store).pruned, store.weeks()) == (3, [])
    store.prune("2026-W47")
    assert (taken(root, store).added, store.weeks()) == (3, ["2026-W47"])


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr("time.monotonic", iter([0.0, 10.0, 60.0, 61.0, 120.0]).__next__)
    with progress_of("runs") as progress:
        advance = progress(4)
    for _ in range(4):
        advance(1)
    assert capsys.readouterr().err == "advisor: 2 of 4 runs, about 1 min left\n"


def test_ctrl_c_keeps_what_is_done(root, store):
    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taken(root, store, progress=lambda _: interrupted)
    assert rows(store).filter(status="checked").height == 1
    assert taken(root, store).runs == 1


def test_a_file_above_the_size_asked_for_is_a_row_that_says_so(tmp_path: Path, store: Store):
    trace(tmp_path / "root/a", 1)
    done = taken(tmp_path / "root", store, max_bytes=100)
    (run,) = rows(store).to_dicts()
    assert (done.unread, run["status"]) == (1, "unreadable")
    assert "--max-size" in run["reason"]
