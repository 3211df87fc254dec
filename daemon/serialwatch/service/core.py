"""The daemon: what starts, runs and stops together, and how its parts are wired."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from serialwatch.api.bench import BenchError, PortView, Who
from serialwatch.api.caller import policy_of_this_process
from serialwatch.api.listen import ApiBindError, refuse_served
from serialwatch.api.server import ApiPlaces, ApiServer
from serialwatch.bundled import search_path
from serialwatch.config import Config, config_to_json, run_dir, state_dir
from serialwatch.config_file import is_system
from serialwatch.metrics import Metrics, PortNumbers
from serialwatch.notify.command import CommandNotifier, Notification
from serialwatch.records import Hit, IncidentChange, Marker, Report
from serialwatch.seconds import until_next
from serialwatch.service import systemd
from serialwatch.service.agent_desk import AgentDesk
from serialwatch.service.agent_link import AgentHungError
from serialwatch.service.approvals import Approvals
from serialwatch.service.beats import Beats, Threads, stood_still_s
from serialwatch.service.bench import ServiceBench
from serialwatch.service.config_reading import read_again
from serialwatch.service.discovery import Discovery
from serialwatch.service.faults import Faults
from serialwatch.service.garbage import made_for_good
from serialwatch.service.host import HostWatch
from serialwatch.service.loans import Loans
from serialwatch.service.look_up import look_up
from serialwatch.service.outage import Outage, PortBytes
from serialwatch.service.places import make_folder, read_token, socket_of
from serialwatch.service.port_configs import about_ports, is_same_port
from serialwatch.service.port_ttys import PortTtys
from serialwatch.service.ports import Ports
from serialwatch.service.pulse import Pulse
from serialwatch.service.rules import RuleBook
from serialwatch.service.supervise import supervise
from serialwatch.service.upkeep import Upkeep
from serialwatch.store import boots as boot_rows
from serialwatch.store import incidents as incident_rows
from serialwatch.store import ports as port_rows
from serialwatch.store import retention as row_retention
from serialwatch.store.cached_answers import prune_answers
from serialwatch.store.database import Database, SchemaTooNewError, StoreError
from serialwatch.store.log_retention import prune
from serialwatch.store.log_writer import LogWriter
from serialwatch.store.memory_upkeep import clean_up
from serialwatch.store.room import room_of
from serialwatch.store.state_dir import StateLock
from serialwatch.tomlfile import TomlError
from serialwatch.triggers.matcher import Matcher
from serialwatch.triggers.ruleset import Told
from serialwatch.wire import Json, report_to_json

log = logging.getLogger(__name__)

T = TypeVar("T")

SECOND_S = 1.0
START_BEAT_USEC = 20_000_000  # while starting: systemd is to wait so long for the next sign of life
RULES_SETTLE_S = 0.2  # packs that stay the same so long are written to the end
THREADS = ("log-writer", "log-fsync", "sqlite")  # must run as long as we do
KEEP_ROWS_DAYS = 30  # of runs, their rounds and results


class Service:
    """One bench, from start to stop."""

    def __init__(self, config: Config, load: Callable[[], Config]) -> None:
        """Prepare; `load` reads the configuration again for a reload and raises TomlError."""
        self._config = config
        self._load = load
        self._stopped = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._is_started = asyncio.Event()
        self._beats = Beats()
        self._pulse = Pulse()
        self._threads = Threads(THREADS)
        self._problems: dict[str, str] = {}
        self._damages = 0  # of the database, as far as they were told
        state = self._state = state_dir(config)
        self._db = Database(state / "serialwatch.db")
        self._writer = LogWriter(state / "log", self._on_log_problem)
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="rules")
        self._rules = RuleBook()
        self._reloading = asyncio.Lock()
        self._given_up: frozenset[str] = frozenset()  # patterns, as far as they were told
        self._metrics = Metrics(version("serialwatch"), self._port_numbers, self._beat_ages)
        self._notifiers: dict[CommandNotifier, asyncio.Task[None]] = {}
        self._parts: dict[str, asyncio.Task[None]] = {}  # supervised: api, agent
        self._desk = AgentDesk(
            self._db,
            self._writer,
            self._metrics,
            self,
            self._hello,
            self._views,
            self._hands_on,
            self._detector,
        )
        self._faults = Faults(self._db, self._metrics, self, self._desk.wake)
        self._desk.faults = self._faults
        self._ports = Ports(
            state / "log", self._db, self._writer, self._faults, self, self._in_renderer
        )
        self._loans = Loans(state / "loans.json", self._ports, self._in_renderer)
        self._bench = ServiceBench(
            state / "log",
            self._db,
            self._writer,
            self._ports,
            self._faults,
            self._desk,
            self._metrics,
            self._renderer,
            self.problems,
            self._on_marker,
            self._on_step,
            self._loans,
        )
        self._desk.bench = self._bench
        self._bench.approvals = self._desk.approvals = Approvals(
            self._db,
            self._bench,
            self._desk.link,
            refusal=self._refusal_to_act,
            hold=self._hold,
            how_reset=self._bench.how_reset,
            device=self._bench.device_of,
            is_on=lambda: self._config.agent.approvals == "queue",
            pending=self._on_approval,
            counted=self._metrics.count_approvals,
        )
        self._outage = Outage(self._unwritten, self._faults.own_fault, self._faults.look_again)
        self._desk.own_state = self._own_state
        self._ttys = PortTtys(
            run_dir(config) / "tty",
            self._bench,
            self._writer_of,
            policy_of_this_process(is_system=True) if is_system() else None,
        )
        self._bench.tty_of = self._ttys.path
        self._discovery = Discovery(self._ports, self._in_renderer, state / "discovered.json")
        self._host = HostWatch(self._ports, self._bench.mark, self._tell_state, self._in_renderer)
        self._api: ApiServer | None = None
        self._upkeep = Upkeep(
            {"retention": self._prune},
            {"memories": self._clean_memories, "cached answers": self._clean_answers},
        )

    def stop(self) -> None:
        """End in order: what is in memory goes to disk first."""
        self._stopped.set()

    def reload(self) -> None:
        """Read the configuration and the rules again; a bad one changes nothing."""
        self._reload_wanted.set()

    async def run(self) -> None:
        """Run until `stop`.

        Raises:
            SocketBusy: another daemon answers at the socket.
            StateBusy: another daemon has the state directory.
            StateError: the state directory cannot be used.

        """
        with StateLock(self._state):
            refuse_served(socket_of(self._config))  # before a port is touched
            self._db.start()
            self._writer.start()
            try:
                await self._run_tasks()
            finally:
                systemd.notify("STOPPING=1")
                await self._end()

    def problems(self) -> Sequence[str]:
        """Return what is wrong with the daemon itself; empty while it is healthy."""
        told = [f"{port}: {problem}" for port, problem in self._writer.problems.items()]
        if self._db.problem:
            told.append(f"database: {self._db.problem}")
        return [*told, *self._problems.values()]

    # What others tell us

    def on_bytes(self, port: str, data: bytes) -> None:
        """Hand what a board printed to whoever is attached."""
        self._pulse.hurry()
        self._ttys.on_bytes(port, data)
        if self._api is not None:
            self._api.on_bytes(port, data)

    def on_state(self, port: str) -> None:
        """Tell that the state of a port has changed."""
        self._pulse.hurry()
        self._host.on_state(port)
        self._tell_state(port)

    def _tell_state(self, port: str) -> None:
        if self._api is not None:
            self._api.on_state(port)

    def on_hit(self, hit: Hit) -> None:
        """Tell about a hit."""
        if self._api is not None:
            self._api.on_hit(hit)

    def on_incident(self, change: IncidentChange) -> None:
        """Tell about an incident."""
        self._pulse.hurry()
        if self._api is not None:
            self._api.on_incident(change)

    def on_report(self, port: str, report: Report) -> None:
        """Tell about a report, inside and outside."""
        if self._api is not None:
            self._api.on_report(port, report)
        for notifier in self._notifiers:
            body = {"port": port, "report": report_to_json(report)}
            notifier.offer(Notification(report.severity, body))

    def _views(self) -> Sequence[PortView]:
        return self._bench.ports()

    def _hands_on(self, port: str) -> Json:
        """Return who may type into a port now ("" for nobody), and who sent something lately."""
        who = self._writer_of(port)
        sent = [{"seq": each.seq, "user": each.user} for each in self._bench.sent(port)]
        return {"writer": who.user if who else "", "sent": sent}

    def _writer_of(self, port: str) -> Who | None:
        return self._api.consoles.writer(port) if self._api is not None else None

    def _refusal_to_act(self, port: str) -> BenchError | None:
        return self._api.consoles.refusal_to_act(port) if self._api is not None else None

    def _hold(self, port: str, who: Who) -> contextlib.AbstractContextManager[None]:
        if self._api is None:  # nobody is attached
            return contextlib.nullcontext()
        return self._api.consoles.held(port, who)

    def _on_approval(self, approval: Json) -> None:
        """Tell that an action waits for a person, inside and outside: it waits for minutes only."""
        if self._api is not None:
            self._api.on_approval(approval)
        for notifier in self._notifiers:
            body = {"port": approval["port"], "approval": approval}
            notifier.offer(Notification("critical", body))

    def _detector(self, trigger: str) -> Told | None:
        matcher = self._ports.matcher
        return matcher.ruleset.detector(trigger) if matcher is not None else None

    def _on_step(self, port: str, step: Json) -> None:
        if self._api is not None:
            self._api.on_step(port, step)

    def _on_marker(self, marker: Marker) -> None:
        if self._api is not None:
            self._api.on_marker(marker)

    def _on_log_problem(self, port: str, problem: str) -> None:
        # Others have theirs in the same moment: then it is told of all of them.
        asyncio.get_running_loop().call_soon(self._note_outage)

    def _note_outage(self) -> None:
        problems, database = self._writer.problems, self._db.problem
        self._outage.note(problems, database, time.monotonic(), time.time_ns())

    def _unwritten(self) -> list[PortBytes]:
        return [
            PortBytes(port.config.name, port.ring.unwritten_bytes, port.ring.lost_bytes)
            for port in self._ports
        ]

    async def _own_state(self) -> Json:
        """Return what the agent may know of the daemon itself."""
        facts = self._outage.facts()
        try:
            room = await self._in_renderer(partial(room_of, self._state))
        except OSError as exc:
            room = {"folder": str(self._state), "problem": exc.strerror}
        return {**facts, "unsaved": self._db.unsaved, "disk": room}

    # Start and end

    async def _run_tasks(self) -> None:
        self._loans.restore()
        async with asyncio.TaskGroup() as tasks:
            for port in self._config.port.values():
                self._metrics.port_added(port.name)
                self._ports.add(port, tasks)
            running = [
                tasks.create_task(self._start(tasks), name="start"),
                tasks.create_task(self._tick(), name="tick"),
                tasks.create_task(self._each_second(), name="second"),
                tasks.create_task(self._reloads(tasks), name="reload"),
                tasks.create_task(self._watch_rules(), name="rules"),
                tasks.create_task(self._discover(tasks), name="discover"),
                tasks.create_task(self._loans.run(tasks), name="loans"),
            ]
            await self._stopped.wait()
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            await self._stop_parts()

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        """Do what follows once the ports are read: numbers, rules, agent, people."""
        if self._config.discover:
            self._discovery.restore()
            await self._discovery.look(self._config)
            before, self._config = self._config, self._discovery.extended(self._config)
            for name in self._config.port.keys() - before.port.keys():
                self._metrics.port_added(name)
                self._ports.add(self._config.port[name], tasks)
        with made_for_good():
            compiling = self._in_compiler(partial(self._rules.compile, self._config))
            try:
                await self._db.opened()
            except SchemaTooNewError:
                raise  # waiting does not help
            except StoreError as exc:
                log.error("%s; it is tried again", exc)
            await self._ports.number(list(self._ports))
            await self._restore()
            compiled = await compiling
            self._tell_left_out([*compiled.problems, *compiled.port_problems])
            await self._ports.search_with(compiled.matcher)
        self._start_notifiers(tasks)
        self._start_part("api", self._serve_api, tasks)
        self._ttys.configure(self._config.port)
        self._start_part("ttys", self._ttys.run, tasks)
        self._start_part("agent", self._desk.link.run, tasks)
        self._start_part("approvals", self._bench.approvals.run, tasks)
        self._start_part("host", self._host.run, tasks)
        self._upkeep.start()
        self._is_started.set()
        await self._resume()

    def _start_part(
        self, name: str, part: Callable[[], Awaitable[None]], tasks: asyncio.TaskGroup
    ) -> None:
        self._parts[name] = tasks.create_task(
            supervise(name, part, self._part_failed, plain=(ApiBindError, AgentHungError)),
            name=name,
        )

    async def _stop_part(self, name: str) -> None:
        task = self._parts.pop(name)
        task.cancel()
        await asyncio.wait([task])

    async def _restore(self) -> None:
        try:
            left = await look_up(self._db, incident_rows.load_left, self._in_renderer)
            marker_id = await look_up(self._db, boot_rows.next_marker_id, self._in_renderer)
        except StoreError as exc:
            # Incidents of this run are kept in memory and stored when it heals. Their numbers must
            # then be nobody else's: no bench has had one incident a second since 1970.
            log.error("earlier incidents are not known: %s", exc)
            marker_id = int(time.time())
            left = incident_rows.Left(marker_id, marker_id, (), {}, {})
        self._faults.restore(left)
        self._bench.next_marker_id = marker_id

    async def _resume(self) -> None:
        """Take up the agent's work of an earlier run, as soon as the database lets us."""
        while True:
            try:
                await self._desk.resume()
                await self._desk.count_memories()
            except StoreError:
                await asyncio.sleep(SECOND_S)
            else:
                return

    async def _serve_api(self) -> None:
        config = self._config.api
        policy = policy_of_this_process(is_system=is_system())
        places = ApiPlaces(
            socket=socket_of(self._config),
            socket_gid=policy.view_gid,
            listen=config.listen,
            token=read_token(config.token_file),
        )
        try:
            make_folder(places.socket.parent, policy.view_gid)
        except OSError as exc:
            raise ApiBindError(str(places.socket.parent), exc.strerror or str(exc)) from exc
        api = ApiServer(self._bench, places, policy, f"{time.time_ns():x}")
        await api.start()
        self._api = api
        systemd.notify("READY=1")
        count = len(self._ports)
        log.info("watching %d port%s; socket %s", count, "s"[: count != 1], places.socket)
        try:
            await asyncio.Event().wait()
        finally:
            self._api = None
            await api.stop()

    async def _stop_parts(self) -> None:
        self._upkeep.stop()
        self._desk.link.send({"kind": "stop"})
        others = [*self._parts.values(), *self._notifiers.values()]
        for task in others:
            task.cancel()
        await self._ports.close()
        if others:
            await asyncio.wait(others)
        # What came while we were still starting has no numbers, and is not in the log without.
        await self._ports.number([port for port in self._ports if not port.is_numbered])

    async def _end(self) -> None:
        """Bring everything to disk and give up threads and files."""
        await self._writer.stop()
        ends = self._ports.ends()
        noted = self._db.keep(lambda db: port_rows.close_clean(db, ends), "end of this run")
        await self._db.stop()
        if not noted.done() or noted.cancelled():
            log.error("the end is not noted: %s", self._db.problem)
        self._renderer.shutdown(cancel_futures=True)
        self._compiler.shutdown(cancel_futures=True)

    # While it runs

    async def _tick(self) -> None:
        """Let time pass for ports and incidents, and measure how late the loop is."""
        while True:
            is_calm = self._ports.is_calm and self._faults.incidents.is_calm
            self._metrics.loop_lateness_seconds.observe(await self._pulse.next(is_calm=is_calm))
            self._ports.tick(time.monotonic_ns(), time.time_ns())
            self._faults.tick()
            self._beats.beat("tick", asyncio.get_running_loop().time())

    async def _each_second(self) -> None:
        loop = asyncio.get_running_loop()
        watchdog_s = systemd.watchdog_s()
        while True:
            before_s = loop.time()
            await asyncio.sleep(until_next(SECOND_S, before_s))
            still_s = stood_still_s(before_s, loop.time())
            self._faults.store_positions()
            self._faults.count_open()
            await self._desk.store_logged()
            self._note_damage()
            self._note_outage()
            self._note_given_up()
            if self._upkeep.tick(time.monotonic(), time.time()):
                log.info("hourly and daily work was planned anew")
            self._threads.check()
            now_s = loop.time()
            self._beats.beat("second", now_s)
            self._note_beats()
            stuck = [task for task in self._beats.stuck(now_s) if task != "agent"]
            if still_s:
                words = "serialwatch stood still for %.0f s: stopped, or the PC was overloaded"
                log.warning(words, still_s)
            elif stuck:
                log.error("no sign of life: %s", ", ".join(stuck))
                continue
            if not self._is_started.is_set():
                # On a slow PC the first compiling of the rules takes minutes; ports are read
                # meanwhile. Ended for that it would begin anew, without end.
                systemd.notify(f"EXTEND_TIMEOUT_USEC={START_BEAT_USEC}")
            if watchdog_s is not None:
                systemd.notify("WATCHDOG=1")

    def _note_damage(self) -> None:
        """Tell a database that was begun anew what is known, and people that it was."""
        if len(self._db.losses) > self._damages:
            self._damages = len(self._db.losses)
            self._ports.store_anew()
            self._faults.store_anew()
            title = f"the database {self._db.losses[-1]}; a new one is begun"
            self._faults.own_fault("daemon.database_damaged", title)

    def _note_beats(self) -> None:
        """Note who showed life, and expect no more of who is not there."""
        lives = {
            f"port {port.config.name}": port.reader.beat_s
            for port in self._ports
            if port.reader.port is not None and port.reader.beat_s
        }
        if self._desk.link.pid is not None:
            lives["agent"] = self._desk.link.last_beat_s
        for task in self._beats.tasks() - lives.keys() - {"tick", "second"}:
            self._beats.forget(task)
        for task, beat_s in lives.items():
            self._beats.beat(task, beat_s)

    async def _reloads(self, tasks: asyncio.TaskGroup) -> None:
        await self._is_started.wait()  # the start goes through the ports of one configuration
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            systemd.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            await self._reload(tasks)
            systemd.notify("READY=1")

    async def _reload(self, tasks: asyncio.TaskGroup) -> None:
        try:
            config = await read_again(self._load, self._tell_not_reloaded)
            if not config.port and not config.discover:  # a file that is being written, perhaps
                where = f" in {config.source.path}" if config.source else ""
                raise TomlError([f"no port to watch is left{where}"])
            async with self._reloading:
                await self._take_over(config, tasks)
        except TomlError as exc:
            self._tell_not_reloaded(exc.problems)

    def _tell_not_reloaded(self, problems: Sequence[str]) -> None:
        for problem in problems:
            log.error("not reloaded: %s", problem)
        self._problems["config"] = f"configuration not reloaded: {problems[0]}"
        self._metrics.config_reload_good.set(0)

    async def _take_over(self, config: Config, tasks: asyncio.TaskGroup) -> None:
        compiled = await self._in_compiler(partial(self._rules.compile, config))
        if compiled.port_problems:
            raise TomlError(list(compiled.port_problems))
        extended = self._discovery.extended(config)
        await self._apply(extended, compiled.matcher, tasks, "configuration read again")
        self._problems.pop("config", None)
        self._tell_left_out(compiled.problems)
        self._metrics.config_reload_good.set(not compiled.problems)

    async def _discover(self, tasks: asyncio.TaskGroup) -> None:
        """Open adapters that come and that `[discover]` covers."""
        await self._is_started.wait()

        async def add() -> None:
            async with self._reloading:
                if (matcher := self._ports.matcher) is not None:
                    config = self._discovery.extended(self._config)
                    await self._apply(config, matcher, tasks, "adapters discovered")

        await self._discovery.run(lambda: self._config, add)

    async def _watch_rules(self) -> None:
        """Take over packs that were changed, added or deleted."""
        await self._is_started.wait()
        loop = asyncio.get_running_loop()
        while True:
            wait_s = until_next(SECOND_S, loop.time())
            await asyncio.sleep(RULES_SETTLE_S if self._rules.is_changing else wait_s)
            async with self._reloading:
                if await self._in_compiler(self._rules.has_changed):
                    await self._take_over_rules()

    async def _take_over_rules(self) -> None:
        before = self._ports.matcher
        try:
            compiled = await self._in_compiler(partial(self._rules.compile, self._config))
        except TomlError as exc:
            self._tell_left_out(exc.problems)
            return
        self._tell_left_out([*compiled.problems, *compiled.port_problems])
        fresh = compiled.matcher.ruleset
        if before is None or replace(fresh, problems=()) != replace(before.ruleset, problems=()):
            await self._ports.search_with(compiled.matcher)
            gc.freeze()  # as at the start
            log.info("rules read again: %d rules", len(fresh.rules))

    def _tell_left_out(self, problems: Sequence[str]) -> None:
        for problem in problems:
            log.error("rules: %s", problem)
        if problems:
            more = f", and {len(problems) - 1} more" if problems[1:] else ""
            self._problems["rules"] = f"rules left out: {problems[0]}{more}"
        else:
            self._problems.pop("rules", None)

    def _note_given_up(self) -> None:
        """Tell which patterns take too long to be used."""
        matcher = self._ports.matcher
        given_up = frozenset(matcher.given_up() if matcher is not None else ())
        for told in given_up - self._given_up:
            log.error("%s", told)
        self._given_up = given_up
        if given_up:
            self._problems["slow rules"] = min(given_up)
        else:
            self._problems.pop("slow rules", None)

    async def _apply(
        self, config: Config, matcher: Matcher, tasks: asyncio.TaskGroup, why: str
    ) -> None:
        """Take over a new configuration; ports that did not change are not touched."""
        before, self._config = self._config, config
        if config.daemon != before.daemon:
            log.warning("[daemon] has changed: that takes a restart")
        gone = [n for n, p in before.port.items() if not is_same_port(config.port.get(n), p)]
        fresh = [p for n, p in config.port.items() if not is_same_port(before.port.get(n), p)]
        await self._ports.close(gone)
        for name in gone:
            if name not in config.port:
                await self._ports.remove(name)
                self.on_state(name)
                self._metrics.port_removed(name)
        for port in fresh:
            if port.name in before.port:
                self._ports.change(port, tasks)
            else:
                self._metrics.port_added(port.name)
                self._ports.add(port, tasks)
        await self._ports.number([port for port in self._ports if not port.is_numbered])
        await self._ports.search_with(matcher)
        for open_port in self._ports:
            if (wanted := config.port.get(open_port.config.name)) is not None:
                open_port.config = replace(open_port.config, board=wanted.board)
        self._ttys.configure(config.port)
        if config.notify != before.notify:
            for task in self._notifiers.values():
                task.cancel()
            self._notifiers.clear()
            self._start_notifiers(tasks)
        if config.agent != before.agent or about_ports(config) != about_ports(before):
            self._desk.link.send({"kind": "stop"})
            await self._stop_part("agent")
            self._start_part("agent", self._desk.link.run, tasks)
        if config.api != before.api:
            await self._stop_part("api")
            self._start_part("api", self._serve_api, tasks)
        elif self._api is not None:
            self._api.take_token(read_token(config.api.token_file))
        log.info(
            "%s: %d ports opened, %d closed, %d untouched",
            why,
            len(fresh),
            len(gone),
            len(config.port) - len(fresh),
        )

    def _start_notifiers(self, tasks: asyncio.TaskGroup) -> None:
        for told in self._config.notify:
            notifier = CommandNotifier(told.command, told.severity)
            name = f"notify {told.command[0]}"
            self._notifiers[notifier] = tasks.create_task(
                supervise(name, notifier.run, self._part_failed, plain=(OSError,)), name=name
            )

    def _part_failed(self, name: str, problem: str) -> None:
        self._metrics.part_failures.labels(name.split(maxsplit=1)[0]).inc()
        self._faults.own_fault("daemon.part_failed", f"{name} failed: {problem}")

    def _hello(self) -> Json:
        """Return what the agent has to know."""
        return {
            "state_dir": str(self._state),
            "agent": config_to_json(self._config)["agent"],
            "skill_dirs": [str(folder) for folder in search_path("skills")],
            "knowledge_dirs": [str(folder) for folder in search_path("knowledge")],
            "roles_dirs": [str(folder) for folder in search_path("roles")],
            "ports": about_ports(self._config),
        }

    def _port_numbers(self) -> list[PortNumbers]:
        return [
            PortNumbers(
                p.config.name, p.reader.state, p.reader.stats, p.watch.gauges if p.watch else {}
            )
            for p in list(self._ports)
        ]

    def _beat_ages(self) -> Mapping[str, float]:
        return self._beats.ages_s(time.monotonic())  # the loop's clock, in any thread

    def _in_compiler(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._compiler, work)

    def _in_renderer(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._renderer, work)

    # Hourly and daily

    async def _prune(self) -> None:
        keep = self._config.log
        names = frozenset(port.config.name for port in self._ports)
        freed = await self._in_renderer(
            partial(
                prune,
                self._state / "log",
                keep.keep_days,
                keep.keep_bytes,
                time.time_ns(),
                names,
            )
        )
        if freed:
            log.info("%d bytes of old logs were deleted", freed)
        await self._db.run(
            partial(row_retention.prune_rows, keep_days=KEEP_ROWS_DAYS, now_utc_ns=time.time_ns())
        )

    async def _clean_memories(self) -> None:
        await self._db.run(partial(clean_up, now_utc_ns=time.time_ns()))
        await self._desk.count_memories()

    async def _clean_answers(self) -> None:
        await self._db.run(partial(prune_answers, now_utc_ns=time.time_ns()))
