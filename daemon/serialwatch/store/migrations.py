"""The tables of serialwatch.db. A released step is never edited; the next one is added.

Times `*_at` are UTC, ISO 8601 with microseconds and `Z`; `*_mono_ns` is CLOCK_MONOTONIC of the
daemon run that wrote the row. JSON columns are named `*_json`.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations

migrations = Migrations("serialwatch")


def _run(db: Database, script: str) -> None:
    for statement in script.split(";\n"):
        if statement.strip():
            db.execute(statement)


@migrations()
def m001_ports(db: Database) -> None:
    """Ports, their line numbers, boots and markers."""
    _run(
        db,
        """
        CREATE TABLE ports (
            name TEXT PRIMARY KEY,
            device TEXT NOT NULL,
            next_seq INTEGER NOT NULL,      -- exact after a clean end
            reserved_seq INTEGER NOT NULL,  -- numbers below this may be in use
            matched_seq INTEGER NOT NULL,   -- lines up to here were searched and their hits stored
            boot INTEGER NOT NULL,
            is_clean INTEGER NOT NULL,      -- 1: the last run of the daemon ended in order
            updated_at TEXT NOT NULL
        );
        CREATE TABLE boots (
            port TEXT NOT NULL,
            number INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            at TEXT NOT NULL,
            ecosystem TEXT NOT NULL,
            cause TEXT NOT NULL,
            is_expected INTEGER NOT NULL,
            marker TEXT NOT NULL,
            ready_at TEXT,
            ready_seq INTEGER,
            PRIMARY KEY (port, number)
        );
        CREATE TABLE markers (
            id INTEGER PRIMARY KEY,
            port TEXT NOT NULL,
            seq INTEGER NOT NULL,
            at TEXT NOT NULL,
            mono_ns INTEGER NOT NULL,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            who TEXT NOT NULL
        );
        CREATE INDEX markers_port ON markers (port, seq);
        """,
    )


@migrations()
def m002_incidents(db: Database) -> None:
    """Incidents and their hits."""
    _run(
        db,
        """
        CREATE TABLE incidents (
            id INTEGER PRIMARY KEY,
            port TEXT NOT NULL,
            state TEXT NOT NULL CHECK (
                state IN ('open','investigating','reported','resolved','muted')
            ),
            "trigger" TEXT NOT NULL,
            severity TEXT NOT NULL CHECK (severity IN ('note','warning','error','critical')),
            tier TEXT NOT NULL,
            title TEXT NOT NULL,
            "key" TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            ecosystem TEXT NOT NULL,
            knowledge TEXT NOT NULL,
            fields_json TEXT NOT NULL,
            boot INTEGER NOT NULL,
            first_seq INTEGER NOT NULL,
            block_first INTEGER NOT NULL,
            last_seq INTEGER NOT NULL,
            opened_at TEXT NOT NULL,
            last_at TEXT NOT NULL,
            opened_mono_ns INTEGER NOT NULL,
            last_mono_ns INTEGER NOT NULL,
            count INTEGER NOT NULL,
            is_settled INTEGER NOT NULL,
            outcome TEXT,
            outcome_cause TEXT NOT NULL,
            outcome_seq INTEGER NOT NULL,
            linked_json TEXT NOT NULL,
            seen_before_json TEXT NOT NULL,
            firmware TEXT NOT NULL,
            muted_until TEXT,
            resolved_by TEXT NOT NULL
        );
        CREATE INDEX incidents_port ON incidents (port, opened_at);
        CREATE INDEX incidents_fingerprint ON incidents (fingerprint, id);
        CREATE INDEX incidents_state ON incidents (state);
        CREATE TABLE hits (
            incident_id INTEGER NOT NULL REFERENCES incidents (id),
            "trigger" TEXT NOT NULL,
            severity TEXT NOT NULL,
            tier TEXT NOT NULL,
            title TEXT NOT NULL,
            first_seq INTEGER NOT NULL,
            last_seq INTEGER NOT NULL,
            first_at TEXT NOT NULL,
            last_at TEXT NOT NULL,
            count INTEGER NOT NULL,
            samples_json TEXT NOT NULL,     -- line numbers, at most 20
            fields_json TEXT NOT NULL,
            PRIMARY KEY (incident_id, "trigger")
        );
        CREATE TABLE mutes (
            fingerprint TEXT PRIMARY KEY,
            until TEXT,                     -- NULL: until unmuted
            by TEXT NOT NULL,
            at TEXT NOT NULL
        );
        """,
    )


@migrations()
def m003_reports(db: Database) -> None:
    """Reports by revision, with their conclusions and evidence as rows."""
    _run(
        db,
        """
        CREATE TABLE reports (
            incident_id INTEGER NOT NULL REFERENCES incidents (id),
            revision INTEGER NOT NULL,
            run_id TEXT NOT NULL,
            made_by TEXT NOT NULL,
            title TEXT NOT NULL,
            class TEXT NOT NULL,
            severity TEXT NOT NULL,
            verdict TEXT NOT NULL CHECK (verdict IN ('confirmed','likely','inconclusive')),
            confidence REAL NOT NULL,
            body_json TEXT NOT NULL,        -- Report v1, whole
            created_at TEXT NOT NULL,
            PRIMARY KEY (incident_id, revision)
        );
        CREATE TABLE conclusions (
            incident_id INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            id TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('observation','inference','cause')),
            claim TEXT NOT NULL,
            knowledge_json TEXT NOT NULL,
            results_json TEXT NOT NULL,
            PRIMARY KEY (incident_id, revision, id)
        );
        CREATE TABLE evidence (
            incident_id INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            conclusion_id TEXT NOT NULL,
            port TEXT NOT NULL,
            seq INTEGER NOT NULL,
            quote TEXT NOT NULL
        );
        CREATE INDEX evidence_report ON evidence (incident_id, revision, conclusion_id);
        """,
    )


@migrations()
def m004_agent(db: Database) -> None:
    """The agent's queue, its runs step by step, and what its skills answered."""
    _run(
        db,
        """
        CREATE TABLE queue (
            id INTEGER PRIMARY KEY,
            kind TEXT NOT NULL CHECK (kind IN ('incident','question','schedule','digest')),
            priority INTEGER NOT NULL,      -- small first
            phase TEXT NOT NULL,            -- incident: opened, settled, outcome
            incident_id INTEGER,
            port TEXT NOT NULL,
            body_json TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('queued','running','done','failed')),
            created_at TEXT NOT NULL,
            ended_at TEXT
        );
        CREATE INDEX queue_state ON queue (state, priority, id);
        CREATE TABLE sessions (
            session_id TEXT PRIMARY KEY,
            user_id TEXT NOT NULL,
            role TEXT NOT NULL,
            incident_id INTEGER,
            port TEXT NOT NULL,
            started_at TEXT NOT NULL,
            ended_at TEXT,
            status TEXT NOT NULL,
            summary TEXT NOT NULL
        );
        CREATE TABLE runs (
            id TEXT PRIMARY KEY,
            session_id TEXT NOT NULL,
            kind TEXT NOT NULL,             -- baseline or model
            phase TEXT NOT NULL,
            incident_id INTEGER,
            port TEXT NOT NULL,
            role TEXT NOT NULL,
            model TEXT NOT NULL,
            base_url TEXT NOT NULL,
            started_at TEXT NOT NULL,
            ended_at TEXT,
            exit_status TEXT NOT NULL,
            reason TEXT NOT NULL,
            plan_json TEXT NOT NULL,
            notes_json TEXT NOT NULL,
            model_calls INTEGER NOT NULL,
            tokens INTEGER NOT NULL
        );
        CREATE INDEX runs_incident ON runs (incident_id);
        CREATE TABLE rounds (
            run_id TEXT NOT NULL,
            n INTEGER NOT NULL,
            kind TEXT NOT NULL,             -- act, repair, nudge, draft, redraft
            mode TEXT NOT NULL,             -- native or json
            prompt_json TEXT NOT NULL,      -- hashes of messages, in order
            response_json TEXT NOT NULL,
            prompt_tokens INTEGER NOT NULL,
            completion_tokens INTEGER NOT NULL,
            latency_ms INTEGER NOT NULL,
            outcome TEXT NOT NULL,
            PRIMARY KEY (run_id, n)
        );
        CREATE TABLE messages (
            hash TEXT PRIMARY KEY,
            role TEXT NOT NULL,
            content_json TEXT NOT NULL
        );
        CREATE TABLE skill_calls (
            run_id TEXT NOT NULL,
            n INTEGER NOT NULL,
            round INTEGER NOT NULL,         -- 0: the fixed plan of the offline analyst
            skill TEXT NOT NULL,
            version TEXT NOT NULL,
            sha TEXT NOT NULL,
            args_json TEXT NOT NULL,
            status TEXT NOT NULL,
            error_code TEXT NOT NULL,
            result_id TEXT NOT NULL,
            elapsed_ms INTEGER NOT NULL,
            PRIMARY KEY (run_id, n)
        );
        CREATE TABLE results (
            run_id TEXT NOT NULL,
            id TEXT NOT NULL,               -- R1, R2, ... of the run
            body_json TEXT NOT NULL,
            PRIMARY KEY (run_id, id)
        );
        """,
    )


