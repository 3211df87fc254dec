"""`serialwatch install` and `uninstall`: the service on this PC, for all or for one user."""

from __future__ import annotations

import grp
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from serialwatch.bundled import bundled_dir
from serialwatch.cli.config_init import config_text, find_adapters, told_ports
from serialwatch.cli.errors import FAULT, WRONG_USE, CliError
from serialwatch.cli.install_steps import Step, Tree, has_systemd, link, refuse, run
from serialwatch.cli.options import json_option
from serialwatch.cli.tables import console, counted, safe, width_of, wrapped
from serialwatch.config import Config, load_config, state_dir
from serialwatch.config_file import SYSTEM_CONFIG, usual_config
from serialwatch.store.state_dir import is_held
from serialwatch.tomlfile import TomlError

UNIT = "serialwatch.service"
PROGRAM = Path("/usr/local/bin/serialwatch")  # which the unit runs
_HIDDEN = ("/home", "/root", "/run/user")  # from the service, by ProtectHome=
_GROUPS = ("serialwatch", "serialwatch-operators")
_WANTS = Path("/etc/systemd/system/multi-user.target.wants") / UNIT

# What ships, and where it goes; the last is edited by people.
_FILES = (
    ("serialwatch.sysusers", Path("/usr/lib/sysusers.d/serialwatch.conf")),
    ("serialwatch.tmpfiles", Path("/usr/lib/tmpfiles.d/serialwatch.conf")),
    (UNIT, Path("/etc/systemd/system") / UNIT),
)
_RULES = ("60-serialwatch.rules", Path("/etc/udev/rules.d/60-serialwatch.rules"))
_STATE = Path("/var/lib/serialwatch")
_CACHE = Path("/var/cache/serialwatch")


_root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    default=Path("/"),
    metavar="DIR",
    help="A PC's files below DIR, e.g. of a package; no program is run.",
)
_dry_option = click.option("--dry-run", is_flag=True, help="Only tell what would be done.")


@click.command()
@click.option("--user", "is_user", is_flag=True, help="A service of your own, without root.")
@click.option("--now", is_flag=True, help="Start it, now and with the PC (else at your word).")
@click.option("--force", is_flag=True, help="Replace udev rules that were changed, too.")
@_root_option
@_dry_option
@json_option
def install(is_user: bool, now: bool, force: bool, root: Path, dry_run: bool, as_json: bool) -> int:
    """Install the service: unit, user and groups, udev rules, and a configuration if none is there.

    It may be run again, e.g. after an update: what is as it should be stays, and your
    configuration is never touched. Nothing is started without --now.
    """
    tree = Tree(root)
    _check(tree, is_user=is_user, is_dry=dry_run)
    if now and not (tree.is_live and has_systemd()):
        raise CliError("--now: there is no systemd here that could start the service")
    if is_user:
        steps, after = _user_steps(now=now), _user_next(now=now)
    else:
        steps, after = _system_steps(tree, force=force, now=now), _system_next(tree, now=now)
    return _carry_out(list(steps), list(after), dry_run=dry_run, as_json=as_json)


@click.command()
@click.option("--user", "is_user", is_flag=True, help="The service of your own.")
@click.option("--purge", is_flag=True, help="Remove logs, database and configuration, too.")
@_root_option
@_dry_option
@json_option
def uninstall(is_user: bool, purge: bool, root: Path, dry_run: bool, as_json: bool) -> int:
    """End the service and remove what `install` has made; logs and configuration stay.

    The program itself, the user and the groups stay, too.
    """
    tree = Tree(root)
    _check(tree, is_user=is_user, is_dry=dry_run)
    steps = list(_user_removal(purge) if is_user else _system_removal(tree, purge))
    after = [] if is_user or not tree.is_live else _left(steps)
    return _carry_out(steps, after, dry_run=dry_run, as_json=as_json)


def _check(tree: Tree, *, is_user: bool, is_dry: bool) -> None:
    """Refuse what cannot be meant, or cannot work.

    Raises:
        CliError: the wrong person, or a program where the service cannot see it.

    """
    is_root = os.geteuid() == 0
    if is_user and not tree.is_live:
        raise click.UsageError("--user and --root exclude each other")
    if is_user and is_root:
        raise CliError("--user is not for root: leave it out", WRONG_USE)
    if not is_user and tree.is_live and not is_root and not is_dry:
        raise CliError(
            f"only root may do this: `sudo {_program()} {click.get_current_context().info_name}`; "
            "with --user it is a service of your own"
        )


