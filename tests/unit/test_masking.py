"""Known secrets are found however an output is split, and in the usual encodings of programs."""

from __future__ import annotations

import base64
import json
from io import BytesIO, TextIOWrapper
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamd.masking import MASK, Mask, MaskedOutput, MaskedStream, may_be_masked

KEY = 'sk-canary "+/?&~\\0123'
SECRETS = st.text("ab-", min_size=8, max_size=12)


def masked(mask: Mask, *chunks: bytes) -> bytes:
    """Return the masked output."""
    out: list[bytes] = []
    with MaskedOutput(mask, out.append) as output:
        for chunk in chunks:
            output.take(chunk)
    return b"".join(out)


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        quote(KEY),
        quote(KEY, safe=""),
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
    ],
)
def test_a_secret_is_replaced_in_the_forms_that_programs_print(form: str) -> None:
    assert Mask(KEY).text(f"a{form}b") == f"a{MASK}b"
    assert masked(Mask(KEY), f"a{form}b".encode()) == f"a{MASK}b".encode()


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_is_found_in_base64_at_any_offset(before: str, encode: object) -> None:
    """`Authorization: Basic` encodes a name in front of it."""
    assert callable(encode)
    shown = encode(f"{before}{KEY}\n".encode()).decode()
    left = Mask(KEY).text(shown)
    assert MASK in left
    for size in range(len(KEY) // 2, len(KEY)):  # no half of it remains either
        assert KEY[:size] not in left
    assert len(left.replace(MASK, "")) <= len(before) * 4 // 3 + 8


def test_a_text_as_short_as_a_word_is_not_a_secret() -> None:
    """A header `X-Project: web` must not mask each `web` in every text."""
    assert Mask("web", "1234567", "").text("web 1234567") == "web 1234567"


def test_a_secret_that_contains_another_one_is_masked_whole() -> None:
    mask = Mask("password", "password-and-more")
    assert mask.text("password-and-more password") == f"{MASK} {MASK}"
    assert masked(mask, b"password", b"-and-more pass", b"word") == f"{MASK} {MASK}".encode()


def test_a_secret_may_be_learned_later() -> None:
    mask = Mask()
    mask.learn("sk-12345")
    assert mask.text("sk-12345") == MASK


def test_only_texts_in_a_value_are_masked() -> None:
    """A password of digits might also occur in a number."""
    value = {"a": ["12345678", 12345678, None], "b": {"c": "x12345678"}}
    assert Mask("12345678").value(value) == {"a": [MASK, 12345678, None], "b": {"c": f"x{MASK}"}}


@given(st.lists(SECRETS, min_size=1, max_size=3), st.data())
def test_no_split_of_the_output_reveals_a_secret(secrets: list[str], data: st.DataObject) -> None:
    """A read from a pipe may return half a key, or one byte at a time."""
    mask = Mask(*secrets)
    parts = st.one_of(st.sampled_from(secrets), st.text("ab-\n", max_size=5))
    whole = "".join(data.draw(st.lists(parts, max_size=8))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    came = masked(mask, *chunks)
    assert came == masked(mask, whole)
    for secret in secrets:
        assert secret.encode() not in came


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_output_without_a_secret_is_unchanged(whole: bytes, cuts: list[int]) -> None:
    places = sorted(min(cut, len(whole)) for cut in cuts)
    chunks = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
    assert masked(Mask("a secret of no test"), *chunks) == whole


def test_output_that_cannot_become_a_secret_is_passed_on_at_once() -> None:
    """A job's output can be read while it runs."""
    out: list[bytes] = []
    output = MaskedOutput(Mask("sk-12345"), out.append)
    output.take(b"building\nsk-12")
    assert out == [b"building\n"]
    output.take(b"3, done\n")
    assert b"".join(out) == b"building\nsk-123, done\n"


def test_a_stream_is_masked_too() -> None:
    """Standard error of teamd goes to a file, and Python writes fatal errors there."""
    file = BytesIO()
    stream = MaskedStream(Mask("sk-12345"), TextIOWrapper(file, "utf-8"))
    print("401: sk-12345 is no key", file=stream)
    assert file.getvalue() == f"401: {MASK} is no key\n".encode()


@pytest.mark.parametrize(
    ("text", "shown", "so"),
    [
        ("a", "a", True),
        ("the key is sk-1.\n", f"the key is {MASK}.\n", True),
        ("sk-1", MASK, True),
        ("b", "a", False),
        ("the key is sk-1.", f"a key is {MASK}.", False),
    ],
)
def test_a_sender_recognizes_its_message_without_the_secrets(
    text: str, shown: str, so: bool
) -> None:
    assert may_be_masked(text, shown) is so
