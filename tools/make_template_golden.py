#!/usr/bin/env python3
"""Writes the expected outputs of tests/golden/templates with Python Jinja2, set up as Hugging Face transformers does.

Usage: tools/make_template_golden.py            rewrites the .json files beside the templates
       tools/make_template_golden.py --check    exits 1 when a file differs from what would be written

Inputs: expressions.txt (one small template per line) and *.jinja (whole chat templates, rendered with the
conversations below). A case has "text", or "error" with the kind of failure: "syntax" (found at parse), "raise"
(raise_exception; "message" is its text), "undefined" ("message" is Jinja2's) or "runtime" (any other Python exception).
"""
import argparse
import datetime
import json
import pathlib
import re
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "golden" / "templates"
NOW = 1735000000  # 2024-12-24T00:26:40Z


class GenerationTag(jinja2.ext.Extension):
    """{% generation %} marks the assistant's text; it renders its body in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _body(self, context, caller):
        return caller()


class Raised(jinja2.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)
    return now.strftime(format)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


ENV = environment()


def outcome(source, context):
    try:
        template = ENV.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        return {"error": "syntax", "message": str(error.message)}
    except SyntaxError as error:  # what Python itself refuses, such as break inside a macro
        return {"error": "syntax", "message": str(error)}
    try:
        return {"text": template.render(**context)}
    except Raised as error:
        return {"error": "raise", "message": str(error)}
    except (jinja2.UndefinedError, jinja2.sandbox.SecurityError) as error:
        return {"error": "undefined", "message": str(error)}
    except Exception as error:  # pylint: disable=broad-except
        return {"error": "runtime", "message": f"{type(error).__name__}: {error}"}


# ---- small templates ----

EXPRESSION_CONTEXT = {
    "s": "Hello, World", "i": 42, "neg": -7, "fl": 3.14, "t": True, "f": False, "n": None, "el": [], "ed": {},
    "big": 9007199254740993, "small": -9223372036854775808, "huge": 18446744073709551615,
    "floats": [0.1, 1e100, 1e-7, 1e16, 123456789.123, 1.0, 5e-324, 1.7976931348623157e308],
    "u": "Größe ΣΊΣΥΦΟΣ дом 你好 🎉", "xs": [3, 1, 2], "words": ["Banana", "apple", "Cherry"],
    "d": {"a": 1, "b": [1, 2, 3], "c": {"x": "y"}},
    "weird": {"items": 5, "keys": 6, "x": 1},
    "nested": {"list": [{"k": "v1"}, {"k": "v2"}]},
    "html": "<a href='x'>\"&\"</a>", "multi": "line1\nline2\n\n  line3", "ws": "  \t pad \n",
    "tree": [{"name": "a", "kids": [{"name": "b", "kids": [{"name": "c"}]}, {"name": "d"}]}, {"name": "e", "kids": []}],
    "people": [
        {"name": "Ann", "age": 31, "active": True, "address": {"city": "Oslo"}, "nick": "an"},
        {"name": "Bob", "age": 25, "active": False, "address": {"city": "Bern"}},
        {"name": "Cid", "age": 40, "active": True, "address": {"city": "Oslo"}},
    ],
}


def unescape(line):
    names = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
    return re.sub(r"\\(.)", lambda m: names.get(m[1], m[0]), line)


def expression_cases():
    cases = []
    for line in (FOLDER / "expressions.txt").read_text(encoding="utf-8").split("\n"):
        if not line or line.startswith("#"):
            continue
        source = unescape(line)
        cases.append({"template": source, **outcome(source, EXPRESSION_CONTEXT)})
    return {"now": NOW, "context": EXPRESSION_CONTEXT, "cases": cases}


# ---- whole templates ----

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, e.g. \"São Paulo\""},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "description": "How many days <ahead>", "default": 3},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Full-text search.\nReturns a list.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": ["integer", "null"], "description": "At most this many"},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "description": "Only these"},
                "range": {
                    "type": "object",
                    "properties": {"from": {"type": "number"}, "to": {"type": "number", "nullable": True}},
                    "required": ["from"],
                },
                "any": {"oneOf": [{"type": "string", "default": "x"}, {"type": "boolean"}], "description": "Either"},
                "flag": {"type": "boolean", "default": False},
            },
        },
    },
}
PING = {"type": "function", "function": {"name": "ping", "description": "No arguments.", "parameters": None}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, call_id="call00001"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_result(text, name="get_weather", call_id="call00001"):
    return {"role": "tool", "name": name, "tool_call_id": call_id, "content": text}


TOOL_TURN = [
    user("Weather in Oslo?"),
    assistant(None, tool_calls=[call("get_weather", {"city": "Oslo", "days": 2, "opts": {"a": [1, None, True]}})]),
    tool_result("{\"temp\": -3}"),
]
CONVERSATIONS = {
    "plain": {"messages": [user("Hi")]},
    "no_prompt": {"messages": [user("Hi"), assistant("Hello!")], "add_generation_prompt": False},
    "system": {"messages": [system("Be brief."), user("Hi")]},
    "empty_system": {"messages": [system(""), user("Hi")]},
    "multi_turn": {"messages": [system("Be brief."), user("One?"), assistant("1."), user("Two? – “zwei” 你好 🎉"),
                                assistant("  2.\n"), user("  Three?  \n")]},
    "late_system": {"messages": [user("One"), assistant("1"), system("Now in French."), user("Two")]},
    "developer": {"messages": [{"role": "developer", "content": "Be strict."}, user("Hi")]},
    "unknown_role": {"messages": [user("Hi"), {"role": "critic", "content": "?"}]},
    "two_users": {"messages": [user("One"), user("Two")]},
    "assistant_first": {"messages": [assistant("I start."), user("Why?")]},
    "no_messages": {"messages": []},
    "only_system": {"messages": [system("Alone.")]},
    "ends_with_assistant": {"messages": [user("Count"), assistant("1, 2,")], "add_generation_prompt": True},
    "null_content": {"messages": [user("Hi"), assistant(None), user("Still there?")]},
    "missing_content": {"messages": [{"role": "user"}]},
    "content_parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look: "},
                                                               {"type": "text", "text": "here"}]}]},
    "thinking_on": {"messages": [user("Hi")], "enable_thinking": True, "thinking": True},
    "thinking_off": {"messages": [user("Hi")], "enable_thinking": False, "thinking": False},
    "reasoning_content": {"messages": [user("2+2?"), assistant("4", reasoning_content="\nadd them\n", thinking="add"),
                                       user("3+3?"), assistant("6", reasoning_content="again")],
                          "add_generation_prompt": False},
    "reasoning_inline": {"messages": [user("2+2?"), assistant("<think>\nadd them\n</think>\n\n4"), user("3+3?"),
                                      assistant("<think>again</think>6"), user("4+4?")]},
    "tools": {"messages": [user("Weather in Oslo?")], "tools": [WEATHER]},
    "tools_system": {"messages": [system("Use tools."), user("Find it")], "tools": [WEATHER, SEARCH, PING]},
    "tools_empty": {"messages": [user("Hi")], "tools": []},
    "tool_call": {"messages": TOOL_TURN[:2], "tools": [WEATHER], "add_generation_prompt": False},
    "tool_result": {"messages": TOOL_TURN, "tools": [WEATHER]},
    "tool_finished": {"messages": TOOL_TURN + [assistant("It is -3 °C."), user("Thanks")], "tools": [WEATHER]},
    "tool_parallel": {"messages": [
        system("Use tools."), user("Oslo and Bern?"),
        assistant("Looking.", reasoning_content="two calls", tool_calls=[
            call("get_weather", {"city": "Oslo"}, "call00001"), call("get_weather", {"city": "Bern"}, "call00002")]),
        tool_result("-3"), tool_result("5", call_id="call00002"), assistant("Cold."), user("And now?")],
        "tools": [WEATHER, SEARCH]},
    "tool_text_arguments": {"messages": [user("Go"), assistant("", tool_calls=[call("search", "{\"query\": \"x\"}")]),
                                         tool_result("none", "search")], "tools": [SEARCH]},
    "tool_bad_id": {"messages": [user("Go"), assistant("", tool_calls=[call("ping", {}, "short")]),
                                 tool_result("ok", "ping", "short")], "tools": [PING]},
    "effort_low": {"messages": [user("Hi")], "reasoning_effort": "low"},
    "identity": {"messages": [user("Hi")], "model_identity": "You are a test.", "builtin_tools": ["browser", "python"]},
    "documents": {"messages": [user("Sum up")], "documents": [{"doc_id": 1, "title": "T", "text": "Body"}]},
}


def conversation_context(conversation):
    return {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "tools": None, **conversation}


def template_cases(path):
    source = path.read_text(encoding="utf-8")
    contexts = {name: conversation_context(c) for name, c in CONVERSATIONS.items()}
    return {"cases": {name: outcome(source, context) for name, context in contexts.items()}}


def outputs():
    yield FOLDER / "expressions.json", expression_cases()
    yield FOLDER / "conversations.json", {"now": NOW, "contexts": {
        name: conversation_context(c) for name, c in CONVERSATIONS.items()}}
    for path in sorted(FOLDER.glob("*.jinja")):
        yield path.with_suffix(".json"), template_cases(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    stale = []
    for path, data in outputs():
        text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
        if arguments.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(path.name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print("differs from the reference: " + ", ".join(stale), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
