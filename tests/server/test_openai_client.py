"""OpenAI's own client against the server: chat, completions, responses, models, errors. What constrains the output is in
test_openai_output.py."""

import json
import time
import urllib.error
import urllib.request

import openai
from serve_process import MODEL, MODEL_ID, ServerTest, run_json

STORY = [{"role": "user", "content": "Tell me a story."}]
PROMPT = "The captain looked at the sea"


class OpenAiTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=120)

    def chat(self, messages=None, **options):
        return self.client.chat.completions.create(model=MODEL_ID, messages=messages or STORY,
                                                   **{"max_tokens": 24, "temperature": 0, **options})

    def complete(self, prompt=PROMPT, **options):
        return self.client.completions.create(model=MODEL_ID, prompt=prompt,
                                              **{"max_tokens": 16, "temperature": 0, **options})

    def post(self, path, body):
        call = urllib.request.Request(self.server.url + path, json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=60) as answer:
            return json.loads(answer.read())

    def refused(self, call, *words, kind=openai.BadRequestError):
        with self.assertRaises(kind) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))
        return caught.exception


class ChatTest(OpenAiTest):
    def test_stream_equals_answer(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason],
                         [whole.choices[0].finish_reason])
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertGreater(sum(1 for c in chunks if c.choices and c.choices[0].delta.content), 5)

    def test_usage_adds_up_and_comes_last_in_a_stream(self):
        usage = self.chat().usage
        self.assertEqual(usage.completion_tokens, 24)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + 24)
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 24)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))

    def test_no_usage_chunk_unless_asked_for(self):
        self.assertTrue(all(c.usage is None and c.choices for c in self.chat(stream=True)))

    def test_prompt_tokens_are_those_of_the_template(self):
        prompt = self.post("/apply-template", {"messages": STORY})["prompt"]
        tokens = self.post("/tokenize", {"content": prompt})["tokens"]
        self.assertIn("Tell me a story.", prompt)
        self.assertEqual(self.chat().usage.prompt_tokens, len(tokens))

    def test_a_repeated_prompt_is_cached_and_changes_nothing(self):
        messages = [{"role": "user", "content": "A prompt of its own for the cache: " + "the sea and " * 60}]
        first, second = self.chat(messages), self.chat(messages)
        self.assertLess(first.usage.prompt_tokens_details.cached_tokens, 30)
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens, 64)
        self.assertLess(second.usage.prompt_tokens_details.cached_tokens, second.usage.prompt_tokens)
        self.assertEqual(first.choices[0].message.content, second.choices[0].message.content)

    def test_cache_can_be_refused(self):
        self.chat()
        again = self.chat(extra_body={"cache_prompt": False})
        self.assertEqual(again.usage.prompt_tokens_details.cached_tokens, 0)

    def test_length_ends_with_length(self):
        answer = self.chat(max_tokens=3)
        self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 3))

    def test_max_completion_tokens_is_the_same(self):
        answer = self.client.chat.completions.create(model=MODEL_ID, messages=STORY, temperature=0,
                                                     max_completion_tokens=5)
        self.assertEqual(answer.usage.completion_tokens, 5)

    def test_stop_string_is_cut_off_even_across_tokens(self):
        whole = self.chat(max_tokens=40).choices[0].message.content
        for at, length in ((10, 1), (14, 7), (25, 12)):
            stop = whole[at:at + length]
            expected = whole[:whole.index(stop)]
            with self.subTest(stop=stop):
                answer = self.chat(max_tokens=40, stop=stop)
                self.assertEqual(answer.choices[0].message.content, expected)
                self.assertEqual(answer.choices[0].finish_reason, "stop")
                streamed = "".join(c.choices[0].delta.content or "" for c in
                                   self.chat(max_tokens=40, stop=[stop, "never said"], stream=True))
                self.assertEqual(streamed, expected)

    def test_same_seed_same_text_other_seed_other_text(self):
        texts = [self.chat(temperature=1.2, seed=seed, max_tokens=40).choices[0].message.content
                 for seed in (11, 11, 12)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_choices_of_one_request_differ_and_repeat(self):
        first, second = (self.chat(n=3, temperature=1.0, seed=5, max_tokens=30) for _ in range(2))
        texts = [choice.message.content for choice in first.choices]
        self.assertEqual([choice.index for choice in first.choices], [0, 1, 2])
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(texts, [choice.message.content for choice in second.choices])
        self.assertGreater(first.usage.completion_tokens, 30)

    def test_choices_stream_side_by_side(self):
        texts = {0: "", 1: ""}
        for chunk in self.chat(n=2, temperature=1.0, seed=5, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        whole = self.chat(n=2, temperature=1.0, seed=5)
        self.assertEqual(texts, {choice.index: choice.message.content for choice in whole.choices})

    def test_log_probabilities(self):
        answer = self.chat(logprobs=True, top_logprobs=4, max_tokens=8)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(len(entries), 8)
        for entry in entries:
            self.assertEqual(len(entry.top_logprobs), 4)
            values = [top.logprob for top in entry.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLessEqual(values[0], 0)
            # Greedy: the token is the likeliest.
            self.assertEqual((entry.token, entry.logprob), (entry.top_logprobs[0].token, values[0]))
        joined = b"".join(bytes(entry.bytes) for entry in entries).decode()
        self.assertEqual(joined, answer.choices[0].message.content)

    def test_log_probabilities_in_a_stream_are_the_same(self):
        whole = self.chat(logprobs=True, max_tokens=8).choices[0].logprobs.content
        streamed = [entry for chunk in self.chat(logprobs=True, max_tokens=8, stream=True) if chunk.choices
                    and chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content or []]
        self.assertEqual([e.token for e in streamed], [e.token for e in whole])
        for one, other in zip(streamed, whole):
            self.assertAlmostEqual(one.logprob, other.logprob, places=5)

    def test_logit_bias_bans_and_forces(self):
        first = self.chat(logprobs=True, max_tokens=1).choices[0].logprobs.content[0].token
        (token,) = self.post("/tokenize", {"content": first})["tokens"]
        banned = self.chat(max_tokens=1, logit_bias={str(token): -100}).choices[0].message.content
        self.assertNotEqual(banned, first)
        (the,) = self.post("/tokenize", {"content": " the"})["tokens"]
        self.assertEqual(self.chat(max_tokens=3, logit_bias={str(the): 100}).choices[0].message.content.strip(),
                         "the the the")

    def test_greedy_equals_the_command_line(self):
        prompt = self.post("/apply-template", {"messages": STORY})["prompt"]
        done = run_json("run", MODEL, "--raw", "-p", prompt, "-n", "40", "--temp", "0")
        self.assertEqual(done["prompt_ids"], self.post("/tokenize", {"content": prompt})["tokens"])
        self.assertEqual(self.complete(prompt, max_tokens=40).choices[0].text, done["text"])

    def test_unicode_split_over_tokens_stays_whole(self):
        text = "naïve — “quoted” 日本語 🛎️ é"
        tokens = self.post("/tokenize", {"content": text})["tokens"]
        self.assertGreater(len(tokens), len(text))  # the model knows few such characters: bytes of them are tokens
        self.assertEqual(self.post("/detokenize", {"tokens": tokens})["content"], text)
        grammar = 'root ::= "日本語🛎️"'
        streamed = [c.choices[0].delta.content for c in self.chat(stream=True, max_tokens=60,
                                                                   extra_body={"grammar": grammar}) if c.choices]
        self.assertEqual("".join(filter(None, streamed)), "日本語🛎️")
        self.assertFalse(any("�" in piece for piece in filter(None, streamed)))

    def test_conversation_with_system_and_parts(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": "Good day."},
                    {"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "then?"}]}]
        flat = [*messages[:3], {"role": "user", "content": "Who then?"}]
        self.assertEqual(self.chat(messages).choices[0].message.content, self.chat(flat).choices[0].message.content)

    def test_timings(self):
        answer = self.chat(max_tokens=10)
        timings = answer.model_extra["timings"]
        self.assertEqual(timings["predicted_n"], 10)
        self.assertEqual(timings["prompt_n"] + timings["cache_n"], answer.usage.prompt_tokens)
        self.assertGreater(timings["predicted_ms"], 0)
        self.assertGreater(timings["predicted_per_second"], 0)

    def test_closing_a_stream_frees_the_slot(self):
        stream = self.chat(stream=True, max_tokens=900, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.server.wait_until_idle()
        self.assertEqual(len(self.server.get("/slots")), 4)
        self.assertEqual(self.chat(max_tokens=2).usage.completion_tokens, 2)

    def test_more_requests_than_slots_all_end_alike(self):
        streams = [self.chat(stream=True, max_tokens=30) for _ in range(9)]
        texts = {"".join(c.choices[0].delta.content or "" for c in s if c.choices) for s in streams}
        self.assertEqual(texts, {self.chat(max_tokens=30).choices[0].message.content})


class CompletionTest(OpenAiTest):
    def test_stream_equals_answer(self):
        whole = self.complete()
        streamed = "".join(c.choices[0].text for c in self.complete(stream=True) if c.choices)
        self.assertEqual(streamed, whole.choices[0].text)
        self.assertEqual(whole.object, "text_completion")

    def test_default_length_is_16(self):
        answer = self.client.completions.create(model=MODEL_ID, prompt=PROMPT, temperature=0,
                                                extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 16)

    def test_tokens_as_prompt(self):
        tokens = self.post("/tokenize", {"content": PROMPT, "add_special": True})["tokens"]
        self.assertEqual(self.complete(tokens).choices[0].text, self.complete().choices[0].text)

    def test_several_prompts(self):
        prompts = [PROMPT, "The function returns", "Blessed is the man"]
        together = self.complete(prompts)
        self.assertEqual([c.text for c in together.choices], [self.complete(p).choices[0].text for p in prompts])

    def test_echo(self):
        self.assertEqual(self.complete(echo=True).choices[0].text, PROMPT + self.complete().choices[0].text)

    def test_log_probabilities(self):
        logs = self.complete(logprobs=3, max_tokens=6).choices[0].logprobs
        self.assertEqual([len(logs.tokens), len(logs.token_logprobs), len(logs.text_offset)], [6, 6, 6])
        self.assertTrue(all(len(top) == 3 for top in logs.top_logprobs))
        self.assertEqual(logs.text_offset[0], 0)


class ResponsesTest(OpenAiTest):
    def respond(self, **options):
        return self.client.responses.create(**{"model": MODEL_ID, "input": "Tell me a story.", "temperature": 0,
                                               "max_output_tokens": 24, **options})

    def test_answer_equals_chat(self):
        answer = self.respond()
        self.assertEqual(answer.output_text, self.chat().choices[0].message.content)
        self.assertEqual((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        self.assertEqual(answer.usage.output_tokens, 24)

    def test_stream(self):
        events = list(self.respond(stream=True))
        types = [event.type for event in events]
        self.assertEqual(types[:2], ["response.created", "response.in_progress"])
        self.assertIn(types[-1], ("response.completed", "response.incomplete"))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, self.respond().output_text)
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))

    def test_instructions_are_the_system_prompt(self):
        answer = self.respond(instructions="Be brief.")
        chat = self.chat([{"role": "system", "content": "Be brief."}, *STORY])
        self.assertEqual(answer.output_text, chat.choices[0].message.content)


class ErrorTest(OpenAiTest):
    def test_wrong_type_names_the_field(self):
        error = self.refused(lambda: self.chat(temperature="hot"), "temperature")
        self.assertEqual(error.body["param"], "temperature")

    def test_out_of_range_names_the_field(self):
        self.assertEqual(self.refused(lambda: self.chat(top_p=1.5)).body["param"], "top_p")

    def test_unknown_field_is_refused(self):
        self.refused(lambda: self.chat(extra_body={"temprature": 1}), "temprature")

    def test_unknown_model(self):
        self.refused(lambda: self.client.chat.completions.create(model="gpt-x", messages=STORY), "gpt-x", MODEL_ID,
                     kind=openai.NotFoundError)

    def test_context_overflow_has_both_numbers(self):
        error = self.refused(lambda: self.chat([{"role": "user", "content": "word " * 2000}]), "1024")
        self.assertEqual(error.code, "context_length_exceeded")
        self.assertRegex(str(error), r"\b(?!1024)\d{4,5}\b")

    def test_empty_messages(self):
        self.refused(lambda: self.client.chat.completions.create(model=MODEL_ID, messages=[]), "messages")

    def test_unknown_role(self):
        self.refused(lambda: self.chat([{"role": "wizard", "content": "x"}]), "messages[0].role")

    def test_images_are_refused(self):
        part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        self.refused(lambda: self.chat([{"role": "user", "content": [part]}]), "image_url")

    def test_top_logprobs_needs_logprobs(self):
        self.refused(lambda: self.chat(top_logprobs=2), "logprobs")

    def test_token_out_of_the_vocabulary(self):
        self.refused(lambda: self.complete([1, 4096]), "prompt[1]", "4095")
        self.refused(lambda: self.chat(logit_bias={"99999": 1}), "99999")

    def test_errors_before_a_stream_are_plain_errors(self):
        self.refused(lambda: self.chat(stream=True, temperature=-1), "temperature")

    def test_wrong_path_and_method(self):
        for path, data, status in (("/v1/nothing", b"{}", 404), ("/v1/chat/completions", None, 405)):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(urllib.request.Request(self.server.url + path, data), timeout=30)
            with caught.exception as error:
                self.assertEqual(error.code, status)
                self.assertTrue(json.loads(error.read())["error"]["message"])


class StateTest(OpenAiTest):
    options = ("--alias", "house-model", "--api-key", "secret", "--parallel", "2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="secret", max_retries=0, timeout=120)

    def test_models(self):
        (model,) = self.client.models.list().data
        self.assertEqual(model.id, "house-model")
        self.assertLessEqual(model.created, time.time() + 1)

    def test_wrong_key(self):
        wrong = openai.OpenAI(base_url=self.server.url + "/v1", api_key="guess", max_retries=0)
        self.refused(wrong.models.list, "API key", kind=openai.AuthenticationError)

    def test_alias_answers_and_metrics_count(self):
        self.client.chat.completions.create(model="house-model", messages=STORY, max_tokens=2)
        state = self.server.get("/experts", key="secret")
        self.assertEqual(state["slots"], 2)
        self.assertGreater(sum(map(sum, state["routes"])), 0)
