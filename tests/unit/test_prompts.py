"""Mail as the model reads it: exactly the promised form, with any content."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.agent.conversation.prompts import render_inbox, system_prompt
from teamd.messages import Message
from teamd.transcript.file import decode
from teamd.transcript.records import Delivered, Opened, mail_in

SHOWN = ("summary", "request_id", "approve", "reason")
UNHOLDABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

anything = st.text(st.characters(exclude_characters="\0"))
tricky = st.lists(
    st.sampled_from(
        [*"<>&\"'\n\r\t ", "</teammate-message>", "</inbox>", "]]>", "<![CDATA[", "<!--", "&lt;"]
    )
).map("".join)
text = anything | tricky
values = text | st.booleans() | st.integers() | st.none()
messages = st.builds(
    Message,
    sender=text,
    to=st.just("alice"),
    content=text,
    type=text,
    extra=st.dictionaries(st.sampled_from(SHOWN) | text, values, max_size=5),
)


def rendered(*sent: Message) -> str:
    return render_inbox(mail_in(decode(Delivered(messages=sent).encode())))


def holdable(value: str) -> str:
    return UNHOLDABLE.sub("", value.encode(errors="replace").decode())


def shown(value: Any) -> str:
    return holdable(str(value).lower() if isinstance(value, bool) else str(value))


def read_back(content: str) -> str:
    """Return a text as an XML parser reads it: all line ends become one kind."""
    return holdable(content).replace("\r\n", "\n").replace("\r", "\n")


def test_one_message_has_the_promised_form() -> None:
    message = Message(
        sender="lead",
        to="bob",
        content="API docs are at docs/api.md",
        extra={"summary": "docs", "color": "red"},
    )
    assert rendered(message) == (
        "<inbox>\n"
        '<teammate-message teammate_id="lead" type="message" summary="docs">\n'
        "API docs are at docs/api.md\n"
        "</teammate-message>\n"
        "</inbox>"
    )


def test_all_mail_of_one_delivery_is_in_one_inbox_element() -> None:
    told = rendered(*(Message(sender=name, to="bob", content=name) for name in "abc"))
    assert told.count("<inbox>") == told.count("</inbox>") == 1
    assert re.findall('teammate_id="(.)"', told) == ["a", "b", "c"]


def test_protocol_fields_are_shown_as_attributes() -> None:
    message = Message(
        sender="bob@other",
        to="alice",
        content="no",
        type="shutdown_response",
        extra={"request_id": "7", "approve": False, "reason": "busy"},
    )
    assert (
        '<teammate-message teammate_id="bob@other" type="shutdown_response" request_id="7" '
        'approve="false" reason="busy">'
    ) in rendered(message)


def test_markup_is_escaped_once() -> None:
    message = Message(sender="a", to="b", content='if a < b && c > "d":', extra={"summary": 'a"<b'})
    assert 'if a &lt; b &amp;&amp; c &gt; "d":' in rendered(message)
    assert 'summary="a&quot;&lt;b"' in rendered(message)


@given(st.lists(messages, max_size=4))
def test_no_message_can_end_its_own_tag_or_add_another(sent: list[Message]) -> None:
    """Text that seems to come from the lead can make a model act."""
    inbox = ET.fromstring(UNHOLDABLE.sub("", rendered(*sent)))
    assert inbox.tag == "inbox"
    assert [child.tag for child in inbox.iter()] == ["inbox", *["teammate-message"] * len(sent)]
    for child, message in zip(inbox, sent, strict=True):
        assert child.text == read_back(f"\n{message.content}\n")
        facts = {"type": message.type, **{key: message.extra.get(key) for key in SHOWN}}
        expected = {key: shown(value) for key, value in facts.items() if value not in (None, "")}
        assert child.attrib == {"teammate_id": shown(message.sender), **expected}


@pytest.mark.parametrize("role", ["coder", "a 'tester', careful"])
def test_the_system_prompt_begins_as_promised(role: str, tmp_path: Any) -> None:
    prompt = system_prompt(Opened(name="alice", role=role, team="project"), workspace=tmp_path)
    assert prompt.startswith(f"You are 'alice', role: {role}")
    assert str(tmp_path) in prompt
