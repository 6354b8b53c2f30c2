"""Tools that ask for a yes or no, or give one: plans, permissions, requests to shut down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from teamd.approvals.approval import AlreadyAnswered, Approval, Kind, Verdict, id_of
from teamd.approvals.store import Approvals
from teamd.errors import StoreError
from teamd.messages import LEAD
from teamd.tools import Input, Tool, ToolError

_LONGEST_PLAN: Final = 100_000  # characters: however they are encoded, it fits into a message


class SubmitPlanInput(Input):
    """Input of `submit_plan`."""

    plan: str = Field(
        min_length=1,
        max_length=_LONGEST_PLAN,
        description="the whole plan, for one who decides by it alone",
    )


@dataclass
class SubmitPlan(Tool[SubmitPlanInput]):
    """Asks the lead to approve a plan."""

    approvals: Approvals
    member: str
    current_task: Callable[[], str]
    secret: Callable[[], str]
    superior: Callable[[], str] = lambda: LEAD

    name = "submit_plan"
    description = (
        "Submit a plan for your task to the lead. It returns at once; approval or rejection comes "
        "as mail. A later plan takes the place of an earlier one that is not answered yet."
    )

    async def call(self, arguments: SubmitPlanInput, key: str) -> str:
        if not arguments.plan.strip():
            raise ToolError("a plan is needed; this one is empty")
        asked = self.approvals.ask(
            Approval(
                id=id_of(key, self.secret()),
                type=Kind.PLAN,
                asker=self.member,
                to=self.superior(),
                content=arguments.plan.replace("\0", "\ufffd"),
                asked=time.time(),
                task=self.current_task(),
            )
        )
        self.approvals.withdraw(self.member, Kind.PLAN, but=asked.id)
        return f"plan {asked.id} is with the lead; the answer comes as mail. End your turn to wait."


class VerdictInput(Input):
    """Input of `shutdown_response`."""

    request_id: str = Field(description="that of the shutdown_request")
    approve: bool = Field(description="false to go on working, with a reason")
    reason: str | None = Field(default=None, description="why, in a sentence")


@dataclass
class ShutdownResponse(Tool[VerdictInput]):
    """Answers a request to shut down. After an approval, the loop ends the turn.

    The asker is told of a rejection at once. The loop reports an approval once the results of the
    same reply are recorded.
    """

    approvals: Approvals
    member: str
    report_answer: Callable[[str], None]

    name = "shutdown_response"
    description = (
        "Answer a shutdown_request. Approve when nothing would be lost: you are ended after this "
        "reply, and remember everything when you are woken again. Otherwise reject with a reason."
    )

    async def call(self, arguments: VerdictInput, _key: str) -> str:
        reason = arguments.reason or ""
        _answer(self.approvals, Kind.SHUTDOWN, arguments, by=self.member, reason=reason)
        if arguments.approve:
            return "approved; you are shut down now"
        self.report_answer(arguments.request_id)
        return "rejected; go on working"


class ReviewPlanInput(Input):
    """Input of `review_plan`."""

    request_id: str = Field(description="that of the plan_approval_request")
    approve: bool = Field(description="false to have a better plan")
    feedback: str | None = Field(default=None, description="what to mind, or what to change")


@dataclass
class ReviewPlan(Tool[ReviewPlanInput]):
    """Approves or rejects a teammate's plan, including in other teams."""

    approvals: Approvals
    other_approvals: Callable[[], Iterable[Approvals]]
    address: Callable[[], str]

    name = "review_plan"
    description = (
        "Approve or reject the plan of a teammate, by the request_id of its plan_approval_request. "
        "The teammate is told by mail, and works only once its plan is approved."
    )

    async def call(self, arguments: ReviewPlanInput, _key: str) -> str:
        approvals, by = self._find_store(arguments.request_id)
        reason = arguments.feedback or ""
        answered = _answer(approvals, Kind.PLAN, arguments, by=by, reason=reason)
        return f"{answered.status}; {answered.asker} is told"

    def _find_store(self, request: str) -> tuple[Approvals, str]:
        """Return the store that holds a request, and the name under which to answer it there."""
        if self.approvals.find(request) is None:
            address = self.address()
            for approvals in self.other_approvals():
                with suppress(StoreError):  # nothing of that team can be read; look at the others
                    found = approvals.find(request)
                    if found is not None and found.to.lower() == address.lower():
                        return approvals, address
        return self.approvals, LEAD


class ReviewPermissionInput(Input):
    """Input of `review_permission`."""

    request_id: str = Field(description="that of the permission_request")
    approve: bool = Field(description="true to let this one call run")
    reason: str | None = Field(default=None, description="why not, or what to do instead")


@dataclass
class ReviewPermission(Tool[ReviewPermissionInput]):
    """Answers a teammate's request for permission."""

    approvals: Approvals
    member: str

    name = "review_permission"
    description = (
        "Allow or refuse a call that a teammate waits to run, by the request_id of its "
        "permission_request. Allow only what the person would; leave to the person what you doubt."
    )

    async def call(self, arguments: ReviewPermissionInput, _key: str) -> str:
        reason = arguments.reason or ""
        answered = _answer(
            self.approvals, Kind.PERMISSION, arguments, by=self.member, reason=reason
        )
        return f"{answered.status}; {answered.asker} goes on"


def _answer(
    approvals: Approvals,
    kind: Kind,
    given: VerdictInput | ReviewPlanInput | ReviewPermissionInput,
    *,
    by: str,
    reason: str,
) -> Approval:
    """Answer an approval of that kind; the same call may come again after a crash."""
    found = approvals.find(given.request_id)
    if found is not None and found.type != kind:
        raise ToolError(f"{given.request_id} is no {kind}")
    try:
        return approvals.answer(given.request_id, by=by, approve=given.approve, reason=reason)
    except AlreadyAnswered as error:
        verdict = Verdict.APPROVED if given.approve else Verdict.REJECTED
        if (error.approval.status, error.approval.reason) != (verdict, reason):
            raise
        return error.approval