@migrations()
def m005_memories(db: Database) -> None:
    """Long-term memory with full-text search."""
    _run(
        db,
        """
        CREATE TABLE memories (
            id INTEGER PRIMARY KEY,
            type TEXT NOT NULL CHECK (type IN ('preference','fact','task_result','snapshot')),
            scope TEXT NOT NULL CHECK (scope IN ('bench','port','board','user')),
            scope_name TEXT NOT NULL,       -- the port, board or user; '' for bench
            priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 5),
            title TEXT NOT NULL,
            body TEXT NOT NULL,
            tags TEXT NOT NULL,             -- words between spaces
            source TEXT NOT NULL CHECK (source IN ('human','rule','model')),
            fingerprint TEXT NOT NULL,
            hash TEXT NOT NULL UNIQUE,      -- of the normalised text and scope
            hits INTEGER NOT NULL,
            evidence_json TEXT NOT NULL,
            session_id TEXT NOT NULL,
            user_id TEXT NOT NULL,
            created_at TEXT NOT NULL,
            updated_at TEXT NOT NULL,
            expires_at TEXT
        );
        CREATE INDEX memories_scope ON memories (scope, scope_name);
        CREATE INDEX memories_fingerprint ON memories (fingerprint);
        CREATE TABLE memory_links (
            memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
            source_skill TEXT NOT NULL,
            source_step TEXT NOT NULL
        );
        CREATE INDEX memory_links_memory ON memory_links (memory_id);
        CREATE TABLE memory_relations (
            memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
            other_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
            kind TEXT NOT NULL CHECK (
                kind IN ('duplicate_of','supports','contradicts','supersedes')
            ),
            PRIMARY KEY (memory_id, other_id, kind)
        );
        """,
    )
    db.table("memories").enable_fts(
        ["title", "body", "tags"], tokenize="unicode61 tokenchars '_'", create_triggers=True
    )


