"""blocked, retry, discard, resolve, edit, replay, audit, pause, resume and drain."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from commitrelay.registry import database
from commitrelay.sql import Names
from commitrelay.store import BUCKETS, Fence
from tests.acceptance.cli import PROGRAM, environment, start, the_error
from tests.acceptance.operating import Stuck, add, add_refused, orders, stuck_outbox


@pytest.fixture
def stuck(sqlite_path: Path, tmp_path: Path) -> Stuck:
    return stuck_outbox(f"sqlite:///{sqlite_path}", tmp_path / "topics")


@pytest.fixture(params=["sqlite_path", "postgres_database", "mariadb_database"])
def stuck_anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Stuck:
    place = request.getfixturevalue(request.param)
    url = f"sqlite:///{place}" if request.param == "sqlite_path" else str(place)
    return stuck_outbox(url, tmp_path / "topics")


# --- what stands still --------------------------------------------------------------------


def test_blocked_names_the_key_the_event_and_what_waits(stuck: Stuck) -> None:
    (key,) = stuck.run("blocked")["keys"]
    assert (key["aggregate_type"], key["aggregate_id"]) == ("Order", "1")
    assert (key["id"], key["state"], key["waiting"]) == (stuck.dead, "dead", 2)
    assert "header" in key["last_error"]
    assert key["since"].endswith("Z")
    text = stuck.text("blocked")
    for part in ("Order/1", stuck.dead, "dead", "OrderPaid"):
        assert part in text
    stuck.run("discard", stuck.dead, "--yes")
    assert stuck.text("blocked") == "No key stands still.\n"


def test_list_by_error_and_time(stuck: Stuck) -> None:

    def listed(*arguments: str) -> list[str]:
        return [event["id"] for event in stuck.run("list", *arguments)["events"]]

    assert listed("--error", "HEADER") == [stuck.dead]
    assert listed("--error", "nothing like it") == []
    assert len(listed("--since", "1h")) == 5
    assert listed("--until", "1h") == []
    assert len(listed("--since", "2020-01-01", "--until", "2100-01-01T00:00Z")) == 5
    wrong = stuck.attempt("list", "--since", "yesterday")
    assert "--since must be a time such as" in the_error(wrong, 2)


# --- retry, discard, resolve --------------------------------------------------------------


def test_a_retried_event_has_all_its_attempts_again(stuck: Stuck) -> None:
    done = stuck.run("retry", stuck.dead)
    assert (done["changed"], done["left_alone"], done["by_state"]) == (1, 0, {"dead": 1})
    assert stuck.status_of(stuck.dead) == "retrying"
    stuck.relay()
    assert stuck.status_of(stuck.dead) == "dead"
    story = stuck.run("show", stuck.dead)["story"]
    assert [tried["attempt"] for tried in story["attempts"]] == [1, 2, 1, 2]
    assert [act["action"] for act in story["acts"]] == ["retry"]
    assert stuck.sent("2") == stuck.delivered


def test_without_yes_nothing_is_discarded(stuck: Stuck) -> None:
    for arguments in ((stuck.dead,), ("--all",), ("--all", "--dry-run", "--yes")):
        plan = stuck.run("discard", *arguments)
        assert (plan["dry_run"], plan["matched"], plan["changed"]) == (True, 1, 0)
    text = stuck.text("discard", "--all")
    assert text == (
        "Nothing was discarded: there are 1 event (1 dead).\nWith --yes they are discarded.\n"
    )
    assert stuck.status_of(stuck.dead) == "dead"
    assert stuck.run("audit")["acts"] == []


def test_a_discarded_head_lets_its_key_go_on_in_order(stuck_anywhere: Stuck) -> None:
    stuck = stuck_anywhere
    done = stuck.run("discard", "--error", "header", "--yes", COMMITRELAY_ACTOR="alice")
    assert (done["matched"], done["changed"], done["left_alone"]) == (1, 1, 0)
    stuck.relay()
    assert stuck.sent("1") == stuck.waiting
    settled = stuck.run("show", stuck.dead)["story"]["settled"]
    assert [(one["status"], one["by"]) for one in settled] == [("discarded", "alice")]
    (listed,) = stuck.run("list", "--status", "discarded")["events"]
    assert listed["id"] == stuck.dead


def test_resolved_is_a_verdict_of_its_own(stuck: Stuck) -> None:
    assert stuck.text("resolve", stuck.dead, "--yes") == "1 event resolved.\n"
    assert stuck.status_of(stuck.dead) == "resolved"
    stuck.relay()
    assert stuck.sent("1") == stuck.waiting


def test_what_cannot_be_done_is_said_for_each_event(stuck: Stuck) -> None:
    published, missing = stuck.delivered[0], "00000000-0000-7000-8000-000000000000"
    done = stuck.attempt("retry", stuck.dead, published, missing, "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert (answer["changed"], answer["left_alone"]) == (1, 2)
    assert answer["unfit"] == {published: "is published", missing: "is not in this outbox"}
    assert f"event {published} is published: left alone" in done.stderr


def test_filters_find_what_they_say(stuck: Stuck) -> None:
    def matched(*arguments: str) -> int:
        return int(stuck.run("discard", "--dry-run", *arguments)["matched"])

    assert matched("--status", "parked", "--all") == 2
    assert matched("--status", "parked", "--aggregate", "Order/1") == 2
    assert matched("--status", "parked", "--aggregate", "Order/2") == 0
    assert matched("--aggregate", "Order") == 1
    assert matched("--type", "OrderPaid") == 1
    assert matched("--type", "OrderLost") == 0
    assert matched("--since", "1h") == 1
    assert matched("--until", "1h") == 0
    assert matched("--all", "--lane", "default") == 1
    done = stuck.run("discard", "--status", "parked", "--aggregate", "Order/1", "--yes")
    assert done["changed"] == 2


WRONG: dict[tuple[str, ...], str] = {
    ("discard",): "which events?",
    ("discard", "--lane", "default"): "which events?",
    ("discard", "x"): "'x' is not an event id",
    ("retry", "00000000-0000-7000-8000-000000000000", "--type", "A"): "ids or filters",
    ("retry", "--status", "parked"): "--status must be one of dead, retrying",
    ("retry", "--all", "--lane", "nowhere"): "no lane 'nowhere'",
    ("replay", "--all"): "into which lane?",
    ("replay", "--lane", "default"): "which events?",
    ("pause", "nowhere"): "no lane 'nowhere'",
    ("drain", "nowhere"): "no lane 'nowhere'",
    ("edit", "7"): "'7' is not an event id",
}


def test_wrong_usage(stuck: Stuck) -> None:
    for arguments, message in WRONG.items():
        assert message in the_error(stuck.attempt(*arguments), 2)


@pytest.mark.parametrize(("answer", "changed"), [("y\n", True), ("\n", False)])
def test_a_terminal_is_asked(stuck: Stuck, answer: str, changed: bool) -> None:
    terminal, end = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, "discard", "--all", "--database", stuck.url],
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=end,
        env=environment(),
        text=True,
    )
    os.close(end)
    asked = b""
    while b"[y/N]" not in asked:
        asked += os.read(terminal, 1000)
    assert b"Discard 1 event (1 dead)?" in asked
    os.write(terminal, answer.encode())
    output, _ = program.communicate(timeout=60)
    os.close(terminal)
    assert ("1 event discarded" in output) is changed
    assert stuck.status_of(stuck.dead) == ("discarded" if changed else "dead")


# --- edit ---------------------------------------------------------------------------------


def test_edit_from_a_file_and_retry_frees_the_key(stuck_anywhere: Stuck, tmp_path: Path) -> None:
    stuck = stuck_anywhere
    new = tmp_path / "new.json"
    new.write_text('{"total": 2}', "utf-8")
    done = stuck.run(
        "edit", stuck.dead, "--payload-file", str(new), "--set-header", "x=é", "--retry"
    )
    assert (done["changed"], done["retried"]) == (1, True)
    stuck.relay()
    assert stuck.sent("1") == [stuck.dead, *stuck.waiting]
    event = stuck.run("show", stuck.dead)
    assert (event["payload"], event["headers"]) == ('{"total": 2}', {"x": "é"})
    (edit,) = event["story"]["edits"]
    assert edit["old_payload"] == '{"total": 1}'
    assert json.loads(edit["old_headers"]) == {"x": 1}
    assert [act["action"] for act in event["story"]["acts"]] == ["edit", "retry"]


def test_edit_in_an_editor(stuck: Stuck, tmp_path: Path) -> None:
    script = tmp_path / "editor.py"
    script.write_text(
        "import pathlib, sys\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "assert path.suffix == '.json' and path.parent.stat().st_mode & 0o077 == 0\n"
        "path.write_text(path.read_text().replace('1', '5') + '\\n')\n",
        "utf-8",
    )
    stuck.text("edit", stuck.dead, EDITOR=f"{sys.executable} {script}")
    assert stuck.run("show", stuck.dead)["payload"] == '{"total": 5}'


def test_an_editor_that_changes_nothing(stuck: Stuck) -> None:
    for editor, code, message in (
        ("true", 1, "stays as it is: nothing was edited"),
        ("false", 1, "false ended with 1: nothing was changed"),
        ("", 2, "no editor: set EDITOR"),
    ):
        done = stuck.attempt("edit", stuck.dead, EDITOR=editor, VISUAL="")
        assert message in the_error(done, code)
    assert stuck.run("audit")["acts"] == []


def test_what_an_application_may_not_add_an_operator_may_not_make(
    stuck: Stuck, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{", "utf-8")
    for arguments, message in (
        (("--payload-file", str(broken)), "the payload is no JSON"),
        (("--set-header", "x=a\nb"), "contains a LF character"),
        (("--set-header", "=a"), "empty name"),
        (("--remove-header", "y"), "has no header 'y'"),
    ):
        assert message in the_error(stuck.attempt("edit", stuck.dead, *arguments), 1)
    assert "write NAME=VALUE" in the_error(
        stuck.attempt("edit", stuck.dead, "--set-header", "x"), 2
    )
    text = ("--payload-file", str(broken), "--content-type", "text/plain")
    assert stuck.run("edit", stuck.dead, *text)["changed"] == 1
    published = stuck.attempt("edit", stuck.delivered[0], *text)
    assert "is published: only a dead event can be edited" in the_error(published, 1)


def more_dead(stuck: Stuck, *keys: str) -> list[str]:
    """Events of these keys that are dead like the first one."""
    ids = [str(uuid4()) for _ in keys]
    for event_id, key in zip(ids, keys, strict=True):
        add_refused(stuck.url, event_id, key)
    stuck.relay()
    return ids


def test_many_are_edited_the_same_way(stuck_anywhere: Stuck) -> None:
    stuck = stuck_anywhere
    second, third = more_dead(stuck, "8", "9")
    change = ("edit", "--error", "header", "--set-header", "tenant=é")
    plan = stuck.run(*change)
    assert (plan["dry_run"], plan["matched"], plan["changed"]) == (True, 3, 0)
    assert stuck.run(*change, "--yes", "--dry-run")["dry_run"]
    assert stuck.text(*change) == (
        "Nothing was edited: there are 3 dead events.\nWith --yes they are edited.\n"
    )
    assert stuck.run("audit")["acts"] == []
    change = (*change, "--remove-header", "x", "--retry", "--yes")
    done = stuck.run(*change, COMMITRELAY_ACTOR="alice")
    assert (done["matched"], done["changed"], done["left_alone"]) == (3, 3, 0)
    assert (done["reasons"], done["retried"]) == ({}, 3)
    assert [stuck.status_of(one) for one in (stuck.dead, second, third)] == ["retrying"] * 3
    stuck.relay()
    assert stuck.sent("1") == [stuck.dead, *stuck.waiting]
    assert (stuck.sent("8"), stuck.sent("9")) == ([second], [third])
    event = stuck.run("show", third)
    assert event["headers"] == {"tenant": "é"}
    (edit,) = event["story"]["edits"]
    assert (edit["actor"], json.loads(edit["old_headers"])) == ("alice", {"x": 1})
    assert edit["old_payload"] == event["payload"] == '{"total": 1}'
    retry, act = stuck.run("audit")["acts"]
    assert (act["id"], act["action"], act["events"]) == (done["audit"], "edit", 3)
    assert act["detail"] == {
        "error": "header",
        "change": {"set_headers": ["tenant"], "remove_headers": ["x"]},
        "matched": 3,
    }
    assert (retry["action"], retry["events"], retry["detail"]["matched"]) == ("retry", 3, 3)


def test_only_what_was_edited_is_retried(stuck: Stuck) -> None:
    (second,) = more_dead(stuck, "8")
    stuck.run("edit", second, "--remove-header", "x")
    done = stuck.run("edit", "--all", "--remove-header", "x", "--retry", "--yes")
    assert (done["matched"], done["changed"], done["left_alone"]) == (2, 1, 1)
    assert (done["reasons"], done["retried"]) == ({"would stay as it is": 1}, 1)
    assert [stuck.status_of(one) for one in (stuck.dead, second)] == ["retrying", "dead"]


def test_several_ids_are_edited_and_the_rest_is_told(stuck: Stuck) -> None:
    (second,) = more_dead(stuck, "8")
    change = ("edit", stuck.dead, second, stuck.delivered[0], "--set-header", "a=1", "--json")
    done = stuck.attempt(*change, "--yes")
    assert done.returncode == 1
    assert f"event {stuck.delivered[0]} is published: left alone" in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["changed"], answer["left_alone"], answer["retried"]) == (2, 1, 0)
    text = stuck.text("edit", "--all", "--remove-header", "a", "--set-header", "b=2", "--yes")
    assert text == (
        "2 events edited; the old versions are kept.\nDeliver them with `commitrelay retry`.\n"
    )
    assert stuck.run("edit", "--all", "--remove-header", "a", "--yes")["left_alone"] == 2
    assert stuck.run("show", second)["headers"] == {"x": "1", "b": "2"}


def test_the_same_payload_for_many_is_asked_for_by_name(stuck: Stuck, tmp_path: Path) -> None:
    (second,) = more_dead(stuck, "8")
    new = tmp_path / "new.json"
    new.write_text('{"total": 0}', "utf-8")
    change = ("edit", "--all", "--payload-file", str(new), "--yes")
    assert "add --same-payload" in the_error(stuck.attempt(*change), 2)
    assert stuck.run(*change, "--same-payload")["changed"] == 2
    for one in (stuck.dead, second):
        assert stuck.run("show", one)["payload"] == '{"total": 0}'
    assert stuck.run("edit", second, "--payload-file", str(new), "--dry-run")["matched"] == 1
    new.write_text("{", "utf-8")
    done = stuck.run(*change, "--same-payload", "--retry")
    ((reason, number),) = done["reasons"].items()
    assert (done["changed"], number, done["retried"]) == (0, 2, 0)
    assert "is no JSON" in reason


def test_an_event_that_is_dead_in_two_lanes_is_edited_once(stuck: Stuck) -> None:
    stuck.run("lanes", "add", "other")
    (second,) = more_dead(stuck, "8")
    stuck.relay("--lane", "other", "--topic", "other")
    done = stuck.run("edit", "--aggregate", "Order/8", "--set-header", "a=1", "--retry", "--yes")
    assert (done["matched"], done["changed"], done["retried"]) == (1, 1, 2)
    assert len(stuck.run("show", second)["story"]["edits"]) == 1


def test_what_cannot_be_edited_at_once(stuck: Stuck) -> None:
    for arguments, code, message in (
        (("--all",), 2, "the editor is for one event"),
        ((stuck.dead, stuck.delivered[0]), 2, "the editor is for one event"),
        ((), 2, "which events?"),
        (("--all", "--set-header", "x=a\nb"), 1, "contains a LF character"),
        (("--all", "--set-header", "x"), 2, "write NAME=VALUE"),
        (("--status", "parked", "--set-header", "x=1"), 2, "--status must be one of dead"),
    ):
        for confirmation in ((), ("--yes",)):
            done = stuck.attempt("edit", *arguments, *confirmation, EDITOR="true")
            assert message in the_error(done, code)
    assert stuck.run("audit")["acts"] == []


# --- replay -------------------------------------------------------------------------------


def test_replay_into_the_same_lane_in_order(stuck: Stuck) -> None:
    plan = stuck.run("replay", "--lane", "default", "--aggregate", "Order/2")
    assert (plan["dry_run"], plan["matched"], plan["queued"]) == (True, 2, 0)
    later = add(stuck.url, *orders(2, 3))
    done = stuck.run("replay", "--lane", "default", "--since", "1h", "--yes")
    assert (done["matched"], done["queued"], done["left_alone"]) == (2, 2, 0)
    stuck.relay()
    assert stuck.sent("2") == [*stuck.delivered, *stuck.delivered, *later]
    settled = stuck.run("show", stuck.delivered[0])["story"]["settled"]
    assert [one["status"] for one in settled] == ["published", "published"]


def test_replay_into_a_new_lane_with_a_topic_of_its_own(stuck_anywhere: Stuck) -> None:
    stuck = stuck_anywhere
    arguments = ("replay", "--into", "search", "--type", "OrderPaid", "--rate", "1000", "--yes")
    done = stuck.run(*arguments)
    assert (done["new_lane"], done["queued"]) == (True, 5)
    again = stuck.run(*arguments)
    assert (again["new_lane"], again["queued"], again["left_alone"]) == (False, 0, 5)
    add(stuck.url, *orders(3, 1))
    stuck.run("discard", stuck.dead, "--lane", "search", "--yes")
    stuck.relay("--lane", "search", "--topic", "search.index")
    assert stuck.sent("1", "search.index") == stuck.waiting
    assert stuck.sent("2", "search.index") == stuck.delivered
    assert stuck.sent("3", "search.index") == []
    assert stuck.sent("2") == stuck.delivered


def test_replay_of_one_event(stuck: Stuck) -> None:
    done = stuck.run("replay", stuck.delivered[1], "--lane", "default", "--yes")
    assert done["queued"] == 1
    stuck.relay()
    assert stuck.sent("2") == [*stuck.delivered, stuck.delivered[1]]


# --- lanes that stand still on purpose ----------------------------------------------------


def test_pause_resume_and_drain(stuck: Stuck) -> None:
    assert stuck.text("pause") == "Lane default is paused.\n"
    assert stuck.run("status")["lanes"][0]["paused"]
    (added,) = add(stuck.url, *orders(2, 3))
    paused = stuck.attempt("drain", "--timeout", "30s")
    assert "lane default is paused with 1 events" in the_error(paused, 1)
    assert stuck.relay()["published"] == 0
    assert stuck.run("resume") == {"lane": "default", "paused": False}
    late = stuck.attempt("drain", "--timeout", "1s", "--json")
    assert "still has 1 events to deliver after 1s" in the_error(late, 3)
    assert json.loads(late.stdout)["left"] == 1
    waiting = start("drain", "--json", "--database", stuck.url)
    stuck.relay()
    output, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, errors) == (0, "")
    answer = json.loads(output)
    assert (answer["empty"], answer["left"], answer["held"]) == (True, 0, 3)
    assert stuck.sent("2") == [*stuck.delivered, added]
    assert [act["action"] for act in stuck.run("audit")["acts"]] == ["resume", "pause"]


# --- who did what -------------------------------------------------------------------------


def test_the_audit_tells_who_asked_for_what(stuck: Stuck) -> None:
    assert stuck.text("audit") == "Nobody has changed anything yet.\n"
    stuck.run("retry", stuck.dead, COMMITRELAY_ACTOR="alice")
    stuck.run("discard", "--status", "parked", "--aggregate", "Order/1", "--yes")
    first = stuck.run("audit", "--limit", "1")
    (act,) = first["acts"]
    assert (act["action"], act["events"]) == ("discard", 2)
    assert act["detail"] == {
        "status": "parked",
        "aggregate_type": "Order",
        "aggregate_id": "1",
        "matched": 2,
    }
    assert "@" in act["actor"]
    (older,) = stuck.run("audit", "--before", str(first["next_before"]))["acts"]
    assert (older["actor"], older["action"], older["events"]) == ("alice", "retry", 1)
    text = stuck.text("audit")
    assert "alice" in text
    assert "retry" in text


def test_show_tells_the_story_in_order(stuck: Stuck) -> None:
    text = stuck.text("show", stuck.waiting[0])
    assert f"stuck in lane default behind OrderPaid {stuck.dead}" in text
    assert ", dead: " in text
    stuck.run("edit", stuck.dead, "--set-header", "x=1", COMMITRELAY_ACTOR="alice")
    stuck.run("retry", stuck.dead, COMMITRELAY_ACTOR="bob")
    stuck.relay()
    text = stuck.text("show", stuck.dead)
    story = text[text.index("story") : text.index("payload")]
    words = [line.split("  ", 1)[1].split()[0] for line in story.splitlines()[1:] if line]
    assert words == ["added", "failed", "failed", "edit", "retry", "published"]
    assert "by alice" in story
    assert "by bob" in story


async def hold_all(url: str, relay: str) -> None:
    """A relay that has every bucket of the lane for a minute."""
    store = database(url, Names())
    await store.open()
    lane = await store.lane("default")
    roster = await store.renew(lane.id, relay, strategy="leader", keep=None, lease_seconds=60)
    await store.acquire(Fence(lane.id, relay, roster.token), frozenset(range(BUCKETS)))
    await store.close()


def test_show_tells_which_relay_has_the_event(stuck_anywhere: Stuck) -> None:
    stuck = stuck_anywhere
    text = stuck.text("show", stuck.waiting[0])
    assert "queued in lane default: no relay holds its bucket\n" in text
    asyncio.run(hold_all(stuck.url, "relay-7"))
    text = stuck.text("show", stuck.waiting[0])
    hands = r"queued in lane default: in the hands of relay relay-7 \(lease ends in [\dm.]+s\)\n"
    assert re.search(hands, text)
    (hold,) = stuck.run("show", stuck.waiting[0])["story"]["holds"]
    assert (hold["lane"], hold["kind"], hold["relay"]) == ("default", "leased", "relay-7")
    assert 0 < hold["ends_in_seconds"] <= 60
    for settled in (stuck.dead, stuck.delivered[0]):
        assert stuck.run("show", settled)["story"]["holds"] == []
