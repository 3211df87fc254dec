"""What the core tells the agent at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serialwatch.agent.models.api_key import load_api_key
from serialwatch.agent.models.model_use import ModelSetup
from serialwatch.wire import Json


@dataclass(frozen=True, slots=True)
class Setup:
    """Where things are, and which model may be asked."""

    state_dir: Path
    skill_dirs: tuple[Path, ...]
    knowledge_dirs: tuple[Path, ...]
    roles_dirs: tuple[Path, ...]
    model: ModelSetup
    skill_versions: Mapping[str, str]  # which one of several, by skill
    elfs: Mapping[str, str]  # path of the firmware, by port
    may_propose: bool  # actions on boards
    boards: Mapping[str, str]  # what is on a port, as its configuration calls it, by port

    @classmethod
    def of(cls, hello: Json, environ: Mapping[str, str]) -> Setup:
        """Read the core's `hello`."""
        told, ports = hello.get("agent") or {}, hello.get("ports") or {}
        return cls(
            state_dir=Path(hello["state_dir"]),
            skill_dirs=tuple(map(Path, hello.get("skill_dirs", ()))),
            knowledge_dirs=tuple(map(Path, hello.get("knowledge_dirs", ()))),
            roles_dirs=tuple(map(Path, hello.get("roles_dirs", ()))),
            model=ModelSetup.of(told, load_api_key(environ)),
            skill_versions=dict(told.get("skill_versions") or {}),
            elfs={name: str(port["elf"]) for name, port in ports.items() if port.get("elf")},
            may_propose=told.get("approvals", "queue") == "queue",
            boards={name: str(p["board"]) for name, p in ports.items() if p.get("board")},
        )