@migrations()
def m006_audit(db: Database) -> None:
    """Who wrote what to which port."""
    _run(
        db,
        """
        CREATE TABLE audit (
            id INTEGER PRIMARY KEY,
            at TEXT NOT NULL,
            uid INTEGER NOT NULL,
            user TEXT NOT NULL,
            pid INTEGER NOT NULL,
            action TEXT NOT NULL,           -- send, attach, lines, break, reset, mark, mute, ...
            port TEXT NOT NULL,
            bytes INTEGER NOT NULL,         -- sent to the device
            detail_json TEXT NOT NULL,
            result TEXT NOT NULL            -- ok, or what went wrong
        );
        CREATE INDEX audit_port ON audit (port, at);
        """,
    )


@migrations()
def m007_templates(db: Database) -> None:
    """What each port prints in its good boots."""
    _run(
        db,
        """
        CREATE TABLE templates (
            port TEXT PRIMARY KEY,
            good_boots INTEGER NOT NULL,    -- that they were learned from
            texts_json TEXT NOT NULL,       -- `<*>` for words that change, least recent first
            updated_at TEXT NOT NULL
        );
        """,
    )


@migrations()
def m008_investigator(db: Database) -> None:
    """What the investigator keeps between rounds and days: its state, questions, spending."""
    _run(
        db,
        """
        ALTER TABLE runs ADD COLUMN state_json TEXT NOT NULL DEFAULT '{}';
        CREATE TABLE inquiries (            -- questions of a run to a person
            id INTEGER PRIMARY KEY,
            run_id TEXT NOT NULL,
            asked_at TEXT NOT NULL,
            question TEXT NOT NULL,
            known TEXT NOT NULL,            -- what the run knows so far
            missing TEXT NOT NULL,
            answer TEXT NOT NULL DEFAULT '',
            answered_by TEXT NOT NULL DEFAULT '',
            answered_at TEXT
        );
        CREATE INDEX inquiries_run ON inquiries (run_id);
        CREATE TABLE answers (              -- to questions that people asked
            id INTEGER PRIMARY KEY,
            session_id TEXT NOT NULL,
            run_id TEXT NOT NULL,
            user_id TEXT NOT NULL,
            port TEXT NOT NULL,
            question TEXT NOT NULL,
            body_json TEXT NOT NULL,        -- a report, its incident 0
            asked_at TEXT NOT NULL,
            answered_at TEXT NOT NULL
        );
        CREATE TABLE snapshots (            -- a state that a skill kept, to compare with later
            id INTEGER PRIMARY KEY,
            port TEXT NOT NULL,
            name TEXT NOT NULL,
            run_id TEXT NOT NULL,
            body_json TEXT NOT NULL,
            created_at TEXT NOT NULL
        );
        CREATE INDEX snapshots_name ON snapshots (port, name, id);
        CREATE TABLE late_results (         -- of skills that answered after they were accepted
            job_id TEXT PRIMARY KEY,
            run_id TEXT NOT NULL,
            skill TEXT NOT NULL,
            body_json TEXT NOT NULL,
            ended_at TEXT NOT NULL
        );
        CREATE TABLE endpoints (            -- what a model's endpoint can do, as it showed
            base_url TEXT NOT NULL,
            model TEXT NOT NULL,
            can_json TEXT NOT NULL,         -- {"tools": true, "json_schema": false, ...}
            checked_at TEXT NOT NULL,
            PRIMARY KEY (base_url, model)
        );
        CREATE TABLE spending (
            day TEXT NOT NULL,              -- UTC, e.g. 2026-06-22
            model TEXT NOT NULL,
            calls INTEGER NOT NULL,
            prompt_tokens INTEGER NOT NULL,
            completion_tokens INTEGER NOT NULL,
            cost REAL NOT NULL,             -- in the currency of the configured prices
            PRIMARY KEY (day, model)
        );
        CREATE TABLE cached_answers (       -- of models, by all that was asked
            key TEXT PRIMARY KEY,
            body_json TEXT NOT NULL,
            created_at TEXT NOT NULL
        );
        ALTER TABLE memories ADD COLUMN status TEXT NOT NULL DEFAULT 'active'
            CHECK (status IN ('proposed','active','superseded'));
        ALTER TABLE memories ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE memories ADD COLUMN used_at TEXT;
        """,
    )


