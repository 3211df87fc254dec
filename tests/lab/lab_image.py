"""The disk of the lab's PC: made once, kept in the user's cache until its recipe changes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab_qemu import QEMU, LabError

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
GUEST_PYTHON = "3.11"  # of Debian 12
PLATFORMS = tuple(f"manylinux{tag}_x86_64" for tag in ("2014", "_2_28", "_2_34", "_2_36"))
START_LIMIT_S = 300
PROGRAMS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", QEMU: "qemu-system-x86"}


def missing() -> str:
    """Return what the lab lacks here, "" if it can run."""
    absent = [package for name, package in PROGRAMS.items() if shutil.which(name) is None]
    if absent:
        return f"it needs {', '.join(absent)} (make lab-packages)"
    return "" if os.geteuid() == 0 else "only root can make and mount its disk"


def image() -> Path:
    """Return the folder with disk, kernel and initrd; makes it if the recipe has changed.

    Raises:
        LabError: it cannot be made.

    """
    requirements = _requirements()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "serialwatch-lab"
    folder = cache / _key(requirements)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # somebody else may be making it
        if not folder.exists():
            _make(folder, requirements)
    return folder


def install(disk: Path, wheel: Path, files: Mapping[str, str]) -> None:
    """Follow the README's section on the service on a disk; `files` replace some of the checkout.

    Raises:
        LabError: a step has failed.

    """
    checkout, steps = disk.parent / "checkout", disk.parent / "steps"
    shutil.copytree(REPO / "systemd", checkout / "systemd")
    shutil.copy(wheel, checkout)
    for name, text in files.items():
        path = checkout / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    own = [
        "usermod -aG serialwatch lab-viewer",
        # What takes a second on a PC takes half a minute here, and more on a busy machine.
        "mkdir /etc/systemd/system/serialwatch.service.d",
        f"printf '[Service]\\nTimeoutStartSec={START_LIMIT_S}\\n' "
        ">/etc/systemd/system/serialwatch.service.d/lab.conf",
    ]
    steps.write_text("\n".join([*_readme_steps(wheel.name), *own]) + "\n")
    _run([HERE / "install.sh", disk, checkout, steps], disk.parent / "install.log")


def _make(folder: Path, requirements: Sequence[str]) -> None:
    for old in folder.parent.glob("*/"):
        shutil.rmtree(old)  # of an older recipe, or of a run that was cut short
    part = folder.with_name(f"{folder.name}.part")
    wheels = part / "wheels"
    wheels.mkdir(parents=True)
    (wheels / "requirements.txt").write_text("\n".join(requirements) + "\n")
    print("making the lab's disk: some minutes, once", file=sys.stderr)
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    _run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--dest", wheels,
            "--only-binary", ":all:", "--python-version", GUEST_PYTHON, "--implementation", "cp",
            *platforms, "--requirement", wheels / "requirements.txt",
        ],
        part / "pip.log",
    )  # fmt: skip
    _run([HERE / "image.sh", part], part / "image.log")
    shutil.rmtree(wheels)
    part.rename(folder)


def _run(argv: Sequence[str | Path], log: Path) -> None:
    with log.open("wb") as output:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    if ended.returncode:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
        raise LabError(f"{Path(argv[0]).name}: exit {ended.returncode}\n{last}")


def _readme_steps(wheel: str) -> list[str]:
    """Return the README's commands, for a PC without a network."""
    text = (REPO / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## As a service\n")[2].partition("\n## ")[0]
    steps = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    if not any("systemctl enable" in step for step in steps):
        raise LabError("README.md: no commands below `## As a service`")
    # The environment is there already, with every library; the service starts when the PC does.
    offline = f"pip --isolated install --no-index --no-deps ./{wheel}"
    return [
        re.sub(
            r"sudo editor (\S+)",  # the file that a person would end up with
            r"cp config/serialwatch.toml \1",
            re.sub(r"pip install \.", offline, step).replace(" --now ", " "),
        )
        for step in steps
        if "python3 -m venv" not in step
    ]


def _requirements() -> list[str]:
    with (REPO / "pyproject.toml").open("rb") as file:
        return sorted(tomllib.load(file)["project"]["dependencies"])


def _key(requirements: Sequence[str]) -> str:
    """Return a name that changes with what the image is made from."""
    recipe = hashlib.sha256("\n".join(requirements).encode())
    for path in (HERE / "image.sh", *sorted((HERE / "guest").iterdir())):
        recipe.update(path.read_bytes())
    return recipe.hexdigest()[:16]
