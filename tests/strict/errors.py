"""A refusal of the Messages API: the status, type and message that the real one answers with."""

from __future__ import annotations

from typing import Any, NoReturn


class ApiError(Exception):
    """What the API answers instead of a message.

    Attributes:
        status: of HTTP.
        type: `invalid_request_error`, `not_found_error`, …
        message: the real service's sentence, as far as it is known.
        body: the refused request, parsed if it was JSON; None if it could not be read.
    """

    def __init__(self, status: int, type: str, message: str) -> None:  # noqa: A002  # the API's word
        super().__init__(f"{status} {type}: {message}")
        self.status = status
        self.type = type
        self.message = message
        self.body: Any = None

    def encode(self, request_id: str) -> dict[str, Any]:
        """Return the JSON object that the client sees."""
        error = {"type": self.type, "message": self.message}
        return {"type": "error", "error": error, "request_id": request_id}


def refuse(message: str) -> NoReturn:
    """Refuse a request that breaks a rule.

    Raises:
        ApiError: always, 400 `invalid_request_error`.
    """
    raise ApiError(400, "invalid_request_error", message)
