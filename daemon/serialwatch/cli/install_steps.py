"""The steps of an installation: what each would do, told before and after."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from serialwatch.cli.errors import CliError
from serialwatch.cli.tables import safe
from serialwatch.whole_file import write_whole

RUN_LIMIT_S = 120.0
_LAST_LINES = 3  # of what a program that failed has said


@dataclass(frozen=True, slots=True)
class Step:
    """One step; where there is nothing to do, `do` is None and `why` says so."""

    verb: str  # write, replace, keep, same, link, remove, run, check, refuse
    thing: str
    why: str = ""
    do: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """A PC's files below a folder: that of the PC itself, or of one that is being made."""

    root: Path = Path("/")

    @property
    def is_live(self) -> bool:
        """Whether it is this PC, so that programs may be run for it."""
        return self.root == Path("/")

    def path(self, place: Path) -> Path:
        """Return where a file of the PC is."""
        return self.root / str(place).lstrip("/")

    def put(self, text: str, place: Path, *, is_forced: bool = True) -> Step:
        """Return the step that makes a file; one that differs is kept unless that is forced."""
        target = self.path(place)
        if target.is_symlink():
            return Step("keep", str(place), f"it is a link to {safe(os.readlink(target))}")
        try:
            before = target.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return Step("write", str(place), do=partial(_write, target, text))
        except OSError as exc:
            raise CliError(f"{safe(target)}: cannot be read: {exc.strerror}") from exc
        if before == text:
            return Step("same", str(place))
        if not is_forced:
            why = "you have changed it, or it is of another version: --force replaces it"
            return Step("keep", str(place), why)
        why = f"what it was is {place.name}.old"
        return Step("replace", str(place), why, partial(_replace, target, text))

    def take(self, place: Path, why: str = "") -> Iterator[Step]:
        """Yield the step that removes a file or folder, if it is there."""
        target = self.path(place)
        if not os.path.lexists(target):
            return
        if target.is_symlink() or not target.is_dir():
            yield Step("remove", str(place), why, partial(_removed, target.unlink))
        else:
            yield Step("remove", str(place), why, partial(_removed, partial(shutil.rmtree, target)))


def run(*argv: str) -> Step:
    """Return the step that runs a program."""
    return Step("run", shlex.join(argv), do=partial(_run, argv))


def refuse(thing: Path, why: str) -> Step:
    """Return the step that ends an installation before it has begun."""

    def fail() -> None:
        raise CliError(f"{safe(thing)}: {why}")

    return Step("refuse", str(thing), why, fail)


def link(place: Path, leads_to: Path) -> Step:
    """Return the step that makes a link to this program, unless something else is there."""
    if os.path.realpath(place) == os.path.realpath(leads_to):
        return Step("same", str(place))
    if os.path.exists(place) or (os.path.lexists(place) and not place.is_symlink()):
        why = f"it is another serialwatch than {leads_to}, and the service will run it"
        return Step("keep", str(place), why)
    return Step("link", str(place), f"to {leads_to}", partial(_link, place, leads_to))


def has_systemd() -> bool:
    """Tell whether systemd runs here (sd_booted(3)): in a chroot or container it does not."""
    return os.path.isdir("/run/systemd/system")


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, text)
        target.chmod(0o644)
    except OSError as exc:
        raise CliError(f"{safe(target)}: cannot be written: {exc.strerror}") from exc


def _replace(target: Path, text: str) -> None:
    try:
        shutil.copy2(target, target.with_name(f"{target.name}.old"))
    except OSError as exc:
        raise CliError(f"{safe(target)}: cannot be kept as .old: {exc.strerror}") from exc
    _write(target, text)


def _link(place: Path, leads_to: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(leads_to)
    except OSError as exc:
        raise CliError(f"{safe(place)}: cannot be made: {exc.strerror}") from exc


def _removed(remove: Callable[[], object]) -> None:
    try:
        remove()
    except FileNotFoundError:
        return
    except OSError as exc:
        raise CliError(f"{safe(exc.filename)}: cannot be removed: {exc.strerror}") from exc


def _run(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=RUN_LIMIT_S,
            check=False,
        )
    except FileNotFoundError as exc:
        raise CliError(f"{argv[0]}: no such program: this needs a PC with systemd") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise CliError(f"`{shlex.join(argv)}`: {exc}") from exc
    if done.returncode:
        said = " | ".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
        raise CliError(f"`{shlex.join(argv)}` failed with status {done.returncode}: {safe(said)}")