def _system_steps(tree: Tree, *, force: bool, now: bool) -> Iterator[Step]:
    shipped = bundled_dir("systemd")
    if tree.is_live:
        yield from _refused_if_hidden()
        yield link(PROGRAM, _program())
    for name, place in _FILES:
        yield tree.put((shipped / name).read_text(encoding="utf-8"), place)
    name, place = _RULES
    yield tree.put((shipped / name).read_text(encoding="utf-8"), place, is_forced=force)
    if tree.is_live:
        yield run("systemd-sysusers", "serialwatch.conf")
        yield run("systemd-tmpfiles", "--create", "serialwatch.conf")
    yield _config_step(tree, SYSTEM_CONFIG)
    if tree.is_live and os.path.exists("/run/udev/control"):
        yield run("udevadm", "control", "--reload")
    if tree.is_live and has_systemd():
        yield run("systemctl", "daemon-reload")
    if now:
        yield Step("check", str(SYSTEM_CONFIG), do=lambda: _check_ports(SYSTEM_CONFIG))
        yield run("systemctl", "enable", "--now", UNIT)


def _user_steps(*, now: bool) -> Iterator[Step]:
    text = (bundled_dir("systemd") / "serialwatch.user.service").read_text(encoding="utf-8")
    yield Tree().put(text.replace(str(PROGRAM), _word(_program())), _user_unit())
    yield _config_step(Tree(), usual_config())
    if _has_user_manager():
        yield run("systemctl", "--user", "daemon-reload")
    if now:
        yield Step("check", str(usual_config()), do=lambda: _check_ports(usual_config()))
        yield run("systemctl", "--user", "enable", "--now", UNIT)


def _config_step(tree: Tree, place: Path) -> Step:
    if os.path.lexists(tree.path(place)):
        return Step("keep", str(place), "it is yours")
    adapters = find_adapters(tree.root)
    written = tree.put(config_text(adapters), place)
    return Step("write", str(place), told_ports(adapters), written.do)


def _system_next(tree: Tree, *, now: bool) -> Iterator[str]:
    """Yield what is left to a person to do."""
    if not tree.is_live:
        return
    if not now:
        yield f"Call the ports in {SYSTEM_CONFIG} after your boards: serialwatch config check"
        yield "Start it, now and with the PC: sudo systemctl enable --now serialwatch"
    yield "If it runs already, it takes up what is new with: sudo systemctl restart serialwatch"
    person = os.environ.get("SUDO_USER", "")
    if person and person != "root" and not all(_is_member(person, group) for group in _GROUPS):
        yield (
            f"Let {safe(person)} look and write: sudo usermod -aG {','.join(_GROUPS)} "
            f"{safe(person)}, then log in again"
        )


def _user_next(*, now: bool) -> Iterator[str]:
    if not now:
        config = safe(usual_config())
        yield f"Call the ports in {config} after your boards: serialwatch config check"
        yield "Start it, now and at each login: systemctl --user enable --now serialwatch"
    yield "Let it run while you are not logged in: loginctl enable-linger"


def _system_removal(tree: Tree, purge: bool) -> Iterator[Step]:
    shipped = bundled_dir("systemd")
    unit = Path("/etc/systemd/system") / UNIT
    is_masked = tree.path(unit).is_symlink()  # or a link of somebody's own
    if tree.is_live and has_systemd() and os.path.exists(unit) and not is_masked:
        yield run("systemctl", "disable", "--now", UNIT)
    else:
        yield from tree.take(_WANTS)
    for _, place in _FILES:
        if place == unit and is_masked:
            yield Step("keep", str(unit), f"it is a link to {safe(os.readlink(tree.path(unit)))}")
        else:
            yield from tree.take(place)
        yield from tree.take(place.with_name(f"{place.name}.old"))
    name, place = _RULES
    rules = tree.path(place)
    if purge or not rules.exists() or rules.read_bytes() == (shipped / name).read_bytes():
        yield from tree.take(place)
    else:
        yield Step("keep", str(place), "you have changed it: --purge removes it")
    yield from tree.take(place.with_name(f"{place.name}.old"))
    if tree.is_live and PROGRAM.is_symlink() and _is_ours(PROGRAM):
        yield from tree.take(PROGRAM)
    yield from tree.take(_CACHE)
    yield from _kept_or_purged(tree, purge, _STATE, SYSTEM_CONFIG.parent)
    if tree.is_live and has_systemd():
        yield run("systemctl", "daemon-reload")
    if tree.is_live and os.path.exists("/run/udev/control"):
        yield run("udevadm", "control", "--reload")


def _user_removal(purge: bool) -> Iterator[Step]:
    unit = _user_unit()
    if unit.exists() and _has_user_manager():
        yield run("systemctl", "--user", "disable", "--now", UNIT)
    else:
        yield from Tree().take(unit.parent / "default.target.wants" / UNIT)
    yield from Tree().take(unit)
    yield from Tree().take(unit.with_name(f"{UNIT}.old"))
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    yield from Tree().take(Path(cache) / "serialwatch")
    yield from _kept_or_purged(Tree(), purge, state_dir(Config()), usual_config().parent)
    if _has_user_manager():
        yield run("systemctl", "--user", "daemon-reload")


