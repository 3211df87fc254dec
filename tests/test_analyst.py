from __future__ import annotations

from serialwatch.agent.direct import DirectTools
