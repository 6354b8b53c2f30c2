"""The activity that a teammate shows while it works; none when it is done."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from teamd.agent.work import Presence
from teamd.journal import Journal
from teamd.masking import Mask
from teamd.models import Ask, Reply
from teamd.process_id import Identity
from teamd.team.activity import Activity, Doing, read_activity
from tests.strict.replies import say, use
from tests.unit.life import MODEL, Do, Life, Player
from tests.waiting import until


class Watched:
    """A model that answers only after the caller shows its request as activity."""

    def __init__(self, player: Player, path: Path) -> None:
        self._player = player
        self._path = path
        self.asked = player.asked
        self.seen: list[Activity] = []

    async def reply(self, ask: Ask) -> Reply:
        """Check the activity, then play."""
        await until(self._is_shown, what="that the model is asked")
        self.seen.append(shown(self._path))
        return await self._player.reply(ask)

    def _is_shown(self) -> bool:
        said = read_activity(self._path)
        return said is not None and said.doing is not None and said.doing.kind == "model"


def shown(presence_file: Path) -> Activity:
    said = read_activity(presence_file)
    assert said is not None
    return said


def presence(path: Path, mask: Mask | None = None) -> Presence:
    return Presence(path, Identity.own(), mask or Mask())


def test_a_turn_shows_the_model_then_the_tool_then_the_model_then_nothing(tmp_path: Path) -> None:
    during: list[Activity] = []

    async def look(_: str) -> None:
        during.append(shown(life.paths.activity("alice")))

    life = Life(tmp_path, use(("do", {"word": "x"})), say("Done."), do=Do(look))
    watched = Watched(life.model, life.paths.activity("alice"))
    life.model = watched  # type: ignore[assignment] # it plays the same
    life.send("Go.")
    life.live(calls=2)
    asking = Doing(kind="model", what=MODEL)
    assert [said.doing for said in watched.seen] == [asking, asking]
    assert [said.doing for said in during] == [Doing(kind="tool", what="do")]
    after = shown(life.paths.activity("alice"))
    assert (after.doing, after.process) == (None, Identity.own())
    assert after.context is not None
    assert 0 < after.context < 1


def test_a_retry_is_shown_until_it_is_over(tmp_path: Path) -> None:
    path = tmp_path / "ann.json"
    mine = presence(path)
    mine.go_on("claude", 0.5)
    since = shown(path).since
    mine.begin_retry("connection refused", 57, 7, 10)
    retry = shown(path).retry
    assert retry is not None
    assert (retry.attempt, retry.attempts, retry.cause) == (7, 10, "connection refused")
    assert retry.next is not None
    assert 56 < retry.next - since < 60
    assert shown(path).since == since  # the activity itself is unchanged
    mine.begin_retry("another cause", 1, 8, 10)
    again = shown(path).retry
    assert again is not None
    assert again.since == retry.since >= since, "when the call failed for the first time"
    mine.end_retry()
    assert shown(path).retry is None
    assert shown(path).doing is not None


def test_an_idle_teammate_shows_no_retry(tmp_path: Path) -> None:
    """A background subagent works on beside an idle teammate."""
    path = tmp_path / "ann.json"
    mine = presence(path)
    mine.go_on(None, 0.5)
    mine.begin_retry("busy", 1, 2, 10)
    assert shown(path).retry is None


def test_a_tool_is_shown_with_its_main_argument_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "ann.json"
    mine = presence(path, Mask("s3cr3t-of-the-team"))
    arguments = {"timeout": 5, "command": "curl -H s3cr3t-of-the-team\nexample.org"}
    mine.begin_tool({"name": "bash", "input": arguments})
    doing = shown(path).doing
    assert doing is not None
    assert doing.what.startswith("bash curl -H ")
    assert doing.what.endswith(" example.org")
    assert "s3cr3t" not in path.read_text()


def test_a_command_is_shown_with_its_purpose_and_never_replaced_by_it(tmp_path: Path) -> None:
    path = tmp_path / "ann.json"
    mine = presence(path)
    mine.begin_tool({"name": "bash", "input": {"description": "Run tests", "command": "pytest"}})
    doing = shown(path).doing
    assert doing is not None
    assert doing.what == "bash Run tests: pytest"
    mine.begin_tool({"name": "bash", "input": {"description": "x" * 500, "command": "rm -rf ."}})
    doing = shown(path).doing
    assert doing is not None
    assert doing.what.endswith(": rm -rf .")


def test_any_arguments_of_a_model_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "ann.json"
    mine = presence(path)
    odd: tuple[object, ...] = ({}, {"command": 7}, {"x": "y"}, [], "text", None)
    for given in odd:
        mine.begin_tool({"name": "bash", "input": given})
        assert shown(path).doing == Doing(kind="tool", what="bash")


def test_the_next_process_knows_how_full_the_context_was(tmp_path: Path) -> None:
    """A hibernating teammate reads no conversation, and its share stays the same."""
    life = Life(tmp_path, say("Done."))
    life.send("Go.")
    life.live(calls=1)
    before = shown(life.paths.activity("alice")).context

    with closing(Journal(life.paths.log("alice"), "alice")) as journal:
        life._environment(-1, journal).presence.rest()
    assert shown(life.paths.activity("alice")).context == before
