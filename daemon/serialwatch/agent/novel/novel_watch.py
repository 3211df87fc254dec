"""Goes round the ports and tells the core of lines that are new to a board."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from serialwatch.agent.archive import Archive
from serialwatch.agent.core_link import CoreError
from serialwatch.agent.novel.novelty import BootSeen, Novel, PortNovelty
from serialwatch.agent.skills.results import RefusedError
from serialwatch.agent.text.device_text import shortened
from serialwatch.store.boots import load_boots, load_markers
from serialwatch.store.incidents import load_incidents
from serialwatch.store.templates import load_templates
from serialwatch.wire import Json

ROUND_S = 2.0  # in which every port is looked at once
BOOTS = 8  # the newest of a port are looked at
LAG_S = 2.0  # what a line set off is in the database by then

log = logging.getLogger(__name__)


class Core(Protocol):
    """Who is told."""

    async def ask(self, op: str, body: Mapping[str, object], limit_s: float = ...) -> object:
        """Return the answer."""


class NovelWatch:
    """All ports that have a log."""

    def __init__(self, archive: Archive, log_dir: Path, core: Core) -> None:
        self._archive = archive
        self._log_dir = log_dir
        self._core = core
        self._ports: dict[str, PortNovelty] = {}
        self._saved: dict[str, int] = {}  # good boots as they are stored
        self._flash: dict[str, int] = {}  # id of the newest flash that is known, by port

    async def run(self) -> None:
        """Go round until cancelled."""
        while True:
            ports = await self._archive.ask(lambda _: self._found())
            for port in ports:
                try:
                    await self.look(port)
                except CoreError as exc:
                    log.log(min(exc.level, logging.INFO), "%s: new lines: %s", port, exc)
                except Exception:  # one port must not end the others
                    log.exception("%s: looking for new lines failed", port)
                await asyncio.sleep(ROUND_S / len(ports))
            if not ports:
                await asyncio.sleep(ROUND_S)

    async def look(self, port: str) -> None:
        """Look at one port.

        Raises:
            CoreError: the core does not take what was found.

        """
        found = await self._archive.ask(lambda archive: self._look(archive, port))
        for novel in found:
            await self._core.ask("novel", _told(port, novel))
        novelty = self._ports.get(port)
        if novelty is not None and novelty.good_boots != self._saved.get(port, 0):
            self._saved[port] = novelty.good_boots
            body = {
                "port": port,
                "good_boots": novelty.good_boots,
                "texts": novelty.templates.texts(),
            }
            await self._core.ask("templates", body)

    def _found(self) -> list[str]:
        try:
            return sorted(path.name for path in self._log_dir.iterdir() if path.is_dir())
        except OSError:
            return []

    def _look(self, archive: Archive, port: str) -> list[Novel]:
        database = archive.database
        if database is None:
            return []
        try:
            view = archive.log(port)
        except RefusedError:
            return []
        novelty = self._ports.get(port)
        if novelty is None:
            stored = load_templates(database, port)
            novelty = PortNovelty(stored.texts, stored.good_boots) if stored else PortNovelty()
            self._ports[port] = novelty
            self._saved[port] = novelty.good_boots
        flashes = [m for m in load_markers(database, port, limit=20) if m.kind == "flash"]
        if flashes and flashes[0].id > self._flash.get(port, 0):
            if port in self._flash:
                novelty.flashed()
            self._flash[port] = flashes[0].id
        else:
            self._flash.setdefault(port, 0)
        now_utc_ns = time.time_ns()
        flash_seq = flashes[0].seq if flashes else 0  # boots before it tell of other firmware
        newest = (b for b in load_boots(database, port, limit=BOOTS) if b.seq >= flash_seq)
        boots = sorted(newest, key=lambda boot: boot.number)
        since = boots[0].utc_ns if boots else now_utc_ns
        incidents = load_incidents(database, port=port, severity="warning", since_utc_ns=since)
        faulty = {incident.boot for incident in incidents}
        seen = [
            BootSeen(b.number, b.seq, b.ready_seq, b.ready_utc_ns, b.number in faulty)
            for b in boots
            if now_utc_ns - b.utc_ns >= LAG_S * 1e9
        ]
        return novelty.look(view, seen, now_utc_ns)


def _told(port: str, novel: Novel) -> Json:
    line = novel.line
    return {
        "port": port,
        "seq": line.seq,
        "boot": line.boot,
        "mono_ns": line.mono_ns,
        "at_ns": line.utc_ns,
        "text": shortened(novel.text, 160),
    }
