"""OpenAI's own client: output held to JSON, schemas, grammars and tool calls. The model is small: what is checked is that
its output has the form, not that it makes sense."""

import json

import jsonschema
from test_openai_client import OpenAiTest

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["ship", "house", "tree"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "kind", "age", "tags"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer",
                                                                                                "minimum": 1,
                                                                                                "maximum": 7}},
                   "required": ["city", "days"], "additionalProperties": False}}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "parameters": {"type": "object", "properties": {"utc": {"type": "boolean"}}, "required": ["utc"],
                                    "additionalProperties": False}}}


def json_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}}


class FormatTest(OpenAiTest):
    def test_json_object(self):
        for seed in range(3):
            answer = self.chat(response_format={"type": "json_object"}, max_tokens=400, temperature=0.7, seed=seed)
            if answer.choices[0].finish_reason == "stop":
                self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)
            else:
                self.assertTrue(answer.choices[0].message.content.lstrip().startswith("{"))

    def test_json_schema_validates(self):
        for seed in range(5):
            answer = self.chat(response_format=json_schema(SCHEMA), max_tokens=200, temperature=1.0, seed=seed)
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            jsonschema.validate(json.loads(answer.choices[0].message.content), SCHEMA)

    def test_json_schema_streams_the_same(self):
        options = {"response_format": json_schema(SCHEMA), "max_tokens": 200}
        streamed = "".join(c.choices[0].delta.content or "" for c in self.chat(stream=True, **options) if c.choices)
        self.assertEqual(streamed, self.chat(**options).choices[0].message.content)

    def test_unsupported_keyword_is_named(self):
        schema = {"type": "object", "properties": {"a": {"type": "string"}}, "dependentSchemas": {"a": {"minProperties": 2}}}
        self.refused(lambda: self.chat(response_format=json_schema(schema)), "dependentSchemas")

    def test_grammar(self):
        answer = self.chat(extra_body={"grammar": 'root ::= ("yes" | "no") " " [0-9]{3}'}, temperature=1, seed=4)
        self.assertRegex(answer.choices[0].message.content, r"^(yes|no) \d{3}$")
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_broken_grammar_is_refused(self):
        error = self.refused(lambda: self.chat(extra_body={"grammar": 'root ::= ("yes" '}), "grammar")
        self.assertEqual(error.body["param"], "grammar")

    def test_completion_with_a_grammar(self):
        text = self.complete(extra_body={"grammar": "root ::= [a-c]{5}"}).choices[0].text
        self.assertRegex(text, r"^[a-c]{5}$")

    def test_responses_with_a_schema(self):
        answer = self.client.responses.create(
            model="default", input="Describe a ship.", max_output_tokens=200, temperature=0.8,
            text={"format": {"type": "json_schema", "name": "thing", "schema": SCHEMA, "strict": True}})
        jsonschema.validate(json.loads(answer.output_text), SCHEMA)


class ToolTest(OpenAiTest):
    def call(self, **options):
        return self.chat(**{"tools": [WEATHER, CLOCK], "max_tokens": 200, **options})

    def check(self, call):
        tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in (WEATHER, CLOCK)}
        self.assertIn(call.function.name, tools)
        jsonschema.validate(json.loads(call.function.arguments), tools[call.function.name])

    def test_required(self):
        for seed in range(3):
            choice = self.call(tool_choice="required", parallel_tool_calls=False, temperature=1.0, seed=seed).choices[0]
            self.assertEqual(choice.finish_reason, "tool_calls")
            self.assertGreaterEqual(len(choice.message.tool_calls), 1)
            for call in choice.message.tool_calls:
                self.check(call)
                self.assertTrue(call.id)

    def test_named(self):
        choice = self.call(tool_choice={"type": "function", "function": {"name": "weather"}}).choices[0]
        self.assertEqual({call.function.name for call in choice.message.tool_calls}, {"weather"})
        self.check(choice.message.tool_calls[0])

    def test_streamed_arguments_join_to_json(self):
        options = {"tool_choice": {"type": "function", "function": {"name": "clock"}}, "parallel_tool_calls": False}
        names, arguments, finish = {}, {}, None
        for chunk in self.call(stream=True, **options):
            finish = chunk.choices[0].finish_reason or finish
            for call in chunk.choices[0].delta.tool_calls or []:
                if call.function.name:
                    names[call.index] = call.function.name
                arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
        self.assertEqual((names[0], finish), ("clock", "tool_calls"))
        whole = self.call(**options).choices[0].message.tool_calls
        self.assertEqual([json.loads(arguments[i]) for i in sorted(arguments)],
                         [json.loads(call.function.arguments) for call in whole])

    def test_no_parallel_calls(self):
        choice = self.call(tool_choice="required", parallel_tool_calls=False).choices[0]
        self.assertEqual(len(choice.message.tool_calls), 1)

    def test_none_gives_text(self):
        message = self.call(tool_choice="none", max_tokens=10).choices[0].message
        self.assertIsNone(message.tool_calls)
        self.assertTrue(message.content)

    def test_result_of_a_call_goes_back(self):
        call = self.call(tool_choice="required").choices[0].message.tool_calls[0]
        messages = [{"role": "user", "content": "The weather?"},
                    {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
                    {"role": "tool", "tool_call_id": call.id, "content": "Sunny"}]
        self.assertTrue(self.chat(messages, tools=[WEATHER, CLOCK], tool_choice="none").choices[0].message.content)

    def test_unknown_name_is_refused(self):
        self.refused(lambda: self.call(tool_choice={"type": "function", "function": {"name": "oracle"}}), "oracle")

    def test_tools_without_need(self):
        self.refused(lambda: self.chat(tool_choice="required"), "tool")

    def test_responses_call(self):
        flat = {"type": "function", "strict": True, **WEATHER["function"]}
        answer = self.client.responses.create(model="default", input="The weather?", tools=[flat],
                                              tool_choice="required", max_output_tokens=200)
        calls = [item for item in answer.output if item.type == "function_call"]
        self.assertEqual(calls[0].name, "weather")
        jsonschema.validate(json.loads(calls[0].arguments), WEATHER["function"]["parameters"])
