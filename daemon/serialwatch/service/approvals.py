"""Actions on boards that the agent proposes: stored, decided by people, done once.

The agent runs the skill; what reaches a board is done here, step by step, each compared with what
was approved. What a skill, a model or a board says changes nothing about that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import sqlite_utils

from serialwatch.api.approvals import no_approval
from serialwatch.api.attach import audited
from serialwatch.api.bench import AuditEntry, Bench, BenchError, Who
from serialwatch.board_steps import MAX_STEPS, bytes_of, checked_step, step_words
from serialwatch.capture.reader import ENDS_LINE
from serialwatch.seconds import until_next
from serialwatch.service.grant import Grant
from serialwatch.service.look_up import look_up
from serialwatch.store import approvals as rows
from serialwatch.store.approvals import ApprovalRow, ApprovalState, approval_to_json
from serialwatch.store.database import Database, Job, StoreError
from serialwatch.titles import readable
from serialwatch.wire import Json, show

log = logging.getLogger(__name__)

T = TypeVar("T")

APPROVED: tuple[ApprovalState, ...] = ("approved",)
KEPT_S = 15 * 60  # for a person to decide; then it is expired
DONE_S = 90.0  # for the agent to do it: a skill has 60
TURN_S = 1.0  # between two looks at what is due
MAX_OF_PORT = 4  # that wait for a person
MAX_OF_RUN = 3
MAX_WHY = 300  # characters
MAX_EVIDENCE = 10  # lines
MAX_SAID = 160  # characters of how a skill ended
_LINE = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}:L[1-9]\d{0,17}")


class Agent(Protocol):
    """The process that runs skills."""

    @property
    def pid(self) -> int | None:
        """Return its number, None while there is none."""

    def send(self, message: Json) -> bool:
        """Send it an order; False when there is none."""


class Approvals:
    """What waits for people, and what they have approved. `run` does that, until cancelled."""

    def __init__(
        self,
        db: Database,
        bench: Bench,
        agent: Agent,
        *,
        refusal: Callable[[str], BenchError | None],  # of whoever types on a port
        hold: Callable[[str, Who], AbstractContextManager[None]],  # takes its lease
        how_reset: Callable[[str], str],  # in words, "" where a port has none
        device: Callable[[str], Awaitable[str]],  # which one a port has open
        is_on: Callable[[], bool],  # False: nothing may be proposed
        pending: Callable[[Json], None],  # hears of each that waits for a person
        counted: Callable[[Mapping[str, int]], None],  # hears how many are in which state
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._db = db
        self._bench = bench
        self._agent = agent
        self._refusal = refusal
        self._hold = hold
        self._how_reset = how_reset
        self._device = device
        self._is_on = is_on
        self._pending = pending
        self._counted = counted
        self._clock = clock
        # What people said yes to in this process: a row alone, whoever wrote it, begins nothing.
        self._approved: dict[str, str] = {}  # hashes, by id
        self._grants: dict[str, Grant] = {}  # by id, of what is being done
        self._has_open = True  # or it is not known
        self._woken = asyncio.Event()
        self._taking_up = asyncio.Lock()
        self._is_taken_up = False

    # For people

    async def find(
        self, states: Collection[ApprovalState], port: str, incident: int | None, limit: int
    ) -> Sequence[Json]:
        """Return actions, the newest first."""
        job = partial(
            rows.load_approvals, states=states, port=port, incident_id=incident, limit=limit
        )
        return [approval_to_json(row) for row in await self._look_up(job)]

    async def get(self, id: str) -> Json | None:
        """Return one, None if there is none."""
        row = await self._look_up(partial(rows.load_approval, id=id))
        return approval_to_json(row) if row else None

    async def decide(
        self, id: str, decision: Literal["approve", "deny"], note: str, who: Who
    ) -> Json:
        """Note what a person says; what is approved is done at once if nothing is in its way.

        A no also takes back what was approved, as long as no step of it has begun.
        """
        row = await self._write(partial(rows.load_approval, id=id))
        if row is None:
            raise no_approval(id)
        if decision == "approve" and row.state == "pending" and (why := await self._obstacle(row)):
            raise BenchError("not_now", f"{why}: nothing was sent, {id} still waits")
        if decision == "deny" and (ended := await self._taken_back(row, who)) is not None:
            self._note(ended, decision, note, who)
            self._tell_agent(ended)
            return approval_to_json(ended)
        job = partial(
            rows.decide,
            id=id,
            state="approved" if decision == "approve" else "denied",
            by=who.user,
            uid=who.uid,
            pid=who.pid,
            note=note,
            now_utc_ns=self._clock(),
        )
        is_decided = await self._write(job)
        row = await self._write(partial(rows.load_approval, id=id))
        if row is None:
            raise no_approval(id)
        if not is_decided:
            was = "expired" if row.state == "pending" else row.state
            by = f" by {row.decided_by}" if row.decided_by else ""
            raise BenchError("not_now", f"{id} is {was} already{by}")
        self._note(row, decision, note, who)
        await self._count()
        if decision == "deny":
            self._tell_agent(row)
        else:
            self._approved[id] = _hash_of(row)
            self._woken.set()
        return approval_to_json(row)

    def _note(
        self, row: ApprovalRow, decision: Literal["approve", "deny"], note: str, who: Who
    ) -> None:
        detail = {"approval": row.id, "skill": row.skill, "run": row.run_id, "note": note[:200]}
        self._bench.audit(AuditEntry(who, decision, row.port, 0, detail, "ok"))
        log.info("%s: action %s (%s): %s by %s", row.port, row.id, row.skill, row.state, who.user)

    async def _taken_back(self, row: ApprovalRow, who: Who) -> ApprovalRow | None:
        """End an approved action of which nothing has been done; None if it is no such one."""
        problem = f"{who.user} has taken it back"
        if (grant := self._grants.get(row.id)) is not None:
            async with grant.acting:
                if grant.begun or grant.is_over:
                    return None
                grant.problem = problem  # no step begins any more
            return await self._close(grant, "")
        if self._approved.pop(row.id, None) is None:
            return None
        return await self._ended(row, "failed", f"nothing was sent: {problem}")

    # For the agent

    async def propose(self, body: Mapping[str, Any]) -> Json:
        """Store what a skill would do; the same again is the same action.

        Returns:
            The action, or `{"refused": why}`.

        """
        try:
            row, is_new = await self._proposed(body)
        except BenchError as exc:
            return {"refused": f"{exc.message}{f' ({exc.hint})' if exc.hint else ''}"}
        told = approval_to_json(row)
        if is_new:
            log.info("%s: action %s (%s) waits for a person", row.port, row.id, row.skill)
            await self._count()
            self._woken.set()
            self._pending(told)
        return told

    async def act(self, body: Mapping[str, Any]) -> Json:
        """Do one step of an approved action, if it is exactly the next one.

        Returns:
            What came of it, or `{"refused": why}`: then nothing was done.

        """
        grant = self._grants.get(str(body.get("grant")))
        if grant is None:
            log.warning("a skill wanted to act on a board without approval")
            return {"refused": "there is no approval for it"}
        async with grant.acting:
            if why := grant.mismatch(body):
                grant.problem = grant.problem or why
                log.warning("%s: action %s: %s", grant.row.port, grant.row.id, why)
                return {"refused": why}
            row = grant.row
            who = Who(row.decided_uid, row.decided_by, row.decided_pid)
            if why := await self._obstacle(row, is_first=not grant.begun):
                grant.problem = why
                return {"refused": why}
            step = grant.step()
            recent = self._bench.recent(row.port)
            stood = recent[max(recent.rfind(b"\n"), recent.rfind(b"\r")) + 1 :]
            try:
                told = await self._do(row, step, who) | {"before_text": readable(stood)}
            except BenchError as exc:
                grant.problem = exc.message
                return {"refused": exc.message}
            grant.did.append(str(told.pop("did")))
            return told

    async def executed(self, body: Mapping[str, Any]) -> Json:
        """Take what the skill of an approved action made of it; return how it stands now."""
        grant = self._grants.get(str(body.get("grant")))
        if grant is None:
            return {"refused": "it is over already"}
        row = await self._close(grant, show(str(body.get("said", "")).encode())[:MAX_SAID])
        return approval_to_json(row)

    # By itself

    async def run(self) -> None:
        """Do what was approved, and end what nobody has decided, until cancelled."""
        while True:
            self._woken.clear()
            with contextlib.suppress(StoreError):  # it is told already, and tried again
                await self.turn()
            is_quiet = self._is_taken_up and not self._has_open and not self._grants
            wait_s = None if is_quiet else until_next(TURN_S, asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def turn(self) -> None:
        """Do what is due now.

        Raises:
            StoreError: the database cannot be written.

        """
        await self._take_up()
        for grant in list(self._grants.values()):
            is_late = asyncio.get_running_loop().time() >= grant.until_s
            if is_late or self._agent.pid != grant.agent_pid:
                row = await self._close(grant, "the agent did not end it")
                self._tell_agent(row)
        if not self._has_open:
            return
        expired = await self._db.run(partial(rows.expire, now_utc_ns=self._clock()), durable=True)
        for row in expired:
            log.info("%s: action %s (%s) has expired", row.port, row.id, row.skill)
            self._approved.pop(row.id, None)
            self._tell_agent(row)
        if self._agent.pid is not None:
            for row in reversed(await self._db.run(partial(rows.load_approvals, states=APPROVED))):
                await self._begin(row)
        if expired:
            await self._count()

    async def _begin(self, row: ApprovalRow) -> None:
        if self._approved.get(row.id) != _hash_of(row):
            await self._end(row, "failed", "nothing was sent: nobody has approved it here")
            return
        if why := await self._obstacle(row):
            await self._end(row, "failed", f"nothing was sent: {why}")
            return
        now = self._clock()
        if not await self._db.run(partial(rows.begin, id=row.id, now_utc_ns=now), durable=True):
            return
        if row.id not in self._approved:  # taken back meanwhile, and ended
            return
        until_s = asyncio.get_running_loop().time() + DONE_S
        grant = self._grants[row.id] = Grant(row, self._agent.pid, until_s)
        order = {"kind": "execute", "approval": approval_to_json(row)}
        if not self._agent.send(order):
            grant.problem = "the agent is not there"
            self._tell_agent(await self._close(grant, ""))
        await self._count()

    async def _close(self, grant: Grant, said: str) -> ApprovalRow:
        """End an action: no step of it is done any more."""
        async with grant.acting:
            grant.is_over = True
            self._grants.pop(grant.row.id, None)
            state: Literal["done", "failed"] = "done" if grant.is_whole else "failed"
            return await self._ended(grant.row, state, grant.words(said))

    async def _end(self, row: ApprovalRow, state: Literal["done", "failed"], words: str) -> None:
        self._tell_agent(await self._ended(row, state, words))

    async def _ended(
        self, row: ApprovalRow, state: Literal["done", "failed"], words: str
    ) -> ApprovalRow:
        now = self._clock()
        self._approved.pop(row.id, None)

        def job(db: sqlite_utils.Database) -> ApprovalRow | None:
            rows.end(db, row.id, state, words, now)
            return rows.load_approval(db, row.id)

        stored = self._db.keep(job, f"approval {row.id}", durable=True)
        await asyncio.wait([stored])
        ended = None if stored.cancelled() else stored.result()
        log.info("%s: action %s (%s) %s: %s", row.port, row.id, row.skill, state, words)
        await self._count()
        return ended or row

    async def _do(self, row: ApprovalRow, step: Json, who: Who) -> Json:
        """Do a step, as a person would who holds the lease, and say what was done."""
        bench, port = self._bench, row.port
        about = {"approval": row.id, "skill": row.skill, "run": row.run_id}
        text = f"{row.skill} {row.id}, approved by {who.user}"
        with self._hold(port, who):
            if step["op"] == "console.send":
                data = bytes_of(step)
                await bench.mark(port, "note", f"{text}: sends {len(data)} bytes", who)
                entry = AuditEntry(who, "send", port, len(data), about | {"hex": data.hex()}, "ok")
                seq = await audited(bench, entry, bench.write(port, data, "send"))
                did = f"sent exactly {len(data)} byte{'s'[: len(data) != 1]}"
                return {"did": did, "port": port, "bytes": len(data), "before_seq": seq}
            if step["op"] == "port.reset":
                entry = AuditEntry(who, "reset", port, 0, about, "ok")
                reset = await audited(bench, entry, bench.reset(port, who))
                told = {"port": port, "how": reset.how, "before_seq": reset.before_seq}
                return {"did": f"reset: {reset.how}", **told}
            # What these lines are wired to may reset it: a boot that follows was asked for.
            marker = await bench.mark(port, "reset", text, who)
            if step["op"] == "port.set_lines":
                detail = about | {
                    name: "on" if step[name] else "off"
                    for name in ("dtr", "rts")
                    if step[name] is not None
                }
                entry = AuditEntry(who, "lines", port, 0, detail, "ok")
                setting = bench.set_lines(port, dtr=step["dtr"], rts=step["rts"])
                await audited(bench, entry, setting)
            else:
                detail = about | {"seconds": f"{step['ms'] / 1000:g}"}
                entry = AuditEntry(who, "break", port, 0, detail, "ok")
                await audited(bench, entry, bench.send_break(port, step["ms"] / 1000))
            did = step_words(step, port, "").replace("send a", "sent a", 1)
            return {"did": did, "port": port, "before_seq": marker.seq}

    async def _obstacle(self, row: ApprovalRow, *, is_first: bool = True) -> str:
        """Return why an action cannot be done now, "" if it can."""
        if why := self._unfit(row.port, row.steps):
            return why
        view = self._bench.port(row.port)
        if is_first and view is not None and view.boot != row.boot and not row.any_boot:
            return (
                f"{row.port} has restarted since it was proposed (boot #{row.boot}, now "
                f"#{view.boot})"
            )
        device = await self._device(row.port)
        if device != row.device:
            return f"another device is on {row.port} than when it was proposed"
        if self._effect(row.port, row.steps) != list(row.effect):
            return f"the configuration of {row.port} has changed since it was proposed"
        if is_first and view is not None and _goes_on(row.steps, view.unended):
            return (
                f"`{view.unended}` was sent to {row.port} without Enter, and the text would "
                f"go on with it (`serialwatch send {row.port} --hex 15`, Ctrl-U, drops it)"
            )
        refusal = self._refusal(row.port)
        return refusal.message if refusal is not None else ""

    def _unfit(self, port: str, steps: Sequence[Mapping[str, Any]]) -> str:
        """Return why a port cannot take these steps, "" if it can."""
        view = self._bench.port(port)
        if view is None:
            return f"there is no port {show(port.encode())[:40]}"
        if not view.may_write:
            return f"port {port}: its configuration says write = false"
        if view.state != "up":
            return f"port {port} is {view.state}"
        ops = {step["op"] for step in steps}
        if "port.reset" in ops and not self._how_reset(port):
            return f"port {port}: its configuration does not say how to reset it"
        if ops & {"port.set_lines", "port.send_break"} and view.bit_rate is None:
            return f"port {port} has no DTR, RTS or break"
        return ""

    def _effect(self, port: str, steps: Sequence[Mapping[str, Any]]) -> list[str]:
        return [step_words(step, port, self._how_reset(port)) for step in steps]

    async def _proposed(self, body: Mapping[str, Any]) -> tuple[ApprovalRow, bool]:
        """Return the action of a proposal, and whether it is a new one."""
        if not self._is_on():
            hint = '[agent] approvals = "queue" would let a person decide'
            raise BenchError("not_allowed", "actions on boards are switched off", hint)
        try:
            steps = [checked_step(step) for step in body["steps"]]
        except ValueError as exc:
            raise BenchError("bad_request", str(exc)) from exc
        if not 1 <= len(steps) <= MAX_STEPS:
            raise BenchError("bad_request", f"{len(steps)} steps; must be 1 to {MAX_STEPS}")
        port, skill, sha = str(body["port"]), str(body["skill"]), str(body["sha"])
        if why := self._unfit(port, steps):
            raise BenchError("not_now", why)
        view = self._bench.port(port)
        assert view is not None  # it would be unfit
        now = self._clock()
        evidence = [str(line) for line in body.get("evidence", ())]
        row = ApprovalRow(
            id="",
            state="pending",
            run_id=str(body["run_id"]),
            role=str(body.get("role", "")),
            incident_id=None if body.get("incident") is None else int(body["incident"]),
            port=port,
            skill=skill,
            version=str(body.get("version", "")),
            sha=sha,
            args=dict(body["args"]),
            steps=steps,
            hash=rows.approval_hash(skill, sha, port, steps),
            effect=self._effect(port, steps),
            why=show(str(body.get("why", "")).encode(errors="backslashreplace"))[:MAX_WHY],
            evidence=[line for line in evidence if _LINE.fullmatch(line)][:MAX_EVIDENCE],
            device=await self._device(port),
            boot=view.boot,
            any_boot=bool(body.get("any_boot", False)),
            created_utc_ns=now,
            expires_utc_ns=now + KEPT_S * 10**9,
        )
        added = await self._write(partial(_add, row=row))
        if isinstance(added, str):
            raise BenchError("not_now", added)
        return added

    async def _take_up(self) -> None:
        """Once: nothing that an earlier daemon may have begun is begun again."""
        async with self._taking_up:
            if self._is_taken_up:
                return
            job = partial(rows.take_up, now_utc_ns=self._clock())
            unknown, failed = await self._db.run(job, durable=True)
            self._is_taken_up = True
        if unknown or failed:
            log.warning(
                "actions that an earlier run left: %d it may have done, %d it has not begun",
                unknown,
                failed,
            )
        await self._count()

    async def _count(self) -> None:
        self._has_open = True
        with contextlib.suppress(StoreError):
            counted = await self._db.run(rows.count_approvals)
            self._counted(counted)
            self._has_open = any(counted[state] for state in rows.OPEN)

    def _tell_agent(self, row: ApprovalRow) -> None:
        """Let the run that proposed it know; without an agent the store tells it."""
        self._agent.send({"kind": "decided", "approval": approval_to_json(row)})

    async def _look_up(self, job: Job[T]) -> T:
        try:
            return await look_up(self._db, job, self._bench.render)
        except StoreError as exc:
            raise BenchError("failed", f"the database cannot be read: {exc}") from exc

    async def _write(self, job: Job[T]) -> T:
        try:
            await self._take_up()
            return await self._db.run(job, durable=True)
        except StoreError as exc:
            raise BenchError("failed", f"the database cannot be written: {exc}") from exc


def _goes_on(steps: Sequence[Mapping[str, Any]], unended: str) -> bool:
    """Tell whether what is sent first would go on with what stands on the line of the board."""
    sent = next((str(step["hex"]) for step in steps if step["op"] == "console.send"), "")
    return bool(sent and unended.strip() and not ENDS_LINE.match(bytes.fromhex(sent)))


def _hash_of(row: ApprovalRow) -> str:
    return rows.approval_hash(row.skill, row.sha, row.port, row.steps)


def _add(db: sqlite_utils.Database, row: ApprovalRow) -> tuple[ApprovalRow, bool] | str:
    """Store a proposal unless it is there already, or too many are; return why then."""
    if (same := rows.find_same(db, row.hash)) is not None:
        return same, False
    waiting = rows.load_approvals(db, states=rows.OPEN)
    if sum(other.port == row.port for other in waiting) >= MAX_OF_PORT:
        return f"{MAX_OF_PORT} actions for {row.port} wait for a person already"
    if sum(other.run_id == row.run_id for other in waiting) >= MAX_OF_RUN:
        return f"{MAX_OF_RUN} actions of this run wait for a person already"
    return rows.add_approval(db, row), True