@migrations()
def m009_approvals(db: Database) -> None:
    """Actions on boards that the agent proposes, and what people decided."""
    _run(
        db,
        """
        CREATE TABLE approvals (
            id TEXT PRIMARY KEY,            -- four characters that can be said aloud, e.g. 7F3K
            state TEXT NOT NULL CHECK (
                state IN ('pending','approved','denied','expired','executing','done','failed',
                          'unknown')
            ),
            run_id TEXT NOT NULL,           -- that proposes it
            role TEXT NOT NULL,
            incident_id INTEGER,
            port TEXT NOT NULL,
            skill TEXT NOT NULL,
            version TEXT NOT NULL,
            sha TEXT NOT NULL,              -- of the skill's files
            args_json TEXT NOT NULL,        -- of the skill
            steps_json TEXT NOT NULL,       -- what it may do, in order, exactly
            hash TEXT NOT NULL,             -- of skill, files, port and steps
            effect_json TEXT NOT NULL,      -- the steps in words
            why TEXT NOT NULL,              -- in the words of who proposes it
            evidence_json TEXT NOT NULL,    -- lines that were read, as it names them
            device TEXT NOT NULL,           -- what tells the device from another
            boot INTEGER NOT NULL,          -- of the port when it was proposed
            any_boot INTEGER NOT NULL,      -- 1: another boot does not matter
            created_at TEXT NOT NULL,
            expires_at TEXT NOT NULL,
            decided_at TEXT,
            decided_by TEXT NOT NULL DEFAULT '',
            decided_uid INTEGER NOT NULL DEFAULT -1,
            decided_pid INTEGER NOT NULL DEFAULT 0,
            note TEXT NOT NULL DEFAULT '',
            ended_at TEXT,
            result TEXT NOT NULL DEFAULT '' -- what was done, or why not
        );
        CREATE INDEX approvals_state ON approvals (state, port);
        CREATE INDEX approvals_run ON approvals (run_id);
        CREATE INDEX approvals_incident ON approvals (incident_id);
        """,
    )


@migrations()
def m010_pages(db: Database) -> None:
    """Which page explains a hit."""
    _run(db, "ALTER TABLE hits ADD COLUMN knowledge TEXT NOT NULL DEFAULT '';")
