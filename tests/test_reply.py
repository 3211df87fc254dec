"""What a model wants, read from replies in every shape that models give them."""

from __future__ import annotations

import json

import pytest

from serialwatch.agent.models.completion import Completion, ToolCall
from serialwatch.agent.run.actions import conversation, read_reply

ACTION = {
    "reasoning": "look",
    "next_action": "call_skill",
    "skill_name": "log-read",
    "parameters": {"port": "dut1", "first": 1},
}
TEXT = json.dumps(ACTION)


def said(text: str, *calls: ToolCall) -> Completion:
    return Completion(text, calls, "stop", 1, 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"```json\n{TEXT}\n```",
        f"<think>maybe {{}} or {TEXT[:20]}</think>\n{TEXT}",
        f"Sure! {TEXT} I hope that helps {{}}",
        TEXT.replace('"', "'"),
        TEXT[:-1] + ",}",
        TEXT[:-1],
        TEXT[:-2],
        TEXT.replace('"reasoning"', '// why\n"reasoning"'),
        TEXT.replace('"reasoning"', "/* why */ reasoning"),
        f"{TEXT}\n{TEXT.replace('log-read', 'log-stats')}",
        f"[{TEXT}]",
        TEXT.replace('"look"', "None").replace("1}", "1, }"),
        TEXT.replace("look", "see\nmore"),
    ],
)
def test_an_action_is_found_in_whatever_stands_around_it(text: str) -> None:
    (action,) = read_reply(said(text), is_json_mode=True).actions

    assert (action.skill, action.params) == ("log-read", {"port": "dut1", "first": 1})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I would read the log.", "there is no JSON object in it"),
        ('{"port": "dut1"}', "the object has no `next_action` of call_skill, reply, require_more"),
        ('{"next_action": "reply", "parameters": {}}', "`reply` needs the whole report"),
        ('{"next_action": "require_more", "reasoning": "x"}', "needs a whole sentence in"),
        ("{{{", "cannot be read: Expecting property name"),
        ("<think>{}", "there is no JSON object in it"),
    ],
)
def test_what_is_no_action_is_named_exactly(text: str, problem: str) -> None:
    reading = read_reply(said(text), is_json_mode=True)

    assert reading.actions == ()
    assert problem in reading.problem


@pytest.mark.parametrize(
    "text",
    [
        "<function=log-read><parameter=port>dut1</parameter><parameter=first>1</parameter>"
        "</function>",
        '<invoke name="log-read"><parameter name="port">dut1</parameter>'
        '<parameter name="first">1</parameter></invoke>',
        '<tool_call>{"name": "log-read", "arguments": {"port": "dut1", "first": 1}}</tool_call>',
    ],
)
def test_calls_written_as_tags_are_recovered(text: str) -> None:
    reading = read_reply(said(text), is_json_mode=False)

    assert reading.is_recovered
    assert [(a.skill, a.params) for a in reading.actions] == [
        ("log-read", {"port": "dut1", "first": 1})
    ]


def test_broken_arguments_of_a_native_call_are_mended_or_named() -> None:
    calls = [ToolCall("1", "a", "{'x': 1,}"), ToolCall("2", "b", "[1"), ToolCall("3", "c", "")]
    mended, wrong, empty = read_reply(said("", *calls), is_json_mode=False).actions

    assert mended.params == {"x": 1}
    assert (wrong.params, wrong.problem[:26]) == (None, "the arguments are no JSON:")
    assert empty.params == {}


def test_a_question_to_a_person_is_an_action() -> None:
    text = '{"next_action": "require_more", "parameters": {"question": "Which revision?"}}'
    (action,) = read_reply(said(text), is_json_mode=True).actions

    assert action.question == "Which revision?"


def test_a_hostile_reply_costs_no_time() -> None:
    for text in ("{" * 16_000, '{"a":' * 3_000, "[" * 16_000, '{"a":"' + "\\" * 15_000):
        assert read_reply(said(text), is_json_mode=True).actions == ()


@pytest.mark.parametrize(
    "name",
    [
        "functions.log-read", "log_read", "functions:log_read", "default_api.log_read",
        "Log-Read", "log.read", " log-read ", "log-read<|channel|>commentary", "tools/log-read",
    ],
)  # fmt: skip
def test_a_skill_is_known_under_the_names_that_models_make_of_it(name: str) -> None:
    (native,) = read_reply(said("", ToolCall("c1", name, "{}")), is_json_mode=False).actions
    text = json.dumps({**ACTION, "skill_name": name})
    (plain,) = read_reply(said(text), is_json_mode=True).actions

    assert (native.skill, plain.skill) == ("log-read", "log-read")


def test_what_is_no_name_of_a_skill_stays_as_it_was_said() -> None:
    (action,) = read_reply(said("", ToolCall("c1", "bash", "{}")), is_json_mode=False).actions

    assert action.skill == "bash"


def test_each_call_has_an_id_of_its_own_and_a_name_that_an_endpoint_takes_back() -> None:
    calls = [ToolCall("call_0", "functions.log-read", "{}"), ToolCall("call_0", "a b;c", "{}")]
    completion = said("", *calls, ToolCall("", "log-stats", "{}"), ToolCall("old", "x", "{}"))
    actions = read_reply(completion, is_json_mode=False, taken={"old"}).actions
    asked, *answers = conversation(completion, actions, ["1", "2", "3", "4"])
    ids = [call["id"] for call in asked["tool_calls"]]

    assert ids[0] == "call_0"
    assert len({*ids, "old", ""}) == 6
    assert [answer["tool_call_id"] for answer in answers] == ids
    names = [call["function"]["name"] for call in asked["tool_calls"]]
    assert names == ["log-read", "a_b_c", "log-stats", "x"]
