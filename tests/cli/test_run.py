"""`bellhop run`: prompts, streaming, sampling, stop rules, context, signals, chat."""

import json
import os
import pty
import select
import signal
import subprocess
import time

import bellhop_process
from bellhop_process import GOLDEN, MODEL, TIMEOUT_S, ProgramTest, call, clean_environment

PROMPT = "The king said to the people"
RAW = ("run", "--raw", "--greedy", "-p", PROMPT)


def cpu_isas():
    """Kernel bundles that this CPU has, as its feature flags say."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    isas = ["reference"]
    if {"avx2", "fma", "f16c"} <= flags:
        isas.append("avx2")
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
            isas.append("avx512")
    return isas


class RunTest(ProgramTest):
    def test_json_has_the_documented_shape(self):
        result = self.ok_json("run", "-p", "hi", "-n", "6", "--seed", "7")
        self.assertEqual(result["model"], MODEL.name)
        self.assertEqual(result["prompt_ids"][0], 4094)  # <|im_start|> of the chat template
        self.assertTrue(1 <= len(result["ids"]) <= 6)
        self.assertIn(result["finish_reason"], ("eog", "length"))
        self.assertEqual(result["seed"], 7)
        for key in ("prompt_ms", "decode_ms", "prompt_tokens_per_s", "decode_tokens_per_s", "load_ms"):
            self.assertGreaterEqual(result["timings"][key], 0)
        experts = result["experts"]
        rows = len(result["prompt_ids"]) + len(result["ids"]) - (1 if result["finish_reason"] == "length" else 0)
        self.assertEqual(experts["hits"] + experts["misses"], rows * 4 * 4)  # 4 of each of 4 layers
        self.assertEqual(experts["total"], 128)
        self.assertAlmostEqual(experts["hit_rate"], experts["hits"] / (experts["hits"] + experts["misses"]))
        # `ids` are the generated tokens only, and `text` is their text.
        ids = ",".join(map(str, result["ids"]))
        self.assertEqual(self.ok_json("tokenize", "--decode", ids)["text"], result["text"])

    def test_json_writes_nothing_else(self):
        done = call("run", "-p", "hi", "-n", "1", "--json")
        json.loads(done.stdout)
        self.assertEqual(done.stderr, b"")

    def test_greedy_tokens_are_the_golden_ones(self):
        golden = json.loads((GOLDEN / "short.json").read_text())
        result = self.ok_json(*RAW, "-n", "64", "--ignore-eos", "--act", "f32")
        self.assertEqual(result["prompt_ids"], golden["ids"])
        self.assertEqual(result["ids"], golden["greedy_ids"])
        chat = json.loads((GOLDEN / "chat.json").read_text())
        result = self.ok_json("run", "-p", "Define: abeyance", "--greedy", "-n", "8", "--act", "f32")
        self.assertEqual(result["prompt_ids"], chat["ids"])
        self.assertEqual(result["ids"], chat["greedy_ids"][:8])

    def test_greedy_tokens_are_equal_for_threads_and_isas(self):
        expected = self.ok_json(*RAW, "-n", "40", "--ignore-eos")["ids"]
        self.assertEqual(len(expected), 40)
        for threads in ("1", "2"):
            if int(threads) <= os.cpu_count():
                self.assertEqual(self.ok_json(*RAW, "-n", "40", "--ignore-eos", "--threads", threads)["ids"], expected)
        available = cpu_isas()
        for isa in ("reference", "avx2", "avx512"):
            if isa in available:
                result = self.ok_json(*RAW, "-n", "40", "--ignore-eos", "--isa", isa)
                self.assertEqual(result["ids"], expected, isa)
                self.assertEqual(result["backend"]["isa"], isa)
            else:
                self.assertIn(isa, self.fails(*RAW, "--isa", isa))

    def test_temperature_0_is_greedy_and_a_seed_repeats(self):
        greedy = self.ok_json(*RAW, "-n", "12")["ids"]
        self.assertEqual(self.ok_json("run", "--raw", "-p", PROMPT, "-n", "12", "--temp", "0")["ids"], greedy)
        self.assertEqual(self.ok_json("run", "--raw", "-p", PROMPT, "-n", "12", "--top-k", "1")["ids"], greedy)
        drawn = [self.ok_json("run", "--raw", "-p", PROMPT, "-n", "24", "--ignore-eos", "--temp", "1.5", "-s", seed)["ids"]
                 for seed in ("1", "1", "2")]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        seeds = {self.ok_json("run", "-p", "x", "-n", "1")["seed"] for _ in range(2)}
        self.assertEqual(len(seeds), 2)

    def test_logit_bias_bans_a_token(self):
        first = self.ok_json(*RAW, "-n", "1")["ids"][0]
        banned = self.ok_json(*RAW, "-n", "1", "--logit-bias", f"{first}-inf")["ids"][0]
        self.assertNotEqual(banned, first)
        self.assertEqual(self.ok_json(*RAW, "-n", "3", "--logit-bias", "1000+1000")["ids"], [1000] * 3)
        self.assertIn("4096", self.fails(*RAW, "--logit-bias", "4096+1"))

    def test_streamed_text_equals_the_text_of_json(self):
        # Unlikely tokens: characters split over several of them, and ends inside a character.
        arguments = ("run", "--raw", "-p", "naïve 🙂 日本", "--temp", "3", "--top-k", "0", "--top-p", "1", "--min-p", "0",
                     "--ignore-eos", "-s", "5")
        for count in ("1", "2", "3", "40"):
            text = self.ok_json(*arguments, "-n", count)["text"]
            streamed = self.ok(*arguments, "-n", count)
            self.assertEqual(streamed, text if text.endswith("\n") else text + "\n")

    def test_special_tokens_are_shown_on_request(self):
        arguments = (*RAW, "-n", "2", "--logit-bias", "4095+1000", "--ignore-eos")
        self.assertEqual(self.ok_json(*arguments)["text"], "")
        self.assertEqual(self.ok_json(*arguments, "--special")["text"], "<|im_end|><|im_end|>")

    def test_special_tokens_in_the_prompt_are_recognised(self):
        result = self.ok_json("run", "--raw", "-p", "<|im_start|>user\nHi<|im_end|>", "-n", "0")
        self.assertEqual((result["prompt_ids"][0], result["prompt_ids"][-1]), (4094, 4095))
        self.assertEqual((result["ids"], result["text"], result["finish_reason"]), ([], "", "length"))

    def test_stop_strings_cut_exactly(self):
        whole = self.ok_json(*RAW, "-n", "40", "--ignore-eos")
        text = whole["text"]
        for begin, length in ((1, 1), (9, 7), (20, 15)):
            stop = text[begin:begin + length]
            result = self.ok_json(*RAW, "-n", "40", "--ignore-eos", "--stop", "never occurs", "-r", stop)
            self.assertEqual(result["text"], text[:text.index(stop)], stop)
            self.assertEqual(result["finish_reason"], "stop")
            self.assertLess(len(result["ids"]), 40)
            self.assertEqual(self.ok(*RAW, "-n", "40", "--ignore-eos", "--stop", stop).rstrip("\n"),
                             text[:text.index(stop)].rstrip("\n"))

    def test_prompt_from_file_and_standard_input(self):
        expected = self.ok_json(*RAW, "-n", "4")
        path = self.file("prompt.txt", PROMPT + "\n")
        arguments = ("run", "--raw", "--greedy", "-n", "4")
        for source, stdin in ((("-f", path), b""), (("-f", "-"), PROMPT.encode()), ((), PROMPT.encode() + b"\n")):
            result = self.ok_json(*arguments, *source, stdin=stdin)
            self.assertEqual((result["prompt_ids"], result["ids"]), (expected["prompt_ids"], expected["ids"]), source)
        self.assertIn("prompt is empty", self.fails(*arguments, stdin=b""))
        self.assertIn("missing.txt", self.fails(*arguments, "-f", self.folder / "missing.txt"))

    def test_system_prompt_is_rendered(self):
        ids = self.ok_json("run", "-p", "Hi", "-sys", "Be brief", "-n", "0")["prompt_ids"]
        text = self.ok_json("tokenize", "--decode", ",".join(map(str, ids)))["text"]
        self.assertEqual(text, "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                               "<|im_start|>assistant\n")

    def test_invalid_utf8_still_gives_valid_json(self):
        result = self.ok_json("run", "--raw", "-n", "2", "-f", "-", stdin=b"a\xff\xfe\xc3")
        self.assertEqual(len(result["prompt_ids"]), 4)

    def test_a_prompt_longer_than_the_context_is_refused(self):
        reason = self.fails("run", "--raw", "-p", "word " * 40, "-c", "16")
        self.assertRegex(reason, r"prompt has \d+ tokens, the context 16")
        self.assertIn("--ctx-size", reason)
        self.assertIn("1024", self.fails(*RAW, "-c", "2000"))

    def test_a_full_context_ends_or_shifts(self):
        arguments = (*RAW, "-c", "32", "-n", "60", "--ignore-eos")
        full = self.ok_json(*arguments)
        self.assertEqual(full["finish_reason"], "length")
        self.assertEqual(len(full["prompt_ids"]) + len(full["ids"]), 33)  # the last token needs no room
        self.assertIn(b"the context of 32 tokens is full", call(*arguments).stderr)
        shifted = self.ok_json(*arguments, "--context-shift", "--keep", "4")
        self.assertEqual(len(shifted["ids"]), 60)
        self.assertGreater(shifted["context"]["shifts"], 0)
        self.assertEqual(shifted["ids"][:len(full["ids"])], full["ids"])

    def test_stats_and_plan_go_to_standard_error(self):
        done = call(*RAW, "-n", "4", "--stats", "-s", "3")
        errors = done.stderr.decode()
        for words in ("using the shipped model", "experts: 0 of 128 in GPU slots", "decode:  4 tokens", "hit rate",
                      "seed 3"):
            self.assertIn(words, errors)
        self.assertEqual(call(*RAW, "-n", "4", "-q").stderr, b"")

    def test_ctrl_c_ends_generation_cleanly(self):
        command = [bellhop_process.program, *RAW, "-q", "--ignore-eos", "--context-shift", "--stats"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()) as process:
            first = os.read(process.stdout.fileno(), 1)
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 0)
        self.assertTrue((first + rest).endswith(b"\n"))
        self.assertIn(b"end:     cancelled", errors)

    def test_a_reader_that_goes_away_ends_it_quietly(self):
        command = [bellhop_process.program, *RAW, "-q", "--ignore-eos", "--context-shift"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()) as process:
            os.read(process.stdout.fileno(), 1)
            process.stdout.close()
            errors = process.stderr.read()
            process.wait(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, errors), (0, b""))

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([bellhop_process.program, *RAW, "-q", "-n", "4"], stdout=full, stderr=subprocess.PIPE,
                                  timeout=TIMEOUT_S, env=clean_environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), "^bellhop: error: cannot write to standard output: ")

    def test_gpu_settings_need_a_gpu(self):
        if "built without CUDA" not in self.ok("doctor", "--no-measure"):
            return  # with a GPU build these are the GPU tests' business
        for flags in (("--device", "cuda"), ("--offload", "required"), ("--gpu-experts", "1"), ("--vram", "1GiB"),
                      ("--miss-lane", "pcie")):
            self.assertIn(flags[0], self.fails(*RAW, "-n", "1", *flags))
        expected = self.ok_json(*RAW, "-n", "4")["ids"]
        for flags in (("--device", "cpu"), ("--offload", "off"), ("--gpu-experts", "0"), ("--vram", "0"),
                      ("--miss-lane", "cpu"), ("--deterministic",)):
            self.assertEqual(self.ok_json(*RAW, "-n", "4", *flags)["ids"], expected)


class ChatTest(ProgramTest):
    QUESTION = "Define: abeyance"

    def test_messages_from_a_pipe(self):
        first = self.ok_json("run", "-p", self.QUESTION, "--greedy", "-n", "12")
        lines = f"{self.QUESTION}\n\n/stats\n/reset\n{self.QUESTION}\n/exit\nnever read\n"
        done = call("run", "-cnv", "--greedy", "-n", "12", stdin=lines.encode())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.decode(), (first["text"] + "\n") * 2)
        self.assertIn(b"decode:  12 tokens", done.stderr)
        self.assertIn(b"the conversation is forgotten", done.stderr)

    def test_turns_are_remembered(self):
        lines = f"{self.QUESTION}\nAnd: courage"
        second = call("run", "-cnv", "--greedy", "-n", "8", "-q", stdin=lines.encode()).stdout.decode().splitlines()
        answer = self.ok_json("run", "-p", self.QUESTION, "--greedy", "-n", "8")["text"]
        history = (f"<|im_start|>user\n{self.QUESTION}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
                   "<|im_start|>user\nAnd: courage<|im_end|>\n<|im_start|>assistant\n")
        expected = self.ok_json("run", "--raw", "--greedy", "-n", "8", "-p", history)["text"]
        self.assertEqual("\n".join(second), f"{answer}\n{expected}")

    def test_a_chat_that_outgrows_the_context(self):
        lines = (self.QUESTION + "\n") * 6
        arguments = ("run", "-cnv", "--greedy", "-n", "8", "-c", "64", "-q")
        done = call(*arguments, stdin=lines.encode())
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"--ctx-size", done.stderr)
        self.assertEqual(call(*arguments, "--context-shift", stdin=lines.encode()).returncode, 0)

    def test_on_a_terminal(self):
        master, slave = pty.openpty()
        command = [bellhop_process.program, "run", "--greedy", "--ignore-eos", "--context-shift", "-n", "100000"]
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                   env=clean_environment())
        os.close(slave)
        self.addCleanup(os.close, master)
        self.addCleanup(process.kill)

        def read_until(words):
            seen, deadline = b"", time.monotonic() + TIMEOUT_S
            while words not in seen:
                self.assertLess(time.monotonic(), deadline, seen)
                if select.select([master], [], [], 1)[0]:
                    seen += os.read(master, 4096)
            return seen

        self.assertIn(b"/reset forgets", read_until(b"\n> "))
        os.write(master, self.QUESTION.encode() + b"\n")
        read_until(b"1. ")
        process.send_signal(signal.SIGINT)  # ends the answer, not the chat
        read_until(b"\n> ")
        os.write(master, b"/stats\n")
        self.assertIn(b"cancelled", read_until(b"\n> "))
        process.send_signal(signal.SIGINT)  # at the prompt: ends the chat
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 0)