def _kept_or_purged(tree: Tree, purge: bool, state: Path, config: Path) -> Iterator[Step]:
    """Yield what happens to what is people's own: logs, database and configuration."""
    file = tree.path(config / SYSTEM_CONFIG.name)
    elsewhere = _state_elsewhere(file)
    for place, what in (
        (state, "logs and database"),
        (config, "configuration, rules and skills of your own"),
    ):
        if not os.path.lexists(tree.path(place)):
            continue
        if not purge:
            yield Step("keep", str(place), f"{what}: --purge removes it")
            continue
        if place == state:
            yield Step("check", str(place), do=lambda: _refuse_held(tree.path(state)))
        size = counted(_size(tree.path(place)), "byte")
        yield from tree.take(place, f"{what}, {size}")
    if elsewhere:
        yield Step("keep", elsewhere, "state_dir of the configuration: remove it yourself")


def _left(steps: Iterable[Step]) -> list[str]:
    if not any(step.verb == "remove" for step in steps):
        return ["There was nothing to remove: serialwatch is not installed as a service here"]
    return [
        f"The program itself stays in {Path(sys.prefix)}, and so do user serialwatch and its groups"
    ]


def _carry_out(steps: Sequence[Step], after: Sequence[str], *, dry_run: bool, as_json: bool) -> int:
    """Do it, and tell each step; a step that fails ends it."""
    out = console()
    code = FAULT if dry_run and any(step.verb == "refuse" for step in steps) else 0
    for step in steps:
        if not dry_run and step.do is not None:
            step.do()
        if as_json or (step.verb == "check" and not dry_run):
            continue
        text = f"{safe(step.thing)}{f': {step.why}' if step.why else ''}"
        for line in wrapped(f"{step.verb:<8}  ", text, width_of(out)):
            out.print(line)
    if as_json:
        rows = [
            {"do": step.verb, "what": step.thing, "why": step.why, "is_change": step.do is not None}
            for step in steps
        ]
        told = {"dry_run": dry_run, "steps": rows, "next": list(after)}
        click.echo(json.dumps(told, indent=2))
        return code
    if dry_run:
        out.print(
            "Nothing was done: this is what it would do." if steps else "Nothing is to be done."
        )
        return code
    for words in after:
        for line in wrapped("→ ", words, width_of(out)):
            out.print(line)
    return code


def _program() -> Path:
    """Return where this serialwatch can be called."""
    beside = Path(sys.executable).parent / "serialwatch"
    return beside if beside.exists() else Path(sys.argv[0]).absolute()


def _refused_if_hidden() -> Iterator[Step]:
    """Yield what refuses a program that the service could not run."""
    parts = (_program(), Path(os.path.realpath(sys.executable)), bundled_dir("systemd"))
    for part in parts:
        if any(part.is_relative_to(hidden) for hidden in _HIDDEN):
            yield refuse(
                part,
                f"the service sees nothing below {', '.join(_HIDDEN)} (ProtectHome=): install "
                "serialwatch with a Python of the system, e.g. `python3 -m venv /opt/serialwatch` "
                "and its pip; or take --user",
            )
            return


def _check_ports(path: Path) -> None:
    """Refuse to start a service that would end at once."""
    try:
        config = load_config(path)
    except TomlError as exc:
        raise CliError("\n".join(exc.problems), WRONG_USE) from exc
    if not config.port and not config.discover:
        raise CliError(
            f"{safe(path)}: names no port, so nothing was started: add [port.dut1] with its device"
        )


def _refuse_held(state: Path) -> None:
    if is_held(state):
        raise CliError(f"{safe(state)}: a daemon still runs on it: end that first")


def _state_elsewhere(file: Path) -> str:
    try:
        return load_config(file).daemon.state_dir
    except TomlError:
        return ""


def _user_unit() -> Path:
    return usual_config().parent.parent / "systemd/user" / UNIT


def _has_user_manager() -> bool:
    return os.path.exists(f"{os.environ.get('XDG_RUNTIME_DIR', '')}/systemd/private")


def _word(path: Path) -> str:
    """Return a path as a unit takes it."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if any(c in text for c in " '\t") else text


def _is_ours(place: Path) -> bool:
    return not place.exists() or os.path.realpath(place) == os.path.realpath(_program())


def _is_member(person: str, group: str) -> bool:
    try:
        return person in grp.getgrnam(group).gr_mem
    except KeyError:
        return False


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += 0 if file.is_dir() else file.lstat().st_size
        except OSError:
            continue
    return total
