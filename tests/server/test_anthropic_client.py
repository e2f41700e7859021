"""Anthropic's own client against /v1/messages."""

import json

import anthropic
import jsonschema
from serve_process import MODEL_ID, ServerTest

STORY = [{"role": "user", "content": "Tell me a story."}]
WEATHER = {"name": "weather", "description": "The weather in a city.",
           "input_schema": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
                            "additionalProperties": False}}


class AnthropicTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="none", max_retries=0, timeout=120)

    def message(self, **options):
        return self.client.messages.create(**{"model": MODEL_ID, "messages": STORY, "max_tokens": 24,
                                              "extra_body": {"temperature": 0}, **options})

    def events(self, **options):
        return list(self.message(stream=True, **options))

    def refused(self, call, *words, kind=anthropic.BadRequestError):
        with self.assertRaises(kind) as caught:
            call()
        self.assertEqual(caught.exception.body["type"], "error")
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_answer(self):
        answer = self.message()
        self.assertEqual((answer.type, answer.role, answer.stop_reason), ("message", "assistant", "max_tokens"))
        self.assertEqual([block.type for block in answer.content], ["text"])
        self.assertEqual(answer.usage.output_tokens, 24)

    def test_event_order_and_text(self):
        events = self.events()
        types = [event.type for event in events if event.type != "ping"]
        self.assertEqual(types[:2], ["message_start", "content_block_start"])
        self.assertEqual(types[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(set(types[2:-3]), {"content_block_delta"})
        text = "".join(event.delta.text for event in events if event.type == "content_block_delta")
        self.assertEqual(text, self.message().content[0].text)

    def test_stream_helper_gathers_the_message(self):
        with self.client.messages.stream(model=MODEL_ID, messages=STORY, max_tokens=24,
                                         extra_body={"temperature": 0}) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, final.content[0].text)
        self.assertEqual((final.stop_reason, final.usage.output_tokens), ("max_tokens", 24))

    def test_usage_counts_the_whole_prompt(self):
        text = "A prompt that is counted: " + "the sea and " * 50
        options = {"messages": [{"role": "user", "content": text}], "max_tokens": 4}
        first, second = self.message(**options).usage, self.message(**options).usage
        self.assertEqual(first.input_tokens + first.cache_read_input_tokens,
                         second.input_tokens + second.cache_read_input_tokens)
        self.assertGreater(second.cache_read_input_tokens, first.cache_read_input_tokens)

    def test_stop_sequence(self):
        whole = self.message(max_tokens=40).content[0].text
        stop = whole[15:20]
        answer = self.message(max_tokens=40, stop_sequences=[stop])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", stop))
        self.assertEqual(answer.content[0].text, whole[:whole.index(stop)])
        delta = next(event for event in self.events(max_tokens=40, stop_sequences=[stop])
                     if event.type == "message_delta")
        self.assertEqual((delta.delta.stop_reason, delta.delta.stop_sequence), ("stop_sequence", stop))

    def test_system_prompt_counts(self):
        plain = self.message(max_tokens=1).usage
        system = self.message(max_tokens=1, system=[{"type": "text", "text": "Be brief and kind."}]).usage
        self.assertGreater(system.input_tokens + system.cache_read_input_tokens,
                           plain.input_tokens + plain.cache_read_input_tokens)

    def test_tool_use(self):
        one_call = {"type": "any", "disable_parallel_tool_use": True}
        answer = self.message(tools=[WEATHER], tool_choice=one_call, max_tokens=200)
        uses = [block for block in answer.content if block.type == "tool_use"]
        self.assertEqual((uses[0].name, answer.stop_reason), ("weather", "tool_use"))
        jsonschema.validate(uses[0].input, WEATHER["input_schema"])
        self.assertTrue(uses[0].id)

    def test_tool_use_streams_json(self):
        events = self.events(tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"}, max_tokens=200)
        start = next(event for event in events if event.type == "content_block_start"
                     and event.content_block.type == "tool_use")
        joined = "".join(event.delta.partial_json for event in events if event.type == "content_block_delta"
                         and event.index == start.index)
        jsonschema.validate(json.loads(joined), WEATHER["input_schema"])

    def test_tool_result_goes_back(self):
        use = next(block for block in self.message(tools=[WEATHER], tool_choice={"type": "any"},
                                                   max_tokens=200).content if block.type == "tool_use")
        messages = [*STORY, {"role": "assistant", "content": [{"type": "tool_use", "id": use.id, "name": use.name,
                                                               "input": use.input}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "Sunny"}]}]
        answer = self.message(messages=messages, tools=[WEATHER], tool_choice={"type": "none"})
        self.assertEqual(answer.content[0].type, "text")

    def test_errors_have_their_shape(self):
        self.refused(lambda: self.message(messages=[]), "messages")
        self.refused(lambda: self.message(extra_body={"temperature": "hot"}), "temperature")
        self.refused(lambda: self.message(extra_body={"no_such_field": 1}), "no_such_field")
        self.refused(lambda: self.message(messages=[{"role": "user", "content": "word " * 2000}]), "1024")
        self.refused(lambda: self.message(model="claude-x"), "claude-x", kind=anthropic.NotFoundError)

    def test_closing_a_stream_frees_the_slot(self):
        stream = self.message(stream=True, max_tokens=900)
        next(iter(stream))
        stream.close()
        self.server.wait_until_idle()
